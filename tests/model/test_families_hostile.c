/* test_families_hostile.c - the config of every family with one value made wrong at a time: it is
 * described or refused in one sentence, with little memory. */
#include "family_case.h"

#include <dirent.h>
#include <sys/resource.h>

static const char *const values[] = {
    "0",    "-1",   "3",      "2147483648", "9223372036854775807",
    "1e30", "-0.5", "1e-320", "null",       "\"x\"",
    "[]",   "{}",   "true",   "[1, 2]",     "-9223372036854775808"};

static int tried, refused;
static size_t keys;

/* Parses and describes; what is refused has one sentence. */
static void judge(const char *family, const char *key, const char *value, const json_t *config)
{
    af_error err = {0};
    af_hf_config c;
    af_model_spec s;
    char *text = json_dumps(config, 0);
    af_status st = af_hf_config_parse(&c, text, strlen(text), "config.json", &err);
    if (st == AF_OK) {
        st = af_model_spec_init(&s, &c, &err);
        if (st == AF_OK)
            af_model_spec_clear(&s);
        af_hf_config_clear(&c);
    }
    CHECK_MSG(st == AF_OK || (err.msg[0] && !strchr(err.msg, '\n')), "%s: %s = %s: \"%s\"", family,
              key, value, err.msg);
    CHECK_MSG(st != AF_ENOMEM, "%s: %s = %s asks for too much memory: %s", family, key, value,
              err.msg);
    tried++;
    refused += st != AF_OK;
    free(text);
}

/* Every key of an object, and of the objects in it. */
static void each_key(const char *family, const json_t *config, json_t *object)
{
    void *it = json_object_iter(object);
    while (it) {
        const char *key = json_object_iter_key(it);
        json_t *kept = json_incref(json_object_iter_value(it));
        keys++; /* under a sanitizer the families that have a key divide its values among them */
        for (size_t i = 0; i < AF_LEN(values); i++) {
            if (!test_takes(i + keys))
                continue;
            json_object_iter_set_new(object, it, json_loads(values[i], JSON_DECODE_ANY, NULL));
            judge(family, key, values[i], config);
        }
        json_object_iter_set_new(object, it, kept);
        if (json_is_object(kept))
            each_key(family, config, kept);
        it = json_object_iter_next(object, it);
    }
}

static void test_every_key_of_every_family(void **state)
{
    (void)state;
    char root[4096], path[4400];
    struct dirent **list;
    struct rusage before, after;
    snprintf(root, sizeof root, "%s/families", golden_dir());
    const int n = scandir(root, &list, NULL, NULL);
    assert_true(n > 2);
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", root, list[i]->d_name);
        if (strstr(path, ".json")) {
            json_t *j = read_json(path), *config = json_object_get(j, "config");
            each_key(list[i]->d_name, config, config);
            json_decref(j);
        }
        free(list[i]);
    }
    free(list);
    getrusage(RUSAGE_SELF, &after);
    print_message("%d configs, %d refused, %ld KiB more\n", tried, refused,
                  after.ru_maxrss - before.ru_maxrss);
    assert_true(refused > tried / 8);
#ifndef __SANITIZE_ADDRESS__
    assert_true(after.ru_maxrss - before.ru_maxrss < 256 << 10);
#endif
}

