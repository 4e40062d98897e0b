/* codec_bnb.c - see codec_bnb.h. */
#include "tensor/codec_bnb.h"

#include "tensor/codec_vec.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>

static const float nf4_table[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

static const float fp4_table[16] = {
    0.0f, 0x1.555556p-8f,  0x1.555556p-1f,  1.0f,  0x1.555556p-2f,  0.5f,  0x1.555556p-3f,  0.25f,
    0.0f, -0x1.555556p-8f, -0x1.555556p-1f, -1.0f, -0x1.555556p-2f, -0.5f, -0x1.555556p-3f, -0.25f,
};

/* The literals of the kernels; four of them lie between two floats, and the f suffix rounds them
 * as the kernels' compiler did (through double they would come out one bit off). */
static const float nf4_threshold[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f,
};
static const float fp4_threshold[7] = {0x1.555572p-9f, 0x1.6p-4f,      0x1.aaaaaap-3f,
                                       0x1.2aaaaap-2f, 0x1.aaaaacp-2f, 0x1.2aaaap-1f,
                                       0x1.aaaaaap-1f};

const float *af_bnb_table(af_dtype type)
{
    assert(type == AF_DTYPE_NF4 || type == AF_DTYPE_FP4);
    return type == AF_DTYPE_NF4 ? nf4_table : fp4_table;
}

/* The kernels flush subnormals; a zero keeps its sign, as in hardware. */
static inline float flush(float x) { return fabsf(x) < FLT_MIN ? copysignf(0.0f, x) : x; }

/* Codes of n normalised values: how many thresholds each one is above. */
static void nf4_codes(uint8_t *code, const float *x, int n, float inverse)
{
    for (int i = 0; i < n; i++) {
        const float y = flush(flush(x[i]) * inverse);
        int c = 0;
        for (int t = 0; t < 15; t++)
            c += y > nf4_threshold[t];
        code[i] = (uint8_t)c;
    }
}

/* The rank 0 .. 7 of |y| becomes the code by swapping 2,3 with 6,7. */
static void fp4_codes(uint8_t *code, const float *x, int n, float inverse)
{
    for (int i = 0; i < n; i++) {
        const float y = flush(flush(x[i]) * inverse), a = fabsf(y);
        int r = 0;
        for (int t = 0; t < 7; t++)
            r += a > fp4_threshold[t];
        code[i] = (uint8_t)((r ^ (r & 2) << 1) + (y < 0 ? 8 : 0));
    }
}

enum { CHUNK = 64 }; /* codes made at a time */

/* Puts codes of elements [from, from+n) into place; bytes may be shared with other blocks. */
static void put_codes(uint8_t *codes, int64_t from, const uint8_t *code, int n)
{
    int i = 0;
    if (from & 1) {
        codes[from / 2] = (uint8_t)((codes[from / 2] & 0xf0) | code[0]);
        i = 1;
    }
    uint8_t *out = codes + (from + i) / 2;
    for (; i + 1 < n; i += 2)
        *out++ = (uint8_t)(code[i] << 4 | code[i + 1]);
    if (i < n)
        *out = (uint8_t)(code[i] << 4);
}

void af_bnb_encode(af_dtype type, const float *x, int64_t n, int64_t block, uint8_t *codes,
                   float *absmax)
{
    assert(block > 0 && (type == AF_DTYPE_NF4 || type == AF_DTYPE_FP4));
    for (int64_t b = 0; b < af_bnb_blocks(n, block); b++) {
        const int64_t end = AF_MIN(n, (b + 1) * block);
        absmax[b] = flush(af_amax(x + b * block, end - b * block));
        const float inverse = flush(1.0f / absmax[b]);
        for (int64_t i = b * block; i < end; i += CHUNK) {
            uint8_t code[CHUNK];
            const int k = (int)AF_MIN(CHUNK, end - i);
            if (type == AF_DTYPE_NF4)
                nf4_codes(code, x + i, k, inverse);
            else
                fp4_codes(code, x + i, k, inverse);
            put_codes(codes, i, code, k);
        }
    }
    if (n & 1) /* the missing half is the code of zero */
        codes[n / 2] = (uint8_t)((codes[n / 2] & 0xf0) | (type == AF_DTYPE_NF4 ? 7 : 0));
}

static void look_up_f32(float *dst, const uint8_t *codes, int64_t from, int64_t to, const float *t)
{
    if (from < to && from & 1)
        *dst++ = t[codes[from++ / 2] & 15];
    const uint8_t *c = codes + from / 2;
    const int64_t pairs = (to - from) / 2;
    for (int64_t i = 0; i < pairs; i++) {
        dst[2 * i] = t[c[i] >> 4];
        dst[2 * i + 1] = t[c[i] & 15];
    }
    if ((to - from) & 1)
        dst[2 * pairs] = t[c[pairs] >> 4];
}

static void look_up_u16(uint16_t *dst, const uint8_t *codes, int64_t from, int64_t to,
                        const uint16_t *t)
{
    if (from < to && from & 1)
        *dst++ = t[codes[from++ / 2] & 15];
    const uint8_t *c = codes + from / 2;
    const int64_t pairs = (to - from) / 2;
    for (int64_t i = 0; i < pairs; i++) {
        dst[2 * i] = t[c[i] >> 4];
        dst[2 * i + 1] = t[c[i] & 15];
    }
    if ((to - from) & 1)
        dst[2 * pairs] = t[c[pairs] >> 4];
}

/* A block has only sixteen values: they are scaled and rounded once, then looked up. */
void af_bnb_decode(af_dtype type, const float *table, const uint8_t *codes, const float *absmax,
                   int64_t block, int64_t from, int64_t to, void *dst, af_dtype dst_type)
{
    const bool wide = dst_type == AF_DTYPE_F32;
    assert(block > 0 && (wide || dst_type == AF_DTYPE_BF16 || dst_type == AF_DTYPE_F16));
    table = table ? table : af_bnb_table(type);
    for (int64_t at = from; at < to;) {
        const int64_t b = at / block, end = AF_MIN(to, (b + 1) * block);
        float value[16];
        uint16_t half[16];
        for (int i = 0; i < 16; i++)
            value[i] = flush(table[i] * absmax[b]);
        if (wide) {
            look_up_f32((float *)dst + (at - from), codes, at, end, value);
        } else {
            for (int i = 0; i < 16 && dst_type == AF_DTYPE_BF16; i++)
                half[i] = af_bf16_down(value[i]);
            for (int i = 0; i < 16 && dst_type == AF_DTYPE_F16; i++)
                half[i] = af_f16_down(value[i]);
            look_up_u16((uint16_t *)dst + (at - from), codes, at, end, half);
        }
        at = end;
    }
}

float af_bnb_offset(const float *absmax, int64_t blocks)
{
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++)
        sum += absmax[i];
    return blocks ? (float)(sum / (double)blocks) : 0;
}

