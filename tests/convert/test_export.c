/* test_export.c - GGUF and back, adapters in other formats, verification, Modelfile. */
#include "convert_case.h"

#include "base/log.h"

#include "base/hash.h"
#include "convert/quantize/imatrix.h"
#include "format/weights/gguf.h"
#include "model/adapter.h"
#include "model/model_reader.h"
#include "tensor/codec.h"
#include "worse.h"

#include <jansson.h>

enum { PATH = 1024 };

static const char *gold(char *buf, size_t size, const char *name)
{
    return join(buf, size, golden_dir(), name);
}

static af_verify_result export(const char *model, const char *out, af_export_opts o)
{
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    o.force = true; /* the same name serves many models */
    CHECK_OK(af_export(model, out, &o, &r, &v, &err), err);
    af_convert_report_free(r);
    return v;
}

static bool same_json(const char *a, const char *b)
{
    json_t *x = json_load_file(a, JSON_DECODE_INT_AS_REAL, NULL);
    json_t *y = json_load_file(b, JSON_DECODE_INT_AS_REAL, NULL);
    const bool same = x && y && json_equal(x, y);
    json_decref(x);
    json_decref(y);
    return same;
}

static void test_a_folder_comes_back_from_gguf_as_it_was(void **state)
{
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer.json",
                                        "tokenizer_config.json"};
    scratch_dir d = scratch_new();
    char model[PATH], file[PATH], back[PATH], a[PATH], b[PATH];
    (void)state;
    gold(model, sizeof model, "gguf_models/llama/hf");
    const af_verify_result v = export(model, join(file, sizeof file, d.path, "m.gguf"),
                                      (af_export_opts){.type = "f32", .threads = 2});
    assert_true(v.ran && v.ok && v.stops);
    assert_true(v.logit_error < 1e-6);
    const af_verify_result w =
        export(file, join(back, sizeof back, d.path, "back"), (af_export_opts){.threads = 2});
    assert_true(w.ran && w.ok);
    assert_true(same_tensors(back, model));
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        CHECK_MSG(same_json(join(a, sizeof a, model, files[i]), join(b, sizeof b, back, files[i])),
                  "%s", files[i]);
    char *x = NULL, *y = NULL;
    uint64_t n, m;
    af_error err = {0};
    CHECK_OK(af_file_read(&x, &n, join(a, sizeof a, model, "chat_template.jinja"), 1 << 20, &err),
             err);
    CHECK_OK(af_file_read(&y, &m, join(b, sizeof b, back, "chat_template.jinja"), 1 << 20, &err),
             err);
    assert_string_equal(x, y);
    free(x);
    free(y);
    scratch_free(&d);
}

static void test_every_family_that_gguf_can_express_agrees_with_its_source(void **state)
{
    static const char *const names[] = {"gemma",       "granite",    "linear",
                                        "llama3_tiny", "olmo2",      "phi3_longrope",
                                        "qwen2_tiny",  "qwen3_tiny", "yarn"};
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char sub[64], model[PATH], out[PATH];
        snprintf(sub, sizeof sub, "models/%s", names[i]);
        gold(model, sizeof model, sub);
        const af_verify_result v = export(model, join(out, sizeof out, d.path, "m.gguf"),
                                          (af_export_opts){.type = "f32", .threads = 2});
        CHECK_MSG(v.ok && v.logit_error < 1e-5, "%s: %g", names[i], v.logit_error);
    }
    scratch_free(&d);
}

