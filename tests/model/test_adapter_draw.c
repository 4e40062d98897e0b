/* test_adapter_draw.c - the random numbers of fresh adapters: PEFT's distributions, the same for
 * any number of threads. */
#include "model_case.h"

#include "base/rng.h"

/* Many numbers are drawn by several threads: the same ones. */
static void test_a_large_fresh_adapter_has_the_numbers_of_a_small_one(void **state)
{
    (void)state;
    enum { RANK = 8192, SEED = 5 };
    model_case c;
    af_error err = {0};
    int64_t count = 0;
    case_open_base(&c, "llama3_tiny", false);
    const af_model_spec *s = af_loader_spec(c.loader);
    const af_adapter_config config = {.r = RANK, .alpha = 8, .target_regex = "all-linear"};
    CHECK_OK(af_adapter_new(&c.adapter, &config, s, c.loader, SEED, &err), err);
    for (int i = 0; i < s->modules; i++) {
        const af_adapter_module *m = &c.adapter->module[i];
        const double bound = 1 / sqrt((double)s->module[i].in);
        const int64_t n = m->rank * s->module[i].in;
        for (int64_t k = 0; k < n; k++) {
            const double u = af_rng_f64(SEED, (uint64_t)i, (uint64_t)k);
            assert_true(m->a[k] == (float)((2 * u - 1) * bound));
        }
        count += n;
    }
    assert_true(count > 1 << 20);
    case_close(&c);
}

/* A is uniform in +-1/sqrt(inputs), or normal of 1/rank or sqrt(2/(inputs + rank)): no two modules,
 * rows or seeds alike. */
static void test_a_fresh_adapter_is_drawn_as_peft_draws_it(void **state)
{
    (void)state;
    enum { RANK = 64 };
    static const char *const kinds[] = {"true", "gaussian", "xavier"};
    for (size_t kind = 0; kind < AF_LEN(kinds); kind++) {
        model_case c;
        af_error err = {0};
        af_adapter *other = NULL;
        case_open_base(&c, "llama3_tiny", false);
        const af_model_spec *s = af_loader_spec(c.loader);
        const af_adapter_config config = {
            .r = RANK, .alpha = 8, .target_regex = "all-linear", .init_weights = kinds[kind]};
        CHECK_OK(af_adapter_new(&c.adapter, &config, s, c.loader, 5, &err), err);
        CHECK_OK(af_adapter_new(&other, &config, s, c.loader, 6, &err), err);
        const int64_t in = s->module[0].in, n = RANK * in;
        const float *a[] = {c.adapter->module[0].a, c.adapter->module[0].a + in,
                            c.adapter->module[1].a, other->module[0].a};
        const double variance = kind == 0   ? 1.0 / (3.0 * (double)in)
                                : kind == 1 ? 1.0 / (RANK * RANK)
                                            : 2.0 / (double)(in + RANK);
        double square = 0;
        for (int64_t k = 0; k < n; k++)
            square += (double)a[0][k] * a[0][k];
        CHECK_MSG(fabs(square / ((double)n * variance) - 1) < 5 * sqrt(2.0 / (double)n),
                  "variance %g, not %g", square / (double)n, variance);
        for (int with = 1; with < 4; with++) { /* the next row, another module, another seed */
            const int64_t m = with == 1 ? n - in : n;
            double sum = 0;
            for (int64_t k = 0; k < m; k++)
                sum += (double)a[0][k] * a[with][k];
            CHECK_MSG(fabs(sum) < 5 * variance * sqrt((double)m), "%d: %g", with, sum / variance);
        }
        af_adapter_free(other);
        case_close(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_large_fresh_adapter_has_the_numbers_of_a_small_one),
        cmocka_unit_test(test_a_fresh_adapter_is_drawn_as_peft_draws_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
