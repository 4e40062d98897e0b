/* gemm_tiles.cu - GEMM without a library, where rows start on 16 bytes:
 * c = alpha op(a) op(b) + beta add + bias, the arguments of gemm_mma (gemm.cu).
 *
 * Built with AF_T (bf16 or half operands), AF_C (result), AF_TA (a is [K][M]) and AF_TB (b is
 * [N][K]). A block makes AF_BM x AF_BN of c with AF_WM x AF_WN warps: 128 x 128 with 2 x 2 warps of
 * 64 x 64 unless other numbers are given (gemm_cost.c has the list); 32 of the inner dimension at a
 * time pass through AF_STAGES stages of shared memory in the order they have in device memory, and
 * fragments are loaded straight or transposed, those of the next 16 while these are multiplied.
 * blockIdx.z is the batch. Sums are f32 and in a fixed order, the same for every tile.
 * Dynamic shared memory: AF_STAGES * STAGE values. */
// variants: AF_TA=0,1 AF_TB=0,1 (AF_T=bf16 AF_C=bf16,float | AF_T=half AF_C=half,float)
//   | (AF_BM=128 AF_BN=128,64 AF_WM=2 AF_WN=2 AF_STAGES=3
//     | AF_BM=64 AF_BN=128 AF_WM=2 AF_WN=2 AF_STAGES=3
//     | AF_BM=64 AF_BN=64 AF_WM=2 AF_WN=2 AF_STAGES=4
//     | AF_BM=256 AF_BN=128 AF_WM=4 AF_WN=2 AF_STAGES=3
//     | AF_BM=128 AF_BN=256 AF_WM=2 AF_WN=4 AF_STAGES=3
//     | AF_BM=16,32 AF_BN=128 AF_WM=1 AF_WN=4 AF_STAGES=4
//     | AF_BM=128 AF_BN=32 AF_WM=4 AF_WN=1 AF_STAGES=4)
//     (AF_TA=0 AF_TB=0,1 | AF_TA=1 AF_TB=0) AF_T=bf16 AF_C=bf16,float
// common: AF_TA=0,1 AF_TB=0,1 AF_T=bf16 AF_C=bf16,float
#include "dev.cuh"

#ifndef AF_C
#define AF_C  float
#define AF_TA 0
#define AF_TB 0
#endif
#ifndef AF_BM
#define AF_BM     128
#define AF_BN     128
#define AF_WM     2
#define AF_WN     2
#define AF_STAGES 4
#endif
#define THREADS   (AF_WM * AF_WN * 32)
#define INNER     32
#define STAGES    AF_STAGES
#define ROW_PITCH (INNER + 8) /* values; [outer][32], inner along the row */
/* Values of an operand: also as [32][outer + 8], inner along the rows. */
#define HELD(outer) ((outer) < INNER ? INNER * ((outer) + 8) : (outer)*ROW_PITCH)
#define A_TILE      HELD(AF_BM)
#define STAGE       (A_TILE + HELD(AF_BN))
#define MI          (AF_BM / AF_WM / 16) /* fragments of a warp: along m, and along n */
#define NJ          (AF_BN / AF_WN / 16)
/* Blocks an SM has registers for: gemm_cost.c counts on it. */
#define RESIDENT (MI * NJ >= 16 ? 256 / THREADS : MI * NJ >= 8 ? 3 : 4)

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

/* One thread's part of an operand of OUTER rows: pieces of 16 bytes in every stage. FLIP: the outer
 * dimension runs along memory's rows. */
template <bool FLIP, int OUTER> struct feed {
    const AF_T *p;
    i64 ld;
    int row, col, left; /* of the first piece; values until the outer end */
    __device__ __forceinline__ feed(const AF_T *x, i64 row_stride, i64 outer0, i64 outers)
    {
        constexpr int across = FLIP ? OUTER / 8 : INNER / 8;
        const int t = threadIdx.x, r = t / across, c = t % across * 8;
        ld = row_stride;
        row = r;
        col = c;
        p = x + (FLIP ? r * ld + outer0 + c : (outer0 + r) * ld + c);
        const i64 rest = outers - outer0 - (FLIP ? c : r);
        left = rest > OUTER ? OUTER : (int)rest;
    }
    /* `inner` values are left from this stage on; x is any address that may be read. */
    __device__ __forceinline__ void fetch(AF_T *tile, const AF_T *x, i64 inner)
    {
        const int k_left = inner > INNER ? INNER : (int)inner;
        constexpr int step = THREADS / (FLIP ? OUTER / 8 : INNER / 8), rows = FLIP ? INNER : OUTER;
        const int pitch = FLIP ? OUTER + 8 : ROW_PITCH;
#pragma unroll
        for (int i = 0; i < (rows + step - 1) / step; i++) {
            if (rows % step && row + i * step >= rows)
                break;
            const int along = FLIP ? left : k_left - col;
            const bool there = FLIP ? row + i * step < k_left : i * step < left;
            const int bytes = !there || along <= 0 ? 0 : along >= 8 ? 16 : along * 2;
            copy16(smem_at(tile + (row + i * step) * pitch + col), bytes ? p + i * step * ld : x,
                   bytes);
        }
        p += FLIP ? INNER * ld : INNER;
    }
};
/* The 16 x 16 fragment at (outer, k) as four 8 x 8 matrices: outer and outer + 8 of k, then of k
 * + 8. */
