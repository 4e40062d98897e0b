/* test_calibrate.c - ranges, codes and errors of integer grids against PyTorch and numpy. */
#include "afinar/calibrate.h"
#include "afinar/graph.h"
#include "base/base.h"
#include "format/weights/safetensors.h"
#include "test.h"

#include <math.h>

enum { R = 6, C = 16, B = 3, GROUP = 8, GRIDS_MAX = 16 };

static const char *const split_names[] = {"tensor", "row", "column", "group"};
static const char *const rule_names[] = {"minmax", "percentile", "moving"};

static const void *get(const af_safetensors *s, const char *name, const char *what)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s%s", name, what[0] ? "." : "", what);
    const af_stored *t = af_safetensors_find(s, full);
    CHECK_MSG(t != NULL, "%s", full);
    return t->data;
}

static void check_case(const af_safetensors *s, const af_grid_opts *o, const char *name)
{
    const float *x = get(s, "x", ""), *scale = get(s, name, "scale"), *want = get(s, name, "y");
    const int32_t *zero = get(s, name, "zero");
    float got_scale[GRIDS_MAX], y[R * C];
    int32_t got_zero[GRIDS_MAX];
    int8_t code[R * C];
    af_error err = {0};
    af_observer *ob = NULL;
    CHECK_OK(af_observer_new(&ob, R, C, o, &err), err);
    for (int b = 0; b < B; b++)
        CHECK_OK(af_observer_add(ob, x + b * R * C, &err), err);
    CHECK_OK(af_observer_finish(ob, got_scale, got_zero, &err), err);
    af_observer_free(ob);
    for (int64_t g = 0; g < af_grid_count(R, C, o); g++) {
        CHECK_MSG(fabsf(got_scale[g] - scale[g]) <= 2e-7f * scale[g], "%s: scale %lld is %g not %g",
                  name, (long long)g, (double)got_scale[g], (double)scale[g]);
        CHECK_MSG(got_zero[g] == zero[g], "%s: zero %lld", name, (long long)g);
    }
    af_grid_encode(R, C, o, scale, zero, x + R * C, code);
    af_grid_decode(R, C, o, scale, zero, code, y);
    for (int i = 0; i < R * C; i++)
        CHECK_MSG(y[i] == want[i], "%s: [%d] is %.9g, not %.9g", name, i, (double)y[i],
                  (double)want[i]);
}

static void test_grids_are_pytorchs(void **state)
{
    char path[1024], name[64];
    af_error err = {0};
    af_safetensors *s = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/calibrate/calibrate.safetensors", golden_dir());
    CHECK_OK(af_safetensors_open(&s, path, &err), err);
    for (int split = 0; split < 4; split++)
        for (int rule = 0; rule < 3; rule++)
            for (int asym = 0; asym < 2; asym++)
                for (int bits = 4; bits <= 8; bits += 4) {
                    const af_grid_opts o = {.bits = bits,
                                            .asymmetric = asym,
                                            .split = (af_split)split,
                                            .group = GROUP,
                                            .rule = (af_range_rule)rule,
                                            .percentile = 90,
                                            .momentum = 0.25};
                    snprintf(name, sizeof name, "%s.%s.%s.%d", split_names[split], rule_names[rule],
                             asym ? "asym" : "sym", bits);
                    check_case(s, &o, name);
                }
    af_safetensors_close(s);
}

static void test_errors_are_measured(void **state)
{
    const float was[] = {1, -2, 3, 0}, is[] = {1, -2.5f, 3.25f, 0};
    (void)state;
    const af_grid_error e = af_grid_measure(was, is, 4), none = af_grid_measure(was, was, 4);
    assert_true(fabs(e.mse - 0.3125 / 4) < 1e-12);
    assert_true(fabs(e.snr_db - 10 * log10(14 / 0.3125)) < 1e-9);
    assert_true(e.max_abs == 0.5);
    assert_true(none.mse == 0 && isinf(none.snr_db) && none.max_abs == 0);
}

