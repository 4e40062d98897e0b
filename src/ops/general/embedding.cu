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

/* The rows of each id as a list, rising: next[n] is the next row with n's id or -1, first[n]
 * whether no row before it has that id. A warp looks at all ids for its row: no sorting, no
 * atomics. The list of id `frozen` is empty. */
extern "C" __global__ void __launch_bounds__(256)
    embedding_lists(int *first, int *next, const int *ids, int N, int frozen)
{
    previous_done();
    const int n = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (n >= N)
        return;
    const int id = ids[n];
    int before = 0, after = N;
#pragma unroll 8
    for (int i = lane; i < N; i += 32)
        if (ids[i] == id) {
            before |= i < n;
            after = i > n ? min(after, i) : after;
        }
    before = __any_sync(FULL, before);
#pragma unroll
    for (int d = 16; d; d >>= 1)
        after = min(after, __shfl_xor_sync(FULL, after, d));
    if (lane == 0) {
        first[n] = !before && id != frozen;
        next[n] = after < N ? after : -1;
    }
}

/* Block n: if n is the first row of its id v, dtable[v] += the sum of v's rows of dy, in order.
 * AF_W is the gradient's type. */
extern "C" __global__ void embedding_bwd(AF_W *dtable, const int *first, const int *next,
                                         const int *ids, const AF_T *dy, int D, long long lddy)
{
    previous_done();
    if (!first[blockIdx.x])
        return;
    AF_W *to = dtable + (i64)ids[blockIdx.x] * D;
    for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC) {
        float sum[AF_VEC] = {}, v[AF_VEC];
        for (int n = blockIdx.x; n >= 0; n = next[n]) {
            load_n(v, dy + n * lddy + d);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += v[k];
        }
        load_n(v, to + d);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum[k] += v[k];
        store_n(to + d, sum);
    }
}
