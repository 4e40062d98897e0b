/* test_config_state.c - the keys of families with state layers: defaults of transformers, and
 * hostile values, which have one clear error and allocate nothing. */
#include "format/config/hf_config.h"
#include "model/arch/arch.h"
#include "test.h"

#define SIZES                                                                                      \
    "\"vocab_size\":512,\"hidden_size\":64,\"num_hidden_layers\":5,\"num_attention_heads\":4,"     \
    "\"num_key_value_heads\":2"
#define CONFIG(type, more) "{\"model_type\":\"" type "\"," SIZES more "}"
#define FFN                ",\"intermediate_size\":96"

static void parse(af_hf_config *c, const char *text)
{
    af_error err = {0};
    CHECK_OK(af_hf_config_parse(c, text, strlen(text), "config.json", &err), err);
}

static void test_defaults(void **state)
{
    (void)state;
    af_hf_config c;
    parse(&c, CONFIG("qwen3_5_text", FFN));
    assert_int_equal(c.state.conv_kernel, 4);
    assert_int_equal(c.state.heads, 32);
    assert_int_equal(c.state.key_heads, 16);
    assert_int_equal(c.head_dim, 256);
    assert_true(c.rope.partial_rotary_factor == 0.25);
    for (int i = 0; i < 5; i++) /* every fourth */
        assert_int_equal(c.layer_types[i], i == 3 ? AF_LAYER_FULL : AF_LAYER_LINEAR);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("qwen3_5_moe_text", ",\"norm_topk_prob\":false"));
    assert_int_equal(c.num_experts, 256);
    assert_int_equal(c.router.shared_ffn, 512);
    assert_true(c.norm_topk_prob && c.router.shared_gate);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("qwen3_next", FFN ",\"full_attention_interval\":2"));
    assert_int_equal(c.layer_types[1], AF_LAYER_FULL);
    assert_int_equal(c.layer_types[2], AF_LAYER_LINEAR);
    assert_int_equal(c.num_experts_per_tok, 10);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("olmo_hybrid", FFN ",\"rope_parameters\":{\"rope_theta\":null}"));
    assert_int_equal(c.state.key_heads, 4); /* as attention has */
    assert_int_equal(c.state.heads, 4);
    assert_int_equal(c.state.key_dim, 12); /* 3/4 of 64 / 4 */
    assert_int_equal(c.state.head_dim, 24);
    assert_true(c.state.twice_beta && c.state.norm_eps == 1e-5);
    assert_true(c.no_rope && c.no_rope[3]);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], i == 3 ? AF_LAYER_FULL : AF_LAYER_LINEAR);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("olmo_hybrid", FFN ",\"rope_parameters\":{\"rope_type\":null}"));
    assert_non_null(c.no_rope);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("olmo_hybrid", FFN ",\"rope_parameters\":null,\"rope_theta\":null"));
    assert_non_null(c.no_rope);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("olmo_hybrid", FFN ",\"rope_parameters\":null"));
    assert_true(!c.no_rope && c.rope.theta == 1e4); /* as transformers has it */
    af_hf_config_clear(&c);
    parse(&c, CONFIG("kimi_linear", FFN ",\"num_experts\":12,\"num_experts_per_token\":3,"
                                        "\"model_max_length\":77,\"moe_renormalize\":false,"
                                        "\"linear_attn_config\":{\"full_attn_layers\":[2,5],"
                                        "\"kda_layers\":[1,3,4],\"head_dim\":10,\"num_heads\":3,"
                                        "\"short_conv_kernel_size\":2}")); /* as published */
    assert_int_equal(c.num_experts, 12);
    assert_int_equal(c.num_experts_per_tok, 3);
    assert_int_equal(c.max_position_embeddings, 77);
    assert_true(!c.norm_topk_prob && c.router.scale == 2.446 && c.no_rope);
    assert_int_equal(c.state.heads, 3);
    assert_int_equal(c.state.key_dim, 10);
    assert_int_equal(c.state.gate_rank, 10);
    assert_int_equal(c.state.conv_kernel, 2);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], i == 1 || i == 4 ? AF_LAYER_FULL : AF_LAYER_LINEAR);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("kimi_linear", FFN));
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], i == 4 ? AF_LAYER_FULL : AF_LAYER_LINEAR);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("bailing_hybrid", FFN ",\"head_dim\":10,\"layer_group_size\":2,"
                                           "\"num_experts\":16")); /* as published */
    assert_int_equal(c.state.heads, 4);                            /* as attention has */
    assert_int_equal(c.state.key_dim, 10);
    assert_true(c.state.gate_rank == 0 && c.state.decay_bound == -5 && c.rope.theta == 6e6);
    assert_int_equal(c.router.groups, 8);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], i % 2 ? AF_LAYER_FULL : AF_LAYER_LINEAR);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("bailing_hybrid", FFN ",\"head_dim\":4,\"linear_head_dim\":10,"
                                           "\"kda_safe_gate\":false")); /* as transformers writes */
    assert_int_equal(c.state.key_dim, 10);
    assert_true(c.state.decay_bound == 0);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"num_local_experts\":0,"
                                             "\"shared_intermediate_size\":40"));
    assert_int_equal(c.state.head_dim, 16); /* 2 * 64 / 8 */
    assert_int_equal(c.intermediate_size, 40);
    assert_int_equal(c.num_experts, 0);
    assert_true(c.no_rope && c.no_rope[4]);
    assert_int_equal(c.layer_types[0], AF_LAYER_MAMBA);
    af_hf_config_clear(&c);
    parse(&c, "{\"model_type\":\"mamba\",\"vocab_size\":512,\"hidden_size\":40,"
              "\"num_hidden_layers\":2}");
    assert_int_equal(c.state.step_rank, 3); /* 40 / 16, upwards */
    assert_int_equal(c.state.inner, 80);
    af_hf_config_clear(&c);
    parse(&c,
          "{\"model_type\":\"falcon_mamba\",\"vocab_size\":512,\"hidden_size\":40,\"expand\":16,"
          "\"intermediate_size\":80,\"num_hidden_layers\":2}");
    assert_int_equal(c.state.inner, 80); /* expand times hidden_size only where it is not said */
    assert_int_equal(c.state.heads, 80);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("jamba", FFN ",\"expert_layer_offset\":0"));
    assert_int_equal(c.layer_types[4], AF_LAYER_FULL);
    assert_int_equal(c.layer_types[3], AF_LAYER_MAMBA);
    assert_int_equal(c.mlp_only_count, 2); /* of layers 0 to 4: 1 and 3 */
    af_hf_config_clear(&c);
    parse(&c, CONFIG("jamba", FFN ",\"num_experts\":1"));
    assert_int_equal(c.mlp_only_count, 5);
    af_hf_config_clear(&c);
}

