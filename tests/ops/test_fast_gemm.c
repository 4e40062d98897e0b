/* test_fast_gemm.c - the packed GEMM against sums in double: every layout, odd sizes, the edges
 * of tiles and blocks, alpha, bias, adding, fewer rows, and 1, 2, 3, 8 and 16 threads bit for bit,
 * on every instruction set that this machine has (1 and 3 threads on those it does not use; under a
 * sanitizer one of these for each size and layout).
 *
 * Tolerance (relative L2 of C): K terms in f32 lose about sqrt(K) * 6e-8, under 3e-6 here; bf16
 * operands are exact, the matrix instruction rounds each of its four-term sums: the same bound. A
 * bf16 C is rounded once: at most 2^-8 of it. An f32 B with a bf16 A is rounded to bf16 unless the
 * GEMM is exact (then to 2^-16 of it). */
#include "fast_tables.h"
#include "matrix.h"

#include <math.h>

typedef struct variant {
    const char *why;
    af_dtype a, b, c;
    bool ta, tb, add, bias, exact;
    double alpha, limit;
} variant;

static const variant variants[] = {
    {"forward f32", AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1, 0, 1, 0, 1, 3e-6},
    {"dx f32", AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 0, 0, 1, 0, 0, 0.5, 3e-6},
    {"dw f32", AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 1, 0, 1, 0, 0, 1, 3e-6},
    {"both transposed", AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_F32, 1, 1, 0, 0, 0, 1, 3e-6},
    {"bf16 weight, f32 rows", AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F32, 0, 1, 0, 0, 0, 1, 3e-6},
    {"bf16 weight, turned rows", AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F32, 1, 0, 0, 0, 0, 1, 3e-6},
    {"bf16 weight, rounded", AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 1, 0, 0, 0, 1, 4e-3},
    {"bf16 weight, columns", AF_DTYPE_F32, AF_DTYPE_BF16, AF_DTYPE_F32, 0, 0, 1, 0, 0, 1, 3e-6},
    {"f16 weight, f32 rows", AF_DTYPE_F32, AF_DTYPE_F16, AF_DTYPE_F32, 0, 0, 0, 0, 0, 1, 3e-6},
    {"f16 weight, rows", AF_DTYPE_F32, AF_DTYPE_F16, AF_DTYPE_F32, 0, 1, 0, 1, 0, 2, 3e-6},
    {"f32 rounded to bf16", AF_DTYPE_F32, AF_DTYPE_F32, AF_DTYPE_BF16, 0, 1, 0, 0, 0, 1, 4e-3},
    {"forward bf16", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 1, 0, 1, 0, 1, 4e-3},
    {"dx bf16", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 0, 1, 0, 0, 0.5, 4e-3},
    {"dx bf16 and no more", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 0, 0, 0, 0, 0, 1, 4e-3},
    {"dw of bf16 into f32", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_F32, 1, 0, 1, 0, 0, 1, 3e-6},
    {"dw of bf16", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_BF16, 1, 0, 0, 0, 0, 1, 4e-3},
    {"dw of bf16, the first", AF_DTYPE_BF16, AF_DTYPE_BF16, AF_DTYPE_F32, 1, 0, 0, 0, 0, 1, 3e-6},
    {"f32 weight rounded", AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1, 0, 0, 0, 1, 4e-3},
    {"f32 weight exact", AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_F32, 0, 1, 0, 0, 1, 1, 1.5e-5},
    {"f32 weight exact, columns", AF_DTYPE_BF16, AF_DTYPE_F32, AF_DTYPE_BF16, 0, 0, 1, 0, 1, 2,
     4e-3},
};

static const int64_t sizes[][3] = {
    {1, 1, 1},       {1, 37, 130},    {4, 300, 1100}, {5, 13, 3},     {37, 53, 71},
    {97, 25, 600},   {8, 12, 512},    {130, 780, 33}, {20, 40, 0},    {400, 16, 1030},
    {9, 784, 1300},  {40, 40, 5540},  {64, 96, 64},   {65, 800, 257}, {70, 96, 1000},
    {100, 800, 704}, {100, 96, 2240}, {96, 90, 96},   {40, 70, 5504}};

