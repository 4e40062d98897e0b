/* coded_weight.c - the values of codes; see coded_weight.h. Sizes were checked by coded_read.c. */
#include "model/coded/coded_weight.h"

#include <math.h>

static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static float rounded(float x, af_dtype type)
{
    if (type == AF_DTYPE_BF16)
        return af_f32_from_bf16(af_bf16_from_f32(x));
    return type == AF_DTYPE_F16 ? af_f32_from_f16(af_f16_from_f32(x)) : x;
}

/* Bytes are exponents (e8m0), other types are numbers. */
static float number_at(const af_stored *t, int64_t i)
{
    if (t->dtype == AF_DTYPE_E8M0 || t->dtype == AF_DTYPE_U8)
        return ldexpf(1.0f, (int)((const uint8_t *)t->data)[i] - 127);
    return (float)af_load_f64(t->data, t->dtype, (uint64_t)i);
}

/* `bits` bits from bit `at` of a stream of words, lowest first. */
static int bits_at(const int32_t *word, int64_t stride, int64_t at, int bits)
{
    const int64_t i = at / 32;
    const int skip = (int)(at % 32);
    uint64_t two = (uint32_t)word[i * stride];
    if (skip + bits > 32)
        two |= (uint64_t)(uint32_t)word[(i + 1) * stride] << 32;
    return (int)(two >> skip & ((1u << bits) - 1));
}

static int64_t scale_index(const af_coded_weight *c, int64_t r, int64_t col)
{
    return r / c->block[0] * c->scale_cols + col / c->block[1];
}

/* compressed-tensors packs zeros down the column; older files have plain bytes. */
static float zero_of(const af_coded_weight *c, int64_t r, int64_t group)
{
    if (!c->zero)
        return 0;
    if (c->kind == AF_CODE_WORDS && c->zero->dtype == AF_DTYPE_I32)
        return (float)(bits_at((const int32_t *)c->zero->data + group, c->scale_cols, r * c->bits,
                               c->bits) -
                       (1 << (c->bits - 1)));
    return (float)af_load_f64(c->zero->data, c->zero->dtype,
                              (uint64_t)(r / c->block[0] * c->scale_cols + group));
}

static float code_of(const af_coded_weight *c, int64_t r, int64_t col)
{
    if (c->kind == AF_CODE_PLAIN)
        return (float)af_load_f64(c->codes->data, c->codes->dtype, (uint64_t)(r * c->cols + col));
    const int32_t *row = (const int32_t *)c->codes->data + r * af_weight_cols(c->codes);
    return (float)(bits_at(row, 1, col * c->bits, c->bits) - (1 << (c->bits - 1)));
}

/* Plain codes and words: scale and zero change every block. */
static void scaled_row(const af_coded_weight *c, int64_t r, float *out)
{
    const int32_t *order = c->order ? c->order->data : NULL;
    float scale = 0, zero = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < c->cols; i++) {
        const int64_t group = order ? order[i] : i / c->block[1];
        if (group != last) {
            scale = number_at(c->scale, r / c->block[0] * c->scale_cols + group);
            zero = zero_of(c, r, group);
            last = group;
        }
        out[i] = rounded((code_of(c, r, i) - zero) * scale, c->round);
    }
}

/* MLX multiplies and adds in the type of its scales. */
static void affine_row(const af_coded_weight *c, int64_t r, float *out)
{
    const int32_t *row = (const int32_t *)c->codes->data + r * af_weight_cols(c->codes);
    for (int64_t g = 0; g < c->scale_cols; g++) {
        const uint64_t at = (uint64_t)(r * c->scale_cols + g);
        const float scale = (float)af_load_f64(c->scale->data, c->scale->dtype, at);
        const float bias = (float)af_load_f64(c->zero->data, c->zero->dtype, at);
        for (int64_t i = g * c->block[1]; i < (g + 1) * c->block[1]; i++) {
            const float code = (float)bits_at(row, 1, i * c->bits, c->bits);
            out[i] = rounded(rounded(code * scale, c->round) + bias, c->round);
        }
    }
}

static float fp4_scale(const af_coded_weight *c, int64_t r, int64_t col)
{
    const float scale = number_at(c->scale, scale_index(c, r, col));
    if (!c->global)
        return scale;
    const float global = number_at(c->global, 0);
    return c->divide ? scale / global : scale * global;
}

static float fp4_at(const af_coded_weight *c, int64_t r, int64_t col, int64_t cols)
{
    const uint8_t byte = ((const uint8_t *)c->codes->data)[(r * cols + col) / 2];
    return e2m1[col % 2 ? byte >> 4 : byte & 15];
}

static void fp4_row(const af_coded_weight *c, int64_t r, int64_t cols, float *out)
{
    for (int64_t from = 0; from < cols; from += c->block[1]) {
        const float scale = fp4_scale(c, r, from);
        for (int64_t i = from; i < AF_MIN(from + c->block[1], cols); i++)
            out[i] = rounded(fp4_at(c, r, i, cols) * scale, c->round);
    }
}

void af_coded_weight_stored_rows(const af_coded_weight *c, int64_t from, int64_t n, float *out)
{
    assert(c->transposed);
    for (int64_t r = from; r < from + n; r++, out += c->dim[1])
        fp4_row(c, r, c->dim[1], out);
}

