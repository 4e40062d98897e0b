/* test_run_object.c - training through the public af_run: the same bits as af_train, and its
 * faults. */
#include "test.h"

#include "afinar/train.h"
#include "base/file.h"

#include <jansson.h>
#include <math.h>

typedef struct key_value {
    const char *key, *value;
} key_value;

static char dir[512];

static const char *in_golden(const char *name)
{
    static char path[2][512];
    static int at;
    at = !at;
    snprintf(path[at], sizeof path[at], "%s/%s", golden_dir(), name);
    return path[at];
}

/* A small LoRA run on the golden model. */
static void set_keys(af_run *run, const char *output)
{
    char datasets[600];
    snprintf(datasets, sizeof datasets, "[{path: %s}]", in_golden("models/data/train.jsonl"));
    const key_value keys[] = {{"base_model", in_golden("models/qwen2")},
                              {"adapter", "lora"},
                              {"lora_r", "4"},
                              {"datasets", datasets},
                              {"val_set_size", "8"},
                              {"sequence_len", "64"},
                              {"micro_batch_size", "2"},
                              {"max_steps", "4"},
                              {"eval_steps", "2"},
                              {"learning_rate", "1e-3"},
                              {"device", "cpu"},
                              {"threads", "2"},
                              {"output_dir", output}};
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        af_error err = {0};
        CHECK_OK(af_run_set(run, keys[i].key, keys[i].value, &err), err);
    }
}

static void read_all(char **text, uint64_t *size, const char *folder, const char *name)
{
    char path[1024];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(af_file_read(text, size, path, UINT64_C(1) << 30, &err), err);
}

