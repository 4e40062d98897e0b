/* test_trajectories.c - whole runs through af_train against PyTorch + PEFT, step by step; and what
 * must not change a run. */
#define _DEFAULT_SOURCE
#include "train/golden_run.h"

static const char *const runs[] = {"lora", "lora-qv", "dora", "full", "full-packed", "qlora"};

static void test_runs_follow_pytorch(void **state)
{
    (void)state;
    char models[512];
    snprintf(models, sizeof models, "%s/models", golden_dir());
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        char data[600];
        snprintf(data, sizeof data, "%s/data/%s", models,
                 i % 2 ? "train.jsonl" : "train_tokens.jsonl");
        check_run(golden_dir(), models, "qwen2", runs[i], data);
    }
}

static void test_other_models_follow_pytorch(void **state)
{
    (void)state;
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512], data[600];
    snprintf(root, sizeof root, "%s/golden/models", shared);
    snprintf(data, sizeof data, "%s/data/train.jsonl", root);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        check_run(root, root, "llama", runs[i], data);
        check_run(root, root, "qwen3", runs[i], data);
    }
}

/* The adapter's bytes of a short run with these extra lines. */
static char *trained_bytes(const char *extra, uint64_t *size)
{
    char models[512], out[256], path[300], *bytes;
    af_error err = {0};
    af_train_result result;
    af_buf b = {0};
    snprintf(models, sizeof models, "%s/models", golden_dir());
    snprintf(out, sizeof out, "%s/same", dir);
    af_buf_printf(&b,
                  "base_model: %s/qwen2\ndatasets: [{path: "
                  "%s/data/train_tokens.jsonl}]\noutput_dir: %s\nadapter: lora\n"
                  "lora_r: 4\nlearning_rate: 1e-3\nmax_steps: 6\ndevice: %s\nseed: 5\n%s",
                  models, models, out, test_device(), extra);
    CHECK_OK(af_path_remove(out, &err), err);
    train_text(b.data, &result);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", out);
    CHECK_OK(af_file_read(&bytes, size, path, 1 << 24, &err), err);
    af_buf_clear(&b);
    return bytes;
}

static void test_same_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *why, *a, *b;
        bool same;
    } cases[] = {
        {"two runs", "", "", true},
        {"1 and 2 threads", "threads: 1\n", "threads: 2\n", true},
        {"recompute on and off", "gradient_checkpointing: true\n",
         "gradient_checkpointing: false\n", true},
        {"dropout, twice", "lora_dropout: 0.2\n", "lora_dropout: 0.2\n", true},
        {"dropout and recompute", "lora_dropout: 0.2\ngradient_checkpointing: true\n",
         "lora_dropout: 0.2\n", true},
        {"dropout on the head alone", "lora_target_modules: [lm_head]\n",
         "lora_target_modules: [lm_head]\nlora_dropout: 0.2\n", false},
        {"dropout on the head and recompute",
         "lora_target_modules: [lm_head]\nlora_dropout: 0.2\ngradient_checkpointing: true\n",
         "lora_target_modules: [lm_head]\nlora_dropout: 0.2\n", true},
        {"packed, twice", "sample_packing: true\nsequence_len: 200\n",
         "sample_packing: true\nsequence_len: 200\n", true},
        {"another learning rate", "", "lora_alpha: 3\n", false},
        {"noise, twice", "neftune_noise_alpha: 5\n", "neftune_noise_alpha: 5\n", true},
        {"noise and recompute", "neftune_noise_alpha: 5\ngradient_checkpointing: true\n",
         "neftune_noise_alpha: 5\n", true},
        {"noise changes a run", "", "neftune_noise_alpha: 5\n", false},
        {"samples change nothing", "lora_dropout: 0.2\n",
         "lora_dropout: 0.2\ngenerate_samples: [Hello, 'How many?']\n"
         "generate_samples_steps: 2\ngenerate_samples_tokens: 5\nsave_steps: 2\n",
         true},
        {"evaluation changes nothing", "", "test_datasets: [{path: TEST}]\neval_steps: 2\n", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char with[1024];
        const char *mark = strstr(cases[i].b, "TEST");
        if (mark)
            snprintf(with, sizeof with, "%.*s%s/models/data/train_tokens.jsonl%s",
                     (int)(mark - cases[i].b), cases[i].b, golden_dir(), mark + 4);
        else
            snprintf(with, sizeof with, "%s", cases[i].b);
        uint64_t na, nb;
        char *a = trained_bytes(cases[i].a, &na), *b = trained_bytes(with, &nb);
        CHECK_MSG((na == nb && memcmp(a, b, na) == 0) == cases[i].same, "%s", cases[i].why);
        free(a);
        free(b);
    }
}

/* Loss and gradient norm of the first steps. */
static void first_rows(const char *extra, double out[4])
{
    uint64_t size;
    char path[300], *text;
    af_error err = {0};
    free(trained_bytes(extra, &size));
    snprintf(path, sizeof path, "%s/same/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    char *line = text;
    for (int i = 0; i < 2; i++) {
        json_t *row = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        out[2 * i] = json_number_value(json_object_get(row, "loss"));
        out[2 * i + 1] = json_number_value(json_object_get(row, "grad_norm"));
        json_decref(row);
        line = strchr(line, '\n') + 1;
    }
    free(text);
}

static void test_accumulation_is_a_bigger_batch(void **state)
{
    (void)state;
    double a[4], b[4];
    first_rows("micro_batch_size: 1\ngradient_accumulation_steps: 4\n", a);
    first_rows("micro_batch_size: 4\n", b);
    for (int i = 0; i < 4; i++)
        CHECK_MSG(fabs(a[i] - b[i]) <= 1e-6 * fabs(b[i]), "value %d: %.9g and %.9g", i, a[i], b[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_follow_pytorch),
        cmocka_unit_test(test_other_models_follow_pytorch),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_accumulation_is_a_bigger_batch),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
