/* test_conv_layouts.c - folders of olmo_hybrid and kimi_linear: convolutions of q, k and v as
 * published, cut into thirds with a norm or an MLP under another name as transformers writes them,
 * or in one tensor. All are trained to the same bits, and what is written has the layout that was
 * read. */
#include "train/layout_case.h"

enum { PUBLISHED, THIRDS, WHOLE, LAYOUTS };

static bool kimi; /* the family at hand */

static void layout_name(int layout, const char *name, char *out, size_t size)
{
    const struct {
        const char *was, *is[LAYOUTS];
    } names[] = {
        {kimi ? ".0.mlp" : ".1.post_attention_layernorm",
         {NULL, kimi ? ".0.block_sparse_moe" : ".1.feedforward_layer_norm", NULL}},
        {".attention_layer_norm", {NULL, NULL, ".input_layernorm"}},
        {".feedforward_layer_norm", {NULL, NULL, ".post_attention_layernorm"}},
        {".q_conv1d", {NULL, NULL, ".conv1d"}},
    };
    snprintf(out, size, "%s", name);
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const char *at = strstr(name, names[i].was);
        if (at && names[i].is[layout])
            snprintf(out, size, "%.*s%s%s", (int)(at - name), name, names[i].is[layout],
                     at + strlen(names[i].was));
    }
}

/* All convolutions of the layer of this one, one after another; their channels and bytes. */
static uint8_t *joined(const af_safetensors *f, const char *name, int64_t *rows, uint64_t *bytes)
{
    uint8_t *all = NULL;
    *rows = 0;
    *bytes = 0;
    for (int p = 0; p < 3; p++) {
        char own[256];
        snprintf(own, sizeof own, "%s", name);
        *(strstr(own, "_conv1d") - 1) = "qkv"[p];
        const af_stored *t = af_safetensors_find(f, own);
        assert_non_null(t);
        all = realloc(all, *bytes + t->bytes);
        memcpy(all + *bytes, t->data, t->bytes);
        *bytes += t->bytes;
        *rows += t->dim[0];
    }
    return all;
}

/* The tensors of a published folder in another layout: declared, then written. */
static void write_tensors(const af_safetensors *f, af_safetensors_writer *w, int layout, bool first)
{
    af_error err = {0};
    for (int i = 0; i < af_safetensors_count(f); i++) {
        const af_stored *t = af_safetensors_at(f, i);
        const char *conv = strstr(t->name, "_conv1d");
        int64_t dim[4] = {t->dim[0], t->dim[1], t->dim[2], 1}, rows = t->dim[0];
        uint64_t bytes = t->bytes, at = 0;
        uint8_t *all = conv && layout != PUBLISHED ? joined(f, t->name, &rows, &bytes) : NULL;
        const int piece = conv ? (int)(strchr("qkv", conv[-1]) - "qkv") : 0;
        char name[256];
        if (all && layout == THIRDS) {
            assert_int_equal(rows % 3, kimi ? 0 : 2); /* torch.chunk: the last has less */
            dim[0] = piece < 2 ? (rows + 2) / 3 : rows - 2 * ((rows + 2) / 3);
            at = bytes / (uint64_t)rows * (uint64_t)((rows + 2) / 3 * piece);
            bytes = bytes / (uint64_t)rows * (uint64_t)dim[0];
        } else if (all) {
            dim[0] = rows;
        }
        layout_name(layout, t->name, name, sizeof name);
        if (all && layout == WHOLE && piece > 0)
            ;
        else if (first)
            CHECK_OK(af_safetensors_writer_add(w, name, t->dtype, dim, t->ndim, &err), err);
        else
            CHECK_OK(af_safetensors_writer_data(w, all ? all + at : t->data, bytes, &err), err);
        free(all);
    }
}

static void write_layout(const char *from, const char *to, int layout)
{
    char path[512];
    af_error err = {0};
    af_safetensors *f;
    af_safetensors_writer *w;
    assert_int_equal(mkdir(to, 0777), 0);
    snprintf(path, sizeof path, "cp %s/config.json %s/", from, to);
    assert_int_equal(system(path), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    CHECK_OK(af_safetensors_writer_new(&w, path, 0, &err), err);
    write_tensors(f, w, layout, true);
    CHECK_OK(af_safetensors_writer_begin(w, &err), err);
    write_tensors(f, w, layout, false);
    CHECK_OK(af_safetensors_writer_commit(w, &err), err);
    af_safetensors_close(f);
}

static void check_layouts(const char *family)
{
    static float plain[LAYOUTS][TOKENS * 20], trained[LAYOUTS][TOKENS * 20], merged[TOKENS * 20];
    char path[4400];
    formula_model f;
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    json_decref(j);
    for (int i = 0; i < LAYOUTS; i++) {
        char model[300], run[300], adapter[300], to[300];
        af_error err = {0};
        snprintf(model, sizeof model, "%s/%s-%d", dir, family, i);
        snprintf(run, sizeof run, "%s/full-%s-%d", dir, family, i);
        snprintf(adapter, sizeof adapter, "%s/lora-%s-%d", dir, family, i);
        snprintf(to, sizeof to, "%s/merged-%s-%d", dir, family, i);
        write_layout(f.dir, model, i);
        logits_of(model, plain[i]);
        train(model, run, "");
        same_names(model, run);
        logits_of(run, trained[i]);
        if (i == THIRDS) {
            train(model, adapter, "adapter: lora\nlora_r: 2\nlora_target_linear: true\n");
            const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
            CHECK_OK(af_merge_adapters(model, to, &o, NULL, &err), err);
            same_names(model, to);
            logits_of(to, merged);
        }
        assert_memory_equal(plain[i], plain[0], sizeof plain[0]);
        assert_memory_equal(trained[i], trained[0], sizeof trained[0]);
    }
    assert_memory_not_equal(plain[0], trained[0], sizeof plain[0]);
    assert_memory_not_equal(plain[0], merged, sizeof plain[0]);
    formula_model_clear(&f);
}

static void test_layouts(void **state)
{
    (void)state;
    check_layouts("olmo_hybrid");
    kimi = true;
    check_layouts("kimi_linear");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
