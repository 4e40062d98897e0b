/* test_fp8_runs.c - runs with `fp8: true`: the gate, what it writes, and that threads, memory modes
 * and a resume do not change a bit. */
#include "train/run_folder.h"

#include "afinar/convert.h"
#include "afinar/train.h"
#include "base/buf.h"
#include "format/weights/safetensors.h"
#include "train/step/fp8_plan.h"

static af_buf lines; /* of the last run's log */

static int clear_all(void **state)
{
    af_buf_clear(&lines);
    return teardown(state);
}

static void keep_line(void *user, const char *line)
{
    (void)user;
    af_buf_printf(&lines, "%s\n", line);
}

/* Trains `model` into dir/name with more keys. */
static af_status run(const char *name, const char *model, const char *more, af_train_result *r,
                     af_error *err)
{
    char path[256], text[2000];
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(text, sizeof text,
             "base_model: %s\ndatasets: [{path: %s/models/data/train_tokens.jsonl}]\n"
             "output_dir: %s/%s\nlearning_rate: 1e-3\nmax_steps: 4\n%s"
             "device: cpu\nlogging_steps: 1\nseed: 5\n%s", /* products this small gain nothing on a
                                                              GPU */
             model, golden_dir(), dir, name, strstr(more, "fp8:") ? "" : "fp8: true\n", more);
    CHECK_OK(af_file_write(path, text, strlen(text), err), *err);
    af_buf_clear(&lines);
    return af_train(path, NULL, 0, &(af_train_hooks){.log = keep_line}, r, err);
}

static void train(const char *name, const char *model, const char *more)
{
    af_error err = {0};
    af_train_result r;
    CHECK_OK(run(name, model, more, &r, &err), err);
}

static const char *qwen2(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/models/qwen2", golden_dir());
    return path;
}

static void same_adapter(const char *a, const char *b)
{
    CHECK_MSG(same_output(a, b, "adapter_model.safetensors"), "the adapters of %s and %s differ", a,
              b);
}

/* Row `n` of metrics.jsonl. */
static json_t *row(const char *name, int n)
{
    uint64_t size;
    char *text = read_output(name, "metrics.jsonl", &size), *line = text;
    for (; n > 0 && line; n--)
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    assert_non_null(line);
    json_t *j = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    free(text);
    assert_non_null(j);
    return j;
}

static double number(const json_t *j, const char *key)
{
    CHECK_MSG(json_is_number(json_object_get(j, key)), "no %s", key);
    return json_number_value(json_object_get(j, key));
}

static void test_report(void **state)
{
    (void)state;
    train("plain", qwen2(), "adapter: lora\nthreads: 1\n");
    json_t *gate = row("plain", 0);
    assert_int_equal((int)number(gate, "fp8_used"), 8);
    assert_int_equal(json_array_size(json_object_get(gate, "fp8_over_limit")), 0);
    for (int pass = 0; pass < 2; pass++) {
        const double e = number(gate, pass ? "fp8_backward_error" : "fp8_forward_error");
        CHECK_MSG(e > 0.02 && e < 0.06, "an error of %g is not that of e4m3", e);
    }
    json_decref(gate);
    CHECK_MSG(strstr(lines.data, "fp8: 8 of 8 groups"), "log: %s", lines.data);
    uint64_t size;
    char *page = read_output("plain", "report.html", &size);
    CHECK_MSG(strstr(page, "8 of 8 groups of projections multiply in FP8") &&
                  strstr(page, "model.layers.1.mlp.down_proj"),
              "the report does not say it");
    free(page);
}

static void test_close_to_plain(void **state)
{
    (void)state;
    train("near", qwen2(), "adapter: lora\nthreads: 1\nfp8: false\n");
    double most = 0;
    for (int k = 0; k < 4; k++) {
        json_t *a = row("plain", k + 1), *b = row("near", k);
        most = fmax(most, fabs(number(a, "loss") / number(b, "loss") - 1));
        json_decref(a);
        json_decref(b);
    }
    CHECK_MSG(most < 0.02 && most > 0, "losses differ by %g", most);
}

static void test_same_bits(void **state)
{
    (void)state;
    train("threads", qwen2(), "adapter: lora\nthreads: 3\n");
    same_adapter("plain", "threads");
    train("recomputed", qwen2(), "adapter: lora\nthreads: 2\ngradient_checkpointing: true\n");
    same_adapter("plain", "recomputed");
}

static void test_resume(void **state)
{
    (void)state;
    train("again", qwen2(), "adapter: lora\nthreads: 1\nsave_steps: 2\n");
    char from[300];
    snprintf(from, sizeof from,
             "adapter: lora\nthreads: 1\nresume_from_checkpoint: %s/again/checkpoint-2\n", dir);
    train("resumed", qwen2(), from);
    same_adapter("plain", "resumed");
}