/* A model of the golden folder with some keys of its config replaced. */
static void patched(char *out, size_t size, const scratch_dir *d, const char *name,
                    const char *patch)
{
    char from[PATH], sub[64], a[PATH], b[PATH];
    af_error err = {0};
    json_error_t why;
    snprintf(sub, sizeof sub, "models/%s", name);
    gold(from, sizeof from, sub);
    join(out, size, d->path, "model");
    CHECK_OK(af_dir_make(out, &err), err);
    join(a, sizeof a, from, "model.safetensors");
    join(b, sizeof b, out, "model.safetensors");
    if (strstr(patch, "\"tie_word_embeddings\":true"))
        copy_without_head(a, b);
    else
        CHECK_OK(af_file_copy(a, b, &err), err);
    json_t *config = json_load_file(join(a, sizeof a, from, "config.json"), 0, NULL);
    json_t *change = json_loads(patch, 0, &why);
    CHECK_MSG(config && change, "%s: %s", patch, why.text);
    json_object_update_recursive(config, change);
    assert_int_equal(json_dump_file(config, join(b, sizeof b, out, "config.json"), 0), 0);
    json_decref(config);
    json_decref(change);
}

/* Also without verification: one message that names the key, and no file. */
static void test_what_gguf_cannot_express_is_refused(void **state)
{
    static const struct {
        const char *model, *patch, *key;
    } cases[] = {
        {"llama3_tiny", "{\"hidden_act\":\"gelu\"}", "hidden_act is 'gelu'"},
        {"qwen3_tiny", "{\"hidden_act\":\"relu\"}", "hidden_act is 'relu'"},
        {"gemma2_tiny", "{}", "query_pre_attn_scalar"},
        {"gemma2_tiny",
         "{\"query_pre_attn_scalar\":8,"
         "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
         "layer_types"},
        {"gemma3_text", "{\"query_pre_attn_scalar\":8}", "layer_types"},
        {"yarn", "{\"rope_parameters\":{\"truncate\":false,\"beta_slow\":0.05}}",
         "rope_scaling 'yarn'"},
        {"smollm3", "{\"no_rope_layers\":[0,1,1,1]}", "no_rope_layers"},
        {"qwen3_moe_raw", "{}", "norm_topk_prob"},
        {"olmo2", "{\"tie_word_embeddings\":true}", "tie_word_embeddings"},
        {"qwen2_tiny",
         "{\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":16}}",
         "llama3"},
    };
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char model[PATH], out[PATH];
        af_error err = {0};
        af_convert_report *r = NULL;
        af_verify_result v;
        patched(model, sizeof model, &d, cases[i].model, cases[i].patch);
        const af_status st =
            af_export(model, join(out, sizeof out, d.path, "m.gguf"),
                      &(af_export_opts){.type = "f32", .no_verify = true}, &r, &v, &err);
        CHECK_MSG(st == AF_EUNSUPPORTED && strstr(err.msg, cases[i].key), "%s %s: %s",
                  cases[i].model, cases[i].patch, err.msg);
        assert_false(af_file_exists(out));
        af_convert_report_free(r);
    }
    scratch_free(&d);
}

/* llama.cpp multiplies the file's factor with 1 + ln(4)/10, which is yarn's own. */
static void test_yarn_stores_only_the_factor_beyond_its_own_scale(void **state)
{
    static const struct {
        const char *patch;
        double factor; /* 0: the key is absent */
    } cases[] = {
        {"{}", 0},
        {"{\"rope_parameters\":{\"attention_factor\":1.5}}", 1.5 / 1.1386294361},
        {"{\"rope_parameters\":{\"mscale\":0.7,\"mscale_all_dim\":1.2}}",
         1.0970406053 / 1.1663553233 / 1.1386294361},
    };
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char model[PATH], out[PATH];
        af_error err = {0};
        af_gguf *g = NULL;
        patched(model, sizeof model, &d, "yarn", cases[i].patch);
        const af_verify_result v =
            export(model, join(out, sizeof out, d.path, "m.gguf"), (af_export_opts){.type = "f32"});
        CHECK_MSG(v.ok && v.logit_error < 1e-5, "%s: %g", cases[i].patch, v.logit_error);
        CHECK_OK(af_gguf_open(&g, out, &err), err);
        const double got = af_gguf_float(g, "llama.rope.scaling.attn_factor", 0);
        CHECK_MSG(fabs(got - cases[i].factor) < 1e-6, "%s: %.9g", cases[i].patch, got);
        af_gguf_close(g);
    }
    scratch_free(&d);
}

