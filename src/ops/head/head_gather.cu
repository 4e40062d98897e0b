/* head_gather.cu - the rows of the head that have a label, packed to the front, and back.
 *
 * Built with AF_T (activations). Rows keep their order: packed row k is row index[k]; slot[n] is
 * where row n went, -1 when its label is not counted. */
// variants: AF_T=bf16,float,half
// common: AF_T=bf16
#include "dev.cuh"

/* One block of 1024 threads. index[k] = -1 after the last packed row. */
extern "C" __global__ void __launch_bounds__(1024)
    head_index(int *index, int *slot, const int *labels, int N)
{
    __shared__ int part[32];
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    int done = 0;
    for (int n0 = 0; n0 < N; n0 += 1024) {
        const int n = n0 + t;
        const bool mine = n < N && labels[n] >= 0;
        const unsigned votes = __ballot_sync(FULL, mine);
        if (lane == 0)
            part[warp] = __popc(votes);
        __syncthreads();
        int before = 0, total = 0;
        for (int w = 0; w < 32; w++) {
            before += w < warp ? part[w] : 0;
            total += part[w];
        }
        const int k = done + before + __popc(votes & ((1u << lane) - 1));
        if (mine)
            index[k] = n;
        if (n < N)
            slot[n] = mine ? k : -1;
        done += total;
        __syncthreads();
    }
    for (int k = done + t; k < N; k += 1024)
        index[k] = -1;
}

/* to[k] = x[index[k]] (zeros without one), its label likewise (-100), and its weight where
 * to_weights is not NULL. One block per packed row. */
extern "C" __global__ void head_gather(AF_T *to, int *to_labels, const AF_T *x, long long ld,
                                       const int *labels, const int *index, int D,
                                       float *to_weights, const float *weights)
{
    const long long k = blockIdx.x;
    const int n = index[k];
    for (int d = threadIdx.x; d < D; d += blockDim.x)
        store(to + k * D + d, n < 0 ? 0.0f : load(x + (long long)n * ld + d));
    if (threadIdx.x == 0)
        to_labels[k] = n < 0 ? -100 : labels[n];
    if (threadIdx.x == 0 && to_weights)
        to_weights[k] = n < 0 ? 0.0f : weights[n];
}

/* to[n] = x[slot[n]], zeros without one. One block per row. */
extern "C" __global__ void head_scatter(AF_T *to, long long ld, const AF_T *x, const int *slot,
                                        int D)
{
    const long long n = blockIdx.x;
    const int k = slot[n];
    for (int d = threadIdx.x; d < D; d += blockDim.x)
        store(to + n * ld + d, k < 0 ? 0.0f : load(x + (long long)k * D + d));
}

/* rows[n] = loss and hit of row n, and its row_stats (or NULL), three more values. */
extern "C" __global__ void head_rows_out(float *rows, const float *row_loss, const float *row_hit,
                                         const int *slot, long long N, const float *row_stats)
{
    const int columns = row_stats ? 5 : 2;
    for (long long n = blockIdx.x * 256ll + threadIdx.x; n < N; n += gridDim.x * 256ll) {
        const int k = slot[n];
        rows[columns * n] = k < 0 ? 0.0f : row_loss[k];
        rows[columns * n + 1] = k < 0 ? 0.0f : row_hit[k];
        for (int i = 0; i < 3 && row_stats; i++)
            rows[columns * n + 2 + i] = k < 0 ? 0.0f : row_stats[3 * k + i];
    }
}

/* HEAD_WEIGH: y[n] = x[n] weights[n]. One block per row. */
extern "C" __global__ void head_weigh(AF_T *y, long long y_ld, const AF_T *x, long long x_ld,
                                      const float *weights, int D)
{
    const long long n = blockIdx.x;
    const float w = weights[n];
    for (int d = threadIdx.x; d < D; d += blockDim.x)
        store(y + n * y_ld + d, load(x + n * x_ld + d) * w);
}