static void test_methods(void **state)
{
    (void)state;
    static const char *const more[] = {"adapter: qlora\n",
                                       "adapter: lora\npeft_use_dora: true\nlora_dropout: 0.1\n",
                                       "adapter: lora\nlora_dropout: 0.2\nbf16: true\n",
                                       "adapter: lora\nlora_modules_to_save: [down_proj]\n"};
    static const int used[] = {8, 8, 8, 6}; /* of the last, two are trained themselves */
    for (size_t i = 0; i < AF_LEN(more); i++) {
        char name[16];
        snprintf(name, sizeof name, "method%zu", i);
        train(name, qwen2(), more[i]);
        json_t *gate = row(name, 0);
        CHECK_MSG((int)number(gate, "fp8_used") == used[i], "%s: %g groups", more[i],
                  number(gate, "fp8_used"));
        CHECK_MSG(number(gate, "fp8_forward_error") < 0.06, "%s: %g", more[i],
                  number(gate, "fp8_forward_error"));
        json_decref(gate);
    }
}

/* ---- a layer that FP8 does not suit ---- */

/* A channel of layer 1 that is 1e5 times as large as the others and that nothing listens to: with
 * one scale a row, nothing else is left of x. */
static void spoil(const char *name, float *v, const af_stored *t)
{
    if (strcmp(name, "model.layers.1.post_attention_layernorm.weight") == 0)
        v[0] = 1e5f;
    if (strcmp(name, "model.layers.1.mlp.gate_proj.weight") == 0 ||
        strcmp(name, "model.layers.1.mlp.up_proj.weight") == 0)
        for (int64_t o = 0; o < t->dim[0]; o++)
            v[o * t->dim[1]] = 0;
}

static void spoiled_model(const char *to)
{
    static const char *const files[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char a[600], b[600];
    af_error err = {0};
    af_safetensors *f;
    af_safetensors_writer *w;
    CHECK_OK(af_dir_make(to, &err), err);
    for (size_t i = 0; i < AF_LEN(files); i++) {
        snprintf(a, sizeof a, "%s/%s", qwen2(), files[i]);
        snprintf(b, sizeof b, "%s/%s", to, files[i]);
        CHECK_OK(af_file_copy(a, b, &err), err);
    }
    snprintf(a, sizeof a, "%s/model.safetensors", qwen2());
    snprintf(b, sizeof b, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_open(&f, a, &err), err);
    CHECK_OK(af_safetensors_writer_new(&w, b, 0, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        CHECK_OK(af_safetensors_writer_add(w, t->name, t->dtype, t->dim, t->ndim, &err), err);
    }
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        float *v = malloc(t->bytes + 1);
        assert_true(v && t->dtype == AF_DTYPE_F32);
        memcpy(v, t->data, t->bytes);
        spoil(t->name, v, t);
        CHECK_OK(af_safetensors_writer_data(w, v, t->bytes, &err), err);
        free(v);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
}

static void test_fallback(void **state)
{
    (void)state;
    char model[300];
    snprintf(model, sizeof model, "%s/spoiled", dir);
    spoiled_model(model);
    train("fallback", model, "adapter: lora\n");
    json_t *gate = row("fallback", 0), *names = json_object_get(gate, "fp8_over_limit");
    assert_int_equal((int)number(gate, "fp8_used"), 7);
    assert_int_equal(json_array_size(names), 1);
    assert_string_equal(json_string_value(json_array_get(names, 0)),
                        "model.layers.1.mlp.gate_proj");
    CHECK_MSG(number(gate, "fp8_forward_error") <= AF_FP8_ERROR_MAX, "others are %g off",
              number(gate, "fp8_forward_error"));
    json_decref(gate);
    CHECK_MSG(strstr(lines.data, "'model.layers.1.mlp.gate_proj' is computed without FP8"),
              "log: %s", lines.data);
    uint64_t size;
    char *page = read_output("fallback", "report.html", &size);
    CHECK_MSG(strstr(page, "not in FP8: above the limit"), "the report does not name it");
    free(page);
    char from[300];
    train("fallback2", model, "adapter: lora\nsave_steps: 2\n");
    snprintf(from, sizeof from,
             "adapter: lora\nresume_from_checkpoint: %s/fallback2/checkpoint-2\n", dir);
    train("fallback3", model, from);
    same_adapter("fallback", "fallback3");
}

/* ---- refusals ---- */

static void refused(const char *model, const char *more, const char *says)
{
    af_error err = {0};
    af_train_result r;
    CHECK_MSG(run("refused", model, more, &r, &err) == AF_EUSAGE, "%s is accepted", more);
    CHECK_MSG(strstr(err.msg, says), "%s: %s", more, err.msg);
}

static void test_refusals(void **state)
{
    (void)state;
    char gguf[600];
    refused(qwen2(), "strict: true\n", "it is for frozen weights");

    snprintf(gguf, sizeof gguf, "%s/base.gguf", dir);
    af_convert_report *report = NULL;
    af_verify_result verify;
    af_error err = {0};
    CHECK_OK(af_export(qwen2(), gguf, &(af_export_opts){.type = "q8_0", .no_verify = true}, &report,
                       &verify, &err),
             err);
    af_convert_report_free(report);
    refused(gguf, "adapter: lora\n", "is q8_0; FP8 is for bases in bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_report),    cmocka_unit_test(test_close_to_plain),
        cmocka_unit_test(test_same_bits), cmocka_unit_test(test_resume),
        cmocka_unit_test(test_methods),   cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, setup, clear_all);
}
