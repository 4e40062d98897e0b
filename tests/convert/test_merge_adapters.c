/* test_merge_adapters.c - adapters into their base, mixed as PEFT mixes them, and out of two
 * models. */
#include "convert_case.h"

#include <math.h>

#include "afinar/model.h"
#include "afinar/text.h"
#include "convert/input/folder_text.h"
#include "format/chat/chat_template.h"
#include "format/text/json_text.h"
#include "worse.h"

enum { PATH = 1024 };

static const char *gold(char *buf, size_t size, const char *name)
{
    return join(buf, size, golden_dir(), name);
}

/* The base of the goldens rounded to bf16, as a folder. */
static void make_bf16(const char *dir)
{
    af_error err = {0};
    char base[PATH], path[PATH], config[PATH];
    af_weights *w = NULL;
    af_safetensors_writer *out = NULL;
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_weights_open(&w, gold(base, sizeof base, "merge/models/base"), &err), err);
    CHECK_OK(
        af_safetensors_writer_new(&out, join(path, sizeof path, dir, "model.safetensors"), 0, &err),
        err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        CHECK_OK(af_safetensors_writer_add(out, t->name, AF_DTYPE_BF16, t->dim, t->ndim, &err),
                 err);
    }
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        const uint64_t n = (uint64_t)af_weight_count(t);
        uint16_t *x = malloc(n * sizeof *x);
        af_convert(x, AF_DTYPE_BF16, t->data, t->dtype, n);
        CHECK_OK(af_safetensors_writer_data(out, x, n * 2, &err), err);
        free(x);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
    CHECK_OK(af_file_copy(gold(config, sizeof config, "merge/models/base/config.json"),
                          join(path, sizeof path, dir, "config.json"), &err),
             err);
}

static void merge_one(const char *base, const char *adapter, const char *out)
{
    af_error err = {0};
    const af_merge_adapter_opts o = {
        .adapter = {adapter}, .weight = {1}, .adapters = 1, .threads = 2, .force = true};
    CHECK_OK(af_merge_adapters(base, out, &o, NULL, &err), err);
}

static void test_merged_weights_are_those_of_peft(void **state)
{
    static const struct {
        const char *name;
        double tol; /* f32 base */
    } cases[] = {{"lora", 0}, {"lora2", 0}, {"rslora", 0}, {"patterns", 0}, {"dora", 1e-7}};
    scratch_dir d = scratch_new();
    char base16[PATH], base[PATH];
    (void)state;
    make_bf16(join(base16, sizeof base16, d.path, "base16"));
    gold(base, sizeof base, "merge/models/base");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char sub[64], adapter[PATH], file[PATH], out[PATH];
        snprintf(sub, sizeof sub, "peft/%s", cases[i].name);
        gold(adapter, sizeof adapter, sub);
        snprintf(sub, sizeof sub, "peft/%s.safetensors", cases[i].name);
        gold(file, sizeof file, sub);
        merge_one(base, adapter, join(out, sizeof out, d.path, "f32"));
        tensor_gap g = compare_files(out, file, "merged.f32.", cases[i].tol);
        CHECK_MSG(g.off == 0, "%s: f32 worst %g", cases[i].name, g.worst);
        merge_one(base16, adapter, join(out, sizeof out, d.path, "bf16"));
        g = compare_files(out, file, "merged.bf16.", 0); /* rounded once: the same bits */
        CHECK_MSG(g.off == 0, "%s: bf16 differs in %lld", cases[i].name, (long long)g.off);
    }
    scratch_free(&d);
}

static void put_text(const char *dir, const char *name, const char *text)
{
    af_error err = {0};
    char path[PATH];
    CHECK_OK(af_file_write(join(path, sizeof path, dir, name), text, strlen(text), &err), err);
}