/* One GEMM of a variant: its operands, and its values in double, which all tables must give. */
typedef struct gemm_case {
    const variant *v;
    int64_t M, N, K;
    matrix a, b, c, bias;
    double *want;
} gemm_case;

/* want = A B in double. Four columns at a time, for sums that need not wait for each other. */
static void multiply(gemm_case *p)
{
    enum { WIDE = 4 };
    const variant *v = p->v;
    const int64_t M = p->M, N = p->N, K = p->K, wide = (N + WIDE - 1) / WIDE * WIDE;
    const int64_t am = v->ta ? 1 : K, ak = v->ta ? M : 1, bn = v->tb ? K : 1, bk = v->tb ? 1 : N;
    double *rows = calloc((size_t)(K * wide) + 1, sizeof *rows); /* B: [N / 4][K][4] */
    double *left = calloc((size_t)K + 1, sizeof *left);          /* a row of A */
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = 0; n < N; n++)
            rows[(n / WIDE * K + k) * WIDE + n % WIDE] = p->b.exact[k * bk + n * bn];
    for (int64_t m = 0; m < M; m++) {
        for (int64_t k = 0; k < K; k++)
            left[k] = p->a.exact[m * am + k * ak];
        for (int64_t n = 0; n < N; n += WIDE) {
            const double *b = rows + n * K;
            double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
            for (int64_t k = 0; k < K; k++, b += WIDE) {
                s0 += left[k] * b[0];
                s1 += left[k] * b[1];
                s2 += left[k] * b[2];
                s3 += left[k] * b[3];
            }
            const double sum[WIDE] = {s0, s1, s2, s3};
            memcpy(p->want + m * N + n, sum, (size_t)AF_MIN(N - n, (int64_t)WIDE) * sizeof *sum);
        }
    }
    free(left);
    free(rows);
}

static gemm_case new_gemm_case(const variant *v, const int64_t size[3])
{
    const int64_t M = size[0], N = size[1], K = size[2];
    gemm_case p = {v, M, N, K, .want = calloc((size_t)(M * N) + 1, sizeof(double))};
    p.a = new_matrix(v->ta ? K : M, v->ta ? M : K, v->a, 1);
    p.b = new_matrix(v->tb ? N : K, v->tb ? K : N, v->b, 2);
    p.c = new_matrix(M, N, v->c, 3);
    p.bias = new_matrix(1, N, AF_DTYPE_F32, 4);
    multiply(&p);
    for (int64_t i = 0; i < M * N; i++)
        p.want[i] = p.want[i] * v->alpha + (v->add ? p.c.exact[i] : 0) +
                    (v->bias ? p.bias.exact[i % N] : 0);
    return p;
}

static void free_gemm_case(gemm_case *p)
{
    free_matrix(&p->a);
    free_matrix(&p->b);
    free_matrix(&p->c);
    free_matrix(&p->bias);
    free(p->want);
}

static void check_values(const af_fast *f, const gemm_case *p, const void *got)
{
    const variant *v = p->v;
    double err2 = 0, ref2 = 0;
    for (int64_t i = 0; i < p->M * p->N; i++) {
        const double x = af_load_f64(got, v->c, (uint64_t)i), want = p->want[i];
        CHECK_MSG(isfinite(x), "%s, %s %dx%dx%d: %g at %d, %d", f->name, v->why, (int)p->M,
                  (int)p->N, (int)p->K, x, (int)(i / p->N), (int)(i % p->N));
        err2 += (x - want) * (x - want);
        ref2 += want * want;
    }
    CHECK_MSG(sqrt(err2) <= v->limit * sqrt(ref2) + 1e-12, "%s, %s %dx%dx%d: %.3g of %.3g", f->name,
              v->why, (int)p->M, (int)p->N, (int)p->K, sqrt(err2), sqrt(ref2));
}

/* Tables that this machine has but does not use: the first pools only. */
enum { POOLS = 5, SOME_POOLS = 2 };
static const int pool_threads[POOLS] = {1, 3, 2, 8, 16};

