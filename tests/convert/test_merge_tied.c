/* test_merge_tied.c - adapters on embedding or head of a model where both are one tensor. */
#include "convert_case.h"

#include "afinar/model.h"

#include <jansson.h>

enum { PATH = 1024 };

static const char *gold(char *buf, size_t size, const char *name)
{
    return join(buf, size, golden_dir(), name);
}

static void merge_one(const char *base, const char *adapter, const char *out)
{
    af_error err = {0};
    const af_merge_adapter_opts o = {
        .adapter = {adapter}, .weight = {1}, .adapters = 1, .threads = 2, .force = true};
    CHECK_OK(af_merge_adapters(base, out, &o, NULL, &err), err);
}

static bool same_values(const af_weights *x, const char *a, const af_weights *y, const char *b)
{
    const af_stored *s = af_weights_find(x, a), *t = af_weights_find(y, b);
    return s && t && s->bytes == t->bytes && memcmp(s->data, t->data, s->bytes) == 0;
}

/* PEFT adds to the embedding alone, and the head that is tied to it stays: the merged model has
 * both. llama.cpp has one tensor for them, so the adapter alone has no GGUF form. */
static void test_an_adapted_embedding_unties_the_head(void **state)
{
    static const char embed[] = "model.embed_tokens.weight";
    scratch_dir d = scratch_new();
    af_error err = {0};
    char base[PATH], adapter[PATH], out[PATH], path[PATH];
    af_weights *b = NULL, *m = NULL;
    (void)state;
    gold(base, sizeof base, "models/gemma2_tiny");
    gold(adapter, sizeof adapter, "models/adapters/embed");
    merge_one(base, adapter, join(out, sizeof out, d.path, "out"));
    CHECK_OK(af_weights_open(&b, base, &err), err);
    CHECK_OK(af_weights_open(&m, out, &err), err);
    CHECK_MSG(same_values(m, "lm_head.weight", b, embed), "the head is not that of the base");
    CHECK_MSG(!same_values(m, embed, b, embed), "the embedding is that of the base");
    json_t *c = json_load_file(join(path, sizeof path, out, "config.json"), 0, NULL);
    CHECK_MSG(json_is_false(json_object_get(c, "tie_word_embeddings")), "the config ties them");
    json_decref(c);
    const af_export_opts o = {.adapter = adapter, .adapter_only = true};
    af_convert_report *report;
    af_verify_result verify;
    join(path, sizeof path, d.path, "a.gguf");
    CHECK_MSG(af_export(base, path, &o, &report, &verify, &err) != 0 &&
                  strstr(err.msg, "tied head"),
              "says '%s'", err.msg);
    af_weights_close(b);
    af_weights_close(m);
    scratch_free(&d);
}

/* The tensors of w without one of them, with one more. */
static void copy_weights(const char *path, const af_weights *w, const char *without,
                         const char *more, const af_stored *values)
{
    af_error err = {0};
    af_safetensors_writer *out = NULL;
    const int n = af_weights_count(w);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < n + (more != NULL); i++) {
            const af_stored *t = i < n ? af_weights_at(w, i) : values;
            const char *name = i < n ? t->name : more;
            if (without && strcmp(name, without) == 0)
                continue;
            if (pass == 0)
                CHECK_OK(af_safetensors_writer_add(out, name, t->dtype, t->dim, t->ndim, &err),
                         err);
            else
                CHECK_OK(af_safetensors_writer_data(out, t->data, t->bytes, &err), err);
        }
        if (pass == 0)
            CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
}

/* A folder with one file, a config in which one key is true. */
static void make_config(const char *dir, const char *from, const char *name, const char *key)
{
    af_error err = {0};
    char path[PATH];
    CHECK_OK(af_dir_make(dir, &err), err);
    json_t *c = json_load_file(join(path, sizeof path, from, name), 0, NULL);
    json_object_set_new(c, key, json_true());
    assert_int_equal(json_dump_file(c, join(path, sizeof path, dir, name), 0), 0);
    json_decref(c);
}

