/* evaluate.c - loss and accuracy over token rows, packed into runs; and over simple files. */
#include "model/model_state.h"

#include <jansson.h>

enum { PACK_SEQS = 64, PACK_ROWS = 1024 };
#define EVAL_FILE_MAX (UINT64_C(4) << 30)

struct af_eval {
    af_model *m;
    int32_t *ids, *labels; /* waiting, one after another; labels shifted */
    af_feed feed[PACK_SEQS];
    int64_t N, used;
    int feeds, feeds_max;
    double loss;
    int64_t hits, tokens, rows;
};

af_status af_eval_new(af_eval **out, af_model *m, int64_t rows, af_error *err)
{
    af_eval *e = af_calloc(1, sizeof *e);
    if (!e)
        return af_fail_nomem(err, "an evaluation", sizeof *e);
    e->m = m;
    e->N = AF_MAX(rows, 2);
    e->feeds_max = af_rope_depends_on_length(&af_source_spec(m->source)->rope[0]) ? 1 : PACK_SEQS;
    e->ids = af_calloc((uint64_t)e->N * 2, sizeof *e->ids);
    if (!e->ids) {
        free(e);
        return af_fail_nomem(err, "an evaluation", (uint64_t)rows * 8);
    }
    e->labels = e->ids + e->N;
    *out = e;
    return AF_OK;
}

void af_eval_free(af_eval *e)
{
    if (!e)
        return;
    free(e->ids);
    free(e);
}

static af_status flush(af_eval *e, af_error *err)
{
    af_status st = AF_OK;
    const float *rows; /* [N][2]: loss, hit */
    if (e->used == 0)
        return AF_OK;
    AF_TRY(af_model_engine(e->m, AF_ENGINE_LOSS, e->N, e->feeds_max, 0, err));
    AF_TRY(af_engine_run(&e->m->engine, e->feed, e->feeds, &rows, err));
    for (int64_t r = 0; r < e->used; r++) {
        if (e->labels[r] == -100)
            continue;
        e->loss += rows[2 * r];
        e->hits += rows[2 * r + 1] != 0;
        e->tokens++;
    }
    e->used = 0;
    e->feeds = 0;
done:
    return st;
}

af_status af_eval_add(af_eval *e, af_token_row row, af_error *err)
{
    af_status st = AF_OK;
    if (row.count < 1)
        return AF_OK;
    if (row.count > e->N)
        return af_fail(err, AF_EUSAGE, "a row of %" PRId64 " tokens does not fit into %" PRId64,
                       row.count, e->N);
    AF_TRY(af_model_check_ids(e->m, row.ids, row.count, err));
    if (e->used + row.count > e->N || e->feeds == e->feeds_max)
        AF_TRY(flush(e, err));
    int32_t *ids = e->ids + e->used, *labels = e->labels + e->used;
    const int64_t V = af_model_vocab(e->m);
    for (int64_t t = 0; t < row.count; t++) {
        ids[t] = row.ids[t];
        labels[t] = t + 1 < row.count ? row.labels[t + 1] : -100;
        if (labels[t] != -100 && (labels[t] < 0 || labels[t] >= V))
            return af_fail(err, AF_EUSAGE,
                           "label %" PRId32 " is outside the vocabulary of %" PRId64, labels[t], V);
    }
    e->feed[e->feeds++] = (af_feed){.ids = ids, .labels = labels, .n = row.count};
    e->used += row.count;
    e->rows++;
done:
    return st;
}

af_status af_eval_finish(af_eval *e, af_eval_result *out, af_error *err)
{
    const af_status st = flush(e, err);
    if (st != AF_OK)
        return st;
    if (e->tokens == 0)
        return af_fail(err, AF_EUSAGE, "there is no token to predict in %" PRId64 " rows", e->rows);
    *out = (af_eval_result){.loss = e->loss / (double)e->tokens,
                            .accuracy = (double)e->hits / (double)e->tokens,
                            .tokens = e->tokens,
                            .rows = e->rows};
    return AF_OK;
}

/* ---- files ---- */

typedef struct token_rows {
    int32_t *ids, *labels;
    int64_t *end; /* where row i ends */
    int64_t count, cap, rows, row_cap, longest;
} token_rows;

static void token_rows_clear(token_rows *t)
{
    free(t->ids);
    free(t->labels);
    free(t->end);
}

static bool grow(token_rows *t, int64_t more)
{
    if (t->count + more > t->cap) {
        const int64_t cap = AF_MAX(t->cap * 2, t->count + more);
        int32_t *ids = af_realloc(t->ids, (uint64_t)cap, sizeof *ids);
        t->ids = ids ? ids : t->ids;
        int32_t *labels = af_realloc(t->labels, (uint64_t)cap, sizeof *labels);
        t->labels = labels ? labels : t->labels;
        if (!ids || !labels)
            return false;
        t->cap = cap;
    }
    if (t->rows == t->row_cap) {
        const int64_t cap = AF_MAX(t->row_cap * 2, 256);
        int64_t *end = af_realloc(t->end, (uint64_t)cap, sizeof *end);
        if (!end)
            return false;
        t->end = end;
        t->row_cap = cap;
    }
    return true;
}

