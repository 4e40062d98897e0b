/* test_state_runs.c - runs on families with state layers against transformers + PEFT; and a whole
 * model of several senses: full fine-tuning writes back what it does not train. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"
#include "train/weight_files.h"

static void test_runs_follow_peft(void **state)
{
    (void)state;
    static const char *const runs[] = {"lora", "full"};
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600];
    snprintf(root, sizeof root, "%s/golden/families", shared);
    snprintf(data, sizeof data, "%s/golden/models/data/train.jsonl", shared);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(root, root, "qwen3_5", runs[i], data);
}

static void train_whole(const char *shared, const char *out, int steps, const char *more)
{
    char text[3000];
    af_train_result result;
    snprintf(text, sizeof text,
             "base_model: %s/golden/families/qwen3_5_multimodal\n"
             "datasets: [{path: %s/golden/models/data/train.jsonl}]\noutput_dir: %s/%s\n"
             "learning_rate: 1e-3\nmax_steps: %d\nwarmup_steps: 0\nlr_scheduler: constant\n"
             "device: %s\nbf16: false\nsave_steps: 2\n%s",
             shared, shared, dir, out, steps, test_device(), more);
    train_text(text, &result);
}

static void test_full_training_keeps_other_senses(void **state)
{
    (void)state;
    const char *shared = shared_dir();
    char path[1024], resume[600];
    if (!shared)
        skip_because("no shared goldens");
    train_whole(shared, "whole", 4, "");
    snprintf(resume, sizeof resume, "resume_from_checkpoint: %s/part/checkpoint-2\n", dir);
    train_whole(shared, "part", 2, "");
    train_whole(shared, "part", 4, resume);
    snprintf(path, sizeof path, "%s/golden/families/qwen3_5_multimodal/model.safetensors", shared);
    af_safetensors *base = open_weights(path);
    snprintf(path, sizeof path, "%s/whole/model.safetensors", dir);
    af_safetensors *whole = open_weights(path);
    snprintf(path, sizeof path, "%s/part/model.safetensors", dir);
    af_safetensors *part = open_weights(path);
    assert_int_equal(af_safetensors_count(whole), af_safetensors_count(base));
    for (int i = 0; i < af_safetensors_count(base); i++) {
        const af_stored *b = af_safetensors_at(base, i), *w = af_safetensors_find(whole, b->name),
                        *p = af_safetensors_find(part, b->name);
        CHECK_MSG(w && w->ndim == b->ndim && memcmp(w->dim, b->dim, sizeof b->dim) == 0,
                  "%s is missing or has another shape", b->name);
        const bool same = memcmp(w->data, b->data, b->bytes) == 0;
        CHECK_MSG(same == (strstr(b->name, "visual") != NULL), "%s is %s", b->name,
                  same ? "not trained" : "changed");
        CHECK_MSG(p && memcmp(p->data, w->data, w->bytes) == 0, "%s: the resumed run differs",
                  b->name);
    }
    af_safetensors_close(base);
    af_safetensors_close(whole);
    af_safetensors_close(part);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_peft),
        cmocka_unit_test(test_full_training_keeps_other_senses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
