/* test_kept_layouts.c - folders of axk1 as published: routers without a bias for the choice, norms
 * of mixtures in layers that have none, a layer that predicts further tokens. What is not used is
 * written back as it was, and so are the indexers of glm_moe_dsa and what longcat_flash has of
 * experts without weights. The code that lies in a folder is copied. */
#include "train/checkpoint/run_files.h"
#include "train/layout_case.h"

typedef struct extra {
    const char *name;
    int64_t dim[2];
    int ndim;
} extra;

enum { EXTRAS = 3, VALUES = 200 };

static const extra axk1[EXTRAS] = {{"model.layers.0.post_mlp_layernorm.weight", {24, 1}, 1},
                                   {"model.layers.2.eh_proj.weight", {3, 4}, 2},
                                   {"model.mtp_layers.0.input_proj.weight", {4, 3}, 2}}; /* mimo */
/* transformers writes these, published folders lack them */
static const extra longcat[EXTRAS] = {
    {"model.layers.1.mlp.experts.4.up_proj.weight", {8, 24}, 2},
    {"model.layers.1.mlp.experts.5.up_proj.weight", {8, 24}, 2},
    {"model.layers.1.mlp.experts.6.gate_proj.weight", {8, 24}, 2}};

/* The folder, its biases zero or left out, with tensors that are not used, or NULL. */
static void write_layout(const char *from, const char *to, bool biases, const extra *unused)
{
    char path[512];
    static float zeros[64], values[VALUES];
    af_error err = {0};
    af_safetensors *f;
    af_safetensors_writer *w;
    for (int i = 0; i < VALUES; i++)
        values[i] = (float)i;
    assert_int_equal(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "%s/modeling_own.py", to);
    CHECK_OK(af_file_write(path, "#\n", 2, &err), err);
    snprintf(path, sizeof path, "cp %s/config.json %s/", from, to);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_safetensors_count(f); i++) {
            const af_stored *t = af_safetensors_at(f, i);
            const bool bias = strstr(t->name, "e_score_correction_bias");
            if (bias && !biases)
                continue;
            if (pass == 0)
                CHECK_OK(af_safetensors_writer_add(w, t->name, t->dtype, t->dim, t->ndim, &err),
                         err);
            else
                CHECK_OK(af_safetensors_writer_data(w, bias ? zeros : t->data, t->bytes, &err),
                         err);
        }
        for (int i = 0; unused && i < EXTRAS; i++)
            if (pass == 0)
                CHECK_OK(af_safetensors_writer_add(w, unused[i].name, AF_DTYPE_F32, unused[i].dim,
                                                   unused[i].ndim, &err),
                         err);
            else
                CHECK_OK(af_safetensors_writer_data(
                             w, values, (uint64_t)(unused[i].dim[0] * unused[i].dim[1]) * 4, &err),
                         err);
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
}

static void check_unused(const char *model, const extra *unused)
{
    char path[512];
    snprintf(path, sizeof path, "%s/modeling_own.py", model);
    assert_true(af_file_exists(path));
    af_safetensors *f = open_model_weights(model);
    for (int i = 0; i < EXTRAS; i++) {
        const af_stored *t = af_safetensors_find(f, unused[i].name);
        assert_non_null(t);
        for (uint64_t k = 0; k < t->bytes / 4; k++)
            assert_true(((const float *)t->data)[k] == (float)k);
    }
    af_safetensors_close(f);
}

static void write_model(formula_model *f, const char *family, int64_t further)
{
    char path[4400];
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    json_t *j = read_json(path);
    json_object_set_new(json_object_get(j, "config"), "num_nextn_predict_layers",
                        json_integer(further));
    formula_model_write(f, j);
    json_decref(j);
}

static void test_published(void **state)
{
    (void)state;
    static float logits[4][TOKENS * 20];
    char model[2][300], run[2][300], adapter[300], to[300];
    af_error err = {0};
    formula_model f;
    write_model(&f, "axk1", 1);
    for (int i = 0; i < 2; i++) {
        snprintf(model[i], sizeof model[i], "%s/model-%d", dir, i);
        snprintf(run[i], sizeof run[i], "%s/full-%d", dir, i);
        write_layout(f.dir, model[i], i == 0, i ? axk1 : NULL);
        logits_of(model[i], logits[i]);
        train(model[i], run[i], "");
        same_names(model[i], run[i]);
        logits_of(run[i], logits[2 + i]);
    }
    check_unused(run[1], axk1);
    bool own = false; /* a later run with --force replaces it */
    CHECK_OK(af_run_files_is_own(run[1], "modeling_own.py", &own, &err), err);
    assert_true(own);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(logits[2], logits[3], sizeof logits[0]);
    assert_memory_not_equal(logits[0], logits[2], sizeof logits[0]);
    snprintf(adapter, sizeof adapter, "%s/lora", dir);
    snprintf(to, sizeof to, "%s/merged", dir);
    train(model[1], adapter, "adapter: lora\nlora_r: 2\nlora_target_linear: true\n");
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(model[1], to, &o, NULL, &err), err);
    same_names(model[1], to);
    check_unused(to, axk1);
    formula_model_clear(&f);
}

