/* softmax.cu - softmax and log-softmax over rows, layer norm, fake quantisation: one block per row
 * (or group), which is read from memory once and from cache after that. Contracts: softmax.c,
 * layernorm.c, fakequant.c; twins: their _cpu.c. Built with AF_T and AF_W (the scales of layer
 * norm). In place works where the contract allows it: a value is read by the thread that overwrites
 * it. */
// variants: AF_T=bf16,float AF_W=bf16,float | AF_T=half AF_W=half,float
#include "dev.cuh"

#ifndef AF_W
#define AF_W AF_T
#endif
#define ROW_LOOP for (int d = threadIdx.x; d < D; d += blockDim.x)

extern "C" __global__ void softmax_fwd(AF_T *y, const AF_T *x, int D, int log)
{
    x += (i64)blockIdx.x * D;
    y += (i64)blockIdx.x * D;
    float top = -INF, sum = 0.0f;
    ROW_LOOP top = fmaxf(top, load(x + d));
    top = block_max(top);
    ROW_LOOP sum += expf(load(x + d) - top);
    sum = block_sum(sum);
    const float shift = logf(sum), inv = 1.0f / sum;
    ROW_LOOP
    {
        const float v = load(x + d) - top;
        store(y + d, log ? v - shift : expf(v) * inv);
    }
}
extern "C" __global__ void softmax_bwd(AF_T *dx, const AF_T *y, const AF_T *dy, int D, int log)
{
    const i64 at = (i64)blockIdx.x * D;
    float sum = 0.0f;
    ROW_LOOP sum += load(dy + at + d) * (log ? 1.0f : load(y + at + d));
    sum = block_sum(sum);
    ROW_LOOP
    {
        const float v = load(y + at + d), g = load(dy + at + d);
        store(dx + at + d, log ? g - expf(v) * sum : v * (g - sum));
    }
}

extern "C" __global__ void layernorm_fwd(AF_T *y, float *mean, float *rstd, const AF_T *x,
                                         const AF_W *w, const AF_W *b, int D, float eps)
{
    const i64 at = (i64)blockIdx.x * D;
    float sum = 0.0f, square = 0.0f;
    ROW_LOOP sum += load(x + at + d);
    const float m = block_sum(sum) / D;
    ROW_LOOP
    {
        const float v = load(x + at + d) - m;
        square += v * v;
    }
    const float r = rsqrtf(block_sum(square) / D + eps);
    ROW_LOOP store(y + at + d, (load(x + at + d) - m) * r * load(w + d) + load(b + d));
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = m;
        rstd[blockIdx.x] = r;
    }
}
extern "C" __global__ void layernorm_bwd(AF_T *dx, const AF_T *x, const AF_W *w, const float *mean,
                                         const float *rstd, const AF_T *dy, int D)
{
    const i64 at = (i64)blockIdx.x * D;
    const float m = mean[blockIdx.x], r = rstd[blockIdx.x];
    float q = 0.0f, qh = 0.0f;
    ROW_LOOP
    {
        const float g = load(dy + at + d) * load(w + d);
        q += g;
        qh += g * (load(x + at + d) - m) * r;
    }
    q = block_sum(q) / D;
    qh = block_sum(qh) / D;
    ROW_LOOP
    {
        const float g = load(dy + at + d) * load(w + d), h = (load(x + at + d) - m) * r;
        store(dx + at + d, r * (g - q - h * qh));
    }
}
/* Thread d, rows blockIdx.y*per ..: part[p][0][d] of dw, part[p][1][d] of db. */
extern "C" __global__ void layernorm_dw(float *part, const AF_T *x, const float *mean,
                                        const float *rstd, const AF_T *dy, long long rows, int D,
                                        long long per)
{
    const int d = blockIdx.x * blockDim.x + threadIdx.x;
    if (d >= D)
        return;
    const i64 to = min(rows, (blockIdx.y + 1) * per);
    float dw = 0.0f, db = 0.0f;
    for (i64 n = blockIdx.y * per; n < to; n++) {
        const float g = load(dy + n * D + d);
        dw += g * (load(x + n * D + d) - mean[n]) * rstd[n];
        db += g;
    }
    part[(i64)blockIdx.y * 2 * D + d] = dw;
    part[(i64)blockIdx.y * 2 * D + D + d] = db;
}

/* Block g: elements g*len ..; one scale (and zero point) from their range, which contains 0. */
extern "C" __global__ void fake_quant(AF_T *y, unsigned char *mask, const AF_T *x, long long len,
                                      float levels, int symmetric)
{
    const i64 at = blockIdx.x * len;
    float low = 0.0f, high = 0.0f;
    for (i64 i = threadIdx.x; i < len; i += blockDim.x) {
        low = fminf(low, load(x + at + i));
        high = fmaxf(high, load(x + at + i));
    }
    low = -block_max(-low);
    high = block_max(high);
    float scale = 1.0f, zero = 0.0f, from = 0.0f, to = levels - 1.0f;
    if (symmetric) {
        from = -levels / 2;
        to = levels / 2 - 1.0f;
        const float top = fmaxf(high, -low);
        scale = top > 0.0f ? top / to : 1.0f;
    } else {
        scale = high > low ? (high - low) / to : 1.0f;
        zero = rintf(-low / scale);
    }
    for (i64 i = threadIdx.x; i < len; i += blockDim.x) {
        const float q = rintf(load(x + at + i) / scale) + zero;
        mask[at + i] = q >= from && q <= to;
        store(y + at + i, scale * (fminf(fmaxf(q, from), to) - zero));
    }
}
extern "C" __global__ void fake_quant_bwd(AF_T *dx, const unsigned char *mask, const AF_T *dy,
                                          long long n)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        store(dx + i, mask[i] ? load(dy + i) : 0.0f);
}
