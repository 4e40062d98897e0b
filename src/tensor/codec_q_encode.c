/* codec_q_encode.c - encoders of the plain block types (32 elements, one scale). */
#include "tensor/codec_block.h"
#include "tensor/codec_search.h"

enum { BLOCK = 32, QUADS = BLOCK / 4 };

/* Codes of 4 bits: element i in the low, i+16 in the high half of byte i. */
static inline void put_nibbles(uint8_t *dst, af_bytes first, af_bytes second)
{
    const af_bytes pair = (first & 15) | second << 4;
    memcpy(dst, &pair, sizeof pair);
}

/* The fifth bits, as a little-endian word. */
static inline void put_high(uint8_t *dst, af_bytes first, af_bytes second)
{
    const uint32_t h = af_bytes_fifth(first) | (uint32_t)af_bytes_fifth(second) << 16;
    memcpy(dst, &h, sizeof h);
}

/* How one type puts scale and min, both as halves, and codes. */
typedef void put_fn(uint8_t *dst, uint16_t d, uint16_t m, const af_bytes code[2]);

static inline void put_half(uint8_t *dst, uint16_t x) { memcpy(dst, &x, sizeof x); }

static inline __attribute__((always_inline)) void q4_0_put(uint8_t *dst, uint16_t d, uint16_t m,
                                                           const af_bytes code[2])
{
    (void)m;
    put_half(dst, d);
    put_nibbles(dst + 2, code[0], code[1]);
}

static inline __attribute__((always_inline)) void q5_0_put(uint8_t *dst, uint16_t d, uint16_t m,
                                                           const af_bytes code[2])
{
    (void)m;
    put_half(dst, d);
    put_high(dst + 2, code[0], code[1]);
    put_nibbles(dst + 6, code[0], code[1]);
}

static inline __attribute__((always_inline)) void q4_1_put(uint8_t *dst, uint16_t d, uint16_t m,
                                                           const af_bytes code[2])
{
    put_half(dst, d);
    put_half(dst + 2, m);
    put_nibbles(dst + 4, code[0], code[1]);
}

static inline __attribute__((always_inline)) void q5_1_put(uint8_t *dst, uint16_t d, uint16_t m,
                                                           const af_bytes code[2])
{
    put_half(dst, d);
    put_half(dst + 2, m);
    put_high(dst + 4, code[0], code[1]);
    put_nibbles(dst + 8, code[0], code[1]);
}

static inline void halves(uint16_t to[4], af_quad from)
{
    for (int k = 0; k < 4; k++)
        to[k] = af_f16_down(from[k]);
}

/* Least and largest of four blocks, each in a lane: the maxima inside a block are taken for all
 * four at once, and so are the divisions that follow. */
static inline void ranges(const float *const x[4], af_quad *min, af_quad *max)
{
    af_quad lo[4], hi[4];
    for (int b = 0; b < 4; b++) {
        lo[b] = hi[b] = af_quad_at(x[b]);
        for (int k = 1; k < QUADS; k++) {
            const af_quad v = af_quad_at(x[b] + 4 * k);
            lo[b] = af_quad_min(v, lo[b]);
            hi[b] = af_quad_max(v, hi[b]);
        }
    }
    af_quad_transpose(lo);
    af_quad_transpose(hi);
    *min = af_quad_min(af_quad_min(lo[0], lo[1]), af_quad_min(lo[2], lo[3]));
    *max = af_quad_max(af_quad_max(hi[0], hi[1]), af_quad_max(hi[2], hi[3]));
}

/* The value of magnitude amax, with its sign; the first of equals; of zeros the positive one. */
static float first_of(const float *x, float amax)
{
    for (int i = 0; i < BLOCK && amax != 0; i++)
        if (fabsf(x[i]) == amax)
            return x[i];
    return 0;
}

/* The first zero, with its sign. */
static float first_zero(const float *x)
{
    int i = 0;
    while (i < BLOCK - 1 && x[i] != 0)
        i++;
    return x[i];
}