/* What GEMMs of one table run on. */
typedef struct bench {
    const af_fast *f;
    int pools;
    af_pool *pool[POOLS]; /* with the thread counts of pool_threads */
    void *work;
} bench;

static bench new_bench(int table)
{
    const af_fast *f = own_table(table);
    bench b = {.f = f, .pools = table ? SOME_POOLS : POOLS, .work = malloc(f->gemm_work(16))};
    af_error err = {0};
    for (int i = 0; i < b.pools; i++)
        CHECK_OK(af_pool_new(&b.pool[i], pool_threads[i], &err), err);
    return b;
}

static void free_bench(bench *b)
{
    for (int i = 0; i < b->pools; i++)
        af_pool_free(b->pool[i]);
    free(b->work);
}

static void run_gemm_case(const bench *with, const gemm_case *p, bool skinny)
{
    const af_fast *f = with->f;
    const variant *v = p->v;
    const int pools = with->pools;
    const int64_t M = p->M, N = p->N, K = p->K;
    const bool both = v->a == AF_DTYPE_F32 && v->b == AF_DTYPE_F32;
    uint8_t *first[2] = {0}, *got = aligned_alloc(64, (size_t)(M * N) * 8 / 64 * 64 + 64);
    const size_t bytes = (size_t)(M * N) * af_dtype_get(v->c)->bytes;
    void *panels = aligned_alloc(64, f->packed_bytes(v->a, N, K) / 64 * 64 + 64);
    /* all, then with B packed once, then the first rows alone */
    for (int round = 0; round < 2 * pools + (v->ta || skinny ? 0 : 2); round++) {
        const int threads = pool_threads[round % pools],
                  order = both && threads > f->machine->planes_threads;
        const int64_t rows = round < 2 * pools ? M : round == 2 * pools ? (M + 1) / 2 : 1;
        af_packed packed = {0};
        af_pool *pool = with->pool[round % pools];
        if (round == 0) /* NaN; later rounds start from what earlier ones left */
            memset(with->work, 0xff, f->gemm_work(3));
        memcpy(got, p->c.data, bytes);
        if (!v->add)
            memset(got, 0xff, bytes); /* NaN: must be written, not read */
        af_gemm g = {.M = rows,
                     .N = N,
                     .K = K,
                     .a = {p->a.data, p->a.cols, v->a, v->ta, NULL, NULL, NULL},
                     .b = {p->b.data, p->b.cols, v->b, v->tb, NULL, NULL, NULL},
                     .c = got,
                     .ldc = N,
                     .c_dtype = v->c,
                     .alpha = (float)v->alpha,
                     .nontemporal = true,
                     .add = v->add,
                     .bias = v->bias ? p->bias.data : NULL,
                     .bias_dtype = AF_DTYPE_F32,
                     .skinny = skinny,
                     .exact = v->exact};
        if (round / pools == 1 && f->packed_bytes(v->a, N, K) > 0) {
            packed = f->pack_frozen(&g.b, v->a, N, K, panels, pool, with->work);
            g.b.packed = &packed;
        }
        choose_form(f, (size_t)round);
        f->gemm(&g, pool, with->work);
        if (!first[order]) {
            first[order] = malloc(bytes + 1);
            memcpy(first[order], got, bytes);
            check_values(f, p, got);
        }
        CHECK_MSG(memcmp(first[order], got, bytes / (size_t)M * (size_t)rows) == 0,
                  "%s, %s %dx%dx%d: %d threads, %d rows%s change the result", f->name, v->why,
                  (int)M, (int)N, (int)K, threads, (int)rows,
                  round / pools == 1 ? ", packed once," : "");
    }
    free(first[0]), free(first[1]), free(got), free(panels);
}

static void test_gemm_agrees_with_double(void **state)
{
    enum { TABLES = 8 };
    (void)state;
    bench with[TABLES];
    int tables = 0;
    for (; own_table(tables); tables++) {
        assert_true(tables < TABLES);
        with[tables] = new_bench(tables);
    }
    for (size_t v = 0; v < AF_LEN(variants); v++)
        for (size_t s = 0; s < AF_LEN(sizes); s++) {
            if (!test_takes_few(v + s))
                continue;
            gemm_case p = new_gemm_case(&variants[v], sizes[s]);
            for (int i = 0; i < tables; i++) {
                if (i > 0 && !test_takes(s + (size_t)i))
                    continue;
                for (int skinny = 0; skinny < (p.M <= 20 ? 2 : 1); skinny++)
                    run_gemm_case(&with[i], &p, skinny);
            }
            free_gemm_case(&p);
        }
    while (tables > 0)
        free_bench(&with[--tables]);
}

