/* test_selective.c - the selective scan by plain loops; through a cache, row after row, the same.
 */
#include "normal.h"
#include "test.h"

#include "backend/cpu/cpu.h"

#include <math.h>

enum { N = 9, I = 5, STATES = 3 };

static const int32_t whole[4] = {0, 6, 6, 8};

typedef struct scan_case {
    af_graph *g;
    af_device *d;
    af_tensor *x, *dt, *a, *b, *c, *bounds, *state, *start, *y;
} scan_case;

static double value(int what, int64_t i)
{
    const double v = normal((uint64_t)what, (uint64_t)i);
    return (double)(float)(what == 2 ? fabs(v) : what == 3 ? -fabs(v) : v);
}

static void open_case(scan_case *s, int64_t rows, bool cached)
{
    af_error err = {0};
    assert_int_equal(af_cpu_open(&s->d, 3, NULL), AF_OK);
    assert_int_equal(af_graph_new(&s->g, NULL), AF_OK);
    s->x = af_graph_input(s->g, "x", AF_DTYPE_F32, 2, (int64_t[]){rows, I});
    s->dt = af_graph_input(s->g, "dt", AF_DTYPE_F32, 2, (int64_t[]){rows, I});
    s->a = af_graph_input(s->g, "a", AF_DTYPE_F32, 2, (int64_t[]){I, STATES});
    s->b = af_graph_input(s->g, "b", AF_DTYPE_F32, 2, (int64_t[]){rows, STATES});
    s->c = af_graph_input(s->g, "c", AF_DTYPE_F32, 2, (int64_t[]){rows, STATES});
    s->bounds = af_graph_input(s->g, "bounds", AF_DTYPE_I32, 1, (int64_t[]){cached ? 2 : 4});
    const af_selective_opts o = {s->x, s->dt, s->a, s->b, s->c, s->bounds};
    if (cached) {
        s->start = af_graph_input(s->g, "start", AF_DTYPE_I32, 1, (int64_t[]){1});
        s->state = af_graph_state(s->g, "state", AF_DTYPE_F32, 3, (int64_t[]){1, I, STATES});
    }
    s->y = cached ? af_selective_cached(s->g, &o, s->state, s->start) : af_selective(s->g, &o);
    af_graph_output(s->g, s->y);
    CHECK_OK(af_graph_prepare(s->g, s->d, &err), err);
}

/* Rows from `row` on of all that is read. */
static void fill(scan_case *s, int64_t row)
{
    af_tensor *const of[] = {s->x, s->dt, s->a, s->b, s->c};
    for (int k = 0; k < 5; k++) {
        const int64_t from = k == 2 ? 0 : row * af_tensor_dim(of[k], 1);
        for (int64_t i = 0; i < af_tensor_count(of[k]); i++)
            af_st(of[k], i, value(k + 1, from + i));
    }
}

static void close_case(scan_case *s)
{
    af_graph_free(s->g);
    af_device_close(s->d);
}

static void reference(double y[N][I])
{
    memset(y, 0, sizeof(double[N][I]));
    for (int q = 0; q < 3; q++)
        for (int i = 0; i < I; i++)
            for (int k = 0; k < STATES; k++) {
                double s = 0;
                for (int64_t r = whole[q]; r < whole[q + 1]; r++) {
                    const double dt = value(2, r * I + i);
                    s = exp(dt * value(3, i * STATES + k)) * s +
                        dt * value(1, r * I + i) * value(4, r * STATES + k);
                    y[r][i] += value(5, r * STATES + k) * s;
                }
            }
}

static void test_rows_of_sequences(void **state)
{
    (void)state;
    scan_case s = {0};
    af_error err = {0};
    double want[N][I];
    open_case(&s, N, false);
    fill(&s, 0);
    CHECK_OK(af_tensor_write(s.g, s.bounds, whole, sizeof whole, &err), err);
    CHECK_OK(af_graph_run(s.g, AF_RUN_FORWARD, &err), err);
    reference(want);
    for (int64_t r = 0; r < N; r++)
        for (int64_t i = 0; i < I; i++)
            CHECK_MSG(fabs(af_ld(s.y, r * I + i) - want[r][i]) < 1e-5, "row %d: %g, not %g", (int)r,
                      af_ld(s.y, r * I + i), want[r][i]);
    close_case(&s);
}

static void test_a_state_is_carried_on(void **state)
{
    (void)state;
    scan_case s = {0};
    af_error err = {0};
    double want[N][I];
    open_case(&s, 2, true);
    reference(want);
    for (int round = 0; round < 2; round++) /* what the first one left is forgotten */
        for (int32_t at = 0; at < 6; at += 2) {
            fill(&s, at);
            CHECK_OK(af_tensor_write(s.g, s.bounds, (int32_t[]){0, 2}, 8, &err), err);
            CHECK_OK(af_tensor_write(s.g, s.start, &at, 4, &err), err);
            CHECK_OK(af_graph_run(s.g, AF_RUN_FORWARD, &err), err);
            for (int64_t i = 0; i < 2 * I; i++)
                assert_true(fabs(af_ld(s.y, i) - want[at + i / I][i % I]) < 1e-5);
        }
    close_case(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows_of_sequences),
                                       cmocka_unit_test(test_a_state_is_carried_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
