/* gemm_tiles.cu - GEMM without a library, where rows start on 16 bytes:
 * c = alpha op(a) op(b) + beta c + bias, the arguments of gemm_mma (gemm.cu).
 *
 * Built with AF_T (bf16 or half operands), AF_C (result), AF_TA (a is [K][M]) and AF_TB (b is
 * [N][K]). A block of 4 warps makes 128 x 128 of c, 64 x 64 each; 32 of the inner dimension at a
 * time pass through four stages of shared memory in the order they have in device memory, and
 * fragments are loaded straight or transposed, those of the next 16 while these are multiplied.
 * blockIdx.z is the batch. Sums are f32 and in a fixed order.
 * Dynamic shared memory: 4 * 2 * 10240 bytes. */
// variants: AF_TA=0,1 AF_TB=0,1 (AF_T=bf16 AF_C=bf16,float | AF_T=half AF_C=half,float)
// common: AF_TA=0,1 AF_TB=0,1 AF_T=bf16 AF_C=bf16,float
#include "dev.cuh"

#ifndef AF_C
#define AF_C  float
#define AF_TA 0
#define AF_TB 0
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

/* One thread's part of an operand: four pieces of 16 bytes per stage. FLIP: the outer
 * dimension runs along memory's rows. */
template <bool FLIP> struct feed {
    const AF_T *p;
    i64 ld;
    int row, col, left; /* of the first piece; values until the outer end */
    __device__ __forceinline__ feed(const AF_T *x, i64 row_stride, i64 outer0, i64 outers)
    {
        const int t = threadIdx.x, r = FLIP ? t / 16 : t / 4, c = FLIP ? t % 16 * 8 : t % 4 * 8;
        ld = row_stride;
        row = r;
        col = c;
        p = x + (FLIP ? r * ld + outer0 + c : (outer0 + r) * ld + c);
        const i64 rest = outers - outer0 - (FLIP ? c : r);
        left = rest > TILE ? TILE : (int)rest;
    }
    /* `inner` values are left from this stage on; x is any address that may be read. */
    __device__ __forceinline__ void fetch(AF_T *tile, const AF_T *x, i64 inner)
    {
        const int k_left = inner > INNER ? INNER : (int)inner;
        const int step = FLIP ? 8 : 32, pitch = FLIP ? FLIP_PITCH : ROW_PITCH;
#pragma unroll
        for (int i = 0; i < 4; i++) {
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
template <bool FLIP> DEV void fragment(u32 (&f)[4], const AF_T *tile, int outer, int k)
{
    const int lane = threadIdx.x % 32;
    if (FLIP)
        ldmatrix4_trans(f, smem_at(tile + (k + lane / 16 * 8 + lane % 8) * FLIP_PITCH + outer +
                                   lane / 8 % 2 * 8));
    else
        ldmatrix4(f, smem_at(tile + (outer + lane % 16) * ROW_PITCH + k + lane / 16 * 8));
}

struct fragments {
    u32 a[4][4], b[4][4];
    __device__ __forceinline__ void load_from(const AF_T *stage, int wm, int wn, int k)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            fragment<AF_TA>(a[i], stage, wm + i * 16, k);
#pragma unroll
        for (int j = 0; j < 4; j++)
            fragment<!AF_TB>(b[j], stage + OPERAND, wn + j * 16, k);
    }
};

DEV void multiply(float (&sum)[4][8][4], const fragments &f)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
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
/* c[0], c[1] = alpha sum + beta c + bias, where columns n and n + 1 are before N. */
template <class C>
DEV void finish_pair(C *c, const C *bias, const float *sum, i64 n, i64 N, float alpha, float beta,
                     bool pairs)
{
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        v[i] = sum[i] * alpha;
        if (n + i < N) {
            v[i] += beta != 0.0f ? beta * load(c + i) : 0.0f;
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

extern "C" __global__ void __launch_bounds__(128, 2)
    gemm_tiles(AF_C *c, long long ldc, long long sc, const AF_T *a, long long lda, long long sa,
               const AF_T *b, long long ldb, long long sb, const AF_C *bias, long long M,
               long long N, long long K, float alpha, float beta)
{
    extern __shared__ __align__(16) u8 raw[];
    AF_T *smem = (AF_T *)raw;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int wm = warp / 2 * 64, wn = warp % 2 * 64;
    const i64 r0 = (i64)blockIdx.y * TILE, n0 = (i64)blockIdx.x * TILE;
    const i64 steps = (K + INNER - 1) / INNER;
    float sum[4][8][4] = {};
    a += blockIdx.z * sa;
    b += blockIdx.z * sb;
    c += blockIdx.z * sc;
    feed<AF_TA> from_a(a, lda, r0, M);
    feed<!AF_TB> from_b(b, ldb, n0, N);
    auto stage_at = [&](i64 step) { return smem + (int)step % STAGES * 2 * OPERAND; };
    auto load_stage = [&](i64 step) {
        if (step < steps) {
            from_a.fetch(stage_at(step), a, K - step * INNER);
            from_b.fetch(stage_at(step) + OPERAND, b, K - step * INNER);
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
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const i64 r = r0 + wm + i * 16 + lane / 4 + h * 8;
            if (r < M)
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    const i64 n = n0 + wn + j * 8 + lane % 4 * 2;
                    if (n < N)
                        finish_pair(c + r * ldc + n, bias, &sum[i][j][2 * h], n, N, alpha, beta,
                                    pairs);
                }
        }
}