static inline af_quad inverse_of(af_quad d) { return (af_quad)((af_iquad)(1.0f / d) & (d != 0)); }

/* Without importance: the largest value gets the code 0, the scale follows. */
static inline __attribute__((always_inline)) void
round_signed(const float *x, uint8_t *dst, int64_t count, float half, int bytes, put_fn *put)
{
    const float *at[4];
    af_quad min, max, big;
    for (int b = 0; b < 4; b++)
        at[b] = x + AF_MIN(b, count - 1) * BLOCK;
    ranges(at, &min, &max);
    const af_iquad up = max > -min;
    big = (af_quad)((up & (af_iquad)max) | (~up & (af_iquad)min));
    for (int b = 0; b < 4; b++)
        if (max[b] == -min[b])
            big[b] = first_of(at[b], max[b]);
    uint16_t d16[4];
    const af_quad d = big / -half, id = inverse_of(d);
    halves(d16, d);
    for (int b = 0; b < count; b++, dst += bytes) {
        af_iquad code[QUADS];
        for (int k = 0; k < QUADS; k++)
            code[k] = __builtin_convertvector(
                af_quad_clamp(af_quad_at(at[b] + 4 * k) * id[b] + (half + 0.5f), 0, 2 * half - 1),
                af_iquad);
        put(dst, d16[b], 0, (af_bytes[2]){af_bytes_of(code), af_bytes_of(code + 4)});
    }
}

static inline __attribute__((always_inline)) void
round_affine(const float *x, uint8_t *dst, int64_t count, float top, int bytes, put_fn *put)
{
    const float *at[4];
    af_quad min, max;
    for (int b = 0; b < 4; b++)
        at[b] = x + AF_MIN(b, count - 1) * BLOCK;
    ranges(at, &min, &max);
    for (int b = 0; b < 4; b++) /* which zero a vector takes for the least is not defined */
        if (min[b] == 0) {
            min[b] = first_zero(at[b]);
            max[b] = max[b] == 0 ? min[b] : max[b];
        }
    uint16_t d16[4], min16[4];
    const af_quad d = (max - min) / top, id = inverse_of(d);
    halves(d16, d);
    halves(min16, min);
    for (int b = 0; b < count; b++, dst += bytes) {
        af_iquad code[QUADS];
        for (int k = 0; k < QUADS; k++)
            code[k] = __builtin_convertvector(
                af_quad_clamp((af_quad_at(at[b] + 4 * k) - min[b]) * id[b] + 0.5f, 0, top),
                af_iquad);
        put(dst, d16[b], min16[b], (af_bytes[2]){af_bytes_of(code), af_bytes_of(code + 4)});
    }
}

static float mean_square(const float *x, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum / (float)n;
}

/* w, the importance, times sqrt(mean square of the row + x*x). */
static inline af_vec weigh(af_vec w, af_vec x, float sigma2)
{
    return w * af_vec_sqrt(sigma2 + x * x);
}

/* `count` blocks of values, and what their errors weigh. */
static inline void load_weighed(af_wide v[BLOCK], af_wide w[BLOCK], const float *x,
                                const float *importance, int64_t count, float sigma2)
{
    af_wide_load(v, x, BLOCK, count);
    af_wide_load(w, importance, BLOCK, count);
    for (int i = 0; i < BLOCK; i++)
        for (int p = 0; p < 2; p++)
            w[i].v[p] = weigh(w[i].v[p], v[i].v[p], sigma2);
}

