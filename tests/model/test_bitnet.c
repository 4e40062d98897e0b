/* test_bitnet.c - BitNet's quantised folders: weights that were rounded before, weights that are
 * rounded when they are read, and what is refused. (Adapters: test_family_adapters.c.) */
#include "family_case.h"

#include "afinar/convert.h"

#include <math.h>

static void write_text(const char *dir, const char *name, const char *text)
{
    char path[256];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
}

static json_t *open_golden(formula_model *f)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/families/bitnet_online.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(f, j);
    return j;
}

/* Logits of the first sequence; free() them. */
static float *logits_of(const formula_model *f, const char *dir, bool trained)
{
    model_case c;
    case_open(&c, dir,
              &(case_opts){.rows = f->len[0], .seqs = 1, .loader = {.train_base = trained}});
    case_run(&c, f->ids, NULL, f->len, 1);
    float *x = case_read(&c, c.logits);
    case_close(&c);
    return x;
}

static void test_weights_rounded_in_the_graph_or_when_read(void **state)
{
    (void)state;
    formula_model f;
    json_t *j = open_golden(&f);
    float *read = logits_of(&f, f.dir, false), *graph = logits_of(&f, f.dir, true);
    for (int64_t i = 0; i < f.len[0] * 20; i++)
        CHECK_MSG(fabsf(read[i] - graph[i]) < 1e-5f, "logit %d: %g and %g", (int)i, (double)read[i],
                  (double)graph[i]);
    free(read);
    free(graph);
    formula_model_clear(&f);
    json_decref(j);
}

/* ---- packed folders ---- */

static const char config[] =
    "{\"model_type\": \"bitnet\", \"hidden_size\": 24, \"intermediate_size\": 20, "
    "\"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 20, \"tie_word_embeddings\": true, \"quantization_config\": "
    "{\"quant_method\": \"bitnet\", \"linear_class\": \"autobitlinear\", "
    "\"quantization_mode\": \"%s\"}}";

/* 0, 1, 2 and 1 times 1/16, with signs: their mean is 1/16, and rounded they are 0, 1, 1 and 1. */
static float value(int64_t i) { return (float)((i % 4 == 2) + i % 2 + (i % 4 == 2)) / 16; }
static int sign(int64_t i) { return i * 7 % 5 < 2 ? -1 : 1; }

static void packed_tensor(af_safetensors_writer *w, const af_tensor_spec *t, bool packed)
{
    af_error err = {0};
    const int64_t n = t->dim[0] * t->dim[1], quarter = n / 4;
    float *x = calloc((size_t)n, sizeof *x);
    uint8_t *codes = calloc((size_t)quarter, 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = value(i) * (float)sign(i);
        codes[i % quarter] |= (uint8_t)((value(i) > 0 ? sign(i) + 1 : 1) << 2 * (int)(i / quarter));
    }
    const float scale = 1.0f / 16;
    CHECK_OK(packed ? af_safetensors_writer_data(w, codes, (uint64_t)quarter, &err)
                    : af_safetensors_writer_data(w, x, (uint64_t)n * sizeof *x, &err),
             err);
    if (packed)
        CHECK_OK(af_safetensors_writer_data(w, &scale, sizeof scale, &err), err);
    free(x);
    free(codes);
}

static void declare_tensor(af_safetensors_writer *w, const af_tensor_spec *t, bool packed)
{
    af_error err = {0};
    char name[256];
    const int64_t dim[2] = {packed ? t->dim[0] / 4 : t->dim[0], t->dim[1]}, one = 1;
    const af_dtype type = packed ? AF_DTYPE_U8 : AF_DTYPE_F32;
    CHECK_OK(af_safetensors_writer_add(w, t->name, type, dim, t->ndim, &err), err);
    snprintf(name, sizeof name, "%s_scale", t->name);
    if (packed)
        CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, &one, 1, &err), err);
}

