/* The counters of a checkpoint: written and read back, and what a file with a right checksum but
 * impossible counters gives. */
#include "test.h"

#include "base/file.h"
#include "train/step/run_progress.h"

#include <math.h>
#include <unistd.h>

static char path[] = "/tmp/afinar-progress-XXXXXX";

static af_run_progress start(void)
{
    return (af_run_progress){
        .steps = 100, .items_per_epoch = 50, .items_per_micro = 2, .micro_per_step = 1};
}

static char *text_of(void)
{
    af_error err = {0};
    char *text = NULL;
    af_run_progress p = start();
    p.step = 30;
    p.micro = 60;
    p.tokens = 7000;
    p.losses_above = 2;
    p.loss_count = 3;
    p.data_records = 50;
    p.data_tokens = 9000;
    p.last.tokens = 83;
    p.pending = AF_PENDING_EVAL;
    p.pref.tokens = 123;
    p.pref.count[0] = 4;
    p.pref.sum[0] = 2.5;
    CHECK_OK(af_run_progress_text(&p, 17, &text, &err), err);
    return text;
}

/* Reads the text with `value` in place of what follows `key`. */
static af_status read_with(const char *key, const char *value, af_run_progress *p, af_error *err)
{
    uint64_t clock = 0;
    char *text = text_of(), changed[4096];
    char *at = strstr(text, key), *end;
    assert_non_null(at);
    at += strlen(key);
    end = at + strcspn(at, ",\n]");
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, value, end);
    free(text);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(changed, f);
    fclose(f);
    *p = start();
    return af_run_progress_read(p, &clock, path, err);
}

static void test_counters_come_back(void **state)
{
    (void)state;
    af_error err = {0};
    af_run_progress p;
    CHECK_OK(read_with("\"step\": ", "31", &p, &err), err);
    assert_int_equal(p.step, 31);
    assert_int_equal(p.micro, 60);
    assert_int_equal(p.tokens, 7000);
    assert_int_equal(p.losses_above, 2);
    assert_int_equal(p.data_tokens, 9000);
    assert_int_equal(p.pending, AF_PENDING_EVAL);
    assert_int_equal(p.last.tokens, 83);
    assert_int_equal(p.pref.tokens, 123);
    assert_int_equal(p.pref.count[0], 4);
    assert_true(p.pref.sum[0] == 2.5);
    assert_int_equal(p.steps, 100);
}

static const char *const wrong[] = {"-1", "281474976710657", "9223372036854775807", "1e308"};
enum { WRONG = sizeof wrong / sizeof *wrong };

static void test_impossible_counters_are_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"\"step\": ",       "\"micro\": ",
                                       "\"tokens\": ",     "\"supervised\": ",
                                       "\"padded\": ",     "\"metrics_bytes\": ",
                                       "\"clock\": ",      "\"best_step\": ",
                                       "\"loss_count\": ", "\"evals_without_gain\": "};
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
        for (int i = 0; i < WRONG; i++) {
            af_error err = {0};
            af_run_progress p;
            const af_status st = read_with(keys[k], wrong[i], &p, &err);
            CHECK_MSG(st == AF_EFORMAT && strstr(err.msg, "does not hold the progress of a run"),
                      "%s%s: status %d, '%s'", keys[k], wrong[i], st, err.msg);
            assert_int_equal(p.step, 0); /* untouched */
        }
}

static void test_more_epochs_than_can_be_passed_over(void **state)
{
    (void)state;
    af_error err = {0};
    af_run_progress p;
    CHECK_OK(read_with("\"micro\": ", "250000000", &p, &err), err);
    assert_int_equal(read_with("\"micro\": ", "250000001", &p, &err), AF_EFORMAT);
    assert_non_null(strstr(err.msg, "250000001 micro-batches are more than 10000000 epochs"));
}