/* The kernel's search: seven halvings from the middle, then the midpoint with the neighbour on the
 * side it came from. NaN (a zero block) fails every test and gives 0. */
static uint8_t nearest(const float *map, float x)
{
    int pivot = 127, up = 255, low = 0;
    for (int step = 64; step > 0; step >>= 1) {
        const bool more = x > map[pivot];
        low = more ? pivot : low;
        up = more ? up : pivot;
        pivot += more ? step : -step;
    }
    const float value = map[pivot];
    if (x > value)
        return (uint8_t)(x > (map[up] + value) * 0.5f ? up : pivot);
    return (uint8_t)(x < (map[low] + value) * 0.5f ? low : pivot);
}

void af_bnb8_encode(const float *map, const float *x, int64_t n, int64_t block, uint8_t *q,
                    float *absmax)
{
    for (int64_t b = 0; b < af_bnb_blocks(n, block); b++) {
        const int64_t end = AF_MIN(n, (b + 1) * block);
        const float max = af_amax(x + b * block, end - b * block);
        absmax[b] = max;
        const float inverse = 1.0f / max;
        for (int64_t i = b * block; i < end; i++)
            q[i] = nearest(map, x[i] * inverse);
    }
}

void af_bnb8_decode(const float *map, const uint8_t *q, const float *absmax, int64_t block,
                    int64_t from, int64_t to, float *dst)
{
    for (int64_t at = from; at < to;) {
        const int64_t b = at / block, end = AF_MIN(to, (b + 1) * block);
        for (; at < end; at++)
            dst[at - from] = map[q[at]] * absmax[b];
    }
}

void af_bnb_nest(const float *absmax, int64_t blocks, float offset, uint8_t *q, float *nested)
{
    float part[AF_BNB_NESTED_BLOCK];
    for (int64_t b = 0; b < blocks; b += AF_BNB_NESTED_BLOCK) {
        const int64_t n = AF_MIN(AF_BNB_NESTED_BLOCK, blocks - b);
        for (int64_t i = 0; i < n; i++)
            part[i] = absmax[b + i] - offset;
        af_bnb8_encode(af_bnb_map(true), part, n, AF_BNB_NESTED_BLOCK, q + b,
                       nested + b / AF_BNB_NESTED_BLOCK);
    }
}

void af_bnb_unnest(const float *map, const uint8_t *q, const float *nested, float offset,
                   int64_t nested_block, int64_t from, int64_t to, float *absmax)
{
    af_bnb8_decode(map ? map : af_bnb_map(true), q, nested, nested_block, from, to, absmax);
    for (int64_t i = 0; i < to - from; i++)
        absmax[i] += offset;
}

float af_int8_encode_row(const float *x, int64_t n, int8_t *q)
{
    float scb = 0;
    for (int64_t i = 0; i < n; i++) {
        const float a = fabsf(af_f16_up(af_f16_down(x[i])));
        scb = a > scb ? a : scb;
    }
    const float scale = (1.0f / scb) * 127.0f;
    for (int64_t i = 0; i < n; i++) {
        const float y = af_f16_up(af_f16_down(x[i])) * scale;
        const float r = (y + 0x1.8p23f) - 0x1.8p23f; /* nearest, ties to even */
        q[i] = (int8_t)(r > 127 ? 127 : r >= -127 ? r : r < -127 ? -127 : 0);
    }
    return scb;
}

void af_int8_decode_row(const int8_t *q, float scb, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)q[i] * scb * (1.0f / 127.0f); /* in bitsandbytes' order */
}