/* The same sum with the first and the last B packed once: to the last bit. */
static void packed_terms(const af_fast *f, const af_gemm *each, const int64_t K[3], af_pool *pool,
                         void *work)
{
    const size_t bytes = (size_t)(each->M * each->N) * af_dtype_get(each->c_dtype)->bytes;
    void *panels[2];
    af_packed packed[2];
    af_gemm g = *each;
    af_operand *b[2] = {&g.b, &g.term[1].b};
    g.c = calloc(1, bytes);
    for (int i = 0; i < 2; i++) {
        const uint64_t need = f->packed_bytes(g.a.dtype, g.N, K[2 * i]);
        panels[i] = aligned_alloc(64, need / 64 * 64 + 64);
        if (need == 0) /* f32 rows in planes: a B cannot be packed */
            continue;
        packed[i] = f->pack_frozen(b[i], g.a.dtype, g.N, K[2 * i], panels[i], pool, work);
        b[i]->packed = &packed[i];
    }
    f->gemm(&g, pool, work);
    CHECK_MSG(memcmp(g.c, each->c, bytes) == 0, "%s, %d rows: packing once changes the sum",
              f->name, (int)g.M);
    free(panels[0]), free(panels[1]), free(g.c);
}

/* Values of one row: of either sign, all positive, or of rows and places of very different size. */
typedef enum spread { SPREAD_NORMAL, SPREAD_POSITIVE, SPREAD_WILD } spread;

static void fill(float *x, int64_t rows, int64_t cols, spread how, uint64_t stream)
{
    for (int64_t i = 0; i < rows * cols; i++) {
        const double v = af_rng_normal(31, stream, (uint64_t)i),
                     row = af_rng_f64(32, stream, (uint64_t)(i / cols)) - 0.5,
                     at = af_rng_f64(33, stream, (uint64_t)i) - 0.5;
        x[i] = (float)(how == SPREAD_POSITIVE ? fabs(v)
                       : how == SPREAD_WILD   ? v * pow(10, 16 * row + 6 * at)
                                              : v);
    }
}

/* The mean square error of sums, each relative to the norm of its terms. */
static double error_of(const float *c, const float *a, const float *b, int64_t M, int64_t N,
                       int64_t K)
{
    double err2 = 0;
    for (int64_t i = 0; i < M * N; i++) {
        double sum = 0, length2 = 0;
        for (int64_t k = 0; k < K; k++) {
            const double x = (double)a[i / N * K + k] * (double)b[i % N * K + k];
            sum += x;
            length2 += x * x;
        }
        err2 += ((double)c[i] - sum) * ((double)c[i] - sum) / length2;
    }
    return err2;
}

/* c = a b^T, a in f32, b too or in bf16. */
static af_gemm rows_times_rows(int64_t M, int64_t N, int64_t K, const float *a, const void *b,
                               bool half, float *c)
{
    return (af_gemm){.M = M,
                     .N = N,
                     .K = K,
                     .a = {a, K, AF_DTYPE_F32, false, NULL, NULL, NULL},
                     .b = {b, K, half ? AF_DTYPE_BF16 : AF_DTYPE_F32, true, NULL, NULL, NULL},
                     .c = c,
                     .ldc = N,
                     .c_dtype = AF_DTYPE_F32,
                     .alpha = 1};
}

