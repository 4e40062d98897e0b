/* test_export_adapter.c - adapters written alone: modules whose strength is zero, options that have
 * no effect there, modules that llama.cpp computes without adapters. */
#include "convert_case.h"

#include "convert/adapter/adapter_gguf.h"
#include "format/weights/gguf.h"
#include "model/adapter_config.h"

#include <jansson.h>

enum { PATH = 1024 };

static const char *gold(char *buf, size_t size, const char *name)
{
    return join(buf, size, golden_dir(), name);
}

/* A copy of the adapter peft/lora with this alpha, and another for o_proj. */
static void put_adapter(const char *dir, double alpha, double of_output)
{
    char from[PATH], path[PATH];
    af_error err = {0};
    CHECK_OK(af_dir_make(dir, &err), err);
    gold(from, sizeof from, "peft/patterns");
    CHECK_OK(af_file_copy_into(from, dir, "adapter_model.safetensors", &err), err);
    json_t *c = json_load_file(join(path, sizeof path, from, "adapter_config.json"), 0, NULL);
    assert_non_null(c);
    json_object_set_new(c, "lora_alpha", json_real(alpha));
    json_object_set_new(json_object_get(c, "alpha_pattern"), "o_proj", json_real(of_output));
    assert_int_equal(json_dump_file(c, join(path, sizeof path, dir, "adapter_config.json"), 0), 0);
    json_decref(c);
}

/* alpha / rank * B of a reader is `strength` / rank times PEFT's B. */
static void check_b(const af_gguf *g, const char *adapter, const char *module, const char *name,
                    double strength)
{
    char stored[200];
    af_error err = {0};
    af_weights *w = NULL;
    snprintf(stored, sizeof stored, "base_model.model.model.layers.0.self_attn.%s.lora_B.weight",
             module);
    CHECK_OK(af_weights_open(&w, adapter, &err), err);
    const af_stored *b = af_weights_find(w, stored), *e = af_gguf_find(g, name);
    const double alpha = af_gguf_float(g, "adapter.lora.alpha", 0);
    assert_true(b && e && b->bytes == e->bytes);
    CHECK_MSG(alpha != 0, "alpha is 0, which llama.cpp reads as none"); /* its scale is 1 then */
    for (uint64_t i = 0; i < b->bytes / 4; i++) {
        const double want = strength * (double)((const float *)b->data)[i];
        const double have = alpha * (double)((const float *)e->data)[i];
        CHECK_MSG(fabs(have - want) <= 1e-6 * fabs(want), "%s: %g, not %g", name, have, want);
    }
    af_weights_close(w);
}

/* A module that is switched off stays so in llama.cpp, and takes no other one with it. */
static void test_modules_without_strength(void **state)
{
    static const double alpha[][2] = {{0, 12}, {4, 0}, {0, 0}, {-4, 12}};
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], out[PATH];
    af_error err = {0};
    (void)state;
    gold(model, sizeof model, "merge/models/base");
    for (size_t i = 0; i < AF_LEN(alpha); i++) {
        af_convert_report *report = NULL;
        af_verify_result verify = {0};
        af_gguf *g = NULL;
        snprintf(adapter, sizeof adapter, "%s/adapter%zu", d.path, i);
        snprintf(out, sizeof out, "%s/%zu.gguf", d.path, i);
        put_adapter(adapter, alpha[i][0], alpha[i][1]);
        const af_export_opts o = {.adapter = adapter, .adapter_only = true};
        CHECK_OK(af_export(model, out, &o, &report, &verify, &err), err);
        CHECK_OK(af_gguf_open(&g, out, &err), err);
        check_b(g, adapter, "o_proj", "blk.0.attn_output.weight.lora_b", alpha[i][1]);
        af_gguf_close(g);
    }
    scratch_free(&d);
}

/* An option that would change nothing is refused, before anything is written. */
static void test_options_without_effect(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], file[PATH], folder[PATH], gguf[PATH];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    (void)state;
    gold(model, sizeof model, "merge/models/base");
    gold(adapter, sizeof adapter, "peft/lora");
    gold(gguf, sizeof gguf, "models/gguf/llama3.gguf");
    join(file, sizeof file, d.path, "lora.gguf");
    join(folder, sizeof folder, d.path, "folder");
    const struct {
        const char *model, *out, *word;
        af_export_opts o;
    } cases[] = {
        {model, file, "--type", {.adapter = adapter, .adapter_only = true, .type = "q8_0"}},
        {model, file, "--pure", {.adapter = adapter, .adapter_only = true, .pure = true}},
        {model, file, "--imatrix", {.adapter = adapter, .adapter_only = true, .imatrix = "x"}},
        {adapter, folder, "--type", {.type = "f16"}},
        {adapter, folder, "--adapter", {.adapter = adapter}},
        {gguf, folder, "--pure", {.pure = true}},
        {gguf, folder, "--imatrix", {.imatrix = "x"}},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        const af_status st =
            af_export(cases[i].model, cases[i].out, &cases[i].o, &report, &verify, &err);
        CHECK_MSG(st == AF_EUSAGE && strstr(err.msg, cases[i].word), "case %d: '%s'", (int)i,
                  st == AF_OK ? "written" : err.msg);
        check_nothing_left(d.path, 0);
    }
    scratch_free(&d);
}