static void test_wrong_options_and_values_are_refused(void **state)
{
    static const af_grid_opts cases[] = {
        {.bits = 1},
        {.bits = 9},
        {.bits = 8, .split = AF_SPLIT_GROUP, .group = 5},
        {.bits = 8, .split = AF_SPLIT_GROUP},
        {.bits = 8, .rule = AF_RANGE_PERCENTILE, .percentile = 40},
        {.bits = 8, .rule = AF_RANGE_MOVING, .momentum = 2},
    };
    af_observer *o = NULL;
    af_error err = {0};
    float x[R * C] = {0}, scale[1];
    int32_t zero[1];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(af_observer_new(&o, R, C, &cases[i], &err), AF_EUSAGE);
    CHECK_OK(af_observer_new(&o, R, C, &(af_grid_opts){.bits = 8}, &err), err);
    assert_int_equal(af_observer_finish(o, scale, zero, &err), AF_EUSAGE); /* nothing seen */
    x[2 * C + 3] = NAN;
    assert_int_equal(af_observer_add(o, x, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "[2][3]"), "%s", err.msg);
    af_observer_free(o);
}

/* The graph op rounds as the grids do, and its gradient passes straight through. */
static void test_fake_quant_rounds_as_the_grids_do(void **state)
{
    char path[1024];
    af_error err = {0};
    af_safetensors *s = NULL;
    af_device *d = NULL;
    (void)state;
    snprintf(path, sizeof path, "%s/calibrate/calibrate.safetensors", golden_dir());
    CHECK_OK(af_safetensors_open(&s, path, &err), err);
    const float *x = (const float *)get(s, "x", "") + R * C;
    CHECK_OK(af_device_open(&d, "cpu", 1, &err), err);
    for (int k = 0; k < 6; k++) {
        static const int64_t group[] = {0, -1, GROUP};
        static const af_split split[] = {AF_SPLIT_TENSOR, AF_SPLIT_ROW, AF_SPLIT_GROUP};
        const af_grid_opts o = {
            .bits = 4, .asymmetric = k >= 3, .split = split[k % 3], .group = GROUP};
        float scale[GRIDS_MAX], want[R * C], y[R * C], dx[R * C];
        int32_t zero[GRIDS_MAX];
        int8_t code[R * C];
        af_observer *ob = NULL;
        af_graph *g = NULL;
        CHECK_OK(af_observer_new(&ob, R, C, &o, &err), err);
        CHECK_OK(af_observer_add(ob, x, &err), err);
        CHECK_OK(af_observer_finish(ob, scale, zero, &err), err);
        af_observer_free(ob);
        af_grid_encode(R, C, &o, scale, zero, x, code);
        af_grid_decode(R, C, &o, scale, zero, code, want);
        CHECK_OK(af_graph_new(&g, &err), err);
        af_tensor *p = af_graph_param(g, "p", AF_DTYPE_F32, 2, (int64_t[]){R, C});
        af_tensor *q = af_fake_quant(g, p, 4, group[k % 3], !o.asymmetric);
        af_graph_output(g, q);
        af_graph_backward(g, af_sum_all(g, q));
        CHECK_OK(af_graph_prepare(g, d, &err), err);
        CHECK_OK(af_tensor_write(g, p, x, sizeof y, &err), err);
        CHECK_OK(af_graph_run(g, AF_RUN_GRAD, &err), err);
        CHECK_OK(af_tensor_read(g, q, y, sizeof y, &err), err);
        CHECK_OK(af_tensor_read(g, af_tensor_gradient(p), dx, sizeof dx, &err), err);
        for (int i = 0; i < R * C; i++) {
            CHECK_MSG(fabsf(y[i] - want[i]) <= 1e-6f, "case %d [%d]: %g, not %g", k, i,
                      (double)y[i], (double)want[i]);
            assert_true(dx[i] == 1); /* the range is the data's own: nothing is cut */
        }
        af_graph_free(g);
    }
    af_device_close(d);
    af_safetensors_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grids_are_pytorchs),
        cmocka_unit_test(test_errors_are_measured),
        cmocka_unit_test(test_wrong_options_and_values_are_refused),
        cmocka_unit_test(test_fake_quant_rounds_as_the_grids_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
