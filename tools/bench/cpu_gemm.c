/* cpu_gemm.c - one GEMM of the fast CPU kernels, processor time of one thread or wall time of
 * several: what cpu_gemm.py compares with torch and oneDNN. Development only, built by hand:
 *
 *   cc -O2 -Iinclude -Isrc tools/bench/cpu_gemm.c build/libafinar.a -ljansson -lyaml -lm -lpthread
 * -ldl -o build/cpu_gemm
 *
 *   cpu_gemm ROWS OUT IN f32|bf16 forward|dx|dw|dw_bf16 [seconds [once|each|auto [copies
 * [threads]]]]
 *
 * prints GFLOP/s, best of that time. The weight is packed once beforehand where the library does
 * that for frozen weights; "once" and "each" choose it explicitly. With several copies of the
 * weight, used in turn, it comes from memory and not from a cache, as in a training step.
 *
 *   cpu_gemm pool THREADS
 *
 * prints the cost of an empty job, in microseconds: median and worst tenth. */
#define _GNU_SOURCE
#include "base/rng.h"
#include "cpu/cpu_kernels.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* As the CPU backend allocates its memory: in large pages where the system has them. */
static void *pages(uint64_t bytes)
{
    void *p = aligned_alloc(2 << 20, AF_ALIGN_UP(bytes, UINT64_C(2) << 20));
    if (p && !getenv("NOHUGE"))
        madvise(p, AF_ALIGN_UP(bytes, UINT64_C(2) << 20), MADV_HUGEPAGE);
    return p;
}

enum { VOCABULARY = 16384 }; /* as many outputs are logits */

/* From row to row of the outputs: the head pads its logits so that rows do not conflict in the
 * cache. */
static int64_t apart(int64_t n, af_dtype type)
{
    return n < VOCABULARY ? n : n + 128 / af_dtype_get(type)->bytes;
}

/* n random values, so many times. */
static void *filled(int64_t n, af_dtype type, int64_t copies)
{
    const int64_t bytes = n * af_dtype_get(type)->bytes;
    uint8_t *p = pages((uint64_t)AF_MAX(n * 4, bytes * copies));
    for (int64_t i = 0; p && i < n; i++)
        af_store_f64(p, type, (uint64_t)i, af_rng_f64(1, 2, (uint64_t)i) - 0.5);
    for (int64_t i = 1; p && i < copies; i++)
        memcpy(p + i * bytes, p, (size_t)bytes);
    return p;
}

static void nothing(void *arg, int64_t from, int64_t to, int share)
{
    (void)arg, (void)from, (void)to, (void)share;
}

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int time_pool(int threads)
{
    enum { RUNS = 20000 };
    static double us[RUNS];
    af_pool *pool = NULL;
    af_error err = {0};
    if (af_pool_new(&pool, threads, &err))
        return 1;
    for (int i = 0; i < RUNS; i++) {
        const double t = now(CLOCK_MONOTONIC);
        af_pool_run(pool, threads, nothing, NULL);
        us[i] = (now(CLOCK_MONOTONIC) - t) * 1e6;
    }
    qsort(us, RUNS, sizeof *us, by_time);
    printf("%d threads: %.2f us, worst tenth %.2f\n", threads, us[RUNS / 2], us[RUNS / 10 * 9]);
    af_pool_free(pool);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "pool") == 0)
        return time_pool((int)strtol(argv[2], NULL, 10));
    if (argc < 6)
        return 2;
    const int64_t T = strtol(argv[1], NULL, 10), O = strtol(argv[2], NULL, 10),
                  I = strtol(argv[3], NULL, 10);
    const af_dtype type = strcmp(argv[4], "bf16") == 0 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    const bool dx = strcmp(argv[5], "dx") == 0, dw = strncmp(argv[5], "dw", 2) == 0,
               half = strcmp(argv[5], "dw_bf16") == 0;
    const double seconds = argc > 6 ? strtod(argv[6], NULL) : 0.3;
    const af_fast *f = af_fast_get();
    const int64_t copies = argc > 8 ? strtol(argv[8], NULL, 10) : 1;
    const int threads = argc > 9 ? (int)strtol(argv[9], NULL, 10) : 1;
    const clockid_t clock = threads > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
    af_pool *pool = NULL;
    af_error err = {0};
    if (threads > 1 && af_pool_new(&pool, threads, &err))
        return 1;
    const int64_t far = apart(O, type);
    void *x = filled(T * I, type, 1), *w = filled(O * I, type, copies),
         *y = filled(T * far, type, 1);
    void *work = pages(f->gemm_work(threads));
    const af_operand xo = {x, I, type, false, NULL, NULL, NULL},
                     wo = {w, I, type, false, NULL, NULL, NULL},
                     yo = {y, far, type, false, NULL, NULL, NULL};
    af_gemm g = {T, O, I, xo, wo, y, far, type, 1, false, NULL, AF_DTYPE_F32, false};
    g.b.trans = true;
    if (dx)
        g = (af_gemm){T, I, O, yo, wo, x, I, type, 1, false, NULL, AF_DTYPE_F32, false};
    if (dw) { /* the gradient is f32, torch's of the type of its factors */
        const af_dtype sums = half ? AF_DTYPE_BF16 : AF_DTYPE_F32;
        g = (af_gemm){O, I, T, yo, xo, w, I, sums, 1, false, NULL, AF_DTYPE_F32, false};
        g.a.trans = true;
        g.nontemporal = true;
    }
    const char *how = argc > 7 && strcmp(argv[7], "auto") != 0 ? argv[7]
                      : af_fast_packs_frozen(f, type)          ? "once"
                                                               : "each";
    const uint64_t bytes = f->packed_bytes(type, g.N, g.K);
    const int64_t size = af_dtype_get(type)->bytes;
    uint8_t *panels = pages(bytes * (uint64_t)copies);
    af_packed packed = {0};
    for (int64_t i = 0; i < copies && bytes > 0; i++) /* f32 in planes has no packed form */
        packed = f->pack_frozen(&g.b, type, g.N, g.K, panels + (uint64_t)i * bytes, NULL, work);
    if (!dw && bytes && strcmp(how, "once") == 0)
        g.b.packed = &packed;
    double best = 1e9;
    const double end = now(CLOCK_MONOTONIC) + seconds;
    for (int i = 0; i < 3 || now(CLOCK_MONOTONIC) < end; i++) {
        packed.panels = panels + (uint64_t)(i % copies) * bytes;
        if (!dw)
            g.b.data = (uint8_t *)w + i % copies * O * I * size;
        const double t = now(clock);
        f->gemm(&g, pool, work);
        best = AF_MIN(best, now(clock) - t);
    }
    printf("%.1f\n", 2.0 * (double)T * (double)O * (double)I / best * 1e-9);
    af_pool_free(pool);
    free(x), free(w), free(y), free(work), free(panels);
    return 0;
}
