/* dev.cuh - what every kernel shares: types, 16-byte accesses, reductions, Philox, tensor cores.
 *
 * No CUDA header is included: bf16 and half are bit patterns and everything special is inline PTX,
 * so that NVRTC compiles a kernel in milliseconds. Kernels are built with -DAF_T=bf16, half or
 * float (the activations' type) and -DAF_VEC=n (elements of one access: 16 bytes' worth where rows
 * are aligned, else 1). Blocks always hold whole warps; every reduction has a fixed order. */
#ifndef AF_DEV_CUH
#define AF_DEV_CUH

typedef unsigned char u8;
typedef signed char i8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct bf16 {
    u16 bits;
};
struct half {
    u16 bits;
};

#ifndef AF_T
#define AF_T float
#endif
#ifndef AF_VEC
#define AF_VEC 1
#endif

#define DEV   static __device__ __forceinline__
#define FULL  0xffffffffu
#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f
#define INF   __int_as_float(0x7f800000)

/* A launch may begin while the one before it in the stream still runs (launch.c): what others write
 * is read after previous_done, and nothing is written before it. The next launch may begin, too.
 * Files all of whose kernels have it are launched so.
 *
 * The next one may begin even before this one waits: it waits for this one, which waits for the one
 * before. Small grids, those of a decoder, do so; large ones would only hold registers. */
DEV void next_may_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEV void previous_done()
{
    if (gridDim.x * gridDim.y <= 128)
        next_may_begin();
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* All blocks of a launch that runs as a whole (launch.c) wait for one another; what they wrote is
 * then seen by all.  *count: 0 before the launch; *rounds: 0, a thread's own. */
DEV void meet_all(u32 *count, u32 *rounds)
{
    __syncthreads();
    if (gridDim.x > 1 && threadIdx.x == 0) {
        const u32 all = ++*rounds * gridDim.x;
        u32 seen = 0;
        asm volatile("fence.acq_rel.gpu;\nred.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(count)
                     : "memory");
        while (seen < all)
            asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];"
                         : "=r"(seen)
                         : "l"(count)
                         : "memory");
        asm volatile("fence.acq_rel.gpu;" ::: "memory");
    }
    __syncthreads();
}

/* ---- single values ---- */
DEV float load(const float *p) { return *p; }
DEV float load(const bf16 *p) { return __uint_as_float((u32)p->bits << 16); }
DEV float load(const half *p)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(p->bits));
    return f;
}
DEV void store(float *p, float v) { *p = v; }
DEV void store(bf16 *p, float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(p->bits) : "f"(v)); }
DEV void store(half *p, float v) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(p->bits) : "f"(v)); }
/* Rounds to T and back: what a later reader of the stored value will see. */
template <class T> DEV float rounded(float v)
{
    T t;
    store(&t, v);
    return load(&t);
}

/* Two values in one word, the first in the low half. */
DEV u32 pack2(bf16 *, float lo, float hi)
{
    u32 w;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}
DEV u32 pack2(half *, float lo, float hi)
{
    u32 w;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(w) : "f"(hi), "f"(lo));
    return w;
}
DEV u32 pack_bf16(float lo, float hi) { return pack2((bf16 *)0, lo, hi); }
DEV void unpack2(bf16 *, u32 w, float *f)
{
    f[0] = __uint_as_float(w << 16);
    f[1] = __uint_as_float(w & 0xffff0000u);
}
DEV void unpack2(half *, u32 w, float *f)
{
    const half a = {(u16)w}, b = {(u16)(w >> 16)};
    f[0] = load(&a);
    f[1] = load(&b);
}

/* ---- N consecutive values; 16 bytes an access where N allows it (the address must too) ---- */
template <int N> DEV void unpack(float (&f)[N], const u32 *w, const float *)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        f[i] = __uint_as_float(w[i]);
}
template <int N, class T> DEV void unpack(float (&f)[N], const u32 *w, const T *)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        unpack2((T *)0, w[i], f + 2 * i);
}
template <int N> DEV void pack(u32 *w, const float (&f)[N], const float *)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        w[i] = __float_as_uint(f[i]);
}
template <int N, class T> DEV void pack(u32 *w, const float (&f)[N], const T *)
{
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        w[i] = pack2((T *)0, f[2 * i], f[2 * i + 1]);
}