/* Keys only one family reads, which its golden may lack. */
static void test_keys_of_one_family(void **state)
{
    (void)state;
    static const struct {
        const char *type, *more, *says;
    } cases[] = {
        {"ministral3", "\"rope_parameters\": {\"llama_4_scaling_beta\": -1}", "llama_4_scaling"},
        {"ministral3", "\"rope_parameters\": {\"llama_4_scaling_beta\": 0.1}", "original_max"},
        {"hunyuan_v1_dense",
         "\"rope_parameters\": {\"rope_type\": \"dynamic\", \"factor\": 1, \"alpha\": -3}",
         "alpha"},
        {"cohere", "\"logit_scale\": 0", "logit_scale"},
        {"ernie4_5_moe", "\"use_bias\": true", "use_bias is true"},
        {"ernie4_5_moe", "\"moe_norm_min\": 0.5", "moe_norm_min"},
        {"granite_swa", "\"layer_rope_theta\": [10000.0]", "one entry per layer"},
        {"granite_swa", "\"layer_rope_theta\": [\"x\", 2]", "layer_rope_theta"},
        {"hunyuan_v1_moe", "\"num_experts\": 4, \"moe_topk\": [1, 2]", "the same number"},
        {"phi", "\"qk_layernorm\": 3", "qk_layernorm"},
        {"gpt2", "\"n_embd\": -3", "hidden_size is -3"},
        {"gpt2", "\"n_positions\": 1e30", "n_positions"},
        {"gpt2", "\"n_positions\": 1099511627776", "more than a table"},
        {"gpt2", "\"scale_attn_weights\": false", "scale_attn_weights is false"},
        {"gpt2", "\"scale_attn_by_inverse_layer_idx\": true", "inverse_layer_idx is true"},
        {"gpt2", "\"add_cross_attention\": true", "add_cross_attention is true"},
        {"gptj", "\"rotary_dim\": 6", "rotary_dim"},
        {"gptj", "\"rotary_dim\": null, \"n_head\": 1, \"n_embd\": 8", "rotary_dim"},
        {"codegen", "\"n_head\": 2, \"rotary_dim\": 2", "n_head is not a multiple of 4"},
        {"opt", "\"do_layer_norm_before\": 3", "do_layer_norm_before"},
        {"opt", "\"word_embed_proj_dim\": -8", "word_embed_proj_dim"},
        {"opt", "\"word_embed_proj_dim\": 1e30", "word_embed_proj_dim"},
        {"opt", "\"layer_norm_elementwise_affine\": 2", "elementwise_affine"},
        {"opt", "\"layerdrop\": 0.1", "layerdrop"},
        {"bloom", "\"apply_residual_connection_post_layernorm\": 7", "post_layernorm"},
        {"bloom", "\"n_embed\": 18", "18"},
        {"bloom", "\"n_head\": 0", "0"},
        {"mpt", "\"attn_config\": [1]", "attn_config"},
        {"mpt", "\"attn_config\": {\"alibi\": false}", "alibi is false"},
        {"mpt", "\"attn_config\": {\"qk_ln\": true}", "qk_ln is true"},
        {"mpt", "\"attn_config\": {\"attn_type\": \"multiquery_attention\"}", "attn_type"},
        {"mpt", "\"attn_config\": {\"alibi_bias_max\": -8}", "alibi_bias_max"},
        {"mpt", "\"attn_config\": {\"alibi_bias_max\": \"x\"}", "alibi_bias_max"},
        {"mpt", "\"attn_config\": {\"softmax_scale\": 0}", "softmax_scale"},
        {"mpt", "\"attn_config\": {\"clip_qkv\": -1}", "clip_qkv"},
        {"mpt", "\"attn_config\": {\"attn_pdrop\": 1}", "attn_pdrop"},
        {"biogpt", "\"layerdrop\": 0.1", "layerdrop"},
        {"xglm", "\"activation_dropout\": 0.1", "activation_dropout"},
        {"xglm", "\"add_cross_attention\": true", "add_cross_attention"},
        {"mpt", "\"no_bias\": false", "no_bias is false"},
        {"olmoe", "\"num_experts\": 4, \"clip_qkv\": -1", "clip_qkv"},
        {"olmoe", "\"num_experts\": 4, \"clip_qkv\": \"x\"", "clip_qkv"},
        {"dbrx", "\"attn_config\": 3", "attn_config"},
        {"dbrx", "\"ffn_config\": [1]", "ffn_config"},
        {"dbrx", "\"attn_config\": {\"kv_n_heads\": 3}", "3"},
        {"dbrx", "\"attn_config\": {\"kv_n_heads\": -1}", "kv_n_heads"},
        {"dbrx", "\"attn_config\": {\"attn_pdrop\": 0.1}", "attn_pdrop"},
        {"dbrx", "\"ffn_config\": {\"moe_top_k\": 9}", "9"},
        {"dbrx", "\"ffn_config\": {\"ffn_hidden_size\": 0}", "ffn_hidden_size"},
        {"dbrx", "\"ffn_config\": {\"moe_jitter_eps\": 0.1}", "moe_jitter_eps"},
        {"dbrx", "\"ffn_config\": {\"moe_normalize_expert_weights\": 2}", "normalize_expert"},
        {"dbrx", "\"output_router_logits\": \"x\"", "output_router_logits"},
        {"dbrx", "\"ffn_config\": {\"ffn_act_fn\": {\"name\": \"x\"}}", "'x'"},
        {"internlm2", "\"bias\": 3", "bias"},
        {"minicpm", "\"num_experts\": 8", "num_experts is not 0"},
        {"minicpm", "\"dim_model_base\": 0", "dim_model_base"},
        {"minicpm", "\"scale_depth\": \"x\"", "scale_depth"},
        {"minicpm", "\"scale_emb\": -1", "embedding_multiplier"},
        {"chatglm", "\"multi_query_attention\": false", "multi_query_attention"},
        {"chatglm", "\"multi_query_attention\": true, \"rope_ratio\": -2", "rope_ratio"},
        {"chatglm", "\"multi_query_attention\": true, \"rmsnorm\": false", "rmsnorm"},
        {"chatglm", "\"multi_query_attention\": true, \"pre_seq_len\": 128", "pre_seq_len"},
        {"baichuan", "\"z_loss_weight\": 0.1", "z_loss_weight"},
        {"baichuan", "\"model_max_length\": \"x\"", "model_max_length"},
        {"deepseek", "\"n_routed_experts\": 4, \"moe_layer_freq\": 2", "moe_layer_freq"},
        {"deepseek", "\"n_routed_experts\": 4, \"scoring_func\": \"sigmoid\"", "scoring_func"},
        {"deepseek", "\"n_routed_experts\": 4, \"n_shared_experts\": -1", "n_shared_experts"},
        {"bailing_moe", "\"use_bias\": true", "use_bias"},
        {"bailing_moe", "\"use_bias\": false, \"num_shared_experts\": 1e30", "num_shared_experts"},
        {"bailing_moe", "\"use_bias\": false", "moe_intermediate_size 0"},
        {"bailing_moe_v2", "\"norm_head\": true", "norm_head"},
        {"bailing_moe_v2", "\"use_qk_norm\": 3", "use_qk_norm"},
        {"bailing_moe_v2", "\"num_experts\": 10, \"moe_intermediate_size\": 4", "n_group"},
        {"exaone", "\"num_layers\": -1", "num_hidden_layers is -1"},
        {"exaone", "\"activation_function\": \"x\"", "'x'"},
        {"mamba", "\"time_step_rank\": \"x\"", "time_step_rank"},
        {"jamba", "\"mamba_dt_rank\": \"x\"", "mamba_dt_rank"},
        {"phimoe", "\"num_experts_per_tok\": 3", "as many as the sparse mixer takes"},
        {"phimoe", "\"router_jitter_noise\": -1", "router_jitter_noise"},
        {"phimoe",
         "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, \"short_mscale\": 1}",
         "short_mscale"},
        {"starcoder2", "\"norm_epsilon\": -1", "rms_norm_eps"},
        {"nemotron", "\"norm_eps\": 1e99", "rms_norm_eps"},
        {"exaone4", "\"sliding_window_pattern\": -2", "sliding_window_pattern"},
        {"olmo3", "\"layer_types\": [\"conv\", \"full_attention\"]", "layer_types"},
        {"olmo_hybrid", "\"linear_num_key_heads\": 3", "not a multiple of linear_num_key_heads 3"},
        {"olmo_hybrid", "\"linear_num_value_heads\": 0", "linear_num_value_heads"},
        {"olmo_hybrid", "\"linear_key_head_dim\": -6", "linear_key_head_dim"},
        {"olmo_hybrid", "\"linear_key_head_dim\": 4000", "linear_value_head_dim"},
        {"olmo_hybrid", "\"linear_num_key_heads\": 16, \"linear_num_value_heads\": 16",
         "linear_key_head_dim"},
        {"olmo_hybrid", "\"linear_value_head_dim\": 1e30", "linear_value_head_dim"},
        {"olmo_hybrid", "\"linear_conv_kernel_dim\": 65", "linear_conv_kernel_dim"},
        {"olmo_hybrid", "\"linear_allow_neg_eigval\": 2", "linear_allow_neg_eigval"},
        {"olmo_hybrid", "\"hidden_act\": \"gelu\"", "silu alone"},
        {"olmo_hybrid", "\"layer_types\": [\"conv\", \"full_attention\"]", "layer_types"},
        {"olmo_hybrid", "\"rope_parameters\": {\"rope_theta\": \"x\"}", "rope_theta"},
        {"axk1", "\"q_lora_rank\": null", "q_lora_rank"},
        {"deepseek_v32", "\"q_lora_rank\": null", "q_lora_rank"},
        {"deepseek_v32", "\"index_topk\": 0", "index_topk"},
        {"deepseek_v32", "\"index_n_heads\": 1e30", "index_n_heads"},
        {"deepseek_v32", "\"index_head_dim\": 32", "at least qk_rope_head_dim"},
        {"glm_moe_dsa", "\"indexer_types\": [\"full\"]", "indexer_types"},
        {"glm_moe_dsa", "\"indexer_types\": [\"shared\", \"full\"]", "beginning with"},
        {"glm_moe_dsa", "\"index_topk_pattern\": \"FX\"", "index_topk_pattern"},
        {"glm_moe_dsa", "\"index_topk_pattern\": \"F\"", "index_topk_pattern"},
        {"glm_moe_dsa", "\"index_topk_freq\": -1", "index_topk_freq"},
        {"longcat_flash", "\"num_layers\": 2", "twice num_layers"},
        {"kolibri1", "\"num_experts_per_tok\": 0", "num_experts_per_tok"},
        {"kolibri1", "\"shared_expert_intermediate_size\": 1e30", "shared_expert"},
        {"kolibri1", "\"sliding_window\": null", "sliding_window"},
        {"longcat_flash", "\"zero_expert_num\": -1", "zero_expert_num"},
        {"longcat_flash", "\"zero_expert_num\": 1e30", "zero_expert_num"},
        {"longcat_flash", "\"zero_expert_type\": \"copy\"", "zero_expert_type"},
        {"longcat_flash", "\"router_bias\": true", "router_bias"},
        {"longcat_flash", "\"moe_topk\": 0", "moe_topk"},
        {"longcat_flash", "\"q_lora_rank\": null", "q_lora_rank"},
        {"longcat_flash", "\"qk_head_dim\": 3", "qk_head_dim"},
        {"longcat_flash", "\"qk_rope_head_dim\": 6", "head_dim"},
        {"longcat_flash", "\"mla_scale_q_lora\": false, \"qk_rope_head_dim\": 4",
         "mla_scale_q_lora"},
        {"axk2", "\"gated_norm_rank\": 0", "gated_norm_rank"},
        {"axk2", "\"n_group\": 2, \"topk_group\": 1", "n_group"},
        {"axk2", "\"q_lora_rank\": null", "q_lora_rank"},
        {"axk2", "\"moe_layer_freq\": 2", "moe_layer_freq"},
        {"axk1", "\"moe_layer_freq\": 2", "moe_layer_freq"},
        {"axk1", "\"mlp_layer_types\": [\"dense\"]", "mlp_layer_types"},
        {"axk1", "\"n_group\": 7", "n_group"},
        {"axk1", "\"routed_scaling_factor\": -1", "routed_scaling_factor"},
        {"deepseek_v3", "\"routed_scaling_factor\": 1e30", "routed_scaling_factor"},
        {"kimi_linear", "\"routed_scaling_factor\": 0", "routed_scaling_factor"},
        {"lfm3", "\"layer_types\": [\"conv\", \"linear_attention\"]", "layer_types of lfm3"},
        {"lfm3", "\"norm_eps\": -1", "rms_norm_eps"},
        {"mimo_v2_flash", "\"v_head_dim\": 5", "v_head_dim is not at most head_dim"},
        {"mimo_v2_flash", "\"v_head_dim\": 0", "v_head_dim"},
        {"mimo_v2_flash", "\"v_head_dim\": 4, \"attention_value_scale\": -1", "value_scale"},
        {"mimo_v2_flash", "\"v_head_dim\": 4, \"sliding_window_size\": -2", "sliding_window_size"},
        {"mimo_v2_flash", "\"v_head_dim\": 4, \"rope_parameters\": {\"rope_theta\": 1e4}",
         "one for full_attention"},
        {"mimo_v2_flash", "\"v_head_dim\": 4, \"swa_num_key_value_heads\": 8", "twice num_key"},
        {"mimo_v2_flash", "\"v_head_dim\": 4, \"hybrid_layer_pattern\": [1, 1]", "layer_types"},
        {"gemma4_unified_text", "\"num_kv_shared_layers\": 1, \"sliding_window\": 4",
         "to share with"},
        {"aria_text", "\"moe_num_experts\": 0", "moe_num_experts"},
        {"aria_text", "\"moe_topk\": 9", "num_experts_per_tok is 9 of num_experts 8"},
        {"aria_text", "\"moe_num_shared_experts\": 1000000", "moe_num_shared_experts"},
        {"aria_text", "\"mlp_bias\": true", "mlp_bias true"},
        {"aria_text", "\"hidden_act\": \"gelu\"", "hidden_act 'gelu'"},
        {"gemma4_unified_text", "\"num_kv_shared_layers\": -1", "num_kv_shared_layers"},
        {"gemma4_unified_text", "\"global_head_dim\": 1e9", "global_head_dim"},
        {"gemma4_unified_text", "\"per_layer_config\": {\"9\": {}}", "per_layer_config"},
        {"gemma4_unified_text", "\"use_bidirectional_attention\": \"all\"",
         "use_bidirectional_attention"},
        {"minimax_m3_vl_text", "\"swiglu_limit\": 0", "swiglu_limit"},
        {"minimax_m3_vl_text", "\"swiglu_alpha\": 1", "swiglu_alpha"},
        {"minimax_m3_vl_text", "\"shared_intermediate_size\": 0", "shared_intermediate_size"},
        {"minimax_m3_vl_text", "\"dense_intermediate_size\": 1e30", "dense_intermediate_size"},
        {"minimax_m3_vl_text", "\"moe_layer_freq\": [1]", "moe_layer_freq"},
        {"minimax_m3_vl_text", "\"moe_layer_freq\": 1", "moe_layer_freq"},
        {"minimax_m3_vl_text", "\"sparse_attention_config\": [1]", "sparse_attention_config"},
        {"minimax_m3_vl_text", "\"sparse_attention_config\": {\"sparse_attention_freq\": [1]}",
         "sparse_attention_freq"},
        {"minimax_m3_vl_text", "\"sparse_attention_config\": {\"sparse_block_size\": -1}",
         "sparse_block_size"},
        {"minimax_m3_vl_text", "\"index_topk_blocks\": 1e30", "index_topk_blocks"},
        {"minimax", "\"mlp_alpha_factor\": 0", "mlp_alpha_factor"},
        {"minimax", "\"linear_attn_beta_factor\": \"x\"", "linear_attn_beta_factor"},
        {"minimax", "\"full_attn_alpha_factor\": 1e30", "full_attn_alpha_factor"},
        {"minimax", "\"layer_types\": [\"conv\", \"full_attention\"]", "linear_attention"},
        {"minimax", "\"layer_types\": [\"full_attention\"]", "layer_types"},
        {"minimax", "\"sliding_window\": -3", "sliding_window"},
        {"minimax_text_01", "\"postnorm\": true", "attn_type_list"},
        {"minimax_text_01", "\"postnorm\": true, \"attn_type_list\": [0, 2]", "attn_type_list"},
        {"minimax_text_01", "\"attn_type_list\": [0, 1]", "postnorm is not true"},
        {"minimax_m1",
         "\"postnorm\": true, \"attn_type_list\": [0, 1], \"shared_intermediate_size\": 8",
         "shared_intermediate_size"},
        {"minimax_m1",
         "\"postnorm\": true, \"attn_type_list\": [0, 1], \"shared_intermediate_size\": [0, 8]",
         "shared_intermediate_size"},
        {"minimax_text_01", "\"postnorm\": true, \"attn_type_list\": [0, 1], \"rotary_dim\": 6",
         "partial_rotary_factor"},
        {"minimax_text_01",
         "\"postnorm\": true, \"attn_type_list\": [0, 1], \"layernorm_mlp_beta\": 0",
         "layernorm_mlp_beta"},
        {"kimi_linear", "\"linear_num_heads\": 0", "linear_num_heads"},
        {"kimi_linear", "\"linear_head_dim\": 1e30", "linear_head_dim"},
        {"kimi_linear", "\"linear_conv_kernel_dim\": 65", "linear_conv_kernel_dim"},
        {"kimi_linear", "\"linear_attn_config\": 3", "linear_attn_config"},
        {"kimi_linear", "\"linear_attn_config\": {\"num_heads\": -1}", "num_heads"},
        {"kimi_linear", "\"linear_attn_config\": {\"head_dim\": 5000}", "head_dim"},
        {"kimi_linear", "\"linear_attn_config\": {\"short_conv_kernel_size\": 0}", "short_conv"},
        {"kimi_linear",
         "\"linear_attn_config\": {\"full_attn_layers\": [0], \"kda_layers\": [1, 2]}",
         "full_attn_layers"},
        {"kimi_linear",
         "\"linear_attn_config\": {\"full_attn_layers\": [1], \"kda_layers\": [1e30]}",
         "kda_layers"},
        {"kimi_linear", "\"linear_attn_config\": {\"full_attn_layers\": [2], \"kda_layers\": []}",
         "kda_layers"},
        {"kimi_linear", "\"layer_types\": [\"conv\", \"full_attention\"]", "layer_types"},
        {"kimi_linear", "\"num_experts_per_token\": \"x\"", "num_experts_per_token"},
        {"kimi_linear", "\"num_expert_group\": 7", "num_expert_group"},
        {"kimi_linear", "\"num_shared_experts\": -1", "num_shared_experts"},
        {"kimi_linear", "\"hidden_act\": \"gelu\"", "silu alone"},
        {"bailing_hybrid", "\"kda_lower_bound\": 0.5", "kda_lower_bound"},
        {"bailing_hybrid", "\"kda_lower_bound\": -1e30", "kda_lower_bound"},
        {"bailing_hybrid", "\"kda_safe_gate\": 1", "kda_safe_gate"},
        {"bailing_hybrid", "\"layer_group_size\": 0", "layer_group_size"},
        {"bailing_hybrid", "\"short_conv_kernel_size\": 1e30", "short_conv_kernel_size"},
        {"bailing_hybrid", "\"linear_head_dim\": 5000", "linear_head_dim"},
        {"bailing_hybrid", "\"layer_types\": [\"sliding_attention\", \"full_attention\"]", ""},
        {"zamba2", "\"layers_block_type\": [\"mamba\", \"x\"]", "mamba or hybrid"},
        {"zamba2", "\"layers_block_type\": 7", "layers_block_type"},
        {"zamba2", "\"layers_block_type\": [\"mamba\", \"mamba\"], \"n_mamba_heads\": 7",
         "n_mamba_heads 7"},
        {"zamba2", "\"layers_block_type\": [\"mamba\", \"mamba\"], \"num_mem_blocks\": 0",
         "num_mem_blocks"},
        {"zamba2", "\"layers_block_type\": [\"mamba\", \"mamba\"], \"adapter_rank\": 1e30",
         "adapter_rank"},
        {"zamba2",
         "\"layers_block_type\": [\"hybrid\", \"hybrid\"], \"tie_word_embeddings\": false",
         "transformers shares nothing"},
        {"zamba2",
         "\"layers_block_type\": [\"hybrid\", \"mamba\"], \"use_shared_attention_adapter\": true",
         "do not divide"},
        {"jetmoe", "\"kv_channels\": 0", "kv_channels"},
        {"jetmoe", "\"kv_channels\": 1e30", "kv_channels"},
        {"jetmoe", "\"num_experts_per_tok\": 9", "num_experts_per_tok"},
        {"jetmoe", "\"activation_function\": \"relu2\"", "hidden_act"},
        {"llama", "\"hidden_act\": \"xielu\"", "hidden_act"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        char text[1024];
        af_error err = {0};
        af_hf_config c;
        af_model_spec s;
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"vocab_size\": 32, \"hidden_size\": 16, "
                 "\"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                 "\"num_key_value_heads\": 2, \"head_dim\": 4, %s}",
                 cases[i].type, cases[i].more);
        af_status st = af_hf_config_parse(&c, text, strlen(text), "config.json", &err);
        if (st == AF_OK) {
            st = af_model_spec_init(&s, &c, &err);
            af_hf_config_clear(&c);
        }
        CHECK_MSG(st != AF_OK && strstr(err.msg, cases[i].says), "%s with %s: \"%s\"",
                  cases[i].type, cases[i].more, err.msg);
    }
}

/* Its code gives other numbers of heads other decays. */
static void test_heads_of_minimax(void **state)
{
    (void)state;
    for (int heads = 6; heads <= 8; heads += 2) {
        char text[512];
        af_error err = {0};
        af_hf_config c;
        snprintf(
            text, sizeof text,
            "{\"model_type\": \"minimax_m1\", \"vocab_size\": 32, \"hidden_size\": 48, "
            "\"intermediate_size\": 12, \"num_hidden_layers\": 2, \"num_attention_heads\": %d, "
            "\"num_key_value_heads\": 2, \"postnorm\": true, \"attn_type_list\": [0, 1]}",
            heads);
        const af_status st = af_hf_config_parse(&c, text, strlen(text), "config.json", &err);
        if (st == AF_OK)
            af_hf_config_clear(&c);
        CHECK_MSG(heads == 8 ? st == AF_OK
                             : st == AF_EFORMAT && strstr(err.msg, "not a power of two"),
                  "%d heads: %s", heads, err.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_of_every_family),
        cmocka_unit_test(test_keys_of_one_family),
        cmocka_unit_test(test_heads_of_minimax),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