/* A layer that num_nextn_predict_layers does not count is an error. */
static void test_surplus(void **state)
{
    (void)state;
    char model[300];
    af_error err = {0};
    af_model *m;
    formula_model f;
    write_model(&f, "axk1", 0);
    snprintf(model, sizeof model, "%s/surplus", dir);
    write_layout(f.dir, model, true, axk1);
    assert_int_not_equal(af_model_open(&m, model, &(af_model_opts){.device = "cpu"}, &err), AF_OK);
    CHECK_MSG(strstr(err.msg, "1 not of this model (model.layers.2.eh_proj.weight)"), "%s",
              err.msg);
    formula_model_clear(&f);
}

static void check_indexers(const char *model, const char *other)
{
    af_safetensors *f[2] = {open_model_weights(model), open_model_weights(other)};
    int n = 0;
    for (int i = 0; i < af_safetensors_count(f[0]); i++) {
        const af_stored *t = af_safetensors_at(f[0], i), *o = af_safetensors_find(f[1], t->name);
        const bool indexer = strstr(t->name, ".self_attn.indexer.");
        assert_non_null(o);
        assert_true(!indexer || memcmp(t->data, o->data, t->bytes) == 0);
        n += indexer;
    }
    assert_int_equal(n, 5); /* of the layer that is not shared */
    af_safetensors_close(f[0]);
    af_safetensors_close(f[1]);
}

static void test_indexers(void **state)
{
    (void)state;
    char run[300], adapter[300], to[300];
    af_error err = {0};
    formula_model f;
    write_model(&f, "glm_moe_dsa", 0);
    snprintf(run, sizeof run, "%s/dsa-full", dir);
    snprintf(adapter, sizeof adapter, "%s/dsa-lora", dir);
    snprintf(to, sizeof to, "%s/dsa-merged", dir);
    train(f.dir, run, "sequence_len: 16\nweight_decay: 0.1\n");
    same_names(f.dir, run);
    check_indexers(f.dir, run);
    train(f.dir, adapter, "sequence_len: 16\nadapter: lora\nlora_r: 2\nlora_target_linear: true\n");
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(f.dir, to, &o, NULL, &err), err);
    same_names(f.dir, to);
    check_indexers(f.dir, to);
    snprintf(to, sizeof to, "%s/dsa-long", dir);
    assert_int_equal(try_train(f.dir, to, "sequence_len: 17\n", &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "17 tokens: longer than the 16 keys"), "%s", err.msg);
    formula_model_clear(&f);
}

/* A layer of the folder is two here: PEFT's numbers are those of the folder. */
static void test_two_in_one(void **state)
{
    (void)state;
    static float logits[2][TOKENS * 20];
    char model[300], run[300], adapter[300], path[400];
    af_error err = {0};
    formula_model f;
    write_model(&f, "longcat_flash", 0);
    snprintf(model, sizeof model, "%s/longcat", dir);
    snprintf(run, sizeof run, "%s/longcat-full", dir);
    snprintf(adapter, sizeof adapter, "%s/longcat-lora", dir);
    write_layout(f.dir, model, true, longcat);
    write_layout(f.dir, adapter, true, NULL); /* the biases are 0 in both */
    logits_of(model, logits[0]);
    logits_of(adapter, logits[1]);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    train(model, run, "");
    same_names(model, run);
    check_unused(run, longcat);
    snprintf(adapter, sizeof adapter, "%s/longcat-layer", dir);
    train(model, adapter,
          "adapter: lora\nlora_target_modules: [q_b_proj]\nlora_layers_to_transform: [1]\n");
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", adapter);
    af_safetensors *a = open_weights(path);
    assert_int_equal(af_safetensors_count(a), 4);
    for (int i = 0; i < 4; i++)
        assert_non_null(strstr(af_safetensors_at(a, i)->name, ".layers.1.self_attn."));
    af_safetensors_close(a);
    snprintf(adapter, sizeof adapter, "%s/longcat-no", dir);
    assert_int_equal(try_train(model, adapter,
                               "adapter: lora\nlora_target_modules: [q_b_proj]\n"
                               "lora_layers_to_transform: [2]\n",
                               &err),
                     AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "the model has layers 0 to 1"), "%s", err.msg);
    formula_model_clear(&f);
}

/* The activations of apertus have numbers without a dimension, and the result has them so. */
static void test_scalars(void **state)
{
    (void)state;
    char run[300];
    af_model *m;
    af_error err = {0};
    formula_model f;
    write_model(&f, "apertus", 0);
    snprintf(run, sizeof run, "%s/apertus-full", dir);
    train(f.dir, run, "");
    same_names(f.dir, run);
    CHECK_OK(af_model_open(&m, run, &(af_model_opts){.device = "cpu"}, &err), err);
    af_model_close(m);
    formula_model_clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published), cmocka_unit_test(test_surplus),
        cmocka_unit_test(test_indexers), cmocka_unit_test(test_two_in_one),
        cmocka_unit_test(test_scalars)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
