/* run_data.c - see run_data.h. */
#include "train/step/run_data.h"
#include "base/log.h"
#include "base/rng.h"
#include "data/render/renderer.h"
#include "data/shape/data_source.h"
#include "data/store/dataset_reader.h"
#include "data/store/pair_row.h"
#include "train/run/run_data_opts.h"
#include "train/step/ranks.h"

#include <math.h>

static af_status nothing_left(const af_run_config *run, const af_data_counts *c, bool evaluated,
                              af_error *err)
{
    char at[300];
    return af_fail(
        err, AF_EUSAGE,
        "%s: no record of %s is left to %s: %" PRId64 " are longer than sequence_len %" PRId64
        " and dropped, %" PRId64 " have no token that carries loss (%" PRId64
        " were cut at sequence_len), %" PRId64
        " are shorter than min_sample_len or were there before",
        evaluated ? af_run_key_loc(run, "test_datasets", at, sizeof at) : run->path,
        evaluated ? "test_datasets" : "the datasets", evaluated ? "evaluate on" : "train on",
        c->dropped, run->sequence_len, c->nothing_to_learn, c->truncated, c->left_out);
}

static af_status open_store(const af_run_data *d, const af_run_config *run,
                            const af_run_model *model, const af_yaml *list, af_token_store *store,
                            af_data_counts *counts, af_error *err)
{
    af_data_opts o = af_run_data_opts(run, model->texts);
    o.datasets = list;
    o.chat_template = d->chat_template;
    o.vocab = model->spec->vocab;
    o.labels = model->label_opts;
    const bool evaluated = list == run->test_datasets;
    o.cache_reported = evaluated;
    if (evaluated)
        o.mix = AF_MIX_CONCAT; /* every record is evaluated, once */
    const af_status st = af_dataset_open(store, counts, &o, err);
    if (st == AF_OK && store->records == 0)
        return nothing_left(run, counts, evaluated, err);
    if (st == AF_OK && store->supervised == 0)
        return af_fail(err, AF_EUSAGE,
                       "%s: no token of the datasets carries loss: there is nothing to learn",
                       run->path);
    return st;
}

const af_token_store *af_run_data_eval_store(const af_run_data *d)
{
    return d->eval_own_store ? &d->eval_store : &d->store;
}

/* record[i]: the number of the record that row i is of, which differs from i where conversations
 * have several rows. Those of a file come in order, though rows of others may be between them.
 * Returns how many records there are, -1 without memory. */
static int64_t count_records(const af_run_data *d, int64_t *record)
{
    const af_token_store *s = &d->store;
    const uint64_t files = (uint64_t)AF_MAX(af_dataset_file_count(s), 1);
    int64_t *last = af_calloc(files, sizeof *last), n = 0; /* of each file: a row + 1, or 0 */
    for (int64_t i = 0; last && i < s->records; i++) {
        const af_token_index *x = &s->index[i];
        int64_t *before = &last[AF_MIN(x->source, files - 1)];
        const af_token_index *y = *before ? &s->index[*before - 1] : NULL;
        const bool same = d->counts.split_rows && y && y->source == x->source && y->line == x->line;
        record[i] = same ? record[*before - 1] : n++;
        *before = i + 1;
    }
    n = last ? n : -1;
    free(last);
    return n;
}

af_status af_run_data_hold_out(const af_run_config *run, int64_t n, int64_t *out, af_error *err)
{
    enum { SHARE = 10 }; /* of few records a tenth */
    const double v = run->val_set_size;
    int64_t held = v < 1 ? (int64_t)ceil((double)n * v) : (int64_t)v;
    char at[300];
    if (held >= n && n >= SHARE && af_run_key_line(run, "val_set_size") > 0) {
        /* a file written for more data, tried on some of it */
        af_log_write(AF_LOG_WARN,
                     "%s: val_set_size holds out %" PRId64 " of %" PRId64 " records: %" PRId64
                     " are held out instead",
                     af_run_key_loc(run, "val_set_size", at, sizeof at), held, n, n / SHARE);
        held = n / SHARE;
    }
    if (held >= n)
        return af_fail(err, AF_EUSAGE,
                       "%s: val_set_size holds out %" PRId64 " of %" PRId64
                       " records: none are left",
                       af_run_key_loc(run, "val_set_size", at, sizeof at), held, n);
    *out = held;
    return AF_OK;
}

