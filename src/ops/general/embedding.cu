/* embedding.cu - rows of a table by number, and the table's gradient in a fixed order.
 * Contract: embedding.c; twin: embedding_cpu.c.  Block types: the _gather kernels of dequant.cu.
 *
 * Built with AF_T (y, dy), AF_W (table) and AF_VEC (1, or 8: 16 bytes of bf16). */
// variants: AF_T=bf16,float AF_W=bf16,float AF_VEC=8,1 | AF_T=half AF_W=half,float,bf16 AF_VEC=8,1
//    | AF_T=bf16,float AF_W=half AF_VEC=1
// common: AF_T=bf16 AF_W=bf16,float AF_VEC=8
#include "dev.cuh"

#ifndef AF_W
#define AF_W AF_T
#endif

/* Block n: y[n] = table[ids[n]]. */
extern "C" __global__ void embedding_fwd(AF_T *y, const int *ids, const AF_W *table, int D,
                                         long long ldy)
{
    previous_done();
    const AF_W *from = table + (i64)ids[blockIdx.x] * D;
    for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC) {
        float v[AF_VEC];
        load_n(v, from + d);
        store_n(y + blockIdx.x * ldy + d, v);
    }
}

/* The rows of each id as a list, rising: head[v] is the first row with id v or -1, next[n] the next
 * one with n's id. Thread v looks at all ids, which pass through shared memory: no sorting, no
 * atomics. The list of id `frozen` is empty. */
extern "C" __global__ void __launch_bounds__(256)
    embedding_lists(int *head, int *next, const int *ids, int V, int N, int frozen)
{
    previous_done();
    __shared__ int4 tile[256];
    const int v = blockIdx.x * 256 + threadIdx.x;
    int first = -1, last = -1;
    for (int n0 = 0; n0 < N; n0 += 1024) {
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < 1024; i += 256)
            ((int *)tile)[i] = n0 + i < N ? ids[n0 + i] : -1;
        __syncthreads();
        for (int i = 0; i < 256; i++) {
            const int4 four = tile[i];
            if (four.x != v && four.y != v && four.z != v && four.w != v)
                continue;
            const int id[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (id[k] == v) {
                    const int n = n0 + i * 4 + k;
                    if (last < 0)
                        first = n;
                    else
                        next[last] = n;
                    last = n;
                }
        }
    }
    if (v < V) {
        head[v] = v == frozen ? -1 : first;
        if (last >= 0)
            next[last] = -1;
    }
}

/* Block v: dtable[v] (+)= sum of its rows of dy, in order. AF_W is the gradient's type. */
extern "C" __global__ void embedding_bwd(AF_W *dtable, const int *head, const int *next,
                                         const AF_T *dy, int D, long long lddy, int accumulate)
{
    previous_done();
    const int first = head[blockIdx.x];
    if (first < 0 && accumulate)
        return;
    AF_W *to = dtable + (i64)blockIdx.x * D;
    for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC) {
        float sum[AF_VEC] = {}, v[AF_VEC];
        for (int n = first; n >= 0; n = next[n]) {
            load_n(v, dy + n * lddy + d);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += v[k];
        }
        if (accumulate) {
            load_n(v, to + d);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += v[k];
        }
        store_n(to + d, sum);
    }
}
