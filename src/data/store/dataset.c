/* dataset.c - the cached token store of the datasets of a run.
 *
 * The store's name is a hash of everything its content depends on, so a store that is there is
 * right, and two runs that make the same one at the same time rename equal files over each other.
 * Its note is a line of JSON with the counts, then the names of the dataset files, each closed by a
 * NUL byte. */
#define _GNU_SOURCE /* localtime_r, mkdtemp */
#include "data/store/dataset.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "data/store/dataset_reader.h"
#include "data/store/interleave.h"
#include "data/store/token_cache.h"
#include "format/chat/chat_template.h"
#include "format/config/hf_config.h"
#include "format/text/json_text.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#define CACHE_VERSION "afinar tokens 16"
#define GGUF_HEAD     ((uint64_t)64 << 20) /* bytes of a GGUF file that can hold its tokenizer */

/* --- the key ------------------------------------------------------------------------------- */

static af_status hash_file(af_sha256 *h, const char *path, uint64_t most, af_error *err)
{
    af_map m;
    const uint64_t step = (uint64_t)1 << 20;
    const af_status st = af_map_open(&m, path, err);
    if (st != AF_OK)
        return st;
    const uint64_t size = AF_MIN(m.size, most);
    af_sha256_add(h, &m.size, sizeof m.size);
    for (uint64_t at = 0; at < size; at += step) {
        const uint64_t n = AF_MIN(step, size - at);
        af_sha256_add(h, m.data + at, n);
        af_map_forget(&m, at, n);
    }
    af_map_close(&m);
    return AF_OK;
}

static void hash_text(af_sha256 *h, const char *s)
{
    af_sha256_add(h, s ? s : "\1", strlen(s ? s : "\1") + 1);
}

static af_status hash_in(af_sha256 *h, const char *dir, const char *name, af_error *err)
{
    char *path = af_path_join(dir, name);
    af_status st = path ? AF_OK : af_fail_nomem(err, "a path", 0);
    hash_text(h, name);
    if (path && af_file_exists(path))
        st = hash_file(h, path, UINT64_MAX, err);
    free(path);
    return st;
}

static af_status hash_model(af_sha256 *h, const char *model, af_error *err)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "special_tokens_map.json", "added_tokens.json",
                                        "tokenizer.model"};
    if (!af_dir_exists(model))
        return af_file_exists(model) ? hash_file(h, model, GGUF_HEAD, err) : AF_OK;
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(files) && st == AF_OK; i++)
        st = hash_in(h, model, files[i], err);
    const bool made = af_tokenizer_can_make(model);
    for (const char *const *name = af_tokenizer_sources; made && *name && st == AF_OK; name++)
        st = hash_in(h, model, *name, err);
    return st;
}

static void hash_prompt(af_sha256 *h, const af_prompt *p)
{
    hash_text(h, p ? "prompt" : "no prompt");
    if (!p)
        return;
    const char *const text[] = {p->system, p->turn, p->turn_no_input, p->answer, p->system_text};
    for (size_t i = 0; i < AF_LEN(text); i++)
        hash_text(h, text[i]);
    hash_text(h, p->choices ? "choices" : p->whole ? "whole" : p->maybe_output ? "maybe" : "apart");
}

static void hash_names(af_sha256 *h, const af_role_name *name, int count)
{
    for (int i = 0; i < count; i++) {
        hash_text(h, name[i].from);
        hash_text(h, name[i].to);
    }
}