/* f32 GEMMs are at least as exact as one chain of fused multiply-adds, whatever the unit. */
static void as_exact_as_a_chain(int64_t K, spread how, bool half)
{
    enum { M = 33, N = 32 };
    float *a = calloc((size_t)(M * K), sizeof *a), *b = calloc((size_t)(N * K), sizeof *b);
    uint16_t *h = calloc((size_t)(N * K), sizeof *h);
    float c[M * N], chain[M * N] = {0};
    fill(a, M, K, how, 1);
    fill(b, N, K, how, 2);
    for (int64_t i = 0; half && i < N * K; i++) {
        af_store_f64(h, AF_DTYPE_BF16, (uint64_t)i, (double)b[i]);
        b[i] = (float)af_load_f64(h, AF_DTYPE_BF16, (uint64_t)i);
    }
    for (int64_t i = 0; i < M * N; i++)
        for (int64_t k = 0; k < K; k++)
            chain[i] = fmaf(a[i / N * K + k], b[i % N * K + k], chain[i]);
    const double limit = 1.2 * sqrt(error_of(chain, a, b, M, N, K));
    for (int i = 0; own_table(i); i++) {
        const af_fast *f = own_table(i);
        void *work = malloc(f->gemm_work(1));
        const af_gemm g = rows_times_rows(M, N, K, a, half ? (void *)h : b, half, c);
        f->gemm(&g, NULL, work);
        const double got = sqrt(error_of(c, a, b, M, N, K));
        CHECK_MSG(got <= limit, "%s, K %d, values %d, %s: error %.3g, of a chain %.3g", f->name,
                  (int)K, (int)how, half ? "bf16" : "f32", got, limit / 1.2);
        free(work);
    }
    free(a), free(b), free(h);
}

static void test_f32_is_exact_to_f32(void **state)
{
    static const int64_t depths[] = {64, 576, 1536};
    (void)state;
    for (size_t k = 0; k < AF_LEN(depths); k++)
        for (int how = SPREAD_NORMAL; how <= SPREAD_WILD; how++)
            for (int half = 0; half < 2; half++)
                if (test_takes(k + (size_t)how + (size_t)half))
                    as_exact_as_a_chain(depths[k], (spread)how, half);
}

/* A value that is not finite propagates to its row or column; the largest finite numbers survive.
 */
static void extremes(const af_fast *f, float x, bool in_b, bool half, bool finite)
{
    enum { M = 40, N = 40, K = 70, LINE = 37, AT = 50 };
    float a[M * K], b[N * K], c[M * N];
    uint16_t h[N * K];
    void *work = malloc(f->gemm_work(1));
    for (int i = 0; i < M * K; i++)
        a[i] = b[i] = 0.25f;
    *(in_b ? &b[LINE * K + AT] : &a[LINE * K + AT]) = x;
    for (int i = 0; i < N * K; i++)
        af_store_f64(h, AF_DTYPE_BF16, (uint64_t)i, (double)b[i]);
    const af_gemm g = rows_times_rows(M, N, K, a, half ? (void *)h : b, half, c);
    f->gemm(&g, NULL, work);
    for (int i = 0; i < M * N; i++) {
        const bool hit = (in_b ? i % N : i / N) == LINE;
        const double want = hit ? 0.25 * (double)x + 0.0625 * (K - 1) : 0.0625 * K;
        if (hit && !finite)
            CHECK_MSG(!isfinite(c[i]), "%s, %g: %g at %d", f->name, (double)x, (double)c[i], i);
        else
            CHECK_MSG(fabs((double)c[i] - want) <= 1e-6 * fabs(want), "%s, %g: %g at %d, not %g",
                      f->name, (double)x, (double)c[i], i, want);
    }
    free(work);
}

static void test_extreme_values(void **state)
{
    (void)state;
    for (int i = 0; own_table(i); i++)
        for (int k = 0; k < 4; k++) {
            const bool in_b = k & 1, half = k & 2;
            extremes(own_table(i), INFINITY, in_b, half, false);
            extremes(own_table(i), -INFINITY, in_b, half, false);
            extremes(own_table(i), NAN, in_b, half, false);
            extremes(own_table(i), 3.3e38f, in_b, half && !in_b, true);
            extremes(own_table(i), -3.4028234e38f, in_b, half && !in_b, true);
            extremes(own_table(i), 1e-40f, in_b, half && !in_b, true);
        }
}

