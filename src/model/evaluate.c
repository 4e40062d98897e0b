/* evaluate.c - loss and accuracy over token rows, packed into runs; and over plain text. */
#include "model/model_state.h"

enum { PACK_SEQS = 64, PACK_ROWS = 1024 };

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
    AF_NEED(err, out, m);
    if (rows < 1)
        return af_fail(err, AF_EUSAGE, "batches of %" PRId64 " tokens are not possible", rows);
    const af_status st = af_model_need_tokens(m, err);
    if (st != AF_OK)
        return st;
    af_eval *e = af_calloc(1, sizeof *e);
    if (!e)
        return af_fail_nomem(err, "an evaluation", sizeof *e);
    e->m = m;
    e->N = AF_MAX(rows, 2);
    e->feeds_max = af_loader_spec(m->loader)->rope_by_length ? 1 : PACK_SEQS;
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
    AF_TRY(af_model_engine(e->m, AF_ENGINE_LOSS, e->N, e->feeds_max, err));
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
    AF_NEED(err, e, row.ids || row.count < 1, row.labels || row.count < 1);
    af_status st = AF_OK;
    if (row.count < 0)
        return af_fail(err, AF_EUSAGE, "%" PRId64 " tokens are not possible", row.count);
    if (!row.count)
        return AF_OK;
    if (row.count > e->N)
        return af_fail(err, AF_EUSAGE, "a row of %" PRId64 " tokens does not fit into %" PRId64,
                       row.count, e->N);
    AF_TRY(af_model_check_ids(e->m, row.ids, row.count, err));
    af_model_watch_length(e->m, row.count);
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
    AF_NEED(err, e, out);
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

/* ---- plain text ---- */

af_status af_model_eval_text(af_model *m, const char *path, int64_t seq, af_eval_result *out,
                             af_error *err)
{
    AF_NEED(err, m, path, out);
    af_status st = AF_OK;
    af_encoding text = {0};
    af_eval *e = NULL;
    af_map map = {0};
    const af_tokenizer *tok;
    if (seq < 2)
        return af_fail(err, AF_EUSAGE, "windows of %" PRId64 " tokens predict nothing", seq);
    AF_TRY(af_map_open(&map, path, err));
    AF_TRY(af_model_tokenizer(m, &tok, err));
    st = af_tokenizer_encode(tok, &text, (const char *)map.data, map.size, false, err);
    if (st != AF_OK)
        AF_TRY(af_fail_prefix(st, err, "%s", path));
    AF_TRY(af_eval_new(&e, m, AF_MAX(AF_MIN(seq, text.count), PACK_ROWS), err));
    for (int64_t at = 0; at < text.count; at += seq) {
        const int32_t *ids = text.ids + at;
        AF_TRY(af_eval_add(e, (af_token_row){ids, ids, AF_MIN(seq, text.count - at)}, err));
    }
    AF_TRY(af_eval_finish(e, out, err));
done:
    af_eval_free(e);
    af_encoding_clear(&text);
    af_map_close(&map);
    return st;
}
