/* row_adapter.cu - adapters chosen per row. Contract: row_adapter.c; twin: row_adapter_cpu.c.
 *
 * Every row reads its own adapter (which the L2 cache holds for the others that have it); sums are
 * in an order that depends on I and the rank alone. */
// variants: AF_T=bf16,half,float
// common: AF_T=bf16
#include "dev.cuh"

#define PARTS 4

/* Output columns and ranks of the parts; as in row_adapter_cuda.c. */
struct parts {
    int out_from[PARTS], out_rows[PARTS];
    int count, ranks;
};

/* Warp w of block (n, y) makes xa[n][8 y + w]. */
extern "C" __global__ void __launch_bounds__(256)
    row_down(float *xa, long long xa_ld, const AF_T *x, long long x_ld, const int *which,
             const float *a, long long a_ld, const float *scale, const int *rank, int I,
             struct parts q)
{
    previous_done();
    const int n = blockIdx.x, c = which[n], PR = q.count * q.ranks;
    const int j = blockIdx.y * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (c < 0 || j >= PR || j % q.ranks >= rank[c * q.count + j / q.ranks])
        return;
    const AF_T *row = x + n * x_ld;
    const float *w = a + ((i64)c * PR + j) * a_ld;
    float s = 0.0f;
    for (int i = lane; i < I; i += 32)
        s += load(row + i) * w[i];
    for (int d = 16; d; d >>= 1)
        s += __shfl_xor_sync(FULL, s, d);
    if (lane == 0)
        xa[n * xa_ld + j] = s * scale[c * q.count + j / q.ranks];
}

/* Thread t of block (n, y) adds to column 256 y + t of row n. */
extern "C" __global__ void __launch_bounds__(256)
    row_up(AF_T *out, long long out_ld, const AF_T *y, long long y_ld, const float *xa,
           long long xa_ld, const int *which, const float *b, long long b_ld, const int *rank,
           int O, struct parts q)
{
    previous_done();
    const int n = blockIdx.x, c = which[n], o = blockIdx.y * 256 + threadIdx.x;
    if (o >= O)
        return;
    float s = load(y + n * y_ld + o);
    i64 at = 0;
    for (int p = 0; p < q.count && c >= 0; p++) {
        const int from = o - q.out_from[p];
        if (from >= 0 && from < q.out_rows[p]) {
            const float *w = b + c * b_ld + at + (i64)from * q.ranks;
            const float *v = xa + n * xa_ld + p * q.ranks;
            for (int j = 0; j < rank[c * q.count + p]; j++)
                s += v[j] * w[j];
        }
        at += (i64)q.out_rows[p] * q.ranks;
    }
    store(out + n * out_ld + o, s);
}
