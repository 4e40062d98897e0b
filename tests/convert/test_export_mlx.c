/* test_export_mlx.c - what adapters for MLX name, so that mlx-lm finds it. */
#include "convert_case.h"

#include "format/weights/safetensors.h"

#include <jansson.h>

enum { PATH = 1024 };

/* An adapter on linears of a model with these ranks, all ones; of a head with the base's copy. */
static void put_modules(const char *dir, const char *const *module, const int64_t *rank, int n)
{
    char path[PATH], name[PATH];
    float one[64];
    af_error err = {0};
    af_safetensors_writer *w;
    for (size_t i = 0; i < AF_LEN(one); i++)
        one[i] = 1;
    json_t *c = json_pack("{s:s, s:i, s:i, s:[]}", "peft_type", "LORA", "r", 2, "lora_alpha", 2,
                          "target_modules");
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_safetensors_writer_new(
                 &w, join(path, sizeof path, dir, "adapter_model.safetensors"), 0, &err),
             err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n * 3; i++) {
            const int64_t dim[][2] = {{rank[i / 3], 8}, {8, rank[i / 3]}, {8, 8}};
            static const char *const part[] = {"lora_A", "lora_B", "base_layer"};
            if (i % 3 == 2 && strcmp(module[i / 3], "lm_head") != 0)
                continue;
            snprintf(name, sizeof name, "base_model.model.%s.%s.weight", module[i / 3],
                     part[i % 3]);
            if (pass == 0)
                CHECK_OK(af_safetensors_writer_add(w, name, AF_DTYPE_F32, dim[i % 3], 2, &err),
                         err);
            else
                CHECK_OK(af_safetensors_writer_data(
                             w, one, (uint64_t)(dim[i % 3][0] * dim[i % 3][1]) * 4, &err),
                         err);
            if (pass == 0 && i % 3 == 0)
                json_array_append_new(json_object_get(c, "target_modules"),
                                      json_string(module[i / 3]));
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    assert_int_equal(json_dump_file(c, join(path, sizeof path, dir, "adapter_config.json"), 0), 0);
    json_decref(c);
}

static void put_adapter(const char *dir, const char *module)
{
    put_modules(dir, &module, (const int64_t[]){2}, 1);
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

/* The config of an adapter that was exported for MLX, and its tensors. */
static json_t *to_mlx(const char *adapter, const char *out, af_weights **w)
{
    char path[PATH];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    const af_export_opts o = {.type = NULL};
    CHECK_OK(af_export(adapter, out, &o, &report, &verify, &err), err);
    af_convert_report_free(report);
    CHECK_OK(af_weights_open(w, join(path, sizeof path, out, "adapters.safetensors"), &err), err);
    json_t *c = json_load_file(join(path, sizeof path, out, "adapter_config.json"), 0, NULL);
    assert_non_null(c);
    return c;
}

static void set_number(const char *dir, const char *key, const char *part, double value)
{
    char path[PATH];
    join(path, sizeof path, dir, "adapter_config.json");
    json_t *c = json_load_file(path, 0, NULL), *v = json_real(value);
    json_object_set_new(c, key, part ? json_pack("{s:o}", part, v) : v);
    assert_int_equal(json_dump_file(c, path, 0), 0);
    json_decref(c);
}

/* Every value of A B is PEFT's, `scale` times A B of ones, however the ranks are filled up. */
static void check_product(const af_weights *w, const json_t *config, const char *module,
                          double want)
{
    char name[PATH];
    const json_t *p = json_object_get(config, "lora_parameters");
    const double scale = json_number_value(json_object_get(p, "scale"));
    const int64_t rank = json_integer_value(json_object_get(p, "rank"));
    snprintf(name, sizeof name, "%s.lora_a", module);
    const af_stored *a = af_weights_find(w, name);
    snprintf(name, sizeof name, "%s.lora_b", module);
    const af_stored *b = af_weights_find(w, name);
    assert_true(a && b && a->dim[1] == rank && b->dim[0] == rank);
    const float *x = a->data, *y = b->data;
    for (int64_t i = 0; i < a->dim[0]; i++)
        for (int64_t o = 0; o < b->dim[1]; o++) {
            double sum = 0;
            for (int64_t r = 0; r < rank; r++)
                sum += (double)x[i * rank + r] * (double)y[r * b->dim[1] + o];
            CHECK_MSG(fabs(scale * sum - want) < 1e-6, "%s: %g, not %g", module, scale * sum, want);
        }
}

/* mlx-lm counts num_layers from the last one: an adapter on layer 0 would be refused. */
static void test_mlx_adapts_the_layers_that_peft_does(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH];
    af_weights *w = NULL;
    (void)state;
    put_adapter(join(adapter, sizeof adapter, d.path, "first"), "model.layers.0.mlp.up_proj");
    json_t *c = to_mlx(adapter, join(mlx, sizeof mlx, d.path, "mlx"), &w);
    assert_int_equal(json_integer_value(json_object_get(c, "num_layers")), -1); /* all */
    check_product(w, c, "model.layers.0.mlp.up_proj", 2);
    json_decref(c);
    af_weights_close(w);
    scratch_free(&d);
}

