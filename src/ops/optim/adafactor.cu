/* adafactor.cu - Adafactor. Contract and twin: adafactor_cpu.c; launcher: adafactor_cuda.c.
 *
 * w [batches][R][C], moments row [batches][R], col [batches][C]; a vector has R = 1 and its squares
 * in row [C] (`vector`). All buffers are f32. Decay of the moments: b = 1 - step^-power. Sums are
 * over fixed ranges in a fixed order. Built with AF_VEC: values of one access, which divide C. */
// variants: AF_VEC=4,1
// common: AF_VEC=4
#include "dev.cuh"

#define STATS_CLIP   1
#define STATS_FINITE 2
#define WARPS        8 /* of adafactor_cols */

DEV float new_weight(const float *hyper, float power) { return powf(hyper[3], -power); } /* 1 - b */

/* Block r: row[r] = b row[r] + (1-b) mean_c (g^2 + eps). */
extern "C" __global__ void adafactor_rows(float *row, const float *grads, const float *hyper,
                                          const float *stats, long long C, float power, float eps)
{
    if (stats[STATS_FINITE] != 1.0f)
        return;
    const float f = new_weight(hyper, power), clip = stats[STATS_CLIP];
    float sum = 0.0f;
    for (i64 c = threadIdx.x * AF_VEC; c < C; c += blockDim.x * AF_VEC) {
        float g[AF_VEC];
        load_n(g, grads + blockIdx.x * C + c);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum += g[k] * clip * (g[k] * clip) + eps;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        row[blockIdx.x] = (1.0f - f) * row[blockIdx.x] + f * (sum / C);
}
/* Thread c of a vector. */
extern "C" __global__ void adafactor_squares(float *row, const float *grads, const float *hyper,
                                             const float *stats, long long C, float power,
                                             float eps)
{
    const i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (stats[STATS_FINITE] != 1.0f || c >= C)
        return;
    const float f = new_weight(hyper, power), g = grads[c] * stats[STATS_CLIP];
    row[c] = (1.0f - f) * row[c] + f * (g * g + eps);
}
/* part[y][z][c] = sum of g^2 + eps of batch z, rows y*per ..; a warp has 32 AF_VEC columns and
 * every WARPS-th row, their sums are added up in order. */
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    adafactor_cols(float *part, const float *grads, const float *stats, long long R, long long C,
                   long long per, float eps)
{
    __shared__ float sums[WARPS][AF_VEC][32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 to = min(R, (blockIdx.y + 1) * per), c0 = (i64)blockIdx.x * (32 * AF_VEC);
    const i64 c = c0 + lane * AF_VEC;
    const float clip = stats[STATS_CLIP];
    grads += blockIdx.z * R * C;
    float sum[AF_VEC] = {};
    if (c < C) {
#pragma unroll 4
        for (i64 r = blockIdx.y * per + warp; r < to; r += WARPS) {
            float g[AF_VEC];
            load_n(g, grads + r * C + c);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[k] += g[k] * clip * (g[k] * clip) + eps;
        }
    }
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        sums[warp][k][lane] = sum[k];
    __syncthreads();
    part += ((i64)blockIdx.y * gridDim.z + blockIdx.z) * C;
    for (int i = threadIdx.x; i < 32 * AF_VEC; i += blockDim.x) {
        float all = 0.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++)
            all += sums[w][i % AF_VEC][i / AF_VEC];
        if (c0 + i < C)
            part[c0 + i] = all;
    }
}
/* Thread c of all batches' columns: the new col[c] from `parts` sums, and by_col = 1 / sqrt(col).
 */
extern "C" __global__ void adafactor_join(float *col, float *by_col, const float *part, int parts,
                                          const float *hyper, const float *stats, long long n,
                                          long long R, float power)
{
    const i64 c = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (stats[STATS_FINITE] != 1.0f || c >= n)
        return;
    const float f = new_weight(hyper, power);
    float sum = 0.0f;
    for (int p = 0; p < parts; p++)
        sum += part[p * n + c];
    const float now = (1.0f - f) * col[c] + f * (sum / R);
    col[c] = now;
    by_col[c] = 1.0f / sqrtf(now);
}
/* Block b: by_row = 1 / sqrt(row / mean of the batch's rows). */
extern "C" __global__ void adafactor_by_row(float *by_row, const float *row, long long R)
{
    float sum = 0.0f;
    row += blockIdx.x * R;
    for (i64 r = threadIdx.x; r < R; r += blockDim.x)
        sum += row[r];
    const float mean = block_sum(sum) / R;
    for (i64 r = threadIdx.x; r < R; r += blockDim.x)
        by_row[blockIdx.x * R + r] = 1.0f / sqrtf(row[r] / mean);
}

/* u of AF_VEC neighbours: of column c of row r (of all batches), or of a vector. */
DEV void update_of(float (&u)[AF_VEC], const float *grads, const float *row, const float *by_row,
                   const float *by_col, float clip, i64 r, i64 c, i64 R, i64 C, int vector)
{
    float f[AF_VEC];
    load_n(u, grads + r * C + c);
    load_n(f, vector ? row + c : by_col + (r < R ? 0 : r / R * C) + c);
    const float by = vector ? clip : clip * by_row[r];
#pragma unroll
    for (int k = 0; k < AF_VEC; k++)
        u[k] = u[k] * by * (vector ? 1.0f / sqrtf(f[k]) : f[k]);
}
/* Blocks take rows in turn. */
#define EACH_UPDATE(rows)                                                                          \
    for (i64 r = blockIdx.x; r < (rows); r += gridDim.x)                                           \
        for (i64 c = threadIdx.x * AF_VEC; c < C; c += blockDim.x * AF_VEC)

/* part[block] = the sum of its u^2. */
extern "C" __global__ void adafactor_parts(float *part, const float *grads, const float *row,
                                           const float *by_row, const float *by_col,
                                           const float *stats, long long rows, long long R,
                                           long long C, int vector)
{
    float sum = 0.0f, u[AF_VEC];
    EACH_UPDATE(rows)
    {
        update_of(u, grads, row, by_row, by_col, stats[STATS_CLIP], r, c, R, C, vector);
#pragma unroll
        for (int k = 0; k < AF_VEC; k++)
            sum += u[k] * u[k];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        part[blockIdx.x] = sum;
}
/* w -= lr wd w + lr u / max(1, rms(u) / threshold); every block sums the parts itself, in order. */
extern "C" __global__ void adafactor_apply(float *w, float *grads, const float *row,
                                           const float *by_row, const float *by_col,
                                           const float *part, int parts, const float *hyper,
                                           const float *stats, long long rows, long long R,
                                           long long C, float decay, float lr_factor,
                                           float threshold, int vector)
{
    float sum = 0.0f, u[AF_VEC], v[AF_VEC];
    for (int i = threadIdx.x; i < parts; i += blockDim.x)
        sum += part[i];
    const float rms = sqrtf(block_sum(sum) / (rows * C)), cut = fmaxf(1.0f, rms / threshold);
    const float lr = hyper[0] * lr_factor, size = lr / cut;
    const bool finite = stats[STATS_FINITE] == 1.0f;
    const float none[AF_VEC] = {};
    EACH_UPDATE(rows)
    {
        if (finite) {
            update_of(u, grads, row, by_row, by_col, stats[STATS_CLIP], r, c, R, C, vector);
            load_n(v, w + r * C + c);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                v[k] -= lr * decay * v[k] + size * u[k];
            store_n(w + r * C + c, v);
        }
        store_n(grads + r * C + c, none);
    }
}