/* Row r of [X][in][out], where [X][out][in] is stored. */
static void fp4_column(const af_coded_weight *c, int64_t r, float *out)
{
    const int64_t in = c->dim[1], matrix = r / in, col = r % in;
    for (int64_t i = 0; i < c->cols; i++) {
        const int64_t row = matrix * c->cols + i;
        const float scale = number_at(c->scale, row * c->scale_cols + col / c->block[1]);
        out[i] = rounded(fp4_at(c, row, col, in) * scale, c->round);
    }
}

/* Zero of output `r` in group g; GPTQ adds to whole words, so that a field may carry. */
static int transposed_zero(const af_coded_weight *c, int64_t r, int64_t g)
{
    static const int awq[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int32_t *z = (const int32_t *)c->zero->data + g * af_weight_cols(c->zero);
    const int mask = (1 << c->bits) - 1;
    if (c->kind == AF_CODE_AWQ)
        return (int)((uint32_t)z[r / 8] >> (4 * awq[r % 8]) & 15);
    if (c->bits == 3)
        return (bits_at(z, 1, r * 3, 3) + c->zero_add) & mask;
    const int64_t per = 32 / c->bits;
    const uint32_t ones = UINT32_MAX / (uint32_t)mask; /* a one in every field */
    const uint32_t word = (uint32_t)z[r / per] + (uint32_t)c->zero_add * ones;
    return (int)(word >> (r % per * c->bits) & (uint32_t)mask);
}

/* GPTQ and AWQ store the matrix transposed: rows [from, from + n) of ours are columns there. */
static void transposed_rows(const af_coded_weight *c, int64_t from, int64_t n, float *out)
{
    static const int awq[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int32_t *order = c->order ? c->order->data : NULL, *q = c->codes->data;
    const int64_t words = af_weight_cols(c->codes);
    for (int64_t r = from; r < from + n; r++) {
        float *row = out + (r - from) * c->cols, scale = 0;
        int64_t last = -1;
        int zero = 0;
        for (int64_t i = 0; i < c->cols; i++) {
            const int64_t g = order ? order[i] : i / c->block[1];
            if (g != last) {
                scale = number_at(c->scale, g * c->rows + r);
                zero = transposed_zero(c, r, g);
                last = g;
            }
            const int code = c->kind == AF_CODE_AWQ
                                 ? (int)((uint32_t)q[i * words + r / 8] >> (4 * awq[r % 8]) & 15)
                                 : bits_at(q + r, words, i * c->bits, c->bits);
            row[i] = rounded((float)(code - zero) * scale, c->round);
        }
    }
}

/* Row r of BitNet's weights. */
static void ternary_row(const af_coded_weight *c, int64_t r, float *out)
{
    const int64_t quarter = c->rows / 4;
    const float scale = c->kind == AF_CODE_MEAN ? 1 / c->mean : number_at(c->scale, 0);
    for (int64_t i = 0; i < c->cols; i++)
        if (c->kind == AF_CODE_MEAN) {
            const uint64_t at = (uint64_t)(r * c->cols + i);
            const float x = rintf((float)af_load_f64(c->codes->data, c->codes->dtype, at) * scale);
            out[i] = rounded(fminf(fmaxf(x, -1), 1) / scale, c->round);
        } else {
            const uint8_t four = ((const uint8_t *)c->codes->data)[r % quarter * c->cols + i];
            out[i] = rounded((float)((four >> 2 * (r / quarter) & 3) - 1) * scale, c->round);
        }
}

void af_coded_weight_rows(const af_coded_weight *c, int64_t from, int64_t n, float *out)
{
    assert(from >= 0 && n >= 0 && from + n <= c->rows);
    if (c->kind == AF_CODE_BNB) {
        af_bnb_weight_decode(&c->bnb, from * c->cols, n * c->cols, out);
        return;
    }
    if (c->kind == AF_CODE_GPTQ || c->kind == AF_CODE_AWQ) {
        transposed_rows(c, from, n, out);
        return;
    }
    for (int64_t r = from; r < from + n; r++, out += c->cols)
        if (c->kind == AF_CODE_TERNARY || c->kind == AF_CODE_MEAN)
            ternary_row(c, r, out);
        else if (c->kind == AF_CODE_AFFINE)
            affine_row(c, r, out);
        else if (c->kind != AF_CODE_FP4)
            scaled_row(c, r, out);
        else if (c->transposed)
            fp4_column(c, r, out);
        else
            fp4_row(c, r, c->cols, out);
}

bool af_coded_weight_is_mxfp4(const af_coded_weight *c)
{
    return c->kind == AF_CODE_FP4 && c->block[1] == 32 && !c->global &&
           (c->scale->dtype == AF_DTYPE_U8 || c->scale->dtype == AF_DTYPE_E8M0);
}

void af_coded_weight_mxfp4_row(const af_coded_weight *c, int64_t r, uint8_t *out)
{
    const int64_t cols = c->transposed ? c->dim[1] : c->cols, blocks = cols / 32;
    const uint8_t *code = (const uint8_t *)c->codes->data + r * cols / 2;
    const uint8_t *scale = (const uint8_t *)c->scale->data + r * blocks;
    for (int64_t b = 0; b < blocks; b++, code += 16, out += 17) {
        out[0] = scale[b];
        for (int i = 0; i < 16; i++) { /* there 2j and 2j+1 share a byte, here j and j+16 */
            const uint8_t lo = code[i / 2], hi = code[8 + i / 2];
            const int shift = 4 * (i % 2);
            out[1 + i] = (uint8_t)((lo >> shift & 15) | (hi >> shift & 15) << 4);
        }
    }
}