/* The folder with its weights and config, and its own text files. */
static void make_with_texts(const char *dir, const char *from, const char *const *files,
                            const char *tokenizer, const char *config)
{
    af_error err = {0};
    CHECK_OK(af_dir_make(dir, &err), err);
    for (int i = 0; i < 2; i++)
        CHECK_OK(af_file_copy_into(from, dir, files[i], &err), err);
    put_text(dir, "tokenizer.json", tokenizer);
    if (config)
        put_text(dir, "tokenizer_config.json", config);
}

#define WORDS(more)                                                                                \
    "{\"model\": {\"type\": \"WordLevel\", \"unk_token\": \"a\", \"vocab\": {\"a\": 0, \"b\": "    \
    "1" more "}}}"

#define TRAINED "{\"chat_template\": \"trained with\", \"eos_token\": \"b\"}"

/* An adapter comes with the tokenizer and the template it was trained with, the latter where older
 * versions of transformers wrote it; a tokenizer with more tokens than rows is left. */
static void test_text_files_of_an_adapter_folder_are_merged_with_it(void **state)
{
    static const char *const model[] = {"config.json", "model.safetensors"};
    static const char *const peft[] = {"adapter_config.json", "adapter_model.safetensors"};
    static const struct {
        const char *tokenizer, *config, *token;
    } cases[] = {{WORDS(", \"new\": 127"), TRAINED, "new"},
                 {WORDS(", \"new\": 128"), TRAINED, NULL},
                 {WORDS(""), TRAINED, "b"}, /* the base's: its older forms stay */
                 {WORDS(""), NULL, NULL}};  /* no more than a copy of the vocabulary */
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        scratch_dir d = scratch_new();
        af_error err = {0};
        af_tokenizer *t = NULL;
        af_template *chat = NULL;
        char base[PATH], adapter[PATH], out[PATH], path[PATH];
        make_with_texts(join(base, sizeof base, d.path, "base"),
                        gold(path, sizeof path, "merge/models/base"), model, WORDS(""),
                        "{\"chat_template\": \"base\", \"eos_token\": \"a\"}");
        put_text(base, "special_tokens_map.json", "{\"eos_token\": \"a\"}");
        put_text(base, "tokenizer.model", "the same");
        put_text(base, "generation_config.json", "{\"eos_token_id\": 0}");
        make_with_texts(join(adapter, sizeof adapter, d.path, "adapter"),
                        gold(path, sizeof path, "peft/lora"), peft, cases[i].tokenizer,
                        cases[i].config);
        merge_one(base, adapter, join(out, sizeof out, d.path, "out"));
        CHECK_OK(af_template_open(&chat, out, &err), err);
        assert_string_equal(af_template_source(chat, NULL),
                            cases[i].config ? "trained with" : "base");
        CHECK_OK(af_tokenizer_open(&t, out, &err), err);
        const bool own = cases[i].token && strcmp(cases[i].token, "new") == 0;
        assert_int_equal(af_tokenizer_id(t, "new", 3), own ? 127 : -1);
        assert_true(af_file_exists(join(path, sizeof path, out, "tokenizer.model")) != own);
        assert_int_equal(af_tokenizer_eos(t), cases[i].token ? 1 : 0);
        json_t *o = json_load_file(join(path, sizeof path, out, "generation_config.json"), 0, NULL);
        assert_int_equal(json_array_size(json_object_get(o, "eos_token_id")),
                         cases[i].token ? 2 : 0);
        json_decref(o);
        af_tokenizer_close(t);
        af_template_close(chat);
        scratch_free(&d);
    }
}

