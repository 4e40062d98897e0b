/* test_report_chart.c - axes of curves whose values are far away, or differ in their last bits. */
#define _POSIX_C_SOURCE 200809L
#include "test.h"

#include "train/report/report_chart.h"

#include <float.h>
#include <math.h>
#include <unistd.h>

/* How often `what` is in the figure. */
static int count(const af_buf *b, const char *what)
{
    int n = 0;
    for (const char *at = b->data; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

static void draw(af_buf *b, const double *x, const double *y, int n)
{
    af_series s = {.name = "loss"};
    for (int i = 0; i < n; i++)
        af_series_add(&s, x[i], y[i]);
    af_chart_put(b, "Loss", &s, NULL, false);
    af_series_clear(&s);
    assert_false(b->bad);
}

static void test_every_range_has_a_few_labels(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        double x[3], y[3];
    } cases[] = {
        {"ordinary", {1, 2, 3}, {2.5, 2.25, 2.125}},
        {"one value", {1, 2, 3}, {2.5, 2.5, 2.5}},
        {"last bits", {1, 2, 3}, {0.5, 0.5 + DBL_EPSILON / 2, 0.5}},
        {"last bits of small values", {1, 2, 3}, {1e-300, 1.0000000000000002e-300, 1e-300}},
        {"last bits of negative values", {1, 2, 3}, {-4, -4 + 4 * DBL_EPSILON, -4}},
        {"around 0", {1, 2, 3}, {-0.25, 0, 0.25}},
        {"all 0", {1, 2, 3}, {0, 0, 0}},
        {"long apart", {1, 2, 3}, {1e-300, 1, 1e300}},
        {"range overflows", {1, 2, 3}, {-DBL_MAX, 0, DBL_MAX}},
        {"steps beyond 2^53", {1e17, 1e17 + 16, 1e17 + 32}, {1, 2, 3}},
    };
    alarm(20); /* a loop without end is a failure, not a test that is waited for */
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_buf b = {0};
        draw(&b, cases[i].x, cases[i].y, 3);
        const int lines = count(&b, "class=\"grid\""), texts = count(&b, "<text ");
        const bool overflows = isinf(cases[i].y[2] - cases[i].y[0]);
        CHECK_MSG(lines <= 20 && (lines >= 2 || overflows), "%s: %d lines", cases[i].why, lines);
        CHECK_MSG(texts <= 50, "%s: %d labels", cases[i].why, texts);
        af_buf_clear(&b);
    }
    alarm(0);
}

static void test_labels_of_a_narrow_range_differ(void **state)
{
    (void)state;
    af_buf b = {0};
    draw(&b, (const double[]){1, 2, 3}, (const double[]){2.34561, 2.34565, 2.34569}, 3);
    assert_int_equal(count(&b, ">2.34562<"), 1);
    assert_int_equal(count(&b, ">2.34564<"), 1);
    assert_int_equal(count(&b, ">2.346<"), 0);
    af_buf_clear(&b);
    draw(&b, (const double[]){10000, 20000, 1250000}, (const double[]){0, 5, 10}, 3);
    assert_int_equal(count(&b, ">200k<"), 1);
    assert_int_equal(count(&b, ">1M<"), 1);
    assert_int_equal(count(&b, ">0<"), 1);
    af_buf_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_range_has_a_few_labels),
        cmocka_unit_test(test_labels_of_a_narrow_range_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
