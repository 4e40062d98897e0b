/* test_multimodal_folders.c - a text model inside a folder with parts for images and sound: it is
 * trained to the same bits as alone, and the other tensors are written back as they were. */
#include "train/layout_case.h"

enum { PARTS = 4, VALUES = 6 };

static const struct {
    const char *golden, *type, *prefix, *outer, *part[PARTS];
} cases[] = {
    {"gemma4_unified",
     "gemma4_unified",
     "model.language_model.",
     "",
     {"model.vision_embedder.pos_embedding", "model.embed_vision.embedding_projection.weight",
      "model.embed_audio.embedding_projection.weight"}},
    {"aria",
     "aria",
     "language_model.model.",
     "language_model.",
     {"vision_tower.post_layernorm.weight", "multi_modal_projector.query"}},
};

static void write_config(const char *from, const char *to, const char *type)
{
    char path[512];
    af_error err = {0};
    snprintf(path, sizeof path, "%s/config.json", from);
    json_t *o = json_pack("{s:s, s:o, s:{}}", "model_type", type, "text_config", read_json(path),
                          "vision_config");
    json_object_set(o, "tie_word_embeddings",
                    json_object_get(json_object_get(o, "text_config"), "tie_word_embeddings"));
    char *text = json_dumps(o, 0);
    snprintf(path, sizeof path, "%s/config.json", to);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(text);
    json_decref(o);
}

/* The model of a folder inside a larger one. */
static void wrap(const char *from, const char *to, size_t k)
{
    static const float values[VALUES] = {0, 1, 2, 3, 4, 5};
    const int64_t dim[2] = {2, 3};
    char path[512], name[512];
    af_error err = {0};
    af_safetensors *f;
    af_safetensors_writer *w;
    assert_int_equal(mkdir(to, 0777), 0);
    write_config(from, to, cases[k].type);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        const bool inner = strncmp(t->name, "model.", 6) == 0;
        snprintf(name, sizeof name, "%s%s", inner ? cases[k].prefix : cases[k].outer,
                 t->name + (inner ? 6 : 0));
        CHECK_OK(af_safetensors_writer_add(w, name, t->dtype, t->dim, t->ndim, &err), err);
    }
    for (int p = 0; p < PARTS && cases[k].part[p]; p++)
        CHECK_OK(af_safetensors_writer_add(w, cases[k].part[p], AF_DTYPE_F32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        CHECK_OK(af_safetensors_writer_data(w, t->data, t->bytes, &err), err);
    }
    for (int p = 0; p < PARTS && cases[k].part[p]; p++)
        CHECK_OK(af_safetensors_writer_data(w, values, sizeof values, &err), err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
}

static void check_parts(const char *model, size_t k)
{
    char path[512];
    af_safetensors *f;
    af_error err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    for (int p = 0; p < PARTS && cases[k].part[p]; p++) {
        const af_stored *t = af_safetensors_find(f, cases[k].part[p]);
        assert_non_null(t);
        for (int i = 0; i < VALUES; i++)
            assert_true(((const float *)t->data)[i] == (float)i);
    }
    af_safetensors_close(f);
}

/* The type of the whole model, and that of its text part. */
static void check_config(const char *model, size_t k)
{
    char path[512];
    snprintf(path, sizeof path, "%s/config.json", model);
    json_t *o = read_json(path);
    assert_string_equal(json_string_value(json_object_get(o, "model_type")), cases[k].type);
    assert_true(json_is_object(json_object_get(o, "text_config")));
    json_decref(o);
}

static void test_folder(size_t k)
{
    static float logits[4][TOKENS * 20], merged[TOKENS * 20];
    char path[4400], whole[300], run[2][300], adapter[300], to[300];
    af_error err = {0};
    formula_model f;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), cases[k].golden);
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    json_decref(j);
    snprintf(whole, sizeof whole, "%s/whole-%zu", dir, k);
    wrap(f.dir, whole, k);
    for (int i = 0; i < 2; i++) {
        const char *model = i ? whole : f.dir;
        snprintf(run[i], sizeof run[i], "%s/full-%zu-%d", dir, k, i);
        logits_of(model, logits[i]);
        train(model, run[i], "");
        same_names(model, run[i]);
        logits_of(run[i], logits[2 + i]);
    }
    check_parts(run[1], k);
    check_config(run[1], k);
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    assert_memory_equal(logits[2], logits[3], sizeof logits[0]);
    assert_memory_not_equal(logits[0], logits[2], sizeof logits[0]);
    snprintf(adapter, sizeof adapter, "%s/lora-%zu", dir, k);
    snprintf(to, sizeof to, "%s/merged-%zu", dir, k);
    train(whole, adapter, "adapter: lora\nlora_r: 2\nlora_target_linear: true\n");
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(whole, to, &o, NULL, &err), err);
    same_names(whole, to);
    check_parts(to, k);
    check_config(to, k);
    logits_of(to, merged);
    assert_memory_not_equal(logits[0], merged, sizeof merged);
    formula_model_clear(&f);
}

static void test_folders(void **state)
{
    (void)state;
    for (size_t k = 0; k < AF_LEN(cases); k++)
        test_folder(k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_folders)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
