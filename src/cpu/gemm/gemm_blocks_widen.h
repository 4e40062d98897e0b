/* gemm_blocks_widen.h - rows of GGUF blocks whose codes are widened to f32 in registers: they meet
 * the activations as they are. */
#ifndef AF_GEMM_BLOCKS_WIDEN_H
#define AF_GEMM_BLOCKS_WIDEN_H

#include "cpu/gemm/gemm_blocks.h"

AF_INLINE uint64_t widen_work(int64_t values)
{
    return (uint64_t)(values / AF_BLOCK) * sizeof(float);
}

AF_INLINE void prepare_widen(af_block_x *out, const float *x, int64_t M, int64_t K, void *work)
{
    float *sums = work;
    assert(M <= AF_BLOCK_ROWS);
    for (int64_t k = 0; k < K / AF_BLOCK; k++)
        for (int64_t m = 0; m < M; m++, sums++) {
            *sums = 0;
            for (int i = 0; i < AF_BLOCK; i++)
                *sums += x[m * K + k * AF_BLOCK + i];
        }
    *out = (af_block_x){.x = x, .sums = work, .M = M, .K = K};
}

AF_INLINE vec mul16(const vec w[PER16], const float *x)
{
    vec s = w[0] * *(const vec *)x;
    for (int i = 1; i < PER16; i++)
        s += w[i] * *(const vec *)(x + i * VL);
    return s;
}

AF_INLINE void widen_row(const af_block_x *x, af_dtype type, int64_t M, const uint8_t *w,
                         float *out, int64_t ldo)
{
    const int groups = af_groups(type), bytes = (int)af_dtype_get(type)->bytes;
    const int64_t blocks = x->K / AF_BLOCK;
    vec total[AF_BLOCK_ROWS] = {0};
    float rest[AF_BLOCK_ROWS] = {0};
    for (int64_t k = 0; k < blocks; w += bytes) {
        float d[16], o[8];
        af_scales(type, w, d, o);
        for (int j = 0; j < groups; j++, k++) {
            af_i8v q, r;
            vec lo[PER16], hi[PER16];
            af_codes(type, w, j, &q, &r);
            af_widen16(q, lo);
            af_widen16(r, hi);
            for (int64_t m = 0; m < M; m++) {
                const float *a = x->x + m * x->K + k * AF_BLOCK;
                if (af_by_16(type))
                    total[m] += mul16(lo, a) * d[2 * j] + mul16(hi, a + 16) * d[2 * j + 1];
                else
                    total[m] += (mul16(lo, a) + mul16(hi, a + 16)) * d[2 * j];
                if (af_has_offset(type))
                    rest[m] += o[j] * x->sums[k * M + m];
            }
        }
    }
    for (int64_t m = 0; m < M; m++)
        out[m * ldo] = af_lanes(total[m]) + rest[m];
}

/* The type and the single row are constants of the loops. */
AF_INLINE void widen_all(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                         float *out, int64_t ldo)
{
    const int64_t bytes = x->K / (AF_BLOCK * af_groups(type)) * (int64_t)af_dtype_get(type)->bytes;
    if (x->M == 1)
        for (int64_t n = 0; n < rows; n++)
            widen_row(x, type, 1, w + n * bytes, out + n, ldo);
    else
        for (int64_t n = 0; n < rows; n++)
            widen_row(x, type, x->M, w + n * bytes, out + n, ldo);
}

/* out [M] rows of ldo: dot products with the stored rows w, w + a row, ... */
static inline void widen_rows(const af_block_x *x, af_dtype type, const uint8_t *w, int64_t rows,
                              float *out, int64_t ldo)
{
#define WIDEN(T)                                                                                   \
    case T:                                                                                        \
        widen_all(x, T, w, rows, out, ldo);                                                        \
        return
    switch (type) {
        WIDEN(AF_DTYPE_Q8_0);
        WIDEN(AF_DTYPE_Q4_0);
        WIDEN(AF_DTYPE_Q4_1);
        WIDEN(AF_DTYPE_Q5_0);
        WIDEN(AF_DTYPE_Q5_1);
        WIDEN(AF_DTYPE_Q3_K);
        WIDEN(AF_DTYPE_Q4_K);
        WIDEN(AF_DTYPE_Q5_K);
        WIDEN(AF_DTYPE_Q6_K);
        WIDEN(AF_DTYPE_IQ4_NL);
        WIDEN(AF_DTYPE_IQ4_XS);
    default:
        assert(!"a type af_block_serves refused");
    }
#undef WIDEN
}

#endif
