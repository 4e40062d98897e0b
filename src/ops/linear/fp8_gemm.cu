/* fp8_gemm.cu - products of e4m3 rows on GPUs without wgmma (sm_89, sm_120):
 * c = sx sw (x w') + x2 w2' + bias. Contract: fp8_linear.h.
 *
 * x [M][K] and w [N][K] are codes with a scale per row; x2 [M][K2], w2 [N][K2] and bias are bf16.
 * A block of 4 warps makes 128 x 128 of c, 64 x 64 each; 64 codes
 * of the inner dimension pass through four stages of shared memory. Two codes lie where a bf16
 * would, so that fragments are loaded as those of 16-bit matrices. The accumulators of FP8 units
 * are short: every product of 32 codes is added to f32 sums. Their order is fixed.
 * Dynamic shared memory: 4 * 2 * 10240 bytes. On older architectures the kernel is empty. */
// variants: AF_T=bf16
// common: AF_T=bf16
#include "fp8_codes.cuh"

#define TILE    128
#define INNER   64 /* bytes of a row in a stage */
#define STAGES  4
#define PITCH   80 /* bytes */
#define OPERAND (TILE * PITCH)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
DEV void mma_e4m3(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#pragma unroll
    for (int i = 0; i < 4; i++)
        sum[i] += d[i];
}

/* Rows [row0, ...) of an operand, `bytes` long: 128 rows of a stage, 16 bytes a thread and row. */
DEV void fetch(u8 *tile, const u8 *x, i64 pitch, i64 row0, i64 rows, i64 from, i64 bytes)
{
    const int t = threadIdx.x, col = t % 4 * 16;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int r = t / 4 + i * 32;
        const i64 left = row0 + r < rows ? bytes - from - col : 0;
        const int n = left >= 16 ? 16 : left > 0 ? (int)left : 0;
        copy16(smem_at(tile + r * PITCH + col), n ? x + (row0 + r) * pitch + from + col : x, n);
    }
}
/* 16 rows x 32 bytes as four 8 x 16-byte matrices. */
DEV void fragment(u32 (&f)[4], const u8 *tile, int outer, int k)
{
    const int lane = threadIdx.x % 32;
    ldmatrix4(f, smem_at(tile + (outer + lane % 16) * PITCH + k + lane / 16 * 16));
}

struct product {
    const u8 *x, *w;
    i64 ldx, ldw; /* bytes */
    i64 bytes;    /* of a row */
};

/* sum += the product of two matrices whose rows run along the inner dimension. */
template <bool CODES>
DEV void multiply(float (&sum)[4][8][4], u8 *smem, const product &p, i64 r0, i64 M, i64 n0, i64 N)
{
    const int warp = threadIdx.x / 32, wm = warp / 2 * 64, wn = warp % 2 * 64;
    const i64 steps = (p.bytes + INNER - 1) / INNER;
    auto stage_at = [&](i64 step) { return smem + (int)(step % STAGES) * 2 * OPERAND; };
    auto load_stage = [&](i64 step) {
        if (step < steps) {
            fetch(stage_at(step), p.x, p.ldx, r0, M, step * INNER, p.bytes);
            fetch(stage_at(step) + OPERAND, p.w, p.ldw, n0, N, step * INNER, p.bytes);
        }
        copy_commit();
    };
    for (int s = 0; s < STAGES - 1; s++)
        load_stage(s);
    for (i64 step = 0; step < steps; step++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        load_stage(step + STAGES - 1); /* where the step before was: all have passed it */
#pragma unroll
        for (int k = 0; k < INNER; k += 32) {
            u32 a[4][4], b[4][4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                fragment(a[i], stage_at(step), wm + i * 16, k);
#pragma unroll
            for (int j = 0; j < 4; j++)
                fragment(b[j], stage_at(step) + OPERAND, wn + j * 16, k);
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    if (CODES)
                        mma_e4m3(sum[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
                    else
                        mma(sum[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
        }
    }
    copy_wait<0>();
    __syncthreads();
}
#endif

/* K is a multiple of 16, K2 of 8; rows of all operands start on 16 bytes. most: as in fp8_sm90.cu.
 */
extern "C" __global__ void __launch_bounds__(128)
    fp8_gemm(bf16 *c, long long ldc, const u8 *x, const float *sx, const u8 *w, const float *sw,
             const bf16 *x2, long long ldx2, const bf16 *w2, long long ldw2, const bf16 *bias,
             long long M, long long N, long long K, int K2, u32 *most, int split)
{
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    extern __shared__ __align__(16) u8 raw[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int wm = warp / 2 * 64, wn = warp % 2 * 64;
    const i64 r0 = (i64)blockIdx.y * TILE, n0 = (i64)blockIdx.x * TILE;
    float sum[4][8][4] = {};
    multiply<true>(sum, raw, {x, w, K, K, K}, r0, M, n0, N);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = r0 + wm + i * 16 + lane / 4 + h * 8;
            const float s = r < M ? sx[r] : 0.0f;
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const i64 n = n0 + wn + j * 8 + lane % 4 * 2 + e;
                    sum[i][j][2 * h + e] *= s * (n < N ? sw[n] : 0.0f);
                }
        }
    if (K2)
        multiply<false>(sum, raw, {(const u8 *)x2, (const u8 *)w2, ldx2 * 2, ldw2 * 2, K2 * 2}, r0,
                        M, n0, N);
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = r0 + wm + i * 16 + lane / 4 + h * 8;
            u32 largest = 0;
#pragma unroll
            for (int j = 0; j < 8; j++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const i64 n = n0 + wn + j * 8 + lane % 4 * 2 + e;
                    if (r >= M || n >= N)
                        continue;
                    const float v = sum[i][j][2 * h + e] + (bias ? load(bias + n) : 0.0f);
                    store(c + r * ldc + n, v);
                    largest = max(largest, magnitude(rounded<bf16>(v)));
                }
            if (!most)
                continue;
            largest = max(largest, __shfl_xor_sync(FULL, largest, 1));
            largest = max(largest, __shfl_xor_sync(FULL, largest, 2));
            if (lane % 4 || r >= M)
                continue;
            if (n0 + wn < split)
                atomicMax(most + r, largest);
            if (n0 + wn + 64 > split)
                atomicMax(most + M + r, largest);
        }
#endif
}
