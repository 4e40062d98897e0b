/* test_all_linear.c - lora_target_linear adapts what PEFT's all-linear does, under the same names,
 * in every family that has a golden (tools/golden/make_all_linear.py). */
#include "model/family_case.h"

#include "model/adapter_config.h"
#include "train/run/method.h"

#include <math.h>

enum { NAMES = 64, NAME = 200 };

/* "model.layers.1.mlp.up_proj" without its numbers. */
static void short_name(char *out, const char *name)
{
    size_t n = 0;
    while (*name) {
        const size_t digits = strspn(name, "0123456789");
        if (digits && name[digits] == '.' && n && out[n - 1] == '.')
            name += digits + 1;
        else
            out[n++] = *name++;
    }
    out[n] = '\0';
    char *end = strstr(out, ".lora_A.weight");
    assert_non_null(end);
    *end = '\0';
}

static int by_text(const void *a, const void *b) { return strcmp(a, b); }

/* The modules of a fresh adapter, sorted, each once. */
static int adapted(char out[NAMES][NAME], const af_adapter *a)
{
    int n = 0;
    for (int i = 0; i < a->spec->modules; i++) {
        char whole[AF_ADAPTER_NAME_BYTES], one[NAME];
        if (!a->module[i].rank)
            continue;
        if (af_module_is_experts(&a->spec->module[i]))
            af_adapter_experts_name(whole, a, i, 'A');
        else
            af_adapter_low_name(whole, &a->spec->module[i], 'A');
        short_name(one, whole + strlen(AF_ADAPTER_PREFIX));
        bool known = false;
        for (int k = 0; k < n; k++)
            known |= strcmp(out[k], one) == 0;
        assert_true(n < NAMES);
        if (!known)
            snprintf(out[n++], NAME, "%s", one);
    }
    qsort(out, (size_t)n, sizeof *out, by_text);
    return n;
}

static void check_family(const char *name, const char *targets, const char *want)
{
    char run_text[300];
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    af_run_config run = {0};
    af_adapter_config c;
    af_adapter *a = NULL;
    static af_method_lists lists;
    char path[4400], list[NAMES][NAME], text[NAMES * NAME] = "";
    snprintf(run_text, sizeof run_text,
             "base_model: x\ndatasets: [{path: y}]\nadapter: lora\nlora_r: 2\n%s\noutput_dir: z\n",
             targets);
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), name);
    json_t *j = read_json(path);
    char *keys = json_dumps(json_object_get(j, "config"), 0);
    CHECK_OK(af_hf_config_parse(&config, keys, strlen(keys), name, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    CHECK_OK(af_run_config_parse(&run, run_text, strlen(run_text), "run.yaml", NULL, 0, &err), err);
    CHECK_OK(af_method_adapter(&c, &lists, &run, &spec, &err), err);
    CHECK_OK(af_adapter_outline(&a, &c, &spec, &err), err);
    const int n = adapted(list, a);
    for (int i = 0, at = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", i ? " " : "", list[i]);
    CHECK_MSG(strcmp(text, want) == 0, "%s adapts\n%s\nnot\n%s", name, text, want);
    af_adapter_free(a);
    af_run_config_clear(&run);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
    free(keys);
    json_decref(j);
}

static void test_names_of_all_families(void **state)
{
    (void)state;
    char path[4400];
    char *text, *save = NULL;
    uint64_t size;
    af_error err = {0};
    int seen = 0;
    snprintf(path, sizeof path, "%s/families/all_linear.txt", golden_dir());
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *names = strchr(line, ' ');
        assert_non_null(names);
        *names = '\0';
        check_family(line, "lora_target_linear: true", names + 1);
        seen++;
    }
    print_message("%d families\n", seen);
    assert_true(seen > 80);
    free(text);
}

/* PEFT (0.20 and 0.21) reads an expression that matches old names of experts as the list of names
 * that it matches: keys of get_peft_model_state_dict. */
static void test_expressions_that_name_experts(void **state)
{
    static const char *const cases[][3] = {
        {"olmoe", ".*\\.(q_proj|o_proj|gate_proj|up_proj|down_proj)",
         "model.layers.mlp.experts model.layers.mlp.experts.base_layer "
         "model.layers.self_attn.o_proj model.layers.self_attn.q_proj"},
        {"olmoe", ".*\\.down_proj", "model.layers.mlp.experts"},
        {"olmoe", ".*(q_proj|gate)$", "model.layers.mlp.gate model.layers.self_attn.q_proj"},
        {"mixtral", ".*\\.(v_proj|w1|w3)",
         "model.layers.mlp.experts model.layers.self_attn.v_proj"},
        {"olmoe", ".*layers\\.0\\..*q_proj", "model.layers.self_attn.q_proj"}, /* names none */
    };
    char key[200];
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(key, sizeof key, "lora_target_modules: '%s'", cases[i][1]);
        check_family(cases[i][0], key, cases[i][2]);
    }
}

/* TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING of PEFT 0.21. */
static void test_what_peft_adapts_by_itself(void **state)
{
    static const char *const cases[][2] = {
        {"llama", "model.layers.self_attn.q_proj model.layers.self_attn.v_proj"},
        {"gpt2", "transformer.h.attn.c_attn"},
        {"gpt_bigcode", "transformer.h.attn.c_attn"},
        {"gpt_neox", "gpt_neox.layers.attention.query_key_value"},
        {"falcon", "transformer.h.self_attention.query_key_value"},
        {"bloom", "transformer.h.self_attention.query_key_value"},
        {"mpt", "transformer.blocks.attn.Wqkv"},
        {"codegen", "transformer.h.attn.qkv_proj"},
        {"gptj", "transformer.h.attn.q_proj transformer.h.attn.v_proj"},
        {"phi", "model.layers.mlp.fc1 model.layers.mlp.fc2 model.layers.self_attn.q_proj "
                "model.layers.self_attn.v_proj"},
        {"granitemoe", "model.layers.self_attn.q_proj model.layers.self_attn.v_proj"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        check_family(cases[i][0], "lora_target_modules: peft-default", cases[i][1]);
    check_family("llama", "lora_target_linear: true\nlora_target_modules: peft-default",
                 "model.layers.mlp.down_proj model.layers.mlp.gate_proj model.layers.mlp.up_proj "
                 "model.layers.self_attn.k_proj model.layers.self_attn.o_proj "
                 "model.layers.self_attn.q_proj model.layers.self_attn.v_proj");
}

/* PEFT takes inputs of llama4's experts for outputs: what it adds to the stored [in][out], B A of
 * its own, is ours all the same. */
static void test_experts_whose_sides_change_places(void **state)
{
    (void)state;
    enum { R = 2, VALUES = 4096 };
    static const char run_text[] =
        "base_model: x\ndatasets: [{path: y}]\nadapter: lora\nlora_r: 2\noutput_dir: z\n"
        "lora_target_parameters: [feed_forward.experts.gate_up_proj]\n";
    static af_method_lists lists;
    static float a[VALUES], b[VALUES], their_a[VALUES], their_b[VALUES];
    af_error err = {0};
    af_hf_config config;
    af_model_spec spec;
    af_run_config run = {0};
    af_adapter_config c;
    af_adapter *adapter = NULL;
    char path[4400];
    snprintf(path, sizeof path, "%s/families/llama4_text.json", golden_dir());
    json_t *j = read_json(path);
    char *keys = json_dumps(json_object_get(j, "config"), 0);
    CHECK_OK(af_hf_config_parse(&config, keys, strlen(keys), "llama4", &err), err);
    CHECK_OK(af_model_spec_init(&spec, &config, &err), err);
    CHECK_OK(af_run_config_parse(&run, run_text, strlen(run_text), "run.yaml", NULL, 0, &err), err);
    CHECK_OK(af_method_adapter(&c, &lists, &run, &spec, &err), err);
    CHECK_OK(af_adapter_outline(&adapter, &c, &spec, &err), err);
    int i = 0;
    while (!(adapter->module[i].rank && af_module_is_experts(&spec.module[i])))
        i++;
    const af_module_spec *m = &spec.module[i];
    const int64_t X = m->copies, I = m->in, O = m->out;
    assert_true(X * R * I <= VALUES && X * R * O <= VALUES && adapter->module[i].rank == R);
    for (int k = 0; k < VALUES; k++) {
        a[k] = (float)formula_uniform("a", (uint64_t)k);
        b[k] = (float)formula_uniform("b", (uint64_t)k);
    }
    adapter->module[i].a = a;
    adapter->module[i].b = b;
    assert_int_equal(af_adapter_experts_width(adapter, i, 'A'), O);
    assert_int_equal(af_adapter_experts_width(adapter, i, 'B'), I);
    af_adapter_experts_pack(their_a, adapter, i, 'A');
    af_adapter_experts_pack(their_b, adapter, i, 'B');
    for (int64_t e = 0; e < X; e++)
        for (int64_t in = 0; in < I; in++)
            for (int64_t o = 0; o < O; o++) {
                double want = 0, got = 0;
                for (int64_t r = 0; r < R; r++) {
                    want += (double)b[(e * O + o) * R + r] * a[(e * R + r) * I + in];
                    got += (double)their_b[(in * R + r) * X + e] * their_a[(e * R + r) * O + o];
                }
                assert_true(fabs(want - got) < 1e-6);
            }
    af_adapter_free(adapter);
    af_run_config_clear(&run);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
    free(keys);
    json_decref(j);
}

/* Dropout of the model itself, by keys with names of their own and with the class' defaults. */
static void test_dropout_of_older_decoders(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        double block, embed;
        bool refused;
    } cases[] = {
        {"\"openai-gpt\"", 0.1, 0.1, true},
        {"\"openai-gpt\",\"resid_pdrop\":0.2,\"embd_pdrop\":0,\"attn_pdrop\":0", 0.2, 0, false},
        {"\"biogpt\"", 0.1, 0.1, true},
        {"\"biogpt\",\"hidden_dropout_prob\":0,\"attention_probs_dropout_prob\":0", 0, 0, false},
        {"\"xglm\"", 0.1, 0.1, true},
        {"\"xglm\",\"dropout\":0.3,\"attention_dropout\":0", 0.3, 0.3, false},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[400];
        af_error err = {0};
        af_hf_config c = {0};
        af_model_spec s = {0};
        af_run_config run = {0};
        snprintf(text, sizeof text,
                 "{\"vocab_size\":20,\"hidden_size\":8,\"num_hidden_layers\":1,"
                 "\"num_attention_heads\":2,\"intermediate_size\":8,\"model_type\":%s}",
                 cases[i].keys);
        CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &c, &err), err);
        const af_branch_dropout d = af_method_residual_dropout(&c, &s);
        assert_true(d.attention == cases[i].block && d.mlp == cases[i].block && !d.sum);
        assert_true(af_method_embed_dropout(&c) == cases[i].embed);
        const af_status st = af_method_check_base(&run, &c, &err);
        CHECK_MSG((st == AF_EUNSUPPORTED) == cases[i].refused, "%s: %s", cases[i].keys, err.msg);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names_of_all_families),
                                       cmocka_unit_test(test_what_peft_adapts_by_itself),
                                       cmocka_unit_test(test_expressions_that_name_experts),
                                       cmocka_unit_test(test_dropout_of_older_decoders),
                                       cmocka_unit_test(test_experts_whose_sides_change_places)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