static void test_weights_of_every_family_come_back_bit_for_bit(void **state)
{
    static const struct {
        const char *name, *patch;
    } cases[] = {{"gemma", "{}"},
                 {"gemma2_tiny", "{\"query_pre_attn_scalar\":8}"},
                 {"gemma3_text",
                  "{\"query_pre_attn_scalar\":8,\"layer_types\":[\"sliding_attention\","
                  "\"sliding_attention\",\"sliding_attention\"]}"},
                 {"olmo2", "{}"},
                 {"phi3_longrope", "{}"},
                 {"qwen3_tiny", "{}"}};
    scratch_dir d = scratch_new();
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char model[PATH], out[PATH], back[PATH];
        patched(model, sizeof model, &d, cases[i].name, cases[i].patch);
        join(out, sizeof out, d.path, "m.gguf");
        join(back, sizeof back, d.path, cases[i].name);
        export(model, out, (af_export_opts){.type = "f32", .no_verify = true, .threads = 2});
        export(out, back, (af_export_opts){.no_verify = true, .threads = 2});
        CHECK_MSG(same_tensors(back, model), "%s", cases[i].name);
    }
    scratch_free(&d);
}

/* A model whose head has values too small for f16. */
static void with_faint_head(char *model, size_t size, const scratch_dir *d)
{
    char path[PATH], *text = NULL;
    uint64_t bytes = 0;
    af_error err = {0};
    af_safetensors *f = NULL;
    patched(model, size, d, "mistral_tiny", "{}");
    join(path, sizeof path, model, "model.safetensors");
    CHECK_OK(af_file_read(&text, &bytes, path, 1 << 20, &err), err);
    CHECK_OK(af_safetensors_open(&f, path, &err), err);
    const af_stored *head = af_safetensors_find(f, "lm_head.weight");
    assert_true(head && head->dtype == AF_DTYPE_F32);
    char *at = text + ((const uint8_t *)head->data - af_safetensors_map(f)->data);
    for (int64_t i = 0; i < af_weight_count(head); i++) {
        const float x = ((const float *)head->data)[i] * 1e-12f;
        memcpy(at + i * 4, &x, sizeof x);
    }
    af_safetensors_close(f);
    CHECK_OK(af_file_write(path, text, bytes, &err), err);
    free(text);
}

static void test_verification_fails_where_gguf_loses_something(void **state)
{
    scratch_dir d = scratch_new(), other = scratch_new();
    char model[PATH], out[PATH];
    (void)state;
    with_faint_head(model, sizeof model, &other);
    const af_verify_result v = export(model, join(out, sizeof out, d.path, "m.gguf"),
                                      (af_export_opts){.type = "f16", .threads = 2});
    assert_true(v.ran && !v.ok);
    assert_true(v.message[0] != '\0');
    assert_false(af_file_exists(out)); /* so that it cannot be mistaken for the model */
    assert_false(af_file_exists(join(out, sizeof out, d.path, "Modelfile")));
    af_error err = {0};
    char **names;
    int count;
    CHECK_OK(af_output_write(join(out, sizeof out, d.path, "m.gguf"), "old", 3, false, &err), err);
    assert_false(export(model, out, (af_export_opts){.type = "f16", .threads = 2}).ok);
    assert_int_equal(af_file_size(out), 3); /* what was there stays, and nothing else */
    CHECK_OK(af_dir_list(&names, &count, d.path, &err), err);
    assert_int_equal(count, 2); /* it and the manifest */
    af_names_free(names, count);
    const af_verify_result kept = export(model, join(out, sizeof out, d.path, "m.gguf"),
                                         (af_export_opts){.type = "f16", .no_verify = true});
    assert_true(kept.ok && af_file_exists(out));
    /* a type that holds it; beyond its window of 4 tokens the file attends to more, as it must */
    const af_verify_result whole = export(model, out, (af_export_opts){.type = "f32"});
    assert_true(whole.ok && whole.positions == 8);
    scratch_free(&d);
    scratch_free(&other);
}

static void test_adapter_gguf_is_llama_cpps(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], out[PATH], golden[PATH];
    af_error err = {0};
    af_gguf *g = NULL;
    size_t i;
    json_t *want, *t;
    (void)state;
    gold(model, sizeof model, "gguf_models/llama/hf");
    gold(adapter, sizeof adapter, "gguf_models/llama/lora");
    export(model, join(out, sizeof out, d.path, "lora.gguf"),
           (af_export_opts){.adapter = adapter, .adapter_only = true});
    want = json_load_file(gold(golden, sizeof golden, "gguf_models/llama/gguf_lora.json"), 0, NULL);
    CHECK_OK(af_gguf_open(&g, out, &err), err);
    assert_true(af_gguf_float(g, "adapter.lora.alpha", 0) == 16);
    json_array_foreach(json_object_get(want, "tensors"), i, t)
    {
        const af_stored *s = af_gguf_find(g, json_string_value(json_object_get(t, "name")));
        af_sha256 sum;
        char hex[65];
        assert_non_null(s);
        af_sha256_init(&sum);
        af_sha256_add(&sum, s->data, s->bytes);
        af_sha256_hex(&sum, hex);
        assert_string_equal(hex, json_string_value(json_object_get(t, "sha256")));
    }
    af_gguf_close(g);
    json_decref(want);
    scratch_free(&d);
}

/* The adapter with its A in Q8_0, as convert_lora_to_gguf.py --outtype q8_0 makes it. */
static void quantise_a(const char *from, const char *to)
{
    af_error err = {0};
    af_gguf *g;
    af_gguf_writer *w;
    CHECK_OK(af_gguf_open(&g, from, &err), err);
    CHECK_OK(af_gguf_writer_new(&w, to, &err), err);
    for (int i = 0; i < af_gguf_kv_count(g); i++)
        CHECK_OK(af_gguf_put_kv(w, af_gguf_kv_at(g, i), &err), err);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < af_gguf_count(g); i++) {
            const af_stored *t = af_gguf_at(g, i);
            const bool low = strstr(t->name, ".lora_a") && af_weight_cols(t) % 32 == 0;
            uint8_t *codes = calloc(1, t->bytes);
            uint64_t bytes = t->bytes;
            if (low && af_dtype_bytes(AF_DTYPE_Q8_0, (uint64_t)af_weight_count(t), &bytes))
                af_codec_encode_row(AF_DTYPE_Q8_0, t->data, codes, af_weight_count(t), NULL);
            if (pass)
                CHECK_OK(af_gguf_writer_data(w, low ? codes : t->data, bytes, &err), err);
            else
                CHECK_OK(af_gguf_put_tensor(w, t->name, low ? AF_DTYPE_Q8_0 : t->dtype, t->dim,
                                            t->ndim, &err),
                         err);
            free(codes);
        }
        if (pass == 0)
            CHECK_OK(af_gguf_writer_begin(w, &err), err);
    }
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
    af_gguf_close(g);
}

/* What llama.cpp reads is read here, too: the matrices of the folder it was made from. */
static void test_adapter_gguf_is_read_back(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], out[PATH];
    af_error err = {0};
    af_model_reader *in = NULL;
    af_adapter *a = NULL, *b = NULL;
    (void)state;
    gold(model, sizeof model, "gguf_models/llama/hf"); /* rows of q and k are interleaved there */
    gold(adapter, sizeof adapter, "gguf_models/llama/lora");
    export(model, join(out, sizeof out, d.path, "lora.gguf"),
           (af_export_opts){.adapter = adapter, .adapter_only = true});
    CHECK_OK(af_model_reader_open(&in, model, &err), err);
    CHECK_OK(af_model_reader_match(in, &err), err);
    const af_model_spec *s = af_model_reader_spec(in);
    CHECK_OK(af_adapter_read(&a, s, adapter, &err), err);
    CHECK_OK(af_adapter_read(&b, s, out, &err), err);
    for (int i = 0; i < s->modules; i++) {
        const af_adapter_module *x = &a->module[i], *y = &b->module[i];
        assert_int_equal(x->rank, y->rank);
        assert_true(x->scale == y->scale);
        if (!x->rank)
            continue;
        const uint64_t rank = (uint64_t)x->rank * sizeof(float);
        assert_memory_equal(x->a, y->a, rank * (uint64_t)s->module[i].in);
        assert_memory_equal(x->b, y->b, rank * (uint64_t)s->module[i].out);
    }
    assert_int_equal(b->config.r, a->config.r);
    assert_int_equal(b->config.rank_patterns + b->config.alpha_patterns, 0);
    af_adapter_free(b);
    char coarse[PATH];
    quantise_a(out, join(coarse, sizeof coarse, d.path, "coarse.gguf"));
    CHECK_OK(af_adapter_read(&b, s, coarse, &err), err);
    for (int i = 0; i < s->modules; i++)
        for (int64_t k = 0; k < a->module[i].rank * s->module[i].in; k++)
            assert_true(fabsf(a->module[i].a[k] - b->module[i].a[k]) < 2e-3f);
    af_adapter_free(a);
    af_adapter_free(b);
    export(model, join(out, sizeof out, d.path, "model.gguf"), (af_export_opts){.type = "f32"});
    assert_int_equal(af_adapter_read(&b, s, out, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "general.type is 'model'"), "says '%s'", err.msg);
    af_model_reader_close(in);
    scratch_free(&d);
}

/* llama.cpp's strength is alpha / rank: with rsLoRA that has to give alpha / sqrt(rank). */
static void test_adapter_gguf_has_the_strength_of_rslora(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], out[PATH], config[PATH];
    af_error err = {0};
    af_gguf *g = NULL;
    (void)state;
    gold(model, sizeof model, "merge/models/base");
    gold(adapter, sizeof adapter, "peft/rslora");
    export(model, join(out, sizeof out, d.path, "lora.gguf"),
           (af_export_opts){.adapter = adapter, .adapter_only = true});
    json_t *c =
        json_load_file(join(config, sizeof config, adapter, "adapter_config.json"), 0, NULL);
    const double r = json_number_value(json_object_get(c, "r"));
    const double alpha = json_number_value(json_object_get(c, "lora_alpha"));
    CHECK_OK(af_gguf_open(&g, out, &err), err);
    assert_true(fabs(af_gguf_float(g, "adapter.lora.alpha", 0) - alpha * sqrt(r)) < 1e-5);
    af_gguf_close(g);
    json_decref(c);
    scratch_free(&d);
}

/* One alpha serves all modules of a GGUF adapter: where alpha_pattern or rank_pattern give a module
 * another strength, its B carries the difference: alpha / rank * B is PEFT's scale * B. */
static void test_adapter_gguf_has_the_strength_of_each_module(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], adapter[PATH], out[PATH], name[200];
    af_error err = {0};
    af_gguf *g = NULL;
    af_weights *w = NULL;
    double most = 0;
    (void)state;
    gold(model, sizeof model, "merge/models/base");
    gold(adapter, sizeof adapter, "peft/patterns"); /* lora_alpha 4, of o_proj 12 */
    export(model, join(out, sizeof out, d.path, "lora.gguf"),
           (af_export_opts){.adapter = adapter, .adapter_only = true});
    CHECK_OK(af_gguf_open(&g, out, &err), err);
    CHECK_OK(af_weights_open(&w, adapter, &err), err);
    const double alpha = af_gguf_float(g, "adapter.lora.alpha", 0);
    snprintf(name, sizeof name, "base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight");
    const af_stored *b = af_weights_find(w, name),
                    *e = af_gguf_find(g, "blk.0.attn_output.weight.lora_b");
    assert_true(b && e && b->bytes == e->bytes);
    const double rank = (double)b->dim[1], strength = 12 / rank;
    for (uint64_t i = 0; i < b->bytes / 4; i++) {
        const double want = strength * (double)((const float *)b->data)[i];
        most = worse(most, fabs(want));
        CHECK_MSG(fabs(alpha / rank * (double)((const float *)e->data)[i] - want) <=
                      1e-6 * fabs(want) + 1e-12,
                  "value %d", (int)i);
    }
    assert_true(most > 0);
    af_weights_close(w);
    af_gguf_close(g);
    scratch_free(&d);
}

static void test_adapters_survive_a_round_trip_through_mlx(void **state)
{
    scratch_dir d = scratch_new();
    char adapter[PATH], mlx[PATH], back[PATH], config[PATH];
    (void)state;
    gold(adapter, sizeof adapter, "gguf_models/llama/lora");
    export(adapter, join(mlx, sizeof mlx, d.path, "mlx"), (af_export_opts){0});
    json_t *c = json_load_file(join(config, sizeof config, mlx, "adapter_config.json"), 0, NULL);
    const json_t *p = json_object_get(c, "lora_parameters");
    assert_int_equal(json_integer_value(json_object_get(p, "rank")), 8);
    assert_true(json_number_value(json_object_get(p, "scale")) == 2);
    json_decref(c);
    export(mlx, join(back, sizeof back, d.path, "back"), (af_export_opts){0});
    assert_true(same_tensors(back, adapter));
    gold(adapter, sizeof adapter, "models/adapters/dora"); /* with magnitudes */
    export(adapter, join(mlx, sizeof mlx, d.path, "mlx-dora"), (af_export_opts){0});
    c = json_load_file(join(config, sizeof config, mlx, "adapter_config.json"), 0, NULL);
    assert_string_equal(json_string_value(json_object_get(c, "fine_tune_type")), "dora");
    json_decref(c);
    export(mlx, join(back, sizeof back, d.path, "back-dora"), (af_export_opts){0});
    assert_true(same_tensors(back, adapter));
    c = json_load_file(join(config, sizeof config, back, "adapter_config.json"), 0, NULL);
    assert_true(json_is_true(json_object_get(c, "use_dora")));
    json_decref(c);
    scratch_free(&d);
}

static void test_modelfile_stops_at_the_end_of_a_turn(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], out[PATH], path[PATH], *text = NULL;
    af_error err = {0};
    uint64_t n;
    (void)state;
    gold(model, sizeof model, "gguf_models/llama/hf");
    export(model, join(out, sizeof out, d.path, "m.gguf"),
           (af_export_opts){.type = "q8_0", .no_verify = true});
    CHECK_OK(af_file_read(&text, &n, join(path, sizeof path, d.path, "Modelfile"), 1 << 20, &err),
             err);
    assert_non_null(strstr(text, "FROM ./m.gguf\n"));
    assert_non_null(strstr(text, "PARAMETER stop \"<|im_end|>\"\n"));
    assert_non_null(strstr(text, "<|im_start|>user\n{{ end }}{{ .Prompt }}<|im_end|>\n"
                                 "<|im_start|>assistant\n{{ .Response }}<|im_end|>\n"));
    free(text);
    scratch_free(&d);
}

