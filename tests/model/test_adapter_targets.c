/* test_adapter_targets.c - which modules an adapter changes, and what they are called. */
#include "model_case.h"

#include "base/buf.h"
#include "format/weights/safetensors.h"
#include "model/adapter_config.h"

#include <unistd.h>

static void test_misspelt_names_of_a_fresh_adapter_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *target[2], *saved[1];
        int saved_count;
        const char *says;
    } cases[] = {
        {{"q_proj", "v_porj"}, {NULL}, 0, "v_porj"},
        {{"q_proj", "v_proj"}, {"lm_haed"}, 1, "lm_haed"},
    };
    model_case c;
    case_open_base(&c, "llama3_tiny", false);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_adapter *a = NULL;
        const af_adapter_config config = {.r = 4,
                                          .alpha = 8,
                                          .target = cases[i].target,
                                          .target_count = 2,
                                          .modules_to_save = cases[i].saved,
                                          .save_count = cases[i].saved_count};
        CHECK_MSG(af_adapter_outline(&a, &config, af_loader_spec(c.loader), &err) != AF_OK,
                  "'%s' passes", cases[i].says);
        CHECK_MSG(strstr(err.msg, cases[i].says), "'%s' does not name '%s'", err.msg,
                  cases[i].says);
    }
    case_close(&c);
}

static void test_what_is_not_an_adapter_is_said(void **state)
{
    (void)state;
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256], inside[256];
    af_error err = {0};
    bool untie;
    assert_non_null(mkdtemp(dir));
    snprintf(inside, sizeof inside, "%s/checkpoint-5", dir);
    snprintf(path, sizeof path, "%s/checkpoint-5/adapter_config.json", dir);
    CHECK_OK(af_dir_make(inside, &err), err);
    CHECK_OK(af_file_write(path, "{}", 2, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "inside has one") && strstr(err.msg, inside), "says '%s'", err.msg);
    assert_int_equal(af_adapter_unties(&untie, path, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "adapter_config.json nor a GGUF file"), "says '%s'", err.msg);
    snprintf(path, sizeof path, "%s/config.json", dir);
    CHECK_OK(af_file_write(path, "{}", 2, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "is a model, not an adapter"), "says '%s'", err.msg);
    CHECK_OK(af_path_remove(dir, &err), err);
    assert_int_equal(af_adapter_unties(&untie, dir, &err), AF_EUSAGE);
    CHECK_MSG(strstr(err.msg, "no such folder"), "says '%s'", err.msg);
}

/* In llama3_tiny with an untied head, exactly the modules that `want` selects have a rank. */
static void check_targets(const af_adapter_config *config, bool (*want)(const char *path))
{
    model_case c;
    af_error err = {0};
    af_adapter *a = NULL;
    case_open_base(&c, "llama3_tiny", true);
    const af_model_spec *s = af_loader_spec(c.loader);
    CHECK_OK(af_adapter_outline(&a, config, s, &err), err);
    for (int i = 0; i < s->modules; i++) {
        const char *path = s->module[i].path;
        CHECK_MSG((a->module[i].rank == config->r) == want(path), "%s has rank %d", path,
                  a->module[i].rank);
    }
    af_adapter_free(a);
    case_close(&c);
}

static bool is_head_or_q_of_layer_1(const char *path)
{
    return !strcmp(path, "lm_head") || !strcmp(path, "model.layers.1.self_attn.q_proj");
}

/* layers_to_transform does not apply to a module that is named in full. */
static void test_a_head_with_selected_layers_is_a_target(void **state)
{
    (void)state;
    static const char *const target[] = {"q_proj", "lm_head"};
    static const int64_t layers[] = {1};
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 2,
                                       .layers = layers,
                                       .layer_count = 1},
                  is_head_or_q_of_layer_1);
}

static bool is_q_or_later_up(const char *path)
{
    return strstr(path, ".q_proj") ||
           (strstr(path, ".up_proj") && strcmp(path, "model.layers.0.mlp.up_proj") != 0);
}

/* What modules_to_save names is trained whole and not adapted, as in PEFT. */
static void test_modules_to_save_are_not_targets(void **state)
{
    (void)state;
    static const char *const target[] = {"q_proj", "up_proj", "lm_head"};
    static const char *const saved[] = {"lm_head", "layers.0.mlp.up_proj"};
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 3,
                                       .exclude_regex = "q_proj", /* no whole path: as PEFT */
                                       .modules_to_save = saved,
                                       .save_count = 2},
                  is_q_or_later_up);
    check_targets(&(af_adapter_config){.r = 4,
                                       .alpha = 8,
                                       .target = target,
                                       .target_count = 3,
                                       .exclude_regex = "model", /* where a path begins */
                                       .modules_to_save = saved,
                                       .save_count = 2},
                  is_q_or_later_up);
    assert_true(af_path_ends_in("lm_head", saved, 2));
    assert_false(af_path_ends_in("lm_head", (const char *const[]){""}, 1));
    const char *const whole[] = {"mlp"};
    assert_true(af_path_ends_in("model.layers.0.mlp.up_proj", whole, 1));
    assert_false(af_path_ends_in("model.layers.0.mlps.up_proj", whole, 1));
    assert_false(af_path_ends_in("model.layers.0.x.mlp_up", whole, 1));
}

