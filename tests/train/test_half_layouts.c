/* test_half_layouts.c - folders of minimax_m3: the text model alone as transformers writes it, and
 * inside a larger model as published, with gates and ups apart and experts one by one. Both are
 * trained and merged to the same bits, and what is written has the layout that was read. */
#include "train/layout_case.h"

/* What is part of a name, and what the published folder has instead. */
static const char *const words[][2] = {
    {".mlp.gate.e_score", ".block_sparse_moe.e_score"},
    {".mlp.gate.", ".block_sparse_moe.gate."},
    {".mlp.experts.", ".block_sparse_moe.experts."},
    {".mlp.shared_experts.", ".block_sparse_moe.shared_experts."},
    {".indexer.", ".index_"},
};

static void replace(char *name, size_t size, const char *was, const char *is)
{
    char rest[256], *at = strstr(name, was);
    if (!at)
        return;
    snprintf(rest, sizeof rest, "%s", at + strlen(was));
    snprintf(at, size - (size_t)(at - name), "%s%s", is, rest);
}

/* Piece p of a tensor there: its name and shape; false after the last. */
static bool piece(const af_stored *t, int p, char name[256], int64_t dim[3], int *ndim)
{
    const bool experts = t->ndim == 3, fused = strstr(t->name, "gate_up_proj") != NULL;
    const int halves = fused ? 2 : 1, x = p / halves;
    snprintf(name, 256, "language_model.%s", t->name);
    for (size_t i = 0; i < AF_LEN(words); i++)
        replace(name, 256, words[i][0], words[i][1]);
    memcpy(dim, t->dim, 3 * sizeof *dim);
    *ndim = t->ndim;
    if (experts) {
        char last[32];
        snprintf(last, sizeof last, "%d.w%d.weight", x, !fused ? 2 : p % 2 ? 3 : 1);
        replace(name, 256, fused ? "gate_up_proj" : "down_proj", last);
        *ndim = 2;
        dim[0] = t->dim[1] / halves;
        dim[1] = t->dim[2];
    } else if (fused) {
        replace(name, 256, "gate_up_proj", p ? "up_proj" : "gate_proj");
        dim[0] /= 2;
    }
    return p < halves * (experts ? (int)t->dim[0] : 1);
}

static void write_published(const char *from, const char *to)
{
    char path[700], name[256];
    int64_t dim[3];
    int ndim;
    af_error err = {0};
    af_safetensors *f = open_model_weights(from);
    af_safetensors_writer *w;
    assert_int_equal(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "%s/config.json", from);
    json_t *whole =
        json_pack("{s:s, s:o}", "model_type", "minimax_m3_vl", "text_config", read_json(path));
    char *text = json_dumps(whole, 0);
    snprintf(path, sizeof path, "%s/config.json", to);
    CHECK_OK(af_file_write(path, text, strlen(text), &err), err);
    free(text);
    json_decref(whole);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        for (int p = 0; piece(t, p, name, dim, &ndim); p++)
            CHECK_OK(af_safetensors_writer_add(w, name, t->dtype, dim, ndim, &err), err);
    }
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    for (int i = 0; i < af_safetensors_count(f); i++) /* pieces lie one after another */
        CHECK_OK(af_safetensors_writer_data(w, af_safetensors_at(f, i)->data,
                                            af_safetensors_at(f, i)->bytes, &err),
                 err);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
}

/* Logits of the model, of all of it trained, and of an adapter merged into it. */
static void all_logits(const char *model, const char *name, float out[3][TOKENS * 20])
{
    char run[300], adapter[300], to[300];
    af_error err = {0};
    snprintf(run, sizeof run, "%s/full-%s", dir, name);
    snprintf(adapter, sizeof adapter, "%s/dora-%s", dir, name);
    snprintf(to, sizeof to, "%s/merged-%s", dir, name);
    logits_of(model, out[0]);
    train(model, run, "sequence_len: 16\n");
    same_names(model, run);
    logits_of(run, out[1]);
    train(model, adapter,
          "sequence_len: 16\nadapter: lora\nlora_r: 2\npeft_use_dora: true\n"
          "lora_target_modules: [gate_up_proj, down_proj, q_proj]\n");
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    CHECK_OK(af_merge_adapters(model, to, &o, NULL, &err), err);
    same_names(model, to);
    logits_of(to, out[2]);
}

static void test_published(void **state)
{
    (void)state;
    static float plain[3][TOKENS * 20], published[3][TOKENS * 20];
    char path[4400], model[300];
    formula_model f;
    snprintf(path, sizeof path, "%s/families/minimax_m3.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    json_decref(j);
    snprintf(model, sizeof model, "%s/published", dir);
    write_published(f.dir, model);
    all_logits(f.dir, "plain", plain);
    all_logits(model, "published", published);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(plain[i], published[i], sizeof plain[0]);
    assert_memory_not_equal(plain[0], plain[1], sizeof plain[0]);
    assert_memory_not_equal(plain[0], plain[2], sizeof plain[0]);
    formula_model_clear(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
