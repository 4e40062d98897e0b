/* test_score_runs.c - runs of models that give scores, against TRL's RewardTrainer and
 * transformers' Trainer; what must not change such a run, and the files it leaves. */
#define _DEFAULT_SOURCE
#include "train/run_folder.h"
#include "train/weight_files.h"

#include "afinar/convert.h"
#include "afinar/model.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static af_status train_text(const char *text, const af_train_hooks *hooks, af_error *err)
{
    char path[256];
    af_train_result result;
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    assert_int_equal(af_file_write(path, text, strlen(text), err), AF_OK);
    return af_train(path, NULL, 0, hooks, &result, err);
}

/* ---- goldens ---- */

static json_t *load(const char *root, const char *name, const char *file)
{
    char path[600];
    json_error_t why;
    snprintf(path, sizeof path, "%s/preference/runs/%s/%s", root, name, file);
    json_t *j = json_load_file(path, 0, &why);
    CHECK_MSG(j, "%s: %s", path, why.text);
    return j;
}

static void train_golden(const char *root, const char *name, const json_t *run)
{
    const bool reward = strcmp(name, "reward") == 0;
    af_buf b = {0};
    af_error err = {0};
    char out[256];
    snprintf(out, sizeof out, "%s/golden", dir);
    CHECK_OK(af_path_remove(out, &err), err);
    af_buf_printf(&b,
                  "base_model: %s/preference/runs/%s/%s\noutput_dir: %s\nadapter: lora\n"
                  "lora_model_dir: %s/preference/runs/%s/initial_adapter\nmicro_batch_size: %d\n"
                  "max_steps: 12\nlearning_rate: 0.002\nlr_scheduler: cosine\nwarmup_steps: 2\n"
                  "weight_decay: 0.01\nweight_decay_on: all\nmax_grad_norm: 1.0\nshuffle: false\n"
                  "bf16: false\nsequence_len: 256\nlogging_steps: 1\ndevice: %s\n",
                  root, name, json_string_value(json_object_get(run, "base_model")), out, root,
                  name,
                  (int)json_integer_value(json_object_get(run, "per_device_train_batch_size")),
                  test_device());
    af_buf_printf(&b, "datasets: [{path: %s/preference/runs/%s/%s%s}]\n", root, name,
                  json_string_value(json_object_get(run, "data")),
                  strcmp(name, "regression") == 0 ? ", field_label: score" : "");
    if (reward)
        af_buf_str(&b, "rl: reward\ncenter_rewards_coefficient: 0.01\n");
    else
        af_buf_printf(&b, "task_type: SEQ_CLS\nnum_labels: %d\n",
                      (int)json_integer_value(json_object_get(run, "num_labels")));
    char *text = af_buf_take(&b);
    CHECK_OK(train_text(text, NULL, &err), err);
    free(text);
}

/* The tolerances of the goldens' page. */
static double tolerance(const char *key)
{
    return strcmp(key, "grad_norm") == 0                                    ? 5e-4
           : strcmp(key, "loss") == 0                                       ? 1e-4
           : strcmp(key, "accuracy") == 0 || strcmp(key, "num_tokens") == 0 ? 0
                                                                            : 5e-5;
}

static void compare_steps(const char *name, const json_t *steps)
{
    char path[300], *text;
    uint64_t size;
    af_error err = {0};
    size_t i = 0;
    snprintf(path, sizeof path, "%s/golden/metrics.jsonl", dir);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 24, &err), err);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1, i++) {
        json_t *row = json_loadb(line, (size_t)(end - line), 0, NULL), *v;
        const char *key;
        json_object_foreach(json_array_get(steps, i), key, v)
        {
            const json_t *own = json_object_get(row, key);
            if (strcmp(key, "step") == 0 || strcmp(key, "lr") == 0)
                continue;
            CHECK_MSG(json_is_number(own), "%s, step %zu: no %s", name, i + 1, key);
            CHECK_MSG(fabs(json_number_value(own) - json_number_value(v)) <= tolerance(key),
                      "%s, step %zu: %s is %.9g, not %.9g", name, i + 1, key,
                      json_number_value(own), json_number_value(v));
        }
        json_decref(row);
    }
    assert_int_equal(i, json_array_size(steps));
    free(text);
}