static inline void encode_signed(const float *x, uint8_t *dst, int64_t n, const float *importance,
                                 float half, int bytes, put_fn *put)
{
    const int64_t blocks = n / BLOCK;
    if (!importance) {
        for (int64_t b = 0; b < blocks; b += 4)
            round_signed(x + b * BLOCK, dst + b * bytes, AF_MIN(4, blocks - b), half, bytes, put);
        return;
    }
    af_wide v[BLOCK], w[BLOCK];
    float scale[AF_WIDE], iscale[AF_WIDE];
    af_bytes code[2];
    const float sigma2 = mean_square(x, n);
    for (int64_t b = 0; b < blocks; b += AF_WIDE) {
        const int64_t count = AF_MIN(AF_WIDE, blocks - b);
        load_weighed(v, w, x + b * BLOCK, importance + b * BLOCK, count, sigma2);
        af_search_signed(BLOCK, half, v, w, scale, iscale);
        for (int k = 0; k < count; k++, dst += bytes) {
            for (int i = 0; i < BLOCK; i++) {
                const float l = af_nearest(iscale[k] * x[(b + k) * BLOCK + i]);
                code[i / 16][i % 16] =
                    iscale[k] != 0 ? (uint8_t)(af_clamp(l, -half, half - 1) + half) : 0;
            }
            put(dst, af_f16_down(scale[k]), 0, code);
        }
    }
}

static inline void encode_affine(const float *x, uint8_t *dst, int64_t n, const float *importance,
                                 float top, int bytes, put_fn *put)
{
    static const af_affine_plan plan = {-0.9f, 0.05f, 36, false};
    const int64_t blocks = n / BLOCK;
    if (!importance) {
        for (int64_t b = 0; b < blocks; b += 4)
            round_affine(x + b * BLOCK, dst + b * bytes, AF_MIN(4, blocks - b), top, bytes, put);
        return;
    }
    af_wide v[BLOCK], w[BLOCK];
    af_bytes code[2];
    af_affine found;
    const float sigma2 = mean_square(x, n);
    for (int64_t b = 0; b < blocks; b += AF_WIDE) {
        const int64_t count = AF_MIN(AF_WIDE, blocks - b);
        load_weighed(v, w, x + b * BLOCK, importance + b * BLOCK, count, sigma2);
        af_search_affine(BLOCK, top, 1, v, w, &found, &plan);
        for (int k = 0; k < count; k++, dst += bytes) {
            for (int i = 0; i < BLOCK; i++) {
                const float up = x[(b + k) * BLOCK + i] - found.from[k];
                code[i / 16][i % 16] = (uint8_t)af_clamp(af_nearest(found.iscale[k] * up), 0, top);
            }
            put(dst, af_f16_down(found.scale[k]), af_f16_down(-found.min[k]), code);
        }
    }
}

void af_q4_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_signed(x, dst, n, importance, 8, 18, q4_0_put);
}

void af_q5_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_signed(x, dst, n, importance, 16, 22, q5_0_put);
}

void af_q4_1_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_affine(x, dst, n, importance, 15, 20, q4_1_put);
}

void af_q5_1_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    encode_affine(x, dst, n, importance, 31, 24, q5_1_put);
}

static inline void q8_0_put(uint8_t *dst, const float *x, uint16_t d, float id)
{
    af_iquad code[QUADS];
    for (int k = 0; k < QUADS; k++)
        code[k] = af_quad_away(af_quad_clamp(af_quad_at(x + 4 * k) * id, -127, 127));
    put_half(dst, d);
    const af_bytes all[2] = {af_bytes_of(code), af_bytes_of(code + 4)};
    memcpy(dst + 2, all, sizeof all);
}

void af_q8_0_encode(const float *x, uint8_t *dst, int64_t n, const float *importance)
{
    (void)importance; /* one scale from the largest value, with or without */
    const int64_t blocks = n / BLOCK;
    for (int64_t b = 0; b < blocks; b += 4) {
        const int64_t count = AF_MIN(4, blocks - b);
        const float *at[4];
        af_quad min, max;
        for (int k = 0; k < 4; k++)
            at[k] = x + (b + AF_MIN(k, count - 1)) * BLOCK;
        ranges(at, &min, &max);
        const af_quad amax = af_quad_max(max, -min);
        const af_quad d = (af_quad)((af_iquad)amax & INT32_MAX) / 127.0f, id = inverse_of(d);
        uint16_t d16[4];
        halves(d16, d);
        for (int k = 0; k < count; k++)
            q8_0_put(dst + (b + k) * 34, at[k], d16[k], id[k]);
    }
}
