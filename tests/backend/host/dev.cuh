/* dev.cuh - what src/backend/cuda/dev.cuh gives the kernels, in plain C++: the texts of the .cu
 * files compile for the host, and a block's threads run as coroutines on one processor.
 *
 * Threads run in turn from one synchronisation to the next. All lanes of a warp take one turn in a
 * round, so a shuffle is: leave the value, wait one round, take the neighbour's. Fast functions of
 * the device are libm's; the device's own rounding of them is not judged here. */
#ifndef AF_DEV_CUH
#define AF_DEV_CUH

#include <functional>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <ucontext.h>
#include <vector>

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
struct uint2 {
    u32 x, y;
};
struct uint4 {
    u32 x, y, z, w;
};
struct char4 {
    i8 x, y, z, w;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
static inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }

#define __global__
#define __device__
#define __constant__ static
#define __forceinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__   thread_local /* static storage in a function, and allowed after extern */

#define DEV   [[maybe_unused]] static inline
#define FULL  0xffffffffu
#define LOG2E 1.4426950408889634f
#define LN2   0.6931471805599453f
#define INF   __builtin_inff()

/* ---- a grid, block after block ---- */
struct dim3 {
    unsigned x, y, z = 1;
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace device
{
enum { THREADS_MAX = 1024, STACK = 1 << 16 };
struct thread {
    ucontext_t at; /* where it begins; under AddressSanitizer where it goes on */
    jmp_buf later; /* where it goes on */
    std::vector<char> stack;
    bool begun, done, waits;
    unsigned shuffles;
    u32 left[2][8]; /* what it last left for its warp; the one before is still being read */
};
static thread threads[THREADS_MAX];
static std::function<void()> body;

/* swapcontext is two system calls, longjmp none; AddressSanitizer follows only the former. */
#ifdef __SANITIZE_ADDRESS__
static ucontext_t scheduler;
static inline void turn() { swapcontext(&threads[threadIdx.x].at, &scheduler); }
static inline void resume(thread &d) { swapcontext(&scheduler, &d.at); }
#else
static jmp_buf scheduler;
static inline void turn()
{
    if (_setjmp(threads[threadIdx.x].later) == 0)
        _longjmp(scheduler, 1);
}
static inline void resume(thread &d)
{
    if (_setjmp(scheduler) == 0) {
        if (d.begun)
            _longjmp(d.later, 1);
        d.begun = true;
        setcontext(&d.at);
    }
}
#endif
/* A thread takes part in one block after the other. */
static inline void enter()
{
    for (;;) {
        body();
        threads[threadIdx.x].done = true;
        turn();
    }
}
static inline void run_block()
{
    for (unsigned t = 0; t < blockDim.x; t++) {
        thread &d = threads[t];
        d.done = d.waits = false;
        d.shuffles = 0;
        if (!d.stack.empty())
            continue;
        d.stack.resize(STACK);
        getcontext(&d.at);
        d.at.uc_stack.ss_sp = d.stack.data();
        d.at.uc_stack.ss_size = STACK;
        d.at.uc_link = nullptr;
        makecontext(&d.at, enter, 0);
    }
    for (bool alive = true; alive;) {
        bool moved = alive = false;
        for (unsigned t = 0; t < blockDim.x; t++)
            if (!threads[t].done && !threads[t].waits) {
                threadIdx.x = t;
                resume(threads[t]);
                moved = true;
            }
        for (unsigned t = 0; t < blockDim.x; t++) {
            alive |= !threads[t].done;
            threads[t].waits &= moved; /* all wait: the barrier opens */
        }
    }
}
/* Leaves a few bytes for the warp; when all lanes have, gives theirs: the first lane's. */
struct lanes {
    const thread *first;
    unsigned slot;
    const u32 *operator[](unsigned lane) const { return first[lane % 32].left[slot]; }
};
static inline lanes share(const void *v, size_t size)
{
    thread &d = threads[threadIdx.x];
    const unsigned slot = d.shuffles++ % 2;
    memcpy(d.left[slot], v, size);
    turn();
    return {&threads[threadIdx.x / 32 * 32], slot};
}
template <class T> static inline T shuffle(T v, unsigned lane_from)
{
    const lanes all = share(&v, sizeof v);
    memcpy(&v, all[lane_from], sizeof v);
    return v;
}
} // namespace device

template <class... P, class... A>
static inline void launch(dim3 grid, unsigned block, void (*kernel)(P...), A... args)
{
    gridDim = grid;
    blockDim = {block, 1};
    device::body = [=] { kernel((P)args...); };
    for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++)
                device::run_block();
}
DEV void __syncthreads()
{
    device::threads[threadIdx.x].waits = true;
    device::turn();
}
DEV void previous_done() {}
DEV void next_may_begin() {}
DEV float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
DEV void meet_all(u32 *, u32 *) { __syncthreads(); } /* blocks run one after another: of one */
DEV void meet(int, int) { __syncthreads(); } /* opens when nobody can move: later than it might */
DEV void __syncwarp() { device::turn(); }    /* all lanes take one turn in a round */
template <class T> DEV T __shfl_xor_sync(u32, T v, unsigned d)
{
    return device::shuffle(v, threadIdx.x % 32 ^ d);
}
template <class T> DEV T __shfl_down_sync(u32, T v, unsigned d)
{
    const unsigned lane = threadIdx.x % 32;
    return device::shuffle(v, lane + d < 32 ? lane + d : lane);
}
template <class T> DEV T __shfl_up_sync(u32, T v, unsigned d)
{
    const unsigned lane = threadIdx.x % 32;
    return device::shuffle(v, lane >= d ? lane - d : lane);
}
template <class T> DEV T __shfl_sync(u32, T v, unsigned lane) { return device::shuffle(v, lane); }
DEV u32 __ballot_sync(u32, bool v)
{
    u32 all = 0;
    const device::lanes lanes = device::share(&v, sizeof v);
    for (unsigned lane = 0; lane < 32; lane++)
        all |= (u32) * (const bool *)lanes[lane] << lane;
    return all;
}
DEV int __reduce_add_sync(u32, int v)
{
    int sum = 0;
    const device::lanes lanes = device::share(&v, sizeof v);
    for (unsigned lane = 0; lane < 32; lane++)
        sum += (int)*lanes[lane];
    return sum;
}
template <class T> DEV u32 __match_any_sync(u32, T v)
{
    u32 same = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        same |= (u32)(device::shuffle(v, lane) == v) << lane;
    return same;
}

