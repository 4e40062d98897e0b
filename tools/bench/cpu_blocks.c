/* cpu_blocks.c - a few rows times a weight of GGUF blocks, as generation multiplies them.
 * Development only, built by hand:
 *
 *   cc -O2 -Iinclude -Isrc tools/bench/cpu_blocks.c build/libafinar.a -ljansson -lyaml -lm
 * -lpthread -ldl -o build/cpu_blocks
 *
 *   cpu_blocks OUT IN [SECONDS [THREADS [TABLE]]]
 *
 * prints 10^9 multiplications per second for every table of this machine (or the one named), type
 * and number of rows, activations as they are and rounded to 8 bits: the best of that time. With
 * one thread by its processor time, else by the wall's. */
#define _GNU_SOURCE
#include "backend/cpu/cpu.h"
#include "cpu/cpu_kernels.h"
#include "tensor/codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void decode(const void *weight, int64_t from, int64_t n, float *out)
{
    af_ld_row_f32(weight, from, n, out);
}

static double best(const af_fast *f, const af_gemm *g, af_pool *pool, void *work, double seconds)
{
    const clockid_t clock = af_pool_threads(pool) == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    double least = 1e9;
    for (const double end = now(CLOCK_MONOTONIC) + seconds; now(CLOCK_MONOTONIC) < end;) {
        const double from = now(clock);
        f->gemm(g, pool, work);
        least = AF_MIN(least, now(clock) - from);
    }
    return (double)g->M * (double)g->N * (double)g->K / least * 1e-9;
}

int main(int argc, char **argv)
{
    static const af_dtype types[] = {AF_DTYPE_Q8_0, AF_DTYPE_Q4_0, AF_DTYPE_Q4_K, AF_DTYPE_Q5_K,
                                     AF_DTYPE_Q6_K};
    static const int64_t rows[] = {1, 8, 32};
    if (argc < 3)
        return 2;
    const int64_t N = strtol(argv[1], NULL, 10), K = strtol(argv[2], NULL, 10);
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 0.2;
    const int threads = argc > 4 ? (int)strtol(argv[4], NULL, 10) : 1;
    af_error err = {0};
    af_pool *pool = NULL;
    if (threads > 1 && af_pool_new(&pool, threads, &err) != AF_OK)
        return 1;
    float *x = malloc((size_t)(32 * K) * sizeof *x), *w = malloc((size_t)K * sizeof *w),
          *y = malloc((size_t)(32 * N) * sizeof *y);
    uint8_t *codes = malloc((size_t)(N * K) * 2);
    for (int64_t i = 0; i < 32 * K; i++)
        x[i] = (float)(i * 7919 % 2003 - 1001);
    for (int i = 0; af_fast_at(i); i++) {
        const af_fast *f = af_fast_at(i);
        if (argc > 5 && strcmp(argv[5], f->name) != 0)
            continue;
        void *work = malloc(f->gemm_work(threads));
        for (size_t t = 0; t < AF_LEN(types); t++) {
            const int64_t bytes = K / af_dtype_get(types[t])->elems * af_dtype_get(types[t])->bytes;
            for (int64_t n = 0; n < N; n++) {
                for (int64_t k = 0; n < 16 && k < K; k++)
                    w[k] = (float)((n * K + k) * 37 % 255 - 127);
                if (n < 16)
                    af_codec_encode_row(types[t], w, codes + n * bytes, K, NULL);
                else
                    memcpy(codes + n * bytes, codes + n % 16 * bytes, (size_t)bytes);
            }
            const af_tensor weight = {.dim = {N, K}, .ndim = 2, .dtype = types[t], .data = codes};
            printf("%-13s %-5s", f->name, af_dtype_name(types[t]));
            for (int r = 0; r < 2; r++)
                for (size_t m = 0; m < AF_LEN(rows); m++) {
                    const af_gemm g = {.M = rows[m],
                                       .N = N,
                                       .K = K,
                                       .a = {x, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                                       .b = {codes, K, types[t], true, decode, &weight, NULL},
                                       .c = y,
                                       .ldc = N,
                                       .c_dtype = AF_DTYPE_F32,
                                       .alpha = 1,
                                       .skinny = true,
                                       .rounded = r};
                    printf("%s%8.1f", r && m == 0 ? " |" : "", best(f, &g, pool, work, seconds));
                    fflush(stdout);
                }
            printf("\n");
        }
        free(work);
    }
    return 0;
}
