/* dataset_reader.c - see dataset_reader.h. */
#include "data/store/dataset_reader.h"

#include "base/file.h"
#include "base/log.h"
#include "data/pair/pair_item.h"
#include "data/store/record_reader.h"

enum {
    BATCH = 64,           /* records prepared at once, per thread */
    BATCH_BYTES = 1 << 22 /* approximate bytes of their text */
};

/* --- one row -----------------------------------------------------------------------------------
 */

static int64_t supervised(const af_row *r)
{
    int64_t n = 0;
    for (int64_t i = 1; i < r->count; i++) /* nothing predicts the first token */
        n += r->labels[i] != -100;
    return n;
}

/* Whether the first `count` tokens of a row end with an end of turn. Rows of preference training
 * are whole renderings: ChatML's have a newline after it. */
static bool ends_turn(const af_record_reader *d, const af_row *r, int64_t count)
{
    if (af_renderer_is_eot(d->renderer, r->ids[count - 1]))
        return true;
    return d->pipeline->o->rl != AF_RL_NONE && count > 1 &&
           af_renderer_is_eot(d->renderer, r->ids[count - 2]);
}

af_status af_record_reader_check_ids(af_record_reader *d, const af_row *r)
{
    const int64_t vocab = d->pipeline->o->vocab;
    for (int64_t i = 0; vocab > 0 && i < r->count; i++)
        if (r->ids[i] >= vocab)
            return af_source_loc_fail(&d->loc, d->err,
                                      "token id %" PRId32 ", but the model has %" PRId64 " tokens",
                                      r->ids[i], vocab);
    const int32_t bos = d->pipeline->tokenizer ? af_tokenizer_bos(d->pipeline->tokenizer) : -1;
    if (bos >= 0 && r->count > 1 && r->ids[0] == bos && r->ids[1] == bos) {
        d->warnings.counts.double_bos++;
        af_record_warn(&d->loc, AF_WARNING_DOUBLE_BOS, "the text begins with the BOS token twice");
    }
    int64_t last = r->count;
    while (last > 1 && r->labels[last - 1] == -100)
        last--;
    if (last > 1 && d->pipeline->o->rl != AF_RL_LABELS && !ends_turn(d, r, last) &&
        d->source->train_on_eos != AF_TRAIN_EOS_NONE &&
        !(d->renderer->chat && af_template_marks_generation(d->renderer->chat)))
        d->warnings.counts.missing_eot++;
    return AF_OK;
}

/* Nothing predicts the first of them. */
static void keep_last(af_row *r, int64_t limit)
{
    const int64_t from = r->count - limit;
    memmove(r->ids, r->ids + from, (size_t)limit * sizeof *r->ids);
    memmove(r->labels, r->labels + from, (size_t)limit * sizeof *r->labels);
    r->labels[0] = -100;
}

/* Cuts to sequence_len. *keep is false when nothing worth training is left. */
static af_status fit(af_record_reader *d, af_row *r, bool *keep)
{
    const int64_t limit = d->pipeline->o->sequence_len;
    af_data_counts *c = &d->warnings.counts;
    *keep = true;
    const int64_t rows = 1 + r->beyond;
    if (r->count > limit && limit > 0) {
        if (d->pipeline->o->excess == AF_EXCESS_ERROR)
            return af_source_loc_fail(&d->loc, d->err,
                                      "%" PRId64 " tokens, but sequence_len is %" PRId64
                                      " and excess_length_strategy is error",
                                      r->count, limit);
        if (d->pipeline->o->excess == AF_EXCESS_DROP) {
            c->dropped += rows;
            *keep = false;
            return AF_OK;
        }
        bool lost = false;
        for (int64_t i = limit; i < r->count && !lost && !d->pipeline->o->keep_end; i++)
            lost = r->labels[i] != -100 && af_renderer_is_eot(d->renderer, r->ids[i]);
        c->truncated += rows;
        c->lost_eot += lost + r->beyond;
        c->nothing_to_learn += r->beyond;
        if (d->pipeline->o->keep_end)
            keep_last(r, limit);
        r->count = limit;
    } else if (r->cut) {
        c->truncated++;
        c->lost_eot += r->lost_end;
    }
    if (supervised(r) == 0) {
        c->nothing_to_learn++;
        af_record_warn(&d->loc, AF_WARNING_NOTHING, "no token carries loss; record skipped");
        *keep = false;
    }
    return AF_OK;
}

void af_record_reader_count(af_record_reader *d, const af_example *e)
{
    af_data_counts *c = &d->warnings.counts;
    c->records++;
    c->of_text += e->shape == AF_SHAPE_TEXT;
    c->of_tokens += e->shape == AF_SHAPE_TOKENS;
    c->of_segments += e->shape == AF_SHAPE_SEGMENTS;
    for (int i = 0; i < e->rows; i++) {
        c->tokens += e->row[i].count;
        c->supervised += supervised(&e->row[i]);
    }
}

af_status af_record_reader_emit(af_record_reader *d, const af_example *e)
{
    if (!d->emit)
        return AF_OK;
    const double began = af_seconds_now();
    const af_status st = d->emit(d->user, e, d->err);
    d->times.emit += af_seconds_now() - began;
    if (st != AF_ESTOPPED)
        return st;
    d->ended = true;
    return AF_OK;
}

/* A long text in rows of sequence_len: all of it is trained on. */
static af_status emit_cut(af_record_reader *d, const af_example *whole)
{
    const int64_t limit = d->source->join ? whole->row->count : d->pipeline->o->sequence_len;
    af_status st = AF_OK;
    for (int64_t at = 0; st == AF_OK && at < whole->row->count && !d->ended; at += limit) {
        const af_row part = {.ids = whole->row->ids + at,
                             .labels = whole->row->labels + at,
                             .count = AF_MIN(limit, whole->row->count - at)};
        af_example e = *whole;
        e.row = &part;
        if (supervised(&part) == 0)
            continue; /* a single token has nothing to learn from */
        af_record_reader_count(d, &e);
        st = af_record_reader_emit(d, &e);
    }
    return st;
}

/* min_sample_len and dataset_exact_deduplication. */
static af_status choose(af_record_reader *d, const af_row *r, bool *keep)
{
    const af_status st = af_row_filter_take(&d->filter, r, NULL, 0, keep, d->err);
    d->warnings.counts.left_out += !*keep;
    return st;
}

static af_status emit_rows(af_record_reader *d, const af_item *item, af_row *row)
{
    af_status st = AF_OK;
    bool keep = true;
    char *prompt = NULL;
    af_example e = {.file = d->loc.file,
                    .source = d->file,
                    .dataset = d->dataset,
                    .line = d->loc.line,
                    .record = d->loc.number,
                    .shape = d->source->shape,
                    .rows = item->conversations,
                    .row = row,
                    .label = item->label};
    if (d->source->cut && d->mode != AF_READ_PREVIEW && d->pipeline->o->sequence_len > 0) {
        AF_TRY(af_record_reader_check_ids(d, &row[0]));
        return emit_cut(d, &e);
    }
    for (int i = 0; i < item->conversations; i++) {
        AF_TRY(af_record_reader_check_ids(d, &row[i]));
        if (d->mode != AF_READ_PREVIEW)
            AF_TRY(fit(d, &row[i], &keep));
        if (d->mode != AF_READ_PREVIEW && keep && i == 0)
            AF_TRY(choose(d, &row[i], &keep));
        if (!keep)
            goto done;
    }
    af_record_reader_count(d, &e);
    d->warnings.counts.of_pairs +=
        e.shape == AF_SHAPE_PROMPT && item->conversation[0].kind == AF_CONVERSATION_PLAIN;
    if (item->prompt_text) {
        e.prompt = json_string_value(item->prompt_text);
        e.prompt_len = json_string_length(item->prompt_text);
    } else if (item->prompt && d->mode == AF_READ_PREVIEW) {
        AF_TRY(af_renderer_prompt(d->renderer, &prompt, &e.prompt_len, &item->conversation[0],
                                  json_array_size(item->prompt), d->err));
        e.prompt = prompt;
    }
    AF_TRY(af_record_reader_emit(d, &e));
done:
    free(prompt);
    return st;
}

static af_status emit_record(af_record_reader *d, const af_item *item, af_row *first)
{
    af_status st = AF_OK;
    for (af_row *r = first; r && st == AF_OK && !d->ended; r = r->next) {
        const int64_t records = d->warnings.counts.records;
        st = emit_rows(d, item, r);
        d->warnings.counts.split_rows += r != first && d->warnings.counts.records > records;
    }
    return st;
}