static void test_lfm2_widths_and_layers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t width;
    } cases[] = {
        {CONFIG("lfm2", ",\"block_ff_dim\":1000,\"block_multiple_of\":64"), 704}, /* 666 -> */
        {CONFIG("lfm2", ",\"intermediate_size\":1000,\"block_auto_adjust_ff_dim\":false"), 1000},
        {CONFIG("lfm2", ",\"intermediate_size\":900,\"block_ffn_dim_multiplier\":1.5,"
                        "\"block_multiple_of\":1"),
         900},
    };
    af_hf_config c;
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        parse(&c, cases[i].text);
        assert_int_equal(c.intermediate_size, cases[i].width);
        af_hf_config_clear(&c);
    }
    parse(&c, CONFIG("lfm2", FFN ",\"full_attn_idxs\":[1,4],\"tie_embedding\":false"));
    assert_false(c.tie_word_embeddings);
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], i % 3 == 1 ? AF_LAYER_FULL : AF_LAYER_CONV);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("lfm2_moe", FFN ",\"num_dense_layers\":1"));
    assert_int_equal(c.mlp_only_count, 1);
    assert_true(c.router.sigmoid && c.router.choice_bias && c.router.eps == 1e-6);
    af_hf_config_clear(&c);
}

static void test_lfm3_defaults(void **state)
{
    (void)state;
    static const af_layer_type kinds[] = {AF_LAYER_CONV, AF_LAYER_CONV, AF_LAYER_FULL,
                                          AF_LAYER_CONV, AF_LAYER_SLIDING};
    af_hf_config c;
    parse(&c, CONFIG("lfm3", ",\"rope_theta\":5,\"hidden_act\":\"gelu\",\"rms_norm_eps\":1e-3"));
    assert_true(c.state.conv_kernel == 7 && c.head_dim == 128 && c.intermediate_size == 7680);
    assert_true(c.sliding_window == 256 && c.tie_word_embeddings && c.padding_row == 124893);
    assert_true(!c.no_post_norm && c.attn_gate_heads && c.rms_norm_eps == 1e-3);
    assert_true(c.rope.type == AF_ROPE_PROPORTIONAL && c.rope.theta == 1e6);
    assert_true(c.rope.partial_rotary_factor == 0.5 && c.local_rope.partial_rotary_factor == 1);
    assert_true(c.has_local_rope && c.local_rope.theta == 1e4);
    assert_string_equal(c.hidden_act, "silu");
    for (int i = 0; i < 5; i++)
        assert_int_equal(c.layer_types[i], kinds[i]);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("lfm3", ",\"rope_theta\":5,\"norm_eps\":1e-4,\"rope_parameters\":"
                             "{\"full_attention\":{},\"sliding_attention\":{}}"));
    assert_true(c.rope.theta == 5 && c.local_rope.theta == 5 && c.rms_norm_eps == 1e-4);
    assert_int_equal(c.rope.type, AF_ROPE_DEFAULT);
    af_hf_config_clear(&c);
}

