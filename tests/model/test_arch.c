/* test_arch.c - from configs to specs: hostile values, unknown families, and tensors that do not
 * fit, each with one clear error before anything large is allocated. */
#include "model_case.h"

#include "base/log.h"
#include "model/tensor_layout.h"

static char last_warning[512];

static void keep_warning(void *user, af_log_level level, const char *line)
{
    (void)user;
    if (level == AF_LOG_WARN)
        snprintf(last_warning, sizeof last_warning, "%s", line);
}

static const char base_config[] =
    "{\"model_type\": \"%s\", \"hidden_size\": 16, \"intermediate_size\": 12, "
    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 32, \"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 64%s}";

/* A duplicate key would be an error in JSON, so hostile values replace the key in the text. */
static af_status spec_of(const char *json, af_model_spec *s, af_hf_config *c, af_error *err)
{
    af_status st = af_hf_config_parse(c, json, strlen(json), "config.json", err);
    if (st != AF_OK)
        return st;
    st = af_model_spec_init(s, c, err);
    if (st != AF_OK)
        af_hf_config_clear(c);
    return st;
}

static void test_hostile_values_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *why, *find, *put;
    } cases[] = {
        {"no heads", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0"},
        {"2^31 layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 2147483648"},
        {"negative layers", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": -1"},
        {"heads do not divide", "\"num_attention_heads\": 4", "\"num_attention_heads\": 3"},
        {"kv heads do not divide", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3"},
        {"odd head size", "\"hidden_size\": 16", "\"head_dim\": 3, \"hidden_size\": 16"},
        {"negative eps", "\"rms_norm_eps\": 1e-6", "\"rms_norm_eps\": -1e-6"},
        {"eps is NaN", "\"rms_norm_eps\": 1e-6", "\"rms_norm_eps\": NaN"},
        {"eps is huge", "\"rms_norm_eps\": 1e-6", "\"rms_norm_eps\": 1e999"},
        {"vocabulary of zero", "\"vocab_size\": 32", "\"vocab_size\": 0"},
        {"absurd width", "\"hidden_size\": 16", "\"hidden_size\": 9223372036854775807"},
        {"width is text", "\"hidden_size\": 16", "\"hidden_size\": \"16\""},
        {"width is a fraction", "\"hidden_size\": 16", "\"hidden_size\": 16.5"},
        {"unknown activation", "\"hidden_size\": 16",
         "\"hidden_act\": \"mish\", \"hidden_size\": 16"},
        {"theta of zero", "\"hidden_size\": 16", "\"rope_theta\": 0, \"hidden_size\": 16"},
        {"rope of unknown type", "\"hidden_size\": 16",
         "\"rope_scaling\": {\"rope_type\": \"spiral\", \"factor\": 2}, \"hidden_size\": 16"},
        {"longrope without factors", "\"hidden_size\": 16",
         "\"rope_scaling\": {\"rope_type\": \"longrope\"}, \"hidden_size\": 16"},
        {"more parameters than 2^50",
         "\"hidden_size\": 16, \"intermediate_size\": 12, \"num_hidden_layers\": 2",
         "\"hidden_size\": 16777216, \"intermediate_size\": 16777216, \"num_hidden_layers\": 4096"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char good[1024], bad[2048];
        af_error err = {0};
        af_model_spec s;
        af_hf_config c;
        snprintf(good, sizeof good, base_config, "llama", "");
        char *at = strstr(good, cases[i].find);
        assert_non_null(at);
        snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - good), good, cases[i].put,
                 at + strlen(cases[i].find));
        const af_status st = spec_of(bad, &s, &c, &err);
        CHECK_MSG(st != AF_OK, "%s passes", cases[i].why);
        CHECK_MSG(err.msg[0], "%s: no message", cases[i].why);
        print_message("%-28s %s\n", cases[i].why, err.msg);
    }
}