/* ---- what llama.cpp computes past an adapter ---- */

static void open_family(af_model_spec *s, af_hf_config *c, const char *family)
{
    char path[PATH], name[PATH];
    af_error err = {0};
    snprintf(name, sizeof name, "families/%s.json", family);
    json_t *whole = json_load_file(gold(path, sizeof path, name), 0, NULL);
    json_t *config = json_object_get(whole, "config");
    json_object_del(config, "time_step_limit"); /* Infinity */
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    CHECK_OK(af_hf_config_parse(c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(s, c, &err), err);
    json_decref(whole);
    free(text);
}

/* Whether an adapter on the modules of this name alone is written. */
static bool is_written(const af_model_spec *s, const char *name, const char *out)
{
    af_error err = {0};
    af_adapter *a = NULL;
    int count = 0;
    CHECK_OK(af_adapter_create(&a, s, &err), err);
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        af_adapter_module *am = &a->module[i];
        if (!af_path_in_list(m->path, &name, 1))
            continue;
        am->rank = 2;
        am->scale = 1;
        CHECK_OK(af_adapter_alloc(a, &am->a, af_adapter_a_count(m, am->rank), &err), err);
        CHECK_OK(af_adapter_alloc(a, &am->b, af_adapter_b_count(m, am->rank), &err), err);
        count++;
    }
    CHECK_MSG(count > 0, "no module '%s'", name);
    const af_status st = af_adapter_gguf_write(a, "x", out, &err);
    CHECK_MSG(st == AF_OK || (st == AF_EUNSUPPORTED && strstr(err.msg, "would ignore")), "%s: '%s'",
              name, err.msg);
    af_adapter_free(a);
    return st == AF_OK;
}

/* llama.cpp multiplies the weights of latent attention, of some heads and of the projections around
 * latent experts without adapters: a file with those would change nothing, and say nothing. */
static void test_modules_that_llama_cpp_ignores(void **state)
{
    static const struct {
        const char *family, *ignored[6], *read[3];
    } cases[] = {
        {"deepseek_v3",
         {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "lm_head"},
         {"o_proj", "down_proj", "embed_tokens"}},
        {"deepseek_v2", {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "lm_head"}, {"o_proj"}},
        {"mistral4", {"q_a_proj", "q_b_proj", "kv_b_proj", "lm_head"}, {"o_proj"}},
        {"minicpm3",
         {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"},
         {"o_proj", "up_proj", "lm_head"}},
        {"kimi_linear", {"q_proj", "kv_a_proj_with_mqa", "lm_head"}, {"down_proj"}},
        {"bailing_hybrid", {"kv_a_proj_with_mqa", "o_proj", "lm_head"}, {"down_proj"}},
        {"nemotron_h_moe_gguf", {"fc1_latent_proj", "fc2_latent_proj"}, {"o_proj", "lm_head"}},
        {"llama", {NULL}, {"q_proj", "lm_head", "embed_tokens"}},
    };
    scratch_dir d = scratch_new();
    char out[PATH];
    (void)state;
    join(out, sizeof out, d.path, "lora.gguf");
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hf_config c = {0};
        af_model_spec s;
        open_family(&s, &c, cases[i].family);
        for (size_t k = 0; k < AF_LEN(cases[i].ignored) && cases[i].ignored[k]; k++)
            CHECK_MSG(!is_written(&s, cases[i].ignored[k], out), "%s: %s is written",
                      cases[i].family, cases[i].ignored[k]);
        for (size_t k = 0; k < AF_LEN(cases[i].read) && cases[i].read[k]; k++)
            CHECK_MSG(is_written(&s, cases[i].read[k], out), "%s: %s is refused", cases[i].family,
                      cases[i].read[k]);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules_without_strength),
        cmocka_unit_test(test_options_without_effect),
        cmocka_unit_test(test_modules_that_llama_cpp_ignores),
    };
    return test_result(cmocka_run_group_tests(tests, NULL, NULL));
}
