/* test_label_loss.c - losses of labels against numbers from PyTorch in float64, gradients against
 * differences, and the counts of an evaluation. */
#include "test.h"

#include "model/labels/label_loss.h"

#include <math.h>

static const float scores[2][3] = {{0.5f, -1.25f, 2.0f}, {1.5f, 0.25f, -0.75f}};
static const float several[2][3] = {{1, 0, 1}, {0, 1, 0}};
static const float classes[2][1] = {{2}, {0}};

typedef struct loss_case {
    af_problem problem;
    double loss, grad[2][3];
} loss_case;

static const float *target_of(const loss_case *c, int i)
{
    return c->problem == AF_PROBLEM_SINGLE ? classes[i] : several[i];
}

static void test_losses_are_those_of_pytorch(void **state)
{
    (void)state;
    static const loss_case cases[] = {
        {AF_PROBLEM_SINGLE,
         0.28164729625462837,
         {{0.08841009105372215, 0.015363370163218216, -0.10377346121694037},
          {-0.14077982942446754, 0.10291830199882578, 0.03786152742564176}}},
        {AF_PROBLEM_MULTI,
         0.5861929634241579,
         {{-0.0629234447996909, 0.03711668980421814, -0.01986715367035295},
          {0.1362624126989406, -0.07297058318570032, 0.05347021680410117}}},
        {AF_PROBLEM_REGRESSION,
         1.03125,
         {{-0.16666666666666666, -0.41666666666666663, 0.3333333333333333}, {0.5, -0.25, -0.25}}},
    };
    for (size_t k = 0; k < AF_LEN(cases); k++) {
        const loss_case *c = &cases[k];
        const af_label_opts o = {.count = 3, .problem = c->problem};
        double loss = 0;
        for (int i = 0; i < 2; i++) {
            double grad[3];
            loss += af_label_loss(&o, scores[i], target_of(c, i), 2, grad);
            for (int j = 0; j < 3; j++)
                assert_true(fabs(grad[j] - c->grad[i][j]) < 1e-12);
        }
        assert_true(fabs(loss - c->loss) < 1e-12);
    }
}

/* (1 - e) times the cross-entropy and e times its mean over all classes. */
static void test_smoothed_classes(void **state)
{
    (void)state;
    const double e = 0.25;
    double plain[3], grad[3], sum = 0;
    for (int i = 0; i < 3; i++) {
        const float target = (float)i;
        plain[i] = af_label_loss(&(af_label_opts){.count = 3}, scores[0], &target, 2, grad);
        sum += plain[i];
    }
    const af_label_opts o = {.count = 3, .smoothing = e};
    const double loss = af_label_loss(&o, scores[0], classes[0], 2, grad);
    assert_true(fabs(loss - ((1 - e) * plain[2] + e * sum / 3)) < 1e-12);
}

static void test_gradients_are_differences(void **state)
{
    (void)state;
    for (int p = AF_PROBLEM_SINGLE; p <= AF_PROBLEM_REGRESSION; p++) {
        const loss_case c = {.problem = (af_problem)p};
        const af_label_opts o = {
            .count = 3, .problem = c.problem, .smoothing = p == AF_PROBLEM_SINGLE ? 0.3 : 0};
        double grad[3];
        (void)af_label_loss(&o, scores[0], target_of(&c, 0), 5, grad);
        for (int j = 0; j < 3; j++) {
            const float step = 1.0f / 1024;
            float up[3], down[3];
            memcpy(up, scores[0], sizeof up);
            memcpy(down, scores[0], sizeof down);
            up[j] += step;
            down[j] -= step;
            const double slope = (af_label_loss(&o, up, target_of(&c, 0), 5, NULL) -
                                  af_label_loss(&o, down, target_of(&c, 0), 5, NULL)) /
                                 (2 * step);
            assert_true(fabs(slope - grad[j]) < 1e-6);
        }
    }
}

static void test_one_label_is_regression(void **state)
{
    (void)state;
    const af_label_opts one = {.count = 1}, three = {.count = 3};
    assert_int_equal(af_problem_of(&one), AF_PROBLEM_REGRESSION);
    assert_int_equal(af_problem_of(&three), AF_PROBLEM_SINGLE);
    assert_int_equal(af_label_targets(&three), 1);
}

static void test_padding_at_the_end_is_skipped(void **state)
{
    (void)state;
    static const int32_t ids[] = {9, 3, 9, 4, 9, 9};
    assert_int_equal(af_score_row(ids, 0, 6, 9), 3); /* whatever a mask would say */
    assert_int_equal(af_score_row(ids, 0, 6, -1), 5);
    assert_int_equal(af_score_row(ids, 4, 6, 9), 4); /* all of it: the first */
}

static void test_f1_by_hand(void **state)
{
    (void)state;
    af_label_counts c;
    af_error err = {0};
    const af_label_opts o = {.count = 3}, several_of_4 = {.count = 4, .problem = AF_PROBLEM_MULTI};
    static const float row[4][3] = {{1, 0, 0}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
    static const float is[4][1] = {{0}, {1}, {1}, {2}};
    CHECK_OK(af_label_counts_init(&c, 3, &err), err);
    for (int i = 0; i < 4; i++)
        af_label_counts_add(&c, &o, row[i], is[i]);
    assert_int_equal(c.right, 3);
    assert_true(fabs(af_label_f1(&c, 0) - 2.0 / 3) < 1e-12); /* 1 hit, 1 wrong */
    assert_true(fabs(af_label_f1(&c, 1) - 2.0 / 3) < 1e-12); /* 1 hit, 1 missed */
    assert_true(fabs(af_label_f1(&c, 2) - 1) < 1e-12);
    assert_true(fabs(af_label_f1_macro(&c, &o) - 7.0 / 9) < 1e-12);
    af_label_counts_clear(&c);
    /* a fourth class that no text has and none got is not of the mean; a label is */
    CHECK_OK(af_label_counts_init(&c, 4, &err), err);
    for (int i = 0; i < 4; i++)
        af_label_counts_add(&c, &o, row[i], is[i]);
    assert_true(fabs(af_label_f1_macro(&c, &o) - 7.0 / 9) < 1e-12);
    assert_true(fabs(af_label_f1_macro(&c, &several_of_4) - 7.0 / 12) < 1e-12);
    af_label_counts_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses_are_those_of_pytorch),
        cmocka_unit_test(test_smoothed_classes),
        cmocka_unit_test(test_gradients_are_differences),
        cmocka_unit_test(test_one_label_is_regression),
        cmocka_unit_test(test_padding_at_the_end_is_skipped),
        cmocka_unit_test(test_f1_by_hand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
