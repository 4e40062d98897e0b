/* test_merge_types.c - PEFT's adapters of other types than LoRA: merged as PEFT merges them,
 * written as LoRA, and those that cannot be. */
#include "convert_case.h"

#include "afinar/model.h"
#include "base/buf.h"

enum { PATH = 1024 };

static const char *gold(char *buf, size_t size, const char *name)
{
    return join(buf, size, golden_dir(), name);
}

static const char *base_of(const char *adapter)
{
    return strstr(adapter, "ia3_bias") ? "models/qwen2" : "merge/models/base";
}

static af_status merge_one(const char *adapter, const char *out, bool adapter_only, af_error *err)
{
    char base[PATH];
    const af_merge_adapter_opts o = {.adapter = {adapter},
                                     .weight = {1},
                                     .adapters = 1,
                                     .threads = 1,
                                     .force = true,
                                     .adapter_only = adapter_only};
    return af_merge_adapters(gold(base, sizeof base, base_of(adapter)), out, &o, NULL, err);
}

static void test_merged_weights_are_those_of_peft(void **state)
{
    static const char *const names[] = {"adalora",   "vera",       "loha",     "lokr",
                                        "lokr_both", "lokr_whole", "miss",     "miss_mini",
                                        "bone",      "ia3",        "ia3_bias", "ia3_inputs",
                                        "oft",       "oft_exact",  "oft_share"};
    scratch_dir d = scratch_new();
    char file[PATH], adapter[PATH], out[PATH], lora[PATH], sub[64], prefix[32];
    (void)state;
    gold(file, sizeof file, "peft/types.safetensors");
    join(out, sizeof out, d.path, "merged");
    join(lora, sizeof lora, d.path, "lora");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        af_error err = {0};
        snprintf(prefix, sizeof prefix, "%s.", strcmp(names[i], "bone") ? names[i] : "miss");
        snprintf(sub, sizeof sub, "peft/types/%s", names[i]);
        gold(adapter, sizeof adapter, sub);
        CHECK_OK(merge_one(adapter, out, false, &err), err);
        tensor_gap g = compare_files(out, file, prefix, 2e-7);
        CHECK_MSG(g.off == 0, "%s: worst %g", names[i], g.worst);
        if (i > 0 && strncmp(names[i], "lo", 2) != 0) /* ranks that the config does not have */
            continue;
        CHECK_OK(merge_one(adapter, lora, true, &err), err);
        CHECK_OK(merge_one(lora, out, false, &err), err);
        g = compare_files(out, file, prefix, 2e-7);
        CHECK_MSG(g.off == 0, "%s as LoRA: worst %g", names[i], g.worst);
    }
    scratch_free(&d);
}