/* Those that a checkpoint of an earlier version does not have count as absent. */
static void test_what_may_be_absent_is_not_taken(void **state)
{
    (void)state;
    char count[64];
    snprintf(count, sizeof count, "\"%s\": [\n      \"0x1.4p+1\",\n      ",
             af_pref_metric_name((af_pref_metric)0));
    for (int i = 0; i < WRONG; i++) {
        af_error err = {0};
        af_run_progress p;
        CHECK_OK(read_with("\"losses_above\": ", wrong[i], &p, &err), err);
        assert_int_equal(p.losses_above, 0);
        CHECK_OK(read_with("\"data_tokens\": ", wrong[i], &p, &err), err);
        assert_int_equal(p.data_records, -1);
        CHECK_OK(read_with("\"micro_per_step\": ", wrong[i], &p, &err), err);
        assert_int_equal(p.stored_micro_per_step, 0);
        CHECK_OK(read_with("\"last_tokens\": ", wrong[i], &p, &err), err);
        assert_int_equal(p.pending, AF_PENDING_NOTHING);
        CHECK_OK(read_with("\"num_tokens\": ", wrong[i], &p, &err), err);
        assert_int_equal(p.pref.tokens, 0);
        CHECK_OK(read_with(count, wrong[i], &p, &err), err);
        assert_int_equal(p.pref.count[0], 0);
        assert_true(p.pref.sum[0] == 0);
    }
}

/* Counts of transformers' EarlyStoppingCallback. */
static void test_best_evaluations(void **state)
{
    (void)state;
    static const struct {
        const char *metric;
        af_tri greater;
        double threshold, value[6]; /* the first is of the base model */
        int64_t best[6], without[6];
    } cases[] = {
        {"loss", AF_TRI_AUTO, 0, {1, 3, 2, 2, 4, 1}, {0, 1, 2, 2, 2, 5}, {0, 0, 0, 1, 2, 0}},
        {"eval_loss", AF_TRI_AUTO, 1, {9, 3, 2.5, 2, 1, 0}, {0, 1, 2, 3, 4, 5}, {0, 0, 1, 2, 3, 4}},
        {"eval_accuracy",
         AF_TRI_AUTO,
         0,
         {9, 3, 2, 3, 4, 5},
         {0, 1, 1, 1, 4, 5},
         {0, 0, 1, 2, 0, 0}},
        {"f1", AF_TRI_YES, 1, {9, 3, 3.5, 5, 5, 7}, {0, 1, 2, 3, 3, 5}, {0, 0, 1, 0, 1, 0}},
        {"mse", AF_TRI_AUTO, 0, {9, 3, 2, 3, 1, 5}, {0, 1, 2, 2, 4, 4}, {0, 0, 0, 1, 0, 1}},
        {"loss",
         AF_TRI_AUTO,
         0,
         {9, 3, INFINITY, 2, INFINITY, 1},
         {0, 1, 1, 3, 3, 5},
         {0, 0, 1, 0, 1, 0}},
        {"mse", AF_TRI_YES, 0, {9, 3, 2, 3, 4, 5}, {0, 1, 1, 1, 4, 5}, {0, 0, 1, 2, 0, 0}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_run_config r = {.best_metric = cases[i].metric,
                                 .greater_is_better = cases[i].greater,
                                 .early_stopping_threshold = cases[i].threshold};
        af_run_progress p = start();
        p.best_eval = NAN;
        for (p.step = 0; p.step < 6; p.step++) {
            const bool better = af_run_progress_judge(&p, &r, cases[i].value[p.step]);
            assert_int_equal(p.best_step, cases[i].best[p.step]);
            assert_int_equal(p.evals_without_gain, cases[i].without[p.step]);
            assert_int_equal(better, p.step > 0 && p.best_step == p.step);
        }
        assert_string_equal(af_run_progress_metric(&r), cases[i].metric + (i == 1 || i == 2) * 5);
    }
}

enum { VALUES = 26 };

typedef struct rate_case {
    af_run_config r;
    int values;
    double value[VALUES], want[VALUES];
} rate_case;

/* As a run file has it that does not say these. */
static void fill_greedy(af_run_config *r)
{
    r->lr_gamma = r->lr_gamma > 0 ? r->lr_gamma : 0.95;
    r->lr_threshold = r->lr_threshold > 0 ? r->lr_threshold : 1e-6;
    r->lr_max = r->lr_max > 0 ? r->lr_max : 1;
    r->lr_reset = r->lr_reset > 0 ? r->lr_reset : 500;
    r->lr_window = r->lr_window > 0 ? r->lr_window : 50;
}

/* The rates after each value; the state goes through a checkpoint. */
static void check_rates(const char *schedule, const rate_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        af_run_config r = cases[i].r;
        af_run_progress p = start();
        af_error err = {0};
        uint64_t clock;
        char *text;
        r.best_metric = "loss";
        if (strcmp(schedule, "greedy") == 0)
            fill_greedy(&r);
        p.plateau = (af_plateau){.best = NAN, .factor = 1};
        p.rate_factor = 1;
        const af_schedule_opts o = {.name = schedule, .peak = r.learning_rate};
        CHECK_OK(af_schedule_init(&p.schedule, &o, &err), err);
        af_run_progress_judge(&p, &r, 0); /* of the base model: not counted */
        for (int k = 0; k < cases[i].values; k++) {
            p.step = k + 1;
            const double rate = af_run_progress_lr(&p, p.step);
            p.rate_factor = p.plateau.factor;
            af_run_progress_judge(&p, &r, cases[i].value[k]);
            CHECK_OK(af_run_progress_text(&p, 0, &text, &err), err);
            CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
            free(text);
            CHECK_OK(af_run_progress_read(&p, &clock, path, &err), err);
            assert_true(af_run_progress_lr(&p, p.step - 1) == rate);
            CHECK_MSG(fabs(af_run_progress_lr(&p, p.step) / cases[i].want[k] - 1) < 1e-12,
                      "case %zu, value %d: %g", i, k, af_run_progress_lr(&p, p.step));
        }
    }
}

