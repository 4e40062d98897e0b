/* noise.cu - uniform noise on embeddings while training.  Contract: noise.c; twin: noise_cpu.c.
 *
 * Built with AF_T.  One block per row; x is read once, y written once (they may be the same). */
// variants: AF_T=bf16,float,half
#include "dev.cuh"

extern "C" __global__ void noise(AF_T *y, const AF_T *x, const int *bounds, const unsigned *clock,
                                 unsigned long long stream, double alpha, int S, int D,
                                 long long ldy, long long ldx)
{
    const i64 row = blockIdx.x;
    const u64 seed = clock[0] | (u64)clock[1] << 32;
    u64 z = ((clock[2] | (u64)clock[3] << 32) + 1) * 0x9E3779B97F4A7C15ull; /* dropout.h */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    stream ^= z ^ (z >> 31);
    /* the sequence of this row: the first s with row < bounds[s + 1] */
    int low = 0, high = S;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (bounds[mid + 1] <= row)
            low = mid + 1;
        else
            high = mid;
    }
    const int L = low < S ? bounds[low + 1] - bounds[low] : 0;
    const bool off = L == 0 || clock[3] >> 31; /* no sequence, or evaluating */
    const float size = off ? 0.0f : (float)(alpha / sqrt((double)L * (double)D));
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        const u64 i = (u64)row * D + d;
        const philox r = philox_block(seed, stream, i / 4);
        const float u = (float)(r.w[i % 4] >> 8) * 0x1p-24f;
        store(y + row * ldy + d, load(x + row * ldx + d) + (2.0f * u - 1.0f) * size);
    }
}
