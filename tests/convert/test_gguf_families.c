/* test_gguf_families.c - families with routers of their own as GGUF: written, read back, compared;
 * and those GGUF files cannot describe. */
#include "../model/family_case.h"

#include "afinar/convert.h"
#include "afinar/log.h"

static void copy_file(const char *name, const char *to)
{
    char from[4200], path[256], *text;
    uint64_t size;
    af_error err = {0};
    snprintf(from, sizeof from, "%s/gguf_models/llama/hf/%s", golden_dir(), name);
    snprintf(path, sizeof path, "%s/%s", to, name);
    CHECK_OK(af_file_read(&text, &size, from, 1 << 24, &err), err);
    CHECK_OK(af_file_write(path, text, size, &err), err);
    free(text);
}

static json_t *family(const char *name)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), name);
    return read_json(path);
}

/* The model of a family's golden, with a vocabulary that has a tokenizer. */
static void write_model(formula_model *f, json_t *j)
{
    char llama[4200];
    snprintf(llama, sizeof llama, "%s/gguf_models/llama/hf/config.json", golden_dir());
    json_t *with = read_json(llama), *config = json_object_get(j, "config");
    json_object_set(config, "vocab_size", json_object_get(with, "vocab_size"));
    formula_model_write(f, j);
    copy_file("tokenizer.json", f->dir);
    copy_file("tokenizer_config.json", f->dir);
    json_decref(with);
}

static af_status export_model(const formula_model *f, af_verify_result *v, af_error *err)
{
    char out[128];
    af_convert_report *r = NULL;
    snprintf(out, sizeof out, "%s/m.gguf", f->dir);
    const af_status st = af_export(
        f->dir, out, &(af_export_opts){.type = "f32", .threads = 2, .force = true}, &r, v, err);
    af_convert_report_free(r);
    return st;
}

static void remove_model(const formula_model *f)
{
    af_error err = {0};
    CHECK_OK(af_path_remove(f->dir, &err), err);
}

/* Keys of the config that are others than the golden's. */
static void change(json_t *config, const char *keys)
{
    json_t *with = json_loads(keys, 0, NULL);
    CHECK_MSG(with, "%s", keys);
    json_object_update(config, with);
    json_decref(with);
}

#define YARN                                                                                       \
    "\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":8,\"mscale\":0.6,"                     \
    "\"mscale_all_dim\":0.6,\"original_max_position_embeddings\":16,\"rope_theta\":10000}"

static void test_they_come_back_from_gguf(void **state)
{
    (void)state;
    static const struct {
        const char *name, *keys;
    } cases[] = {
        {"gpt_oss", "{\"swiglu_limit\":7}"},
        {"qwen3_5", "{\"linear_value_head_dim\":6}"},
        {"lfm2_moe", "{\"routed_scaling_factor\":1}"},
        {"glm4_moe", "{\"n_group\":1,\"topk_group\":1}"},
        {"deepseek_v2", "{\"topk_method\":\"greedy\"}"},
        {"deepseek_v2", "{\"topk_method\":\"greedy\",\"q_lora_rank\":10,\"v_head_dim\":8}"},
        {"deepseek_v3", "{" YARN "}"},
        {"apertus", "{}"},
        {"glm4_moe_lite", "{\"attention_bias\":false,\"mlp_layer_types\":[\"dense\",\"sparse\"]}"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        json_t *j = family(cases[i].name);
        formula_model f;
        af_verify_result v = {0};
        af_error err = {0};
        change(json_object_get(j, "config"), cases[i].keys);
        write_model(&f, j);
        CHECK_OK(export_model(&f, &v, &err), err);
        CHECK_MSG(v.ran && v.same && v.logit_error < 1e-6, "%s: %s", cases[i].name, v.message);
        remove_model(&f);
        json_decref(j);
    }
}

static void test_what_gguf_lacks_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message, *keys;
    } cases[] = {
        {"gpt_oss", "swiglu_limit is 0.8, and the file would be read as 7", NULL},
        {"qwen3_5", "linear_value_head_dim other than linear_key_head_dim", NULL},
        {"qwen3_next", "linear_value_head_dim other than linear_key_head_dim", NULL},
        {"nemotron_h", "layers with an MLP and layers with experts", NULL},
        {"glm4_moe", "n_group is 3, and the file would be read as 1", NULL},
        {"deepseek_v2", "the number of experts that score their group (topk_method) is 1", NULL},
        {"deepseek_v3", "the scale of rotary embedding (attention_factor, mscale) is 1.", NULL},
        {"glm4_moe_lite", "models of type 'glm4_moe_lite' cannot be written as GGUF", NULL},
        {"cohere2_gguf", "no layers without a sliding window alone (layer_types)",
         "{\"layer_types\":[\"full_attention\",\"full_attention\",\"full_attention\","
         "\"full_attention\"]}"},
        {"qwen3_5", "no layers of one kind alone (layer_types)",
         "{\"linear_value_head_dim\":6,\"layer_types\":[\"full_attention\",\"full_attention\","
         "\"full_attention\"]}"},
        {"qwen3_5", "no layers of one kind alone (layer_types)",
         "{\"linear_value_head_dim\":6,\"layer_types\":[\"linear_attention\","
         "\"linear_attention\",\"linear_attention\"]}"},
        {"lfm2_moe", "no layers of one kind alone (layer_types)",
         "{\"routed_scaling_factor\":1,\"layer_types\":[\"full_attention\","
         "\"full_attention\"]}"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        json_t *j = family(cases[i].name);
        formula_model f;
        af_verify_result v = {0};
        af_error err = {0};
        if (cases[i].keys)
            change(json_object_get(j, "config"), cases[i].keys);
        write_model(&f, j);
        const af_status st = export_model(&f, &v, &err);
        CHECK_MSG(st == AF_EUNSUPPORTED && strstr(err.msg, cases[i].message), "%s: %s",
                  cases[i].name, st == AF_OK ? "accepted" : err.msg);
        remove_model(&f);
        json_decref(j);
    }
}

static void keep_warning(void *user, af_log_level level, const char *line)
{
    if (level == AF_LOG_WARN)
        snprintf(user, 256, "%s", line);
}

/* transformers has 1e-6 there whatever the config says, llama.cpp what the config says. */
static void test_delta_nets_with_another_epsilon(void **state)
{
    (void)state;
    for (int other = 0; other < 2; other++) {
        json_t *j = family("qwen3_5");
        formula_model f;
        af_verify_result v = {0};
        af_error err = {0};
        char warning[256] = "";
        change(json_object_get(j, "config"),
               other ? "{\"linear_value_head_dim\":6,\"rms_norm_eps\":0.001}"
                     : "{\"linear_value_head_dim\":6,\"rms_norm_eps\":0.000001}");
        write_model(&f, j);
        af_log_set(keep_warning, warning);
        CHECK_OK(export_model(&f, &v, &err), err);
        af_log_set(NULL, NULL);
        CHECK_MSG(!!strstr(warning, "(0.001) for queries and keys of delta nets") == other,
                  "warns '%s'", warning);
        remove_model(&f);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_come_back_from_gguf),
        cmocka_unit_test(test_what_gguf_lacks_is_refused),
        cmocka_unit_test(test_delta_nets_with_another_epsilon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
