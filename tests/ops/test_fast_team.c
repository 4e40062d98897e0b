/* test_fast_team.c - products large enough that several threads cut A, B and K in blocks of other
 * sizes than one thread does: the same bits as one thread, whose values test_fast_gemm.c checks. */
#include "test.h"

#include "base/rng.h"
#include "cpu/gemm/fast.h"
#include "tensor/codec.h"

typedef struct product {
    const char *why;
    int64_t M, N, K;
    bool ta, tb, add;
    af_dtype weights; /* of B */
    int64_t rank;     /* of a f32 term beside it, or 0 */
} product;

/* Forward on two threads: several blocks and steps of k. dX of a head: more steps than are packed
 * together. dW: transposed rows, added to what is there. bf16 weights: one plane beside the three
 * of f32, where there is such a way; with an adapter their panels are of several depths. Blocks are
 * decoded on the way. Few lines and long sums: a second block finds panels of the first. */
static const product products[] = {
    {"forward", 700, 1210, 1290, false, true, false, AF_DTYPE_F32, 0},
    {"dX, long sums", 70, 130, 6000, false, false, false, AF_DTYPE_F32, 0},
    {"dW, many rows", 5000, 100, 650, true, false, true, AF_DTYPE_F32, 0},
    {"an adapter", 333, 350, 410, false, true, false, AF_DTYPE_F32, 20},
    {"bf16 weights", 700, 1210, 700, false, true, true, AF_DTYPE_BF16, 0},
    {"dX of bf16 weights", 70, 130, 6000, false, false, false, AF_DTYPE_BF16, 0},
    {"bf16 weights and an adapter", 333, 610, 410, false, true, false, AF_DTYPE_BF16, 20},
    {"blocks and an adapter", 333, 350, 416, false, true, false, AF_DTYPE_Q8_0, 20},
    {"dX of blocks", 333, 416, 350, false, false, false, AF_DTYPE_Q8_0, 0},
    {"columns in blocks", 51, 106, 4423, false, false, false, AF_DTYPE_F32, 0},
    {"rows in blocks", 273, 95, 4562, false, true, false, AF_DTYPE_F32, 0},
};

static void *values(int64_t n, af_dtype type, uint64_t stream)
{
    const bool blocks = af_dtype_get(type)->elems > 1;
    void *x = calloc((size_t)n, sizeof(float)), *codes = blocks ? calloc((size_t)n, 2) : NULL;
    for (int64_t i = 0; i < n; i++)
        af_store_f64(x, blocks ? AF_DTYPE_F32 : type, (uint64_t)i,
                     (float)af_rng_f64(7, stream, (uint64_t)i) - 0.5f);
    if (!blocks)
        return x;
    af_codec_encode_row(type, x, codes, n, NULL);
    free(x);
    return codes;
}

static af_operand operand(const void *data, int64_t rows, int64_t cols, af_dtype type, bool trans)
{
    return (af_operand){data, trans ? rows : cols, type, trans, NULL, false, NULL};
}

static void same_bits(const af_fast *f, const product *p)
{
    static const int team[] = {1, 2, 3, 8, 9, 16};
    const size_t bytes = (size_t)(p->M * p->N) * sizeof(float);
    const bool blocks = af_dtype_get(p->weights)->elems > 1;
    void *a = values(p->M * p->K, AF_DTYPE_F32, 1), *b = values(p->N * p->K, p->weights, 2),
         *c = values(p->M * p->N, AF_DTYPE_F32, 3), *down = values(p->M * 64, AF_DTYPE_F32, 4),
         *up = values(p->N * 64, AF_DTYPE_F32, 5);
    float *first = malloc(bytes), *got = malloc(bytes);
    const bool both = p->weights == AF_DTYPE_F32;
    const af_tensor weight = {.dim = {p->tb ? p->N : p->K, p->tb ? p->K : p->N},
                              .ndim = 2,
                              .dtype = p->weights,
                              .data = b};
    for (size_t i = 0; i < AF_LEN(team); i++) {
        af_pool *pool;
        af_error err = {0};
        CHECK_OK(af_pool_new(&pool, team[i], &err), err);
        void *work = malloc(f->gemm_work(team[i]));
        memset(work, 0xff, f->gemm_work(team[i])); /* NaN: must be written before it is read */
        const bool other = both && i > 0 && team[i - 1] <= f->alike && team[i] > f->alike;
        float *to = i > 0 && !other ? got : first;
        memcpy(to, c, bytes);
        af_gemm g = {.M = p->M,
                     .N = p->N,
                     .K = p->K,
                     .a = operand(a, p->M, p->K, AF_DTYPE_F32, p->ta),
                     .b = operand(b, p->K, p->N, blocks ? AF_DTYPE_F32 : p->weights, p->tb),
                     .c = to,
                     .ldc = p->N,
                     .c_dtype = AF_DTYPE_F32,
                     .alpha = 1,
                     .add = p->add,
                     .terms = p->rank > 0,
                     .term = {{p->rank, operand(down, p->M, p->rank, AF_DTYPE_F32, false),
                               operand(up, p->rank, p->N, AF_DTYPE_F32, true), false}}};
        if (blocks)
            g.b.weight = &weight;
        f->gemm(&g, pool, work);
        CHECK_MSG(memcmp(first, to, bytes) == 0, "%s, %s: %d threads change the result", f->name,
                  p->why, team[i]);
        free(work);
        af_pool_free(pool);
    }
    free(a), free(b), free(c), free(down), free(up), free(first), free(got);
}

