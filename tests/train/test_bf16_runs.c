/* test_bf16_runs.c - full fine-tuning with weights in bf16: a resumed run has the bytes of one that
 * was not interrupted, the loss falls as with f32, and what cannot be is refused. */
#include "test.h"

#include "afinar/train.h"
#include "base/file.h"
#include "format/weights/safetensors.h"

#include <math.h>

static char dir[512];

typedef struct key_value {
    const char *key, *value;
} key_value;

static void set(af_run *run, const key_value *k, int n)
{
    for (int i = 0; i < n; i++) {
        af_error err = {0};
        CHECK_OK(af_run_set(run, k[i].key, k[i].value, &err), err);
    }
}

static af_run *new_run(const char *model, const char *output)
{
    char base[600], datasets[600];
    af_run *run = NULL;
    af_error err = {0};
    snprintf(base, sizeof base, "%s/models/%s", golden_dir(), model);
    snprintf(datasets, sizeof datasets, "[{path: %s/models/data/train.jsonl}]", golden_dir());
    const key_value keys[] = {{"base_model", base},   {"datasets", datasets},
                              {"sequence_len", "64"}, {"micro_batch_size", "2"},
                              {"max_steps", "4"},     {"save_steps", "2"},
                              {"device", "cpu"},      {"threads", "2"},
                              {"output_dir", output}, {"learning_rate", "1e-3"}};
    CHECK_OK(af_run_new(&run, &err), err);
    set(run, keys, (int)AF_LEN(keys));
    return run;
}

static double finish(af_run *run)
{
    af_error err = {0};
    af_run_step_result r = {0};
    CHECK_OK(af_run_open(run, NULL, &err), err);
    while (!r.finished)
        CHECK_OK(af_run_step(run, &r, &err), err);
    CHECK_OK(af_run_checkpoint(run, &err), err);
    CHECK_OK(af_run_save(run, NULL, &err), err);
    af_run_close(run);
    assert_true(isfinite(r.loss));
    return r.loss;
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    char path[1024], *x, *y;
    uint64_t n, m;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", a, name);
    CHECK_OK(af_file_read(&x, &n, path, UINT64_C(1) << 30, &err), err);
    snprintf(path, sizeof path, "%s/%s", b, name);
    CHECK_OK(af_file_read(&y, &m, path, UINT64_C(1) << 30, &err), err);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Weights of a checkpoint are bf16; what Kahan's sum keeps is in its state. */
static void check_checkpoint(const char *folder, bool kahan)
{
    char path[1024];
    af_error err = {0};
    af_safetensors *f = NULL;
    snprintf(path, sizeof path, "%s/checkpoint-2/model.safetensors", folder);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    const af_stored *e = af_safetensors_find(f, "model.norm.weight");
    assert_true(e && e->dtype == AF_DTYPE_BF16);
    af_safetensors_close(f);
    snprintf(path, sizeof path, "%s/checkpoint-2/optimizer.safetensors", folder);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    int rests = 0;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++) {
            char name[64];
            snprintf(name, sizeof name, "%d.optimizer.%d.rest", i, k);
            const af_stored *rest = af_safetensors_find(f, name);
            rests += rest && rest->dtype == AF_DTYPE_BF16;
        }
    assert_true((rests > 0) == kahan);
    af_safetensors_close(f);
}

static void test_resumed_runs_have_the_same_bytes(void **state)
{
    (void)state;
    static const key_value cases[][2] = {
        {{"bf16_stochastic_round", "true"}, {"optimizer", "adamw"}},
        {{"kahan_sum", "true"}, {"optimizer", "adamw_8bit"}},
        {{"bf16_stochastic_round", "true"}, {"bf16", "true"}},
        {{"kahan_sum", "true"}, {"optimizer", "galore"}},
        {{"bf16_stochastic_round", "true"}, {"optimizer", "galore"}},
    };
    for (int c = 0; c < (int)AF_LEN(cases); c++) {
        char whole[600], again[600], from[700];
        snprintf(whole, sizeof whole, "%s/whole%d", dir, c);
        snprintf(again, sizeof again, "%s/again%d", dir, c);
        snprintf(from, sizeof from, "%s/checkpoint-2", whole);
        af_run *run = new_run("qwen2", whole);
        set(run, cases[c], 2);
        const double loss = finish(run);
        check_checkpoint(whole, strcmp(cases[c][0].key, "kahan_sum") == 0);
        run = new_run("qwen2", again);
        set(run, cases[c], 2);
        set(run, (key_value[]){{"resume_from_checkpoint", from}, {"threads", "1"}}, 2);
        assert_true(finish(run) == loss);
        check_same_file(whole, again, "model.safetensors");
        check_same_file(whole, again, "checkpoint-4/optimizer.safetensors");
    }
}

/* Ten steps with a small rate; bf16 without either is 0.13 away. */
static void test_losses_follow_f32(void **state)
{
    (void)state;
    static const char *const keys[] = {NULL, "kahan_sum", "bf16_stochastic_round"};
    double loss[AF_LEN(keys)];
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        char output[600];
        snprintf(output, sizeof output, "%s/loss%d", dir, (int)i);
        af_run *run = new_run("qwen2", output);
        set(run,
            (key_value[]){{"max_steps", "10"},
                          {"learning_rate", "1e-4"},
                          {"lr_scheduler", "constant"},
                          {"save_steps", "100"}},
            4);
        if (keys[i])
            set(run, &(key_value){keys[i], "true"}, 1);
        loss[i] = finish(run);
    }
    for (size_t i = 1; i < AF_LEN(keys); i++)
        CHECK_MSG(fabs(loss[i] - loss[0]) < 0.02, "%s: loss %.6f, f32 has %.6f", keys[i], loss[i],
                  loss[0]);
}

static void check_refused(const char *model, const key_value *k, int n, const char *why)
{
    char output[600];
    af_error err = {0};
    snprintf(output, sizeof output, "%s/refused", dir);
    af_run *run = new_run(model, output);
    set(run, k, n);
    assert_int_not_equal(af_run_open(run, NULL, &err), AF_OK);
    CHECK_MSG(strstr(err.msg, why), "'%s'", err.msg);
    af_run_close(run);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("qwen2", (key_value[]){{"kahan_sum", "true"}, {"bf16_stochastic_round", "true"}},
                  2, "contradict each other");
    check_refused("qwen2", (key_value[]){{"kahan_sum", "true"}, {"optimizer", "lion"}}, 2,
                  "weights in bf16 are updated by adamw");
    check_refused("qwen2", (key_value[]){{"kahan_sum", "true"}, {"adapter", "lora"}}, 2,
                  "kahan_sum has no effect with an adapter");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resumed_runs_have_the_same_bytes),
        cmocka_unit_test(test_losses_follow_f32),
        cmocka_unit_test(test_refused),
    };
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/af_bf16_XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(dir, NULL);
    return failed;
}
