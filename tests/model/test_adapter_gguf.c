/* test_adapter_gguf.c - adapters of llama.cpp, tensor by tensor: ranks that differ, an embedding,
 * an alpha that is not stored, and files that do not fit the model. */
#include "test.h"

#include "base/file.h"
#include "format/weights/gguf.h"
#include "model/adapter.h"

#include <unistd.h>

enum { VOCAB = 12, WIDTH = 8, FFN = 6 };

typedef struct low_rank {
    const char *name;
    int64_t dim[2]; /* rows first */
} low_rank;

static const low_rank all[] = {
    {"token_embd.weight.lora_a", {VOCAB, 2}},   {"token_embd.weight.lora_b", {WIDTH, 2}},
    {"blk.0.ffn_down.weight.lora_a", {3, FFN}}, {"blk.0.ffn_down.weight.lora_b", {WIDTH, 3}},
    {"blk.1.ffn_up.weight.lora_a", {4, WIDTH}}, {"blk.1.ffn_up.weight.lora_b", {FFN, 4}}};
enum { ALL = AF_LEN(all) };

static af_model_spec open_spec(af_hf_config *c)
{
    static const char text[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 12, \"hidden_size\": 8, "
        "\"intermediate_size\": 6, \"num_hidden_layers\": 2, \"num_attention_heads\": 2}";
    af_error err = {0};
    af_model_spec s;
    CHECK_OK(af_hf_config_parse(c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, c, &err), err);
    return s;
}

/* Entry (row, column) of a tensor is 100 row + column, so that its place shows in its value. */
static void write_adapter(const char *path, const low_rank *list, int n, double alpha)
{
    af_error err = {0};
    af_gguf_writer *w;
    CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
    CHECK_OK(af_gguf_put_str(w, "general.type", "adapter", 7, &err), err);
    CHECK_OK(af_gguf_put_str(w, "adapter.type", "lora", 4, &err), err);
    if (alpha != 0)
        CHECK_OK(af_gguf_put_f32(w, "adapter.lora.alpha", (float)alpha, &err), err);
    for (int i = 0; i < n; i++)
        CHECK_OK(af_gguf_put_tensor(w, list[i].name, AF_DTYPE_F32, list[i].dim, 2, &err), err);
    CHECK_OK(af_gguf_writer_begin(w, &err), err);
    for (int i = 0; i < n; i++)
        for (int64_t r = 0; r < list[i].dim[0]; r++)
            for (int64_t c = 0; c < list[i].dim[1]; c++) {
                const float v = (float)(100 * r + c);
                CHECK_OK(af_gguf_writer_data(w, &v, sizeof v, &err), err);
            }
    CHECK_OK(af_gguf_writer_commit(w, &err), err);
}

static const af_adapter_module *module_of(const af_adapter *a, const char *path)
{
    for (int i = 0; i < a->spec->modules; i++)
        if (strcmp(a->spec->module[i].path, path) == 0)
            return &a->module[i];
    fail_msg("no module '%s'", path);
    return NULL;
}

static double pattern_of(const af_adapter_pattern *p, int n, const char *path, double absent)
{
    for (int i = 0; i < n; i++)
        if (strcmp(p[i].key, path) == 0)
            return p[i].value;
    return absent;
}

/* The values, and what a PEFT config says of them: ranks above and below the first one. */
static void check_modules(const af_adapter *a, double alpha)
{
    static const struct {
        const char *path;
        int64_t in, out;
        int rank;
        bool embed; /* llama.cpp has a row of its A per token */
    } want[] = {{"model.embed_tokens", VOCAB, WIDTH, 2, true},
                {"model.layers.0.mlp.down_proj", FFN, WIDTH, 3, false},
                {"model.layers.1.mlp.up_proj", WIDTH, FFN, 4, false}};
    const af_adapter_config *c = &a->config;
    assert_int_equal(c->target_count, AF_LEN(want));
    for (size_t i = 0; i < AF_LEN(want); i++) {
        const af_adapter_module *m = module_of(a, want[i].path);
        const double own = alpha != 0 ? alpha : want[i].rank; /* not stored: a scale of 1 */
        assert_int_equal(m->rank, want[i].rank);
        CHECK_MSG(m->alpha == own && m->scale == (float)(own / want[i].rank), "%s: alpha %g, x %g",
                  want[i].path, m->alpha, (double)m->scale);
        assert_true(pattern_of(c->rank_pattern, c->rank_patterns, want[i].path, c->r) == m->rank);
        assert_true(pattern_of(c->alpha_pattern, c->alpha_patterns, want[i].path, c->alpha) == own);
        for (int64_t r = 0; r < m->rank; r++)
            for (int64_t k = 0; k < want[i].in; k++)
                assert_true(m->a[r * want[i].in + k] ==
                            (float)(want[i].embed ? 100 * k + r : 100 * r + k));
        for (int64_t r = 0; r < want[i].out; r++)
            for (int64_t k = 0; k < m->rank; k++)
                assert_true(m->b[r * m->rank + k] == (float)(100 * r + k));
    }
}

static void test_modules_have_their_ranks_and_scales(void **state)
{
    static const double alphas[] = {0, 8};
    char dir[] = "/tmp/afinar-lora-XXXXXX", path[64];
    af_error err = {0};
    af_hf_config c;
    const af_model_spec s = open_spec(&c);
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/lora.gguf", dir);
    for (size_t i = 0; i < AF_LEN(alphas); i++) {
        af_adapter *a;
        write_adapter(path, all, ALL, alphas[i]);
        CHECK_OK(af_adapter_read(&a, &s, path, &err), err);
        check_modules(a, alphas[i]);
        af_adapter_free(a);
    }
    af_model_spec_clear((af_model_spec *)&s);
    af_hf_config_clear(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_files_that_do_not_fit(void **state)
{
    static const struct {
        const char *why;
        low_rank more[2];
        const char *says;
    } cases[] = {
        {"a layer that the model lacks",
         {{"blk.2.ffn_up.weight.lora_a", {4, WIDTH}}, {"blk.2.ffn_up.weight.lora_b", {FFN, 4}}},
         "has 8 tensors, this model accounts for 6 of them"},
        {"a half of a pair",
         {{"blk.0.ffn_up.weight.lora_a", {4, WIDTH}}, {"x", {1, 1}}},
         "has 8 tensors, this model accounts for 6 of them"},
        {"two ranks",
         {{"blk.0.ffn_up.weight.lora_a", {4, WIDTH}}, {"blk.0.ffn_up.weight.lora_b", {FFN, 3}}},
         "are not matrices of one rank for 6 x 8"},
        {"another width",
         {{"blk.0.ffn_up.weight.lora_a", {4, FFN}}, {"blk.0.ffn_up.weight.lora_b", {FFN, 4}}},
         "are not matrices of one rank for 6 x 8"},
        {"another height",
         {{"blk.0.ffn_up.weight.lora_a", {4, WIDTH}}, {"blk.0.ffn_up.weight.lora_b", {WIDTH, 4}}},
         "are not matrices of one rank for 6 x 8"},
    };
    char dir[] = "/tmp/afinar-lora-XXXXXX", path[64];
    af_error err = {0};
    af_hf_config c;
    const af_model_spec s = open_spec(&c);
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/lora.gguf", dir);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_adapter *a = NULL;
        low_rank list[ALL + 2];
        memcpy(list, all, sizeof all);
        memcpy(list + ALL, cases[i].more, sizeof cases[i].more);
        write_adapter(path, list, ALL + 2, 8);
        CHECK_MSG(af_adapter_read(&a, &s, path, &err) == AF_EFORMAT, "%s passes", cases[i].why);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: '%s'", cases[i].why, err.msg);
    }
    af_model_spec_clear((af_model_spec *)&s);
    af_hf_config_clear(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules_have_their_ranks_and_scales),
        cmocka_unit_test(test_files_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