/* A golden adapter with one text of its config replaced. */
static void change_config(const char *dir, const char *name, const char *from, const char *to)
{
    af_error err = {0};
    char path[PATH], file[PATH], sub[64], *text = NULL;
    uint64_t size;
    af_buf b = {0};
    snprintf(sub, sizeof sub, "peft/types/%s", name);
    gold(path, sizeof path, sub);
    CHECK_OK(af_dir_make(dir, &err), err);
    CHECK_OK(af_file_copy_into(path, dir, "adapter_model.safetensors", &err), err);
    join(file, sizeof file, path, "adapter_config.json");
    CHECK_OK(af_file_read(&text, &size, file, 1 << 16, &err), err);
    char *at = strstr(text, from);
    assert_non_null(at);
    af_buf_printf(&b, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    CHECK_OK(af_file_write(join(file, sizeof file, dir, "adapter_config.json"), b.data,
                           strlen(b.data), &err),
             err);
    af_buf_clear(&b);
    free(text);
}

static void read_logits(const char *model, const char *adapter, float *out)
{
    static const int32_t ids[] = {3, 17, 5, 40, 9};
    af_error err = {0};
    af_model *m = NULL;
    const af_model_opts o = {
        .adapter = {adapter}, .adapter_weight = {1}, .adapters = adapter != NULL, .device = "cpu"};
    CHECK_OK(af_model_open(&m, model, &o, &err), err);
    CHECK_OK(af_model_logits_of(m, ids, 5, out, &err), err);
    af_model_close(m);
}

/* Those that multiply are part of the weights of an opened model, and have no form as LoRA. */
static void test_types_that_multiply(void **state)
{
    static const char *const names[] = {"ia3_bias", "oft"};
    static float whole[5 * 1024], opened[5 * 1024];
    scratch_dir d = scratch_new();
    char base[PATH], adapter[PATH], out[PATH], sub[64];
    (void)state;
    join(out, sizeof out, d.path, "out");
    for (int i = 0; i < 2; i++) {
        af_error err = {0};
        af_model *m = NULL;
        snprintf(sub, sizeof sub, "peft/types/%s", names[i]);
        gold(adapter, sizeof adapter, sub);
        join(base, sizeof base, golden_dir(), base_of(adapter));
        CHECK_OK(merge_one(adapter, out, false, &err), err);
        read_logits(out, NULL, whole);
        read_logits(base, adapter, opened);
        assert_memory_equal(whole, opened, sizeof whole);
        const af_model_opts o = {.adapter = {adapter},
                                 .adapter_weight = {1},
                                 .adapters = 1,
                                 .load_in_4bit = true,
                                 .device = "cpu"};
        CHECK_MSG(af_model_open(&m, base, &o, &err) != AF_OK && strstr(err.msg, "--load-in-4bit") &&
                      strstr(err.msg, "merge it"),
                  "4 bits: '%s'", err.msg);
        CHECK_MSG(merge_one(adapter, out, true, &err) != AF_OK &&
                      strstr(err.msg, "leave out --adapter-only"),
                  "adapter only: '%s'", err.msg);
    }
    scratch_free(&d);
}

#define OFT_FROM                                                                                   \
    "_terms\": 5,\n \"oft_block_size\": 8,\n \"peft_type\": \"OFT\",\n \"peft_version\": "         \
    "\"0.21.2\""
#define OFT_TO "_terms\": %d,\n \"oft_block_size\": 8,\n \"peft_type\": \"OFT\"%s"

/* The merged matrix of an OFT adapter whose config has this version and so many terms. */
static void oft_matrix(const scratch_dir *d, int terms, const char *version, double *to, int64_t n)
{
    af_error err = {0};
    af_weights *w = NULL;
    char dir[PATH], out[PATH], file[PATH], said[64] = "", text[200];
    if (version)
        snprintf(said, sizeof said, ",\n \"peft_version\": \"%s\"", version);
    snprintf(text, sizeof text, OFT_TO, terms, said);
    change_config(join(dir, sizeof dir, d->path, "adapter"), "oft", OFT_FROM, text);
    CHECK_OK(merge_one(dir, join(out, sizeof out, d->path, "out"), false, &err), err);
    CHECK_OK(af_weights_open(&w, join(file, sizeof file, out, "model.safetensors"), &err), err);
    const af_stored *t = af_weights_find(w, "model.layers.0.self_attn.k_proj.weight");
    assert_true(t && af_weight_count(t) == n);
    for (int64_t i = 0; i < n; i++)
        to[i] = af_load_f64(t->data, t->dtype, (uint64_t)i);
    af_weights_close(w);
}

/* PEFT before 0.18 ended OFT's series with twice its last power: the sums of terms up to N - 2 and
 * up to N - 1 are twice what it is now with N. */
static void test_oft_of_older_versions(void **state)
{
    enum { N = 16 * 32 };
    static const char *const since[] = {"0.18.0.dev0", "0.18.1@sha", "1.0"};
    static const char *const before[] = {"0.17.1", NULL, "?"};
    static double now[N], was[N], shorter[N], other[N];
    scratch_dir d = scratch_new();
    (void)state;
    for (int terms = 4; terms <= 5; terms++) {
        double far = 0;
        oft_matrix(&d, terms, "0.21.2", now, N);
        oft_matrix(&d, terms, "0.17.1", was, N);
        oft_matrix(&d, terms - 1, "0.17.1", shorter, N);
        for (int i = 0; i < N; i++) {
            far = fmax(far, fabs(was[i] - now[i]));
            assert_true(fabs(was[i] + shorter[i] - 2 * now[i]) < 1e-6);
        }
        assert_true(far > 1e-5);
    }
    for (size_t k = 0; k < 3; k++) {
        oft_matrix(&d, 5, since[k], other, N);
        assert_memory_equal(other, now, sizeof now);
        oft_matrix(&d, 5, before[k], other, N);
        assert_memory_equal(other, was, sizeof was);
    }
    oft_matrix(&d, 2, "0.17.1", was, N); /* no powers: as now */
    oft_matrix(&d, 2, "0.21.2", now, N);
    assert_memory_equal(was, now, sizeof now);
    scratch_free(&d);
}

static void test_what_cannot_be_read_is_named(void **state)
{
    static const struct {
        const char *name, *from, *to, *says;
    } cases[] = {
        {"miss", "\"init_weights\": true", "\"init_weights\": \"bat\"", "init_weights is not"},
        {"miss", "\"MISS\"", "\"PREFIX_TUNING\"", "peft_type is 'PREFIX_TUNING', not one of LORA"},
        {"miss", "\"MISS\"", "\"VERA\"", "save_projection"},
        {"lokr", "\"LOKR\"", "\"LOHA\"", "no tensor"},
        {"adalora", "\"init_r\": 3", "\"init_r\": 0", "init_r is not"},
        {"oft", "\"num_cayley_neumann_terms\": 5", "\"num_cayley_neumann_terms\": -1", "from 0"},
        {"oft", "\"k_proj\"", "\"q_proj\"", "no tensor"},
        {"vera", "\"k_proj\"", "\"k_proj\", \"q_proj\"", "not matrices of one rank"},
        {"lokr", "\"r\": 2", "\"r\": 3", "has rank 2, its config says 3"},
    };
    scratch_dir d = scratch_new();
    char dir[PATH], out[PATH];
    (void)state;
    join(dir, sizeof dir, d.path, "adapter");
    join(out, sizeof out, d.path, "out");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_error err = {0};
        change_config(dir, cases[i].name, cases[i].from, cases[i].to);
        CHECK_MSG(merge_one(dir, out, false, &err) != AF_OK && strstr(err.msg, cases[i].says),
                  "case %zu says '%s'", i, err.msg);
    }
    scratch_free(&d);
}

/* "vera_only" and its like: PEFT trains biases then, and does not save them. */
static void test_biases_have_the_name_of_the_type(void **state)
{
    scratch_dir d = scratch_new();
    af_error err = {0};
    char dir[PATH], out[PATH], file[PATH];
    (void)state;
    change_config(join(dir, sizeof dir, d.path, "adapter"), "vera", "\"bias\": \"none\"",
                  "\"bias\": \"vera_only\"");
    CHECK_OK(merge_one(dir, join(out, sizeof out, d.path, "out"), false, &err), err);
    gold(file, sizeof file, "peft/types.safetensors");
    const tensor_gap g = compare_files(out, file, "vera.", 2e-7);
    CHECK_MSG(g.off == 0, "worst %g", g.worst);
    scratch_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merged_weights_are_those_of_peft),
        cmocka_unit_test(test_types_that_multiply),
        cmocka_unit_test(test_oft_of_older_versions),
        cmocka_unit_test(test_what_cannot_be_read_is_named),
        cmocka_unit_test(test_biases_have_the_name_of_the_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