static void check_golden(const char *root, const char *name)
{
    char want[600], got[300];
    json_t *run = load(root, name, "run.json"), *trajectory = load(root, name, "trajectory.json");
    train_golden(root, name, run);
    compare_steps(name, json_object_get(trajectory, "steps"));
    snprintf(want, sizeof want, "%s/preference/runs/%s/final_adapter/adapter_model.safetensors",
             root, name);
    snprintf(got, sizeof got, "%s/golden/adapter_model.safetensors", dir);
    if (af_file_exists(want))
        assert_true(compare_weights(want, got).most <= 1e-4);
    json_decref(run);
    json_decref(trajectory);
}

static void test_a_run_follows_transformers(void **state)
{
    (void)state;
    check_golden(golden_dir(), "regression");
}

static void test_all_runs_follow_trl_and_transformers(void **state)
{
    (void)state;
    char root[512];
    if (!shared_dir())
        skip_because("no shared goldens");
    snprintf(root, sizeof root, "%s/golden", shared_dir());
    check_golden(root, "reward");
    check_golden(root, "seqcls");
    check_golden(root, "regression");
}

/* ---- own runs ---- */

static void run_in(const char *name, const char *extra, const af_train_hooks *hooks,
                   af_status expected)
{
    af_buf b = {0};
    af_error err = {0};
    af_buf_printf(&b,
                  "base_model: %s/models/qwen2\noutput_dir: %s/%s\nlearning_rate: 2e-3\n"
                  "max_steps: 6\ndevice: %s\nbf16: false\nseed: 5\nsequence_len: 256\n%s",
                  golden_dir(), dir, name, test_device(), extra);
    char *text = af_buf_take(&b);
    const af_status st = train_text(text, hooks, &err);
    CHECK_MSG(st == expected, "%s: status %d, %s", name, (int)st, err.msg);
    free(text);
}

/* Texts with three labels. */
static void labels_in(const char *name, const char *extra, const af_train_hooks *hooks,
                      af_status expected)
{
    af_buf b = {0};
    af_buf_printf(&b,
                  "datasets: [{path: %s/preference/data/texts.jsonl}]\ntask_type: SEQ_CLS\n"
                  "class_names: [question, statement, doubt]\n%s",
                  golden_dir(), extra);
    char *text = af_buf_take(&b);
    run_in(name, text, hooks, expected);
    free(text);
}

static const char *file_of(const char *name, const char *file)
{
    static char path[2][400];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s/%s", dir, name, file);
    return path[turn];
}

static double weights_apart(const char *a, const char *b, const char *file)
{
    return compare_weights(file_of(a, file), file_of(b, file)).most;
}

static bool stop_after_three(void *user) { return *(int *)user >= 3; }

static void count_step(void *user, const af_train_step *s)
{
    *(int *)user = isnan(s->eval_loss) ? (int)s->step : *(int *)user;
}

#define LORA_KEYS                                                                                  \
    "adapter: lora\nlora_r: 4\nlora_dropout: 0.1\nmicro_batch_size: 2\nval_set_size: 4\n"          \
    "eval_steps: 2\ngradient_accumulation_steps: 2\n"

static void test_a_stopped_run_ends_with_the_same_bytes(void **state)
{
    (void)state;
    int steps = 0;
    const af_train_hooks hooks = {.user = &steps, .step = count_step, .stop = stop_after_three};
    labels_in("whole", LORA_KEYS, NULL, AF_OK);
    labels_in("part", LORA_KEYS "logging_steps: 1\n", &hooks, AF_ESTOPPED);
    labels_in("part", LORA_KEYS "logging_steps: 1\nresume_from_checkpoint: auto\n", NULL, AF_OK);
    assert_true(weights_apart("whole", "part", "adapter_model.safetensors") == 0);
}

