#define _GNU_SOURCE /* memmem */
/* test_export_families.c - formula models of every family (tests/golden/families) as GGUF and back:
 * the same logits, the same tensors; what llama.cpp has no form for is refused in one sentence. */
#include "convert_case.h"

#include "convert/gguf/gguf_check.h"
#include "convert/input/gguf_text.h"
#include "model/arch/gguf_fold.h"
#include "model/arch/gguf_order.h"
#include "model/family_case.h"

#include <dirent.h>
#include <math.h>

enum { PATH = 1024 };

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* The config.json that a file of another tool gets, which carries none, describes the same model.
 */
static void same_config(const char *name, const char *file, const scratch_dir *d)
{
    af_error err = {0};
    af_gguf *g = NULL;
    af_hf_config from = {0}, again = {0};
    af_model_spec spec = {0};
    char path[PATH];
    join(path, sizeof path, d->path, "config.json");
    CHECK_OK(af_gguf_open(&g, file, &err), err);
    CHECK_OK(af_hf_config_from_gguf(&from, g, &err), err);
    if (from.rope.freq_count) /* config.json has no place for rope_freqs.weight */
        goto done;
    json_t *o = af_config_json(&from);
    assert_int_equal(json_dump_file(o, path, 0), 0);
    CHECK_OK(af_hf_config_read(&again, d->path, &err), err);
    CHECK_OK(af_model_spec_init(&spec, &again, &err), err);
    const af_status st = af_gguf_check_metadata(&spec, file, &err);
    CHECK_MSG(st == AF_OK, "%s: %s", name, err.msg);
    CHECK_MSG(again.architecture[0], "%s: no class", name);
    af_model_spec_clear(&spec);
    json_decref(o);
done:
    af_hf_config_clear(&again);
    af_hf_config_clear(&from);
    af_gguf_close(g);
}

/* Keys of a config that are others than the golden's; and small A_log, whose bits -exp loses. */
static void change(json_t *j, const char *keys)
{
    json_t *with = json_loads(keys, 0, NULL);
    json_array_insert_new(json_object_get(j, "rules"), 0, json_pack("[sif]", "A_log", 0, 0.5));
    CHECK_MSG(with, "%s", keys);
    json_object_update(json_object_get(j, "config"), with);
    json_decref(with);
}

/* The same but for the last bit: weights that were multiplied and divided again. */
static bool near_tensors(const char *x, const char *y)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    CHECK_OK(af_weights_open(&a, x, &err), err);
    CHECK_OK(af_weights_open(&b, y, &err), err);
    bool near = af_weights_count(a) == af_weights_count(b);
    for (int i = 0; near && i < af_weights_count(a); i++) {
        const af_stored *s = af_weights_at(a, i), *t = af_weights_find(b, s->name);
        near = t && s->dtype == AF_DTYPE_F32 && t->dtype == s->dtype && s->bytes == t->bytes;
        for (uint64_t k = 0; near && k < s->bytes / sizeof(float); k++) {
            const float p = ((const float *)s->data)[k], q = ((const float *)t->data)[k];
            near = fabsf(p - q) <= 1.2e-7f * fabsf(p);
        }
    }
    af_weights_close(a);
    af_weights_close(b);
    return near;
}

/* True when it could be written. */
static bool there_and_back(const char *name, const char *json, const char *keys,
                           const scratch_dir *d)
{
    formula_model f;
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    char file[PATH], back[PATH];
    json_t *j = read_json(json);
    change(j, keys);
    formula_model_write(&f, j);
    join(file, sizeof file, d->path, "m.gguf");
    join(back, sizeof back, d->path, "back");
    const af_export_opts o = {.type = "f32", .threads = 2, .force = true};
    const af_status st = af_export(f.dir, file, &o, &r, &v, &err);
    af_convert_report_free(r);
    r = NULL;
    if (st == AF_OK) {
        CHECK_MSG(v.ran && v.ok && v.logit_error < 1e-5, "%s: %g", name, v.logit_error);
        CHECK_OK(
            af_export(file, back, &(af_export_opts){.threads = 2, .force = true}, &r, &v, &err),
            err);
        af_convert_report_free(r);
        const bool folded = strncmp(name, "falcon_h1", 9) == 0;
        const bool unit = strncmp(name, "baichuan", 8) == 0; /* rows of the head got length 1 */
        CHECK_MSG(unit || (folded ? near_tensors : same_tensors)(back, f.dir),
                  "%s: other tensors came back", name);
        same_config(name, file, d);
    } else {
        CHECK_MSG(st == AF_EUNSUPPORTED && strstr(err.msg, "GGUF"), "%s: %s", name, err.msg);
    }
    print_message("%-20s %s\n", name, st == AF_OK ? "as it was" : err.msg);
    formula_model_clear(&f);
    json_decref(j);
    return st == AF_OK;
}