/* Rates of torch's ReduceLROnPlateau. */
static void test_plateaus(void **state)
{
    static const rate_case cases[] = {
        {{.learning_rate = 1e-2, .lr_patience = 1, .lr_gamma = 0.5, .lr_threshold = 1e-4},
         12,
         {5, 4, 4, 4, 4, 3.9999, 4, 2, 2, 2, 2, 2},
         {1e-2, 1e-2, 1e-2, 5e-3, 5e-3, 2.5e-3, 2.5e-3, 2.5e-3, 2.5e-3, 1.25e-3, 1.25e-3, 6.25e-4}},
        {{.learning_rate = 1e-2, .lr_cooldown = 2, .lr_threshold = 0.1, .min_lr = 1e-3},
         12,
         {5, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4},
         {1e-2, 1e-2, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3}},
        {{.learning_rate = 1e-2,
          .lr_patience = 1,
          .lr_threshold = 1e-4,
          .greater_is_better = AF_TRI_YES},
         12,
         {0.1, 0.2, 0.19, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.1, 0.1, 0.1},
         {1e-2, 1e-2, 1e-2, 1e-3, 1e-3, 1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5, 1e-6}},
        {{.learning_rate = 1e-2, .lr_threshold = 0.5, .lr_threshold_mode = AF_THRESHOLD_ABS},
         12,
         {5, 4, 3.6, 3.4, 3, 2.8, 2, 1.4, 1, 0.5, -1, -1.2},
         {1e-2, 1e-2, 1e-3, 1e-3, 1e-4, 1e-4, 1e-4, 1e-4, 1e-5, 1e-5, 1e-5, 1e-6}},
        {{.learning_rate = 3e-8, .lr_gamma = 0.5, .lr_threshold = 1e-4},
         12,
         {5, INFINITY, INFINITY, 6, 7, 8, 9, 9, 9, 9, 9, 9},
         {3e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8, 1.5e-8,
          1.5e-8}},
    };
    (void)state;
    check_rates("reduce_lr_on_plateau", cases, AF_LEN(cases));
}

