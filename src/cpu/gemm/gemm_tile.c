/* gemm_tile.c - the f32 register tile, in vectors of any width. NEON has its own (neon_tile.c). */
#include "cpu/gemm/gemm_job.h"

/* c [MR][NR] (+)= a [kc][MR] b [kc][NR] */
static void tile_f32(int64_t kc, const void *pa, const void *pb, float *c, int64_t ldc,
                     af_tile_mode mode, const af_tile_bf16 *rounded)
{
    (void)rounded;
    const float *restrict a = pa, *restrict b = pb;
    vec s[MR][NV];
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            s[i][j] = mode == AF_TILE_CONTINUE ? *(const vec *)(c + i * ldc + j * VL) : (vec){0};
    for (int64_t k = 0; k < kc; k++, a += MR, b += NR) {
        vec x[NV];
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++)
            x[j] = *(const vec *)(b + j * VL);
#pragma GCC unroll 16
        for (int i = 0; i < MR; i++) {
            const vec y = af_pin(a[i] - (vec){0});
#pragma GCC unroll 3
            for (int j = 0; j < NV; j++)
                s[i][j] += x[j] * y;
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 3
        for (int j = 0; j < NV; j++) {
            vec *at = (vec *)(c + i * ldc + j * VL);
            if (mode == AF_TILE_ADD)
                s[i][j] += *at;
            *at = s[i][j];
        }
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_f32) = {
    .mr = MR, .nr = NR, .kr = KR, .pack = AF_ISA_NAME(af_pack_f32), .tile = tile_f32};
