/* fast_tile.c - the tile of bf16 products, on machines that have a matrix instruction for it:
 * BFMMLA of Armv8.6, or the tile registers of AMX. f32 sums. */
#include "ops/fast/isa.h"

#if defined(AF_ISA_neonbf16)
#include <arm_neon.h>

void AF_ISA_NAME(af_tile_begin)(void) {}
void AF_ISA_NAME(af_tile_end)(void) {}

/* Row pair i and column pair j of the sums is s[6*i+j]: {row 0, row 0, row 1, row 1}. */
void AF_ISA_NAME(af_tile_bf16)(int64_t kc, const uint16_t *restrict a, const uint16_t *restrict b,
                               float *restrict t)
{
    float32x4_t s[24];
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        s[i] = vdupq_n_f32(0);
    for (int64_t k = 0; k < kc; k += 4, a += 32, b += 48) {
        const bfloat16x8_t p = vreinterpretq_bf16_u16(vld1q_u16(a)),
                           q = vreinterpretq_bf16_u16(vld1q_u16(a + 8)),
                           r = vreinterpretq_bf16_u16(vld1q_u16(a + 16)),
                           u = vreinterpretq_bf16_u16(vld1q_u16(a + 24));
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            const bfloat16x8_t y = vreinterpretq_bf16_u16(vld1q_u16(b + 8 * j));
            s[j] = vbfmmlaq_f32(s[j], p, y);
            s[6 + j] = vbfmmlaq_f32(s[6 + j], q, y);
            s[12 + j] = vbfmmlaq_f32(s[12 + j], r, y);
            s[18 + j] = vbfmmlaq_f32(s[18 + j], u, y);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            vst1_f32(t + 2 * i * BN + 2 * j, vget_low_f32(s[6 * i + j]));
            vst1_f32(t + (2 * i + 1) * BN + 2 * j, vget_high_f32(s[6 * i + j]));
        }
}

#elif defined(AF_ISA_amx)
#include <immintrin.h>

/* Eight tiles of 16 rows of 64 bytes: 0-3 the sums, 4 and 5 rows of A, 6 and 7 columns of B. */
void AF_ISA_NAME(af_tile_begin)(void)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } c = {.palette = 1};
    _Static_assert(sizeof c == 64, "the tile configuration is 64 bytes");
    for (int i = 0; i < 8; i++) {
        c.row_bytes[i] = 64;
        c.rows[i] = 16;
    }
    _tile_loadconfig(&c);
}

void AF_ISA_NAME(af_tile_end)(void) { _tile_release(); }

void AF_ISA_NAME(af_tile_bf16)(int64_t kc, const uint16_t *restrict a, const uint16_t *restrict b,
                               float *restrict t)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < kc; k += BK, a += BK * BM, b += BK * BN) {
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, BN * 4);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 32, BN * 4);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + 16 * BK, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, t, BN * 4);
    _tile_stored(1, t + 16, BN * 4);
    _tile_stored(2, t + 16 * BN, BN * 4);
    _tile_stored(3, t + 16 * BN + 16, BN * 4);
}
#else
typedef int af_no_bf16_tile; /* a file must declare something */
#endif
