/* weight.c - values of any type as doubles, a row at a time: what twins read weights through.
 *
 * Block types are decoded by the codecs piece by piece on the stack: nothing is allocated, and any
 * range can be read, whether it starts at a block or not. */
#include "backend/cpu/cpu.h"
#include "tensor/codec.h"
#include "tensor/codec_bnb.h"

enum { PIECE = 256 }; /* elements decoded at once: a multiple of every GGUF block */

static void load_gguf(const af_tensor *t, int64_t from, int64_t count, double *out)
{
    const af_dtype_info *info = af_dtype_get(t->dtype);
    const int64_t total = af_count(t), end = from + count;
    float buf[PIECE];
    for (int64_t at = from / info->elems * info->elems; at < end; at += PIECE) {
        const int64_t n = AF_MIN((int64_t)PIECE, total - at);
        const uint8_t *src = (const uint8_t *)t->data + at / info->elems * info->bytes;
        af_codec_decode_row(t->dtype, src, buf, n);
        for (int64_t i = AF_MAX(from, at); i < AF_MIN(end, at + n); i++)
            out[i - from] = buf[i - at];
    }
}

/* The scale of block b. */
static float bnb_absmax(const af_quant *q, int64_t b)
{
    if (q->nested_block == 0)
        return ((const float *)q->absmax->data)[b];
    const int64_t first = b / q->nested_block * q->nested_block; /* of its nested block */
    const float nested = ((const float *)q->nested->data)[b / q->nested_block];
    const uint8_t *codes = (const uint8_t *)q->absmax->data + first;
    float absmax;
    af_bnb_unnest(NULL, codes, &nested, q->offset, q->nested_block, b - first, b - first + 1,
                  &absmax);
    return absmax;
}

static void load_bnb(const af_tensor *t, int64_t from, int64_t count, double *out)
{
    const af_quant *q = t->quant;
    const int64_t end = from + count;
    float buf[PIECE]; /* of any of the three types values are rounded to */
    assert(q && q->block % 2 == 0);
    for (int64_t at = from; at < end;) {
        const int64_t b = at / q->block, first = b * q->block;
        const int64_t to = AF_MIN(AF_MIN(end, first + q->block), at + PIECE);
        const float absmax = bnb_absmax(q, b);
        af_bnb_decode(t->dtype, NULL, (const uint8_t *)t->data + first / 2, &absmax, q->block,
                      at - first, to - first, buf, q->round);
        for (int64_t i = at; i < to; i++)
            out[i - from] = af_load_f64(buf, q->round, (uint64_t)(i - at));
        at = to;
    }
}

static void int8_f32(const af_tensor *t, int64_t from, int64_t count, float *out)
{
    const int64_t cols = af_last(t), end = from + count;
    const af_quant *q = t->quant;
    assert(q && q->block == 0);
    for (int64_t at = from; at < end;) {
        const int64_t row = at / cols, to = AF_MIN(end, (row + 1) * cols);
        af_int8_decode_row((const int8_t *)t->data + at, ((const float *)q->absmax->data)[row],
                           to - at, out + (at - from));
        at = to;
    }
    for (int64_t i = 0; q->round != AF_DTYPE_F32 && i < count; i++)
        out[i] = q->round == AF_DTYPE_BF16 ? af_f32_from_bf16(af_bf16_from_f32(out[i]))
                                           : af_f32_from_f16(af_f16_from_f32(out[i]));
}

static void load_int8(const af_tensor *t, int64_t from, int64_t count, double *out)
{
    float buf[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        const int64_t n = AF_MIN((int64_t)PIECE, count - at);
        int8_f32(t, from + at, n, buf);
        for (int64_t i = 0; i < n; i++)
            out[at + i] = buf[i];
    }
}