static void hash_source(af_sha256 *h, const af_data_source *s)
{
    const char *const *field = (const char *const *)&s->field;
    char text[400];
    hash_text(h, s->ds_type);
    if (s->join)
        hash_text(h, "joined");
    if (s->form) {
        hash_text(h, s->form->type);
        hash_text(h, s->form->prompt_format);
        hash_text(h, s->form->answer_format[0]);
        hash_text(h, s->form->answer_format[1]);
    }
    if (s->continued)
        hash_text(h, "continued");
    for (size_t i = 0; i < sizeof s->field / sizeof *field; i++)
        hash_text(h, field[i]);
    hash_names(h, s->role_names, s->role_name_count);
    hash_text(h, "properties");
    hash_names(h, s->property_names, s->property_name_count);
    hash_text(h, s->thinking);
    hash_text(h, s->thinking_key);
    hash_prompt(h, s->prompt);
    for (int i = 0; i < s->role_count; i++)
        hash_text(h, s->roles[i]);
    if (s->ignored_count)
        hash_text(h, "ignored");
    for (int i = 0; i < s->ignored_count; i++)
        hash_text(h, s->ignored[i]);
    for (int i = 0; i < 2 && s->cognition; i++) {
        hash_text(h, s->model_name[i]);
        hash_text(h, s->model_author[i]);
        snprintf(text, sizeof text, "cognition %d", (int)s->cognition);
        hash_text(h, text);
    }
    const af_data_slice *c = &s->slice;
    snprintf(text, sizeof text,
             "%d %d %d %d %d %" PRIx64 " %d %d %d %d %d %d %d %" PRId64 " %" PRId64 " %" PRId64
             " %" PRId64 " %" PRId64 " %" PRId64 " %a %a %" PRIx64,
             (int)s->shape, s->shape_given, (int)s->train_on_eos, s->train_on_inputs,
             s->completion_apart, s->set_keys /* keys without effect, too */, s->cut,
             s->drop_system, s->split_thinking, c->given, c->percent, c->has_from, c->has_to,
             c->from, c->to, s->max_samples, s->num_samples, s->shards, s->shard, s->weight,
             s->first_share, s->seed);
    hash_text(h, text);
}

static void hash_choice(af_sha256 *h, const af_data_opts *o)
{
    char text[64];
    for (int i = 0; i < o->eot_count; i++)
        hash_text(h, o->eot_tokens[i]);
    snprintf(text, sizeof text, "%" PRId64 " %d", o->min_sample_len, o->deduplicate);
    hash_text(h, text);
    if (o->rl) {
        snprintf(text, sizeof text, "rl %d", (int)o->rl);
        hash_text(h, text);
    }
    if (o->keep_end)
        hash_text(h, "end");
    if (o->default_system && !o->turn_template) { /* of a turn template, it is part of its text */
        hash_text(h, "system");
        hash_text(h, o->default_system);
    }
    if (o->max_prompt_len) {
        snprintf(text, sizeof text, "prompt %" PRId64, o->max_prompt_len);
        hash_text(h, text);
    }
    if (o->rl == AF_RL_LABELS) {
        snprintf(text, sizeof text, "labels %" PRId64 " %d", o->labels.count,
                 (int)o->labels.problem);
        hash_text(h, text);
        for (int i = 0; i < o->labels.names; i++)
            hash_text(h, o->labels.name[i]);
    }
    if (o->mix == AF_MIX_CONCAT) /* the keys of stores that were made before stay */
        return;
    snprintf(text, sizeof text, "mix %d %" PRIx64, (int)o->mix, o->seed);
    hash_text(h, text);
    for (int i = 0; i < o->mix_prob_count; i++)
        hash_text(h, o->mix_probs[i]);
}