/* Columns of a wider C: the same values, and nothing next to them is written. */
static void strided(const af_fast *f, const variant *v, int threads)
{
    enum { M = 70, N = 45, K = 130, LD = 61, AT = 7 };
    const size_t size = af_dtype_get(v->c)->bytes;
    matrix a = new_matrix(v->ta ? K : M, v->ta ? M : K, v->a, 1),
           b = new_matrix(v->tb ? N : K, v->tb ? K : N, v->b, 2), c = new_matrix(M, N, v->c, 3);
    uint8_t *wide = malloc(M * LD * size), *was = malloc(M * LD * size);
    memset(was, 0x5a, M * LD * size);
    for (size_t m = 0; m < M; m++)
        memcpy(was + (m * LD + AT) * size, (uint8_t *)c.data + m * N * size, N * size);
    memcpy(wide, was, M * LD * size);
    af_gemm g = {.M = M,
                 .N = N,
                 .K = K,
                 .a = {a.data, a.cols, v->a, v->ta, NULL, NULL, NULL},
                 .b = {b.data, b.cols, v->b, v->tb, NULL, NULL, NULL},
                 .c = c.data,
                 .ldc = N,
                 .c_dtype = v->c,
                 .alpha = (float)v->alpha,
                 .add = v->add,
                 .exact = v->exact};
    af_error err = {0};
    af_pool *pool;
    CHECK_OK(af_pool_new(&pool, threads, &err), err);
    void *work = malloc(f->gemm_work(threads));
    f->gemm(&g, pool, work);
    g.c = wide + AT * size;
    g.ldc = LD;
    f->gemm(&g, pool, work);
    for (size_t m = 0; m < M; m++)
        memcpy(was + (m * LD + AT) * size, (uint8_t *)c.data + m * N * size, N * size);
    CHECK_MSG(memcmp(wide, was, M * LD * size) == 0, "%s, %s: a wider C differs", f->name, v->why);
    free(wide), free(was), free(work);
    af_pool_free(pool);
    free_matrix(&a), free_matrix(&b), free_matrix(&c);
}

static void test_columns_of_a_wider_c(void **state)
{
    (void)state;
    for (int i = 0; own_table(i); i++)
        for (size_t v = 0; v < AF_LEN(variants); v++)
            for (int threads = 1; threads <= 2; threads++)
                strided(own_table(i), &variants[v], threads);
}

/* A sum of two GEMMs, as in a projection with its adapter: the second one exact, its B in f32. */
static void terms(const af_fast *f, af_dtype type, af_dtype weights, int64_t M, const int64_t K[3],
                  int threads)
{
    const af_dtype types[] = {weights, AF_DTYPE_F32, weights == type ? type : AF_DTYPE_F16};
    enum { N = 53 };
    matrix a[3], b[3];
    af_gemm g = {.M = M, .N = N, .ldc = N, .c_dtype = type, .alpha = 1, .terms = 2};
    for (int i = 0; i < 3; i++) {
        a[i] = new_matrix(M, K[i], type, 20 + (uint64_t)i);
        b[i] = new_matrix(N, K[i], types[i], 30 + (uint64_t)i);
        const af_gemm_term t = {K[i],
                                {a[i].data, K[i], type, false, NULL, NULL, NULL},
                                {b[i].data, K[i], b[i].type, true, NULL, NULL, NULL},
                                i == 1};
        if (i == 0)
            g.K = t.K, g.a = t.a, g.b = t.b;
        else
            g.term[i - 1] = t;
    }
    g.c = calloc((size_t)(M * N), 4);
    af_error err = {0};
    af_pool *pool;
    CHECK_OK(af_pool_new(&pool, threads, &err), err);
    void *work = malloc(f->gemm_work(threads));
    f->gemm(&g, pool, work);
    packed_terms(f, &g, K, pool, work);
    double err2 = 0, ref2 = 0;
    for (int64_t m = 0; m < M; m++)
        for (int64_t n = 0; n < N; n++) {
            double sum = 0;
            for (int i = 0; i < 3; i++)
                for (int64_t k = 0; k < K[i]; k++)
                    sum += a[i].exact[m * K[i] + k] * b[i].exact[n * K[i] + k];
            const double x = af_load_f64(g.c, type, (uint64_t)(m * N + n));
            err2 += (x - sum) * (x - sum);
            ref2 += sum * sum;
        }
    CHECK_MSG(sqrt(err2) <= (type == AF_DTYPE_F32 ? 3e-6 : 3e-3) * sqrt(ref2),
              "%s, %s, %d rows: %.3g of %.3g", f->name, af_dtype_name(type), (int)M, sqrt(err2),
              sqrt(ref2));
    for (int i = 0; i < 3; i++) {
        free_matrix(&a[i]);
        free_matrix(&b[i]);
    }
    af_pool_free(pool);
    free(work), free(g.c);
}