/* Rates of GreedyLR of transformers 5.23. */
static void test_greedy_rates(void **state)
{
#define ABS .lr_threshold_mode = AF_THRESHOLD_ABS
    static const rate_case cases[] = {
        {{.learning_rate = 2e-3, .lr_patience = 10, .min_lr = 1e-3, ABS},
         26,
         {5.0, 4.9, 4.8, 4.7, 4.6, 4.5, 4.4, 4.3, 4.2, 4.1, 4.0, 3.9, 3.8,
          9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9},
         {0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002105263157894737,
          0.002,
          0.002,
          0.002}},
        {{.learning_rate = 1e-2,
          .lr_patience = 1,
          .lr_gamma = 0.5,
          .min_lr = 2e-3,
          .lr_max = 0.03,
          .lr_reset = 3,
          ABS},
         22,
         {9, 8, 7, 6, 5, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1, 0.5},
         {0.01,   0.02,    0.02,    0.03,  0.03,  0.03,  0.03,  0.03, 0.015, 0.015, 0.0075,
          0.0075, 0.00375, 0.00375, 0.002, 0.002, 0.002, 0.002, 0.01, 0.01,  0.02,  0.02}},
        {{.learning_rate = 1e-2,
          .lr_patience = 1,
          .lr_gamma = 0.8,
          .lr_cooldown = 2,
          .lr_rise_cooldown = 1,
          .lr_threshold = 0.1,
          ABS},
         20,
         {5, 4, 3, 2.95, 2.5, 2, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1, 0.8, 0.6, 0.4, 0.2, 0},
         {0.01,     0.0125, 0.0125, 0.0125, 0.015625, 0.015625, 0.015625,
          0.015625, 0.0125, 0.0125, 0.0125, 0.0125,   0.01,     0.01,
          0.01,     0.01,   0.0125, 0.0125, 0.0125,   0.015625}},
        {{.learning_rate = 1e-2,
          .lr_gamma = 0.9,
          .min_lr = 1e-4,
          .lr_threshold = 0.1,
          .lr_threshold_mode = AF_THRESHOLD_REL,
          .greater_is_better = AF_TRI_YES},
         12,
         {0.1, 0.2, 0.21, 0.22, 0.3, 0.32, 0.33, 0.5, 0.4, INFINITY, 1, 0.2},
         {0.01111111111111111, 0.01234567901234568, 0.01111111111111111, 0.01, 0.01111111111111111,
          0.01, 0.009, 0.01, 0.009, 0.01, 0.009, 0.0081}},
        {{.learning_rate = 1e-2,
          .lr_patience = 1,
          .lr_gamma = 0.5,
          .min_lr = 1e-3,
          .lr_smooth = true,
          .lr_window = 3,
          .lr_reset = 2,
          ABS},
         22,
         {5, 4, 6, 3, 2, 2.5, 9, 9, 9, 1, 8, 8, 8, 8, 7, 7, 7, 7, 7, 3, 2, 1},
         {0.01,  0.02,  0.02,   0.02,   0.04,    0.04,    0.04,  0.02,  0.02, 0.01, 0.01,
          0.005, 0.005, 0.0025, 0.0025, 0.00125, 0.00125, 0.001, 0.001, 0.01, 0.01, 0.02}},
        {{.learning_rate = 5e-5, .min_lr = 1e-3, .lr_reset = 2, ABS},
         8,
         {5, 6, 6, 6, 6, 4, 3, 3},
         {5.263157894736842e-05, 5.263157894736842e-05, 5e-05, 5.263157894736842e-05,
          5.263157894736842e-05, 5.54016620498615e-05, 5.831753899985421e-05,
          5.831753899985421e-05}},
        {{.learning_rate = 3e-8, .lr_gamma = 0.5, ABS},
         7,
         {5, 6, 6, 6, 4, 3, 2},
         {6e-08, 3e-08, 1.5e-08, 1.5e-08, 3e-08, 6e-08, 1.2e-07}},
    };
    (void)state;
    check_rates("greedy", cases, AF_LEN(cases));
}