template <bool FLIP, int OUTER> DEV void fragment(u32 (&f)[4], const AF_T *tile, int outer, int k)
{
    const int lane = threadIdx.x % 32;
    if (FLIP)
        ldmatrix4_trans(f, smem_at(tile + (k + lane / 16 * 8 + lane % 8) * (OUTER + 8) + outer +
                                   lane / 8 % 2 * 8));
    else
        ldmatrix4(f, smem_at(tile + (outer + lane % 16) * ROW_PITCH + k + lane / 16 * 8));
}

struct fragments {
    u32 a[MI][4], b[NJ][4];
    __device__ __forceinline__ void load_from(const AF_T *stage, int wm, int wn, int k)
    {
#pragma unroll
        for (int i = 0; i < MI; i++)
            fragment<AF_TA, AF_BM>(a[i], stage, wm + i * 16, k);
#pragma unroll
        for (int j = 0; j < NJ; j++)
            fragment<!AF_TB, AF_BN>(b[j], stage + A_TILE, wn + j * 16, k);
    }
};

DEV void multiply(float (&sum)[MI][2 * NJ][4], const fragments &f)
{
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < 2 * NJ; j++)
            mma_step(sum[i][j], f.a[i], f.b[j / 2][j % 2], f.b[j / 2][j % 2 + 2], (AF_T *)0);
}

/* ---- the end: sums become results ---- */
DEV void store_pair(float *c, float lo, float hi) { *(float2 *)c = make_float2(lo, hi); }
template <class C> DEV void store_pair(C *c, float lo, float hi) { *(u32 *)c = pack2(c, lo, hi); }

/* Whether two neighbours of every row, from an even column on, may be stored at once. */
template <class C> DEV bool pairs_fit(const C *c, i64 ldc)
{
    return ldc % 2 == 0 && (u64)c % (2 * sizeof(C)) == 0;
}
/* c[0], c[1] = alpha sum + beta add + bias, where columns n and n + 1 are before N. */
template <class C>
DEV void finish_pair(C *c, const C *add, const C *bias, const float *sum, i64 n, i64 N, float alpha,
                     float beta, bool pairs)
{
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        v[i] = sum[i] * alpha;
        if (n + i < N) {
            v[i] += beta != 0.0f ? beta * load(add + i) : 0.0f;
            v[i] += bias ? load(bias + n + i) : 0.0f;
        }
    }
    if (pairs && n + 1 < N)
        store_pair(c, v[0], v[1]);
    else
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (n + i < N)
                store(c + i, v[i]);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    gemm_tiles(AF_C *c, long long ldc, long long sc, const AF_T *a, long long lda, long long sa,
               const AF_T *b, long long ldb, long long sb, const AF_C *add, long long ldadd,
               const AF_C *bias, long long M, long long N, long long K, float alpha, float beta)
{
    extern __shared__ __align__(16) u8 raw[];
    AF_T *smem = (AF_T *)raw;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int wm = warp / AF_WN * (MI * 16), wn = warp % AF_WN * (NJ * 16);
    const i64 r0 = (i64)blockIdx.y * AF_BM, n0 = (i64)blockIdx.x * AF_BN;
    const i64 steps = (K + INNER - 1) / INNER;
    float sum[MI][2 * NJ][4] = {};
    a += blockIdx.z * sa;
    b += blockIdx.z * sb;
    c += blockIdx.z * sc;
    add += blockIdx.z * sc;
    feed<AF_TA, AF_BM> from_a(a, lda, r0, M);
    feed<!AF_TB, AF_BN> from_b(b, ldb, n0, N);
    auto stage_at = [&](i64 step) { return smem + (int)step % STAGES * STAGE; };
    auto load_stage = [&](i64 step) {
        if (step < steps) {
            from_a.fetch(stage_at(step), a, K - step * INNER);
            from_b.fetch(stage_at(step) + A_TILE, b, K - step * INNER);
        }
        copy_commit();
    };
    for (int s = 0; s < STAGES - 1; s++)
        load_stage(s);
    copy_wait<STAGES - 2>();
    __syncthreads();
    fragments now, next;
    if (steps > 0)
        now.load_from(stage_at(0), wm, wn, 0);
    for (i64 step = 0; step < steps; step++) {
        load_stage(step + STAGES - 1); /* where the step before was: all have passed it */
        next.load_from(stage_at(step), wm, wn, 16);
        multiply(sum, now);
        copy_wait<STAGES - 2>();
        __syncthreads();
        now.load_from(stage_at(step + 1), wm, wn, 0); /* after the last step: not used */
        multiply(sum, next);
    }
    const bool pairs = pairs_fit(c, ldc);
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = r0 + wm + i * 16 + lane / 4 + h * 8;
            if (r < M)
#pragma unroll
                for (int j = 0; j < 2 * NJ; j++) {
                    const i64 n = n0 + wn + j * 8 + lane % 4 * 2;
                    if (n < N)
                        finish_pair(c + r * ldc + n, add + r * ldadd + n, bias, &sum[i][j][2 * h],
                                    n, N, alpha, beta, pairs);
                }
        }
}
