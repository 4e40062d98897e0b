/* logits_file.c - logits of token rows from a safetensors file into another. */
#include "model/model_state.h"

#include "base/publish.h"
#include "format/weights/safetensors.h"

typedef struct rows {
    int64_t B, T;
    int32_t *ids;
    bool *mask; /* NULL = all */
} rows;

static void rows_clear(rows *r)
{
    free(r->ids);
    free(r->mask);
}

static af_status read_ints(int32_t *out, const af_stored *t, const char *name, af_error *err)
{
    const bool i64 = t->dtype == AF_DTYPE_I64;
    for (int64_t i = 0; i < af_weight_count(t); i++) {
        const int64_t v = i64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
        if (v < INT32_MIN || v > INT32_MAX)
            return af_fail(err, AF_EFORMAT, "%s has the value %" PRId64 " at %" PRId64, name, v, i);
        out[i] = (int32_t)v;
    }
    return AF_OK;
}

static const af_stored *find_ints(const af_safetensors *f, const char *name)
{
    const af_stored *t = af_safetensors_find(f, name);
    return t && t->ndim == 2 && (t->dtype == AF_DTYPE_I32 || t->dtype == AF_DTYPE_I64) ? t : NULL;
}

/* Padding before or after a row; between its tokens it would have a place, and windows a width,
 * that rows without it have not. */
static af_status check_mask(const rows *r, const char *path, af_error *err)
{
    for (int64_t b = 0; b < r->B; b++) {
        int64_t ended = -1;
        const bool *mask = r->mask + b * r->T;
        for (int64_t t = 1; t < r->T; t++) {
            if (mask[t - 1] && !mask[t] && ended < 0)
                ended = t;
            else if (mask[t] && ended >= 0)
                return af_fail(err, AF_EUNSUPPORTED,
                               "%s: row %" PRId64 " of attention_mask has a hole at %" PRId64
                               ": padding must be before or after the tokens",
                               path, b, ended);
        }
    }
    return AF_OK;
}

static af_status read_rows(rows *out, const char *path, af_error *err)
{
    af_status st = AF_OK;
    rows r = {0};
    af_safetensors *f = NULL;
    int32_t *mask = NULL;
    AF_TRY(af_safetensors_open(&f, path, err));
    const af_stored *ids = find_ints(f, "input_ids"), *m = find_ints(f, "attention_mask");
    if (!ids)
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s has no 'input_ids' of two dimensions and type I32 or I64", path));
    if (m && (m->dim[0] != ids->dim[0] || m->dim[1] != ids->dim[1]))
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s: attention_mask is %" PRId64 "x%" PRId64 ", input_ids %" PRId64
                       "x%" PRId64,
                       path, m->dim[0], m->dim[1], ids->dim[0], ids->dim[1]));
    const uint64_t n = (uint64_t)af_weight_count(ids);
    r.B = ids->dim[0];
    r.T = ids->dim[1];
    r.ids = af_calloc(n + 1, sizeof *r.ids);
    r.mask = m ? af_calloc(n + 1, sizeof *r.mask) : NULL;
    mask = m ? af_calloc(n + 1, sizeof *mask) : NULL;
    if (!r.ids || (m && (!r.mask || !mask)))
        AF_TRY(af_fail_nomem(err, "token rows", n * 4));
    AF_TRY(read_ints(r.ids, ids, "input_ids", err));
    if (m)
        AF_TRY(read_ints(mask, m, "attention_mask", err));
    for (uint64_t i = 0; m && i < n; i++)
        r.mask[i] = mask[i] != 0;
    if (m)
        AF_TRY(check_mask(&r, path, err));
    *out = r;
    r = (rows){0};
done:
    rows_clear(&r);
    free(mask);
    af_safetensors_close(f);
    return st;
}

/* One row: its unmasked tokens as a sequence, their logits put back where they belong. */
static af_status write_row(af_model *m, af_safetensors_writer *w, const rows *r, int64_t b,
                           int32_t *ids, float *out, af_error *err)
{
    af_status st = AF_OK;
    const int64_t V = af_model_vocab(m);
    int64_t n = 0;
    for (int64_t t = 0; t < r->T; t++)
        if (!r->mask || r->mask[b * r->T + t])
            ids[n++] = r->ids[b * r->T + t];
    AF_TRY(af_model_logits_in(m, ids, n, r->T, out, err));
    for (int64_t t = r->T - 1, k = n - 1; t >= 0; t--) { /* from the end: rows only move up */
        const bool live = !r->mask || r->mask[b * r->T + t];
        if (live && k != t)
            memmove(out + t * V, out + k * V, (size_t)V * sizeof *out);
        if (live)
            k--;
        else
            memset(out + t * V, 0, (size_t)V * sizeof *out);
    }
    AF_TRY(af_safetensors_writer_data(w, out, (uint64_t)(r->T * V) * sizeof *out, err));
done:
    return st;
}

af_status af_model_logits_file(af_model *m, const char *in, const char *path, bool force,
                               af_error *err)
{
    AF_NEED(err, m, in, path);
    af_status st = AF_OK;
    rows r = {0};
    af_safetensors_writer *w = NULL;
    int32_t *ids = NULL;
    float *out = NULL;
    af_output f = {0};
    char *file = NULL;
    const int64_t V = af_model_vocab(m);
    AF_TRY(af_output_check(path, (const char *const[]){in, m->path, m->adapter_dir}, 3, err));
    AF_TRY(af_output_open_file(&f, path, NULL, force, err));
    file = af_output_file(&f);
    if (!file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    AF_TRY(read_rows(&r, in, err));
    AF_TRY(af_model_check_ids(m, r.ids, r.B * r.T, err));
    ids = af_calloc((uint64_t)r.T + 1, sizeof *ids);
    out = af_calloc((uint64_t)(r.T * V) + 1, sizeof *out);
    if (!ids || !out)
        AF_TRY(af_fail_nomem(err, "logits", (uint64_t)(r.T * V) * sizeof *out));
    AF_TRY(af_model_engine(m, AF_ENGINE_LOGITS, AF_MAX(r.T, 1), 1, err));
    AF_TRY(af_safetensors_writer_new(&w, file, 0, err));
    AF_TRY(af_safetensors_writer_add(w, "logits", AF_DTYPE_F32, (int64_t[]){r.B, r.T, V}, 3, err));
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int64_t b = 0; b < r.B; b++)
        AF_TRY(write_row(m, w, &r, b, ids, out, err));
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
    if (st == AF_OK)
        st = af_output_commit(&f, err);
done:
    af_safetensors_writer_abandon(w);
    af_output_abandon(&f);
    free(file);
    rows_clear(&r);
    free(ids);
    free(out);
    return st;
}
