/* test_fast_threads.c - GEMMs large enough that several threads cut A, B and K in blocks of other
 * sizes than one thread does: the same bits as one thread, whose values test_fast_gemm.c checks. */
#include "test.h"

#include "backend/cpu/cpu.h"
#include "base/rng.h"
#include "fast_tables.h"
#include "tensor/codec.h"

typedef struct large_gemm {
    const char *why;
    int64_t M, N, K;
    bool ta, tb, add;
    af_dtype weights; /* of B */
    int64_t rank;     /* of an f32 term with it, or 0 */
} large_gemm;

/* Forward on two threads: several blocks and steps of k. dX of a head: more steps than are packed
 * together. dW: transposed rows, added to what is there. bf16 weights: one plane with the three of
 * f32, where there are planes; with an adapter their panels are of several depths. Blocks are
 * decoded while packing. Few lines and long sums: a second block finds panels of the first. */
static const large_gemm cases[] = {
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

static void decode(const void *weight, int64_t from, int64_t n, float *out)
{
    af_ld_row_f32(weight, from, n, out);
}

static af_operand operand(const void *data, int64_t rows, int64_t cols, af_dtype type, bool trans)
{
    return (af_operand){data, trans ? rows : cols, type, trans, NULL, NULL, NULL};
}

static void same_bits(const af_fast *f, const large_gemm *p)
{
    static const int thread_counts[] = {1, 2, 3, 8, 9, 16};
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
    for (size_t i = 0; i < AF_LEN(thread_counts); i++) {
        af_pool *pool;
        af_error err = {0};
        CHECK_OK(af_pool_new(&pool, thread_counts[i], &err), err);
        void *work = malloc(f->gemm_work(thread_counts[i]));
        memset(work, 0xff,
               f->gemm_work(thread_counts[i])); /* NaN: must be written before it is read */
        const bool other = both && i > 0 && thread_counts[i - 1] <= f->machine->planes_threads &&
                           thread_counts[i] > f->machine->planes_threads;
        float *to = i > 0 && !other ? got : first;
        memcpy(to, c, bytes);
        af_gemm g = {.M = p->M,
                     .N = p->N,
                     .K = p->K,
                     .a = operand(a, p->M, p->K, AF_DTYPE_F32, p->ta),
                     .b = operand(b, p->K, p->N, p->weights, p->tb),
                     .c = to,
                     .ldc = p->N,
                     .c_dtype = AF_DTYPE_F32,
                     .alpha = 1,
                     .add = p->add,
                     .terms = p->rank > 0,
                     .term = {{p->rank, operand(down, p->M, p->rank, AF_DTYPE_F32, false),
                               operand(up, p->rank, p->N, AF_DTYPE_F32, true), false}}};
        if (blocks)
            g.b.decode = decode, g.b.weight = &weight;
        choose_form(f, i);
        f->gemm(&g, pool, work);
        CHECK_MSG(memcmp(first, to, bytes) == 0, "%s, %s: %d threads change the result", f->name,
                  p->why, thread_counts[i]);
        free(work);
        af_pool_free(pool);
    }
    free(a), free(b), free(c), free(down), free(up), free(first), free(got);
}

static void test_threads_do_not_change_large_gemms(void **state)
{
    (void)state;
    for (int i = 0; own_table(i); i++)
        for (size_t k = 0; k < AF_LEN(cases); k++)
            same_bits(own_table(i), &cases[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_do_not_change_large_gemms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
