/* test_schedule_free.c - schedule-free optimizers against the authors' package: where gradients are
 * taken, and the average; what is looked at changes nothing. */
#include "optimizer_trainer.h"
#include "worse.h"

#include <math.h>

static double rate_of(int step) { return 0.01 * (1 + (step - 1) % 3); }

static void step_on(trainer *t, int step)
{
    set_gradients(t, step, 1);
    af_graph_set_learning_rate(t->g, rate_of(step));
    run(t, AF_RUN_STEP);
}

static void show_average(trainer *t, bool on)
{
    af_error err = {0};
    CHECK_OK(af_graph_average(t->g, on, &err), err);
}

static double far(const trainer *t, const float *want)
{
    double worst = 0;
    for (int i = 0; i < ALL; i++)
        worst = worse(worst, fabs(value(t, i) - (double)want[i]));
    return worst;
}

static void test_trajectories_are_those_of_the_authors(void **state)
{
    static const struct {
        const char *file;
        af_optimizer_opts o;
        bool groups; /* b has half the rate, and no decay */
    } cases[] = {
        {"free-adamw.f32",
         {.kind = AF_OPTIMIZER_FREE_ADAMW, .warmup_steps = 4, .lr_power = 2},
         false},
        {"free-adamw-count.f32",
         {.kind = AF_OPTIMIZER_FREE_ADAMW, .count_power = 1, .lr_power = 0.5},
         false},
        {"free-adamw-groups.f32", {.kind = AF_OPTIMIZER_FREE_ADAMW, .lr_power = 2}, true},
        {"free-radam.f32", {.kind = AF_OPTIMIZER_FREE_RADAM, .lr_power = 2}, false},
        {"free-sgd.f32", {.kind = AF_OPTIMIZER_FREE_SGD, .warmup_steps = 4, .lr_power = 2}, false},
    };
    (void)state;
    for (size_t c = 0; c < 2 * AF_LEN(cases); c++) {
        float *want = load(cases[c / 2].file, sizeof(float) * (STEPS + 1) * ALL);
        af_optimizer_opts o = cases[c / 2].o;
        trainer t;
        const bool f64 = c % 2;
        double worst = 0;
        o.weight_decay = 0.1;
        open_trainer(&t, f64 ? AF_DTYPE_F64 : AF_DTYPE_F32, &o, cases[c / 2].groups);
        for (int s = 0; s < STEPS; s++) {
            step_on(&t, s + 1);
            worst = worse(worst, far(&t, want + s * ALL));
        }
        if (!f64) {
            show_average(&t, true);
            worst = worse(worst, far(&t, want + STEPS * ALL));
        }
        CHECK_MSG(worst < 4e-7, "%s (%s): %.3g from the original", cases[c / 2].file,
                  f64 ? "f64" : "f32", worst);
        close_trainer(&t);
        free(want);
    }
}

/* The average of a run that was never looked at, and of one that was after every step. */
static void test_looking_changes_nothing(void **state)
{
    const af_optimizer_opts o = {.kind = AF_OPTIMIZER_FREE_ADAMW, .lr_power = 2};
    trainer seen, unseen;
    (void)state;
    open_trainer(&seen, AF_DTYPE_F32, &o, false);
    open_trainer(&unseen, AF_DTYPE_F32, &o, false);
    show_average(&seen, true); /* nothing was learnt: it is the start */
    for (int i = 0; i < ALL; i++)
        assert_true(value(&seen, i) == value(&unseen, i));
    show_average(&seen, false);
    for (int s = 1; s <= 4; s++) {
        step_on(&seen, s);
        step_on(&unseen, s);
        show_average(&seen, true);
        show_average(&seen, true); /* once is enough */
        assert_true(s == 1 || value(&seen, 0) != value(&unseen, 0));
        show_average(&seen, false);
        for (int i = 0; i < ALL; i++)
            assert_true(value(&seen, i) == value(&unseen, i));
    }
    close_trainer(&seen);
    close_trainer(&unseen);
}

/* Neither values nor states, and the average goes on as if the step had not been. */
static void test_a_bad_gradient_changes_nothing(void **state)
{
    const af_optimizer_opts o = {.kind = AF_OPTIMIZER_FREE_SGD, .lr_power = 2};
    trainer t, plain;
    (void)state;
    open_trainer(&t, AF_DTYPE_F32, &o, false);
    open_trainer(&plain, AF_DTYPE_F32, &o, false);
    set_gradients(&t, 1, 1);
    af_st(t.x[0], 3, NAN);
    run(&t, AF_RUN_STEP);
    for (int s = 1; s <= 3; s++) {
        step_on(&t, s);
        step_on(&plain, s);
    }
    for (int i = 0; i < ALL; i++)
        assert_true(value(&t, i) == value(&plain, i));
    close_trainer(&t);
    close_trainer(&plain);
}

static void test_other_optimizers_have_no_average(void **state)
{
    trainer t;
    (void)state;
    open_trainer(&t, AF_DTYPE_F64, &(af_optimizer_opts){.kind = AF_OPTIMIZER_ADAMW}, false);
    step_on(&t, 1);
    const double before = value(&t, 0);
    show_average(&t, true);
    assert_true(value(&t, 0) == before);
    close_trainer(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trajectories_are_those_of_the_authors),
        cmocka_unit_test(test_looking_changes_nothing),
        cmocka_unit_test(test_a_bad_gradient_changes_nothing),
        cmocka_unit_test(test_other_optimizers_have_no_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