static void test_families(void **state)
{
    (void)state;
    char root[PATH], path[2 * PATH];
    struct dirent **list;
    int written = 0;
    const char *only = getenv("AF_FAMILY");
    scratch_dir d = scratch_new();
    snprintf(root, sizeof root, "%s/families", golden_dir());
    const int n = scandir(root, &list, NULL, by_name);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, list[i]->d_name);
        if (strstr(path, ".json") && (!only || strncmp(list[i]->d_name, only, strlen(only)) == 0))
            written += there_and_back(list[i]->d_name, path, "{}", &d);
        free(list[i]);
    }
    free(list);
    scratch_free(&d);
    assert_true(written >= 8 || only);
}

/* The sizes that llama.cpp has in its source. */
#define GEMMA3N(tokens)                                                                            \
    "{\"num_hidden_layers\":22,\"num_kv_shared_layers\":2,\"layer_types\":null,"                   \
    "\"activation_sparsity_pattern\":null,\"altup_num_inputs\":4,\"altup_active_idx\":0,"          \
    "\"laurel_rank\":64,\"hidden_size_per_layer_input\":256,\"final_logit_softcapping\":30,"       \
    "\"intermediate_size\":20,\"vocab_size_per_layer_input\":" tokens "}"

/* Matrices between the streams lie one after another in the file. */
static void check_stack(const scratch_dir *d)
{
    af_error err = {0};
    af_weights *a = NULL, *b = NULL;
    char path[PATH];
    CHECK_OK(af_weights_open(&a, join(path, sizeof path, d->path, "m.gguf"), &err), err);
    CHECK_OK(af_weights_open(&b, join(path, sizeof path, d->path, "back"), &err), err);
    const af_stored *all = af_weights_find(a, "altup_unembd_proj.weight"),
                    *one = af_weights_find(b, "model.altup_unembed_projections.1.weight");
    assert_true(all && one && all->bytes == 3 * one->bytes);
    assert_memory_equal((const uint8_t *)all->data + one->bytes, one->data, one->bytes);
    assert_non_null(af_weights_find(a, "blk.20.attn_k.weight")); /* which nothing reads */
    af_weights_close(a);
    af_weights_close(b);
}

/* Goldens with what llama.cpp has no form for, without it. */
static void test_changed_families(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"gemma3n", GEMMA3N("20")},
        {"laguna", "{\"moe_router_logit_softcapping\":0}"},
        {"mimo_v2_flash", "{\"attention_bias\":false,\"routed_scaling_factor\":1}"},
        {"granite_swa", "{\"layer_rope_theta\":[10000,0,10000]}"},
        {"granitemoe_swa", "{\"layer_rope_theta\":[0,10000,10000]}"},
        {"mamba", "{\"use_bias\":false}"},
        {"gpt_neox", "{\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2,"
                     "\"rope_theta\":777,\"partial_rotary_factor\":0.5}}"},
        {"bamba", "{\"mamba_proj_bias\":false,\"time_step_limit\":null,"
                  "\"num_attention_heads\":3,\"num_key_value_heads\":1}"},
        {"falcon_h1", "{\"projectors_bias\":false,\"attention_bias\":false}"},
        {"falcon_h1", "{\"projectors_bias\":false,\"attention_bias\":false,\"mlp_bias\":true,"
                      "\"mamba_rms_norm\":false,\"tie_word_embeddings\":true,"
                      "\"lm_head_multiplier\":1.7}"},
        {"jamba", "{\"mamba_proj_bias\":false}"},
        {"jamba", "{\"mamba_proj_bias\":false,\"num_experts\":1,\"tie_word_embeddings\":true}"},
    };
    char path[2 * PATH];
    scratch_dir d = scratch_new();
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), cases[i][0]);
        CHECK_MSG(there_and_back(cases[i][0], path, cases[i][1], &d), "%s: refused", cases[i][0]);
        if (strcmp(cases[i][0], "gemma3n") == 0)
            check_stack(&d);
    }
    scratch_free(&d);
}

/* llama.cpp rotates neighbours: rows of the two halves are interleaved in its files, those that are
 * not rotated stay. */