static void test_threads_do_not_change_large_products(void **state)
{
    (void)state;
    for (int i = 0; af_fast_at(i); i++)
        for (size_t k = 0; k < AF_LEN(products); k++)
            same_bits(af_fast_at(i), &products[k]);
}

/* dW of f32: A [K][M] turned, times B [K][N]. */
static af_gemm gradient(int64_t M, int64_t N, int64_t K, const float *a, const float *b, float *c,
                        af_kept *kept)
{
    return (af_gemm){.M = M,
                     .N = N,
                     .K = K,
                     .a = operand(a, M, K, AF_DTYPE_F32, true),
                     .b = operand(b, K, N, AF_DTYPE_F32, false),
                     .c = c,
                     .ldc = N,
                     .c_dtype = AF_DTYPE_F32,
                     .alpha = 1,
                     .kept = kept};
}

/* Products with the same B, one right after the other, as the gradients of weights that read the
 * same rows: where one finds the panels of the one before, what B has become is not seen. */
static bool shares_panels(const af_fast *f, int threads)
{
    enum { N = 330, K = 700, ROWS = 900 };
    static const int64_t M[] = {600, 200, 900};
    float *a = values(ROWS * K, AF_DTYPE_F32, 1), *old = values(N * K, AF_DTYPE_F32, 2),
          *new = values(N * K, AF_DTYPE_F32, 3), *b = values(N * K, AF_DTYPE_F32, 2),
          *c[3]; /* of b; of what it was, of what it became */
    af_pool *pool;
    af_error err = {0};
    af_kept kept = {0};
    bool shared = false;
    CHECK_OK(af_pool_new(&pool, threads, &err), err);
    void *work = malloc(f->gemm_work(threads)), *other = malloc(f->gemm_work(threads));
    for (int k = 0; k < 3; k++)
        c[k] = calloc(ROWS * N, sizeof *c[k]);
    for (size_t i = 0; i < AF_LEN(M); i++) {
        const size_t bytes = (size_t)(M[i] * N) * sizeof(float);
        const float *from[] = {b, old, new};
        for (int k = 0; k < 3; k++) {
            const af_gemm g = gradient(M[i], N, K, a, from[k], c[k], k ? NULL : &kept);
            f->gemm(&g, pool, k ? other : work);
        }
        const bool was = memcmp(c[0], c[1], bytes) == 0, is = memcmp(c[0], c[2], bytes) == 0;
        CHECK_MSG(was || (i > 0 && is), "%s, %d threads: product %zu of three differs", f->name,
                  threads, i);
        shared |= i > 0 && was && !is;
        memcpy(b, new, N * K * sizeof *b);
        if (!kept.panels) /* the next one must see what B is */
            memcpy(old, new, N * K * sizeof *b);
    }
    af_pool_free(pool);
    free(a), free(b), free(old), free(new), free(c[0]), free(c[1]), free(c[2]), free(work);
    free(other);
    return shared;
}

static void test_products_of_one_b_share_its_panels(void **state)
{
    (void)state;
    for (int i = 0; af_fast_at(i); i++) {
        bool shared = false;
        for (int threads = 1; threads <= 16; threads *= 2)
            shared |= shares_panels(af_fast_at(i), threads);
        CHECK_MSG(shared, "%s: no product kept its panels", af_fast_at(i)->name);
    }
}

/* As many rows as take another tile than the product before: its panels are laid out otherwise. */
static void test_few_rows_do_not_take_panels_of_another_kind(void **state)
{
    (void)state;
    enum { N = 96, K = 64, ROWS = 512 };
    static const int64_t M[] = {512, 24, 512};
    const int threads = 8;
    float *a = values(ROWS * K, AF_DTYPE_F32, 1), *b = values(N * K, AF_DTYPE_F32, 2);
    float *c[2] = {calloc(ROWS * N, sizeof(float)), calloc(ROWS * N, sizeof(float))};
    af_pool *pool;
    af_error err = {0};
    CHECK_OK(af_pool_new(&pool, threads, &err), err);
    for (int i = 0; af_fast_at(i); i++) {
        const af_fast *f = af_fast_at(i);
        void *work = malloc(f->gemm_work(threads)), *other = malloc(f->gemm_work(threads));
        af_kept kept = {0};
        for (size_t m = 0; m < AF_LEN(M); m++) {
            for (int k = 0; k < 2; k++) {
                const af_gemm g = gradient(M[m], N, K, a, b, c[k], k ? NULL : &kept);
                f->gemm(&g, pool, k ? other : work);
            }
            CHECK_MSG(memcmp(c[0], c[1], (size_t)(M[m] * N) * sizeof(float)) == 0,
                      "%s: product %zu differs", f->name, m);
        }
        free(work), free(other);
    }
    af_pool_free(pool);
    free(a), free(b), free(c[0]), free(c[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_do_not_change_large_products),
        cmocka_unit_test(test_products_of_one_b_share_its_panels),
        cmocka_unit_test(test_few_rows_do_not_take_panels_of_another_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
