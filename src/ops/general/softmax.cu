/* softmax.cu - softmax and log-softmax over rows, layer norm, fake quantisation: one block per row
 * (or group), which is read from memory once and, where it is short, from cache after that.
 * Contracts: softmax.c, layernorm.c, fakequant.c; twins: their _cpu.c. Built with AF_T, AF_W (the
 * scales of layer norm) and AF_VEC (values of one access; 1 = no alignment asked). In place works
 * where the contract allows it: a value is read by the thread that overwrites it. */
// variants: AF_T=bf16 AF_W=bf16,float AF_VEC=8,1 | AF_T=float AF_W=bf16,float AF_VEC=4,1
//      | AF_T=half AF_W=half,float AF_VEC=8,1
#include "dev.cuh"

#ifndef AF_W
#define AF_W AF_T
#endif
#define ROW_LOOP for (int d = threadIdx.x * AF_VEC; d < D; d += blockDim.x * AF_VEC)
#define EACH(k)  _Pragma("unroll") for (int k = 0; k < AF_VEC; k++)

/* A thread's largest value and its sum come from one pass: the sum is scaled where the value grows.
 */
extern "C" __global__ void softmax_fwd(AF_T *y, const AF_T *x, int D, int log)
{
    x += (i64)blockIdx.x * D;
    y += (i64)blockIdx.x * D;
    float top = -INF, sum = 0.0f, v[AF_VEC];
    ROW_LOOP
    {
        load_n(v, x + d);
        float next = top;
        EACH(k) next = fmaxf(next, v[k]);
        if (next > top) {
            sum *= expf(top - next);
            top = next;
        }
        const float from = top == -INF ? 0.0f : top;
        EACH(k) sum += expf(v[k] - from);
    }
    const float all = block_max(top);
    sum = block_sum(sum == 0.0f ? 0.0f : sum * expf(top - all));
    const float shift = logf(sum), inv = 1.0f / sum;
    ROW_LOOP
    {
        load_n(v, x + d);
        EACH(k) v[k] = log ? v[k] - all - shift : expf(v[k] - all) * inv;
        store_n(y + d, v);
    }
}
extern "C" __global__ void softmax_bwd(AF_T *dx, const AF_T *y, const AF_T *dy, int D, int log)
{
    const i64 at = (i64)blockIdx.x * D;
    float sum = 0.0f, v[AF_VEC], g[AF_VEC];
    ROW_LOOP
    {
        load_n(g, dy + at + d);
        if (!log)
            load_n(v, y + at + d);
        EACH(k) sum += log ? g[k] : g[k] * v[k];
    }
    sum = block_sum(sum);
    ROW_LOOP
    {
        load_n(g, dy + at + d);
        load_n(v, y + at + d);
        EACH(k) g[k] = log ? g[k] - expf(v[k]) * sum : v[k] * (g[k] - sum);
        store_n(dx + at + d, g);
    }
}

extern "C" __global__ void layernorm_fwd(AF_T *y, float *mean, float *rstd, const AF_T *x,
                                         const AF_W *w, const AF_W *b, int D, float eps)
{
    const i64 at = (i64)blockIdx.x * D;
    float sum = 0.0f, square = 0.0f, v[AF_VEC], by[AF_VEC], plus[AF_VEC];
    ROW_LOOP
    {
        load_n(v, x + at + d);
        EACH(k) sum += v[k];
    }
    const float m = block_sum(sum) / D;
    ROW_LOOP
    {
        load_n(v, x + at + d);
        EACH(k) square += (v[k] - m) * (v[k] - m);
    }
    const float r = rsqrtf(block_sum(square) / D + eps);
    ROW_LOOP
    {
        load_n(v, x + at + d);
        load_n(by, w + d);
        load_n(plus, b + d);
        EACH(k) v[k] = (v[k] - m) * r * by[k] + plus[k];
        store_n(y + at + d, v);
    }
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
    float q = 0.0f, qh = 0.0f, v[AF_VEC], g[AF_VEC], by[AF_VEC];
    ROW_LOOP
    {
        load_n(v, x + at + d);
        load_n(g, dy + at + d);
        load_n(by, w + d);
        EACH(k)
        {
            q += g[k] * by[k];
            qh += g[k] * by[k] * (v[k] - m) * r;
        }
    }
    q = block_sum(q) / D;
    qh = block_sum(qh) / D;
    ROW_LOOP
    {
        load_n(v, x + at + d);
        load_n(g, dy + at + d);
        load_n(by, w + d);
        EACH(k) v[k] = r * (g[k] * by[k] - q - (v[k] - m) * r * qh);
        store_n(dx + at + d, v);
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

/* Block g: elements g*len ..; one scale (and zero point) from their range, which contains 0. The
 * codes are those of division in double, which f32 decides but near an edge between two codes
 * (quotients of up to 2^16 are within 0.01): weights in bf16 often lie on one. */
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
    double scale = 1.0, zero = 0.0, from = 0.0, to = levels - 1.0f;
    if (symmetric) {
        from = -levels / 2;
        to = levels / 2 - 1.0f;
        const float top = fmaxf(high, -low);
        scale = top > 0.0f ? top / to : 1.0;
    } else {
        scale = high > low ? ((double)high - low) / to : 1.0;
        zero = rint(-low / scale);
    }
    const float near = (float)scale;
    for (i64 i = threadIdx.x; i < len; i += blockDim.x) {
        const float v = load(x + at + i), q = v / near;
        double code = rintf(q);
        if (fabsf(fabsf(q - rintf(q)) - 0.5f) < 0.02f)
            code = rint(v / scale);
        code += zero;
        mask[at + i] = code >= from && code <= to;
        store(y + at + i, (float)(scale * (fmin(fmax(code, from), to) - zero)));
    }
}
extern "C" __global__ void fake_quant_bwd(AF_T *dx, const unsigned char *mask, const AF_T *dy,
                                          long long n)
{
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n;
         i += (i64)gridDim.x * blockDim.x)
        store(dx + i, mask[i] ? load(dy + i) : 0.0f);
}