static void test_rotated_rows_are_interleaved(void **state)
{
    (void)state;
    static const int64_t file[] = {0, 2, 1, 3, 4, 5, 6, 7};
    const af_gguf_order o = {.keys = 2, .per_key = 1, .size = 8, .pairs = 4};
    for (int64_t r = 0; r < 16; r++) {
        assert_int_equal(af_gguf_order_here(&o, r), r / 8 * 8 + file[r % 8]);
        assert_int_equal(af_gguf_order_there(&o, af_gguf_order_here(&o, r)), r);
    }
}

/* The multipliers of falcon_h1 that llama.cpp's weights have in them, by the golden's config. */
static void test_folded_multipliers(void **state)
{
    (void)state;
    static const struct {
        af_slot slot;
        int64_t row;
        double by;
    } cases[] = {
        {AF_SLOT_Q, 0, 1.1},
        {AF_SLOT_K, 3, 1.1 * 0.6},
        {AF_SLOT_V, 0, 1.1},
        {AF_SLOT_O, 23, 0.8},
        {AF_SLOT_OUT, 0, 0.7},
        {AF_SLOT_GATE, 0, 0.7},
        {AF_SLOT_UP, 0, 1},
        {AF_SLOT_DOWN, 0, 1.3},
        {AF_SLOT_EMBED, 19, 1.7},
        {AF_SLOT_HEAD, 0, 0.6},
        {AF_SLOT_IN, 47, 1.2 * 0.9},
        {AF_SLOT_IN, 48, 1.2 * 1.1},
        {AF_SLOT_IN, 96, 1.2 * 0.8},
        {AF_SLOT_IN, 116, 1.2 * 0.8},
        {AF_SLOT_IN, 117, 1.2 * 1.2},
        {AF_SLOT_IN, 138, 1.2 * 0.95},
        {AF_SLOT_IN, 143, 1.2 * 0.95},
    };
    char path[2 * PATH];
    af_error err = {0};
    af_hf_config c = {0};
    af_model_spec s = {0};
    snprintf(path, sizeof path, "%s/families/falcon_h1.json", golden_dir());
    json_t *j = read_json(path);
    char *text = json_dumps(json_object_get(j, "config"), 0);
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "falcon_h1", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        int t = 0;
        while (s.tensor[t].slot != cases[i].slot)
            t++;
        const af_gguf_fold f = af_gguf_fold_of(&s, &s.tensor[t]);
        CHECK_MSG(fabs(af_gguf_fold_by(&f, cases[i].row) - cases[i].by) < 1e-12, "case %zu", i);
    }
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
    free(text);
    json_decref(j);
}

/* Text models of Qwen's multimodal ones have architectures of their own, for images next to them;
 * config.json wraps that of the golden. */
static void check_multimodal(const char *golden, const char *whole, const char *type,
                             const char *arch, const int32_t sections[4])
{
    char path[2 * PATH], to[PATH], key[PATH];
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    af_gguf *g = NULL;
    af_hf_config c = {0};
    scratch_dir d = scratch_new();
    snprintf(path, sizeof path, "%s/models/%s/config.json", golden_dir(), golden);
    json_t *text = read_json(path);
    json_object_set_new(text, "model_type", json_string(type));
    json_object_set_new(json_object_get(text, "rope_parameters"), "mrope_section",
                        json_pack("[iii]", sections[0], sections[1], sections[2]));
    json_t *j = json_pack("{s:s, s:o, s:{s:[ii]}}", "model_type", whole, "text_config", text,
                          "vision_config", "deepstack_visual_indexes", 0, 1);
    CHECK_OK(af_json_write(d.path, "config.json", j, &err), err);
    snprintf(path, sizeof path, "%s/models/%s/model.safetensors", golden_dir(), golden);
    join(to, sizeof to, d.path, "model.safetensors");
    char *whole_path = realpath(path, NULL);
    assert_int_equal(symlink(whole_path, to), 0);
    free(whole_path);
    join(to, sizeof to, d.path, "x.gguf");
    const af_export_opts o = {.type = "f32", .threads = 1};
    CHECK_OK(af_export(d.path, to, &o, &r, &v, &err), err); /* reads it back, and compares */
    CHECK_OK(af_gguf_open(&g, to, &err), err);
    const af_gguf_str name = af_gguf_string(g, "general.architecture");
    CHECK_MSG(name.len == strlen(arch) && memcmp(name.at, arch, name.len) == 0, "%s", whole);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", arch);
    const af_gguf_kv *kv = af_gguf_find_kv(g, key);
    assert_true(kv && kv->count == 4);
    for (uint64_t i = 0; i < 4; i++)
        assert_int_equal(af_gguf_item_int(kv, i), sections[i]);
    snprintf(key, sizeof key, "%s.n_deepstack_layers", arch);
    assert_int_equal(af_gguf_int(g, key, 0), strcmp(arch, "qwen2vl") == 0 ? 0 : 2);
    CHECK_OK(af_hf_config_from_gguf(&c, g, &err), err);
    assert_string_equal(c.gguf, arch);
    af_hf_config_clear(&c);
    af_gguf_close(g);
    af_convert_report_free(r);
    json_decref(j);
    scratch_free(&d);
}

