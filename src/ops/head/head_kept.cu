/* head_kept.cu - head_rows of head.cu with AF_GRAD for long rows of 16-bit logits without a soft
 * cap: a row stays in the registers of a cluster of AF_KS blocks between its reading and the
 * writing of its gradient, so that it passes through memory once each way.
 *
 * Built with AF_T, AF_KS and AF_N, the accesses of 16 bytes a thread has of a row. */
// variants: AF_T=bf16,half AF_KS=4,8 AF_N=8,10
// common: AF_T=bf16 AF_KS=4 AF_N=8,10
#include "cluster.cuh"

#ifndef AF_N
#define AF_N 10
#endif
#define THREADS 512
#define VEC     8

/* What a block knows of a row. */
struct part {
    float top, sum, all; /* largest logit times log2 e, sum of 2^(z - top), sum of logits */
    int at;              /* of the largest, the first one */
};

DEV u32 lowest(bf16 *) { return 0xff80ff80u; } /* two times -infinity */
DEV u32 lowest(half *) { return 0xfc00fc00u; }
DEV u32 larger(bf16 *, u32 a, u32 b)
{
    u32 r;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}
DEV u32 larger(half *, u32 a, u32 b)
{
    u32 r;
    asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
    return r;
}

/* Logits i to i + 7 of a row; those after V are -infinity. */
DEV void bring(u32 (&w)[4], const AF_T *row, int i, int V)
{
    const uint4 q = i < V ? *(const uint4 *)(row + i) : uint4{};
    w[0] = q.x, w[1] = q.y, w[2] = q.z, w[3] = q.w;
    if (i + VEC > V) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u32 none = lowest((AF_T *)0);
            w[k] = i + 2 * k >= V       ? none
                   : i + 2 * k + 1 >= V ? (w[k] & 0xffff) | (none & 0xffff0000)
                                        : w[k];
        }
    }
}
/* The words are what is kept: without this their values would be, too, twice as large. */
DEV void keep(u32 (&w)[AF_N][4])
{
#pragma unroll
    for (int j = 0; j < AF_N; j++)
        asm volatile("" : "+r"(w[j][0]), "+r"(w[j][1]), "+r"(w[j][2]), "+r"(w[j][3]));
}
/* p goes to place `rank` of `parts` in every block of the cluster. */
DEV void tell(part *parts, int rank, const part &p)
{
#if AF_KS > 1 && __CUDA_ARCH__ >= 900
    const u32 here = smem_at(parts + rank);
    const u32 w[4] = {__float_as_uint(p.top), __float_as_uint(p.sum), __float_as_uint(p.all),
                      (u32)p.at};
    for (int to = 0; to < AF_KS; to++)
        asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
                     "st.shared::cluster.v4.b32 [at], {%2, %3, %4, %5};\n}" ::"r"(here),
                     "r"(to), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3])
                     : "memory");
#else
    parts[rank] = p;
#endif
}
DEV int block_min(int v)
{
    __shared__ int of[32];
    v = __reduce_min_sync(FULL, v);
    if (threadIdx.x % 32 == 0)
        of[threadIdx.x / 32] = v;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    return __reduce_min_sync(FULL, lane < (int)blockDim.x / 32 ? of[lane] : 0x7fffffff);
}

/* What all blocks know, in their order. */
DEV part join(const part *parts)
{
    part all = {-INF, 0.0f, 0.0f, 0x7fffffff};
    for (int r = 0; r < AF_KS; r++)
        all.top = fmaxf(all.top, parts[r].top);
    for (int r = 0; r < AF_KS; r++) {
        all.sum += parts[r].top > -INF ? parts[r].sum * exp2_fast(parts[r].top - all.top) : 0.0f;
        all.all += parts[r].all;
        all.at = parts[r].top == all.top ? min(all.at, parts[r].at) : all.at;
    }
    return all;
}

/* As head_rows; row n by the blocks from n * AF_KS on. Rows have whole accesses of 16
 * bytes (what lies after V is written, too), and V is at most 8 * 512 * AF_KS * AF_N. */
