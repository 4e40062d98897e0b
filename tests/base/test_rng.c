/* The counter generator: known answers, and the shape of what is made from it. */
#include "base/rng.h"
#include "test.h"

#include <math.h>

/* From the test vectors of Random123 (Salmon et al.). */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } cases[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t out[4];
        af_philox(out, cases[i].counter, cases[i].key);
        assert_memory_equal(out, cases[i].want, sizeof out);
    }
    assert_int_equal(af_rng_u32(0, 0, 0), 0x6627e8d5);
    assert_int_equal(af_rng_u32(0, 0, 3), 0x9b00dbd8);
}

static void test_rows_are_the_single_numbers(void **state)
{
    (void)state;
    uint32_t w[4 * 37];
    double u[64];
    const uint64_t seed = UINT64_C(0x123456789abcdef), stream = UINT64_C(0xfedcba987654321);
    const uint64_t first =
        UINT64_C(0xfffffff0); /* the counter's second 32 bits change within the row */
    af_rng_words(w, seed, stream, first, 37);
    for (uint64_t i = 0; i < AF_LEN(w); i++)
        assert_int_equal(w[i], af_rng_u32(seed, stream, first * 4 + i));
    af_rng_f64_row(u, seed, stream, first * 2, AF_LEN(u));
    for (uint64_t i = 0; i < AF_LEN(u); i++)
        assert_true(u[i] == af_rng_f64(seed, stream, first * 2 + i));
}

static void test_streams_and_seeds_differ(void **state)
{
    (void)state;
    int same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same += af_rng_u32(1, 0, i) == af_rng_u32(2, 0, i);
        same += af_rng_u32(1, 0, i) == af_rng_u32(1, 1, i);
        same += af_rng_u32(1, 0, i) == af_rng_u32(1, 0, i + 1);
        same += af_rng_u32(1, 0, i) == af_rng_u32(1, 0, i + (UINT64_C(1) << 40));
    }
    assert_true(same <= 1);
}

static void test_distributions(void **state)
{
    (void)state;
    const int n = 100000;
    double sum = 0, sum2 = 0, mean = 0;
    int bins[7] = {0};
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        const double z = af_rng_normal(7, 3, i), u = af_rng_f64(7, 4, i);
        const float f = af_rng_f32(7, 5, i);
        assert_true(u >= 0 && u < 1 && f >= 0 && f < 1 && isfinite(z));
        sum += z;
        sum2 += z * z;
        mean += u;
        bins[af_rng_below(7, 6, i, 7)]++;
    }
    /* five standard errors */
    assert_true(fabs(sum / n) < 5 / sqrt(n));
    assert_true(fabs(sum2 / n - 1) < 5 * sqrt(2.0 / n));
    assert_true(fabs(mean / n - 0.5) < 5 / sqrt(12.0 * n));
    for (int i = 0; i < 7; i++)
        assert_true(fabs(bins[i] - n / 7.0) < 5 * sqrt(n / 7.0));
    assert_int_equal(af_rng_below(1, 2, 3, 1), 0);
}

/* Weights made from a sine would fail this: neighbours, and values one row apart, would be alike.
 */
static void test_neighbours_are_not_related(void **state)
{
    (void)state;
    enum { COUNT = 20000, LAGS = 300 };
    static double x[2][COUNT];
    for (uint64_t i = 0; i < COUNT; i++) {
        x[0][i] = af_rng_normal(7, 3, i);
        x[1][i] = (af_rng_f64(7, 4, i) - 0.5) * sqrt(12);
    }
    for (int kind = 0; kind < 2; kind++)
        for (int lag = 1; lag <= LAGS; lag++) {
            double sum = 0;
            for (int i = lag; i < COUNT; i++)
                sum += x[kind][i] * x[kind][i - lag];
            CHECK_MSG(fabs(sum) < 5 * sqrt(COUNT - lag), "kind %d, lag %d: %g", kind, lag,
                      sum / (COUNT - lag));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_rows_are_the_single_numbers),
        cmocka_unit_test(test_streams_and_seeds_differ),
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_neighbours_are_not_related),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
