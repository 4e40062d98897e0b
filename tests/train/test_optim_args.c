/* test_optim_args.c - settings of one optimizer in `optim_args`: which there are, and their bounds.
 */
#include "test.h"

#include "train/run/run_keys.h"

#include <math.h>

#define BASE "base_model: m\ndatasets:\n  - path: d.jsonl\noutput_dir: out\n"

/* What one optimizer alone has; the value that the run gets, by af_optim_arg or by its key. */
static void test_settings_of_one_optimizer(void **state)
{
    static const struct {
        const char *file, *name;
        double value;
        const char *why;
    } cases[] = {
        {"optim: rmsprop\noptim_args: alpha=0.95, eps=1e-6", "alpha", 0.95, NULL},
        {"optim: rmsprop\noptim_args: alpha=0.95, eps=1e-6", "eps", 1e-6, NULL},
        {"optim: rmsprop\noptim_args: {alpha: 0.9}", "alpha", 0.9, NULL},
        {"optim: rmsprop\noptim_args: {alpha: 0.9}", "eps", 7, NULL},
        {"optim: adagrad\noptim_args: \"lr_decay=0.1,eps=1e-8\"", "lr_decay", 0.1, NULL},
        {"optim: sgd\noptim_args: momentum=0.9,nesterov=True", "nesterov", 1, NULL},
        {"optim: sgd\noptim_args: momentum=0.9,nesterov=false", "nesterov", 0, NULL},
        {"optim: sgd\noptim_args: momentum=0.9", "sgd_momentum", 0.9, NULL},
        {"optim: ademamix\noptim_args: beta1=0.8,beta3=0.99", "adam_beta1", 0.8, NULL},
        {"optim: ademamix\noptim_args: beta1=0.8,beta3=0.99", "beta3", 0.99, NULL},
        {"optim: adamw_torch\noptim_args: beta1=0.8", "adam_beta1", 0.9, NULL}, /* idle */
        {"optimizer: adopt_adamw\noptim_args: {eps: 1.0e-6}", "adam_epsilon", 1e-6, NULL},
        {"optimizer: optimi_adamw\noptim_args: {eps: 1.0e-6}", "adam_epsilon", 1e-6, NULL},
        {"optimizer: optimi_adamw\noptim_args: eps=1e-6", "adam_epsilon", 1e-6, NULL},
        {"optim: schedule_free_sgd\noptim_args: r=2", "r", 2, NULL},
        {"optim: ademamix_8bit\noptim_args: beta3=0.99", "beta3", 0.99, NULL},
        {"optimizer: muon\noptim_args: {momentum: 0.9}", NULL, 0,
         "has 'momentum', which optimizer muon does not: it has none"},
        {"optim: sgd\noptim_args: nesterov=true", NULL, 0,
         "run.yaml:7: 'nesterov' of optim_args needs a momentum above 0"},
        {"optim: ademamix\noptim_args: eps=0", NULL, 0,
         "'eps' of optim_args is 0, it must be from 1e-30 up to below 1"},
        {"adam_epsilon: 0", NULL, 0, "run.yaml:6: adam_epsilon is 0; it must be between 1e-30"},
        {"optim: schedule_free_adamw\nadam_beta1: 0", NULL, 0,
         "run.yaml:7: adam_beta1 must be above 0 with a schedule-free optimizer"},
        {"optim: schedule_free_sgd\nsgd_momentum: 0", NULL, 0,
         "run.yaml:7: sgd_momentum must be above 0 with a schedule-free optimizer"},
        {"optim: sgd\noptim_args: dampening=0.1,momentum=0.9", NULL, 0,
         "run.yaml:7: 'dampening' of optim_args is 0.1; only 0 is supported"},
        {"optim: stable_adamw\noptim_args: decouple_lr=True", NULL, 0,
         "'decouple_lr' of optim_args is True; only 0 is supported"},
        {"optim: rmsprop\noptim_args: alpha=1", NULL, 0,
         "is 1, it must be from 1e-06 up to below 1"},
        {"optim: rmsprop\noptim_args: alpha=much", NULL, 0, "is 'much', not a number"},
        {"optim: rmsprop\noptim_args: rank=4", NULL, 0,
         "has 'rank', which optimizer rmsprop does not: it has alpha, eps, momentum, centered"},
        {"optim: rmsprop\noptim_args: alpha", NULL, 0, "has 'alpha', which is no 'a=1'"},
        {"optim: rmsprop\noptim_args: {alpha: [1]}", NULL, 0, "'alpha' of optim_args is not one"},
        {"optim: rmsprop\noptim_args: {alpha:0.9}", NULL, 0,
         "run.yaml:7: 'alpha:0.9' of optim_args has no value: YAML wants a blank after the ':'"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_run_config r = {0};
        af_error err = {0};
        char text[400];
        snprintf(text, sizeof text, BASE "adapter: full\n%s\n", cases[i].file);
        const af_status st = af_run_config_parse(&r, text, strlen(text), "run.yaml", NULL, 0, &err);
        if (!cases[i].why) {
            CHECK_OK(st, err);
            const bool is_key =
                strchr(cases[i].name, '_') && strcmp(cases[i].name, "lr_decay") != 0;
            const af_key *k = is_key ? af_key_find(cases[i].name) : NULL;
            const double v =
                k ? af_key_get(&r, k).f64 : af_optim_arg(&r, cases[i].name, 7 /* not given */);
            CHECK_MSG(fabs(v - cases[i].value) < 1e-12, "%s: %g", cases[i].file, v);
        } else {
            CHECK_MSG(st != AF_OK && strstr(err.msg, cases[i].why), "'%s'", err.msg);
        }
        af_run_config_clear(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_of_one_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