/* ---- what the device's compiler knows ---- */
DEV float __uint_as_float(u32 w)
{
    float f;
    memcpy(&f, &w, 4);
    return f;
}
DEV u32 __float_as_uint(float f)
{
    u32 w;
    memcpy(&w, &f, 4);
    return w;
}
DEV float __fdividef(float a, float b) { return a / b; }
#define __expf    expf /* C libraries declare both names, some of them */
#define rsqrtf(x) ((float)(1.0 / sqrt((double)(x))))
DEV float __fmul_rn(float a, float b) { return a * b; }
DEV float __fdiv_rn(float a, float b) { return a / b; }
DEV float __fadd_rn(float a, float b) { return a + b; }
DEV float __fsub_rn(float a, float b) { return a - b; }
DEV int __clz(int x) { return x ? __builtin_clz((u32)x) : 32; }
DEV int __ffs(u32 x) { return __builtin_ffs((int)x); }
DEV int __popc(u32 x) { return __builtin_popcount(x); }
DEV u32 __umulhi(u32 a, u32 b) { return (u32)((u64)a * b >> 32); }
template <class T> DEV T atomicAdd(T *p, T v) /* threads run in turn */
{
    const T before = *p;
    *p += v;
    return before;
}
DEV i64 min(i64 a, i64 b) { return a < b ? a : b; }
DEV i64 max(i64 a, i64 b) { return a > b ? a : b; }
DEV u32 __byte_perm(u32 a, u32 b, u32 select)
{
    const u64 both = a | (u64)b << 32;
    u32 r = 0;
    for (int i = 0; i < 4; i++)
        r |= (u32)(both >> (select >> 4 * i & 7) * 8 & 255) << 8 * i;
    return r;
}