/* --- one record --- */

static bool calls_tools(const af_conversation *t)
{
    for (size_t i = 0; i < json_array_size(t->messages); i++)
        if (json_array_size(json_object_get(json_array_get(t->messages, i), "tool_calls")) > 0)
            return true;
    return false;
}

static void warn_of_ignored_tools(af_record_reader *d, const af_conversation *t)
{
    const af_template *chat = d->renderer->chat;
    if (t->kind != AF_CONVERSATION_CHAT || d->tools_warned || !chat || d->renderer->turns)
        return;
    const bool tools = json_array_size(t->tools) > 0 && !af_template_mentions(chat, "tools");
    const bool calls = calls_tools(t) && !af_template_mentions(chat, "tool_calls");
    if (!tools && !calls)
        return;
    d->tools_warned = true;
    af_record_warn(&d->loc, AF_WARNING_TOOLS, "the chat template never reads \"%s\": %s left out",
                   tools ? "tools" : "tool_calls",
                   tools && calls ? "tools and tool calls are" : "they are");
}

/* Once per dataset: answers that are not trained as one might expect. */
static void warn_of_answers(af_record_reader *d, const af_row *first)
{
    int rows = 0;
    for (const af_row *r = first; r; r = r->next, rows++) {
        if (r->missing.message && !d->missing_warned)
            af_record_warn(
                &d->loc, AF_WARNING_ANSWER,
                "message %zu: the chat template leaves out %sits \"%s\"%s", r->missing.message,
                strcmp(r->missing.field, "content") == 0 ? "some of " : "", r->missing.field,
                r->missing.lost ? " because other turns follow: it is not trained "
                                  "(split_turns: true trains it)"
                                : ": it is not trained");
        if (r->unshown.message && !d->unshown_warned)
            af_record_warn(
                &d->loc, AF_WARNING_ANSWER,
                "message %zu: the chat template leaves it out (role \"%.40s\"; 'roles' of "
                "the dataset can name another)",
                r->unshown.message, r->unshown.field);
        if (r->departs.message && !d->departs_warned)
            af_record_warn(&d->loc, AF_WARNING_ANSWER,
                           "message %zu does not begin as the generation prompt of the chat "
                           "template ends, but generated answers will (\"%s\" can change that "
                           "prompt)",
                           r->departs.message, AF_TEMPLATE_VARIABLES);
        d->missing_warned |= r->missing.message > 0;
        d->unshown_warned |= r->unshown.message > 0;
        d->departs_warned |= r->departs.message > 0;
    }
    if (rows > 1 && !d->split_reported)
        af_log_write(AF_LOG_INFO,
                     "%s:%" PRId64 ": the chat template changes answers once other turns follow: "
                     "the record is trained as %d rows, each ending with an answer as it would be "
                     "generated",
                     d->loc.file, d->loc.line, rows);
    d->split_reported |= rows > 1;
}

/* Shape, rendering, tokens. Reads only what is constant in the reader. */
static af_status prepare(const af_record_reader *d, af_renderer *renderer, af_record_job *j)
{
    af_status st = AF_OK;
    const double began = af_seconds_now();
    const af_rl rl = d->pipeline->o->rl;
    AF_TRY(af_record_refuse(d->source, j->record, &j->loc, &j->err));
    if (rl == AF_RL_LABELS)
        AF_TRY(af_label_item(&j->item, d->source, j->record, &d->pipeline->o->labels, &j->loc,
                             &j->err));
    else if (rl)
        AF_TRY(af_pair_item(&j->item, d->source, j->record, rl, &j->loc, &j->err));
    else
        AF_TRY(af_shape_item(&j->item, d->source, j->record, &j->loc, &j->err));
    if (d->pipeline->o->default_system && !d->pipeline->o->turn_template)
        AF_TRY(af_item_put_system(&j->item, d->pipeline->o->default_system, &j->err));
    j->convert = af_seconds_now() - began;
    if (j->item.conversations && !d->pipeline->tokenizer &&
        j->item.conversation[0].kind != AF_CONVERSATION_TOKENS)
        return af_fail(&j->err, AF_EUSAGE, "the dataset %s needs a tokenizer: %s", j->loc.file,
                       d->pipeline->why.msg);
    if (rl && j->item.conversations)
        st = af_pair_tokens(renderer, j->row, &j->prompt, &j->item, d->source, d->pipeline->o,
                            &j->err);
    for (int i = 0; !rl && i < j->item.conversations && st == AF_OK; i++)
        st = af_renderer_row(renderer, &j->row[i], &j->item.conversation[i], d->source,
                             j->item.conversations == 1, &j->err);
    if (st != AF_OK && st != AF_ENOMEM)
        af_fail_prefix(st, &j->err, "%s:%" PRId64, j->loc.file, j->loc.line);
done:
    return st;
}

