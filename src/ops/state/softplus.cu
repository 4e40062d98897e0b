/* softplus.cu - step sizes and decays.  Contract: softplus.c; twin: softplus_cpu.c. Built with
 * AF_T. */
// variants: AF_T=bf16,half,float
// common: AF_T=bf16,float
#include "state.cuh"

/* bias, a_log [H] of any type; a_log may be NULL. */
struct softplus_args {
    const void *bias, *a_log;
    int bias_type, a_type, H;
};

DEV float softplus_of(float z) { return z > 0.0f ? z + log1pf(expf(-z)) : log1pf(expf(z)); }
DEV float softplus_factor(const softplus_args &a, int h)
{
    return a.a_log ? -expf(value(a.a_log, a.a_type, h)) : 1.0f;
}

extern "C" __global__ void softplus_fwd(float *y, const AF_T *x, softplus_args a, long long rows,
                                        long long ldy, long long ldx)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * a.H;
         i += (i64)gridDim.x * blockDim.x) {
        const i64 n = i / a.H;
        const int h = (int)(i % a.H);
        const float z = load(x + n * ldx + h) + value(a.bias, a.bias_type, h);
        y[n * ldy + h] = softplus_factor(a, h) * softplus_of(z);
    }
}

/* Block (b, p): columns 32 b .., rows [p * per, (p + 1) * per), eight at a time -> dx, and part p
 * of [2][H]: sums for the bias and for a_log. */
extern "C" __global__ void __launch_bounds__(256)
    softplus_bwd(AF_T *dx, float *part, const AF_T *x, const float *dy, softplus_args a,
                 long long rows, long long per, long long lddx, long long ldx, long long lddy)
{
    __shared__ float sums[2][8][32];
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32, h = blockIdx.x * 32 + lane;
    const i64 from = blockIdx.y * per, to = from + per < rows ? from + per : rows;
    float dbias = 0.0f, da = 0.0f;
    if (h < a.H) {
        const float f = softplus_factor(a, h), bias = value(a.bias, a.bias_type, h);
        for (i64 n = from + row; n < to; n += 8) {
            const float z = load(x + n * ldx + h) + bias, d = dy[n * lddy + h] * f;
            store(dx + n * lddx + h, d * sigmoid(z));
            dbias += d * sigmoid(z);
            da += d * softplus_of(z);
        }
    }
    sums[0][row][lane] = dbias;
    sums[1][row][lane] = da;
    __syncthreads();
    if (row < 2 && h < a.H) {
        float sum = 0.0f;
        for (int i = 0; i < 8; i++)
            sum += sums[row][i][lane];
        part[((i64)blockIdx.y * 2 + row) * a.H + h] = sum;
    }
}