/* val_set_size: a share or a number of records, drawn by the seed; both parts keep file order. */
static af_status split(af_run_data *d, const af_run_config *run, af_error *err)
{
    const int64_t rows = d->store.records;
    int64_t held = 0, trained = 0, *record = af_calloc((uint64_t)rows, sizeof *record);
    bool *out = af_calloc((uint64_t)rows, sizeof *out); /* by record */
    af_status st = AF_OK;
    d->train_subset = af_calloc((uint64_t)rows, sizeof *d->train_subset);
    d->eval_subset = af_calloc((uint64_t)rows, sizeof *d->eval_subset);
    const int64_t n = record ? count_records(d, record) : -1;
    if (!out || !d->train_subset || !d->eval_subset || n < 0)
        AF_TRY(af_fail_nomem(err, "the split", (uint64_t)rows * 24));
    AF_TRY(af_run_data_hold_out(run, n, &held, err));
    for (int64_t left = held, i = 0; i < n; i++) { /* selection sampling: exactly `held` */
        const bool pick = (int64_t)af_rng_below((uint64_t)run->seed, 0x73706c6974, (uint64_t)i,
                                                (uint64_t)(n - i)) < left;
        out[i] = pick;
        left -= pick;
    }
    for (int64_t i = 0; i < rows; i++)
        if (out[record[i]])
            d->eval_subset[d->eval_items++] = i;
        else
            d->train_subset[trained++] = i;
done:
    free(record);
    free(out);
    return st;
}

/* A layer with a state cannot begin two answers with one prompt; noise on embeddings depends on
 * the length of a sequence. */
bool af_run_data_shares(const af_run_config *run, const af_model_spec *spec)
{
    if (!af_run_compares(run) || spec->recurrent || run->neftune_alpha > 0)
        return false;
    for (int i = 0; i < spec->layers; i++)
        if (spec->layer[i].mixer != AF_MIXER_ATTENTION)
            return false;
    return true;
}

static af_pair_layout pair_layout(const af_run_config *run, const af_model_spec *spec)
{
    const bool unpaired = run->rl == AF_RL_KTO && !af_run_has_kl_rows(run);
    return (af_pair_layout){.rl = af_run_rl(run),
                            .shared = af_run_data_shares(run, spec) && !unpaired,
                            .no_second = unpaired || af_run_rl(run) == AF_RL_LABELS,
                            .prompt_loss = run->rl == AF_RL_ORPO,
                            .keep_end = af_run_keeps_end(run),
                            .kl_batch = af_run_kl_batch(run)};
}

static af_stream_opts stream_opts(const af_run_config *run, const af_run_model *model)
{
    return (af_stream_opts){
        .pairs = pair_layout(run, model->spec),
        .micro_batch = run->micro_batch_size,
        .sequence_len = run->sequence_len,
        .packing = run->packing,
        .sequential = run->packing_sequentially,
        .shuffle = run->shuffle,
        .seed = (uint64_t)run->seed,
        .ahead = af_ranks_micro(model->comm, run) + 2,
    };
}

static af_status open_eval_stream(af_run_data *d, const af_run_config *run,
                                  const af_run_model *model, af_error *err)
{
    af_stream_opts o = stream_opts(run, model);
    o.shuffle = false;
    o.packing = false;
    o.subset = d->eval_own_store ? NULL : d->eval_subset;
    o.count = d->eval_items;
    o.micro_batch = 1; /* the loop puts as many in a run as fit: every record counts once */
    return af_stream_open(&d->eval_stream, af_run_data_eval_store(d), &o, err);
}