/* layers_pattern is the name of the model's list, whatever its family calls it. */
static void test_layers_are_in_the_list_of_the_family(void **state)
{
    (void)state;
    static const struct {
        const char *type, *list, *other, *target;
    } cases[] = {{"gpt2", "h", "layers", "c_attn"}, {"llama", "layers", "h", "q_proj"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config config;
        af_model_spec s;
        bool target[64];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 32, \"hidden_size\": 16, "
                 "\"intermediate_size\": 12, \"num_hidden_layers\": 2, "
                 "\"num_attention_heads\": 4}",
                 cases[i].type);
        CHECK_OK(af_hf_config_parse(&config, text, strlen(text), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &config, &err), err);
        assert_true(s.modules <= (int)AF_LEN(target));
        af_adapter_config c = {.r = 4,
                               .target = &cases[i].target,
                               .target_count = 1,
                               .layers = (int64_t[]){1},
                               .layer_count = 1,
                               .layer_list = &cases[i].list,
                               .layer_lists = 1};
        CHECK_OK(af_adapter_targets(&c, &s, target, &err), err);
        c.layer_list = (const char *const[]){cases[i].other, ""}; /* empty: any list, as in PEFT */
        c.layer_lists = 2;
        CHECK_OK(af_adapter_targets(&c, &s, target, &err), err);
        c.layer_lists = 1;
        assert_int_equal(af_adapter_targets(&c, &s, target, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, "layers_pattern is"), "says '%s'", err.msg);
        af_model_spec_clear(&s);
        af_hf_config_clear(&config);
    }
}

/* What PEFT calls embedding and head in models that have other names for them. */
static void test_tables_of_older_families(void **state)
{
    (void)state;
    static const struct {
        const char *type, *embed, *head;
    } cases[] = {{"gpt_neox", "gpt_neox.embed_in", "lm_head"},
                 {"falcon", "transformer.word_embeddings", "lm_head"},
                 {"gpt2", "transformer.wte", "lm_head"},
                 {"bloom", "transformer.word_embeddings", "lm_head"},
                 {"mpt", "transformer.wte", "lm_head"},
                 {"opt", "model.decoder.embed_tokens", "lm_head"}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512], name[AF_ADAPTER_NAME_BYTES], want[AF_ADAPTER_NAME_BYTES];
        af_error err = {0};
        af_hf_config config;
        af_model_spec s;
        const char *last = strrchr(cases[i].embed, '.') + 1;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 32, \"hidden_size\": 16, "
                 "\"intermediate_size\": 12, \"num_hidden_layers\": 1, "
                 "\"num_attention_heads\": 4, \"tie_word_embeddings\": false}",
                 cases[i].type);
        CHECK_OK(af_hf_config_parse(&config, text, strlen(text), "config.json", &err), err);
        CHECK_OK(af_model_spec_init(&s, &config, &err), err);
        assert_string_equal(s.module[s.embed_module].path, cases[i].embed);
        assert_string_equal(s.module[s.head_module].path, cases[i].head);
        const af_adapter a = {.spec = &s};
        af_adapter_tokens_name(&a, AF_TOKENS_EMBED, name);
        snprintf(want, sizeof want, "base_model.model.%s.token_adapter.trainable_tokens_delta",
                 cases[i].embed);
        assert_string_equal(name, want);
        af_adapter_saved_name(&s, &s.tensor[s.head], name);
        assert_string_equal(name, "base_model.model.lm_head.weight");
        assert_true(af_path_is_table(last, false) && !af_path_is_table(last, true));
        assert_true(af_adapter_config_unties(
            &(af_adapter_config){.modules_to_save = &last, .save_count = 1}));
        af_model_spec_clear(&s);
        af_hf_config_clear(&config);
    }
    assert_false(af_path_is_table("model.embed", false));
    assert_false(af_path_is_table("c_attn", false) || af_path_is_table("c_attn", true));
}

