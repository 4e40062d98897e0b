/* capture.c - see capture.h. */
#include "train/step/capture.h"

#include "base/hash.h"
#include "tensor/dtype.h"

#include <math.h>

/* ---- records ---- */

int64_t af_capture_labels(const af_token_store *s, int64_t record)
{
    const uint32_t *w = af_token_words(s, record);
    int64_t n = 0;
    for (uint32_t i = 1; i < s->index[record].count; i++)
        n += !(w[i] & AF_TOKEN_NO_LOSS);
    return n;
}

void af_capture_data_hash(const af_token_store *s, char hex[65])
{
    af_sha256 h;
    af_sha256_init(&h);
    for (int64_t r = 0; r < s->records; r++) {
        const uint32_t n = s->index[r].count;
        af_sha256_add(&h, &n, sizeof n);
        af_sha256_add(&h, af_token_words(s, r), (uint64_t)n * sizeof(uint32_t));
    }
    af_sha256_hex(&h, hex);
}

/* ---- the file ---- */

static bool is_shape(const af_stored *t, int ndim, int64_t rows, int64_t columns)
{
    return t && t->ndim == ndim && t->dim[0] == rows && (ndim == 1 || t->dim[1] == columns);
}

static af_status check_layout(af_capture *c, af_error *err)
{
    const bool wide = c->ids && c->ids->dtype == AF_DTYPE_I32;
    if (!c->start || c->start->ndim != 1 || c->start->dim[0] < 1 ||
        (c->start->dtype != AF_DTYPE_I32 && c->start->dtype != AF_DTYPE_I64))
        return af_fail(err, AF_EFORMAT, "'%s' is not a capture of a teacher: it has no row_start",
                       c->path);
    if (!c->ids || c->ids->ndim != 2 || c->ids->dim[1] < 1 ||
        (!wide && c->ids->dtype != AF_DTYPE_U16))
        return af_fail(err, AF_EFORMAT, "'%s' is not a capture of a teacher: it has no ids [N][k]",
                       c->path);
    c->records = c->start->dim[0] - 1;
    c->positions = c->ids->dim[0];
    c->k = c->ids->dim[1];
    if (!is_shape(c->logprobs, 2, c->positions, c->k) ||
        (c->logprobs->dtype != AF_DTYPE_F32 && c->logprobs->dtype != AF_DTYPE_F16 &&
         c->logprobs->dtype != AF_DTYPE_BF16))
        return af_fail(err, AF_EFORMAT,
                       "'%s' is not a capture of a teacher: its logprobs do not match its ids",
                       c->path);
    if (c->high && (wide || c->high->dtype != AF_DTYPE_U8 ||
                    !is_shape(c->high, 2, c->positions, (c->k + 1) / 2)))
        return af_fail(err, AF_EFORMAT,
                       "'%s' is not a capture of a teacher: its ids_high do not match its ids",
                       c->path);
    for (int64_t r = 0; r <= c->records; r++) {
        const int64_t at = af_capture_start(c, r), last = r ? af_capture_start(c, r - 1) : 0;
        if (at < last || at > c->positions || (r == 0 && at != 0) ||
            (r == c->records && at != c->positions))
            return af_fail(err, AF_EFORMAT,
                           "'%s' is not a capture of a teacher: row_start[%" PRId64 "] is %" PRId64,
                           c->path, r, at);
    }
    return AF_OK;
}

af_status af_capture_open(af_capture *c, const char *path, af_error *err)
{
    *c = (af_capture){.path = path};
    const af_status st = af_safetensors_open(&c->file, path, err);
    if (st != AF_OK)
        return st;
    c->start = af_safetensors_find(c->file, "row_start");
    c->ids = af_safetensors_find(c->file, "ids");
    c->high = af_safetensors_find(c->file, "ids_high");
    c->logprobs = af_safetensors_find(c->file, "logprobs");
    return check_layout(c, err);
}

void af_capture_close(af_capture *c)
{
    af_safetensors_close(c->file);
    *c = (af_capture){0};
}

af_status af_capture_fits(const af_capture *c, const af_token_store *s, af_error *err)
{
    const char *made_of = af_safetensors_meta(c->file, "data");
    char hex[65];
    if (made_of) {
        af_capture_data_hash(s, hex);
        if (strcmp(hex, made_of) == 0)
            return AF_OK;
        return af_fail(err, AF_EUSAGE,
                       "'%s' was captured from other tokens than this run's: its datasets, "
                       "template, tokenizer or sequence_len differ (%" PRId64 " records, here "
                       "%" PRId64 ")",
                       c->path, c->records, s->records);
    }
    if (c->records > s->records)
        return af_fail(err, AF_EUSAGE, "'%s' has %" PRId64 " records, and the run's data %" PRId64,
                       c->path, c->records, s->records);
    for (int64_t r = 0; r < c->records; r++) {
        const int64_t has = af_capture_start(c, r + 1) - af_capture_start(c, r),
                      needs = af_capture_labels(s, r);
        if (has != needs)
            return af_fail(err, AF_EUSAGE,
                           "'%s' has %" PRId64 " positions of record %" PRId64
                           ", and the run's data has %" PRId64 " labels there",
                           c->path, has, r + 1, needs);
    }
    return AF_OK;
}

int64_t af_capture_start(const af_capture *c, int64_t record)
{
    return c->start->dtype == AF_DTYPE_I32 ? ((const int32_t *)c->start->data)[record]
                                           : ((const int64_t *)c->start->data)[record];
}

/* ---- values ---- */

static int32_t id_at(const af_capture *c, int64_t position, int64_t i)
{
    const int64_t at = position * c->k + i;
    if (c->ids->dtype == AF_DTYPE_I32)
        return ((const int32_t *)c->ids->data)[at];
    const int32_t low = ((const uint16_t *)c->ids->data)[at];
    if (!c->high)
        return low;
    const uint8_t two = ((const uint8_t *)c->high->data)[position * ((c->k + 1) / 2) + i / 2];
    return low | (i % 2 ? two >> 4 : two & 15) << 16;
}

static double logprob_at(const af_capture *c, int64_t at)
{
    const void *data = c->logprobs->data;
    return c->logprobs->dtype == AF_DTYPE_F32 ? (double)((const float *)data)[at]
           : c->logprobs->dtype == AF_DTYPE_F16
               ? (double)af_f32_from_f16(((const uint16_t *)data)[at])
               : (double)af_f32_from_bf16(((const uint16_t *)data)[at]);
}

void af_capture_read(const af_capture *c, int64_t position, int64_t n, double temperature,
                     int32_t *id, float *log_share)
{
    double most = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, logprob_at(c, position * c->k + i) / temperature);
    for (int64_t i = 0; i < n; i++)
        sum += exp(logprob_at(c, position * c->k + i) / temperature - most);
    for (int64_t i = 0; i < n; i++) {
        id[i] = id_at(c, position, i);
        log_share[i] = (float)(logprob_at(c, position * c->k + i) / temperature - most - log(sum));
    }
}