static void prepare_share(void *arg, int64_t from, int64_t to, int share)
{
    af_record_reader *d = arg;
    for (int64_t i = from; i < to; i++) {
        af_record_job *j = &d->jobs[i];
        j->st = prepare(d, &d->thread_renderer[share], j);
        if (j->st == AF_OK)
            j->st = af_memory_check(&j->err); /* noted per thread: the caller's cannot look */
    }
}

static void record_job_clear(af_record_job *j)
{
    json_decref(j->record);
    af_item_clear(&j->item);
    af_row_clear(&j->row[0]);
    af_row_clear(&j->row[1]);
    af_buf_clear(&j->warnings.held);
    *j = (af_record_job){0};
}

static af_status deliver(af_record_reader *d, af_record_job *j)
{
    d->loc = j->loc;
    d->loc.warnings = &d->warnings;
    d->times.convert += j->convert;
    af_record_warnings_join(&d->loc, &j->warnings);
    if (j->st != AF_OK)
        return af_fail(d->err, j->st, "%s", j->err.msg);
    for (int i = 0; i < j->item.conversations; i++)
        warn_of_ignored_tools(d, &j->item.conversation[i]);
    warn_of_answers(d, &j->row[0]);
    if (d->pipeline->o->rl)
        warn_of_answers(d, &j->row[1]);
    af_status st = AF_OK;
    for (int64_t i = 0; st == AF_OK && !d->ended && j->item.conversations && i < j->times; i++)
        st = d->pipeline->o->rl ? af_pair_emit(d, j) : emit_record(d, &j->item, j->row);
    return st;
}

/* Whether the records of this shape are what the run trains on. */
static af_status check_shape(const af_record_reader *d)
{
    const af_rl rl = d->pipeline->o->rl;
    const af_shape shape = d->source->shape;
    const bool pairs = shape == AF_SHAPE_PREFERENCE, labelled = shape == AF_SHAPE_KTO;
    if (rl == AF_RL_LABELS)
        return AF_OK;
    if (rl && !pairs && !(labelled && rl == AF_RL_KTO))
        return af_fail(d->err, AF_EUSAGE, "%s: records of shape %s, but 'rl: %s' wants %s",
                       d->loc.file, af_shape_name(shape), af_rl_name(rl),
                       rl == AF_RL_KTO
                           ? "a prompt, a completion and a label, or chosen and rejected"
                           : "chosen and rejected");
    if (rl || d->mode != AF_READ_TRAIN || (!pairs && !labelled))
        return AF_OK;
    return af_fail(d->err, AF_EUSAGE,
                   "%s: records of shape %s are for preference training: choose a method with 'rl' "
                   "(%s)",
                   d->loc.file, af_shape_name(shape),
                   pairs ? "dpo, ipo, orpo, simpo, cpo, kto, reward" : "kto");
}

/* After a faulty record the next one is still worth checking. */
static af_status checked_delivery(af_record_reader *d, af_record_job *j)
{
    af_error why = {0}, *outer = d->err;
    if (d->mode != AF_READ_CHECK || !d->pipeline->fault)
        return deliver(d, j);
    d->err = &why;
    const af_status st = deliver(d, j);
    d->err = outer;
    if (st == AF_OK)
        return AF_OK;
    if (st != AF_EFORMAT)
        return af_fail(outer, st, "%s", why.msg);
    d->warnings.counts.errors++;
    d->pipeline->fault(d->pipeline->fault_user, why.msg);
    return AF_OK;
}

/* Prepares the waiting records and emits them in order. */
static af_status run_batch(af_record_reader *d)
{
    af_status st = AF_OK;
    af_pool_run(d->pool, d->waiting, prepare_share, d);
    for (int64_t i = 0; i < d->waiting; i++) {
        if (st == AF_OK && !d->ended)
            st = checked_delivery(d, &d->jobs[i]);
        record_job_clear(&d->jobs[i]);
    }
    d->waiting = 0;
    return st;
}