/* The config of a golden as the text part of a multimodal model. */
static void nested_spec(af_hf_config *config, af_model_spec *spec, const char *golden)
{
    af_error err = {0};
    char path[4096], *text;
    uint64_t size;
    af_buf whole = {0};
    snprintf(path, sizeof path, "%s/models/%s/config.json", golden_dir(), golden);
    CHECK_OK(af_file_read(&text, &size, path, 1 << 20, &err), err);
    af_buf_printf(&whole, "{\"model_type\": \"gemma3\", \"text_config\": %s}", text);
    CHECK_OK(af_hf_config_parse(config, whole.data, whole.len, path, &err), err);
    CHECK_OK(af_model_spec_init(spec, config, &err), err);
    af_buf_clear(&whole);
    free(text);
}

/* transformers has such a model's text part in "model.language_model", older versions in
 * "language_model.model", and it may have been trained alone. */
static void test_text_parts_of_larger_models_have_their_names(void **state)
{
    (void)state;
    static const char *const stored[] = {
        "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight",
        "base_model.model.model.language_model.norm.weight",
        "base_model.model.model.language_model.embed_tokens.lora_embedding_B",
    };
    static const char *const targets[] = {"q_proj", "embed_tokens"}, *const saved[] = {"norm"};
    char dir[] = "/tmp/af_adapter_XXXXXX", path[256];
    model_case c;
    af_hf_config config;
    af_model_spec spec;
    af_error err = {0};
    af_adapter *a, *back;
    af_weights *w;
    assert_non_null(mkdtemp(dir));
    case_open_base(&c, "gemma3_text", false);
    nested_spec(&config, &spec, "gemma3_text");
    const af_adapter_config want = {.r = 2,
                                    .alpha = 4,
                                    .target = targets,
                                    .target_count = 2,
                                    .modules_to_save = saved,
                                    .save_count = 1};
    for (int alone = 0; alone < 2; alone++) {
        const af_model_spec *s = alone ? af_loader_spec(c.loader) : &spec;
        CHECK_OK(af_adapter_new(&a, &want, s, c.loader, 5, &err), err);
        CHECK_OK(af_adapter_write(a, dir, &err), err);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
        CHECK_OK(af_weights_open(&w, path, &err), err);
        for (size_t i = 0; i < AF_LEN(stored); i++)
            CHECK_MSG((af_weights_find(w, stored[i]) != NULL) != alone, "%s", stored[i]);
        af_weights_close(w);
        for (int k = 0; k < 2; k++) { /* a GGUF file has the text part alone */
            CHECK_OK(af_adapter_read(&back, k ? af_loader_spec(c.loader) : &spec, dir, &err), err);
            for (int i = 0; i < spec.modules; i++)
                if (a->module[i].rank)
                    assert_memory_equal(a->module[i].a, back->module[i].a,
                                        (size_t)(2 * spec.module[i].in) * sizeof(float));
            af_adapter_free(back);
        }
        af_adapter_free(a);
    }
    const af_adapter_config regex = {.r = 2, .target_regex = "model\\.language_model\\..*q_proj"};
    CHECK_OK(af_adapter_outline(&a, &regex, &spec, &err), err);
    af_adapter_free(a);
    af_model_spec_clear(&spec);
    af_hf_config_clear(&config);
    case_close(&c);
    CHECK_OK(af_path_remove(dir, &err), err);
}

/* Copies the tensors of an adapter, `from` in their names replaced, and one more of zeros. */
static void rewrite(const char *dir, const char *from, const char *to, const char *more,
                    const int64_t dim[2])
{
    char path[256], name[512];
    af_error err = {0};
    af_weights *w;
    af_safetensors_writer *out;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", dir);
    CHECK_OK(af_weights_open(&w, path, &err), err);
    CHECK_OK(af_safetensors_writer_new(&out, path, 0, &err), err);
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        const char *at = strstr(t->name, from);
        snprintf(name, sizeof name, "%.*s%s%s", at ? (int)(at - t->name) : 0, t->name, at ? to : "",
                 at ? at + strlen(from) : t->name);
        CHECK_OK(af_safetensors_writer_add(out, name, t->dtype, t->dim, t->ndim, &err), err);
    }
    if (more)
        CHECK_OK(af_safetensors_writer_add(out, more, AF_DTYPE_F32, dim, 2, &err), err);
    CHECK_OK(af_safetensors_writer_begin(out, &err), err);
    for (int i = 0; i < af_weights_count(w); i++)
        CHECK_OK(af_safetensors_writer_data(out, af_weights_at(w, i)->data,
                                            af_weights_at(w, i)->bytes, &err),
                 err);
    float *zeros = more ? calloc((size_t)(dim[0] * dim[1]), sizeof *zeros) : NULL;
    if (more)
        CHECK_OK(af_safetensors_writer_data(out, zeros, (uint64_t)(dim[0] * dim[1]) * sizeof *zeros,
                                            &err),
                 err);
    free(zeros);
    CHECK_OK(af_safetensors_writer_commit(out, &err), err);
    af_weights_close(w);
}