static void test_accumulation_changes_nothing(void **state)
{
    (void)state;
    labels_in("one", "optimizer: sgd\nmicro_batch_size: 4\nshuffle: false\n", NULL, AF_OK);
    labels_in("four",
              "optimizer: sgd\ngradient_accumulation_steps: 4\nmicro_batch_size: 1\n"
              "shuffle: false\n",
              NULL, AF_OK);
    assert_true(weights_apart("one", "four", "model.safetensors") < 1e-6);
}

static json_t *read_json(const char *path)
{
    json_error_t why;
    json_t *j = json_load_file(path, 0, &why);
    CHECK_MSG(j, "%s: %s", path, why.text);
    return j;
}

static const char *text_at(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* The scores of a text by an opened model. */
static void classify(const char *model, const char *adapter, const int32_t *ids, int64_t n,
                     double *share)
{
    af_model *m = NULL;
    af_error err = {0};
    const af_model_opts o = {.device = test_device(),
                             .compute = AF_COMPUTE_F32, /* a GPU's default is bf16 */
                             .adapter = {adapter},
                             .adapter_weight = {1},
                             .adapters = adapter != NULL};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    assert_int_equal(af_model_labels(m), 3);
    assert_string_equal(af_model_label(m, 2), "doubt");
    assert_int_equal(af_model_label_kind(m), AF_LABELS_ONE);
    CHECK_OK(af_model_classify(m, ids, n, NULL, share, &err), err);
    float none = 0;
    assert_int_equal(af_model_logits_of(m, ids, n, &none, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "afinar classify"));
    af_model_close(m);
}

static void test_the_files_are_those_of_transformers_and_peft(void **state)
{
    (void)state;
    static const int32_t padded[] = {70, 80, 90, 509, 509}; /* 509 is the padding token */
    char base[400];
    double a[3], b[3];
    af_error err = {0};
    snprintf(base, sizeof base, "%s/models/qwen2", golden_dir());
    labels_in("lora", "adapter: lora\n", NULL, AF_OK);
    json_t *j = read_json(file_of("lora", "adapter_config.json"));
    assert_string_equal(text_at(j, "task_type"), "SEQ_CLS");
    assert_int_equal(json_array_size(json_object_get(j, "modules_to_save")), 2);
    json_decref(j);
    classify(base, file_of("lora", ""), padded, 3, a);
    classify(base, file_of("lora", ""), padded, 5, b);
    const double most = strcmp(test_device(), "cpu") == 0 ? 0 : 1e-6; /* other rows, other sums */
    for (int i = 0; i < 3; i++)
        CHECK_MSG(fabs(a[i] - b[i]) <= most, "label %d: %.9g, padded %.9g", i, a[i], b[i]);
    assert_true(fabs(a[0] + a[1] + a[2] - 1) < 1e-12);

    const af_merge_adapter_opts o = {
        .adapter = {file_of("lora", "")}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(base, file_of("merged", ""), &o, NULL, &err), err);
    j = read_json(file_of("merged", "config.json"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "architectures"), 0)),
                        "Qwen2ForSequenceClassification");
    json_decref(j);
    classify(file_of("merged", ""), NULL, padded, 5, b);
    for (int i = 0; i < 3; i++)
        CHECK_MSG(fabs(a[i] - b[i]) < 1e-6, "label %d: %.9g, merged %.9g", i, a[i], b[i]);

    labels_in("full", "", NULL, AF_OK);
    j = read_json(file_of("full", "config.json"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "architectures"), 0)),
                        "Qwen2ForSequenceClassification");
    assert_string_equal(text_at(json_object_get(j, "id2label"), "1"), "statement");
    assert_string_equal(text_at(j, "problem_type"), "single_label_classification");
    assert_int_equal(json_integer_value(json_object_get(j, "pad_token_id")), 509);
    json_decref(j);
    classify(file_of("full", ""), NULL, padded, 5, b);
}