/* ---- values, as in the device's header ---- */
DEV float load(const float *p) { return *p; }
DEV float load(const bf16 *p) { return __uint_as_float((u32)p->bits << 16); }
DEV float load(const half *p)
{
    const int e = p->bits >> 10 & 31, m = p->bits & 1023;
    const float v = e == 31 ? m ? NAN : INF : ldexpf((float)(e ? m + 1024 : m), (e ? e : 1) - 25);
    return p->bits >> 15 ? -v : v;
}
DEV void store(float *p, float v) { *p = v; }
DEV void store(bf16 *p, float v)
{
    const u32 w = __float_as_uint(v);
    p->bits = v != v ? 0x7fff : (u16)((w + 0x7fff + (w >> 16 & 1)) >> 16);
}
DEV void store(half *p, float v)
{
    const float a = fabsf(v);
    const int e = a < 0x1p-14f ? -14 : a < INF ? ilogbf(a) : 16;
    const u32 w = v != v          ? 0x7e00
                  : a >= 65520.0f ? 0x7c00
                                  : (u32)(e + 14) * 1024 + (u32)rintf(ldexpf(a, 10 - e));
    p->bits = (u16)(w | (signbit(v) ? 0x8000 : 0));
}
template <class T> DEV float rounded(float v)
{
    T t;
    store(&t, v);
    return load(&t);
}
template <class T> DEV u32 pack2(T *, float lo, float hi)
{
    T t[2];
    store(t, lo);
    store(t + 1, hi);
    return t[0].bits | (u32)t[1].bits << 16;
}
template <class T> DEV void unpack2(T *, u32 w, float *f)
{
    T t[2];
    memcpy(t, &w, sizeof w);
    f[0] = load(t);
    f[1] = load(t + 1);
}
template <int N, class T> DEV void load_n(float (&f)[N], const T *p)
{
    for (int i = 0; i < N; i++)
        f[i] = load(p + i);
}
template <int N, class T> DEV void store_n(T *p, const float (&f)[N])
{
    for (int i = 0; i < N; i++)
        store(p + i, f[i]);
}

DEV float warp_sum(float v)
{
    for (int d = 16; d; d >>= 1)
        v += __shfl_xor_sync(FULL, v, d);
    return v;
}
DEV float warp_max(float v)
{
    for (int d = 16; d; d >>= 1)
        v = fmaxf(v, __shfl_xor_sync(FULL, v, d));
    return v;
}
/* One value from each warp, folded by every thread. */
template <class F> DEV float block_fold(float v, F fold)
{
    __shared__ float part[32];
    __syncthreads();
    part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (unsigned w = 1; w < blockDim.x / 32; w++)
        v = fold(v, part[w]);
    return v;
}
DEV float block_sum(float v)
{
    return block_fold(warp_sum(v), [](float a, float b) { return a + b; });
}
DEV float block_max(float v) { return block_fold(warp_max(v), fmaxf); }

/* tf32 keeps 10 bits of the fraction, ties away from zero */
DEV u32 to_tf32(float x) { return (__float_as_uint(x) + 0x1000u) & ~0x1fffu; }
DEV void mma_tf32(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned k = 0; k < 8; k++) {
        const unsigned row = g * 4 + k % 4; /* the lane that holds column k of my rows */
        const float low = __uint_as_float(__shfl_sync(FULL, a[k < 4 ? 0 : 2], row)),
                    high = __uint_as_float(__shfl_sync(FULL, a[k < 4 ? 1 : 3], row));
        for (unsigned j = 0; j < 2; j++) {
            const float b =
                __uint_as_float(__shfl_sync(FULL, k < 4 ? b0 : b1, (2 * t + j) * 4 + k % 4));
            d[j] += low * b;
            d[2 + j] += high * b;
        }
    }
}

