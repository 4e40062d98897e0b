/* wgmma.cuh - Hopper's warpgroup MMA (sm_90a): operands in shared memory with the 128-byte
 * swizzle.
 *
 * A tile is [rows][EP] bf16, kept as slabs of [rows][64]: row r of a slab is 128 bytes, its 16-byte
 * pieces permuted by r % 8. Tiles start at multiples of 1024 bytes. The same tile serves as an
 * operand whose inner dimension runs along the columns (desc_k) or along the rows (desc_mn).
 * Accumulators are those of mma.sync for each warp's 16 rows: d[4j + i]. */
#ifndef AF_WGMMA_CUH
#define AF_WGMMA_CUH
#include "dev.cuh"

/* Byte offset of 16-byte piece c of row r in a tile of R rows. */
template <int R> DEV u32 piece_at(int r, int c)
{
    return c / 8 * (R * 128) + r * 128 + ((c ^ r) % 8) * 16;
}
/* Descriptors. Shared memory ends before 2^18, so the address's 14 bits need no mask and the next
 * one is one addition away: between MMAs of 32 cycles there is no time for more. In a cluster,
 * addresses have the block's number above those bits. desc_k does not mind, because the field it
 * falls into is not read then; desc_mn must get the address without it. */
DEV u64 desc(u32 low) { return (u64)(1u << 30 | 64) << 32 | low; }
/* 16 columns from 16*k of the tile at `at` (R rows), inner dimension along the columns. */
template <int R> DEV u64 desc_k(u32 at, int k)
{
    return desc((at >> 4) + (1u << 16) + (k / 4 * (R * 8) + k % 4 * 2));
}
/* 16 rows from 16*k, inner dimension along the rows: all columns are outputs. */
template <int R> DEV u64 desc_mn(u32 at, int k)
{
    return desc((at >> 4) + ((u32)(R * 8) << 16) + k * 128);
}
DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
/* What ordinary stores and cp.async wrote to shared memory becomes visible to wgmma. */
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
/* The compiler must not move uses of an accumulator, or of an operand in registers, over a wait or
 * a fence. */
template <int N> DEV void pin(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> DEV void pin(u32 (&p)[N][4])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(p[i][0]), "+r"(p[i][1]), "+r"(p[i][2]), "+r"(p[i][3])::"memory");
}

/* Values are finished here, before the wait that follows: without a use the assembler would make
 * them after it, and nothing would overlap. The store happens by chance, to a word that is never
 * read. */
template <int N> DEV void finish(const float (&v)[N], u32 nowhere)
{
    u32 x = 0;
#pragma unroll
    for (int i = 0; i < N; i++)
        x ^= __float_as_uint(v[i]);
    asm volatile("{\n.reg .pred q;\nsetp.eq.u32 q, %0, 0x5bd1e995;\n"
                 "@q st.volatile.shared.u32 [%1], %0;\n}" ::"r"(x),
                 "r"(nowhere)
                 : "memory");
}

/* The accumulators as operands, and their names in the text. */
#define F4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define F16(d, i) F4(d, i), F4(d, i + 4), F4(d, i + 8), F4(d, i + 12)
#define D32                                                                                        \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"                                       \
    "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define D40 D32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define D48 D40 ",%40,%41,%42,%43,%44,%45,%46,%47"
#define D64                                                                                        \
    D32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"                        \
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define D96                                                                                        \
    D64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"                        \
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define D128                                                                                       \
    D96 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"            \
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

/* d[64][64] (+)= a b^T, both with the inner dimension along their columns. */
DEV void wgmma_ss(float (&d)[32], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" D32 "}, "
                 "%32, %33, p, 1, 1, 0, 0;\n}"
                 : F16(d, 0), F16(d, 16)
                 : "l"(a), "l"(b), "r"(add));
}
/* d[64][N] += a b: a from registers, b with the inner dimension along its rows. */
DEV void wgmma_rs(float (&d)[32], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" D32 "}, "
                 "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

DEV void wgmma_rs(float (&d)[40], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" D40 "}, "
                 "{%40,%41,%42,%43}, %44, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F4(d, 32), F4(d, 36)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEV void wgmma_rs(float (&d)[48], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {" D48 "}, "
                 "{%48,%49,%50,%51}, %52, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d[64][128] (+)= a b^T, both with the inner dimension along their columns. */
DEV void wgmma_ss(float (&d)[64], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" D64 "}, "
                 "%64, %65, p, 1, 1, 0, 0;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "l"(a), "l"(b), "r"(add));
}
/* d[64][128] += a b: a from registers, b with the inner dimension along its rows. */
DEV void wgmma_rs(float (&d)[64], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" D64 "}, "
                 "{%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
/* d[64][N] += a b, likewise. */
DEV void wgmma_rs(float (&d)[96], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {" D96 "}, "
                 "{%96,%97,%98,%99}, %100, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
DEV void wgmma_rs(float (&d)[128], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" D128 "}, "
                 "{%128,%129,%130,%131}, %132, 1, 1, 1, 1;"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80),
                   F16(d, 96), F16(d, 112)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
/* d[64][N] (+)= a b^T: a from registers, b with the inner dimension along its columns. */
DEV void wgmma_rs_k(float (&d)[4], const u32 (&a)[4], u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, %8, p, 1, 1, 0;\n}"
                 : F4(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
DEV void wgmma_rs_k(float (&d)[8], const u32 (&a)[4], u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, "
                 "{%8,%9,%10,%11}, %12, p, 1, 1, 0;\n}"
                 : F4(d, 0), F4(d, 4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
DEV void wgmma_rs_k(float (&d)[32], const u32 (&a)[4], u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" D32 "}, "
                 "{%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}"
                 : F16(d, 0), F16(d, 16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
DEV void wgmma_rs_k(float (&d)[64], const u32 (&a)[4], u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" D64 "}, "
                 "{%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
DEV void wgmma_rs_k(float (&d)[128], const u32 (&a)[4], u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %133, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" D128 "}, "
                 "{%128,%129,%130,%131}, %132, p, 1, 1, 0;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80),
                   F16(d, 96), F16(d, 112)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
/* d[64][N] (+)= a b; TA, TB: the inner dimension runs along the rows of a, of b. */
template <int TA, int TB> DEV void wgmma_ss(float (&d)[32], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" D32 "}, "
                 "%32, %33, p, 1, 1, %35, %36;\n}"
                 : F16(d, 0), F16(d, 16)
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}
template <int TA, int TB> DEV void wgmma_ss(float (&d)[64], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" D64 "}, "
                 "%64, %65, p, 1, 1, %67, %68;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48)
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}
template <int TA, int TB> DEV void wgmma_ss(float (&d)[128], u64 a, u64 b, int add)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" D128 "}, "
                 "%128, %129, p, 1, 1, %131, %132;\n}"
                 : F16(d, 0), F16(d, 16), F16(d, 32), F16(d, 48), F16(d, 64), F16(d, 80),
                   F16(d, 96), F16(d, 112)
                 : "l"(a), "l"(b), "r"(add), "n"(TA), "n"(TB));
}
#endif
