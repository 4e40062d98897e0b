/* moe_sm90.cuh - shared by the GEMMs over slots on Hopper (moe_sm90.cu, moe_sm90_dw.cu).
 *
 * A block stays on its multiprocessor and takes one tile of one expert after another; how many
 * there are is known on the device only, so nothing waits for the host. Two warpgroups compute, the
 * third fetches stages of 64 of the inner dimension ahead of them. Rows that are anywhere in memory
 * come in pieces of 16 bytes, everything else in boxes by the copy engine. Built with AF_BN,
 * columns of a tile: 256, or 64 for the halves of adapters. Sums are f32, in an order that does not
 * depend on the other experts. */
#ifndef AF_MOE_SM90_CUH
#define AF_MOE_SM90_CUH
#include "tma.cuh"
#include "wgmma.cuh"

#ifndef AF_BN
#define AF_BN 256
#endif
#ifndef AF_GATHER
#define AF_GATHER 1
#endif
#define BM      128
#define BN      AF_BN
#define BK      64
#define STAGES  4
#define BOX     8192 /* bytes of 64 x 64 */
#define A_BYTES (2 * BOX)
#define B_BYTES (BN / 64 * BOX)
#define STAGE   (A_BYTES + B_BYTES)
#define FETCH   128 /* threads of the warpgroup that fetches */

extern __shared__ u8 raw[];

struct shared_layout {
    u32 stage, full, free;
    int *start; /* a copy: [X+1] */
};
#if SM90
DEV u32 full_of(const shared_layout &s, u32 no) { return s.full + no % STAGES * 8; }
DEV u32 free_of(const shared_layout &s, u32 no) { return s.free + no % STAGES * 8; }
DEV u32 stage_of(const shared_layout &s, u32 no) { return s.stage + no % STAGES * STAGE; }

/* Stage `no` may be written. */
DEV void wait_free(const shared_layout &s, u32 no)
{
    bar_wait(free_of(s, no), no / STAGES & 1 ^ 1);
}
/* Stage `no` may be read, by wgmma too. */
DEV void wait_full(const shared_layout &s, u32 no)
{
    bar_wait(full_of(s, no), no / STAGES & 1);
    if (AF_GATHER)
        fence_async();
}
/* This warp has no more use for stage `no`. */
DEV void release(const shared_layout &s, u32 no)
{
    if (threadIdx.x % 32 == 0)
        bar_arrive(free_of(s, no));
}
DEV shared_layout shared_begin(const int *start, int X)
{
    const u32 base = (smem_at(raw) + 1023) & ~1023u, bars = base + STAGES * STAGE;
    const shared_layout s = {base, bars, bars + STAGES * 8,
                             (int *)(raw + (bars + STAGES * 16 - smem_at(raw)))};
    for (int e = threadIdx.x; e <= X; e += blockDim.x)
        s.start[e] = start[e];
    if (threadIdx.x == 0)
        for (int i = 0; i < STAGES; i++) {
            bar_init(s.full + i * 8, AF_GATHER ? 1 + FETCH : 1);
            bar_init(s.free + i * 8, 8);
        }
    bars_ready();
    __syncthreads();
    return s;
}
#endif
#endif