static void test_text_of_multimodal_models(void **state)
{
    (void)state;
    check_multimodal("qwen2_tiny", "qwen2_vl", "qwen2_vl_text", "qwen2vl",
                     (const int32_t[]){1, 1, 0, 0});
    check_multimodal("qwen3_tiny", "qwen3_vl", "qwen3_vl_text", "qwen3vl",
                     (const int32_t[]){2, 1, 1, 0});
}

/* A Conv1D would be read as another matrix. */
static void test_turned_matrices_are_not_packed(void **state)
{
    (void)state;
    formula_model f;
    char path[2 * PATH], out[PATH];
    af_error err = {0};
    af_convert_report *r = NULL;
    scratch_dir d = scratch_new();
    snprintf(path, sizeof path, "%s/families/gpt2.json", golden_dir());
    json_t *j = read_json(path);
    formula_model_write(&f, j);
    join(out, sizeof out, d.path, "packed");
    const af_quantize_opts o = {.type = "nf4", .threads = 1};
    assert_int_equal(af_quantize(&r, f.dir, out, &o, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "matrices lie turned"), "%s", err.msg);
    formula_model_clear(&f);
    json_decref(j);
    scratch_free(&d);
}

#define KV_HEADS "jamba.attention.head_count_kv" /* of each layer */

/* Writes over the value of a number's key. What it was. */
static uint32_t spoil(const char *file, const char *key, uint32_t bits)
{
    enum { HEAD = 4096 };
    char head[HEAD];
    FILE *f = fopen(file, "r+b");
    assert_non_null(f);
    const char *at = memmem(head, fread(head, 1, sizeof head, f), key, strlen(key));
    assert_non_null(at);
    /* after its type; of an array: and after that of its items and their number; of doubles: and
     * half of the first */
    const int words = strcmp(key, AF_MUP_KEY) == 0 ? 5 : strcmp(key, KV_HEADS) == 0 ? 4 : 1;
    const long after = (long)(at - head) + (long)strlen(key) + words * (long)sizeof bits;
    uint32_t old;
    memcpy(&old, head + after, sizeof old);
    assert_int_equal(fseek(f, after, SEEK_SET), 0);
    assert_int_equal(fwrite(&bits, sizeof bits, 1, f), 1);
    fclose(f);
    return old;
}

/* A file of this family's golden, without what llama.cpp has no form for. */
static void write_family(const char *family, const char *file)
{
    formula_model f;
    af_error err = {0};
    af_convert_report *r = NULL;
    af_verify_result v = {0};
    char path[2 * PATH];
    snprintf(path, sizeof path, "%s/families/%s.json", golden_dir(), family);
    json_t *j = read_json(path);
    change(j, strcmp(family, "gemma3n") == 0
                  ? GEMMA3N("18")
                  : "{\"mamba_proj_bias\":false,\"projectors_bias\":false,"
                    "\"attention_bias\":false}");
    formula_model_write(&f, j);
    const af_export_opts o = {.type = "f32", .threads = 1, .force = true, .no_verify = true};
    CHECK_OK(af_export(f.dir, file, &o, &r, &v, &err), err);
    af_convert_report_free(r);
    formula_model_clear(&f);
    json_decref(j);
}