/* The adapter of the goldens with an embedding and a head of 130 rows: row r is r, and -r. */
static void make_resized(const char *dir)
{
    enum { ROWS = 130, COLS = 32 };
    static const char *const names[] = {"base_model.model.model.embed_tokens.weight",
                                        "base_model.model.lm_head.weight",
                                        "base_model.model.lm_head.original_module.weight"};
    static const int64_t dim[] = {ROWS, COLS};
    static float x[ROWS * COLS];
    af_error err = {0};
    af_weights *w = NULL;
    af_safetensors_writer *out = NULL;
    char from[PATH], path[PATH];
    gold(from, sizeof from, "peft/lora");
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_file_copy_into(from, dir, "adapter_config.json", &err), err);
    CHECK_OK(af_weights_open(&w, join(path, sizeof path, from, "adapter_model.safetensors"), &err),
             err);
    CHECK_OK(af_safetensors_writer_new(
                 &out, join(path, sizeof path, dir, "adapter_model.safetensors"), 0, &err),
             err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        CHECK_OK(af_safetensors_writer_add(out, t->name, t->dtype, t->dim, t->ndim, &err), err);
    }
    for (size_t i = 0; i < AF_LEN(names); i++)
        CHECK_OK(af_safetensors_writer_add(out, names[i], AF_DTYPE_F32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        CHECK_OK(af_safetensors_writer_data(out, t->data, t->bytes, &err), err);
    }
    for (size_t i = 0; i < AF_LEN(names); i++) {
        for (int k = 0; k < ROWS * COLS; k++)
            x[k] = (float)(i == 0 ? k / COLS : -(k / COLS));
        CHECK_OK(af_safetensors_writer_data(out, x, sizeof x, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

/* Tokens were added before training: PEFT stores embedding and head, whatever the config says. */
static void test_an_adapter_with_more_tokens_is_merged(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    af_weights *w = NULL;
    char base[PATH], adapter[PATH], out[PATH], path[PATH];
    (void)state;
    gold(base, sizeof base, "merge/models/base");
    make_resized(join(adapter, sizeof adapter, d.path, "adapter"));
    merge_one(base, adapter, join(out, sizeof out, d.path, "out"));
    CHECK_OK(af_weights_open(&w, out, &err), err);
    for (int i = 0; i < 2; i++) {
        const af_stored *t = af_weights_find(w, i ? "lm_head.weight" : "model.embed_tokens.weight");
        assert_true(t && t->dim[0] == 130);
        for (int k = 0; k < 130 * 32; k++)
            assert_true(((const float *)t->data)[k] == (float)(i ? -(k / 32) : k / 32));
    }
    af_weights_close(w);
    gold(path, sizeof path, "peft/lora.safetensors");
    const tensor_gap g = compare_files(out, path, "merged.f32.", 0);
    assert_true(g.off == 0); /* the low-rank parts as ever */
    char *config = NULL;
    uint64_t n = 0;
    CHECK_OK(af_file_read(&config, &n, join(path, sizeof path, out, "config.json"), 1 << 20, &err),
             err);
    assert_non_null(strstr(config, "\"vocab_size\": 130"));
    free(config);
    const af_merge_adapter_opts two = {
        .adapter = {adapter, adapter}, .weight = {1, 1}, .adapters = 2, .threads = 1};
    assert_int_equal(
        af_merge_adapters(base, join(out, sizeof out, d.path, "two"), &two, NULL, &err),
        AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "130 rows") && strstr(err.msg, "has 128"), "%s", err.msg);
    af_model *m = NULL;
    const af_model_opts o = {
        .device = "cpu", .adapter = {adapter}, .adapter_weight = {1}, .adapters = 1};
    /* laid over the base it is the same model */
    float logits[2][2 * 130];
    const int32_t ids[2] = {129, 7};
    for (int i = 0; i < 2; i++) {
        CHECK_OK(i ? af_model_open(&m, base, &o, &err)
                   : af_model_open(&m, join(out, sizeof out, d.path, "out"),
                                   &(af_model_opts){.device = "cpu"}, &err),
                 err);
        assert_int_equal(af_model_vocab(m), 130);
        CHECK_OK(af_model_logits_of(m, ids, 2, logits[i], &err), err);
        af_model_close(m);
    }
    for (int k = 0; k < 2 * 130; k++)
        assert_true(fabsf(logits[0][k] - logits[1][k]) <= 1e-4f * fmaxf(1, fabsf(logits[0][k])));
    scratch_free(&d);
}

static void read_f32(const af_weights *w, const char *name, const float **x, int64_t dim[2])
{
    const af_stored *t = af_weights_find(w, name);
    CHECK_MSG(t != NULL, "no tensor %s", name);
    *x = t->data;
    dim[0] = t->dim[0];
    dim[1] = t->dim[1];
}

/* Largest difference of B A between two adapter files, over all modules of `want`. */
static double product_gap(const char *have, const char *want)
{
    af_error err = {0};
    af_weights *h = NULL, *w = NULL;
    double worst = 0;
    int modules = 0;
    CHECK_OK(af_weights_open(&h, have, &err), err);
    CHECK_OK(af_weights_open(&w, want, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        char name[PATH];
        const float *m[4];
        int64_t dim[4][2];
        snprintf(name, sizeof name, "%s", af_weights_at(w, i)->name);
        char *at = strstr(name, "lora_A");
        if (!at)
            continue;
        read_f32(h, name, &m[0], dim[0]);
        read_f32(w, name, &m[1], dim[1]);
        at[5] = 'B';
        read_f32(h, name, &m[2], dim[2]);
        read_f32(w, name, &m[3], dim[3]);
        for (int64_t o = 0; o < dim[2][0]; o++)
            for (int64_t c = 0; c < dim[0][1]; c++) {
                double x = 0, y = 0;
                for (int64_t r = 0; r < dim[0][0]; r++)
                    x += (double)m[2][o * dim[0][0] + r] * m[0][r * dim[0][1] + c];
                for (int64_t r = 0; r < dim[1][0]; r++)
                    y += (double)m[3][o * dim[1][0] + r] * m[1][r * dim[1][1] + c];
                worst = worse(worst, fabs(x - y));
            }
        modules++;
    }
    assert_true(modules > 0);
    af_weights_close(h);
    af_weights_close(w);
    return worst;
}

static void test_mixtures_are_those_of_peft(void **state)
{
    static const char *const how[] = {"linear", "cat", "ties"};
    scratch_dir d = scratch_new();
    char base[PATH], a[PATH], b[PATH], out[PATH], file[PATH], sub[64];
    (void)state;
    gold(base, sizeof base, "merge/models/base");
    gold(a, sizeof a, "peft/lora");
    gold(b, sizeof b, "peft/lora2");
    for (size_t i = 0; i < 3; i++) {
        af_error err = {0};
        const af_merge_adapter_opts o = {.adapter = {a, b},
                                         .weight = {0.7, 0.4},
                                         .adapters = 2,
                                         .combine = how[i],
                                         .adapter_only = true};
        CHECK_OK(af_merge_adapters(base, join(out, sizeof out, d.path, how[i]), &o, NULL, &err),
                 err);
        snprintf(sub, sizeof sub, "peft/mix_%s.safetensors", how[i]);
        const double gap = product_gap(out, gold(file, sizeof file, sub));
        CHECK_MSG(gap < 1e-6, "%s: %g", how[i], gap);
        /* what was written can be read again, with scale 1 */
        char merged[PATH];
        merge_one(base, out, join(merged, sizeof merged, d.path, "merged"));
    }
    scratch_free(&d);
}

/* With one adapter of weight 0, the result shows what is left of the other. */
static void test_dare_keeps_its_share_and_rescales_it(void **state)
{
    scratch_dir d = scratch_new();
    char base[PATH], a[PATH], b[PATH], plain[PATH], out[3][PATH];
    af_error err = {0};
    af_weights *x = NULL, *y = NULL;
    int64_t kept = 0, all = 0;
    (void)state;
    gold(base, sizeof base, "merge/models/base");
    gold(a, sizeof a, "peft/lora");
    gold(b, sizeof b, "peft/lora2");
    af_merge_adapter_opts o = {.adapter = {a, b},
                               .weight = {0.7, 0},
                               .adapters = 2,
                               .combine = "linear",
                               .adapter_only = true};
    CHECK_OK(af_merge_adapters(base, join(plain, sizeof plain, d.path, "plain"), &o, NULL, &err),
             err);
    o.combine = "dare_linear";
    o.density = 0.25;
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "dare%d", i);
        o.seed = i == 2 ? 8 : 7;
        CHECK_OK(af_merge_adapters(base, join(out[i], PATH, d.path, name), &o, NULL, &err), err);
    }
    assert_true(same_tensors(out[0], out[1]));
    assert_false(same_tensors(out[0], out[2]));
    CHECK_OK(af_weights_open(&x, plain, &err), err);
    CHECK_OK(af_weights_open(&y, out[0], &err), err);
    for (int i = 0; i < af_weights_count(x); i++) {
        const af_stored *p = af_weights_at(x, i), *q = af_weights_find(y, p->name);
        for (int64_t k = 0; k < af_weight_count(p); k++) {
            const float was = ((const float *)p->data)[k], is = ((const float *)q->data)[k];
            CHECK_MSG(is == 0 || fabsf(is - was / 0.25f) < 1e-6f, "%s", p->name);
            kept += is != 0;
            all += was != 0;
        }
    }
    CHECK_MSG(fabs((double)kept / (double)all - 0.25) < 0.03, "%lld of %lld", (long long)kept,
              (long long)all);
    af_weights_close(x);
    af_weights_close(y);
    scratch_free(&d);
}

static void test_extracted_adapters_are_the_best_of_their_rank(void **state)
{
    scratch_dir d = scratch_new();
    char base[PATH], model[PATH], out[PATH], file[PATH], name[PATH], merged[PATH];
    af_error err = {0};
    af_weights *h = NULL, *w = NULL;
    double kept = 0;
    (void)state;
    gold(base, sizeof base, "merge/models/base");
    gold(model, sizeof model, "merge/models/a");
    join(out, sizeof out, d.path, "r8");
    CHECK_OK(
        af_extract_lora(base, model, out, &(af_extract_opts){.rank = 8, .threads = 2}, &kept, &err),
        err);
    assert_true(kept > 0.4 && kept < 1);
    CHECK_OK(af_weights_open(&h, out, &err), err);
    CHECK_OK(af_weights_open(&w, gold(file, sizeof file, "peft/extract_r8.safetensors"), &err),
             err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *low = af_weights_at(w, i); /* NAME.weight.low_rank */
        const float *a, *b, *want = low->data;
        int64_t da[2], db[2];
        const int n = (int)strlen(low->name) - (int)strlen(".weight.low_rank");
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_A.weight", n, low->name);
        read_f32(h, name, &a, da);
        snprintf(name, sizeof name, "base_model.model.%.*s.lora_B.weight", n, low->name);
        read_f32(h, name, &b, db);
        assert_int_equal(da[0], 8);
        for (int64_t o = 0; o < db[0]; o++)
            for (int64_t c = 0; c < da[1]; c++) {
                double x = 0;
                for (int64_t r = 0; r < 8; r++)
                    x += (double)b[o * 8 + r] * a[r * da[1] + c];
                assert_true(fabs(x - want[o * da[1] + c]) < 1e-6);
            }
    }
    af_weights_close(h);
    af_weights_close(w);
    /* At full rank nothing is lost but the norms and the embedding, which do not fit. */
    join(out, sizeof out, d.path, "r32");
    CHECK_OK(af_extract_lora(base, model, out, &(af_extract_opts){.rank = 32, .threads = 2}, &kept,
                             &err),
             err);
    assert_true(fabs(kept - 1) < 1e-9);
    merge_one(base, out, join(merged, sizeof merged, d.path, "merged"));
    CHECK_OK(af_weights_open(&h, merged, &err), err);
    CHECK_OK(af_weights_open(&w, model, &err), err);
    tensor_gap g = {0};
    for (int i = 0; i < af_weights_count(w); i++)
        if (strstr(af_weights_at(w, i)->name, "_proj"))
            add_gap(&g, af_weights_find(h, af_weights_at(w, i)->name), af_weights_at(w, i), 1e-6);
    assert_int_equal(g.off, 0);
    af_weights_close(h);
    af_weights_close(w);
    scratch_free(&d);
}

static void test_failures_leave_nothing(void **state)
{
    char base[PATH], other[PATH], adapter[PATH], out[PATH], tied[PATH], dora[PATH], head[PATH];
    (void)state;
    gold(tied, sizeof tied, "models/qwen2_tiny");
    gold(dora, sizeof dora, "models/adapters/dora");
    gold(head, sizeof head,
         "models/adapters/tied_head"); /* unties what the first one expects tied */
    gold(base, sizeof base, "merge/models/base");
    gold(other, sizeof other, "gguf_models/llama/hf"); /* other shapes */
    gold(adapter, sizeof adapter, "peft/lora");
    const struct {
        const char *why, *model, *adapter, *second, *combine, *says;
    } cases[] = {
        {"shapes", other, adapter, adapter, NULL, "lora_A"},
        {"no adapter", base, "/nowhere", "/nowhere", NULL, "/nowhere"},
        {"combination", base, adapter, adapter, "blend", "'blend' is not one of linear, cat, ties"},
        {"untied by the second", tied, dora, head, NULL, "cannot be combined with others"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        scratch_dir d = scratch_new();
        af_error err = {0};
        const af_merge_adapter_opts o = {.adapter = {cases[i].adapter, cases[i].second},
                                         .weight = {1, 1},
                                         .adapters = 2,
                                         .combine = cases[i].combine};
        CHECK_MSG(af_merge_adapters(cases[i].model, join(out, sizeof out, d.path, "out"), &o, NULL,
                                    &err) != 0,
                  "%s", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: says '%s'", cases[i].why, err.msg);
        check_nothing_left(d.path, 0);
        scratch_free(&d);
    }
}

/* 1e6 is infinite in f16. */
static void test_values_too_large_for_the_type_are_refused(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    char from[PATH], base[PATH], adapter[PATH], path[PATH], out[PATH], text[2 * PATH];
    const float large = 1e6f;
    (void)state;
    gold(from, sizeof from, "merge/models/base");
    CHECK_OK(af_dir_make(join(base, sizeof base, d.path, "base"), &err), err);
    CHECK_OK(af_file_copy_into(from, base, "config.json", &err), err);
    CHECK_OK(af_file_copy_into(from, base, "model.safetensors", &err), err);
    FILE *f = fopen(join(path, sizeof path, base, "model.safetensors"), "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -(long)sizeof large, SEEK_END), 0);
    assert_int_equal(fwrite(&large, sizeof large, 1, f), 1);
    assert_int_equal(fclose(f), 0);
    const af_merge_adapter_opts o = {.adapter = {gold(adapter, sizeof adapter, "peft/lora")},
                                     .weight = {1},
                                     .adapters = 1,
                                     .dtype = "f16"};
    join(out, sizeof out, d.path, "out");
    CHECK_MSG(af_merge_adapters(base, out, &o, NULL, &err) != 0 && strstr(err.msg, "f16 can hold"),
              "adapter: says '%s'", err.msg);
    snprintf(
        text, sizeof text,
        "merge_method: linear\ndtype: float16\nmodels: [{model: %s, parameters: {weight: 1}}]\n",
        base);
    put_text(d.path, "linear.yml", text);
    err = (af_error){0};
    CHECK_MSG(af_merge_file(join(path, sizeof path, d.path, "linear.yml"), out, &(af_merge_opts){0},
                            NULL, &err) != 0 &&
                  strstr(err.msg, "f16 can hold"),
              "models: says '%s'", err.msg);
    scratch_free(&d);
}

typedef struct small {
    const char *name;
    int64_t dim[2];
    float value[16];
} small;

static void write_tensors(const char *path, const af_weights *w, const small *more, int n)
{
    af_error err = {0};
    af_safetensors_writer *out = NULL;
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; w && i < af_weights_count(w); i++) {
            const af_stored *t = af_weights_at(w, i);
            CHECK_OK(pass
                         ? af_safetensors_writer_data(out, t->data, t->bytes, &err)
                         : af_safetensors_writer_add(out, t->name, t->dtype, t->dim, t->ndim, &err),
                     err);
        }
        for (const small *t = more; t < more + n; t++)
            CHECK_OK(pass ? af_safetensors_writer_data(out, t->value,
                                                       (uint64_t)(t->dim[0] * t->dim[1]) * 4, &err)
                          : af_safetensors_writer_add(out, t->name, AF_DTYPE_F32, t->dim, 2, &err),
                     err);
        if (!pass)
            CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    }
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
}

#define LAYER "base_model.model.model.language_model.layers."

/* PEFT's adapters of multimodal models have modules of images, too. */
static void test_modules_outside_the_text_model(void **state)
{
    (void)state;
    static const small image = {"vision_tower.proj.weight", {3, 2}, {1, 2, 3, 4, 5, 6}};
    static const small low[] = {
        {"base_model.model.model.vision_tower.proj.lora_A.weight", {1, 2}, {1, -1}},
        {"base_model.model.model.vision_tower.proj.lora_B.weight", {3, 1}, {1, 0, 2}},
        {LAYER "0.self_attn.q_proj.lora_A.weight", {1, 16}, {0}},
        {LAYER "0.self_attn.q_proj.lora_B.weight", {16, 1}, {0}},
        {LAYER "1.self_attn.q_proj.lora_A.weight", {1, 16}, {0}},
        {LAYER "1.self_attn.q_proj.lora_B.weight", {16, 1}, {0}}};
    static const float want[] = {3, 0, 3, 4, 9, 2}; /* alpha 2 */
    af_error err = {0};
    char path[PATH], out[PATH];
    af_weights *w = NULL;
    scratch_dir d = scratch_new();
    json_t *text = NULL;
    gold(path, sizeof path, "models/qwen2_tiny/config.json");
    CHECK_OK(af_json_read_file(&text, path, &err), err);
    json_t *j = json_pack("{s:s, s:o}", "model_type", "llava", "text_config", text);
    CHECK_OK(af_json_write(d.path, "config.json", j, &err), err);
    json_decref(j);
    put_text(d.path, "adapter_config.json",
             "{\"peft_type\":\"LORA\",\"r\":1,\"lora_alpha\":2,\"target_modules\":[\"proj\",\"q_"
             "proj\"]}");
    CHECK_OK(af_weights_open(&w, gold(path, sizeof path, "models/qwen2_tiny"), &err), err);
    write_tensors(join(path, sizeof path, d.path, "model.safetensors"), w, &image, 1);
    write_tensors(join(path, sizeof path, d.path, "adapter_model.safetensors"), NULL, low, 6);
    af_weights_close(w);
    merge_one(d.path, d.path, join(out, sizeof out, d.path, "out"));
    CHECK_OK(af_weights_open(&w, out, &err), err);
    const af_stored *t = af_weights_find(w, image.name);
    assert_true(t && t->bytes == sizeof want);
    assert_memory_equal(t->data, want, sizeof want);
    af_weights_close(w);
    const af_merge_adapter_opts half = {.adapter = {d.path}, .weight = {0.5}, .adapters = 1};
    join(out, sizeof out, d.path, "half");
    assert_int_equal(af_merge_adapters(d.path, out, &half, NULL, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "outside of the text model"), "%s", err.msg);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_weights_are_those_of_peft),
        cmocka_unit_test(test_text_files_of_an_adapter_folder_are_merged_with_it),
        cmocka_unit_test(test_an_adapter_with_more_tokens_is_merged),
        cmocka_unit_test(test_mixtures_are_those_of_peft),
        cmocka_unit_test(test_dare_keeps_its_share_and_rescales_it),
        cmocka_unit_test(test_extracted_adapters_are_the_best_of_their_rank),
        cmocka_unit_test(test_failures_leave_nothing),
        cmocka_unit_test(test_modules_outside_the_text_model),
        cmocka_unit_test(test_values_too_large_for_the_type_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