extern "C" __global__ void CLUSTER __launch_bounds__(THREADS, 2)
    head_rows_kept(AF_T *logits, long long ld, const int *labels, const float *scale,
                   float *row_loss, float *row_hit, int V, float logit_scale, float smoothing,
                   int scale_step)
{
    __shared__ __align__(16) part parts[AF_KS];
    const i64 n = blockIdx.x / AF_KS;
    const int rank = blockIdx.x % AF_KS, label = labels[n], step = AF_KS * THREADS * VEC,
              first = (rank * THREADS + threadIdx.x) * VEC;
    AF_T *row = logits + n * ld;
    u32 w[AF_N][4];
    const bool owner = label / VEC % (AF_KS * THREADS) == rank * THREADS + (int)threadIdx.x;
    if (label < 0) {
        for (int i = first; i < V; i += step)
            *(uint4 *)(row + i) = {};
        if (rank == 0 && threadIdx.x == 0)
            row_loss[n] = row_hit[n] = 0.0f;
        return;
    }
    const float at_label = owner ? load(row + label) : 0.0f;
#pragma unroll
    for (int j = 0; j < AF_N; j++)
        bring(w[j], row, first + j * step, V);

    const float by = logit_scale * LOG2E;
    part p = {-INF, 0.0f, 0.0f, 0x7fffffff};
    u32 top = lowest((AF_T *)0);
    float y[VEC];
#pragma unroll
    for (int j = 0; j < AF_N; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            top = larger((AF_T *)0, top, w[j][k]);
    unpack2((AF_T *)0, top, y);
    const float mine = fmaxf(y[0], y[1]);
    p.top = block_max(mine);
    if (mine == p.top) { /* few have it */
#pragma unroll
        for (int j = AF_N - 1; j >= 0; j--) {
            unpack(y, w[j], (AF_T *)0);
#pragma unroll
            for (int k = VEC - 1; k >= 0; k--)
                p.at = y[k] == mine ? first + j * step + k : p.at;
        }
    }
    p.at = block_min(p.at);
    p.top *= by;
    keep(w);
    /* a block after the last logit has no largest */
    const float base = p.top > -INF ? p.top : 0.0f;
#pragma unroll
    for (int j = 0; j < AF_N; j++) {
        unpack(y, w[j], (AF_T *)0);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            p.sum += exp2_fast(fmaf(y[k], by, -base));
    }
    p.sum = block_sum(p.sum);
    if (smoothing > 0.0f) {
        keep(w);
#pragma unroll
        for (int j = 0; j < AF_N; j++) {
            unpack(y, w[j], (AF_T *)0);
#pragma unroll
            for (int k = 0; k < VEC; k++)
                p.all += first + j * step + k < V ? y[k] * logit_scale : 0.0f;
        }
        p.all = block_sum(p.all);
    }
    if (threadIdx.x == 0)
        tell(parts, rank, p);
    cluster_meet();
    keep(w);
    const part all = join(parts);
    const float f = (scale ? scale[n * scale_step] : 1.0f) * logit_scale, inv = f / all.sum,
                even = smoothing / V * f;
#pragma unroll
    for (int j = 0; j < AF_N; j++) {
        unpack(y, w[j], (AF_T *)0);
#pragma unroll
        for (int k = 0; k < VEC; k++)
            y[k] = fmaf(exp2_fast(fmaf(y[k], by, -all.top)), inv, -even);
        if (first + j * step < V)
            store_n(row + first + j * step, y);
    }
    if (owner) { /* after what it wrote above */
        const float z = at_label * by;
        store(row + label, fmaf(exp2_fast(z - all.top), inv, -even) - (1.0f - smoothing) * f);
        row_loss[n] =
            (all.top - (1.0f - smoothing) * z) * LN2 + logf(all.sum) - smoothing * (all.all / V);
        row_hit[n] = all.at == label ? 1.0f : 0.0f;
    }
}