/* A floor as a share of the peak. */
static void test_a_share_as_floor(void **state)
{
    static const rate_case cases[] = {
        {{.learning_rate = 1e-2, .min_lr_ratio = 0.5, .lr_threshold = 1e-4},
         4,
         {5, 5, 5, 5},
         {1e-2, 5e-3, 5e-3, 5e-3}},
    };
    (void)state;
    check_rates("reduce_lr_on_plateau", cases, AF_LEN(cases));
}

/* Records of an epoch, rows of a step, parts of an epoch; the steps of two epochs that end one. */
static void test_parts_of_epochs(void **state)
{
    (void)state;
    static const struct {
        int64_t items, rows, per_epoch;
        const char *ends;
    } cases[] = {
        {64, 8, 1, "8 16"},     {64, 8, 2, "4 8 12 16"},
        {13, 6, 1, "3 5"},      {10, 1, 4, "3 5 8 10 13 15 18 20"},
        {10, 2, 2, "3 5 8 10"}, {12, 4, 9, "1 2 3 4 5 6"},
    };
    for (size_t k = 0; k < 2 * AF_LEN(cases); k++) {
        const size_t i = k / 2;
        const int64_t rows = k % 2 ? 1 : cases[i].rows; /* of a micro-batch */
        af_run_progress p = {.items_per_epoch = cases[i].items,
                             .items_per_micro = rows,
                             .micro_per_step = cases[i].rows / rows};
        char ends[100] = "";
        assert_true(af_run_progress_part(&p, cases[i].per_epoch));
        for (p.step = 1; (p.step - 1) * cases[i].rows < 2 * cases[i].items; p.step++) {
            const size_t n = strlen(ends);
            p.micro = p.step * p.micro_per_step;
            if (af_run_progress_part(&p, cases[i].per_epoch))
                snprintf(ends + n, sizeof ends - n, "%s%d", n ? " " : "", (int)p.step);
        }
        assert_string_equal(ends, cases[i].ends);
    }
}

/* Steps of a run, its share, the limit, and the step at which the rate is at its peak. */
static void test_shares_of_a_warm_up(void **state)
{
    (void)state;
    static const struct {
        int64_t steps, most;
        double share;
        int64_t peak;
    } cases[] = {{90, 0, 0.03, 3},
                 {90, 100, 0.03, 2},
                 {33, 100, 0.03, 0},
                 {34, 100, 0.03, 2},
                 {66, 100, 0.03, 2},
                 {100, 100, 0.03, 3},
                 {9000, 100, 0.03, 100},
                 {9000, 0, 0.03, 270},
                 /* of runs of Axolotl 0.20, as their model cards have it */
                 {66, 1000000000, 0.1, 6},
                 {44, 1000000000, 0.05, 2},
                 {188, 1000000000, 0.03, 5}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_run_config r = {.max_steps = cases[i].steps,
                                 .micro_batch_size = 1,
                                 .warmup_ratio = cases[i].share,
                                 .warmup_max_steps = cases[i].most,
                                 .learning_rate = 1,
                                 .lr_stable_steps = -1,
                                 .warmup_lr_rate = -1,
                                 .lr_scheduler = "constant_with_warmup"};
        af_run_progress p;
        af_error err = {0};
        CHECK_OK(af_run_progress_init(&p, &r, 10, 1, &err), err);
        const int64_t peak = cases[i].peak;
        CHECK_MSG(af_run_progress_lr(&p, peak) == 1, "%zu: %g", i, af_run_progress_lr(&p, peak));
        CHECK_MSG(peak == 0 || af_run_progress_lr(&p, peak - 1) < 1, "%zu: before step %d", i,
                  (int)peak);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best_evaluations),
        cmocka_unit_test(test_plateaus),
        cmocka_unit_test(test_greedy_rates),
        cmocka_unit_test(test_a_share_as_floor),
        cmocka_unit_test(test_shares_of_a_warm_up),
        cmocka_unit_test(test_parts_of_epochs),
        cmocka_unit_test(test_counters_come_back),
        cmocka_unit_test(test_impossible_counters_are_refused),
        cmocka_unit_test(test_more_epochs_than_can_be_passed_over),
        cmocka_unit_test(test_what_may_be_absent_is_not_taken),
    };
    const int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    const int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return rc;
}