static void close_row(token_rows *t, int64_t n)
{
    t->count += n;
    t->end[t->rows++] = t->count;
    t->longest = AF_MAX(t->longest, n);
}

static af_status read_line(token_rows *t, const char *text, uint64_t len, const char *path,
                           int64_t line, af_error *err)
{
    af_status st = AF_OK;
    json_error_t je;
    json_t *root = json_loadb(text, len, 0, &je);
    const json_t *ids = json_object_get(root, "input_ids"),
                 *labels = json_object_get(root, "labels");
    const size_t n = json_array_size(ids);
    if (!root)
        AF_TRY(af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": %s", path, line, je.text));
    if (!json_is_array(ids) || n == 0 || (labels && json_array_size(labels) != n))
        AF_TRY(af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": input_ids has %zu entries and labels %zu",
                       path, line, n, json_array_size(labels)));
    if (!grow(t, (int64_t)n))
        AF_TRY(af_fail_nomem(err, "token rows", n * 8));
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i), *l = labels ? json_array_get(labels, i) : id;
        if (!json_is_integer(id) || !json_is_integer(l) || json_integer_value(id) > INT32_MAX ||
            json_integer_value(l) > INT32_MAX || json_integer_value(l) < INT32_MIN ||
            json_integer_value(id) < 0)
            AF_TRY(af_fail(err, AF_EFORMAT, "%s:%" PRId64 ": entry %zu is not a token id", path,
                           line, i));
        t->ids[t->count + (int64_t)i] = (int32_t)json_integer_value(id);
        t->labels[t->count + (int64_t)i] = (int32_t)json_integer_value(l);
    }
    close_row(t, (int64_t)n);
done:
    json_decref(root);
    return st;
}

static af_status read_jsonl(token_rows *t, const char *text, uint64_t size, const char *path,
                            af_error *err)
{
    af_status st = AF_OK;
    int64_t line = 1;
    for (uint64_t at = 0; at < size; line++) {
        const char *end = memchr(text + at, '\n', size - at);
        const uint64_t n = end ? (uint64_t)(end - text) - at : size - at;
        uint64_t blank = 0;
        while (blank < n && strchr(" \t\r", text[at + blank]))
            blank++;
        if (blank < n)
            AF_TRY(read_line(t, text + at, n, path, line, err));
        at += n + 1;
    }
done:
    return st;
}

/* The whole text as tokens, cut into windows of `seq`. */
static af_status read_text(token_rows *t, af_model *m, const char *text, uint64_t size, int64_t seq,
                           af_error *err)
{
    af_status st = AF_OK;
    af_encoding e = {0};
    const af_tokenizer *tok;
    AF_TRY(af_model_tokenizer(m, &tok, err));
    AF_TRY(af_tokenizer_encode(tok, &e, text, size, false, err));
    for (int64_t at = 0; at < e.count; at += seq) {
        const int64_t n = AF_MIN(seq, e.count - at);
        if (!grow(t, n))
            AF_TRY(af_fail_nomem(err, "token rows", (uint64_t)n * 8));
        memcpy(t->ids + t->count, e.ids + at, (size_t)n * sizeof *t->ids);
        memcpy(t->labels + t->count, e.ids + at, (size_t)n * sizeof *t->ids);
        close_row(t, n);
    }
done:
    af_encoding_clear(&e);
    return st;
}

static bool is_jsonl(const char *path)
{
    const size_t n = strlen(path);
    return (n > 6 && !strcmp(path + n - 6, ".jsonl")) || (n > 5 && !strcmp(path + n - 5, ".json"));
}

af_status af_model_eval_file(af_model *m, const char *path, int64_t seq, af_eval_result *out,
                             af_error *err)
{
    af_status st = AF_OK;
    token_rows t = {0};
    af_eval *e = NULL;
    char *text = NULL;
    uint64_t size;
    if (seq < 2)
        return af_fail(err, AF_EUSAGE, "windows of %" PRId64 " tokens predict nothing", seq);
    AF_TRY(af_file_read(&text, &size, path, EVAL_FILE_MAX, err));
    AF_TRY(is_jsonl(path) ? read_jsonl(&t, text, size, path, err)
                          : read_text(&t, m, text, size, seq, err));
    AF_TRY(af_eval_new(&e, m, AF_MAX(t.longest, PACK_ROWS), err));
    for (int64_t i = 0, at = 0; i < t.rows; at = t.end[i++])
        AF_TRY(af_eval_add(e, (af_token_row){t.ids + at, t.labels + at, t.end[i] - at}, err));
    AF_TRY(af_eval_finish(e, out, err));
done:
    af_eval_free(e);
    token_rows_clear(&t);
    free(text);
    return st;
}
