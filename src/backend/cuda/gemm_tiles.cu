/* gemm_tiles.cu - GEMM without a library, where rows start on 16 bytes:
 * c = alpha op(a) op(b) + beta c + bias, the arguments of gemm_mma (gemm.cu).
 *
 * Built with AF_T (bf16 or half operands) and AF_C (result). A block of 8 warps makes 128 x 128 of
 * c; 32 of the inner dimension at a time pass through four stages of shared memory in the order
 * they have in device memory, and fragments are loaded straight or transposed. blockIdx.z is the
 * batch. Sums are f32 and in a fixed order. Dynamic shared memory: 4 * 2 * 10240 bytes. */
// variants: AF_T=bf16 AF_C=bf16,float | AF_T=half AF_C=half,float
// common: AF_T=bf16 AF_C=bf16,float
#include "dev.cuh"

#ifndef AF_C
#define AF_C float
#endif
#define TILE       128
#define INNER      32
#define STAGES     4
#define ROW_PITCH  (INNER + 8)        /* values; [128][32], inner along the row */
#define FLIP_PITCH (TILE + 8)         /* [32][128], inner along the rows */
#define OPERAND    (TILE * ROW_PITCH) /* values, for either form */

DEV void mma_step(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16 *) { mma(d, a, b0, b1); }
DEV void mma_step(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1, half *)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* Never launched with floats; there so that the file builds without defines. */
DEV void mma_step(float (&)[4], const u32 (&)[4], u32, u32, float *) {}

/* 128 outer by 32 inner values of an operand; `flip`: the outer dimension runs along memory's rows.
 * Zeros after the ends. */
DEV void fetch(AF_T *tile, const AF_T *x, i64 ld, i64 outer0, i64 k0, i64 outers, i64 K, int flip)
{
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int at = i * 256 + threadIdx.x;
        const int r = flip ? at / 16 : at / 4, c = flip ? at % 16 * 8 : at % 4 * 8;
        const i64 row = (flip ? k0 : outer0) + r, col = (flip ? outer0 : k0) + c;
        const i64 left = row < (flip ? K : outers) ? (flip ? outers : K) - col : 0;
        const int bytes = left >= 8 ? 16 : left > 0 ? (int)left * 2 : 0;
        copy16(smem_at(tile + r * (flip ? FLIP_PITCH : ROW_PITCH) + c),
               bytes ? x + row * ld + col : x, bytes);
    }
}
/* The 16 x 16 fragment at (outer, k) as four 8 x 8 matrices: outer and outer + 8 of k, then of k
 * + 8. */
DEV void fragment(u32 (&f)[4], const AF_T *tile, int outer, int k, int flip)
{
    const int lane = threadIdx.x % 32;
    if (flip)
        ldmatrix4_trans(f, smem_at(tile + (k + lane / 16 * 8 + lane % 8) * FLIP_PITCH + outer +
                                   lane / 8 % 2 * 8));
    else
        ldmatrix4(f, smem_at(tile + (outer + lane % 16) * ROW_PITCH + k + lane / 16 * 8));
}

extern "C" __global__ void __launch_bounds__(256)
    gemm_tiles(AF_C *c, long long ldc, long long sc, const AF_T *a, long long lda, long long sa,
               const AF_T *b, long long ldb, long long sb, const AF_C *bias, long long M,
               long long N, long long K, int ta, int tb, float alpha, float beta)
{
    extern __shared__ __align__(16) u8 raw[];
    AF_T *smem = (AF_T *)raw;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = lane / 4,
              pair = lane % 4 * 2;
    const int wm = warp / 4 * 64, wn = warp % 4 * 32;
    const i64 r0 = (i64)blockIdx.y * TILE, n0 = (i64)blockIdx.x * TILE;
    const i64 steps = (K + INNER - 1) / INNER;
    float sum[4][4][4] = {};
    a += blockIdx.z * sa;
    b += blockIdx.z * sb;
    c += blockIdx.z * sc;
    auto load_stage = [&](i64 step) {
        AF_T *to = smem + step % STAGES * 2 * OPERAND;
        if (step < steps) {
            fetch(to, a, lda, r0, step * INNER, M, K, ta);
            fetch(to + OPERAND, b, ldb, n0, step * INNER, N, K, !tb);
        }
        copy_commit();
    };
    for (int s = 0; s < STAGES - 1; s++)
        load_stage(s);
    for (i64 step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load_stage(step + STAGES - 1);
        const AF_T *as = smem + step % STAGES * 2 * OPERAND, *bs = as + OPERAND;
#pragma unroll
        for (int k = 0; k < INNER; k += 16) {
            u32 fa[4][4], fb[2][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                fragment(fa[i], as, wm + i * 16, k, ta);
#pragma unroll
            for (int j = 0; j < 2; j++)
                fragment(fb[j], bs, wn + j * 16, k, !tb);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma_step(sum[i][j], fa[i], fb[j / 2][j % 2], fb[j / 2][j % 2 + 2], (AF_T *)0);
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const i64 r = r0 + wm + i * 16 + group + q / 2 * 8,
                          n = n0 + wn + j * 8 + pair + q % 2;
                if (r < M && n < N) {
                    float v = sum[i][j][q] * alpha;
                    v += beta != 0.0f ? beta * load(c + r * ldc + n) : 0.0f;
                    v += bias ? load(bias + n) : 0.0f;
                    store(c + r * ldc + n, v);
                }
            }
}
