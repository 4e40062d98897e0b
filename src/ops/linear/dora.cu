/* dora.cu - row norms of an adapted weight: out[o] = |W[o] + scale B[o] A|.
 * Contract: linear.c (DORA_NORM). Built with AF_T (the weight's type) and AF_VEC (values of one
 * access). A block has ROWS rows, so that A is read once for all of them; their rows of scale B
 * are in shared memory, [ranks][ROWS]. Sums are f32 in a fixed order. */
// variants: AF_T=bf16,float,half AF_VEC=4,1
#include "dev.cuh"

#define ROWS    8 /* as in dora_cuda.c */
#define THREADS 128

struct dora_part {
    int out_from, out_rows, rank_from, rank;
    float scale;
    int pad;
    long long at; /* of the part's B in b */
};
struct dora_parts {
    dora_part part[4];
};

/* Rows from0 .. of scale B into `by`; the first and last rank that one of them has. */
DEV int2 fill_factors(float *by, const float *b, i64 from0, int here, int ranks, int parts,
                      const dora_parts &p)
{
    int2 used = {ranks, 0};
    for (int i = threadIdx.x; i < ranks * ROWS; i += THREADS)
        by[i] = 0.0f;
    for (int k = 0; k < parts; k++) {
        const dora_part q = p.part[k];
        __syncthreads();
        if (from0 >= q.out_from + q.out_rows || from0 + here <= q.out_from)
            continue;
        used = {min(used.x, q.rank_from), max(used.y, q.rank_from + q.rank)};
        for (int i = threadIdx.x; i < q.rank * here; i += THREADS) {
            const i64 o = from0 + i / q.rank - q.out_from;
            if (o >= 0 && o < q.out_rows)
                by[(q.rank_from + i % q.rank) * ROWS + i / q.rank] +=
                    q.scale * b[q.at + o * q.rank + i % q.rank];
        }
    }
    __syncthreads();
    return used;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    dora_norm(float *out, const AF_T *w, long long ld, long long from, long long rows, long long I,
              const float *a, const float *b, int ranks, int parts, dora_parts p)
{
    extern __shared__ __align__(16) float by[];
    const i64 r0 = (i64)blockIdx.x * ROWS;
    const int here = (int)min((i64)ROWS, rows - r0);
    const int2 used = fill_factors(by, b, from + r0, here, ranks, parts, p);
    float sum[ROWS] = {};
    for (i64 i = threadIdx.x * AF_VEC; i < I; i += THREADS * AF_VEC) {
        float v[ROWS][AF_VEC] = {};
#pragma unroll 4
        for (int r = used.x; r < used.y; r++) {
            float x[AF_VEC], f[ROWS];
            load_n(x, a + r * I + i);
            load_n(f, by + r * ROWS);
#pragma unroll
            for (int j = 0; j < ROWS; j++)
#pragma unroll
                for (int k = 0; k < AF_VEC; k++)
                    v[j][k] = fmaf(f[j], x[k], v[j][k]);
        }
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            float x[AF_VEC];
            load_n(x, w + (r0 + min(j, here - 1)) * ld + i);
#pragma unroll
            for (int k = 0; k < AF_VEC; k++)
                sum[j] = fmaf(x[k] + v[j][k], x[k] + v[j][k], sum[j]);
        }
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        const float all = block_sum(sum[j]);
        if (threadIdx.x == 0 && j < here)
            out[from + r0 + j] = sqrtf(all);
    }
}