static void test_a_trained_folder_is_trained_further(void **state)
{
    (void)state;
    af_buf b = {0};
    af_error err = {0};
    labels_in("first", "", NULL, AF_OK);
    af_buf_printf(&b,
                  "base_model: %s/first\noutput_dir: %s/second\nmax_steps: 2\ndevice: %s\n"
                  "datasets: [{path: %s/preference/data/texts.jsonl}]\n",
                  dir, dir, test_device(), golden_dir());
    char *text = af_buf_take(&b);
    assert_int_equal(train_text(text, NULL, &err), AF_EUSAGE); /* it is no language model */
    assert_non_null(strstr(err.msg, "set task_type: SEQ_CLS"));
    af_buf_printf(&b, "%stask_type: SEQ_CLS\n", text);
    free(text);
    text = af_buf_take(&b);
    CHECK_OK(train_text(text, NULL, &err), err);
    free(text);
    assert_true(weights_apart("first", "second", "model.safetensors") > 0);
}

static void test_quantised_bases_and_several_labels(void **state)
{
    (void)state;
    af_buf b = {0};
    char path[300];
    af_error err = {0};
    for (int i = 0; i < 8; i++)
        af_buf_printf(&b, "{\"text\": \"text %d\", \"label\": [%s]}\n", i,
                      i % 3 == 0   ? "\"a\", \"c\""
                      : i % 3 == 1 ? "\"b\""
                                   : "");
    snprintf(path, sizeof path, "%s/several.jsonl", dir);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
    af_buf_printf(&b,
                  "datasets: [{path: %s}]\ntask_type: SEQ_CLS\nadapter: qlora\n"
                  "class_names: [a, b, c, d]\nproblem_type: multi_label_classification\n",
                  path);
    char *text = af_buf_take(&b);
    run_in("several", text, NULL, AF_OK);
    free(text);
}

/* The loss of the first step on texts of one class. */
static double loss_of_class(int label, const char *smoothing)
{
    af_buf b = {0};
    char path[300], name[64];
    uint64_t size;
    af_error err = {0};
    for (int i = 0; i < 4; i++)
        af_buf_printf(&b, "{\"text\": \"text %d\", \"label\": %d}\n", i, label);
    snprintf(path, sizeof path, "%s/class%d.jsonl", dir, label);
    CHECK_OK(af_file_write(path, b.data, b.len, &err), err);
    af_buf_clear(&b);
    af_buf_printf(&b,
                  "datasets: [{path: %s}]\ntask_type: SEQ_CLS\nlogging_steps: 1\nadapter: lora\n"
                  "shuffle: false\nlabel_smoothing_factor: %s\n",
                  path, smoothing);
    char *text = af_buf_take(&b);
    snprintf(name, sizeof name, "class%d-%s", label, smoothing);
    run_in(name, text, NULL, AF_OK);
    free(text);
    text = read_output(name, "metrics.jsonl", &size);
    json_t *row = json_loadb(text, strcspn(text, "\n"), 0, NULL);
    const double loss = json_number_value(json_object_get(row, "loss"));
    json_decref(row);
    free(text);
    return loss;
}

/* transformers smooths classes as it smooths tokens; other kinds of labels have no such loss. */
static void test_label_smoothing(void **state)
{
    (void)state;
    const double a = loss_of_class(0, "0"), b = loss_of_class(1, "0");
    const double smooth = loss_of_class(0, "0.4");
    CHECK_MSG(fabs(a - b) > 1e-3 && fabs(smooth - (0.8 * a + 0.2 * b)) < 1e-6, "%g %g %g", a, b,
              smooth);
    labels_in("several-smooth",
              "problem_type: multi_label_classification\nlabel_smoothing_factor: 0.1\n", NULL,
              AF_EUSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_run_follows_transformers),
        cmocka_unit_test(test_all_runs_follow_trl_and_transformers),
        cmocka_unit_test(test_a_stopped_run_ends_with_the_same_bytes),
        cmocka_unit_test(test_accumulation_changes_nothing),
        cmocka_unit_test(test_the_files_are_those_of_transformers_and_peft),
        cmocka_unit_test(test_a_trained_folder_is_trained_further),
        cmocka_unit_test(test_quantised_bases_and_several_labels),
        cmocka_unit_test(test_label_smoothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