static void test_whole_model_may_tie_its_text_part(void **state)
{
    (void)state;
    af_hf_config c;
    parse(&c, "{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"text_config\":"
              "{\"model_type\":\"qwen3_5_text\"," SIZES FFN "}}");
    assert_true(c.nested && c.tie_word_embeddings);
    af_hf_config_clear(&c);
}

static void test_hostile_values(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {CONFIG("qwen3_5_text", FFN ",\"linear_conv_kernel_dim\":0"), "linear_conv_kernel_dim"},
        {CONFIG("qwen3_5_text", FFN ",\"linear_conv_kernel_dim\":100000000"),
         "linear_conv_kernel_dim"},
        {CONFIG("qwen3_5_text", FFN ",\"linear_key_head_dim\":1000000000"), "linear_key_head_dim"},
        {CONFIG("qwen3_5_text", FFN ",\"linear_value_head_dim\":-1"), "linear_value_head_dim"},
        {CONFIG("qwen3_5_text", FFN ",\"linear_num_key_heads\":0"), "linear_num_key_heads"},
        {CONFIG("qwen3_5_text", FFN ",\"linear_num_key_heads\":3,\"linear_num_value_heads\":4"),
         "linear_num_value_heads 4 is not a multiple of linear_num_key_heads 3"},
        {CONFIG("qwen3_5_text", FFN ",\"full_attention_interval\":0"), "full_attention_interval"},
        {CONFIG("qwen3_5_text", FFN ",\"layer_types\":[\"conv2\",\"conv\",\"conv\",\"conv\","
                                    "\"conv\"]"),
         "layer_types"},
        {CONFIG("qwen3_5_moe_text", ",\"shared_expert_intermediate_size\":-2"),
         "shared_expert_intermediate_size"},
        {CONFIG("lfm2", FFN ",\"conv_L_cache\":0"), "conv_L_cache"},
        {CONFIG("lfm2", FFN ",\"block_multiple_of\":0"), "block_multiple_of"},
        {CONFIG("lfm2", FFN ",\"block_ffn_dim_multiplier\":-1"), "block_ffn_dim_multiplier"},
        {CONFIG("lfm2_moe", FFN ",\"num_dense_layers\":1000000000"), "num_dense_layers"},
        {CONFIG("lfm3", ",\"conv_L_cache\":65"), "conv_L_cache"},
        {CONFIG("lfm3", ",\"use_sandwich_norm\":2"), "use_sandwich_norm"},
        {CONFIG("lfm3", ",\"use_attention_gate\":\"x\""), "use_attention_gate"},
        {CONFIG("lfm3", ",\"sliding_window\":null"), "sliding_window is not set"},
        {CONFIG("lfm3", ",\"rope_parameters\":{\"rope_theta\":1e4}"),
         "rope_parameters is not an object for each kind"},
        {CONFIG("lfm3", ",\"rope_parameters\":{\"full_attention\":{}}"),
         "rope_parameters is not an object for each kind"},
        {CONFIG("lfm3", ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":2}"),
         "rope_scaling"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_d_conv\":0"), "mamba_d_conv"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_d_state\":123456789"), "mamba_d_state"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"mamba_n_groups\":3"),
         "mamba_n_heads 8 is not a multiple of mamba_n_groups 3"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":7"), "mamba_expand * hidden_size"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"mamba_d_head\":3"),
         "mamba_expand * hidden_size"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"time_step_limit\":[0.1,0.01]"),
         "time_step_limit is not a list of two rising numbers"},
        {CONFIG("bamba", FFN ",\"mamba_n_heads\":8,\"z_loss_coefficient\":0.1"),
         "z_loss_coefficient is not 0"},
        {CONFIG("bamba", FFN ",\"mamba_n_heads\":8,\"hidden_act\":\"gelu\""),
         "hidden_act is 'gelu': Mamba layers are supported with silu alone"},
        {CONFIG("falcon_h1", FFN ",\"mamba_n_heads\":8,\"ssm_multipliers\":[1,2]"),
         "ssm_multipliers is not a list of as many multipliers"},
        {CONFIG("falcon_h1", FFN ",\"mamba_n_heads\":8,\"key_multiplier\":0"), "key_multiplier"},
        {CONFIG("falcon_h1", FFN ",\"mamba_n_heads\":7"), "mamba_d_ssm"},
        {CONFIG("mamba2", ",\"num_heads\":8,\"head_dim\":3"), "expand * hidden_size"},
        {CONFIG("mamba2", ",\"num_heads\":8,\"n_groups\":3"), "not a multiple of n_groups 3"},
        {CONFIG("nemotron_h", FFN ",\"layers_block_type\":[]"), "num_hidden_layers is 0"},
        {CONFIG("nemotron_h", FFN), "hybrid_override_pattern (layers_block_type) is not a text"},
        {CONFIG("nemotron_h", FFN ",\"hybrid_override_pattern\":\"M*X\""), "one of M, *, - and E"},
        {CONFIG("nemotron_h", FFN ",\"hybrid_override_pattern\":\"ME\",\"mlp_bias\":true"),
         "experts with biases are not supported"},
        {CONFIG("nemotron_h",
                FFN ",\"hybrid_override_pattern\":\"ME\",\"moe_latent_size\":100000000"),
         "moe_latent_size"},
        {CONFIG("nemotron_h", FFN ",\"hybrid_override_pattern\":\"M\",\"time_step_min\":-1"),
         "time_step_min"},
        {CONFIG("qwen3_5_text", FFN ",\"hidden_act\":\"gelu\""),
         "hidden_act is 'gelu': delta nets are supported with silu alone"},
        {CONFIG("qwen3_next", FFN ",\"hidden_act\":\"gelu\""),
         "hidden_act is 'gelu': delta nets are supported with silu alone"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"hidden_act\":\"gelu\""),
         "hidden_act is 'gelu': Mamba layers are supported with silu alone"},
        {CONFIG("granitemoehybrid", FFN ",\"mamba_n_heads\":8,\"num_local_experts\":99999999"),
         "num_local_experts"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_error err = {0};
        af_hf_config c = {0};
        const char *t = cases[i].text;
        CHECK_MSG(af_hf_config_parse(&c, t, strlen(t), "config.json", &err) != AF_OK,
                  "accepted: %s", t);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: '%s'", t, err.msg);
    }
}

/* Sizes at their limits: a list of tensors, and no more. */
static void test_largest_sizes(void **state)
{
    (void)state;
    af_hf_config c;
    af_model_spec s;
    af_error err = {0};
    parse(&c, CONFIG("qwen3_5_text",
                     FFN ",\"linear_num_value_heads\":65536,\"linear_num_key_heads\":65536,"
                         "\"linear_key_head_dim\":4096,\"linear_value_head_dim\":4096"));
    if (af_model_spec_init(&s, &c, &err) == AF_OK)
        af_model_spec_clear(&s);
    else
        CHECK_MSG(strstr(err.msg, "2^50"), "%s", err.msg);
    af_hf_config_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_lfm2_widths_and_layers),
        cmocka_unit_test(test_lfm3_defaults),
        cmocka_unit_test(test_whole_model_may_tie_its_text_part),
        cmocka_unit_test(test_hostile_values),
        cmocka_unit_test(test_largest_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
