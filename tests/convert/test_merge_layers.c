/* test_merge_layers.c - merges of families that call layers, embeddings and their count otherwise
 * than llama, and of repositories with towers. */
#include "convert_case.h"

#include "convert/merge/merge_names.h"
#include "model/family_case.h"

#include <math.h>

enum { PATH = 4200, CONFIG = 1024 };

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int layer;
        bool embed, head;
    } row[] = {
        {"model.layers.12.self_attn.q_proj.weight", 12, false, false},
        {"language_model.model.layers.3.mlp.vision_moe.gate.weight", 3, false, false},
        {"transformer.h.2.attn.c_attn.weight", 2, false, false},
        {"transformer.blocks.7.ffn.up_proj.weight", 7, false, false},
        {"vision_tower.encoder.layers.2.mlp.fc1.weight", -1, false, false},
        {"model.visual.blocks.2.attn.qkv.weight", -1, false, false},
        {"audio_tower.layers.31.fc1.weight", -1, false, false},
        {"mtp.layers.0.mlp.up_proj.weight", -1, false, false},
        {"model.embed_tokens.weight", -1, true, false},
        {"gpt_neox.embed_in.weight", -1, true, false},
        {"transformer.word_embeddings.weight", -1, true, false},
        {"transformer.word_embeddings_layernorm.weight", -1, false, false},
        {"backbone.embeddings.weight", -1, true, false},
        {"vision_tower.embed_tokens.weight", -1, false, false},
        {"lm_head.weight", -1, false, true},
        {"embed_out.weight", -1, false, true},
        {"output.weight", -1, false, true},
    };
    for (size_t i = 0; i < AF_LEN(row); i++) {
        size_t at, end;
        CHECK_MSG(af_merge_layer_of(row[i].name, &at, &end) == row[i].layer, "%s", row[i].name);
        CHECK_MSG(af_merge_is_embed(row[i].name) == row[i].embed, "%s", row[i].name);
        CHECK_MSG(af_merge_is_head(row[i].name) == row[i].head, "%s", row[i].name);
    }
}

static void write_family(formula_model *f, const char *family)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    json_t *j = read_json(path);
    formula_model_write(f, j);
    json_decref(j);
}

static void merge_text(const scratch_dir *d, const char *text, const char *out)
{
    char path[PATH];
    af_error err = {0};
    FILE *c = fopen(join(path, sizeof path, d->path, "merge.yml"), "w");
    assert_non_null(c);
    fputs(text, c);
    fclose(c);
    const af_merge_opts o = {.threads = 2, .force = true};
    CHECK_OK(af_merge_file(path, out, &o, NULL, &err), err);
}

/* What the layers of the result are, in a config of the family's own words; the model opens. */
static void test_other_numbers_of_layers(void **state)
{
    (void)state;
    static const struct {
        const char *family, *count, *list;
    } row[] = {{"mpt", "n_layers", NULL},
               {"gpt2", "n_layer", NULL},
               {"gpt_neo", "num_layers", "attention_layers"},
               {"olmo3", "num_hidden_layers", "layer_types"}};
    for (size_t i = 0; i < AF_LEN(row); i++) {
        formula_model f;
        scratch_dir d = scratch_new();
        char out[256], path[PATH], text[CONFIG];
        af_error err = {0};
        af_model_reader *m = NULL;
        write_family(&f, row[i].family);
        join(out, sizeof out, d.path, "out");
        snprintf(text, sizeof text,
                 "merge_method: passthrough\nslices:\n- sources: [{model: %s, layer_range: [1, "
                 "2]}]\n- sources: [{model: %s, layer_range: [0, 2]}]\n",
                 f.dir, f.dir);
        merge_text(&d, text, out);
        json_t *j = read_json(join(path, sizeof path, out, "config.json"));
        json_t *was = read_json(join(path, sizeof path, f.dir, "config.json"));
        CHECK_MSG(json_integer_value(json_object_get(j, row[i].count)) == 3, "%s", row[i].family);
        const json_t *list = row[i].list ? json_object_get(j, row[i].list) : NULL,
                     *from = row[i].list ? json_object_get(was, row[i].list) : NULL;
        for (size_t k = 0; from && k < 3; k++)
            CHECK_MSG(json_equal(json_array_get(list, k), json_array_get(from, k == 0 ? 1 : k - 1)),
                      "%s: entry %zu", row[i].family, k);
        CHECK_OK(af_model_reader_open(&m, out, &err), err);
        CHECK_OK(af_model_reader_match(m, &err), err);
        assert_int_equal(m->config.num_hidden_layers, 3);
        af_model_reader_close(m);
        json_decref(j);
        json_decref(was);
        formula_model_clear(&f);
        scratch_free(&d);
    }
}

