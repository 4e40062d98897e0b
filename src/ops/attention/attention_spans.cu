/* attention_spans.cu - before cuDNN's attention: where sequences lie, in the form it reads, and
 * zeros in the rows after the last one, which it does not write. Contract: attention.c; any grid.
 */
#include "dev.cuh"

extern "C" __global__ void attention_spans(long long *at_qkv, long long *at_o, long long *at_lse,
                                           int *length, bf16 *o, float *lse, const int *bounds,
                                           int S, int N, int H, int E, long long ld_qkv,
                                           long long ld_o)
{
    const i64 me = (i64)blockIdx.x * blockDim.x + threadIdx.x, all = (i64)gridDim.x * blockDim.x;
    const int end = bounds[S], width = H * E / 8;
    for (i64 s = me; s <= S; s += all) {
        const i64 row = bounds[s];
        at_qkv[s] = row * ld_qkv;
        at_o[s] = row * ld_o;
        at_lse[s] = row * H;
        if (s < S)
            length[s] = bounds[s + 1] - (int)row;
    }
    for (i64 i = me; i < (i64)(N - end) * width; i += all) {
        const float zero[8] = {};
        store_n(o + (end + i / width) * ld_o + i % width * 8, zero);
    }
    for (i64 i = me; i < (i64)(N - end) * H; i += all)
        lse[(i64)end * H + i] = 0.0f;
}
