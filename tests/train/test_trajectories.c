/* test_trajectories.c - whole runs through af_train against PyTorch + PEFT, step by step; and what
 * must not change a run. */
#define _DEFAULT_SOURCE
#include "test.h"

#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static char dir[] = "/tmp/afinar-train-XXXXXX";

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return 1;
    return setenv("XDG_CACHE_HOME", dir, 1);
}

static int teardown(void **state)
{
    (void)state;
    af_error err;
    return af_path_remove(dir, &err) != AF_OK;
}

static const char *text_of(const json_t *run, const char *key, char *buf, size_t size)
{
    const json_t *v = json_object_get(run, key);
    if (json_is_string(v))
        snprintf(buf, size, "%s", json_string_value(v));
    else if (json_is_integer(v))
        snprintf(buf, size, "%lld", (long long)json_integer_value(v));
    else
        snprintf(buf, size, "%.17g", json_number_value(v));
    return buf;
}

/* The run file of a golden run; `root` holds models/ and runs/. */
static char *run_file(const char *root, const char *models, const json_t *run, const char *folder,
                      const char *model, const char *out, const char *data, const char *extra)
{
    static const char *const keys[] = {"micro_batch_size", "gradient_accumulation_steps",
                                       "max_steps",        "adam_beta1",
                                       "adam_beta2",       "adam_epsilon",
                                       "weight_decay",     "lr_scheduler",
                                       "warmup_steps",     "max_grad_norm",
                                       "learning_rate"};
    af_buf b = {0};
    char v[64];
    af_buf_printf(&b, "base_model: %s/%s\ndatasets: [{path: %s/data/%s}]\noutput_dir: %s\n", models,
                  model, models, data, out);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        af_buf_printf(&b, "%s: %s\n", keys[i], text_of(run, keys[i], v, sizeof v));
    af_buf_str(
        &b, "shuffle: false\nbf16: false\nweight_decay_on: all\ndevice: cpu\nlogging_steps: 1\n");
    if (json_is_true(json_object_get(run, "sample_packing")))
        af_buf_str(&b,
                   "sample_packing: true\nsample_packing_sequentially: true\nsequence_len: 128\n");
    if (json_is_string(json_object_get(run, "adapter")))
        af_buf_printf(&b, "adapter: %s\nlora_model_dir: %s/runs/%s/%s\n",
                      text_of(run, "adapter", v, sizeof v), root, folder,
                      json_string_value(json_object_get(run, "initial_adapter")));
    af_buf_str(&b, extra);
    char *text = af_buf_take(&b);
    assert_non_null(text);
    return text;
}

static void train_text(const char *text, af_train_result *result)
{
    char path[256];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    CHECK_OK(af_train(path, NULL, 0, NULL, result, &err), err);
}

typedef struct limits {
    double loss_early, loss, norm_early, norm;
} limits;

static void compare(const char *name, const char *metrics, const json_t *steps, limits lim)
{
    char *text;
    uint64_t size;
    af_error err = {0};
    size_t i = 0;
    CHECK_OK(af_file_read(&text, &size, metrics, 1 << 24, &err), err);
    for (char *line = text, *end; line && *line; line = end + 1, i++) {
        end = strchr(line, '\n');
        assert_non_null(end);
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL);
        const json_t *want = json_array_get(steps, i);
        const double loss = fabs(json_number_value(json_object_get(row, "loss")) -
                                 json_number_value(json_object_get(want, "loss")));
        const double norm = fabs(json_number_value(json_object_get(row, "grad_norm")) -
                                 json_number_value(json_object_get(want, "grad_norm")));
        const double lr = fabs(json_number_value(json_object_get(row, "learning_rate")) -
                               json_number_value(json_object_get(want, "lr")));
        CHECK_MSG(loss <= (i < 3 ? lim.loss_early : lim.loss), "%s step %zu: loss differs by %g",
                  name, i + 1, loss);
        CHECK_MSG(norm <= (i < 3 ? lim.norm_early : lim.norm), "%s step %zu: norm differs by %g",
                  name, i + 1, norm);
        CHECK_MSG(lr <= 1e-9, "%s step %zu: learning rate differs by %g", name, i + 1, lr);
        CHECK_MSG(json_integer_value(json_object_get(want, "label_tokens")) ==
                      (json_int_t)json_number_value(json_object_get(row, "supervised_tokens")),
                  "%s step %zu: supervised tokens differ", name, i + 1);
        json_decref(row);
    }
    assert_int_equal(i, json_array_size(steps));
    free(text);
}

static json_t *load(const char *root, const char *folder, const char *file)
{
    char path[512];
    json_error_t why;
    snprintf(path, sizeof path, "%s/runs/%s/%s", root, folder, file);
    json_t *j = json_load_file(path, 0, &why);
    CHECK_MSG(j, "%s: %s", path, why.text);
    return j;
}

/* Limits: the "suggested tolerance" of the goldens (five times the spread of float32
 * implementations). qlora bases are quantised again, and one or two scale codes differ from the
 * stored ones: the goldens allow 3e-5. */
static limits limits_of(const char *run)
{
    if (strstr(run, "qlora"))
        return (limits){1e-4, 1e-4, 1e-4, 2e-4};
    if (strncmp(run, "full", 4) == 0)
        return (limits){5e-6, 5e-6, 2e-5, 5e-5};
    return (limits){5e-6, 1e-5, 2e-6, 5e-6};
}

static void check_run(const char *root, const char *models, const char *model, const char *name,
                      const char *data)
{
    char folder[128], out[256], metrics[300];
    snprintf(folder, sizeof folder, "%s/%s", model, name);
    snprintf(out, sizeof out, "%s/out", dir);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    json_t *run = load(root, folder, "run.json"),
           *trajectory = load(root, folder, "trajectory.json");
    char *text = run_file(root, models, run, folder, model, out, data, "");
    af_train_result result;
    af_error err = {0};
    CHECK_OK(af_path_remove(out, &err), err);
    train_text(text, &result);
    compare(folder, metrics, json_object_get(trajectory, "steps"), limits_of(name));
    free(text);
    json_decref(run);
    json_decref(trajectory);
}

static const char *const runs[] = {"lora", "lora-qv", "dora", "full", "full-packed", "qlora"};

static void test_runs_follow_pytorch(void **state)
{
    (void)state;
    char models[512];
    snprintf(models, sizeof models, "%s/models", golden_dir());
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++)
        check_run(golden_dir(), models, "qwen2", runs[i],
                  i % 2 ? "train.jsonl" : "train_tokens.jsonl");
}

static void test_other_models_follow_pytorch(void **state)
{
    (void)state;
    const char *shared = shared_dir();
    if (!shared)
        skip_because("no shared goldens");
    char root[512];
    snprintf(root, sizeof root, "%s/golden/models", shared);
    for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        check_run(root, root, "llama", runs[i], "train.jsonl");
        check_run(root, root, "qwen3", runs[i], "train.jsonl");
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
                  "lora_r: 4\nlearning_rate: 1e-3\nmax_steps: 6\ndevice: cpu\nseed: 5\n%s",
                  models, models, out, extra);
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
