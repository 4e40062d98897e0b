/* dora.cu - row norms of an adapted weight: out[o] = |W[o] + scale B[o] A|.
 * Contract: linear.c (DORA_NORM).  Built with AF_T (the weight's type).  One block per row of the
 * piece; A is read from cache, sums are f32 in a fixed order. */
// variants: AF_T=bf16,float,half
#include "dev.cuh"

struct dora_part {
    int out_from, out_rows, rank_from, rank;
    float scale;
    int pad;
    long long at; /* of the part's B in b */
};
struct dora_parts {
    dora_part part[4];
};

extern "C" __global__ void __launch_bounds__(256)
    dora_norm(float *out, const AF_T *w, long long ld, long long from, long long I, const float *a,
              const float *b, int parts, dora_parts p)
{
    const long long row = blockIdx.x, o = from + row;
    w += row * ld;
    float sum = 0.0f;
    for (long long i = threadIdx.x; i < I; i += 256) {
        float v = load(w + i);
        for (int k = 0; k < parts; k++) {
            const dora_part q = p.part[k];
            if (o < q.out_from || o >= q.out_from + q.out_rows)
                continue;
            const float *br = b + q.at + (o - q.out_from) * q.rank;
            float s = 0.0f;
            for (int r = 0; r < q.rank; r++)
                s = fmaf(br[r], a[(q.rank_from + r) * I + i], s);
            v = fmaf(q.scale, s, v);
        }
        sum = fmaf(v, v, sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[o] = sqrtf(sum);
}
