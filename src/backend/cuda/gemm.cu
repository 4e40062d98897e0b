/* gemm.cu - GEMM without a library: c = alpha op(a) op(b) + beta add + bias.
 *
 * For machines without cuBLASLt and for strides and alignments it refuses. Built with AF_T (operand
 * type) and AF_C (result type). One block makes a 64 x 64 tile of c; blockIdx.z is the batch.
 * Operands pass through shared memory as [64][K] tiles whatever their order, so one inner loop
 * serves all four transposes. Sums are f32 and in a fixed order. */
// variants: AF_T=bf16 AF_C=bf16,float | AF_T=half AF_C=half,float | AF_T=float AF_C=float,bf16,half
// common: AF_T=bf16 AF_C=bf16,float
#include "dev.cuh"

#define TILE 64

struct view {
    const AF_T *p;
    long long ld, rows, cols; /* of op(x): element (r, c) */
    int t;
};

static __device__ __forceinline__ float pick(view x, long long r, long long c)
{
    if (r >= x.rows || c >= x.cols)
        return 0.0f;
    return load(x.t ? x.p + c * x.ld + r : x.p + r * x.ld + c);
}

static __device__ __forceinline__ void finish(AF_C *c, long long ld, const AF_C *add, long long lda,
                                              const AF_C *bias, long long r, long long n,
                                              long long M, long long N, float v, float alpha,
                                              float beta)
{
    if (r >= M || n >= N)
        return;
    v *= alpha;
    if (beta != 0.0f)
        v += beta * load(add + r * lda + n);
    if (bias)
        v += load(bias + n);
    store(c + r * ld + n, v);
}

/* 256 threads, 4 x 4 values each. */
extern "C" __global__ void __launch_bounds__(256)
    gemm_f32(AF_C *c, long long ldc, long long sc, const AF_T *a, long long lda, long long sa,
             const AF_T *b, long long ldb, long long sb, const AF_C *add, long long ldadd,
             const AF_C *bias, long long M, long long N, long long K, int ta, int tb, float alpha,
             float beta)
{
    __shared__ float as[16][TILE + 4], bs[16][TILE + 4];
    const long long r0 = (long long)blockIdx.y * TILE, n0 = (long long)blockIdx.x * TILE;
    const int t = threadIdx.x, tr = t / 16 * 4, tn = t % 16 * 4;
    const view va = {a + blockIdx.z * sa, lda, M, K, ta};
    const view vb = {b + blockIdx.z * sb, ldb, N, K, !tb}; /* op(b) seen as [N][K] */
    float sum[4][4] = {};
    for (long long k0 = 0; k0 < K; k0 += 16) {
        for (int i = t; i < TILE * 16; i += 256) {
            /* neighbours in a warp read neighbours in memory, either way round */
            const int ra = ta ? i % TILE : i / 16, ka = ta ? i / TILE : i % 16;
            const int rb = tb ? i / 16 : i % TILE, kb = tb ? i % 16 : i / TILE;
            as[ka][ra] = pick(va, r0 + ra, k0 + ka);
            bs[kb][rb] = pick(vb, n0 + rb, k0 + kb);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 16; k++) {
            float x[4], y[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                x[i] = as[k][tr + i];
                y[i] = bs[k][tn + i];
            }
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            finish(c + blockIdx.z * sc, ldc, add + blockIdx.z * sc, ldadd, bias, r0 + tr + i,
                   n0 + tn + j, M, N, sum[i][j], alpha, beta);
}

#define KSTEP 32
#define PITCH (KSTEP + 8) /* rows 80 bytes apart: no bank is hit twice by a fragment load */

static __device__ __forceinline__ void mma_16816(float *d, const unsigned *a, const unsigned *b,
                                                 bf16)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void mma_16816(float *d, const unsigned *a, const unsigned *b,
                                                 half)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Never launched with float operands; there so that the file builds for them. */
static __device__ __forceinline__ void mma_16816(float *, const unsigned *, const unsigned *, float)
{
}

static __device__ __forceinline__ AF_T raw(view x, long long r, long long c)
{
    AF_T v;
    store(&v, 0.0f);
    if (r < x.rows && c < x.cols)
        v = x.t ? x.p[c * x.ld + r] : x.p[r * x.ld + c];
    return v;
}

/* 4 warps, each a 32 x 32 quarter: 2 x 4 tensor-core tiles of 16 x 8. */
extern "C" __global__ void __launch_bounds__(128)
    gemm_mma(AF_C *c, long long ldc, long long sc, const AF_T *a, long long lda, long long sa,
             const AF_T *b, long long ldb, long long sb, const AF_C *add, long long ldadd,
             const AF_C *bias, long long M, long long N, long long K, int ta, int tb, float alpha,
             float beta)
{
    __shared__ __align__(16) AF_T as[TILE][PITCH], bs[TILE][PITCH];
    const long long r0 = (long long)blockIdx.y * TILE, n0 = (long long)blockIdx.x * TILE;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    const int wr = warp / 2 * 32, wn = warp % 2 * 32, group = lane / 4, pair = lane % 4 * 2;
    const view va = {a + blockIdx.z * sa, lda, M, K, ta};
    const view vb = {b + blockIdx.z * sb, ldb, N, K, !tb};
    float sum[2][4][4] = {};
    for (long long k0 = 0; k0 < K; k0 += KSTEP) {
        for (int i = t; i < TILE * KSTEP; i += 128) {
            const int ra = ta ? i % TILE : i / KSTEP, ka = ta ? i / TILE : i % KSTEP;
            const int rb = tb ? i / KSTEP : i % TILE, kb = tb ? i % KSTEP : i / TILE;
            as[ra][ka] = raw(va, r0 + ra, k0 + ka);
            bs[rb][kb] = raw(vb, n0 + rb, k0 + kb);
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < KSTEP; k += 16) {
            unsigned fa[2][4], fb[4][2];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int q = 0; q < 4; q++)
                    fa[i][q] = *(
                        const unsigned *)&as[wr + i * 16 + group + q % 2 * 8][k + pair + q / 2 * 8];
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int q = 0; q < 2; q++)
                    fb[j][q] = *(const unsigned *)&bs[wn + j * 8 + group][k + pair + q * 8];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    mma_16816(sum[i][j], fa[i], fb[j], AF_T());
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                finish(c + blockIdx.z * sc, ldc, add + blockIdx.z * sc, ldadd, bias,
                       r0 + wr + i * 16 + group + q / 2 * 8, n0 + wn + j * 8 + pair + q % 2, M, N,
                       sum[i][j][q], alpha, beta);
}

/* Small random values of type `kind` (0 f32, 1 bf16, 2 f16): operands for timing. */
extern "C" __global__ void fill_noise(void *p, long long n, int kind)
{
    for (long long i = blockIdx.x * 256ll + threadIdx.x; i < n; i += gridDim.x * 256ll) {
        unsigned h = (unsigned)i * 2654435761u;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        const float v = (float)(int)(h & 0xffff) / 32768.0f - 1.0f;
        if (kind == 0)
            store((float *)p + i, v);
        else if (kind == 1)
            store((bf16 *)p + i, v);
        else
            store((half *)p + i, v);
    }
}
