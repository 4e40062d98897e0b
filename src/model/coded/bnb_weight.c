/* bnb_weight.c - see bnb_weight.h. The formula is w = map[code] * absmax[block], absmax itself
 * being nested_map[q]
 * * nested[block of 256] + offset with double quantisation, all in f32, then rounded once. */
#include "model/coded/bnb_weight.h"

#include "format/weights/bnb_state.h"
#include "tensor/codec_bnb.h"

enum { AF_BNB_BLOCK = 64 };
enum { SCALE_BLOCKS = 64 }; /* decoded at a time; even, so that a group of blocks begins a byte */

af_status af_bnb_weight_read(af_bnb_weight *out, bool *found, const af_weights *w, const char *name,
                             af_dtype round, af_error *err)
{
    af_bnb_state s;
    const af_status st = af_bnb_state_find(&s, found, w, name, err);
    if (st != AF_OK || !*found)
        return st;
    const bool int8 = s.type == AF_DTYPE_I8;
    *out = (af_bnb_weight){.name = af_weights_find(w, name)->name,
                           .type = s.type,
                           .ndim = s.ndim,
                           .codes = s.codes,
                           .count = s.count,
                           .cols = s.dim[s.ndim - 1],
                           .block = int8 ? 0 : (int)s.block,
                           .nested_block = (int)s.nested_block,
                           .absmax = s.nested ? (const void *)s.nested : s.absmax,
                           .nested = s.nested_absmax,
                           .map = s.table,
                           .nested_map = s.nested_map,
                           .offset = s.nested_offset,
                           .row_scale = int8 ? s.absmax : NULL,
                           .round = int8 ? round : s.dtype};
    memcpy(out->dim, s.dim, sizeof out->dim);
    return AF_OK;
}

void af_bnb_weight_clear(af_bnb_weight *b)
{
    free(b->owned);
    *b = (af_bnb_weight){0};
}

int64_t af_bnb_weight_blocks(const af_bnb_weight *b)
{
    if (b->type == AF_DTYPE_I8)
        return b->cols ? b->count / b->cols : 0;
    return b->block ? (b->count + b->block - 1) / b->block : 0;
}

static float round_to(float x, af_dtype t)
{
    if (t == AF_DTYPE_BF16)
        return af_f32_from_bf16(af_bf16_from_f32(x));
    return t == AF_DTYPE_F16 ? af_f32_from_f16(af_f16_from_f32(x)) : x;
}

static void decode_int8(const af_bnb_weight *b, int64_t from, int64_t end, float *out)
{
    while (from < end) {
        const int64_t row = from / b->cols, stop = AF_MIN(end, (row + 1) * b->cols);
        af_int8_decode_row((const int8_t *)b->codes + from, b->row_scale[row], stop - from, out);
        out += stop - from;
        from = stop;
    }
}

static void decode_4bit(const af_bnb_weight *b, int64_t from, int64_t end, float *out)
{
    float scale[SCALE_BLOCKS];
    while (from < end) {
        const int64_t group = from / b->block / SCALE_BLOCKS * SCALE_BLOCKS;
        const int64_t first = group * b->block;
        const int64_t stop = AF_MIN(end, first + (int64_t)SCALE_BLOCKS * b->block);
        const int64_t low = from / b->block, high = (stop - 1) / b->block + 1;
        if (b->nested_block)
            af_bnb_unnest(b->nested_map, b->absmax, b->nested, b->offset, b->nested_block, low,
                          high, scale + (low - group));
        else
            memcpy(scale + (low - group), (const float *)b->absmax + low,
                   (size_t)(high - low) * sizeof *scale);
        af_bnb_decode(b->type, b->map, b->codes + first / 2, scale, b->block, from - first,
                      stop - first, out, AF_DTYPE_F32);
        out += stop - from;
        from = stop;
    }
}

void af_bnb_weight_decode(const af_bnb_weight *b, int64_t from, int64_t n, float *out)
{
    (b->type == AF_DTYPE_I8 ? decode_int8 : decode_4bit)(b, from, from + n, out);
    for (int64_t i = 0; b->round != AF_DTYPE_F32 && i < n; i++)
        out[i] = round_to(out[i], b->round);
}