/* Keys about turns and roles have no effect where no record has them. `c`: records by shape. */
static af_status check_turn_keys(const af_run_config *r, const af_data_counts *c, af_error *err)
{
    const int64_t fixed = c->of_tokens + c->of_segments;
    const bool none = c->of_text + fixed == c->records,
               bare = c->of_text + c->of_tokens == c->records;
    const bool no_eos = fixed == c->records ? r->train_on_eos != AF_TRAIN_EOS_TURN
                                            : none && (r->train_on_eos == AF_TRAIN_EOS_ALL ||
                                                       r->train_on_eos == AF_TRAIN_EOS_LAST);
    const struct {
        const char *key;
        bool idle;
    } keys[] = {{"train_on_inputs", bare && r->train_on_inputs == AF_TRI_YES},
                {"roles_to_train", none},
                {"train_on_eos", no_eos},
                {"mask_history", none && r->mask_history},
                {"mask_empty_thoughts", none && r->mask_empty_thoughts},
                {"split_turns", none && r->split_turns},
                {"default_system", none && !r->generate_samples.count},
                {"chat_template", none && !r->generate_samples.count}};
    const char *why = c->of_segments ? "every dataset is text, tokens or segments"
                                     : "every dataset is plain text or tokens";
    af_status st = AF_OK;
    for (size_t i = 0; st == AF_OK && i < AF_LEN(keys); i++)
        if (keys[i].idle && af_run_key_is_set(r, keys[i].key))
            st = af_run_idle_key(r, keys[i].key, why, err);
    return st;
}

af_status af_run_data_check_types(const af_run_config *r, af_error *err)
{
    af_arena mem = {0};
    af_data_source *s = NULL;
    int n = 0;
    const af_data_opts o = af_run_data_opts(r, NULL);
    af_status st = af_data_sources_read(&s, &n, &o, &mem, err);
    af_data_counts c = {.records = n + (r->test_datasets != NULL)};
    for (int i = 0; i < n && st == AF_OK; i++) {
        c.of_text += s[i].shape == AF_SHAPE_TEXT;
        c.of_tokens += s[i].shape == AF_SHAPE_TOKENS;
        c.of_segments += s[i].shape == AF_SHAPE_SEGMENTS;
    }
    if (st == AF_OK)
        st = check_turn_keys(r, &c, err);
    af_arena_clear(&mem);
    return st;
}

/* And once every record has been read. */
static af_status check_seen_types(const af_run_data *d, const af_run_config *run, af_error *err)
{
    const af_data_counts *a = &d->counts, *b = &d->eval_counts;
    const af_data_counts c = {.records = a->records + b->records,
                              .of_text = a->of_text + b->of_text,
                              .of_tokens = a->of_tokens + b->of_tokens,
                              .of_segments = a->of_segments + b->of_segments};
    return check_turn_keys(run, &c, err);
}

/* What is written with the results: the model's own template where it has one, as LLaMA-Factory
 * does, else the turn template as Jinja. */
static af_status read_turns(af_run_data *d, const af_run_config *run, const char *model,
                            af_error *err)
{
    const af_turn_template *t = af_turn_template_find(run->turn_template);
    af_template *own = NULL;
    af_tokenizer *tokenizer = NULL;
    if (!(t->flags & AF_TURNS_REPLACES) && af_template_open(&own, model, NULL) == AF_OK) {
        af_template_close(own);
        return AF_OK;
    }
    const af_status st = af_tokenizer_open(&tokenizer, model, err);
    if (st != AF_OK)
        return st;
    d->chat_template = af_renderer_turns_jinja(t, tokenizer, run->default_system);
    af_tokenizer_close(tokenizer);
    return d->chat_template ? AF_OK : af_fail_nomem(err, "the chat template", 0);
}

/* A template file may change during the run: it is read once, and that text is written with the
 * results. */
static af_status read_template(af_run_data *d, const af_run_config *run, const char *model,
                               af_error *err)
{
    const char *wanted = run->chat_template;
    af_template *chat = NULL;
    bool bare;
    if (run->turn_template)
        return read_turns(d, run, model, err);
    if (af_renderer_own_template(wanted))
        return AF_OK;
    af_status st = af_renderer_template(&chat, &bare, model, wanted, err);
    if (st != AF_OK) {
        char at[300];
        return af_fail_prefix(st, err, "%s", af_run_key_loc(run, "chat_template", at, sizeof at));
    }
    d->chat_template = af_strdup(bare ? af_template_source(chat, NULL) : wanted);
    af_template_close(chat);
    return d->chat_template ? AF_OK : af_fail_nomem(err, "the chat template", 0);
}

