/* test_extract_names.c - the difference of two models as an adapter, in families that call their
 * layers otherwise than llama or store matrices turned: merged into the base it gives the model. */
#include "convert_case.h"

#include "convert/input/folder_text.h"
#include "model/family_case.h"

#include <math.h>

enum { PATH = 4200, VALUES = 1 << 16 };

/* Entry (r, c) of a change of rank 1. */
static float change_at(int64_t r, int64_t c) { return 0.3f * sinf((float)r) * cosf((float)c); }

/* The config and the name of a tensor in a multimodal repository with this text model. */
static json_t *nested_config(json_t *text)
{
    return json_pack("{s:s, s:[s], s:O}", "model_type", "llava", "architectures",
                     "LlavaForConditionalGeneration", "text_config", text);
}

/* A copy of a folder in which the matrices that `names` lists (ends of names) are changed; nested:
 * as the text model of a larger one. */
static void write_changed(const char *from, const char *to, const char *const *names, int n,
                          bool nested)
{
    static float x[VALUES];
    char path[PATH], file[PATH];
    af_error err = {0};
    af_weights *w = NULL;
    af_safetensors_writer *out;
    int changed = 0;
    json_t *c = read_json(join(path, sizeof path, from, "config.json"));
    CHECK_OK(af_dir_make(to, &err), err);
    json_t *whole = nested ? nested_config(c) : json_incref(c);
    CHECK_OK(af_json_write(to, "config.json", whole, &err), err);
    json_decref(whole);
    json_decref(c);
    CHECK_OK(af_weights_open(&w, from, &err), err);
    join(file, sizeof file, to, "model.safetensors");
    CHECK_OK(af_safetensors_writer_new(&out, file, 0, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *s = af_weights_at(w, i);
        snprintf(path, sizeof path, "%s%s", nested ? "language_model." : "", s->name);
        CHECK_OK(af_safetensors_writer_add(out, path, s->dtype, s->dim, s->ndim, &err), err);
    }
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *s = af_weights_at(w, i);
        bool ours = false;
        assert_true(s->dtype == AF_DTYPE_F32 && s->bytes <= sizeof x);
        memcpy(x, s->data, s->bytes);
        for (int k = 0; k < n; k++)
            ours |= strlen(s->name) >= strlen(names[k]) &&
                    strcmp(s->name + strlen(s->name) - strlen(names[k]), names[k]) == 0;
        for (int64_t k = 0; ours && k < s->dim[0] * s->dim[1]; k++)
            x[k] += change_at(k / s->dim[1], k % s->dim[1]);
        changed += ours;
        CHECK_OK(af_safetensors_writer_data(out, x, s->bytes, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
    CHECK_MSG(changed >= n && (n > 0 || !changed), "%s: %d tensors were changed", from, changed);
}

static double distance(const char *x, const char *y)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    double most = 0;
    CHECK_OK(af_weights_open(&a, x, &err), err);
    CHECK_OK(af_weights_open(&b, y, &err), err);
    for (int i = 0; i < af_weights_count(a); i++) {
        const af_stored *s = af_weights_at(a, i), *t = af_weights_find(b, s->name);
        CHECK_MSG(t && t->bytes == s->bytes, "no %s", s->name);
        for (uint64_t k = 0; k < s->bytes / sizeof(float); k++)
            most = fmax(most, fabs((double)((const float *)s->data)[k] -
                                   (double)((const float *)t->data)[k]));
    }
    af_weights_close(a);
    af_weights_close(b);
    return most;
}

static void test_families(void **state)
{
    (void)state;
    static const struct {
        const char *family, *name[3];
        int names;
        bool turned;
        int rank;
    } row[] = {
        {"gpt2", {"attn.c_attn.weight", "mlp.c_proj.weight"}, 2, true, 2},
        {"mpt", {"attn.Wqkv.weight", "ffn.down_proj.weight"}, 2, false, 2},
        {"bloom", {"self_attention.query_key_value.weight"}, 1, false, 2},
        {"opt_350m", {"fc1.weight", "project_in.weight", "project_out.weight"}, 3, false, 2},
        {"dbrx", {"norm_attn_norm.attn.Wqkv.weight"}, 1, false, 2},
        {"modernbert_decoder", {"lm_head.dense.weight"}, 1, false, 2},
        {"qwen2_moe", {"mlp.gate.weight", "q_proj.weight"}, 2, false, 20}, /* more than experts */
    };
    for (size_t i = 0; i < AF_LEN(row); i++) {
        formula_model f;
        scratch_dir d = scratch_new();
        char path[PATH], other[256], adapter[256], merged[256];
        af_error err = {0};
        double kept = 0;
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), row[i].family);
        json_t *j = read_json(path);
        formula_model_write(&f, j);
        json_decref(j);
        join(other, sizeof other, d.path, "other");
        join(adapter, sizeof adapter, d.path, "adapter");
        join(merged, sizeof merged, d.path, "merged");
        write_changed(f.dir, other, row[i].name, row[i].names, false);
        const af_extract_opts o = {.rank = row[i].rank, .threads = 2};
        CHECK_OK(af_extract_lora(f.dir, other, adapter, &o, &kept, &err), err);
        j = read_json(join(path, sizeof path, adapter, "adapter_config.json"));
        assert_int_equal(json_is_true(json_object_get(j, "fan_in_fan_out")), row[i].turned);
        assert_int_equal(json_object_size(json_object_get(j, "rank_pattern")), 0);
        json_decref(j);
        const af_merge_adapter_opts m = {
            .adapter = {adapter}, .weight = {1}, .adapters = 1, .threads = 2};
        CHECK_OK(af_merge_adapters(f.dir, merged, &m, NULL, &err), err);
        const double was = distance(f.dir, other), is = distance(merged, other);
        print_message("%s: %.1e, before %.1e\n", row[i].family, is, was);
        assert_true(kept > 0.999 && was > 0.2 && is < 1e-5);
        formula_model_clear(&f);
        scratch_free(&d);
    }
}

/* PEFT calls modules as they are in memory, not as the folder does. */
static void test_names_of_multimodal_repositories(void **state)
{
    (void)state;
    static const char *const name[] = {"layers.0.self_attn.q_proj.weight"};
    formula_model f;
    scratch_dir d = scratch_new();
    char path[PATH], base[256], other[256], adapter[256];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/families/llama.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    json_decref(j);
    write_changed(f.dir, join(base, sizeof base, d.path, "base"), name, 0, true);
    write_changed(f.dir, join(other, sizeof other, d.path, "other"), name, 1, true);
    join(adapter, sizeof adapter, d.path, "adapter");
    const af_extract_opts o = {.rank = 2, .threads = 2};
    CHECK_OK(af_extract_lora(base, other, adapter, &o, NULL, &err), err);
    j = read_json(join(path, sizeof path, adapter, "adapter_config.json"));
    const json_t *list = json_object_get(j, "target_modules");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_array_get(list, 0)),
                        "model.language_model.layers.0.self_attn.q_proj");
    json_decref(j);
    formula_model_clear(&f);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_names_of_multimodal_repositories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