static void test_sums_of_gemms(void **state)
{
    static const int64_t depths[][3] = {{70, 5, 9}, {600, 16, 33}, {1500, 16, 700}};
    (void)state;
    for (int i = 0; own_table(i); i++)
        for (size_t k = 0; k < AF_LEN(depths); k++)
            for (int m = 0; m < 3; m++) {
                if (!test_takes((size_t)i + k + (size_t)m))
                    continue;
                const af_fast *f = own_table(i);
                const int64_t M = (int64_t[]){3, 41, 400}[m];
                terms(f, AF_DTYPE_F32, AF_DTYPE_F32, M, depths[k], 1 + m);
                terms(f, AF_DTYPE_F32, AF_DTYPE_BF16, M, depths[k], 1 + m);
                terms(f, AF_DTYPE_BF16, AF_DTYPE_BF16, M, depths[k], 1 + m);
            }
}

/* Rows of A with space between them, and so far apart that they are packed: the same bits. */
static void test_rows_apart(void **state)
{
    enum { FAR = 16388, MOST = 70, K_MOST = 700 };
    static const int64_t shapes[][3] = {{70, 97, 700}, {13, 48, 64}, {65, 200, 33}, {8, 96, 640}};
    static const int64_t lds[] = {K_MOST, K_MOST + 5, FAR};
    (void)state;
    matrix a = new_matrix(MOST, K_MOST, AF_DTYPE_F32, 1), b = new_matrix(200, K_MOST, a.type, 2);
    float *wide = malloc((size_t)(MOST * FAR) * sizeof *wide), *c[2];
    for (int i = 0; i < 2; i++)
        c[i] = malloc((size_t)(MOST * 200) * sizeof *c[i]);
    for (int i = 0; own_table(i); i++) {
        bench with = new_bench(i);
        for (size_t k = 0; k < AF_LEN(shapes) * AF_LEN(lds) * SOME_POOLS; k++) {
            const int64_t *size = shapes[k / AF_LEN(lds) % AF_LEN(shapes)],
                          ld = lds[k % AF_LEN(lds)];
            af_pool *pool = with.pool[k / AF_LEN(lds) / AF_LEN(shapes)];
            float *to = c[k % AF_LEN(lds) > 0];
            memset(wide, 0xff, (size_t)(MOST * FAR) * sizeof *wide); /* NaN between the rows */
            for (int64_t r = 0; r < size[0]; r++)
                memcpy(wide + r * ld, (float *)a.data + r * K_MOST, (size_t)size[2] * sizeof *wide);
            af_gemm g = rows_times_rows(size[0], size[1], size[2], wide, b.data, false, to);
            g.a.ld = ld;
            g.b.ld = K_MOST;
            with.f->gemm(&g, pool, with.work);
            CHECK_MSG(memcmp(c[0], to, (size_t)(size[0] * size[1]) * sizeof *to) == 0,
                      "%s: %dx%dx%d, rows %d apart", with.f->name, (int)size[0], (int)size[1],
                      (int)size[2], (int)ld);
        }
        free_bench(&with);
    }
    free(wide), free(c[0]), free(c[1]);
    free_matrix(&a), free_matrix(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_agrees_with_double), cmocka_unit_test(test_f32_is_exact_to_f32),
        cmocka_unit_test(test_extreme_values),          cmocka_unit_test(test_columns_of_a_wider_c),
        cmocka_unit_test(test_sums_of_gemms),           cmocka_unit_test(test_rows_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