static af_status open_all(af_run_data *d, const af_run_config *run, const af_run_model *model,
                          af_error *err)
{
    af_status st = AF_OK;
    af_stream_opts o = stream_opts(run, model);
    AF_TRY(af_run_data_check_types(run, err));
    AF_TRY(read_template(d, run, model->texts, err));
    AF_TRY(open_store(d, run, model, run->datasets, &d->store, &d->counts, err));
    if (run->test_datasets) {
        AF_TRY(open_store(d, run, model, run->test_datasets, &d->eval_store, &d->eval_counts, err));
        d->eval_own_store = true;
        d->eval_items = d->eval_store.records;
    } else if (run->val_set_size > 0) {
        AF_TRY(split(d, run, err));
    }
    AF_TRY(check_seen_types(d, run, err));
    o.subset = d->train_subset;
    o.count = d->store.records - (d->eval_own_store ? 0 : d->eval_items);
    AF_TRY(af_stream_open(&d->stream, &d->store, &o, err));
    if (d->eval_items)
        AF_TRY(open_eval_stream(d, run, model, err));
done:
    return st;
}

af_status af_run_data_open(af_run_data *d, const af_run_config *run, const af_run_model *model,
                           af_error *err)
{
    *d = (af_run_data){0};
    const af_status st = open_all(d, run, model, err);
    if (st != AF_OK)
        return st;
    const bool fixed = run->packing || run->pad_to_sequence_len;
    d->sequences_max = af_stream_sequences_max(d->stream);
    const int64_t longest = af_stream_rows_max(d->stream);
    d->rows_max = run->micro_batch_size * (fixed ? AF_MAX(run->sequence_len, longest) : longest);
    if (d->eval_items)
        d->rows_max = AF_MAX(d->rows_max, af_stream_rows_max(d->eval_stream));
    if (!pair_layout(run, model->spec).shared)
        return AF_OK;
    d->attention_max = run->micro_batch_size * af_stream_attention_max(d->stream);
    if (d->eval_items)
        d->attention_max = AF_MAX(d->attention_max, af_stream_attention_max(d->eval_stream));
    return AF_OK;
}

static af_status peek(const af_run_data *d, const af_run_config *run, const af_run_model *model,
                      const af_yaml *list, af_error *err)
{
    af_data_pipeline pipeline = {0};
    af_data_opts o = af_run_data_opts(run, model->texts);
    o.datasets = list;
    o.chat_template = d->chat_template;
    o.vocab = model->spec->vocab;
    o.labels = model->label_opts;
    o.max_samples = 1;
    if (list == run->test_datasets)
        o.mix = AF_MIX_CONCAT;
    if (!list)
        return AF_OK;
    af_status st = af_data_pipeline_open(&pipeline, &o, err);
    if (st != AF_OK)
        return st;
    st = af_dataset_read(&pipeline, AF_READ_TRAIN, NULL, NULL, NULL, NULL, err);
    af_data_pipeline_close(&pipeline);
    return st;
}

af_status af_run_data_peek(const af_run_config *run, const af_run_model *model, af_error *err)
{
    af_run_data d = {0};
    af_status st = AF_OK;
    AF_TRY(af_run_data_check_types(run, err));
    AF_TRY(read_template(&d, run, model->texts, err));
    AF_TRY(peek(&d, run, model, run->datasets, err));
    st = peek(&d, run, model, run->test_datasets, err);
done:
    af_run_data_close(&d);
    return st;
}

uint64_t af_run_data_tokens(const af_run_data *d, const af_run_config *run)
{
    const af_token_store *s = &d->store;
    af_pair_row first;
    if (af_run_rl(run) == AF_RL_NONE || !s->records ||
        af_pair_row_read(&first, s, 0, NULL) != AF_OK)
        return s->tokens;
    const int64_t labels = af_run_rl(run) == AF_RL_LABELS ? first.second_len : 0; /* of each text */
    return s->tokens - (uint64_t)(s->records * (AF_PAIR_HEADER + labels));
}

void af_run_data_close(af_run_data *d)
{
    af_stream_close(d->stream);
    af_stream_close(d->eval_stream);
    af_token_store_close(&d->store);
    af_token_store_close(&d->eval_store);
    free(d->train_subset);
    free(d->eval_subset);
    free(d->chat_template);
    *d = (af_run_data){0};
}