bool af_bnb_weight_is_standard(const af_bnb_weight *b)
{
    if (b->type == AF_DTYPE_I8)
        return true;
    return b->type == AF_DTYPE_NF4 &&
           memcmp(b->map, af_bnb_table(AF_DTYPE_NF4), 16 * sizeof(float)) == 0 &&
           (!b->nested_block || memcmp(b->nested_map, af_bnb_map(true), 256 * sizeof(float)) == 0);
}

af_bnb_weight af_bnb_weight_outline(af_dtype type, int64_t count, int64_t cols, af_dtype round)
{
    if (type == AF_DTYPE_I8)
        return (af_bnb_weight){.type = type, .count = count, .cols = cols, .round = round};
    return (af_bnb_weight){.type = AF_DTYPE_NF4,
                           .count = count,
                           .cols = cols,
                           .block = AF_BNB_BLOCK,
                           .nested_block = AF_BNB_NESTED_BLOCK,
                           .map = af_bnb_table(AF_DTYPE_NF4),
                           .nested_map = af_bnb_map(true),
                           .round = round};
}

/* Codes and the scales of the rows lie in one piece of memory. */
static af_status make_int8(af_bnb_weight *out, const float *x, int64_t count, int64_t cols,
                           af_dtype round, af_error *err)
{
    const int64_t rows = cols ? count / cols : 0;
    const uint64_t codes = AF_ALIGN_UP((uint64_t)count, (uint64_t)64);
    uint8_t *mem = af_calloc(codes + (uint64_t)rows * sizeof(float), 1);
    if (!mem)
        return af_fail_nomem(err, "an 8-bit tensor", codes);
    float *scale = (float *)(void *)(mem + codes);
    for (int64_t r = 0; r < rows; r++)
        scale[r] = af_int8_encode_row(x + r * cols, cols, (int8_t *)mem + r * cols);
    *out = af_bnb_weight_outline(AF_DTYPE_I8, count, cols, round);
    out->codes = out->owned = mem;
    out->absmax = out->row_scale = scale;
    return AF_OK;
}

/* Codes, scale codes and outer scales lie in one piece of memory. */
static af_status make_nf4(af_bnb_weight *out, float *x, int64_t count, int64_t cols, af_dtype round,
                          af_error *err)
{
    const int64_t blocks = af_bnb_blocks(count, AF_BNB_BLOCK);
    const int64_t outer = af_bnb_blocks(blocks, AF_BNB_NESTED_BLOCK);
    const uint64_t codes = AF_ALIGN_UP((uint64_t)af_bnb_bytes(count), (uint64_t)64);
    const uint64_t scales = AF_ALIGN_UP((uint64_t)blocks, (uint64_t)64);
    uint8_t *mem = af_calloc(codes + scales + (uint64_t)outer * sizeof(float), 1);
    float *absmax = af_calloc((uint64_t)blocks, sizeof *absmax);
    if (!mem || !absmax) {
        free(mem);
        free(absmax);
        return af_fail_nomem(err, "a 4-bit tensor", codes + scales);
    }
    for (int64_t i = 0; i < count; i++)
        x[i] = round_to(x[i], AF_DTYPE_BF16);
    float *nested = (float *)(void *)(mem + codes + scales);
    af_bnb_encode(AF_DTYPE_NF4, x, count, AF_BNB_BLOCK, mem, absmax);
    const float offset = af_bnb_offset(absmax, blocks);
    af_bnb_nest(absmax, blocks, offset, mem + codes, nested);
    free(absmax);
    *out = af_bnb_weight_outline(AF_DTYPE_NF4, count, cols, round);
    out->codes = out->owned = mem;
    out->absmax = mem + codes;
    out->nested = nested;
    out->offset = offset;
    return AF_OK;
}

af_status af_bnb_weight_make(af_bnb_weight *out, af_dtype type, float *x, int64_t count,
                             int64_t cols, af_dtype round, af_error *err)
{
    return type == AF_DTYPE_I8 ? make_int8(out, x, count, cols, round, err)
                               : make_nf4(out, x, count, cols, round, err);
}