/* mlx-lm has one rank and refuses matrices of another one; a strength may be 0. */
static void test_mlx_has_ranks_and_strengths_of_each_module(void **state)
{
    static const double alpha[][2] = {{2, 2}, {0, 0}, {0, 6}, {4, 0}};
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH], back[PATH];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    const af_export_opts o = {.type = NULL};
    (void)state;
    for (size_t i = 0; i < AF_LEN(alpha); i++) {
        af_weights *w = NULL;
        snprintf(adapter, sizeof adapter, "%s/peft%zu", d.path, i);
        snprintf(mlx, sizeof mlx, "%s/mlx%zu", d.path, i);
        snprintf(back, sizeof back, "%s/back%zu", d.path, i);
        put_modules(adapter, (const char *const[]){"a.layers.0.q", "a.layers.0.v"},
                    (const int64_t[]){2, 4}, 2);
        set_number(adapter, "lora_alpha", NULL, alpha[i][0]);
        set_number(adapter, "alpha_pattern", "v", alpha[i][1]);
        set_number(adapter, "rank_pattern", "v", 4);
        json_t *c = to_mlx(adapter, mlx, &w);
        check_product(w, c, "a.layers.0.q", alpha[i][0]); /* alpha / r of r ones */
        check_product(w, c, "a.layers.0.v", alpha[i][1]);
        const json_t *rank = json_object_get(json_object_get(c, "lora_parameters"), "rank");
        assert_int_equal(json_integer_value(rank), 4);
        json_decref(c);
        af_weights_close(w);
        CHECK_OK(af_export(mlx, back, &o, &report, &verify, &err), err); /* one rank there, too */
        CHECK_OK(af_weights_open(&w, back, &err), err);
        for (int k = 0; k < af_weights_count(w); k++) {
            const af_stored *t = af_weights_at(w, k);
            assert_int_equal(t->dim[strstr(t->name, "lora_B") ? 1 : 0], 4);
        }
        af_weights_close(w);
    }
    scratch_free(&d);
}

/* PEFT stores the base's head next to its adapter; mlx-lm would not know that tensor. */
static void test_mlx_gets_no_copy_of_the_base(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH];
    af_weights *w = NULL;
    (void)state;
    join(adapter, sizeof adapter, d.path, "head");
    put_modules(adapter, (const char *const[]){"lm_head"}, (const int64_t[]){2}, 1);
    json_t *c = to_mlx(adapter, join(mlx, sizeof mlx, d.path, "mlx"), &w);
    assert_int_equal(af_weights_count(w), 2);
    json_decref(c);
    af_weights_close(w);
    scratch_free(&d);
}

/* PEFT gives matrices of an embedding other names, and would pass over those of a linear. */
static void test_embeddings_of_mlx_need_the_model(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH], back[PATH];
    af_error err = {0};
    af_weights *w = NULL;
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    const af_export_opts o = {.type = NULL};
    (void)state;
    put_adapter(join(adapter, sizeof adapter, d.path, "x"), "model.embed_tokens");
    json_decref(to_mlx(adapter, join(mlx, sizeof mlx, d.path, "mlx"), &w));
    af_weights_close(w);
    assert_int_equal(
        af_export(mlx, join(back, sizeof back, d.path, "back"), &o, &report, &verify, &err),
        AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "needs the model"), "says '%s'", err.msg);
    scratch_free(&d);
}

/* mlx-lm stacks experts; one of them alone has no place there. */
static void test_mlx_refuses_single_experts(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH];
    af_error err = {0};
    af_convert_report *report = NULL;
    af_verify_result verify = {0};
    const af_export_opts o = {.type = NULL};
    (void)state;
    put_adapter(join(adapter, sizeof adapter, d.path, "x"), "model.layers.0.mlp.experts.3.up_proj");
    assert_int_equal(
        af_export(adapter, join(mlx, sizeof mlx, d.path, "mlx"), &o, &report, &verify, &err),
        AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "experts of this model have another name"), "says '%s'", err.msg);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mlx_finds_what_is_adapted),
        cmocka_unit_test(test_mlx_adapts_the_layers_that_peft_does),
        cmocka_unit_test(test_mlx_has_ranks_and_strengths_of_each_module),
        cmocka_unit_test(test_mlx_gets_no_copy_of_the_base),
        cmocka_unit_test(test_embeddings_of_mlx_need_the_model),
        cmocka_unit_test(test_mlx_refuses_single_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