/* d[16][8] += a[16][16] b[16][8] in bf16; sums in f32, one after another */
DEV float half_of(u32 pair, unsigned which)
{
    return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}
DEV void mma(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    const u32 mine[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const device::lanes all = device::share(mine, sizeof mine);
    const unsigned g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    for (unsigned k = 0; k < 16; k++)
        for (unsigned j = 0; j < 4; j++) {
            const u32 left = all[g * 4 + k % 8 / 2][k / 8 * 2 + j / 2],
                      right = all[(2 * t + j % 2) * 4 + k % 8 / 2][4 + k / 8];
            d[j] += half_of(left, k % 2) * half_of(right, k % 2);
        }
}
DEV void mma_first(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    d[0] = d[1] = d[2] = d[3] = 0.0f;
    mma(d, a, b0, b1);
}

/* ---- shared memory by number, copies that are done at once ---- */
namespace device
{
static uintptr_t shared_high; /* the other half of such a number */
static u8 *window;
static inline void *shared(u32 at) { return (void *)(shared_high | at); }
} // namespace device
DEV u32 smem_at(const void *p)
{
    device::shared_high = (uintptr_t)p >> 32 << 32;
    return (u32)(uintptr_t)p;
}
DEV void copy16(u32 to, const void *from, int bytes)
{
    memset(device::shared(to), 0, 16);
    memcpy(device::shared(to), from, (size_t)bytes);
}
DEV void copy16_long(u32 to, const void *from) { copy16(to, from, 16); }
DEV uint4 stream16(const void *from) { return *(const uint4 *)from; }
DEV uint2 stream8(const void *from) { return *(const uint2 *)from; }
DEV int window_start(u8 *raw)
{
    device::window = raw;
    return 0;
}
DEV u32 window_high(const u8 *) { return 0; }
template <int at> DEV u32 window_word(u32 i) { return *(const u32 *)(device::window + at + i); }
DEV void copy_commit() {}
template <int N> DEV void copy_wait() {}
/* Four tiles of 8 x 8: lanes 8 i to 8 i + 7 give the rows of tile i, lane l gets columns
 * l % 4 * 2 + {0, 1} of row l / 4; trans: of the tiles turned over. */
template <bool trans> DEV void ldmatrix(u32 (&r)[4], u32 at)
{
    const device::lanes all = device::share(&at, sizeof at);
    const unsigned row = threadIdx.x % 32 / 4, col = threadIdx.x % 4 * 2;
    for (unsigned i = 0; i < 4; i++) {
        u16 v[2];
        for (unsigned j = 0; j < 2; j++)
            v[j] = ((const u16 *)device::shared(
                *all[i * 8 + (trans ? col + j : row)]))[trans ? row : col + j];
        r[i] = v[0] | (u32)v[1] << 16;
    }
}
DEV void ldmatrix4(u32 (&r)[4], u32 at) { ldmatrix<false>(r, at); }
DEV void ldmatrix4_trans(u32 (&r)[4], u32 at) { ldmatrix<true>(r, at); }
DEV u32 pack_bf16(float lo, float hi) { return pack2((bf16 *)nullptr, lo, hi); }

DEV float exp2_fast(float x) { return exp2f(x); }
DEV float tanh_exp(float x) { return tanhf(x); }

struct philox {
    u32 w[4];
};
extern "C" void af_rng_words(u32 *out, uint64_t seed, uint64_t stream, uint64_t first, uint64_t n);
DEV philox philox_block(u64 seed, u64 stream, u64 n)
{
    philox r;
    af_rng_words(r.w, seed, stream, n, 1);
    return r;
}
#endif
