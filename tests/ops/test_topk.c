/* test_topk.c - rows of the whole vocabulary from their most likely tokens, by plain loops. */
#include "test.h"

#include "backend/cpu/cpu.h"

enum { N = 4, K = 3, V = 11 };

static void test_tokens_are_put_in_their_places(void **state)
{
    (void)state;
    static const int32_t id[N * K] = {3, 10, 0, -100, -100, -100, 7, 8, 9, 1, -100, 2};
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    float x[N * K];
    assert_int_equal(af_cpu_open(&d, 2, NULL), AF_OK);
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *i = af_graph_input(g, "id", AF_DTYPE_I32, 2, (int64_t[]){N, K}),
              *values = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){N, K});
    af_tensor *y = af_expand_topk(g, i, values, V, -5);
    af_graph_output(g, y);
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int k = 0; k < N * K; k++)
        x[k] = (float)k + 0.5f;
    CHECK_OK(af_tensor_write(g, i, id, sizeof id, &err), err);
    CHECK_OK(af_tensor_write(g, values, x, sizeof x, &err), err);
    CHECK_OK(af_graph_run(g, AF_RUN_FORWARD, &err), err);
    for (int n = 0; n < N; n++)
        for (int v = 0; v < V; v++) {
            double want = -5;
            for (int k = 0; k < K; k++)
                want = id[n * K + k] == v ? (double)x[n * K + k] : want;
            assert_true(af_ld(y, n * V + v) == want);
        }
    af_graph_free(g);
    af_device_close(d);
}

static void test_shapes_are_checked(void **state)
{
    (void)state;
    af_graph *g = NULL;
    af_error err = {0};
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *i = af_graph_input(g, "id", AF_DTYPE_I32, 2, (int64_t[]){N, K}),
              *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){N, K + 1});
    af_graph_output(g, af_expand_topk(g, i, x, V, 0));
    assert_int_not_equal(af_graph_status(g, &err), AF_OK);
    assert_non_null(strstr(err.msg, "expand_topk"));
    af_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens_are_put_in_their_places),
        cmocka_unit_test(test_shapes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
