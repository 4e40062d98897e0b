/* test_row_pick.c - copies of rows and their sums, forward and backward, by plain loops. */
#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"

#include <math.h>

enum { M = 5, N = 7, D = 6 };

static const int32_t index_of[2 * N] = {-100, 4, 1, -100, 2, -100, 1, 0, -100, -100, 4, 3, 3, -100};
static const int32_t back_of[2 * M] = {3, -100, 1, 3, 2, -100, 6, 5, 5, 0};

static void check(af_dtype type)
{
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    const int64_t xd[2] = {M, D}, id[2] = {N, 2}, bd[2] = {M, 2}, yd[2] = {N, D};
    assert_int_equal(af_cpu_open(&d, 2, NULL), AF_OK);
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *x = af_graph_param(g, "x", type, 2, xd), *u = af_graph_input(g, "u", type, 2, yd),
              *index = af_graph_input(g, "index", AF_DTYPE_I32, 2, id),
              *back = af_graph_input(g, "back", AF_DTYPE_I32, 2, bd);
    af_tensor *y = af_row_pick(g, x, index, back);
    af_graph_output(g, y);
    af_graph_backward(g, af_sum_all(g, af_mul(g, y, u)));
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    for (int64_t i = 0; i < M * D; i++)
        af_st(x, i, (double)(float)normal(1, (uint64_t)i));
    for (int64_t i = 0; i < N * D; i++)
        af_st(u, i, (double)(float)normal(2, (uint64_t)i));
    CHECK_OK(af_tensor_write(g, index, index_of, sizeof index_of, &err), err);
    CHECK_OK(af_tensor_write(g, back, back_of, sizeof back_of, &err), err);
    CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
    double dx[M * D] = {0};
    for (int64_t n = 0; n < N; n++)
        for (int64_t e = 0; e < D; e++) {
            double sum = 0;
            for (int k = 0; k < 2; k++) {
                const int32_t m = index_of[2 * n + k];
                sum += m < 0 ? 0 : af_ld(x, m * D + e);
                if (m >= 0)
                    dx[m * D + e] += af_ld(u, n * D + e);
            }
            assert_true(fabs(af_ld(y, n * D + e) - sum) < 1e-6);
        }
    for (int64_t i = 0; i < M * D; i++)
        assert_true(fabs(af_ld(x->grad, i) - dx[i]) < 1e-6);
    af_graph_free(g);
    af_device_close(d);
}

static void test_rows_are_copied_and_added(void **state)
{
    (void)state;
    check(AF_DTYPE_F64);
    check(AF_DTYPE_F32);
}

static void test_numbers_of_other_rows_are_refused(void **state)
{
    (void)state;
    af_graph *g = NULL;
    af_device *d = NULL;
    af_error err = {0};
    assert_int_equal(af_cpu_open(&d, 1, NULL), AF_OK);
    assert_int_equal(af_graph_new(&g, NULL), AF_OK);
    af_tensor *x = af_graph_input(g, "x", AF_DTYPE_F32, 2, (int64_t[]){2, 3}),
              *index = af_graph_input(g, "index", AF_DTYPE_I32, 2, (int64_t[]){1, 2}),
              *back = af_graph_input(g, "back", AF_DTYPE_I32, 2, (int64_t[]){2, 2});
    af_graph_output(g, af_row_pick(g, x, index, back));
    CHECK_OK(af_graph_prepare(g, d, &err), err);
    assert_int_equal(af_tensor_write(g, index, (int32_t[]){0, 2}, 8, &err), AF_EUSAGE);
    assert_int_equal(af_tensor_write(g, index, (int32_t[]){1, -100}, 8, &err), AF_OK);
    af_graph_free(g);
    af_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_copied_and_added),
        cmocka_unit_test(test_numbers_of_other_rows_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
