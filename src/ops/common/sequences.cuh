/* sequences.cuh - rows of a batch of sequences. */
#ifndef AF_SEQUENCES_CUH
#define AF_SEQUENCES_CUH
#include "dev.cuh"

/* The sequence of row n, or -1. */
DEV int sequence_of(const int *bounds, int S, int n)
{
    if (S < 1 || n < bounds[0] || n >= bounds[S])
        return -1;
    int lo = 0, hi = S; /* the last s with bounds[s] <= n */
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        if (bounds[mid] <= n)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
#endif