/* Names of other versions, and tables that PEFT stores though they are not trained. */
static void test_other_names_and_frozen_tables_are_read(void **state)
{
    (void)state;
    static const char *const targets[] = {"q_proj"};
    static const char *const inner[] = {"model.language_model.", "language_model.model."};
    char dir[] = "/tmp/af_adapter_XXXXXX";
    model_case c;
    af_error err = {0};
    af_adapter *a, *back;
    assert_non_null(mkdtemp(dir));
    case_open_base(&c, "gemma3_text", false);
    const af_model_spec *s = af_loader_spec(c.loader);
    const af_adapter_config want = {.r = 2, .alpha = 4, .target = targets, .target_count = 1};
    for (int k = 0; k < 3; k++) {
        CHECK_OK(af_adapter_new(&a, &want, s, c.loader, 5, &err), err);
        CHECK_OK(af_adapter_write(a, dir, &err), err);
        if (k < 2)
            rewrite(dir, "base_model.model.model.",
                    k ? "base_model.model.language_model.model."
                      : "base_model.model.model.language_model.",
                    NULL, NULL);
        else
            rewrite(dir, "none", "", "base_model.model.model.embed_tokens.weight",
                    (int64_t[]){s->vocab, s->width});
        if (af_adapter_read(&back, s, dir, &err) != AF_OK)
            fail_msg("%s: %s", k < 2 ? inner[k] : "embedding", err.msg);
        for (int i = 0; i < s->modules; i++)
            if (a->module[i].rank)
                assert_memory_equal(a->module[i].a, back->module[i].a,
                                    (size_t)(2 * s->module[i].in) * sizeof(float));
        af_adapter_free(back);
        af_adapter_free(a);
        CHECK_OK(af_path_remove(dir, &err), err);
    }
    case_close(&c);
}

/* Baichuan 2: rows of the head are divided by their lengths. */
static void test_a_normed_head_takes_no_adapter(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"baichuan\", \"vocab_size\": 32, \"hidden_size\": 16, "
        "\"z_loss_weight\": 0,"
        " \"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 4}";
    static const char *const head[] = {"W_pack", "lm_head"};
    static const int64_t row = 3;
    const af_adapter_config cases[] = {{.r = 2, .alpha = 4, .target = head, .target_count = 2},
                                       {.r = 2,
                                        .alpha = 4,
                                        .target = head,
                                        .target_count = 1,
                                        .tokens[AF_TOKENS_HEAD] = {.index = &row, .count = 1}},
                                       {.r = 2, .alpha = 4, .target = head, .target_count = 1}};
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_adapter *a = NULL;
        const af_status st = af_adapter_outline(&a, &cases[i], &s, &err);
        assert_int_equal(st == AF_OK, i == 2);
        CHECK_MSG(i == 2 || strstr(err.msg, "divided by their lengths"), "%s", err.msg);
        af_adapter_free(a);
    }
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

/* Muse Glimmer: PEFT would add an adapter's output after the norm that the embedding ends with. */
static void test_a_normed_embedding_takes_no_adapter(void **state)
{
    (void)state;
    static const char text[] =
        "{\"model_type\": \"muse_glimmer_text\", \"vocab_size\": 32, \"hidden_size\": 16, "
        "\"head_dim\": 4, \"intermediate_size\": 12, \"num_hidden_layers\": 2, "
        "\"num_attention_heads\": 4}";
    static const char *const names[] = {"q_proj", "embed_tokens"};
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    CHECK_OK(af_hf_config_parse(&c, text, strlen(text), "config.json", &err), err);
    CHECK_OK(af_model_spec_init(&s, &c, &err), err);
    for (int n = 1; n <= 2; n++) {
        af_adapter *a = NULL;
        const af_adapter_config with = {.r = 2, .alpha = 4, .target = names, .target_count = n};
        assert_int_equal(af_adapter_outline(&a, &with, &s, &err) == AF_OK, n == 1);
        CHECK_MSG(n == 1 || strstr(err.msg, "divided by their lengths"), "%s", err.msg);
        af_adapter_free(a);
    }
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_misspelt_names_of_a_fresh_adapter_are_refused),
        cmocka_unit_test(test_what_is_not_an_adapter_is_said),
        cmocka_unit_test(test_a_head_with_selected_layers_is_a_target),
        cmocka_unit_test(test_layers_are_in_the_list_of_the_family),
        cmocka_unit_test(test_tables_of_older_families),
        cmocka_unit_test(test_modules_to_save_are_not_targets),
        cmocka_unit_test(test_text_parts_of_larger_models_have_their_names),
        cmocka_unit_test(test_other_names_and_frozen_tables_are_read),
        cmocka_unit_test(test_a_normed_head_takes_no_adapter),
        cmocka_unit_test(test_a_normed_embedding_takes_no_adapter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