/* With ensure_weight_tying, PEFT names the embedding in modules_to_save and stores the head too. */
static void test_a_head_that_peft_keeps_tied_is_read(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    char base[PATH], from[PATH], both[PATH], out[PATH], path[PATH];
    af_weights *m = NULL, *a = NULL;
    (void)state;
    gold(base, sizeof base, "models/qwen2_tiny");
    gold(from, sizeof from, "models/adapters/tied_embed");
    make_config(join(both, sizeof both, d.path, "both"), from, "adapter_config.json",
                "ensure_weight_tying");
    CHECK_OK(af_weights_open(&a, from, &err), err);
    const af_stored *embed = af_weights_find(a, "base_model.model.model.embed_tokens.weight");
    copy_weights(join(path, sizeof path, both, "adapter_model.safetensors"), a, NULL,
                 "base_model.model.lm_head.weight", embed);
    merge_one(base, both, join(out, sizeof out, d.path, "out"));
    CHECK_OK(af_weights_open(&m, out, &err), err);
    CHECK_MSG(same_values(m, "lm_head.weight", a, embed->name), "the head is not the adapter's");
    CHECK_MSG(same_values(m, "model.embed_tokens.weight", a, embed->name),
              "the embedding is not the adapter's");
    af_weights_close(m);
    af_weights_close(a);
    scratch_free(&d);
}

/* Matrices of a head that the config does not name are there for one reason. */
static void test_tied_matrices_are_refused_by_their_key(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    char base[PATH], from[PATH], adapter[PATH], path[PATH];
    af_weights *a = NULL;
    (void)state;
    gold(base, sizeof base, "models/gemma2_tiny");
    gold(from, sizeof from, "models/adapters/embed");
    make_config(join(adapter, sizeof adapter, d.path, "adapter"), from, "adapter_config.json",
                "ensure_weight_tying");
    CHECK_OK(af_weights_open(&a, from, &err), err);
    copy_weights(join(path, sizeof path, adapter, "adapter_model.safetensors"), a, NULL,
                 "base_model.model.lm_head.lora_A.weight", af_weights_at(a, 0));
    af_weights_close(a);
    const af_merge_adapter_opts o = {.adapter = {adapter}, .weight = {1}, .adapters = 1};
    join(path, sizeof path, d.path, "out");
    CHECK_MSG(af_merge_adapters(base, path, &o, NULL, &err) != 0 &&
                  strstr(err.msg, "ensure_weight_tying"),
              "says '%s'", err.msg);
    scratch_free(&d);
}

/* PEFT stores the base of an adapted head, too; with a tied model that is one tensor, not two. */
static void test_the_stored_base_of_a_tied_head_is_counted_once(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    af_model *m = NULL;
    af_weights *w = NULL;
    char base[PATH], from[PATH], adapter[PATH], path[PATH];
    (void)state;
    gold(from, sizeof from, "models/llama3_tiny");
    gold(adapter, sizeof adapter, "models/adapters/head");
    make_config(join(base, sizeof base, d.path, "tied"), from, "config.json",
                "tie_word_embeddings");
    CHECK_OK(af_weights_open(&w, from, &err), err);
    copy_weights(join(path, sizeof path, base, "model.safetensors"), w, "lm_head.weight", NULL,
                 NULL);
    af_weights_close(w);
    const af_model_opts o = {.device = "cpu", .threads = 1, .adapter = {adapter}, .adapters = 1};
    CHECK_OK(af_model_open(&m, base, &o, &err), err);
    af_model_close(m);
    scratch_free(&d);
}

