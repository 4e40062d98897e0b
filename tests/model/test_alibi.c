/* test_alibi.c - slopes of ALiBi as the paper has them, and biases that keep their digits in bf16:
 * at the end of a long text a bf16 model is as close to an f32 one as at its beginning. */
#include "family_case.h"

#include "afinar/model.h"
#include "model/arch/alibi.h"

#include <math.h>

enum { LENGTH = 1200, PART = 100, VOCAB = 20 };

static void test_slopes(void **state)
{
    (void)state;
    static const struct {
        int head, heads;
        double max, slope;
    } cases[] = {{0, 8, 8, 0.5},
                 {7, 8, 8, 1.0 / 256},
                 {0, 1, 8, 1.0 / 256},
                 {0, 16, 8, 0.70710678118654757},
                 {2, 3, 8, 0.25},
                 {0, 3, 8, 1.0 / 16},
                 {8, 12, 8, 0.70710678118654757},
                 {11, 12, 8, 0.08838834764831845},
                 {3, 4, 16, 1.0 / 65536}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const double s = af_alibi_slope(cases[i].head, cases[i].heads, cases[i].max);
        CHECK_MSG(fabs(s - cases[i].slope) <= 1e-15, "slope %d of %d: %.17g", cases[i].head,
                  cases[i].heads, s);
    }
}

static void logits_of(const char *dir, af_compute compute, const int32_t *ids, float *out)
{
    af_model *m;
    af_error err = {0};
    const af_model_opts o = {.device = "cpu", .threads = 2, .compute = compute};
    CHECK_OK(af_model_open(&m, dir, &o, &err), err);
    assert_int_equal(af_model_vocab(m), VOCAB);
    CHECK_OK(af_model_logits_of(m, ids, LENGTH, out, &err), err);
    af_model_close(m);
}

/* Relative distance of rows [from, from + PART). */
static double distance(const float *a, const float *b, int from)
{
    double far = 0, all = 0;
    for (int i = from * VOCAB; i < (from + PART) * VOCAB; i++) {
        far += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        all += (double)b[i] * (double)b[i];
    }
    return sqrt(far / all);
}

static void test_bf16_far_out(void **state)
{
    (void)state;
    static float half[LENGTH * VOCAB], full[LENGTH * VOCAB];
    static const char *const families[] = {"bloom", "mpt"};
    int32_t ids[LENGTH];
    for (int t = 0; t < LENGTH; t++)
        ids[t] = (t * 7 + t * t % 11) % VOCAB;
    for (size_t i = 0; i < AF_LEN(families); i++) {
        formula_model f;
        char path[4400];
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), families[i]);
        json_t *j = read_json(path);
        formula_model_write(&f, j);
        logits_of(f.dir, AF_COMPUTE_F32, ids, full);
        logits_of(f.dir, AF_COMPUTE_BF16, ids, half);
        const double near = distance(half, full, 0), far = distance(half, full, LENGTH - PART);
        CHECK_MSG(near < 0.02 && far < 0.02, "%s: %.2g from f32 at first, %.2g in the end",
                  families[i], near, far);
        formula_model_clear(&f);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slopes),
                                       cmocka_unit_test(test_bf16_far_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