/* Instructions that nobody declared, and a model without a chat template. */
static void use_alpaca_prompt(af_record_reader *d)
{
    af_data_source *s = d->source;
    if (s->shape != AF_SHAPE_ALPACA || s->prompt || s->shape_given || d->renderer->chat ||
        !d->pipeline->tokenizer)
        return;
    s->prompt = af_prompt_find("alpaca");
    af_log_write(AF_LOG_INFO,
                 "%s: the model has no chat template: the Alpaca prompt is used (as with 'type: "
                 "alpaca')",
                 d->loc.file);
}

/* Takes a record over. The first one of a file decides the shape of the others. */
static af_status add_job(af_record_reader *d, af_record *rec)
{
    af_status st = AF_OK;
    d->loc.line = rec->line;
    d->loc.number = rec->number;
    af_fields_drop_ignored(d->source, rec->json);
    AF_TRY(af_record_open_fields(d->source, rec->json, d->err));
    if (rec->number == 1) {
        if (!d->source->shape_given)
            d->source->shape = AF_SHAPE_AUTO;
        AF_TRY(af_shape_detect(d->source, rec->json, &d->loc, d->err));
        AF_TRY(check_shape(d));
        use_alpaca_prompt(d);
    }
    AF_TRY(af_shape_lost(d->source, rec->lost, rec->lost_len, &d->loc, d->err));
    const int64_t times = af_record_pick_times(&d->pick, d->index++);
    if (times == 0)
        return AF_OK;
    af_record_job *j = &d->jobs[d->waiting++];
    *j = (af_record_job){
        .record = rec->json, .loc = d->loc, .times = times, .warnings = {.hold = true}};
    j->loc.warnings = &j->warnings;
    rec->json = NULL;
done:
    return st;
}

/* Reads as many records as are prepared together. An error in the file is reported after the
 * records before it. */
static af_status one_batch(af_record_reader *d, af_records *r, int64_t most, int64_t *records,
                           bool *end)
{
    af_status st = AF_OK;
    af_error why = {0}, *outer = d->err;
    uint64_t bytes = 0;
    d->err = &why;
    while (st == AF_OK && d->waiting < most && bytes < BATCH_BYTES && !*end) {
        af_record rec = {0};
        const double began = af_seconds_now();
        st = af_records_next(r, &rec, d->err);
        d->times.read += af_seconds_now() - began;
        bytes += rec.bytes;
        *end = st != AF_OK || !rec.json || d->index >= d->pick.to;
        *records += rec.json != NULL;
        if (rec.json && (!*end || rec.number == 1))
            st = add_job(d, &rec);
        if (st == AF_OK && rec.number == 1 && !d->pipeline->o->rl)
            af_records_project(r, af_shape_reads, d->source);
        json_decref(rec.json);
    }
    d->err = outer;
    const af_status delivered = run_batch(d);
    if (delivered != AF_OK)
        return delivered;
    return st == AF_OK || d->ended ? AF_OK : af_fail(outer, st, "%s", why.msg);
}

/* --- files --- */

static af_status one_file(af_record_reader *d, const char *path)
{
    af_status st = AF_OK;
    af_records *r = NULL;
    af_records_kind kind;
    int64_t records = 0;
    const int64_t most = d->mode == AF_READ_PREVIEW ? 1 : (int64_t)BATCH * af_pool_threads(d->pool);
    AF_TRY(af_records_kind_of(&kind, path, d->source->ds_type, d->err));
    AF_TRY(af_records_open(&r, path, kind, d->err));
    d->loc = (af_source_loc){.file = path,
                             .csv = kind == AF_RECORDS_CSV || kind == AF_RECORDS_TSV,
                             .warnings = &d->warnings};
    if (kind == AF_RECORDS_TEXT && d->source->shape_given && d->source->shape != AF_SHAPE_TEXT) {
        st = af_fail(d->err, AF_EUSAGE, "%s: a text file cannot have records of shape %s", path,
                     af_shape_name(d->source->shape));
        goto done;
    }
    if (kind == AF_RECORDS_TEXT)
        AF_TRY(af_text_file_read(d, r, &records));
    for (bool end = kind == AF_RECORDS_TEXT; !end && !d->ended;)
        AF_TRY(one_batch(d, r, most, &records, &end));
    if (records == 0)
        st = af_fail(d->err, AF_EFORMAT, "%s: no records", path);
done:
    af_records_close(r);
    return st;
}