static void hash_variables(af_sha256 *h, const json_t *variables)
{
    char *text = variables ? af_json_dump(variables, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    if (text)
        hash_text(h, text);
    free(text);
}

static void hash_renderer(af_sha256 *h, const af_renderer *s)
{
    uint64_t n = 0;
    const char *source = s->chat ? af_template_source(s->chat, &n) : NULL;
    hash_text(h, source ? "template" : "none");
    hash_variables(h, s->variables);
    if (s->mask_history)
        hash_text(h, "last");
    if (s->mask_empty_thoughts)
        hash_text(h, "empty thoughts");
    if (s->split_turns)
        hash_text(h, "split");
    if (s->turns) {
        hash_text(h, s->turns_name);
        hash_text(h, s->no_thinking ? "answers" : "thoughts");
    }
    if (source)
        af_sha256_add(h, source, n);
    if (source && af_template_for(s->chat, true) != s->chat)
        hash_text(h, af_template_source(af_template_for(s->chat, true), NULL));
    if (source && af_template_mentions(s->chat, "strftime_now")) { /* its text changes by the day */
        const time_t t = time(NULL);
        struct tm tm;
        char day[32] = "";
        if (localtime_r(&t, &tm))
            strftime(day, sizeof day, "%Y-%m-%d", &tm);
        hash_text(h, day);
    }
}

static af_status hash_files(af_sha256 *h, const af_data_source *s, const char *run_path,
                            af_error *err)
{
    char **files = NULL;
    int n = 0, held_out;
    af_status st = af_data_source_files(s, run_path, &files, &n, &held_out, err);
    for (int i = 0; i < n && st == AF_OK; i++) {
        hash_text(h, files[i]); /* names are used in messages */
        st = hash_file(h, files[i], UINT64_MAX, err);
    }
    af_names_free(files, n);
    return st;
}

static void no_cache(const af_data_opts *o, const af_error *why)
{
    if (!o->cache_reported)
        af_log_write(AF_LOG_WARN, "no cache is used, the data is tokenised in every run: %s",
                     why->msg);
}

/* *out: where the cache has the store, or will have it; NULL when there is no cache to write. */
static af_status store_path(char **out, const af_data_pipeline *k, af_error *err)
{
    af_sha256 h;
    af_error why = {0};
    char text[128], hex[65], *dir = NULL;
    af_status st = AF_OK;
    af_buf path = {0};
    af_sha256_init(&h);
    hash_text(&h, CACHE_VERSION);
    snprintf(text, sizeof text, "%d %" PRId64 " %" PRId64, (int)k->o->excess, k->o->sequence_len,
             k->o->vocab);
    hash_text(&h, text);
    hash_choice(&h, k->o);
    AF_TRY(hash_model(&h, k->o->model, err));
    for (int i = 0; i < k->sources; i++) {
        hash_source(&h, &k->source[i]);
        hash_renderer(&h, &k->renderer[i]);
        AF_TRY(hash_files(&h, &k->source[i], k->o->run_path, err));
    }
    af_sha256_hex(&h, hex);
    if (af_cache_dir(&dir, "tokens", &why) == AF_OK) {
        af_buf_printf(&path, "%s/%.32s.tokens", dir, hex);
        *out = af_buf_take(&path);
        if (!*out)
            AF_TRY(af_fail_nomem(err, "a path", 0));
        if (af_file_exists(*out) || access(dir, W_OK) == 0)
            goto done;
        af_fail(&why, AF_EIO, "cannot write to '%s': %s", dir, strerror(errno));
        free(*out);
        *out = NULL;
    }
    no_cache(k->o, &why);
done:
    free(dir);
    return st;
}

/* --- the note ------------------------------------------------------------------------------ */

static const struct {
    const char *name;
    size_t offset;
} count_fields[] = {
    {"records", offsetof(af_data_counts, records)},
    {"tokens", offsetof(af_data_counts, tokens)},
    {"supervised", offsetof(af_data_counts, supervised)},
    {"truncated", offsetof(af_data_counts, truncated)},
    {"dropped", offsetof(af_data_counts, dropped)},
    {"left_out", offsetof(af_data_counts, left_out)},
    {"split_rows", offsetof(af_data_counts, split_rows)},
    {"lost_eot", offsetof(af_data_counts, lost_eot)},
    {"empty_answers", offsetof(af_data_counts, empty_answers)},
    {"double_bos", offsetof(af_data_counts, double_bos)},
    {"missing_eot", offsetof(af_data_counts, missing_eot)},
    {"nothing_to_learn", offsetof(af_data_counts, nothing_to_learn)},
    {"of_text", offsetof(af_data_counts, of_text)},
    {"of_tokens", offsetof(af_data_counts, of_tokens)},
    {"of_segments", offsetof(af_data_counts, of_segments)},
    {"of_pairs", offsetof(af_data_counts, of_pairs)},
    {"desirable", offsetof(af_data_counts, desirable)},
    {"undesirable", offsetof(af_data_counts, undesirable)},
    {"warnings", offsetof(af_data_counts, warnings)},
};

static af_status write_note(af_buf *b, const af_data_pipeline *k, const af_data_counts *c,
                            af_error *err)
{
    af_status st = AF_OK;
    af_buf_char(b, '{');
    for (size_t i = 0; i < AF_LEN(count_fields); i++)
        af_buf_printf(b, "%s\"%s\": %" PRId64, i ? ", " : "", count_fields[i].name,
                      *(const int64_t *)((const char *)c + count_fields[i].offset));
    af_buf_add(b, "}", 2);
    for (int i = 0; i < k->sources && st == AF_OK; i++) {
        char **files = NULL;
        int n = 0, held_out;
        st = af_data_source_files(&k->source[i], k->o->run_path, &files, &n, &held_out, err);
        for (int f = 0; f < n && st == AF_OK; f++)
            af_buf_add(b, files[f], strlen(files[f]) + 1);
        af_names_free(files, n);
    }
    return st == AF_OK && b->bad ? af_fail_nomem(err, "a token file", b->len) : st;
}

static bool read_note(af_data_counts *c, const af_token_store *s)
{
    const char *end = s->note_size ? memchr(s->note, 0, s->note_size) : NULL;
    json_error_t why;
    if (!end || s->note[s->note_size - 1] != 0)
        return false;
    json_t *o = af_json_load(s->note, (size_t)(end - s->note), 0, &why);
    bool good = json_is_object(o);
    *c = (af_data_counts){0};
    for (size_t i = 0; good && i < AF_LEN(count_fields); i++) {
        const json_t *v = json_object_get(o, count_fields[i].name);
        good = json_is_integer(v);
        *(int64_t *)((char *)c + count_fields[i].offset) = json_integer_value(v);
    }
    json_decref(o);
    return good;
}

const char *af_dataset_file(const af_token_store *s, int source)
{
    const char *at = s->note, *end = s->note + s->note_size;
    for (int i = -1; at < end; i++) {
        if (i == source)
            return at;
        at += strlen(at) + 1;
    }
    return "dataset";
}

int af_dataset_file_count(const af_token_store *s)
{
    int n = -1; /* the counts come first */
    for (uint64_t i = 0; i < s->note_size; i++)
        n += s->note[i] == '\0';
    return AF_MAX(n, 0);
}

/* --- the store ----------------------------------------------------------------------------- */

typedef struct keeper {
    af_token_writer *w;
    const af_data_pipeline *p;
    int64_t *records; /* of each dataset */
    af_row joined;    /* texts of a dataset whose texts are joined, not yet in a row */
    int dataset;      /* theirs */
    af_example last;  /* the one of them that came last; its row is not kept */
} keeper;

static bool is_joined(const keeper *k, int dataset)
{
    int at = -1;
    for (int i = 0; i < k->p->sources; i++) {
        at += !k->p->source[i].continued;
        if (at == dataset)
            return k->p->source[i].join;
    }
    return false;
}

/* The first n of the joined tokens are a row. */
static af_status keep_joined(keeper *k, int64_t n, af_error *err)
{
    af_row *r = &k->joined;
    k->records[k->dataset]++;
    r->count -= n;
    const af_status st =
        af_token_writer_add(k->w, r->ids, r->labels, n, k->last.source, k->last.line, err);
    memmove(r->ids, r->ids + n, (uint64_t)r->count * sizeof *r->ids);
    memmove(r->labels, r->labels + n, (uint64_t)r->count * sizeof *r->labels);
    return st;
}

/* What does not fill a row is left out, as LLaMA-Factory does, unless there is nothing else. */
static af_status end_joined(keeper *k, af_error *err)
{
    af_status st = AF_OK;
    if (k->joined.count > 1 && k->records[k->dataset] == 0)
        st = keep_joined(k, k->joined.count, err);
    k->joined.count = 0;
    return st;
}

/* A BOS token begins a row, not a text. */
static af_status join(keeper *k, const af_example *e, af_error *err)
{
    const int64_t limit = k->p->o->sequence_len;
    const int32_t bos = k->p->tokenizer ? af_tokenizer_bos(k->p->tokenizer) : -1;
    const bool begins = bos >= 0 && e->row->count > 1 && e->row->ids[0] == bos;
    const af_encoding text = {.ids = e->row->ids + begins, .count = e->row->count - begins};
    af_status st = AF_OK;
    if (k->dataset != e->dataset)
        AF_TRY(end_joined(k, err));
    k->dataset = e->dataset;
    k->last = *e;
    AF_TRY(af_row_append(&k->joined, &text, true, err));
    while (k->joined.count >= limit) {
        if (begins)
            k->joined.ids[0] = k->joined.labels[0] = bos;
        AF_TRY(keep_joined(k, limit, err));
    }
done:
    return st;
}

static af_status keep(void *user, const af_example *e, af_error *err)
{
    keeper *k = user;
    const af_row *r = &e->row[0];
    if (is_joined(k, e->dataset) && k->p->o->sequence_len > 0)
        return join(k, e, err);
    k->records[e->dataset]++;
    if (e->pair)
        return af_pair_writer_add(k->w, e->pair, e->source, e->line, err);
    return af_token_writer_add(k->w, r->ids, r->labels, r->count, e->source, e->line, err);
}

/* mix_strategy: the records of the datasets in turn. */
static af_status interleave(const keeper *k, const af_data_pipeline *p, af_error *err)
{
    const af_interleave_opts o = {.mix = p->o->mix,
                                  .records = k->records,
                                  .datasets = p->datasets,
                                  .probs = p->mix_probs,
                                  .seed = p->o->seed};
    int64_t *order = NULL, count = 0;
    if (o.mix == AF_MIX_CONCAT || o.datasets == 1)
        return AF_OK;
    af_status st = af_interleave(&order, &count, &o, err);
    if (st == AF_OK)
        st = af_token_writer_order(k->w, order, count, err);
    free(order);
    return st;
}

/* *unwritten, if not NULL: it failed to write, not to read. */
static af_status make_store(const char *path, af_data_pipeline *k, af_data_counts *counts,
                            bool *unwritten, af_error *err)
{
    af_status st = AF_OK;
    af_token_writer *w = NULL;
    af_buf note = {0};
    keeper kept = {.p = k, .records = af_calloc((uint64_t)k->datasets, sizeof *kept.records)};
    if (!kept.records)
        return af_fail_nomem(err, "datasets", (uint64_t)k->datasets * sizeof *kept.records);
    AF_TRY(af_token_writer_open(&w, path, err));
    kept.w = w;
    AF_TRY(af_dataset_read(k, AF_READ_TRAIN, keep, &kept, counts, NULL, err));
    AF_TRY(end_joined(&kept, err));
    AF_TRY(interleave(&kept, k, err));
    AF_TRY(write_note(&note, k, counts, err));
    st = af_token_writer_commit_note(w, note.data, note.len, err);
    w = NULL;
done:
    if (unwritten) /* without a writer: to begin the file, or to end it */
        *unwritten = st == AF_EIO && (!w || af_token_writer_failed(w));
    af_token_writer_abandon(w);
    af_row_clear(&kept.joined);
    free(kept.records);
    af_buf_clear(&note);
    return st;
}

/* Without a cache: a temporary file, gone as soon as it is mapped. */
static af_status temporary_store(af_token_store *out, af_data_pipeline *k, af_data_counts *counts,
                                 af_error *err)
{
    const char *given = getenv("TMPDIR"), *in = given && *given ? given : "/var/tmp";
    char dir[4096];
    af_status st = AF_OK;
    snprintf(dir, sizeof dir, "%s/afinar-tokens.XXXXXX", in);
    if (!mkdtemp(dir))
        return af_fail(err, AF_EIO, "cannot make a folder in '%s': %s (TMPDIR names another)", in,
                       strerror(errno));
    char *path = af_path_join(dir, "tokens");
    if (!path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(make_store(path, k, counts, NULL, err));
    AF_TRY(af_token_store_open(out, path, err));
done:
    (void)!af_path_remove(dir, NULL);
    free(path);
    return st;
}

af_status af_dataset_open(af_token_store *out, af_data_counts *counts, const af_data_opts *o,
                          af_error *err)
{
    af_data_pipeline k = {0};
    char *path = NULL;
    af_error ignored;
    af_status st = AF_OK;
    uint64_t limit;
    bool unwritten = false;
    AF_TRY(af_token_cache_limit(&limit, err));
    AF_TRY(af_data_pipeline_open(&k, o, err));
    AF_TRY(store_path(&path, &k, err));
    if (!path) {
        st = temporary_store(out, &k, counts, err);
        goto done;
    }
    if (af_file_exists(path) && af_token_store_open(out, path, &ignored) == AF_OK) {
        if (read_note(counts, out)) {
            af_log_write(AF_LOG_DEBUG, "tokens taken from %s", path);
            af_token_cache_touch(path);
            if (counts->warnings)
                af_log_write(AF_LOG_WARN,
                             "the datasets had %" PRId64 " warnings when they were read",
                             counts->warnings);
            goto done;
        }
        af_token_store_close(out);
    }
    st = make_store(path, &k, counts, &unwritten, err);
    if (unwritten) { /* a full disk, or a quota: as without a cache */
        no_cache(o, err);
        *counts = (af_data_counts){0};
        st = temporary_store(out, &k, counts, err);
        goto done;
    }
    if (st != AF_OK)
        goto done;
    AF_TRY(af_token_store_open(out, path, err));
    st = af_token_cache_trim(path, limit, err);
    if (st != AF_OK)
        af_token_store_close(out);
done:
    free(path);
    af_data_pipeline_close(&k);
    return st;
}
