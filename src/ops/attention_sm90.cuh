/* attention_sm90.cuh - shared by the Hopper attention kernels: tiles of 128 owned rows, products of a
 * warpgroup's 64 rows with BN streamed ones (defined before), results through shared memory. */
#ifndef AF_ATTENTION_SM90_CUH
#define AF_ATTENTION_SM90_CUH
#include "attention.cuh"
#include "wgmma.cuh"

#ifndef AF_EP
#define AF_EP 128
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define SM90 1
#else
#define SM90 0
#endif
#define OWN 128 /* rows of a block */
#define KS (AF_EP / 16)
#define OACC (AF_EP / 2) /* accumulators of [64][EP] */
#define SACC (BN / 2)
#define OWN_BYTES (OWN * AF_EP * 2)
#define TILE_BYTES (BN * AF_EP * 2)

#define THREADS 384 /* two warpgroups compute, the third fetches */
#define USERS 256

extern __shared__ u8 raw[];

/* Shared memory from its first multiple of 1024. */
DEV u32 shared_base() { return (smem_at(raw) + 1023) & ~1023u; }

/* ---- barriers in shared memory; a phase ends when all that are counted have arrived ---- */
#if SM90
DEV void bar_init(u32 bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
DEV void bar_arrive(u32 bar)
{
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
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
/* The warpgroups' turns: barrier id counts those who wait for their turn and those who pass it on. */
DEV void turn_wait(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
DEV void turn_pass(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }
/* The two warpgroups that compute, without the one that fetches. */
DEV void users_meet() { asm volatile("bar.sync 3, 256;" ::: "memory"); }
/* 168 registers a thread are there: those who compute take what those who fetch do not need. */
DEV void registers_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); }
DEV void registers_up() { asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"); }
#endif

/* Rows [row0, row0 + R) of a head, by T threads of which this is number `me`; rows from `end` on are
 * zeros. */
template <int R, int T> DEV void load_tile(u32 tile, const bf16 *src, i64 ld, int row0, int end, int me)
{
    constexpr int C = AF_EP / 8, STEP = T / C; /* rows between a thread's pieces */
    const int r = me / C, c = me % C;
    const bf16 *from = src + (i64)(row0 + r) * ld + c * 8;
    const int left = end - row0 - r;
#pragma unroll
    for (int u = 0; u < R / STEP; u++) {
        const bool in = u * STEP < left;
        copy16(tile + piece_at<R>(r + u * STEP, c), in ? from + u * STEP * ld : src, in ? 16 : 0);
    }
}

/* The warpgroup's accumulators times f, through its rows of an owned tile, to device memory. */
DEV void store_rows(bf16 *dst, i64 ld, u32 tile, const float (&acc)[OACC], float f0, float f1,
                    int row0, int end)
{
    const int lane = threadIdx.x % 32, mine = threadIdx.x / 32 * 16; /* rows of this warp */
#pragma unroll
    for (int j = 0; j < AF_EP / 8; j++) {
        const u32 a = pack_bf16(acc[4 * j] * f0, acc[4 * j + 1] * f0);
        const u32 b = pack_bf16(acc[4 * j + 2] * f1, acc[4 * j + 3] * f1);
        const int r = mine + lane / 4;
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece_at<OWN>(r, j) + lane % 4 * 4),
                     "r"(a)
                     : "memory");
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(tile + piece_at<OWN>(r + 8, j) + lane % 4 * 4),
                     "r"(b)
                     : "memory");
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < AF_EP / 16; u++) {
        const int i = u * 32 + lane, r = mine + i / (AF_EP / 8), c = i % (AF_EP / 8);
        uint4 v;
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "r"(tile + piece_at<OWN>(r, c)));
        if (row0 + r < end)
            *(uint4 *)(dst + (i64)(row0 + r) * ld + c * 8) = v;
    }
}

/* d[64][N] = own rows times tile^T over the head */
template <int N> DEV void scores(float (&d)[N], u32 own, u32 tile)
{
#pragma unroll
    for (int k = 0; k < KS; k++)
        wgmma_ss(d, desc_k<OWN>(own, k), desc_k<BN>(tile, k), k > 0);
}
/* acc[64][EP] += p[64][BN] tile, p packed as operands */
DEV void add_product(float (&acc)[OACC], const u32 (&p)[BN / 16][4], u32 tile)
{
#pragma unroll
    for (int k = 0; k < BN / 16; k++)
        wgmma_rs(acc, p[k], desc_mn<BN>(tile, k));
}
DEV void pack_operand(u32 (&p)[BN / 16][4], const float (&s)[SACC])
{
#pragma unroll
    for (int k = 0; k < BN / 16; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[k][i] = pack_bf16(s[8 * k + 2 * i], s[8 * k + 2 * i + 1]);
}
#endif
