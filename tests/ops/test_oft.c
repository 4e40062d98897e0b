/* test_oft.c - rotations of orthogonal fine-tuning: gradients against central differences, the fast
 * versions against the twins, what is refused. Values of PEFT: test_lm_golden.c. */
#include "ops/fastcheck.h"
#include "ops/gradcheck.h"

#include "ops/oft/oft.h"

typedef struct oft_variant {
    int terms;
    bool exact, single;
} oft_variant;

static const oft_variant variants[] = {
    {.terms = 5}, {.exact = true}, {.terms = 3, .single = true},   {.terms = 2},
    {.terms = 4}, {.terms = 8},    {.exact = true, .single = true}};

/* Rows, blocks, columns of a block. */
static const int64_t shapes[][3] = {{1, 1, 2}, {3, 4, 3}, {5, 2, 7}, {7, 3, 4}};

/* The same q in two rotations, one after the other: both add to its gradient. */
static af_tensor *grad_case(gradcheck *c)
{
    const oft_variant *v = &variants[c->variant];
    const int64_t *s = c->shape, n = s[2];
    const af_oft_opts o = {n, v->terms, v->exact};
    af_tensor *x = gc_param2(c, s[0], s[1] * n),
              *q = gc_param2(c, v->single ? 1 : s[1], n * (n - 1) / 2);
    x = af_oft_rotate(c->g, x, af_oft_blocks(c->g, q, &o));
    return af_oft_rotate(c->g, af_tanh(c->g, x), af_oft_blocks(c->g, q, &o));
}

static void test_gradients(void **state)
{
    (void)state;
    for (int v = 0; v < (int)AF_LEN(variants); v++)
        gradcheck_shapes("oft", grad_case, (gradcheck){.variant = v, .low = -0.6, .high = 0.6},
                         shapes, (int)AF_LEN(shapes));
}

static af_tensor *fast_case(fastcheck *c)
{
    const oft_variant *v = &variants[c->variant];
    const int64_t blocks = c->shape[1], n = c->shape[2];
    const af_oft_opts o = {n, v->terms, v->exact};
    af_tensor *q = fc_param(c, "q", v->single ? 1 : blocks, n * (n - 1) / 2);
    af_tensor *x = af_oft_rotate(c->g, fc_rows(c, blocks * n), af_oft_blocks(c->g, q, &o));
    return af_oft_rotate(c->g, x, af_oft_blocks(c->g, q, &o)); /* adds to the gradient of q */
}

/* Of lengths that trained ones have. */
static void small_q(fastcheck *c, af_tensor *t)
{
    (void)c;
    for (int64_t i = 0; strcmp(t->name, "q") == 0 && i < af_count(t); i++)
        af_st(t, i, af_ld(t, i) / 10);
}

static void test_fast_versions(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 2}, {3, 4, 5}, {65, 3, 32}, {17, 4, 4}, {40, 2, 40}};
    static const af_dtype types[] = {AF_DTYPE_F32, AF_DTYPE_BF16};
    for (size_t t = 0; t < AF_LEN(types); t++)
        for (size_t s = 0; s < AF_LEN(sizes); s++)
            for (int v = 0; v < (int)AF_LEN(variants); v++)
                for (int live = 0; live < 2; live++)
                    fastcheck_run("oft", fast_case,
                                  (fastcheck){.type = types[t],
                                              .shape = sizes[s],
                                              .variant = v,
                                              .fill = small_q,
                                              .live = live ? (sizes[s][0] + 1) / 2 : 0});
}

/* A rotation keeps lengths: the exact one, and the series nearly so for small Q. */
static void test_lengths_are_kept(void **state)
{
    (void)state;
    enum { N = 6, COUNT = N * (N - 1) / 2 };
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    assert_int_equal(af_cpu_open(&d, 1, NULL), AF_OK);
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *q = af_graph_input(g, "q", AF_DTYPE_F32, 2, (int64_t[]){1, COUNT}), *r[2];
    for (int exact = 0; exact < 2; exact++) {
        r[exact] = af_oft_blocks(g, q, &(af_oft_opts){N, 9, exact});
        af_graph_output(g, r[exact]);
    }
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int i = 0; i < COUNT; i++)
        af_st(q, i, 0.02 * (i % 5 - 2));
    CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    for (int exact = 0; exact < 2; exact++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double sum = 0;
                for (int k = 0; k < N; k++)
                    sum += af_ld(r[exact], k * N + i) * af_ld(r[exact], k * N + j);
                assert_true(fabs(sum - (i == j)) < 1e-6);
            }
    /* the two turn in opposite directions: (I + Q) (I - Q)^-1, (I - Q) (I + Q)^-1 */
    for (int i = 0; i < N * N; i++)
        assert_true(fabs(af_ld(r[0], i) - af_ld(r[1], i % N * N + i / N)) < 1e-6);
    af_graph_free(g);
    af_device_close(d);
}

static void refused(int64_t count, int64_t block, int64_t columns, int terms, const char *words)
{
    af_graph *g = NULL;
    af_error err = {0};
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *q = af_graph_param(g, "q", AF_DTYPE_F32, 2, (int64_t[]){2, count});
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){3, columns});
    (void)af_oft_rotate(g, x, af_oft_blocks(g, q, &(af_oft_opts){block, terms, false}));
    assert_int_equal(af_graph_status(g, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, words), "%s", err.msg);
    af_graph_free(g);
}

static void test_shapes_are_checked(void **state)
{
    (void)state;
    refused(5, 4, 8, 5, "triangles of 4 x 4");
    refused(0, 1, 2, 5, "triangles of 1 x 1");
    refused(6, 4, 8, -1, "triangles");
    refused(6, 4, 12, 5, "do not fit x");
    refused(6, 4, 9, 5, "do not fit x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fast_versions),
        cmocka_unit_test(test_lengths_are_kept),
        cmocka_unit_test(test_shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
