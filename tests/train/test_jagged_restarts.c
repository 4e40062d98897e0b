/* test_jagged_restarts.c - Axolotl's keys of restarts of the learning rate; the rates themselves
 * are in test_schedule.c. */
#include "test.h"

#include "train/run/run_keys.h"
#include "train/step/run_progress.h"

#include <math.h>

#define BASE "base_model: m\ndatasets:\n  - path: d.jsonl\nlearning_rate: 2\nmax_steps: 100\n"

static af_status parse(af_run_config *r, const char *rest, af_error *err)
{
    char text[600];
    snprintf(text, sizeof text, BASE "%s\n", rest);
    *r = (af_run_config){0};
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

static void test_rates_of_a_run(void **state)
{
    static const struct {
        const char *rest;
        int64_t step;
        double rate;
        int idle;
    } cases[] = {
        {"lr_scheduler: constant\njagged_restart_steps: 20", 18, 2, 0},
        {"lr_scheduler: constant\njagged_restart_steps: 20", 19, 0.002, 0},
        {"lr_scheduler: constant\njagged_restart_steps: 20", 24, 1.001, 0},
        {"lr_scheduler: constant\njagged_restart_steps: 20", 29, 2, 0},
        {"lr_scheduler: constant\njagged_restart_steps: 20\njagged_restart_warmup_steps: 2\n"
         "jagged_restart_anneal_steps: 4\ncosine_min_lr_ratio: 0.5",
         17, 1.5, 0},
        {"lr_scheduler: constant\njagged_restart_steps: 20\njagged_restart_warmup_steps: 2\n"
         "jagged_restart_anneal_steps: 4\ncosine_min_lr_ratio: 0.5",
         20, 1.5, 0},
        {"lr_scheduler: constant\njagged_restart_warmup_steps: 2\ncosine_min_lr_ratio: 0.5", 20, 2,
         2},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r;
        af_run_progress p;
        af_error err = {0};
        CHECK_OK(parse(&r, cases[i].rest, &err), err);
        assert_int_equal(r.idle->count, cases[i].idle);
        CHECK_OK(af_run_progress_init(&p, &r, 1000, 1, &err), err);
        const double lr = af_run_progress_lr(&p, cases[i].step);
        CHECK_MSG(fabs(lr - cases[i].rate) < 1e-12, "case %zu: %.9g", i, lr);
        af_run_config_clear(&r);
    }
}

static void test_what_is_refused(void **state)
{
    af_run_config r;
    af_run_progress p;
    af_error err = {0};
    (void)state;
    CHECK_OK(parse(&r, "lr_scheduler: step\njagged_restart_steps: 5", &err), err);
    assert_int_equal(af_run_progress_init(&p, &r, 1000, 1, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "run.yaml:6: schedule step: it has no jagged restarts"), "%s",
              err.msg);
    af_run_config_clear(&r);
    assert_int_equal(parse(&r, "jagged_restart_steps: -1", &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "run.yaml:6: jagged_restart_steps is -1"), "%s", err.msg);
    af_run_config_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_of_a_run),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
