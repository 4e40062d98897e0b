/* bounds_cut.cu - sequences in pieces. Contract: bounds_cut.c; twin: bounds_cut_cpu.c.
 * One warp: each lane counts the pieces of a sequence, and the sums of the lanes before it say
 * where they go. */
#include "dev.cuh"

extern "C" __global__ void bounds_cut(int *to, const int *from, int S, int count, int chunk)
{
    const int lane = threadIdx.x;
    int done = 0;
    for (int s0 = 0; s0 < S; s0 += 32) {
        const int s = s0 + lane, low = s < S ? from[s] : 0, high = s < S ? from[s + 1] : 0;
        const int pieces = (high - low) / chunk + ((high - low) % chunk > 0);
        int up = pieces; /* of this lane and those before it */
        for (int d = 1; d < 32; d *= 2) {
            const int before = __shfl_up_sync(FULL, up, d);
            up += lane >= d ? before : 0;
        }
        for (int i = 0; i < pieces; i++)
            if (done + up - pieces + i < count)
                to[done + up - pieces + i] = low + i * chunk;
        done += __shfl_sync(FULL, up, 31);
    }
    for (int i = done + lane; i < count; i += 32)
        to[i] = from[S];
}