static void test_unknown_families(void **state)
{
    (void)state;
    char text[1024];
    af_error err = {0};
    af_model_spec s;
    af_hf_config c;
    af_log_set(keep_warning, NULL);
    snprintf(text, sizeof text, base_config, "vicuna_custom", "");
    CHECK_OK(spec_of(text, &s, &c, &err), err);
    assert_string_equal(s.arch->model_type, "llama");
    CHECK_MSG(strstr(last_warning, "vicuna_custom") && strstr(last_warning, "llama"), "warned '%s'",
              last_warning);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
    snprintf(text, sizeof text, base_config, "strange", ", \"parallel_attn\": true");
    assert_int_equal(spec_of(text, &s, &c, &err), AF_EUNSUPPORTED);
    CHECK_MSG(strstr(err.msg, "parallel_attn"), "%s", err.msg);
    af_log_set(NULL, NULL);
}

/* Every tensor that does not fit is in one message. */
static void test_tensors_that_do_not_fit_are_all_named(void **state)
{
    (void)state;
    static const struct {
        const char *why, *find, *put, *says[3];
    } cases[] = {
        {"a layer less in the config",
         "\"num_hidden_layers\": 2",
         "\"num_hidden_layers\": 1",
         {"not of this model", "model.layers.1.self_attn.q_proj.weight", ""}},
        {"a layer more",
         "\"num_hidden_layers\": 2",
         "\"num_hidden_layers\": 3",
         {"missing", "model.layers.2.input_layernorm.weight", ""}},
        {"another ffn",
         "\"intermediate_size\": 12",
         "\"intermediate_size\": 24",
         {"another shape", "model.layers.1.mlp.down_proj.weight is 16x12, not 16x24", ""}},
        {"a smaller vocabulary",
         "\"vocab_size\": 32",
         "\"vocab_size\": 31",
         {"another shape", "model.embed_tokens.weight is 32x16, not 31x16", ""}},
    };
    char from[4096], path[4200], dir[] = "/tmp/af_arch_XXXXXX", to[256], *config;
    uint64_t size;
    af_error err = {0};
    assert_non_null(mkdtemp(dir));
    CHECK_MSG(case_dir(from, sizeof from, "models/llama3_tiny"), "no llama3_tiny");
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    snprintf(to, sizeof to, "%s/model.safetensors", dir);
    CHECK_OK(af_file_copy(path, to, &err), err);
    snprintf(path, sizeof path, "%s/config.json", from);
    snprintf(to, sizeof to, "%s/config.json", dir);
    CHECK_OK(af_file_read(&config, &size, path, 1 << 20, &err), err);
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[8192];
        af_loader *s = NULL;
        char *at = strstr(config, cases[i].find);
        assert_non_null(at);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - config), config, cases[i].put,
                 at + strlen(cases[i].find));
        CHECK_OK(af_file_write(to, text, strlen(text), &err), err);
        CHECK_MSG(af_loader_open(&s, dir, &(af_loader_opts){0}, &err) != AF_OK, "%s passes",
                  cases[i].why);
        for (int k = 0; k < 3; k++)
            CHECK_MSG(strstr(err.msg, cases[i].says[k]), "%s: '%s' does not say '%s'", cases[i].why,
                      err.msg, cases[i].says[k]);
    }
    free(config);
    CHECK_OK(af_path_remove(dir, &err), err);
}