/* Each thread has its own renderer; they share what is constant. */
static void thread_renderers_open(af_record_reader *d)
{
    for (int i = 0; i < af_pool_threads(d->pool); i++) {
        d->thread_renderer[i] = *d->renderer;
        d->thread_renderer[i].encoding = (af_encoding){0};
        d->thread_renderer[i].times = (af_renderer_times){0};
    }
}

static void thread_renderers_close(af_record_reader *d)
{
    for (int i = 0; i < af_pool_threads(d->pool); i++) {
        d->times.render += d->thread_renderer[i].times.render;
        d->times.encode += d->thread_renderer[i].times.encode;
        af_encoding_clear(&d->thread_renderer[i].encoding);
    }
}

static af_status one_source(af_record_reader *d, int i)
{
    char **files = NULL;
    int n = 0, held_out;
    af_data_source *s = &d->pipeline->source[i];
    const af_data_source before = *s; /* detection may rename a field */
    d->dataset += i > 0 && !s->continued;
    d->source = s;
    d->renderer = &d->pipeline->renderer[i];
    d->renderer->want_text = d->mode == AF_READ_PREVIEW;
    const af_data_opts *o = d->pipeline->o;
    const bool whole = d->mode == AF_READ_PREVIEW || o->keep_end ||
                       (d->renderer->turns && o->excess != AF_EXCESS_TRUNCATE);
    d->renderer->cutoff = whole ? 0 : o->sequence_len;
    d->renderer->times = (af_renderer_times){0};
    d->tools_warned = d->missing_warned = d->unshown_warned = false;
    d->departs_warned = d->split_reported = false;
    thread_renderers_open(d);
    af_status st = af_data_source_files(s, d->pipeline->o->run_path, &files, &n, &held_out, d->err);
    d->index = 0;
    if (st == AF_OK)
        st = af_record_pick_open(&d->pick, s, d->pipeline->o->run_path, files, n, d->err);
    for (int f = 0; f < n && st == AF_OK && !d->ended; f++) {
        *s = before;
        if (d->index < d->pick.to)
            st = one_file(d, files[f]);
        d->file++;
    }
    thread_renderers_close(d);
    d->times.render += d->renderer->times.render;
    d->times.encode += d->renderer->times.encode;
    *s = before;
    af_names_free(files, n);
    return st;
}

af_status af_dataset_read(af_data_pipeline *k, af_read_mode mode, af_example_fn *emit, void *user,
                          af_data_counts *counts, af_read_times *times, af_error *err)
{
    af_record_reader d = {.pipeline = k, .mode = mode, .emit = emit, .user = user, .err = err};
    d.filter = (af_row_filter){.shortest = k->o->min_sample_len, .unique = k->o->deduplicate};
    af_status st = AF_OK;
    const double began = af_seconds_now();
    if (mode != AF_READ_PREVIEW && af_pool_new(&d.pool, 0, NULL) != AF_OK)
        d.pool = NULL; /* fall back to one thread */
    const uint64_t threads = (uint64_t)af_pool_threads(d.pool);
    d.thread_renderer = af_calloc(threads, sizeof *d.thread_renderer);
    d.jobs = af_calloc(threads * BATCH, sizeof *d.jobs);
    if (!d.thread_renderer || !d.jobs)
        st = af_fail_nomem(err, "records", threads * BATCH * sizeof *d.jobs);
    for (int i = 0; i < k->sources && st == AF_OK && !d.ended; i++)
        st = one_source(&d, i);
    if (st == AF_OK && !d.ended)
        st = af_pair_emit_held(&d);
    if (mode == AF_READ_CHECK)
        af_data_counts_warn(&d.warnings.counts, k->o->sequence_len);
    d.times.all = af_seconds_now() - began;
    af_row_clear(&d.text);
    af_row_filter_clear(&d.filter);
    af_pair_held_clear(&d);
    free(d.thread_renderer);
    free(d.jobs);
    af_pool_free(d.pool);
    if (counts)
        *counts = d.warnings.counts;
    if (times)
        *times = d.times;
    return st;
}