/* A weight of 0 in the first layer and of 1 in the last: zeros, and what was there. */
static void test_gradients_over_blocks(void **state)
{
    (void)state;
    formula_model f;
    scratch_dir d = scratch_new();
    char out[256], text[CONFIG], name[64];
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    write_family(&f, "mpt");
    join(out, sizeof out, d.path, "out");
    snprintf(text, sizeof text,
             "merge_method: linear\nparameters: {normalize: false}\nmodels:\n- model: %s\n"
             "  parameters: {weight: [0, 1]}\n",
             f.dir);
    merge_text(&d, text, out);
    CHECK_OK(af_weights_open(&a, f.dir, &err), err);
    CHECK_OK(af_weights_open(&b, out, &err), err);
    for (int layer = 0; layer < 2; layer++) {
        snprintf(name, sizeof name, "transformer.blocks.%d.attn.Wqkv.weight", layer);
        const af_stored *x = af_weights_find(a, name), *y = af_weights_find(b, name);
        assert_true(x && y && x->bytes == y->bytes);
        float most = 0;
        for (uint64_t k = 0; k < x->bytes / sizeof most; k++)
            most = fmaxf(most, fabsf(((const float *)y->data)[k]));
        assert_true(layer ? memcmp(x->data, y->data, x->bytes) == 0 : most <= 0);
    }
    af_weights_close(a);
    af_weights_close(b);
    formula_model_clear(&f);
    scratch_free(&d);
}

/* A tied model and one with a head of its own, in either order: the head is merged with the
 * embedding, whatever the family calls it. */
static void test_tied_heads(void **state)
{
    (void)state;
    static const struct {
        const char *family, *embed;
    } row[] = {{"gpt2", "transformer.wte.weight"},
               {"dbrx", "transformer.wte.weight"},
               {"falcon", "transformer.word_embeddings.weight"}};
    for (size_t i = 0; i < 2 * AF_LEN(row); i++) {
        const char *embed = row[i / 2].embed;
        formula_model f[2]; /* tied, with a head */
        scratch_dir d = scratch_new();
        char out[256], path[PATH], text[CONFIG];
        af_error err = {0};
        af_weights *w[3] = {NULL};
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), row[i / 2].family);
        json_t *j = read_json(path), *config = json_object_get(j, "config");
        for (int k = 0; k < 2; k++) {
            json_object_set_new(config, "tie_word_embeddings", json_boolean(k == 0));
            formula_model_write(&f[k], j);
        }
        join(out, sizeof out, d.path, "out");
        snprintf(text, sizeof text,
                 "merge_method: linear\nmodels:\n- {model: %s, parameters: {weight: 1}}\n- {model: "
                 "%s, parameters: {weight: 1}}\n",
                 f[i % 2].dir, f[1 - i % 2].dir);
        merge_text(&d, text, out);
        const af_stored *t[3];
        for (int k = 0; k < 3; k++) {
            CHECK_OK(af_weights_open(&w[k], k < 2 ? f[k].dir : out, &err), err);
            t[k] = af_weights_find(w[k], k ? "lm_head.weight" : embed);
            CHECK_MSG(t[k], "%s", f[AF_MIN(k, 1)].dir);
        }
        assert_null(af_weights_find(w[0], "lm_head.weight"));
        const float *x = t[0]->data, *y = t[1]->data, *z = t[2]->data;
        for (int64_t k = 0; k < af_weight_count(t[2]); k++)
            assert_true(fabsf(z[k] - (x[k] + y[k]) / 2) < 1e-6f);
        for (int k = 0; k < 3; k++)
            af_weights_close(w[k]);
        json_decref(j);
        formula_model_clear(&f[0]);
        formula_model_clear(&f[1]);
        scratch_free(&d);
    }
}

/* Tensors of one name and shape: norms of queries and keys, which only one has, would be lost. */
static void test_other_architectures_are_refused(void **state)
{
    (void)state;
    scratch_dir d = scratch_new();
    char path[PATH], out[256], a[PATH], b[PATH];
    af_error err = {0};
    af_merge_opts o = {.threads = 1};
    af_merge_plan plan;
    FILE *c = fopen(join(path, sizeof path, d.path, "merge.yml"), "w");
    assert_non_null(c);
    snprintf(a, sizeof a, "%s/models/llama3_tiny", golden_dir());
    snprintf(b, sizeof b, "%s/models/qwen3_tiny", golden_dir());
    fprintf(c,
            "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: %s}, {model: %s}]\n",
            a, b);
    fclose(c);
    join(out, sizeof out, d.path, "out");
    assert_int_equal(af_merge_file(path, out, &o, &plan, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "is a llama and"), "%s", err.msg);
    CHECK_MSG(strstr(err.msg, "a qwen3: models of different"), "%s", err.msg);
    o.mixed = true;
    CHECK_OK(af_merge_file(path, out, &o, &plan, &err), err);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_other_numbers_of_layers),
        cmocka_unit_test(test_gradients_over_blocks), cmocka_unit_test(test_tied_heads),
        cmocka_unit_test(test_other_architectures_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