template <int N, class T> DEV void load_n(float (&f)[N], const T *p)
{
    if constexpr (N * sizeof(T) % 16 == 0) {
        union {
            uint4 q[N * sizeof(T) / 16];
            u32 w[N * sizeof(T) / 4];
        } v;
#pragma unroll
        for (int i = 0; i < (int)(N * sizeof(T) / 16); i++)
            v.q[i] = ((const uint4 *)p)[i];
        unpack(f, v.w, p);
    } else if constexpr (N * sizeof(T) == 8 && sizeof(T) == 2) {
        const uint2 v = *(const uint2 *)p;
        const u32 w[2] = {v.x, v.y};
        unpack(f, w, p);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            f[i] = load(p + i);
    }
}
template <int N, class T> DEV void store_n(T *p, const float (&f)[N])
{
    if constexpr (N * sizeof(T) % 16 == 0) {
        union {
            uint4 q[N * sizeof(T) / 16];
            u32 w[N * sizeof(T) / 4];
        } v;
        pack(v.w, f, p);
#pragma unroll
        for (int i = 0; i < (int)(N * sizeof(T) / 16); i++)
            ((uint4 *)p)[i] = v.q[i];
    } else if constexpr (N * sizeof(T) == 8 && sizeof(T) == 2) {
        u32 w[2];
        pack(w, f, p);
        *(uint2 *)p = {w[0], w[1]};
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            store(p + i, f[i]);
    }
}

/* ---- reductions: whole warps, fixed order ---- */
DEV float warp_sum(float v)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(FULL, v, d);
    return v;
}
DEV float warp_max(float v)
{
#pragma unroll
    for (int d = 16; d; d >>= 1)
        v = fmaxf(v, __shfl_xor_sync(FULL, v, d));
    return v;
}
/* Every thread gets the result. Safe to call again at once. */
DEV float block_sum(float v)
{
    __shared__ float part[32];
    v = warp_sum(v);
    if (blockDim.x == 32)
        return v;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    return warp_sum(lane < warps ? part[lane] : 0.0f);
}
DEV float block_max(float v)
{
    __shared__ float part[32];
    v = warp_max(v);
    if (blockDim.x == 32)
        return v;
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    __syncthreads();
    const int warps = blockDim.x / 32, lane = threadIdx.x % 32;
    return warp_max(lane < warps ? part[lane] : -INF);
}

/* The first `threads` to come to barrier `id` (1 to 15) wait for each other: some of a block. */
DEV void meet(int id, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

/* ---- fast mathematics ---- */
DEV float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float tanh_exp(float x) /* accurate to a few ulp in f32, no branches */
{
    const float e = __expf(-2.0f * fabsf(x)), t = __fdividef(1.0f - e, 1.0f + e);
    const float s = fabsf(x) < 0.05f ? fabsf(x) * (1.0f - x * x * (1.0f / 3.0f)) : t;
    return copysignf(s, x);
}

/* ---- Philox4x32-10, the numbers of base/rng.c ---- */
struct philox {
    u32 w[4];
};
DEV philox philox_block(u64 seed, u64 stream, u64 n)
{
    u32 c0 = (u32)n, c1 = (u32)(n >> 32), c2 = (u32)stream, c3 = (u32)(stream >> 32);
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u32 h0 = __umulhi(0xD2511F53u, c0), l0 = 0xD2511F53u * c0;
        const u32 h1 = __umulhi(0xCD9E8D57u, c2), l1 = 0xCD9E8D57u * c2;
        c0 = h1 ^ c1 ^ k0;
        c2 = h0 ^ c3 ^ k1;
        c1 = l1;
        c3 = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* ---- tensor cores, asynchronous copies ---- */
DEV u32 smem_at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
/* d[16][8] += a[16][16] b[16][8]; thread t of the warp holds d rows t/4 and t/4+8, columns
 * t%4*2 + {0, 1}. */
DEV void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/* The same with d = 0 before. */
DEV void mma_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
/* The same with a[16][8] b[8][8] in tf32: lane l holds a rows l/4 and l/4+8, columns l%4 and l%4+4,
 * and b rows l%4 and l%4+4 of column l/4. */
DEV u32 to_tf32(float x)
{
    u32 w;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(w) : "f"(x));
    return w;
}
DEV void mma_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEV void ldmatrix4(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
DEV void ldmatrix4_trans(u32 (&r)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}
/* 16 bytes from device to shared memory; the bytes after `bytes` become zeros. */
DEV void copy16(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
                 : "memory");
}
/* 16 of 256 bytes that are all read soon: they come to the L2 cache together, because memory gives
 * half its speed to single sectors. */
DEV void copy16_long(u32 to, const void *from)
{
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from)
                 : "memory");
}
/* The same into registers, of what is read once: it stays out of the L1 cache. */
DEV uint4 stream16(const void *from)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(from));
    return v;
}
DEV uint2 stream8(const void *from)
{
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0,%1}, [%2];"
                 : "=r"(v.x), "=r"(v.y)
                 : "l"(from));
    return v;
}
/* A block's shared memory is a window whose first 1024 bytes the system has. Numbers in it that are
 * known when compiled are part of a load: window_word<at>(i) reads at + i without an addition. i
 * has the upper byte of window_high: which block of the cluster. window_start: where the window
 * begins, from what the compiler allotted on. */
DEV int window_start(const u8 *raw) { return -(int)(smem_at(raw) & 0xffffff); }
DEV u32 window_high(const u8 *raw) { return smem_at(raw) & 0xff000000; }
template <int at> DEV u32 window_word(u32 i)
{
    u32 v;
    asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(v) : "r"(i), "n"(at));
    return v;
}
DEV void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> DEV void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif
