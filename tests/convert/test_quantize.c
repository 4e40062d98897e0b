/* test_quantize.c - bitsandbytes folders and GGUF files, byte for byte. */
#include "convert_case.h"

#include "base/hash.h"
#include "convert/quantize/quant_mix.h"
#include "format/weights/bnb_state.h"

#include <jansson.h>

enum { PATH = 1024 };

static const char config_text[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 160,"
    "\"hidden_size\": 64, \"intermediate_size\": 112, \"num_hidden_layers\": 2, \"torch_dtype\": "
    "\"bfloat16\", \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-05, \"hidden_act\": \"silu\", "
    "\"tie_word_embeddings\": false}";

static void make_model(const char *dir)
{
    af_error err = {0};
    char from[PATH], to[PATH];
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_file_copy(join(from, sizeof from, golden_dir(), "bnb_model/bf16.safetensors"),
                          join(to, sizeof to, dir, "model.safetensors"), &err),
             err);
    join(to, sizeof to, dir, "config.json");
    CHECK_OK(af_file_write(to, config_text, strlen(config_text), &err), err);
}

static void quantize(const char *model, const char *out, af_quantize_opts o)
{
    af_error err = {0};
    af_convert_report *r = NULL;
    o.force = true; /* the same name serves many types */
    CHECK_OK(af_quantize(&r, model, out, &o, &err), err);
    assert_true(r->rows > 0 && r->bits_per_weight > 1 && r->bits_per_weight <= 32);
    af_convert_report_free(r);
}

/* Codes and scales are the golden's; the offset is a mean in another order, so its last bit and the
 * one scale derived from it may differ; fp4 and int8 codes on a threshold too (their README). */
static int64_t count_different(const char *ours, const char *golden)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    int64_t different = 0;
    CHECK_OK(af_weights_open(&a, ours, &err), err);
    CHECK_OK(af_weights_open(&b, golden, &err), err);
    assert_int_equal(af_weights_count(a), af_weights_count(b));
    for (int i = 0; i < af_weights_count(b); i++) {
        const af_stored *want = af_weights_at(b, i), *have = af_weights_find(a, want->name);
        CHECK_MSG(have && have->dtype == want->dtype && have->ndim == want->ndim, "%s", want->name);
        if (strstr(want->name, "quant_state")) {
            af_bnb_state x, y;
            bool found;
            char name[PATH];
            snprintf(name, sizeof name, "%.*s",
                     (int)(strstr(want->name, ".quant_state") - want->name), want->name);
            CHECK_OK(af_bnb_state_find(&x, &found, a, name, &err), err);
            CHECK_OK(af_bnb_state_find(&y, &found, b, name, &err), err);
            assert_true(x.dtype == y.dtype && x.block == y.block && x.count == y.count);
            assert_true(fabs((double)x.nested_offset - y.nested_offset) < 1e-6);
        } else if (strstr(want->name, "nested_absmax")) {
            assert_true(fabsf(*(const float *)want->data - *(const float *)have->data) < 1e-6f);
        } else {
            assert_int_equal(have->bytes, want->bytes);
            for (uint64_t k = 0; k < want->bytes; k++)
                different += ((const uint8_t *)want->data)[k] != ((const uint8_t *)have->data)[k];
        }
    }
    af_weights_close(a);
    af_weights_close(b);
    return different;
}

static void test_bitsandbytes_folders_have_its_bytes(void **state)
{
    static const struct {
        const char *golden;
        af_quantize_opts o;
        int64_t may_differ; /* of 34,000 to 68,000 codes */
    } cases[] = {
        {"bnb_model/nf4_dq.safetensors", {.type = "nf4", .threads = 2}, 0},
        {"bnb_model/fp4.safetensors", {.type = "fp4", .no_double_quant = true, .threads = 2}, 8},
        {"bnb_model/int8.safetensors", {.type = "int8", .threads = 1}, 8},
    };
    scratch_dir d = scratch_new();
    char model[PATH], out[PATH], golden[PATH];
    (void)state;
    make_model(join(model, sizeof model, d.path, "model"));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        quantize(model, join(out, sizeof out, d.path, cases[i].o.type), cases[i].o);
        const int64_t n =
            count_different(out, join(golden, sizeof golden, golden_dir(), cases[i].golden));
        CHECK_MSG(n <= cases[i].may_differ, "%s: %lld bytes differ", cases[i].o.type, (long long)n);
    }
    scratch_free(&d);
}

static void test_threads_do_not_change_bytes(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], a[PATH], b[PATH];
    (void)state;
    make_model(join(model, sizeof model, d.path, "model"));
    quantize(model, join(a, sizeof a, d.path, "a"),
             (af_quantize_opts){.type = "nf4", .threads = 1});
    quantize(model, join(b, sizeof b, d.path, "b"),
             (af_quantize_opts){.type = "nf4", .threads = 7});
    assert_true(same_tensors(a, b));
    quantize(model, join(a, sizeof a, d.path, "a.gguf"),
             (af_quantize_opts){.type = "q5_0", .threads = 1});
    quantize(model, join(b, sizeof b, d.path, "b.gguf"),
             (af_quantize_opts){.type = "q5_0", .threads = 3});
    assert_true(same_tensors(a, b));
    scratch_free(&d);
}

/* ---- GGUF ---- */

static void check_value(const af_gguf *g, const char *key, const json_t *want)
{
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    const json_t *value = json_object_get(want, "value");
    const char *type = json_string_value(json_object_get(want, "type"));
    CHECK_MSG(kv != NULL, "no key %s", key);
    if (json_is_string(value)) {
        assert_int_equal(kv->type, AF_GGUF_STRING);
        assert_int_equal(kv->str[0].len, json_string_length(value));
        assert_memory_equal(kv->str[0].at, json_string_value(value), kv->str[0].len);
    } else if (json_is_number(value)) {
        assert_string_equal(type, kv->type == AF_GGUF_F32   ? "FLOAT32"
                                  : kv->type == AF_GGUF_U32 ? "UINT32"
                                                            : "?");
        CHECK_MSG(af_gguf_item_float(kv, 0) == json_number_value(value) ||
                      (double)af_gguf_item_int(kv, 0) == json_number_value(value),
                  "%s", key);
    } else {
        assert_int_equal(kv->count, json_integer_value(json_object_get(value, "length")));
    }
}

static void check_gguf(const char *path, const char *golden)
{
    af_error err = {0};
    af_gguf *g = NULL;
    json_t *want = json_load_file(golden, 0, NULL);
    const char *key;
    json_t *value;
    size_t i;
    assert_non_null(want);
    CHECK_OK(af_gguf_open(&g, path, &err), err);
    json_object_foreach(json_object_get(want, "metadata"), key, value)
    {
        if (strncmp(key, "GGUF.", 5) != 0)
            check_value(g, key, value);
    }
    json_array_foreach(json_object_get(want, "tensors"), i, value)
    {
        const char *name = json_string_value(json_object_get(value, "name"));
        const af_stored *t = af_gguf_find(g, name);
        af_sha256 s;
        char hex[65];
        CHECK_MSG(t != NULL, "no tensor %s", name);
        af_sha256_init(&s);
        af_sha256_add(&s, t->data, t->bytes);
        af_sha256_hex(&s, hex);
        CHECK_MSG(strcmp(hex, json_string_value(json_object_get(value, "sha256"))) == 0, "%s",
                  name);
    }
    assert_int_equal(af_gguf_count(g), json_array_size(json_object_get(want, "tensors")));
    af_gguf_close(g);
    json_decref(want);
}

static void test_gguf_files_are_llama_cpps(void **state)
{
    static const char *const types[] = {"f32", "f16", "q8_0"};
    scratch_dir d = scratch_new();
    char model[PATH], out[PATH], golden[PATH], sub[128];
    (void)state;
    join(model, sizeof model, golden_dir(), "gguf_models/llama/hf");
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        join(out, sizeof out, d.path, "m.gguf");
        quantize(model, out, (af_quantize_opts){.type = types[i], .threads = 2});
        snprintf(sub, sizeof sub, "gguf_models/llama/gguf_%s.json", types[i]);
        check_gguf(out, join(golden, sizeof golden, golden_dir(), sub));
    }
    scratch_free(&d);
}

/* Every second tensor of `from`, as gguf-split would have it. */
static void write_part(const char *path, const af_gguf *from, int no)
{
    af_error err = {0};
    af_gguf_writer *w;
    const int n = af_gguf_count(from);
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    for (int i = 0; i < af_gguf_kv_count(from) && no == 0; i++)
        CHECK_OK(af_gguf_put_kv(w, af_gguf_kv_at(from, i), &err), err);
    CHECK_OK(af_gguf_put_int(w, "split.no", AF_GGUF_U16, no, &err), err);
    CHECK_OK(af_gguf_put_int(w, "split.count", AF_GGUF_U16, 2, &err), err);
    CHECK_OK(af_gguf_put_int(w, "split.tensors.count", AF_GGUF_I32, n, &err), err);
    for (int i = no; i < n; i += 2) {
        const af_stored *t = af_gguf_at(from, i);
        CHECK_OK(af_gguf_put_tensor(w, t->name, t->dtype, t->dim, t->ndim, &err), err);
    }
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    for (int i = no; i < n; i += 2) {
        const af_stored *t = af_gguf_at(from, i);
        CHECK_OK(af_gguf_writer_data(w, t->data, t->bytes, &err), err);
    }
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
}

static void test_split_models_give_the_bytes_of_whole_ones(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], whole[PATH], path[PATH], out[PATH];
    af_error err = {0};
    af_gguf *g;
    (void)state;
    join(model, sizeof model, golden_dir(), "gguf_models/llama/hf");
    quantize(model, join(whole, sizeof whole, d.path, "whole.gguf"),
             (af_quantize_opts){.type = "f16", .threads = 2});
    CHECK_OK(af_gguf_open(&g, whole, &err), err);
    CHECK_OK(af_dir_make(join(model, sizeof model, d.path, "split"), &err), err);
    write_part(join(path, sizeof path, d.path, "split/m-00001-of-00002.gguf"), g, 0);
    write_part(join(path, sizeof path, d.path, "split/m-00002-of-00002.gguf"), g, 1);
    af_gguf_close(g);
    quantize(whole, join(path, sizeof path, d.path, "of_whole.gguf"),
             (af_quantize_opts){.type = "q8_0", .threads = 2});
    quantize(model, join(out, sizeof out, d.path, "of_split.gguf"),
             (af_quantize_opts){.type = "q8_0", .threads = 2});
    af_map a, b;
    CHECK_OK(af_map_open(&a, path, &err), err);
    CHECK_OK(af_map_open(&b, out, &err), err);
    assert_int_equal(a.size, b.size); /* no keys of the split either */
    assert_memory_equal(a.data, b.data, a.size);
    af_map_close(&a);
    af_map_close(&b);
    scratch_free(&d);
}

static void test_other_families_when_the_goldens_are_there(void **state)
{
    static const char *const cases[][2] = {{"qwen2", "f16"},
                                           {"qwen2", "q8_0"},
                                           {"qwen3", "f16"},
                                           {"gemma3", "f16"},
                                           {"llama_k", "Q4_K_M"}};
    const char *shared = shared_dir();
    (void)state;
    if (!shared)
        skip_because("no shared goldens");
    scratch_dir d = scratch_new();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char model[PATH], out[PATH], golden[PATH];
        snprintf(model, sizeof model, "%s/golden/convert/gguf_models/%s/hf", shared, cases[i][0]);
        snprintf(golden, sizeof golden, "%s/golden/convert/gguf_models/%s/gguf_%s.json", shared,
                 cases[i][0], cases[i][1]);
        quantize(model, join(out, sizeof out, d.path, "m.gguf"),
                 (af_quantize_opts){.type = cases[i][1], .threads = 2});
        check_gguf(out, golden);
    }
    scratch_free(&d);
}

static void test_mixes_are_llama_cpps(void **state)
{
    char path[PATH];
    const char *mix_name, *type_name;
    json_t *types, *names, *name;
    size_t i;
    (void)state;
    json_t *all = json_load_file(
        join(path, sizeof path, golden_dir(), "gguf_models/quant_mix.json"), 0, NULL);
    assert_non_null(all);
    int mixes = 0;
    json_object_foreach(json_object_get(all, "types"), mix_name, types)
    {
        af_mix mix;
        CHECK_MSG(af_mix_by_name(&mix, mix_name), "%s", mix_name);
        mixes++;
        json_object_foreach(types, type_name, names)
        {
            json_array_foreach(names, i, name)
            {
                const af_mix_model m = {.layers = 12, .gqa = 4};
                const char *s = json_string_value(name);
                af_dtype want;
                bool fell;
                int layer = -1;
                sscanf(s, "blk.%d.", &layer);
                assert_true(af_dtype_by_name(&want, type_name));
                CHECK_MSG(af_mix_type(mix, &m, s, 2, 256, layer, &fell) == want, "%s: %s is not %s",
                          mix_name, s, type_name);
                assert_false(fell);
            }
        }
    }
    assert_int_equal(mixes, 21);
    json_decref(all);
}

static void test_rows_that_do_not_fill_blocks_fall_back(void **state)
{
    const af_mix_model m = {.layers = 12, .gqa = 1};
    bool fell;
    (void)state;
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &m, "blk.1.attn_q.weight", 2, 96, 1, &fell),
                     AF_DTYPE_Q5_0);
    assert_true(fell);
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &m, "blk.0.attn_v.weight", 2, 96, 0, &fell),
                     AF_DTYPE_Q8_0);
    assert_int_equal(af_mix_type(AF_MIX_Q2_K, &m, "blk.0.attn_q.weight", 2, 96, 0, &fell),
                     AF_DTYPE_Q4_0);
    assert_int_equal(af_mix_type(AF_MIX_IQ4_XS, &m, "blk.9.attn_q.weight", 2, 96, 9, &fell),
                     AF_DTYPE_IQ4_NL);
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &m, "blk.0.attn_q.weight", 2, 80, 0, &fell),
                     AF_DTYPE_F16);
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &m, "blk.0.attn_norm.weight", 1, 96, 0, &fell),
                     AF_DTYPE_F32);
}

static void test_fused_and_large_models_have_their_own_rules(void **state)
{
    const af_mix_model phi = {.layers = 32, .gqa = 1}, big = {.layers = 80, .gqa = 8};
    bool fell;
    (void)state;
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &phi, "blk.0.attn_qkv.weight", 2, 256, 0, &fell),
                     AF_DTYPE_Q6_K);
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &phi, "blk.4.attn_qkv.weight", 2, 256, 4, &fell),
                     AF_DTYPE_Q4_K);
    assert_int_equal(af_mix_type(AF_MIX_Q4_K_M, &big, "blk.10.attn_v.weight", 2, 256, 10, &fell),
                     AF_DTYPE_Q5_K);
}

/* transformers 5 has one parameter for all experts, and bitsandbytes leaves it as it is. */
static void test_experts_stay_in_bitsandbytes_folders(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], out[PATH], file[PATH];
    af_error err = {0};
    af_weights *w = NULL;
    int plain = 0, packed = 0;
    (void)state;
    join(model, sizeof model, golden_dir(), "models/qwen3_moe");
    join(out, sizeof out, d.path, "q");
    quantize(model, out, (af_quantize_opts){.type = "nf4", .threads = 1});
    CHECK_OK(af_weights_open(&w, join(file, sizeof file, out, "model.safetensors"), &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *s = af_weights_at(w, i);
        plain += strstr(s->name, ".experts.") != NULL && s->dtype != AF_DTYPE_U8;
        packed +=
            strstr(s->name, "_proj.weight") != NULL && s->dtype == AF_DTYPE_U8 && s->ndim == 2;
        CHECK_MSG(!strstr(s->name, ".experts.") || !strstr(s->name, "quant"), "%s", s->name);
    }
    assert_true(plain > 0 && packed > 0);
    af_weights_close(w);
    scratch_free(&d);
}

/* Puts a NaN into the first element of a linear. */
static void spoil(const char *dir)
{
    char path[PATH], *text = NULL;
    uint64_t n, header = 0, from = 0;
    af_error err = {0};
    CHECK_OK(
        af_file_read(&text, &n, join(path, sizeof path, dir, "model.safetensors"), 1 << 24, &err),
        err);
    memcpy(&header, text, 8);
    const char last = text[8 + header - 1];
    text[8 + header - 1] = '\0'; /* for strstr */
    const char *at = strstr(text + 8, "model.layers.0.self_attn.q_proj.weight");
    at = at ? strstr(at, "\"data_offsets\":[") : NULL;
    assert_non_null(at);
    from = strtoull(at + strlen("\"data_offsets\":["), NULL, 10);
    text[8 + header - 1] = last;
    memcpy(text + 8 + header + from, "\xc0\x7f", 2);
    CHECK_OK(af_file_write(path, text, n, &err), err);
    free(text);
}

static void test_failures_leave_nothing(void **state)
{
    scratch_dir d = scratch_new();
    char model[PATH], broken[PATH], out[PATH], path[PATH], other[PATH], nan[PATH];
    char text[sizeof config_text];
    af_error err = {0};
    (void)state;
    make_model(join(other, sizeof other, d.path, "other"));
    memcpy(text, config_text, sizeof text);
    memcpy(strstr(text, "112"), "128", 3); /* intermediate_size */
    CHECK_OK(af_file_write(join(path, sizeof path, other, "config.json"), text, strlen(text), &err),
             err);
    make_model(join(nan, sizeof nan, d.path, "nan"));
    spoil(nan);
    make_model(join(model, sizeof model, d.path, "model"));
    make_model(join(broken, sizeof broken, d.path, "broken"));
    CHECK_OK(af_file_write(join(path, sizeof path, broken, "model.safetensors"), "\1\2\3", 3, &err),
             err);
    join(out, sizeof out, d.path, "out");
    const struct {
        const char *why, *model, *out;
        af_quantize_opts o;
        const char *says;
    } cases[] = {
        {"unknown type", model, out, {.type = "q9_z"}, "unknown type 'q9_z'"},
        {"block size", model, out, {.type = "nf4", .block_size = 100}, "block size 100"},
        {"unreadable weights", broken, out, {.type = "nf4"}, "model.safetensors"},
        {"unreadable weights, GGUF", broken, out, {.type = "q8_0"}, "model.safetensors"},
        {"other shapes", other, out, {.type = "nf4"}, "is 112x64, and by config.json 128x64"},
        {"other shapes, GGUF", other, out, {.type = "q8_0"}, "112x64, not 128x64"},
        {"not a number", nan, out, {.type = "nf4"}, "not finite"},
        {"not a number, GGUF", nan, out, {.type = "q8_0"}, "not finite"},
        {"not a number, halves", nan, out, {.type = "f16"}, "not finite"},
        {"no model", "/nowhere/at/all", out, {.type = "nf4"}, "/nowhere"},
        {"the output is the input", model, model, {.type = "nf4"}, "one of the inputs"},
        {"no such matrix", model, out, {.type = "q8_0", .imatrix = "/nowhere"}, "/nowhere"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_convert_report *r = NULL;
        CHECK_MSG(af_quantize(&r, cases[i].model, cases[i].out, &cases[i].o, &err) != 0, "%s",
                  cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: says '%s'", cases[i].why, err.msg);
        check_nothing_left(d.path, 4);
    }
    check_nothing_left(model, 2);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bitsandbytes_folders_have_its_bytes),
        cmocka_unit_test(test_threads_do_not_change_bytes),
        cmocka_unit_test(test_gguf_files_are_llama_cpps),
        cmocka_unit_test(test_split_models_give_the_bytes_of_whole_ones),
        cmocka_unit_test(test_other_families_when_the_goldens_are_there),
        cmocka_unit_test(test_mixes_are_llama_cpps),
        cmocka_unit_test(test_rows_that_do_not_fill_blocks_fall_back),
        cmocka_unit_test(test_fused_and_large_models_have_their_own_rules),
        cmocka_unit_test(test_experts_stay_in_bitsandbytes_folders),
        cmocka_unit_test(test_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
