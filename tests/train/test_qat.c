/* test_qat.c - quantisation-aware training against torchao, step by step; and what its key refuses.
 */
#define _DEFAULT_SOURCE
#include "train/method_runs.h"

#include "model/arch/arch.h"
#include "train/run/run_qat.h"

/* Weights and inputs on the edge between two codes round to either: the noise of f32 is enough for
 * some. On a GPU it depends on the algorithms that its GEMMs choose: up to 8e-4 of a loss and 2e-3
 * of a norm seen on an H200, and 3e-3 and 2e-2 with inputs in int8. */
static void check_near(const char *run) { check_run_within(run, 5e-3, 5e-2); }

static void check_exact(const char *run)
{
    if (strcmp(test_device(), "cpu") == 0)
        check_run(run);
    else
        check_near(run);
}

/* torchao's fake quantizers. */
static void test_quantisation_aware_runs_follow_torchao(void **state)
{
    (void)state;
    check_exact("qat-weights");
    check_near("qat");
    check_exact("qat-mxfp4");
    check_exact("qat-fp8");
    check_exact("qat-nvfp4-weights");
    check_steps("qat-nvfp4", true, 5e-3, 5e-2);
    uint64_t size;
    char *report = read_output("out", "report.html", &size);
    assert_non_null(strstr(report, ".gguf --type q8_0")); /* no 4-bit type has these values */
    free(report);
}

/* Not those of a model that does it itself, nor parameters of experts, nor blocks of a base. */
static void test_which_weights_are_rounded(void **state)
{
    (void)state;
    const af_arch arch = {.model_type = "bitnet"};
    af_module_spec m[] = {{.path = "a", .in = 5, .parameter = true}, {.path = "b", .in = 64}};
    af_model_spec spec = {.arch = &arch, .module = m, .modules = 2, .embed_module = -1};
    const af_run_config off = {.path = "run.yaml"},
                        on = {.path = "run.yaml", .qat_type = AF_QAT_INT4, .qat_group = 32};
    af_graph *g;
    af_error err = {0};
    CHECK_OK(af_graph_new(&g, &err), err);
    af_tensor *w[] = {af_graph_input(g, "w", AF_DTYPE_F32, 2, (int64_t[]){2, 64}),
                      af_graph_weight(g, "b", AF_DTYPE_NF4, 2, (int64_t[]){2, 64})};
    const af_model_leaves leaves = {.spec = &spec, .tensor = w};
    CHECK_OK(af_run_qat_fits(&on, &leaves, &err), err);
    m[1].weight = 1;
    assert_int_equal(af_run_qat_fits(&on, &leaves, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "not quantised: 'b' is stored in nf4"), "%s", err.msg);
    spec.round_inputs = true;
    CHECK_OK(af_run_qat_fits(&off, &leaves, &err), err);
    assert_int_equal(af_run_qat_fits(&on, &leaves, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "a bitnet model rounds its weights"), "%s", err.msg);
    af_graph_free(g);
}

/* Before fake_quant_after_n_steps a run is a plain one, and the resumed rest of it has its bytes.
 */
static void test_quantisation_begins_later_and_resumes(void **state)
{
    (void)state;
    static const char lines[] = "learning_rate: 1e-3\nmax_steps: 4\nsave_steps: 3\n"
                                "val_set_size: 4\neval_steps: 1\n";
    char text[400], *metrics[2];
    af_error err = {0};
    af_train_result result;
    uint64_t whole_size, size;
    char path[600], resume[700];
    CHECK_OK(train(lines, &err), err);
    metrics[0] = read_output("out", "metrics.jsonl", &size);
    snprintf(text, sizeof text,
             "%sqat: {weight_dtype: int4, activation_dtype: int8, quantize_embedding: true, "
             "fake_quant_after_n_steps: 2}\n",
             lines);
    CHECK_OK(train(text, &err), err);
    metrics[1] = read_output("out", "metrics.jsonl", &size);
    for (int k = 1; k <= 4; k++) {
        char key[40];
        snprintf(key, sizeof key, "{\"step\": %d, ", k);
        const char *a = strstr(metrics[0], key), *b = strstr(metrics[1], key);
        assert_true(a && b);
        const double x = strtod(strstr(a, "\"loss\": ") + 8, NULL),
                     y = strtod(strstr(b, "\"loss\": ") + 8, NULL);
        CHECK_MSG((x == y) == (k <= 2), "step %d: %g and %g", k, x, y);
    }
    char *whole = read_output("out", "model.safetensors", &whole_size);
    snprintf(path, sizeof path, "%s/run.yaml", dir);
    snprintf(resume, sizeof resume, "resume_from_checkpoint=%s/out/checkpoint-3", dir);
    CHECK_OK(af_train(path, (const char *const[]){resume}, 1, NULL, &result, &err), err);
    char *again = read_output("out", "model.safetensors", &size);
    assert_int_equal(size, whole_size);
    assert_memory_equal(again, whole, size);
    free(whole);
    free(again);
    free(metrics[0]);
    free(metrics[1]);
}

static void test_what_qat_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *must;
    } cases[] = {
        {"qat: {weight_dtype: ternary}\n", "qat.weight_dtype 'ternary' is not supported"},
        {"qat: {weight_dtype: nvfp4, group_size: 32}\n", "'32'; it must be 16 with nvfp4"},
        {"qat: {weight_dtype: nvfp4, activation_dtype: int8}\n", "it is nvfp4, or left out"},
        {"qat: {weight_dtype: mxfp4, quantize_embedding: true}\n", "not supported with mxfp4"},
        {"qat: {weight_dtype: fp8}\n", "null is not supported: with weights in float8_e4m3fn it"},
        {"qat: {weight_dtype: float8, activation_dtype: fp8, group_size: 32}\n", "no effect with"},
        {"qat: {group_size: 8}\n", "qat.weight_dtype int8 (its default) is not supported"},
        {"qat: {weight_dtype: int4, activation_dtype: fp8}\n", "activation_dtype 'fp8' is not"},
        {"qat: {weight_dtype: int4, group_size: 63}\n", "63 does not divide the 64 columns of 'mo"},
        {"qat: {weight_dtype: int4, group_size: 1}\n", "qat.group_size is '1'; it must be a whole"},
        {"qat: {weight_dtype: int4, fake_quant_after_n_steps: -1}\n", "number from 0"},
        {"qat: false\nunfrozen_parameters: [lm_head]\n", "leaves nothing to train"},
        {"adapter: lora\nqat: {weight_dtype: int4}\n", "qat is for full fine-tuning, not for"},
        {"qat: {weight_dtype: int4, bits: 3}\n", "qat has no key 'bits'"},
        {"qat: {weight_dtype: int4}\nrl: dpo\n", "qat together with 'rl' is not supported"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        CHECK_MSG(train(cases[i].lines, &err) != AF_OK, "accepted: %s", cases[i].lines);
        CHECK_MSG(strstr(err.msg, cases[i].must), "'%s' lacks '%s'", err.msg, cases[i].must);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantisation_aware_runs_follow_torchao),
        cmocka_unit_test(test_which_weights_are_rounded),
        cmocka_unit_test(test_quantisation_begins_later_and_resumes),
        cmocka_unit_test(test_what_qat_refuses),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