static void write_adapter(const char *dir, const char *config, const af_stored *t, int n)
{
    af_error err = {0};
    af_safetensors_writer *out = NULL;
    char path[PATH];
    CHECK_OK(af_dir_make(dir, &err), err);
    join(path, sizeof path, dir, "adapter_config.json");
    CHECK_OK(af_file_write(path, config, strlen(config), &err), err);
    join(path, sizeof path, dir, "adapter_model.safetensors");
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int i = 0; i < n; i++)
        CHECK_OK(af_safetensors_writer_add(out, t[i].name, t[i].dtype, t[i].dim, t[i].ndim, &err),
                 err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < n; i++)
        CHECK_OK(af_safetensors_writer_data(out, t[i].data, t[i].bytes, &err), err);
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
}

static af_stored stored(const char *name, float *data, int64_t rows, int64_t cols)
{
    return (af_stored){.name = name,
                       .dtype = AF_DTYPE_F32,
                       .ndim = 2,
                       .dim = {rows, cols},
                       .data = data,
                       .bytes = (uint64_t)(rows * cols) * sizeof(float)};
}

static void read_embedding(const char *model, float *to, int64_t rows, int64_t cols)
{
    af_error err = {0};
    af_weights *w = NULL;
    CHECK_OK(af_weights_open(&w, model, &err), err);
    const af_stored *t = af_weights_find(w, "model.embed_tokens.weight");
    assert_true(t && t->dim[0] == rows && t->dim[1] == cols);
    for (int64_t i = 0; i < rows * cols; i++)
        to[i] = (float)af_load_f64(t->data, t->dtype, (uint64_t)i);
    af_weights_close(w);
}

enum { OLD = 32, ROWS = OLD + 2, COLS = 16 };

static void read_logits(const char *model, const char *adapter, float *out)
{
    static const int32_t ids[] = {3, OLD + 1, 5};
    af_error err = {0};
    af_model *m = NULL;
    const af_model_opts o = {
        .adapter = {adapter}, .adapter_weight = {1}, .adapters = adapter != NULL, .device = "cpu"};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    CHECK_OK(af_model_logits_of(m, ids, 3, out, &err), err);
    af_model_close(m);
}

/* As PEFT saves a LoRA of one of two tied tables after resize_token_embeddings: the new rows are
 * there under the name of that one alone, and are those of both. */
static void test_new_rows_under_the_name_of_one_tied_table(void **state)
{
    static const struct {
        const char *path, *a, *b;
    } cases[] = {{"lm_head", "lora_A.weight", "lora_B.weight"},
                 {"model.embed_tokens", "lora_embedding_A", "lora_embedding_B"}};
    static float rows[ROWS * COLS], by_row[ROWS], by_col[COLS], merged[3 * ROWS], opened[3 * ROWS];
    scratch_dir d = scratch_new();
    char base[PATH], adapter[PATH], out[PATH], config[256], name[3][128];
    (void)state;
    gold(base, sizeof base, "models/qwen2_tiny");
    read_embedding(base, rows, OLD, COLS);
    for (int64_t i = OLD * COLS; i < ROWS * COLS; i++)
        rows[i] = (float)(i % 7) / 8;
    for (int i = 0; i < ROWS; i++)
        by_row[i] = (float)(i % 3);
    by_col[5] = 0.5f;
    for (int i = 0; i < 2; i++) {
        const bool head = i == 0;
        af_error err = {0};
        af_weights *m = NULL;
        snprintf(config, sizeof config,
                 "{\"peft_type\": \"LORA\", \"r\": 1, \"lora_alpha\": 1, \"target_modules\": "
                 "[\"%s\"]}",
                 cases[i].path);
        const char *const ends[] = {"base_layer.weight", cases[i].a, cases[i].b};
        for (int k = 0; k < 3; k++)
            snprintf(name[k], sizeof name[k], "base_model.model.%s.%s", cases[i].path, ends[k]);
        const af_stored t[] = {
            stored(name[0], rows, ROWS, COLS),
            head ? stored(name[1], by_col, 1, COLS) : stored(name[1], by_row, 1, ROWS),
            head ? stored(name[2], by_row, ROWS, 1) : stored(name[2], by_col, COLS, 1)};
        write_adapter(join(adapter, sizeof adapter, d.path, head ? "head" : "embed"), config, t, 3);
        merge_one(base, adapter, join(out, sizeof out, d.path, "out"));
        CHECK_OK(af_weights_open(&m, out, &err), err);
        for (int k = 0; k < 2; k++) {
            const af_stored *w =
                af_weights_find(m, k ? "lm_head.weight" : "model.embed_tokens.weight");
            assert_true(w && w->dim[0] == ROWS && w->dim[1] == COLS);
            for (int64_t v = 0; v < ROWS * COLS; v++) {
                const double more = k == head ? (double)by_row[v / COLS] * by_col[v % COLS] : 0;
                CHECK_MSG(fabs(af_load_f64(w->data, w->dtype, (uint64_t)v) - rows[v] - more) < 1e-6,
                          "%s: value %d of %s", cases[i].path, (int)v, w->name);
            }
        }
        af_weights_close(m);
        read_logits(out, NULL, merged);
        read_logits(base, adapter, opened);
        for (int v = 0; v < 3 * ROWS; v++)
            CHECK_MSG(fabsf(merged[v] - opened[v]) < 1e-5f, "%s: logit %d is %g, merged %g",
                      cases[i].path, v, opened[v], merged[v]);
    }
    scratch_free(&d);
}

