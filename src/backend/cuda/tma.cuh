/* tma.cuh - Hopper's copy engine, the barriers in shared memory it arrives at, and the registers of
 * warps that only fetch. */
#ifndef AF_TMA_CUH
#define AF_TMA_CUH
#include "dev.cuh"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SM90 1
#else
#define SM90 0
#endif

/* A matrix as the copy engine sees it, in boxes of 64 rows and 64 columns: 128-byte swizzle. */
struct __align__(64) af_map { u64 word[16]; };

#if SM90
/* ---- barriers; a phase ends when all that are counted have arrived ---- */
DEV void bar_init(u32 bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
DEV void bar_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
/* Arrives, and announces bytes that the copy engine will bring. */
DEV void bar_expect(u32 bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                 "r"(bytes)
                 : "memory");
}
DEV void bar_wait(u32 bar, u32 parity)
{
    u32 done;
    do
        asm volatile("{\n.reg .pred p;\n"
                     "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(done)
                     : "r"(bar), "r"(parity)
                     : "memory");
    while (!done);
}
/* The box whose first column and row are given. */
DEV void fetch_box(u32 to, const af_map *map, int col, int row, u32 bar)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(bar)
                 : "memory");
}
/* The same box for the blocks of the cluster in `blocks`, a bit for each, at the same address. */
DEV void fetch_box_for_all(u32 to, const af_map *map, int col, int row, u32 bar, int blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
                 "l"(map), "r"(col), "r"(row), "r"(bar), "h"((u16)blocks)
                 : "memory");
}
/* The reverse: what of the box is inside the matrix is written. Copies of a thread are grouped by
 * stores_commit; stores_read waits until all but the last N groups have been read, stores_done
 * until all are written. */
DEV void store_box(const af_map *map, int col, int row, u32 from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group "
                 "[%0, {%1, %2}], [%3];" ::"l"(map),
                 "r"(col), "r"(row), "r"(from)
                 : "memory");
}
DEV void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int N> DEV void stores_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
DEV void stores_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
/* Four matrices of 8 x 8 bf16; lane i gives the address of row i % 8 of matrix i / 8. */
DEV void stmatrix4(u32 at, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}
/* The threads of a warpgroup have come here. */
DEV void group_meet(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }
/* Arrives at the barrier of another block of the cluster. */
DEV void bar_arrive_at(u32 bar, int rank)
{
    asm volatile("{\n.reg .b32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [at];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}
/* Arrives when the copies this thread has asked for (copy16) are done. What they wrote becomes
 * visible to wgmma with a fence_async of the reader. */
DEV void bar_arrive_copied(u32 bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
/* What bar_init did is seen by the copy engine. */
DEV void bars_ready() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
/* 168 registers a thread at 384 threads: the warps that compute take what those that fetch do not
 * need. What is given and what is taken must add up. */
template <int N> DEV void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> DEV void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
/* Number of the warpgroup: uniform, and seen to be. */
DEV int group_of() { return __shfl_sync(FULL, threadIdx.x / 128, 0); }
#endif
#endif