static void check_same_file(const char *a, const char *b, const char *name)
{
    char *x, *y;
    uint64_t n, m;
    read_all(&x, &n, a, name);
    read_all(&y, &m, b, name);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* Step by step gives the adapter that the run file gives. */
static void test_same_bytes_as_af_train(void **state)
{
    (void)state;
    char a[600], b[600], c[600], file[700];
    af_error err = {0};
    af_run *run = NULL;
    af_run_step_result r = {0};
    double loss = NAN, accuracy = NAN, last_eval = NAN;
    int steps = 0;
    snprintf(a, sizeof a, "%s/steps", dir);
    snprintf(b, sizeof b, "%s/whole", dir);
    snprintf(c, sizeof c, "%s/saved", dir);
    CHECK_OK(af_run_new(&run, &err), err);
    set_keys(run, a);
    CHECK_OK(af_run_open(run, NULL, &err), err);
    while (!r.finished) {
        CHECK_OK(af_run_step(run, &r, &err), err);
        steps++;
        assert_int_equal(r.step, steps);
        assert_int_equal(r.steps, 4);
        assert_true(isfinite(r.loss) && r.tokens > 0);
        assert_int_equal(!isnan(r.eval_loss), steps % 2 == 0);
        last_eval = r.eval_loss;
    }
    assert_int_equal(steps, 4);
    CHECK_OK(af_run_step(run, &r, &err), err); /* nothing is left to do */
    assert_true(r.finished && r.step == 4);
    CHECK_OK(af_run_evaluate(run, &loss, &accuracy, &err), err);
    assert_true(loss == last_eval && accuracy >= 0 && accuracy <= 1);
    CHECK_OK(af_run_save(run, c, &err), err);
    CHECK_OK(af_run_checkpoint(run, &err), err);
    assert_int_equal(af_run_set(run, "lora_r", "8", &err), AF_EUSAGE);
    af_run_close(run);

    af_train_result result;
    snprintf(file, sizeof file, "%s/run.yaml", a); /* the effective run file */
    char output[700];
    snprintf(output, sizeof output, "output_dir=%s", b);
    CHECK_OK(af_train(file, (const char *const[]){output}, 1, NULL, &result, &err), err);
    assert_int_equal(result.steps, 4);
    check_same_file(c, b, "adapter_model.safetensors");
    snprintf(a + strlen(a), sizeof a - strlen(a), "/checkpoint-4");
    snprintf(b + strlen(b), sizeof b - strlen(b), "/checkpoint-4");
    check_same_file(a, b, "optimizer.safetensors");
}

static bool always(void *user)
{
    (*(int *)user)++;
    return true;
}

/* A stop ends an evaluation, and the next call continues there. */
static void test_stop_is_a_callback(void **state)
{
    (void)state;
    char a[600];
    af_error err = {0};
    af_run *run = NULL;
    af_run_step_result r = {0};
    int asked = 0;
    const af_train_hooks hooks = {.user = &asked, .stop = always};
    snprintf(a, sizeof a, "%s/stopped", dir);
    CHECK_OK(af_run_new(&run, &err), err);
    set_keys(run, a);
    CHECK_OK(af_run_open(run, &hooks, &err), err);
    assert_int_equal(af_run_step(run, &r, &err), AF_ESTOPPED);
    assert_true(asked > 0 && r.step == 0 && !r.finished);
    assert_int_equal(af_run_evaluate(run, NULL, NULL, &err), AF_ESTOPPED);
    af_run_close(run);
}

static void test_faults_are_named(void **state)
{
    (void)state;
    static const struct {
        key_value set;
        const char *says;
    } cases[] = {
        {{"lora_rnak", "4"}, "af_run: unknown key 'lora_rnak'; did you mean 'lora_r"},
        {{"lora_r", "many"}, "af_run: lora_r must be a whole number"},
        {{"adapter", "peft"}, "af_run: adapter is 'peft'"},
        {{"lora_target_modules", "[q_proj"}, "af_run: lora_target_modules"},
    };
    af_error err = {0};
    af_run *run = NULL;
    CHECK_OK(af_run_new(&run, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        assert_int_not_equal(af_run_set(run, cases[i].set.key, cases[i].set.value, &err), AF_OK);
        CHECK_MSG(strstr(err.msg, cases[i].says), "'%s' does not name '%s'", err.msg,
                  cases[i].says);
    }
    assert_int_equal(af_run_step(run, NULL, &err), AF_EUSAGE);
    assert_int_equal(af_run_open(run, NULL, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "base_model is missing"));
    assert_int_equal(af_run_open(run, NULL, &err), AF_EUSAGE); /* once is all */
    af_run_close(run);
    af_run_close(NULL);
    /* without an error to write to */
    assert_int_equal(af_run_set(NULL, "a", "b", NULL), AF_EUSAGE);
    assert_int_equal(af_run_open(NULL, NULL, NULL), AF_EUSAGE);
    assert_int_equal(af_run_step(NULL, NULL, NULL), AF_EUSAGE);
    assert_int_equal(af_run_evaluate(NULL, NULL, NULL, NULL), AF_EUSAGE);
    assert_int_equal(af_run_save(NULL, NULL, NULL), AF_EUSAGE);
    assert_int_equal(af_run_checkpoint(NULL, NULL), AF_EUSAGE);
    assert_int_not_equal(af_train("/nowhere.yaml", NULL, 0, NULL, NULL, NULL), AF_OK);
    assert_int_equal(af_train(NULL, NULL, 0, NULL, NULL, NULL), AF_EUSAGE);
}

/* Errors that are decided by their subject do not need the caller's af_error. */
static void test_wrong_module_without_an_error(void **state)
{
    (void)state;
    char a[600];
    af_error err = {0};
    snprintf(a, sizeof a, "%s/wrong", dir);
    static const key_value wrong[] = {{"lora_target_modules", "[no_such_module]"},
                                      {"lora_modules_to_save", "[no_such_module]"},
                                      {"device", "no_such_device"}};
    for (size_t i = 0; i < AF_LEN(wrong); i++) {
        af_run *run = NULL;
        CHECK_OK(af_run_new(&run, &err), err);
        set_keys(run, a);
        CHECK_OK(af_run_set(run, wrong[i].key, wrong[i].value, &err), err);
        assert_int_not_equal(af_run_open(run, NULL, NULL), AF_OK);
        assert_false(af_dir_exists(a));
        af_run_close(run);
    }
}

/* Opens a run on `output` with one more key, or with none (key NULL). */
static af_status open_with(af_run **run, const char *output, const char *key, const char *value,
                           af_error *err)
{
    CHECK_OK(af_run_new(run, err), *err);
    set_keys(*run, output);
    if (key)
        CHECK_OK(af_run_set(*run, key, value, err), *err);
    return af_run_open(*run, NULL, err);
}

/* What af_train finished stays finished, and nothing that a run starts from is overwritten. */
static void test_finished_runs_and_inputs_are_kept(void **state)
{
    (void)state;
    char a[600], b[600], file[700];
    af_error err = {0};
    af_run *run = NULL;
    af_train_result result;
    snprintf(a, sizeof a, "%s/finished", dir);
    snprintf(b, sizeof b, "%s/from_adapter", dir);
    CHECK_OK(open_with(&run, a, NULL, NULL, &err), err);
    af_run_close(run);
    snprintf(file, sizeof file, "%s/run.yaml", a);
    const char *const again[] = {"resume_from_checkpoint=auto"};
    CHECK_OK(af_train(file, again, 1, NULL, &result, &err), err);
    assert_int_equal(result.steps, 4);
    assert_int_equal(open_with(&run, a, "resume_from_checkpoint", "auto", &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "holds a finished run"));
    af_run_close(run);
    CHECK_OK(af_train(file, again, 1, NULL, &result, &err), err);
    assert_true(result.nothing_to_do);

    CHECK_OK(open_with(&run, b, "lora_model_dir", a, &err), err);
    assert_int_equal(af_run_save(run, a, &err), AF_EUSAGE);
    assert_non_null(strstr(err.msg, "lora_model_dir"));
    af_run_close(run);
}

/* AdaLoRA may prune every module to rank 0. */
static void test_a_pruned_adapter_has_nothing_to_train(void **state)
{
#define EMPTY(name, shape)                                                                         \
    "\"base_model.model.model.layers.0.self_attn.q_proj.lora_" name                                \
    "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[0,0]}"
    static const char config[] =
        "{\"peft_type\": \"ADALORA\", \"init_r\": 3, \"target_modules\": [\"q_proj\"], "
        "\"layers_to_transform\": [0]}";
    static const char weights[] =
        "{" EMPTY("A", "[0,64]") "," EMPTY("B", "[64,0]") "," EMPTY("E", "[0,1]") "}";
    (void)state;
    char pruned[600], out[600], file[700], bytes[8 + sizeof weights] = {0};
    af_error err = {0};
    af_run *run = NULL;
    snprintf(pruned, sizeof pruned, "%s/pruned", dir);
    snprintf(out, sizeof out, "%s/from_pruned", dir);
    CHECK_OK(af_dir_make(pruned, &err), err);
    snprintf(file, sizeof file, "%s/adapter_config.json", pruned);
    CHECK_OK(af_file_write(file, config, strlen(config), &err), err);
    const uint16_t n = (uint16_t)strlen(weights);
    bytes[0] = (char)(n & 255);
    bytes[1] = (char)(n >> 8);
    memcpy(bytes + 8, weights, n);
    snprintf(file, sizeof file, "%s/adapter_model.safetensors", pruned);
    CHECK_OK(af_file_write(file, bytes, 8u + n, &err), err);
    assert_int_equal(open_with(&run, out, "lora_model_dir", pruned, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "pruned to rank 0"), "'%s'", err.msg);
    af_run_close(run);
}

/* How many parameters a run with this key trains. */
static int64_t planned(const char *model, const char *key)
{
    char path[600], text[2000], *plan = NULL;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/frozen.yaml", dir);
    snprintf(text, sizeof text,
             "base_model: %s\ndatasets: [{path: %s}]\ndevice: cpu\n"
             "sequence_len: 64\nmax_steps: 1\noutput_dir: %s/frozen\n%s\n",
             in_golden(model), in_golden("models/data/train.jsonl"), dir, key);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    CHECK_OK(af_train_plan(path, NULL, 0, 0, true, &plan, &err), err);
    json_t *o = json_loads(plan, 0, NULL);
    const int64_t n = json_integer_value(json_object_get(o, "trained_parameters"));
    json_decref(o);
    free(plan);
    return n;
}

static int64_t trained(const char *model, const char *frozen)
{
    char key[100];
    snprintf(key, sizeof key, "adapter: full\nfreeze_parameters: [%s]", frozen);
    return planned(model, key);
}

/* Rank 4 on the queries and keys of both layers of qwen2: 64 and 32 rows of 64 inputs. */
static void test_what_an_adapter_trains_is_counted(void **state)
{
    (void)state;
    static const char lora[] = "adapter: lora\nlora_r: 4\nlora_target_modules: [q_proj, k_proj]\n";
    char key[200];
    const int64_t plain = 2 * 4 * (64 + 64 + 64 + 32);
    assert_int_equal(planned("models/qwen2", lora), plain);
    snprintf(key, sizeof key, "%speft_use_dora: true", lora);
    assert_int_equal(planned("models/qwen2", key), plain + 2 * (64 + 32));
    snprintf(key, sizeof key, "%slora_bias: true", lora);
    assert_int_equal(planned("models/qwen2", key), plain + 2 * (64 + 32));
}

/* The head as a module (Oumi's freeze_layers) is the embedding of a tied model. */
static void test_a_tied_head_is_frozen_with_its_embedding(void **state)
{
    (void)state;
    const int64_t all = trained("models/qwen2", ""), untied = trained("models/mistral_tiny", "");
    const int64_t head = trained("models/mistral_tiny", "lm_head.");
    assert_true(trained("models/qwen2", "lm_head.") < all);
    assert_int_equal(trained("models/qwen2", "lm_head."),
                     trained("models/qwen2", "model.embed_tokens."));
    assert_int_equal(trained("models/qwen2", "lm_head"), all); /* the beginning of no name */
    assert_true(trained("models/mistral_tiny", "lm_head., model.embed_tokens.") < head &&
                head < untied);
}

/* A resumed run does not know the loss of its last step; a failed af_run_set leaves no trace. */
static void test_unknown_loss_and_failed_keys(void **state)
{
    (void)state;
    char a[600];
    af_error err = {0};
    af_run *run = NULL;
    af_run_step_result r = {0};
    snprintf(a, sizeof a, "%s/resumed", dir);
    CHECK_OK(open_with(&run, a, NULL, NULL, &err), err);
    while (!r.finished)
        CHECK_OK(af_run_step(run, &r, &err), err);
    CHECK_OK(af_run_checkpoint(run, &err), err);
    af_run_close(run);

    CHECK_OK(open_with(&run, a, "resume_from_checkpoint", "auto", &err), err);
    CHECK_OK(af_run_step(run, &r, &err), err);
    assert_true(r.finished && r.step == 4 && isnan(r.loss));
    af_run_close(run);

    snprintf(a, sizeof a, "%s/failed_key", dir);
    CHECK_OK(af_run_new(&run, &err), err);
    set_keys(run, a);
    assert_int_not_equal(af_run_set(run, "lora_model_dir", "a\x1b", &err), AF_OK);
    assert_int_not_equal(af_run_set(run, "gradient_accumulation_steps", "0", &err), AF_OK);
    CHECK_OK(af_run_open(run, NULL, &err), err);
    af_run_close(run);
}

/* Noise and dropout are off in an evaluation. */
static void test_evaluation_has_no_noise(void **state)
{
    (void)state;
    static const char *const alpha[] = {"0", "200"};
    char a[600];
    af_error err = {0};
    double loss[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        af_run *run = NULL;
        snprintf(a, sizeof a, "%s/noise%d", dir, i);
        CHECK_OK(open_with(&run, a, "neftune_noise_alpha", alpha[i], &err), err);
        CHECK_OK(af_run_evaluate(run, &loss[i], NULL, &err), err);
        af_run_close(run);
    }
    assert_true(loss[0] > 0 && loss[0] == loss[1]);
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/af_run_XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes_as_af_train),
        cmocka_unit_test(test_stop_is_a_callback),
        cmocka_unit_test(test_faults_are_named),
        cmocka_unit_test(test_wrong_module_without_an_error),
        cmocka_unit_test(test_finished_runs_and_inputs_are_kept),
        cmocka_unit_test(test_a_pruned_adapter_has_nothing_to_train),
        cmocka_unit_test(test_what_an_adapter_trains_is_counted),
        cmocka_unit_test(test_a_tied_head_is_frozen_with_its_embedding),
        cmocka_unit_test(test_unknown_loss_and_failed_keys),
        cmocka_unit_test(test_evaluation_has_no_noise),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)!af_path_remove(dir, NULL);
    return failed;
}
