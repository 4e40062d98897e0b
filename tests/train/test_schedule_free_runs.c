/* test_schedule_free_runs.c - what schedule-free runs evaluate, write and resume from. */
#define _GNU_SOURCE
#include "train/method_runs.h"

#include "train/checkpoint/checkpoint.h"

#include <math.h>

#define LINES "optimizer: schedule_free_adamw\nlearning_rate: 1e-3\nmax_steps: 4\nval_set_size: 2\n"

/* The best evaluation of a run of this model with these lines; its output is DIR/out. */
static double best_loss(const char *model, const char *extra)
{
    char path[300], out[300], base[400];
    af_error err = {0};
    af_train_result result;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(base, sizeof base, "base_model=%s", model);
    write_run(path, out, extra);
    CHECK_OK(af_train(path, (const char *const[]){base}, 1, NULL, &result, &err), err);
    return result.best_eval_loss;
}

/* What is evaluated at the end is what is written, and it is not what gradients were taken at. */
static void test_the_average_is_evaluated_and_written(void **state)
{
    char path[300], base[300], tiny[600];
    uint64_t model_size;
    af_error err = {0};
    af_safetensors *f = NULL;
    (void)state;
    snprintf(tiny, sizeof tiny, "%s/models/qwen2", golden_dir());
    const double at_end = best_loss(tiny, LINES "eval_steps: 4\n");
    char *model = read_output("out", "model.safetensors", &model_size);
    snprintf(path, sizeof path, "%s/out/checkpoint-4/optimizer.safetensors", dir);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    const af_stored *taken = af_safetensors_find(f, AF_CHECKPOINT_TAKEN);
    assert_non_null(taken);
    assert_true(taken->bytes > 4096);
    assert_null(memmem(model, model_size, (const char *)taken->data + 1024, 256));
    af_safetensors_close(f);
    free(model);
    snprintf(path, sizeof path, "%s/out", dir);
    snprintf(base, sizeof base, "%s/average", dir);
    assert_int_equal(rename(path, base), 0);
    const double again =
        best_loss(base, "learning_rate: 0\nmax_steps: 1\nval_set_size: 2\neval_steps: 1\n");
    CHECK_MSG(fabs(again - at_end) < 1e-6 * at_end, "%.9g, not %.9g", again, at_end);
    CHECK_OK(af_path_remove(base, &err), err);
    CHECK_OK(af_path_remove(path, &err), err);
}

/* Neither evaluations nor checkpoints change a bit; adapters are resumed likewise. */
static void test_looking_at_the_average_changes_nothing(void **state)
{
    static const char *const method[][2] = {
        {"", "model.safetensors"}, {"adapter: lora\nlora_r: 4\n", "adapter_model.safetensors"}};
    (void)state;
    for (size_t i = 0; i < AF_LEN(method); i++) {
        char text[400], path[300], resume[400];
        uint64_t plain_size, size;
        af_error err = {0};
        snprintf(text, sizeof text, "%s" LINES "eval_strategy: no\n", method[i][0]);
        CHECK_OK(train(text, &err), err);
        char *plain = read_output("out", method[i][1], &plain_size);
        snprintf(text, sizeof text, "%s" LINES "eval_steps: 1\nsave_steps: 1\n", method[i][0]);
        CHECK_OK(train(text, &err), err);
        char *seen = read_output("out", method[i][1], &size);
        assert_int_equal(size, plain_size);
        assert_memory_equal(seen, plain, size);
        free(seen);
        snprintf(path, sizeof path, "%s/run.yaml", dir);
        snprintf(resume, sizeof resume, "resume_from_checkpoint=%s/out/checkpoint-2", dir);
        CHECK_OK(af_train(path, (const char *const[]){resume}, 1, NULL, NULL, &err), err);
        seen = read_output("out", method[i][1], &size);
        assert_int_equal(size, plain_size);
        assert_memory_equal(seen, plain, size);
        free(seen);
        free(plain);
    }
}

static void test_states_are_not_split(void **state)
{
    af_error err = {0};
    (void)state;
    assert_int_equal(train(LINES "zero_stage: 1\n", &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "schedule-free optimizers are not split"), "%s", err.msg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_average_is_evaluated_and_written),
        cmocka_unit_test(test_looking_at_the_average_changes_nothing),
        cmocka_unit_test(test_states_are_not_split),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
