/* test_export_adapter.c - adapters written alone: modules whose strength is zero, options that have
 * no effect there. */
#include "convert_case.h"

#include "format/weights/gguf.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules_without_strength),
        cmocka_unit_test(test_options_without_effect),
    };
    return test_result(cmocka_run_group_tests(tests, NULL, NULL));
}
