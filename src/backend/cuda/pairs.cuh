/* pairs.cuh - pairs of blocks (clusters of two, Hopper) that fetch boxes for each other: the stages
 * they fill and the order of their tiles. Built with STAGES, STAGE (bytes of one), STORED (bytes
 * that follow the stages), and BAND. */
#ifndef AF_PAIRS_CUH
#define AF_PAIRS_CUH
#define AF_KS 2
#include "cluster.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

#define BM  128  /* rows of a block's tile: two warpgroups compute 64 each, the third fetches */
#define BOX 8192 /* bytes of 64 rows and 128 bytes */

extern __shared__ u8 raw[];

#if SM90
struct stages {
    u32 at, full, free;
    __device__ __forceinline__ u32 stage(u32 no) const { return at + no % STAGES * STAGE; }
    __device__ __forceinline__ u32 full_bar(u32 no) const { return full + no % STAGES * 8; }
    __device__ __forceinline__ u32 free_bar(u32 no) const { return free + no % STAGES * 8; }
    __device__ __forceinline__ void wait_full(u32 no) const
    {
        bar_wait(full_bar(no), no / STAGES & 1);
    }
    __device__ __forceinline__ void wait_free(u32 no) const
    {
        bar_wait(free_bar(no), no / STAGES & 1 ^ 1);
    }
    /* Both blocks write to a stage of both. */
    __device__ __forceinline__ void release(u32 no) const
    {
        if (threadIdx.x % 32 < AF_KS)
            bar_arrive_at(free_bar(no), threadIdx.x % 32);
    }
    /* What follows the stages. */
    __device__ __forceinline__ u32 stored() const { return at + STAGES * STAGE; }
};
DEV stages stages_begin()
{
    const u32 base = (smem_at(raw) + 1023) & ~1023u, bars = base + STAGES * STAGE + STORED;
    const stages s = {base, bars, bars + STAGES * 8};
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            bar_init(s.full + i * 8, 1);
            bar_init(s.free + i * 8, 8 * AF_KS);
        }
    bars_ready();
    cluster_meet();
    return s;
}
/* Pairs of tiles, `wide` columns each, in bands of rows: what the pairs read at a time stays in the
 * L2 cache. */
struct tiles {
    int rows, cols, wide, no; /* rows of pairs, columns of tiles */
    __device__ __forceinline__ bool next(int &row, int &col)
    {
        if (no >= rows * cols)
            return false;
        const int band = no / (BAND * cols), in = no % (BAND * cols);
        const int height = min(rows - band * BAND, BAND);
        row = ((band * BAND + in % height) * AF_KS + blockIdx.x % AF_KS) * BM;
        col = in / height * wide;
        no += gridDim.x / AF_KS;
        return true;
    }
    /* After the last of them: more columns of the same rows, for the pairs whose turn it is. */
    __device__ __forceinline__ tiles rest(int more, int width) const
    {
        return {rows, more, width, no - rows * cols};
    }
};
DEV tiles tiles_of(int M, int N, int wide)
{
    return {(M + AF_KS * BM - 1) / (AF_KS * BM), (N + wide - 1) / wide, wide,
            (int)blockIdx.x / AF_KS};
}
#endif
#endif