/* Metadata of another tool's file with a value that no model has: refused in one sentence. */
static void test_hostile_metadata(void **state)
{
    (void)state;
    static const uint32_t nan = 0x7fc00000, minus_one = 0xbf800000, huge = 0x7149f2ca, many = ~0u;
    static const struct {
        const char *family, *key;
        uint32_t bits;
        const char *says;
    } cases[] = {
        {"mpt", "mpt.attention.max_alibi_bias", nan, "alibi_bias_max"},
        {"mpt", "mpt.attention.max_alibi_bias", minus_one, "alibi_bias_max"},
        {"mpt", "mpt.attention.max_alibi_bias", huge, "alibi_bias_max"},
        {"mpt", "mpt.attention.max_alibi_bias", 0, "without ALiBi"},
        {"dbrx", "dbrx.attention.clamp_kqv", nan, "clip_qkv"},
        {"dbrx", "dbrx.attention.clamp_kqv", minus_one, "clip_qkv"},
        {"llama4_gguf", "llama4.feed_forward_length", many, "dense MLP"},
        {"llama4_gguf", "llama4.interleave_moe_layer_step", many, "decoder_sparse_step"},
        {"falcon_mamba", "mamba.ssm.inner_size", many, "mamba.ssm.inner_size is"},
        {"falcon_mamba", "mamba.ssm.inner_size", 49, "not embedding_length 24 times"},
        {"falcon_mamba", "mamba.ssm.state_size", many, "mamba.ssm.state_size is"},
        {"falcon_mamba", "mamba.ssm.time_step_rank", 0, "mamba.ssm.time_step_rank is 0"},
        {"falcon_mamba", "mamba.ssm.conv_kernel", many, "mamba.ssm.conv_kernel is"},
        {"cohere2_moe", "cohere2moe.logit_scale", nan, "cohere2moe.logit_scale is"},
        {"cohere2_moe", "cohere2moe.expert_shared_feed_forward_length", many, "_length is"},
        {"kimi_linear", "kimi-linear.kda.head_dim", many, "kimi-linear.kda.head_dim is"},
        {"kimi_linear", "kimi-linear.ssm.conv_kernel", 0, "kimi-linear.ssm.conv_kernel is 0"},
        {"bailing_hybrid", "bailingmoe3.kda.gate_lower_bound", nan, "gate_lower_bound is"},
        {"bailing_hybrid", "bailingmoe3.kda.gate_lower_bound", 0, "gate_lower_bound is 0"},
        {"gemma3n", "gemma3n.block_count", many, "gemma3n.block_count is"},
        {"gemma3n", "gemma3n.altup.num_inputs", many, "gemma3n: stream 0 of"},
        {"gemma3n", "gemma3n.altup.active_idx", 4, "gemma3n: stream 4 of 4"},
        {"gemma3n", "gemma3n.embedding_length_per_layer_input", many, "inputs of"},
        {"gemma3n", "afinar.vocab_size_per_layer_input", 21, "for 21 of 20 tokens"},
        {"falcon_h1", AF_MUP_KEY, nan, "afinar.multipliers is not 14 numbers"},
        {"falcon_h1", AF_MUP_KEY, huge, "afinar.multipliers is not 14 numbers"},
        {"falcon_h1", "falcon-h1.ssm.group_count", 5, "do not divide"},
        {"falcon_h1", "falcon-h1.ssm.inner_size", many, "falcon-h1.ssm.inner_size is"},
        {"falcon_h1", "falcon-h1.attention.head_count_kv", many, "num_key_value_heads is"},
        {"jamba", "jamba.ssm.inner_size", 0, "jamba.ssm.inner_size is 0"},
        {"jamba", "jamba.expert_count", many, "num_experts is"},
        {"jamba", "jamba.expert_used_count", 5, "num_experts_per_tok is 5"},
        {"jamba", KV_HEADS, 2, "layers with attention are not every so many"},
    };
    scratch_dir d = scratch_new();
    char file[PATH];
    join(file, sizeof file, d.path, "m.gguf");
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_gguf *g = NULL;
        af_hf_config c = {0};
        af_model_spec s = {0};
        if (i == 0 || strcmp(cases[i].family, cases[i - 1].family) != 0)
            write_family(cases[i].family, file);
        const uint32_t old = spoil(file, cases[i].key, cases[i].bits);
        CHECK_OK(af_gguf_open(&g, file, &err), err);
        af_status st = af_hf_config_from_gguf(&c, g, &err);
        st = st == AF_OK ? af_model_spec_init(&s, &c, &err) : st;
        CHECK_MSG(st != AF_OK && strstr(err.msg, cases[i].says), "%s: \"%s\"", cases[i].key,
                  err.msg);
        af_hf_config_clear(&c);
        af_gguf_close(g);
        spoil(file, cases[i].key, old);
    }
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_families),
                                       cmocka_unit_test(test_changed_families),
                                       cmocka_unit_test(test_rotated_rows_are_interleaved),
                                       cmocka_unit_test(test_folded_multipliers),
                                       cmocka_unit_test(test_text_of_multimodal_models),
                                       cmocka_unit_test(test_hostile_metadata),
                                       cmocka_unit_test(test_turned_matrices_are_not_packed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