static void write_folder(const char *dir, bool packed)
{
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    af_safetensors_writer *w;
    char path[256], text[sizeof config + 16];
    json_t *rules = json_pack("[[sif]]", "", 1, 0.4);
    snprintf(text, sizeof text, config, packed ? "offline" : "online");
    write_text(dir, "config.json", text);
    CHECK_OK(af_hf_config_read(&c, dir, &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int i = 0; i < s.tensors; i++)
        declare_tensor(w, &s.tensor[i], packed && s.tensor[i].ndim == 2 && s.tensor[i].layer >= 0);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < s.tensors; i++)
        if (s.tensor[i].ndim == 2 && s.tensor[i].layer >= 0)
            packed_tensor(w, &s.tensor[i], packed);
        else
            formula_tensor(w, rules, s.tensor[i].name,
                           s.tensor[i].dim[0] * (s.tensor[i].ndim == 2 ? s.tensor[i].dim[1] : 1));
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    json_decref(rules);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

static void test_packed_weights_compute_as_rounded_ones(void **state)
{
    (void)state;
    formula_model f = {.dir = "/tmp/afinar-family-XXXXXX", .len = {5}, .ids = {3, 7, 1, 19, 4}};
    float *x[2];
    af_error err = {0};
    assert_non_null(mkdtemp(f.dir));
    for (int packed = 0; packed < 2; packed++) {
        write_folder(f.dir, packed);
        x[packed] = logits_of(&f, f.dir, false);
    }
    assert_true(fabsf(x[0][0]) > 0);
    assert_memory_equal(x[0], x[1], 5 * 20 * sizeof **x);
    const af_merge_adapter_opts o = {.adapter = {f.dir}, .weight = {1}, .adapters = 1};
    assert_true(af_merge_adapters(f.dir, "/tmp/afinar-family-never", &o, NULL, &err) != AF_OK);
    CHECK_MSG(strstr(err.msg, "linears of BitNet round their inputs"), "%s", err.msg);
    free(x[0]);
    free(x[1]);
    formula_model_clear(&f);
}

/* ---- what is refused ---- */

static void test_other_kinds_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *model, *key, *why;
    } cases[] = {
        {"bitnet", "\"quantization_mode\": \"offline\"", "linear_class is not autobitlinear"},
        {"bitnet", "\"linear_class\": 3", "linear_class is not"},
        {"bitnet", "\"linear_class\": \"autobitlinear\", \"quantization_mode\": \"x\"",
         "quantization_mode is not online or offline"},
        {"bitnet", "\"linear_class\": \"autobitlinear\", \"use_rms_norm\": true",
         "use_rms_norm is not false"},
        {"bitnet", "\"linear_class\": \"autobitlinear\", \"modules_to_not_convert\": [1e9]",
         "modules_to_not_convert is not [\"lm_head\"]"},
        {"qwen2", "\"linear_class\": \"autobitlinear\"", "for llama and bitnet, not for 'qwen2'"},
        {"llama\", \"mlp_bias\": true, \"a\": \"", "\"linear_class\": \"autobitlinear\"",
         "packed weights of BitNet with biases"},
        {"bitnet\", \"head_dim\": 7, \"a\": \"", "\"linear_class\": \"autobitlinear\"",
         "head_dim is not hidden_size / num_attention_heads"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[1024];
        af_hf_config c;
        af_model_spec s;
        af_error err = {0};
        const int n =
            snprintf(text, sizeof text,
                     "{\"model_type\": \"%s\", \"hidden_size\": 24, \"vocab_size\": 20, "
                     "\"intermediate_size\": 20, \"num_hidden_layers\": 1, \"rms_norm_eps\": 1e-5, "
                     "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                     "\"quantization_config\": {\"quant_method\": \"bitnet\", %s}}",
                     cases[i].model, cases[i].key);
        af_status st = af_hf_config_parse(&c, text, (uint64_t)n, "config.json", &err);
        if (st == AF_OK) {
            st = af_model_spec_init(&s, &c, &err);
            af_hf_config_clear(&c);
        }
        CHECK_MSG(st != AF_OK && strstr(err.msg, cases[i].why), "%d: %s", (int)i, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_rounded_in_the_graph_or_when_read),
        cmocka_unit_test(test_packed_weights_compute_as_rounded_ones),
        cmocka_unit_test(test_other_kinds_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