void af_ld_row(const af_tensor *t, int64_t from, int64_t count, double *out)
{
    const float *f = t->data;
    const double *d = t->data;
    const uint16_t *h = t->data;
    if (t->dtype == AF_DTYPE_F32) {
        for (int64_t i = 0; i < count; i++)
            out[i] = f[from + i];
    } else if (t->dtype == AF_DTYPE_F64) {
        memcpy(out, d + from, (size_t)count * sizeof *out);
    } else if (t->dtype == AF_DTYPE_BF16) {
        for (int64_t i = 0; i < count; i++)
            out[i] = af_f32_from_bf16(h[from + i]);
    } else if (t->dtype == AF_DTYPE_NF4 || t->dtype == AF_DTYPE_FP4) {
        load_bnb(t, from, count, out);
    } else if (t->dtype == AF_DTYPE_I8 && t->quant) {
        load_int8(t, from, count, out);
    } else if (af_dtype_is_block(t->dtype)) {
        load_gguf(t, from, count, out);
    } else {
        for (int64_t i = 0; i < count; i++)
            out[i] = af_ld(t, from + i);
    }
}

void af_st_row(af_tensor *t, int64_t from, int64_t count, const double *v)
{
    for (int64_t i = 0; i < count; i++)
        af_st(t, from + i, v[i]);
}

double af_ld_weight(const af_tensor *t, int64_t i)
{
    double v;
    af_ld_row(t, i, 1, &v);
    return v;
}

static void gguf_f32(const af_tensor *t, int64_t from, int64_t count, float *out)
{
    const af_dtype_info *info = af_dtype_get(t->dtype);
    const int64_t total = af_count(t), end = from + count;
    float buf[PIECE];
    if (from % info->elems == 0 && count % info->elems == 0) {
        af_codec_decode_row(t->dtype, (const uint8_t *)t->data + from / info->elems * info->bytes,
                            out, count);
        return;
    }
    for (int64_t at = from / info->elems * info->elems; at < end; at += PIECE) {
        const int64_t left = (end - at + info->elems - 1) / info->elems * info->elems;
        const int64_t n = AF_MIN(AF_MIN((int64_t)PIECE, left), total - at);
        const uint8_t *src = (const uint8_t *)t->data + at / info->elems * info->bytes;
        af_codec_decode_row(t->dtype, src, buf, n);
        for (int64_t i = AF_MAX(from, at); i < AF_MIN(end, at + n); i++)
            out[i - from] = buf[i - at];
    }
}

static void bnb_f32(const af_tensor *t, int64_t from, int64_t count, float *out)
{
    const af_quant *q = t->quant;
    const int64_t end = from + count;
    for (int64_t at = from; at < end;) {
        const int64_t b = at / q->block, first = b * q->block;
        const int64_t to = AF_MIN(AF_MIN(end, first + q->block), at + PIECE);
        const float absmax = bnb_absmax(q, b);
        float *o = out + (at - from);
        if (q->round == AF_DTYPE_F32) {
            af_bnb_decode(t->dtype, NULL, (const uint8_t *)t->data + first / 2, &absmax, q->block,
                          at - first, to - first, o, AF_DTYPE_F32);
        } else {
            uint16_t half[PIECE];
            af_bnb_decode(t->dtype, NULL, (const uint8_t *)t->data + first / 2, &absmax, q->block,
                          at - first, to - first, half, q->round);
            af_convert(o, AF_DTYPE_F32, half, q->round, (uint64_t)(to - at));
        }
        at = to;
    }
}

void af_ld_row_f32(const af_tensor *t, int64_t from, int64_t count, float *out)
{
    if (t->dtype == AF_DTYPE_NF4 || t->dtype == AF_DTYPE_FP4)
        bnb_f32(t, from, count, out);
    else if (t->dtype == AF_DTYPE_I8 && t->quant)
        int8_f32(t, from, count, out);
    else if (af_dtype_is_block(t->dtype))
        gguf_f32(t, from, count, out);
    else
        af_convert(out, AF_DTYPE_F32,
                   (const uint8_t *)t->data + from * af_dtype_get(t->dtype)->bytes, t->dtype,
                   (uint64_t)count);
}
