/* test_export_mlx.c - what adapters for MLX name, so that mlx-lm finds it. */
#include "convert_case.h"

#include "format/weights/safetensors.h"

#include <jansson.h>

enum { PATH = 1024 };

/* An adapter on one linear of a model, all ones. */
static void put_adapter(const char *dir, const char *module)
{
    char path[PATH], name[PATH];
    float one[16];
    af_error err = {0};
    af_safetensors_writer *w;
    for (size_t i = 0; i < AF_LEN(one); i++)
        one[i] = 1;
    json_t *c = json_pack("{s:s, s:i, s:i, s:[s]}", "peft_type", "LORA", "r", 2, "lora_alpha", 2,
                          "target_modules", module);
    CHECK_OK(af_dir_make(dir, &err), err);
    assert_int_equal(json_dump_file(c, join(path, sizeof path, dir, "adapter_config.json"), 0), 0);
    json_decref(c);
    join(path, sizeof path, dir, "adapter_model.safetensors");
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int b = 0; b < 2; b++) {
        snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", module, b ? 'B' : 'A');
        const int64_t dim[] = {b ? 8 : 2, b ? 2 : 8};
        CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim, 2, &err), err);
    }
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int b = 0; b < 2; b++)
        CHECK_OK(af_safetensors_writer_data(w, one, sizeof one, &err), err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
}

/* mlx-lm adapts modules outside the layers by their whole names; it would pass over others. */
static void test_mlx_finds_what_is_adapted(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH], path[PATH];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    const af_export_opts o = {.type = NULL};
    (void)state;
    put_adapter(join(adapter, sizeof adapter, d.path, "head"), "lm_head");
    CHECK_OK(af_export(adapter, join(mlx, sizeof mlx, d.path, "mlx"), &o, &report, &verify, &err),
             err);
    af_convert_report_free(report);
    json_t *c = json_load_file(join(path, sizeof path, mlx, "adapter_config.json"), 0, NULL);
    const json_t *keys = json_object_get(json_object_get(c, "lora_parameters"), "keys");
    assert_int_equal(json_array_size(keys), 1);
    assert_string_equal(json_string_value(json_array_get(keys, 0)), "lm_head");
    json_decref(c);
    put_adapter(join(adapter, sizeof adapter, d.path, "gpt2"), "transformer.h.0.attn.c_attn");
    report = NULL;
    assert_int_equal(
        af_export(adapter, join(mlx, sizeof mlx, d.path, "no"), &o, &report, &verify, &err),
        AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "another name in mlx-lm"), "says '%s'", err.msg);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mlx_finds_what_is_adapted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