/* Factors of a head that is tied: PEFT stores its base, too. Merged, the model has both; opened, it
 * has one tensor for them, which cannot be changed for the head alone. */
static void test_factors_of_a_tied_head(void **state)
{
    static float rows[OLD * COLS], factor[OLD];
    static const char config[] = "{\"peft_type\": \"IA3\", \"target_modules\": [\"lm_head\"], "
                                 "\"feedforward_modules\": []}";
    scratch_dir d = scratch_new();
    af_error err = {0};
    af_model *opened = NULL;
    char base[PATH], adapter[PATH], out[PATH];
    af_weights *m = NULL;
    (void)state;
    gold(base, sizeof base, "models/qwen2_tiny");
    read_embedding(base, rows, OLD, COLS);
    for (int i = 0; i < OLD; i++)
        factor[i] = 1 + (float)(i % 3);
    const af_stored t[] = {stored("base_model.model.lm_head.base_layer.weight", rows, OLD, COLS),
                           stored("base_model.model.lm_head.ia3_l", factor, OLD, 1)};
    write_adapter(join(adapter, sizeof adapter, d.path, "adapter"), config, t, 2);
    merge_one(base, adapter, join(out, sizeof out, d.path, "out"));
    CHECK_OK(af_weights_open(&m, out, &err), err);
    const af_stored *h = af_weights_find(m, "lm_head.weight");
    assert_true(h && h->dim[0] == OLD && h->dim[1] == COLS);
    for (int64_t i = 0; i < (int64_t)OLD * COLS; i++)
        CHECK_MSG(fabs(af_load_f64(h->data, h->dtype, (uint64_t)i) - rows[i] * factor[i / COLS]) <
                      1e-6,
                  "value %d of the head", (int)i);
    af_weights_close(m);
    const af_model_opts o = {
        .device = "cpu", .adapter = {adapter}, .adapter_weight = {1}, .adapters = 1};
    CHECK_MSG(af_model_open(&opened, base, &o, &err) == AF_EUNSUPPORTED &&
                  strstr(err.msg, "whose weight another module uses"),
              "says '%s'", err.msg);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_adapted_embedding_unties_the_head),
        cmocka_unit_test(test_a_head_that_peft_keeps_tied_is_read),
        cmocka_unit_test(test_tied_matrices_are_refused_by_their_key),
        cmocka_unit_test(test_the_stored_base_of_a_tied_head_is_counted_once),
        cmocka_unit_test(test_new_rows_under_the_name_of_one_tied_table),
        cmocka_unit_test(test_factors_of_a_tied_head),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