static void test_keys_the_family_does_not_read_change_nothing(void **state)
{
    (void)state;
    static const char more[] =
        ", \"attn_logit_softcapping\": 2.0, \"final_logit_softcapping\": 3.0, "
        "\"query_pre_attn_scalar\": 9, \"attention_multiplier\": 0.5, "
        "\"embedding_multiplier\": 12.0, \"residual_multiplier\": 0.5, \"logits_scaling\": 8.0";
    static const struct {
        const char *type;
        double attn_cap, logit_cap, attn_scale, embed, residual, logit;
    } cases[] = {
        {"llama", 0, 0, 0.5, 1, 1, 1},
        {"granite", 0, 0, 0.5, 12, 0.5, 0.125},
        {"gemma2", 2, 3, 1.0 / 3, 4, 1, 1},
        {"gemma3_text", 0, 3, 1.0 / 3, 4, 1, 1},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char json[1024];
        snprintf(json, sizeof json, base_config, cases[i].type, ", \"head_dim\": 4%s");
        char whole[1024];
        snprintf(whole, sizeof whole, json, more);
        af_model_spec s = {0};
        af_hf_config c = {0};
        af_error err = {0};
        CHECK_OK(spec_of(whole, &s, &c, &err), err);
        const double got[] = {s.attn_softcap, s.logit_softcap,  s.attn_scale,
                              s.embed_scale,  s.residual_scale, s.logit_scale};
        const double want[] = {cases[i].attn_cap, cases[i].logit_cap, cases[i].attn_scale,
                               cases[i].embed,    cases[i].residual,  cases[i].logit};
        for (size_t k = 0; k < AF_LEN(got); k++)
            CHECK_MSG(got[k] == want[k], "%s: number %zu is %g", cases[i].type, k, got[k]);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* Vision models name their text part in text_config, or have its keys among their own; its modules
 * lie inside the whole model either way. */
static void test_text_parts_of_vision_models(void **state)
{
    (void)state;
    static const struct {
        const char *outer, *inner;
        bool norm;
    } cases[] = {{"qwen3_vl", "qwen3_vl_text", true},
                 {"qwen2_5_vl", "qwen2_5_vl_text", false},
                 {"qwen2_vl", NULL, false},
                 {"qwen2_5_vl", NULL, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[1024], json[1400];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        const char *name = cases[i].inner ? cases[i].inner : cases[i].outer;
        snprintf(text, sizeof text, base_config, name,
                 ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [1, 1]}");
        snprintf(json, sizeof json, "{\"model_type\": \"%s\", \"text_config\": %s}", cases[i].outer,
                 text);
        CHECK_OK(spec_of(cases[i].inner ? json : text, &s, &c, &err), err);
        assert_string_equal(s.module[0].path, "model.language_model.layers.0.self_attn.q_proj");
        assert_int_equal(s.layer[0].tensor[AF_SLOT_Q_NORM] >= 0, cases[i].norm);
        assert_int_equal(s.layer[0].tensor[AF_SLOT_Q_BIAS] >= 0, !cases[i].norm);
        assert_int_equal(s.rope[0].config.type, AF_ROPE_DEFAULT);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* Inside the whole model, llama4 is a causal model with its head, gemmas are without. */
static void test_names_inside_other_models(void **state)
{
    (void)state;
    static const struct {
        const char *type, *layer, *head;
    } cases[] = {
        {"llama4", "language_model.model.layers.1.self_attn.q_proj", "language_model.lm_head"},
        {"gemma3n", "model.language_model.layers.1.self_attn.q_proj", "lm_head"},
        {"gemma4_unified", "model.language_model.layers.1.self_attn.q_proj", "lm_head"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char inner[64], text[1024], json[1400];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        bool found = false;
        snprintf(inner, sizeof inner, "%s_text", cases[i].type);
        snprintf(text, sizeof text, base_config, inner,
                 ", \"num_kv_shared_layers\": 0, \"head_dim\": 4");
        snprintf(json, sizeof json, "{\"model_type\": \"%s\", \"text_config\": %s}", cases[i].type,
                 text);
        CHECK_OK(spec_of(json, &s, &c, &err), err);
        for (int k = 0; k < s.modules; k++)
            found |= strcmp(s.module[k].path, cases[i].layer) == 0;
        assert_true(found);
        assert_string_equal(s.module[s.head_module].path, cases[i].head);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* Folders of gemma3n have keys and values that no layer reads. */
static void test_keys_of_layers_that_share(void **state)
{
    (void)state;
    char text[1024];
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    snprintf(text, sizeof text, base_config, "gemma3n_text",
             ", \"num_kv_shared_layers\": 1, \"layer_types\": [\"full_attention\", "
             "\"full_attention\"]");
    CHECK_OK(spec_of(text, &s, &c, &err), err);
    assert_int_equal(s.layer[1].kv_from, 0);
    assert_true(
        af_reader_is_unread_kv(&s, "model.language_model.layers.1.self_attn.k_proj.weight"));
    assert_true(af_reader_is_unread_kv(&s, "model.layers.1.self_attn.v_norm.weight"));
    assert_false(af_reader_is_unread_kv(&s, "model.layers.0.self_attn.k_proj.weight"));
    assert_false(af_reader_is_unread_kv(&s, "model.layers.1.self_attn.q_proj.weight"));
    assert_false(af_reader_is_unread_kv(&s, "model.layers.7.self_attn.k_proj.weight"));
    assert_false(af_reader_is_unread_kv(&s, "model.norm.weight"));
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

/* Adapter values are moved by projection: its modules follow each other. */
static void test_modules_of_a_projection_follow_each_other(void **state)
{
    (void)state;
    char text[1024];
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    snprintf(text, sizeof text, base_config, "gemma3n_text",
             ", \"num_kv_shared_layers\": 0, \"head_dim\": 4");
    CHECK_OK(spec_of(text, &s, &c, &err), err);
    const af_layer_spec *ls = &s.layer[0];
    assert_int_equal(ls->pieces[AF_GROUP_ALTUP_OPEN], 3);
    for (int k = 0; k < AF_GROUP_LAYER_COUNT; k++)
        for (int p = 1; p < ls->pieces[k]; p++)
            assert_int_equal(ls->module[k][p], ls->module[k][0] + p);
    af_model_spec_clear(&s);
    af_hf_config_clear(&c);
}

/* Versions of transformers before 5.23 normed the whole row. */
static void test_groups_of_gated_norms(void **state)
{
    (void)state;
    static const struct {
        const char *version;
        int64_t groups;
    } cases[] = {{"4.57.1", 1},      {"5.22.2", 1}, {"5.23.0", 2},
                 {"5.24.0.dev0", 2}, {"6.0.0", 2},  {"", 2}};
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[1024], more[256];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        snprintf(more, sizeof more,
                 ", \"mamba_n_heads\": 4, \"mamba_n_groups\": 2, \"attn_layer_indices\": [1], "
                 "\"transformers_version\": \"%s\"",
                 cases[i].version);
        snprintf(text, sizeof text, base_config, "bamba", more);
        CHECK_OK(spec_of(text, &s, &c, &err), err);
        CHECK_MSG(s.state.norm_groups == cases[i].groups, "version '%s'", cases[i].version);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

static void test_scale_of_scores_of_mpt(void **state)
{
    (void)state;
    static const struct {
        const char *scale;
        double want;
    } cases[] = {{"null", 0.5}, {"0.3", 0.3}}; /* 1 / sqrt(head size 4) */
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[512];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"mpt\", \"vocab_size\": 20, \"d_model\": 16, \"n_heads\": 4, "
                 "\"n_layers\": 2, \"attn_config\": {\"alibi\": true, \"softmax_scale\": %s}}",
                 cases[i].scale);
        CHECK_OK(spec_of(text, &s, &c, &err), err);
        assert_true(s.alibi == 8 && s.attn_scale == cases[i].want);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

/* What configs of modernbert-decoder may say and this build has no block for. */
static void test_values_of_modernbert_that_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *more, *why;
    } cases[] = {
        {"\"local_attention\": 9", NULL},
        {"\"norm_bias\": true", "norm_bias is true"},
        {"\"mlp_bias\": true", "mlp_bias is true"},
        {"\"classifier_bias\": true", "classifier_bias is true"},
        {"\"decoder_bias\": false", "decoder_bias is false"},
        {"\"classifier_activation\": \"relu\"", "classifier_activation"},
        {"\"local_attention\": 1", "local_attention"},
        {"\"architectures\": [\"ModernBertDecoderForSequenceClassification\"]", "classification"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[1024], more[256];
        af_error err = {0};
        af_model_spec s;
        af_hf_config c;
        snprintf(more, sizeof more, ", %s", cases[i].more);
        snprintf(text, sizeof text, base_config, "modernbert-decoder", more);
        const af_status st = spec_of(text, &s, &c, &err);
        CHECK_MSG((st == AF_OK) == !cases[i].why, "%s: %s", cases[i].more, err.msg);
        CHECK_MSG(!cases[i].why || strstr(err.msg, cases[i].why), "%s", err.msg);
        if (st != AF_OK)
            continue;
        assert_int_equal(s.layer[0].window, 0); /* every third layer sees everything */
        assert_int_equal(s.layer[1].window, 4);
        assert_true(s.rope[0].config.theta == 160000 && s.rope[1].config.theta == 1e4);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

#define HALF(attention, ffn) "{\"attention\": {" attention "}, \"ffn\": {" ffn "}}"
#define WHOLE                HALF("\"n_heads_in_group\": 2", "\"ffn_mult\": 1.5")

/* Blocks of nemotron-nas that are refused, and what a good list makes of them. */
static void test_blocks_of_nemotron_nas(void **state)
{
    (void)state;
    static const struct {
        const char *second, *why;
    } cases[] = {
        {HALF("\"no_op\": true", "\"ffn_mult\": 25.1"), NULL},
        {HALF("\"no_op\": true", "\"no_op\": true"), "with attention or an MLP"},
        {HALF("\"n_heads_in_group\": 3", "\"no_op\": true"), "n_heads_in_group"},
        {HALF("\"n_heads_in_group\": null", "\"no_op\": true"), "n_heads_in_group"},
        {HALF("\"n_heads_in_group\": 2", "\"ffn_mult\": -1"), "ffn_mult"},
        {HALF("\"n_heads_in_group\": 2", "\"ffn_mult\": 1e300"), "ffn_mult"},
        {HALF("\"n_heads_in_group\": 2", "\"replace_with_linear\": true"), "replace_with_linear"},
        {HALF("\"n_heads_in_group\": 2, \"window_length\": 8", "\"ffn_mult\": 1"), "window_length"},
        {HALF("\"n_heads_in_group\": 2, \"num_sink_tokens\": 1", ""), "num_sink_tokens"},
        {"{\"attention\": 7}", "attention is not an object"},
        {"7", "with attention or an MLP"},
        {WHOLE ", " WHOLE, "one entry per layer"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[1024], more[512];
        af_error err = {0};
        af_model_spec s;
        af_hf_config c;
        snprintf(more, sizeof more, ", \"block_configs\": [" WHOLE ", %s]", cases[i].second);
        snprintf(text, sizeof text, base_config, "nemotron-nas", more);
        const af_status st = spec_of(text, &s, &c, &err);
        CHECK_MSG((st == AF_OK) == !cases[i].why, "%s: %s", cases[i].second, err.msg);
        CHECK_MSG(!cases[i].why || strstr(err.msg, cases[i].why), "%s", err.msg);
        if (st != AF_OK)
            continue;
        assert_true(s.layer[0].kv_heads == 2 && s.layer[0].ffn == 256);
        assert_true(s.layer[1].mixer == AF_MIXER_NONE && s.layer[1].ffn == 512);
        assert_int_equal(af_model_spec_tensor(&s, "model.layers.1.input_layernorm.weight"), -1);
        assert_true(af_model_spec_tensor(&s, "model.layers.1.post_attention_layernorm.weight") > 0);
        af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text_parts_of_vision_models),
        cmocka_unit_test(test_names_inside_other_models),
        cmocka_unit_test(test_keys_of_layers_that_share),
        cmocka_unit_test(test_modules_of_a_projection_follow_each_other),
        cmocka_unit_test(test_groups_of_gated_norms),
        cmocka_unit_test(test_scale_of_scores_of_mpt),
        cmocka_unit_test(test_hostile_values_are_refused),
        cmocka_unit_test(test_values_of_modernbert_that_are_refused),
        cmocka_unit_test(test_blocks_of_nemotron_nas),
        cmocka_unit_test(test_keys_the_family_does_not_read_change_nothing),
        cmocka_unit_test(test_unknown_families),
        cmocka_unit_test(test_tensors_that_do_not_fit_are_all_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