static void test_importance_matrices_are_read_and_written(void **state)
{
    scratch_dir d = scratch_new();
    char path[PATH];
    af_error err = {0};
    af_imatrix m = {0}, back = {0};
    /* one entry: name of 3 bytes, 2 calls, 2 values */
    static const uint8_t bytes[] = {1, 0, 0, 0, 3, 0, 0, 0,   'a', '.', 'b', 2, 0, 0,
                                    0, 2, 0, 0, 0, 0, 0, 128, 63,  0,   0,   0, 64};
    (void)state;
    CHECK_OK(af_imatrix_parse(&m, bytes, sizeof bytes, "test", &err), err);
    assert_int_equal(m.count, 1);
    assert_true(m.entry[0].values[0] == 0.5f && m.entry[0].values[1] == 1.0f);
    m.chunks = 2;
    m.dataset = "text";
    for (int binary = 0; binary < 2; binary++) {
        join(path, sizeof path, d.path, binary ? "i.dat" : "i.gguf");
        CHECK_OK(af_imatrix_write(&m, path, &err), err);
        CHECK_OK(af_imatrix_read(&back, path, &err), err);
        const af_imatrix_entry *e = af_imatrix_find(&back, "a.b");
        assert_true(e->values[0] == 0.5f && e->values[1] == 1.0f && e->matrices == 1);
        assert_true(e->sums[1] == 1024.0f && e->counts[0] == 1024.0f);
        assert_true(back.chunks == 2 && back.chunk_size == 512);
        assert_string_equal(back.dataset, "text");
        af_imatrix_clear(&back);
    }
    for (size_t n = 0; n < sizeof bytes; n++) { /* cut anywhere: refused */
        af_imatrix cut = {0};
        assert_int_equal(af_imatrix_parse(&cut, bytes, n, "cut", &err), AF_EFORMAT);
    }
    af_imatrix_clear(&m);
    scratch_free(&d);
}

static void count_cuts(void *user, af_log_level level, const char *line)
{
    *(int *)user += level == AF_LOG_WARN && strstr(line, "other tokens than that of the folder");
}

/* GGUF cannot store a normalizer: texts are tokenised differently, which must give a warning. */
static void test_a_tokenizer_that_gguf_changes_gives_a_warning(void **state)
{
    (void)state;
    for (int lower = 0; lower < 2; lower++) {
        static const char *const files[] = {"config.json", "model.safetensors",
                                            "tokenizer_config.json"};
        scratch_dir d = scratch_new();
        char from[PATH], model[PATH], path[PATH], out[PATH];
        af_error err = {0};
        af_convert_report *r = NULL;
        af_verify_result v;
        int warnings = 0;
        gold(from, sizeof from, "gguf_models/llama/hf");
        CHECK_OK(af_dir_make(join(model, sizeof model, d.path, "model"), &err), err);
        for (size_t i = 0; i < AF_LEN(files); i++)
            CHECK_OK(af_file_copy_into(from, model, files[i], &err), err);
        json_t *t = json_load_file(join(path, sizeof path, from, "tokenizer.json"), 0, NULL);
        assert_non_null(t);
        if (lower)
            json_object_set_new(t, "normalizer", json_pack("{s:s}", "type", "Lowercase"));
        assert_int_equal(json_dump_file(t, join(path, sizeof path, model, "tokenizer.json"), 0), 0);
        json_decref(t);
        af_log_set(count_cuts, &warnings);
        CHECK_OK(af_export(model, join(out, sizeof out, d.path, "m.gguf"),
                           &(af_export_opts){.type = "f32", .force = true}, &r, &v, &err),
                 err);
        af_log_set(NULL, NULL);
        assert_true(v.ok);
        assert_int_equal(warnings, lower);
        af_convert_report_free(r);
        scratch_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_folder_comes_back_from_gguf_as_it_was),
        cmocka_unit_test(test_every_family_that_gguf_can_express_agrees_with_its_source),
        cmocka_unit_test(test_weights_of_every_family_come_back_bit_for_bit),
        cmocka_unit_test(test_what_gguf_cannot_express_is_refused),
        cmocka_unit_test(test_yarn_stores_only_the_factor_beyond_its_own_scale),
        cmocka_unit_test(test_verification_fails_where_gguf_loses_something),
        cmocka_unit_test(test_adapter_gguf_is_llama_cpps),
        cmocka_unit_test(test_adapter_gguf_is_read_back),
        cmocka_unit_test(test_adapter_gguf_has_the_strength_of_rslora),
        cmocka_unit_test(test_adapter_gguf_has_the_strength_of_each_module),
        cmocka_unit_test(test_adapters_survive_a_round_trip_through_mlx),
        cmocka_unit_test(test_modelfile_stops_at_the_end_of_a_turn),
        cmocka_unit_test(test_a_tokenizer_that_gguf_changes_gives_a_warning),
        cmocka_unit_test(test_importance_matrices_are_read_and_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
