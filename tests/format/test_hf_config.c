/* config.json in both spellings, from GGUF, and hostile values. */
#define _GNU_SOURCE
#include "base/file.h"
#include "format/config/hf_config.h"
#include "test.h"

#include <unistd.h>

#define SIZES                                                                                      \
    "\"vocab_size\":512,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"      \
    "\"num_attention_heads\":4"
#define CONFIG(type, more) "{\"model_type\":\"" type "\"," SIZES more "}"

#define GROUPED ",\"mamba_n_heads\":8,\"num_key_value_heads\":2"

static char tmp_dir[] = "/tmp/afinar-cfg-XXXXXX";

static void parse(af_hf_config *c, const char *text)
{
    af_error err = {0};
    CHECK_OK(af_hf_config_parse(c, text, strlen(text), "config.json", &err), err);
}

static void test_v4_and_v5_spellings_agree(void **state)
{
    (void)state;
    static const char *const same[][2] = {
        {CONFIG("llama", ",\"torch_dtype\":\"bfloat16\",\"rope_theta\":500000.0,"
                         "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
                         "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                         "\"original_max_position_embeddings\":8192}"),
         CONFIG("llama", ",\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_theta\":500000.0,"
                         "\"rope_type\":\"llama3\",\"factor\":8.0,"
                         "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                         "\"original_max_position_embeddings\":8192}")},
        {CONFIG("gemma3_text", ",\"head_dim\":16,\"rope_theta\":1e6,\"rope_local_base_freq\":1e4,"
                               "\"sliding_window\":8,\"sliding_window_pattern\":2,"
                               "\"rope_scaling\":{\"type\":\"linear\",\"factor\":8.0}"),
         CONFIG("gemma3_text",
                ",\"head_dim\":16,\"sliding_window\":8,\"layer_types\":[\"sliding_attention\","
                "\"full_attention\",\"sliding_attention\",\"full_attention\"],"
                "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\","
                "\"factor\":8.0,\"rope_theta\":1e6},\"sliding_attention\":"
                "{\"rope_type\":\"default\",\"rope_theta\":1e4}}")},
    };
    for (size_t i = 0; i < 2; i++) {
        af_hf_config a = {0}, b = {0};
        parse(&a, same[i][0]);
        parse(&b, same[i][1]);
        assert_int_equal(a.dtype, b.dtype);
        assert_int_equal(a.rope.type, b.rope.type);
        assert_true(a.rope.theta == b.rope.theta && a.rope.factor == b.rope.factor);
        assert_true(a.rope.factor == 8);
        assert_true(a.rope.high_freq_factor == b.rope.high_freq_factor);
        assert_int_equal(a.rope.original_max_position_embeddings,
                         b.rope.original_max_position_embeddings);
        assert_int_equal(a.has_local_rope, b.has_local_rope);
        assert_true(a.local_rope.theta == b.local_rope.theta);
        assert_int_equal(b.local_rope.type, AF_ROPE_DEFAULT);
        assert_int_equal(a.local_rope.type, AF_ROPE_DEFAULT);
        assert_memory_equal(a.layer_types, b.layer_types, 4 * sizeof *a.layer_types);
        af_hf_config_clear(&a);
        af_hf_config_clear(&b);
    }
}

/* layer_types as one letter per layer: f full, s sliding. */
static void test_sliding_layers_by_family(void **state)
{
    (void)state;
    static const struct {
        const char *text, *layers;
        int64_t window;
    } cases[] = {
        {CONFIG("llama", ",\"sliding_window\":8"), "ffff", 0},
        {CONFIG("mistral", ",\"sliding_window\":8"), "ssss", 8},
        {CONFIG("mistral", ",\"sliding_window\":null"), "ffff", 0},
        {CONFIG("mistral", ""), "ssss", 4096},
        {CONFIG("qwen2", ",\"sliding_window\":8,\"max_window_layers\":2"), "ffff", 0},
        {CONFIG("qwen2", ",\"sliding_window\":8,\"use_sliding_window\":true,"
                         "\"max_window_layers\":2"),
         "ffss", 8},
        {CONFIG("qwen3_moe", ",\"sliding_window\":8,\"use_sliding_window\":true"), "ssss", 8},
        {CONFIG("gemma2", ",\"sliding_window\":6"), "sfsf", 6},
        {CONFIG("gemma3_text", ",\"sliding_window\":6"), "ssss", 6},
        {CONFIG("gemma3_text", ",\"sliding_window\":6,\"_sliding_window_pattern\":3"), "ssfs", 6},
        {CONFIG("phi3", ",\"sliding_window\":8"), "ssss", 8},
        {CONFIG("phi3", ""), "ffff", 0},
        {CONFIG("smollm3", ",\"sliding_window\":8,\"use_sliding_window\":true"), "fffs", 8},
        {CONFIG("qwen2", ",\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":"
                         "[\"full_attention\",\"sliding_attention\",\"full_attention\","
                         "\"full_attention\"]"),
         "fsff", 8},
        {CONFIG("llama", ",\"sliding_window\":8,\"layer_types\":[\"full_attention\","
                         "\"sliding_attention\",\"full_attention\",\"full_attention\"]"),
         "ffff", 0}, /* transformers' llama looks at neither key */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_hf_config c = {0};
        char got[5] = {0};
        parse(&c, cases[i].text);
        for (int k = 0; k < 4; k++)
            got[k] = c.layer_types[k] == AF_LAYER_SLIDING ? 's' : 'f';
        CHECK_MSG(strcmp(got, cases[i].layers) == 0, "%s gives %s", cases[i].text, got);
        CHECK_MSG(c.sliding_window == cases[i].window, "%s: window", cases[i].text);
        af_hf_config_clear(&c);
    }
}

static void test_family_details(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("qwen3", ",\"eos_token_id\":[5,6],\"bos_token_id\":null"));
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos_token_id[1], 6);
    assert_int_equal(c.bos_token_id, -1);
    assert_false(c.tie_word_embeddings);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("gemma2", ",\"attn_logit_softcapping\":null"));
    assert_true(c.attn_logit_softcapping == 0 && c.final_logit_softcapping == 30);
    assert_true(c.query_pre_attn_scalar == 256 && c.tie_word_embeddings);
    assert_string_equal(c.hidden_act, "gelu_pytorch_tanh");
    af_hf_config_clear(&c);
    parse(&c, CONFIG("gpt2", ""));
    assert_int_equal(c.max_position_embeddings, 1024);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("openai-gpt", ",\"afn\":\"gelu\""));
    assert_true(c.max_position_embeddings == 512 && strcmp(c.hidden_act, "gelu_new") == 0);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("biogpt", ""));
    assert_true(c.max_position_embeddings == 1024 && c.embedding_multiplier == 8);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("smollm3", ",\"no_rope_layers\":[1,0,1,1]"));
    assert_true(c.no_rope[1] && !c.no_rope[3]);
    assert_true(c.rope.theta == 2e6);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("granite", ",\"attention_multiplier\":0.0078125,\"logits_scaling\":8.0"));
    assert_true(c.attention_multiplier == 0.0078125 && c.logits_scaling == 8);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("qwen3_moe", ",\"num_experts\":8,\"num_experts_per_tok\":2,"
                                  "\"moe_intermediate_size\":32,\"norm_topk_prob\":true,"
                                  "\"mlp_only_layers\":[1]"));
    assert_int_equal(c.num_experts, 8);
    assert_int_equal(c.mlp_only_count, 1);
    assert_int_equal(c.mlp_only_layers[0], 1);
    assert_true(c.norm_topk_prob);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("dbrx", ",\"attn_config\":{\"rope_theta\":5e5,\"clip_qkv\":8},"
                             "\"ffn_config\":{\"moe_normalize_expert_weights\":null}"));
    assert_true(c.rope.theta == 5e5 && c.qkv_clip == 8);
    assert_true(c.router_aux_loss_coef == 0.01 && !c.norm_topk_prob);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("llama", ",\"quantization_config\":{\"quant_method\":\"bitsandbytes\","
                              "\"load_in_4bit\":true,\"bnb_4bit_quant_type\":\"nf4\","
                              "\"bnb_4bit_use_double_quant\":true,"
                              "\"llm_int8_skip_modules\":[\"lm_head\"]}"));
    assert_int_equal(c.quant.method, AF_QUANT_BNB_4BIT);
    assert_int_equal(c.quant.type, AF_DTYPE_NF4);
    assert_true(c.quant.double_quant);
    assert_string_equal(c.quant.skip_modules[0], "lm_head");
    af_hf_config_clear(&c);
    parse(&c, "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"model_type\":\"gemma3\","
              "\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":2560,"
              "\"intermediate_size\":10240,\"num_hidden_layers\":34,\"sliding_window\":1024}}");
    assert_string_equal(c.model_type, "gemma3_text");
    assert_int_equal(c.num_attention_heads, 8);
    assert_int_equal(c.layer_types[5], AF_LAYER_FULL);
    assert_int_equal(c.layer_types[4], AF_LAYER_SLIDING);
    af_hf_config_clear(&c);
}

/* The words of the published folder; what transformers does not read of them has no effect. */
static void test_mimo_as_published(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("mimo_v2_flash",
                     ",\"head_dim\":192,\"v_head_dim\":128,\"num_key_value_heads\":2,"
                     "\"swa_num_key_value_heads\":4,\"swa_head_dim\":192,\"swa_v_head_dim\":128,"
                     "\"hybrid_layer_pattern\":[0,1,1,1],\"moe_layer_freq\":[0,1,1,1],"
                     "\"sliding_window\":128,\"sliding_window_size\":128,\"rope_theta\":7e5,"
                     "\"partial_rotary_factor\":0.334,\"swa_rope_theta\":10000,"
                     "\"layernorm_epsilon\":1e-05,\"routed_scaling_factor\":null,"
                     "\"n_shared_experts\":null,\"attention_value_scale\":0.707"));
    assert_int_equal(c.sliding_window, 129);
    assert_true(c.rope.theta == 5e6 && c.local_rope.theta == 1e4 && c.has_local_rope);
    assert_true(c.local_rope.partial_rotary_factor == 0.334 && c.rms_norm_eps == 1e-5);
    assert_true(c.router.scale == 1 && c.router.shared_ffn == 0 && c.value_scale == 0.707);
    assert_int_equal(c.latent.v_dim, 128);
    assert_int_equal(c.mlp_only_count, 1);
    for (int i = 0; i < 4; i++)
        assert_int_equal(c.layer_types[i], i ? AF_LAYER_SLIDING : AF_LAYER_FULL);
    af_hf_config_clear(&c);
}

/* Lists of the published folder: which layers pick keys, which have experts. */
static void test_minimax_m3_as_published(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("minimax_m3_vl_text",
                     ",\"hidden_act\":\"swigluoai\",\"moe_layer_freq\":[0,1,1,1],"
                     "\"sparse_attention_config\":{\"sparse_attention_freq\":[0,0,1,1],"
                     "\"sparse_num_index_heads\":2,\"sparse_index_dim\":64,"
                     "\"sparse_block_size\":128,\"sparse_topk_blocks\":8}"));
    assert_int_equal(c.latent.index_topk, 1024);
    assert_true(c.latent.index_heads == 2 && c.latent.index_dim == 64);
    assert_true(c.latent.index_shared[1] && !c.latent.index_shared[2]);
    assert_true(c.mlp_only_count == 1 && c.mlp_only_layers[0] == 0);
    assert_true(c.dense_ffn == 12288 && c.router.shared_ffn == 3072 && c.router.scale == 2);
    assert_string_equal(c.hidden_act, "silu");
    af_hf_config_clear(&c);
    parse(&c, CONFIG("minimax_m3_vl_text", ""));
    assert_true(c.latent.index_topk == 0 && c.mlp_only_count == 0);
    af_hf_config_clear(&c);
}

/* torch's padding_idx: the class's default when the config does not set it. */
static void test_rows_of_padding_by_family(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t row;
    } cases[] = {
        {CONFIG("llama", ""), -1},
        {CONFIG("gemma2", ""), 0},
        {CONFIG("olmo2", ""), 1},
        {CONFIG("olmo2", ",\"pad_token_id\":null"), -1},
        {CONFIG("gemma", ",\"pad_token_id\":7"), 7},
        {CONFIG("phi3", ""), 32000},
        {CONFIG("smollm3", ""), 128004},
        {CONFIG("qwen3", ""), -1},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hf_config c = {0};
        parse(&c, cases[i].text);
        CHECK_MSG(c.padding_row == cases[i].row, "%s: row %d", cases[i].text, (int)c.padding_row);
        af_hf_config_clear(&c);
    }
}

/* Keys that transformers reads in one family and not in another, or in one spelling first. */
static void test_keys_are_read_where_transformers_reads_them(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double part, theta;
        af_rope_type rope;
        const char *act;
    } cases[] = {
        {CONFIG("llama", ",\"partial_rotary_factor\":0.5"), 1, 1e4, AF_ROPE_DEFAULT, "silu"},
        {CONFIG("newer", ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e4,"
                         "\"partial_rotary_factor\":0.5}"),
         0.5, 1e4, AF_ROPE_DEFAULT, "silu"},
        {CONFIG("phi3", ",\"partial_rotary_factor\":0.5"), 0.5, 1e4, AF_ROPE_DEFAULT, "silu"},
        {CONFIG("qwen2", ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":5e5},"
                         "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
                         "\"original_max_position_embeddings\":32},\"rope_theta\":7e5"),
         1, 7e5, AF_ROPE_YARN, "silu"},
        {CONFIG("qwen2", ",\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2.0,"
                         "\"rope_theta\":5e5},\"rope_scaling\":{}"),
         1, 5e5, AF_ROPE_LINEAR, "silu"},
        /* its own words, and those of others in the set alone */
        {CONFIG("gpt_neox", ",\"partial_rotary_factor\":1,\"rope_theta\":7e5,\"rope_scaling\":"
                            "{\"rope_type\":\"linear\",\"factor\":2}"),
         0.25, 1e4, AF_ROPE_LINEAR, "gelu"},
        {CONFIG("gpt_neox", ",\"rotary_pct\":0.5,\"rotary_emb_base\":5e5,\"rope_scaling\":"
                            "{\"type\":\"linear\",\"factor\":2}"),
         0.5, 5e5, AF_ROPE_LINEAR, "gelu"},
        {CONFIG("bamba", GROUPED ",\"partial_rotary_factor\":1"), 0.5, 1e4, AF_ROPE_DEFAULT,
         "silu"},
        {CONFIG("bamba", GROUPED ",\"rope_parameters\":{\"partial_rotary_factor\":1}"), 1, 1e4,
         AF_ROPE_DEFAULT, "silu"},
        {CONFIG("cwm", GROUPED ",\"rope_theta\":7e5"), 1, 1e6, AF_ROPE_LLAMA3, "silu"},
        {CONFIG("apertus", ",\"rope_theta\":7e5,\"rope_scaling\":null"), 1, 12e6, AF_ROPE_LLAMA3,
         "xielu"},
        {CONFIG("ministral3", GROUPED ",\"rope_theta\":7e5"), 1, 1e6, AF_ROPE_YARN, "silu"},
        {CONFIG("hunyuan_v1_dense",
                GROUPED ",\"head_dim\":4,\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":1,"
                        "\"alpha\":4},"
                        "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":2}"),
         1, 16e4, AF_ROPE_DEFAULT, "silu"},
        {CONFIG("deepseek_v3", ",\"rope_parameters\":{\"rope_type\":\"proportional\","
                               "\"partial_rotary_factor\":0.25}"),
         0.25, 1e4, AF_ROPE_PROPORTIONAL, "silu"},
        {CONFIG("gemma", ",\"hidden_act\":\"gelu\""), 1, 1e4, AF_ROPE_DEFAULT, "gelu_pytorch_tanh"},
        {CONFIG("gemma", ",\"hidden_act\":\"relu\""), 1, 1e4, AF_ROPE_DEFAULT, "relu"},
        {CONFIG("gemma2", ",\"hidden_act\":\"relu\""), 1, 1e4, AF_ROPE_DEFAULT,
         "gelu_pytorch_tanh"},
    };
    for (size_t i = 0; i < AF_LEN(cases); i++) {
        af_hf_config c = {0};
        parse(&c, cases[i].text);
        CHECK_MSG(c.rope.partial_rotary_factor == cases[i].part && c.rope.theta == cases[i].theta &&
                      c.rope.type == cases[i].rope && strcmp(c.hidden_act, cases[i].act) == 0,
                  "case %zu: part %g, theta %g, rope %s, act %s", i, c.rope.partial_rotary_factor,
                  c.rope.theta, af_rope_type_name(c.rope.type), c.hidden_act);
        af_hf_config_clear(&c);
    }
}

/* Families without experts that share a config class of others with them. */
static void test_experts_of_dense_families_are_not_read(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("hunyuan_v1_dense", ",\"num_experts\":1,\"moe_topk\":1"));
    assert_int_equal(c.num_experts, 0);
    af_hf_config_clear(&c);
}

static void test_longrope(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("phi3", ",\"max_position_embeddings\":256,"
                             "\"original_max_position_embeddings\":64,"
                             "\"partial_rotary_factor\":0.5,\"rope_scaling\":{\"type\":\"su\","
                             "\"short_factor\":[1,1.5,2,2.5],\"long_factor\":[1,2,3,4]}"));
    assert_int_equal(c.rope.type, AF_ROPE_LONGROPE);
    assert_true(c.rope.factor == 4);
    assert_true(c.rope.long_factor[3] == 4 && c.rope.short_count == 4);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("phi3", ",\"max_position_embeddings\":8192,\"head_dim\":4,\"rope_scaling\":{"
                             "\"type\":\"longrope\",\"original_max_position_embeddings\":64,"
                             "\"short_factor\":[1,1.5],\"long_factor\":[1,2]}"));
    assert_true(c.rope.original_max_position_embeddings == 4096 && c.rope.factor == 2);
    af_hf_config_clear(&c);
}

/* One set follows the length outside of it; a set per kind of layer has its own. */
static void test_the_original_length_is_outside_or_inside(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("llama", ",\"max_position_embeddings\":256,"
                              "\"original_max_position_embeddings\":64,\"rope_scaling\":"
                              "{\"rope_type\":\"yarn\",\"factor\":2,"
                              "\"original_max_position_embeddings\":32}"));
    assert_int_equal(c.rope.original_max_position_embeddings, 64);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("llama", ",\"max_position_embeddings\":256,\"rope_scaling\":"
                              "{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
                              "\"high_freq_factor\":4}"));
    assert_int_equal(c.rope.original_max_position_embeddings, 256);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("gemma3_text",
                     ",\"head_dim\":4,\"max_position_embeddings\":256,\"rope_parameters\":{"
                     "\"full_attention\":{\"rope_type\":\"longrope\",\"short_factor\":[1,1],"
                     "\"long_factor\":[2,4],\"factor\":3,\"original_max_position_embeddings\":32},"
                     "\"sliding_attention\":{\"rope_type\":\"longrope\",\"short_factor\":[1,1],"
                     "\"long_factor\":[2,4],\"original_max_position_embeddings\":64}}"));
    assert_true(c.rope.factor == 3 && c.local_rope.factor == 4);
    af_hf_config_clear(&c);
    parse(&c, CONFIG("olmo3", ",\"sliding_window\":8,\"rope_parameters\":{\"full_attention\":{"
                              "\"rope_type\":\"default\",\"partial_rotary_factor\":0.5},"
                              "\"sliding_attention\":{\"rope_type\":\"proportional\","
                              "\"partial_rotary_factor\":0.5}}"));
    assert_true(c.rope.partial_rotary_factor == 1 && c.local_rope.partial_rotary_factor == 0.5);
    assert_true(c.local_rope.theta == 5e5);
    af_hf_config_clear(&c);
}

/* transformers ties the head of the whole model, whatever its text part says. */
static void test_a_multimodal_model_says_at_the_top_whether_its_head_is_tied(void **state)
{
    (void)state;
    for (int tied = 0; tied < 2; tied++) {
        af_hf_config c;
        char text[1024];
        snprintf(
            text, sizeof text,
            "{\"model_type\":\"mistral3\",\"tie_word_embeddings\":%s,\"text_config\":%s}",
            tied ? "true" : "false",
            tied ? CONFIG("ministral3", ",\"num_key_value_heads\":2,\"tie_word_embeddings\":false")
                 : CONFIG("ministral3", ",\"num_key_value_heads\":2,\"tie_word_embeddings\":true"));
        parse(&c, text);
        assert_true(c.nested && c.tie_word_embeddings == tied);
        assert_string_equal(c.model_type, "ministral3");
        af_hf_config_clear(&c);
    }
}

static void test_wrong_values_have_one_clear_error(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"[]", "object"},
        {"{\"a\":", "config.json:1"},
        {"{}", "model_type"},
        {"{\"model_type\":3}", "model_type"},
        {"{\"model_type\":\"llama\"}", "vocab_size is not there"},
        {CONFIG("llama", ",\"hidden_size\":128"), "uplicate"},
        {CONFIG("llama", ",\"num_key_value_heads\":0"), "num_key_value_heads is 0"},
        {CONFIG("llama", ",\"num_key_value_heads\":3"), "multiple of num_key_value_heads 3"},
        {CONFIG("llama", ",\"head_dim\":-4"), "head_dim is -4"},
        {CONFIG("llama", ",\"rms_norm_eps\":-1e-6"), "rms_norm_eps"},
        {CONFIG("llama", ",\"rms_norm_eps\":\"NaN\""), "rms_norm_eps is not a number"},
        {CONFIG("llama", ",\"rms_norm_eps\":0"), "rms_norm_eps"},
        {CONFIG("llama", ",\"rms_norm_eps\":NaN"), "rms_norm_eps is not a number"},
        {CONFIG("llama", ",\"rope_theta\":0"), "rope_theta"},
        {CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"yarn\"}"), "factor"},
        {CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"mrope\"}"), "'mrope'"},
        {CONFIG("phi3", ",\"rope_scaling\":{\"type\":\"longrope\",\"factor\":0}"), "factor"},
        {CONFIG("llama", ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}"), "low_freq"},
        {CONFIG("phi3", ",\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1],"
                        "\"long_factor\":[1]}"),
         "8"},
        {CONFIG("llama", ",\"partial_rotary_factor\":2"), "partial_rotary_factor"},
        {CONFIG("llama", ",\"eos_token_id\":\"x\""), "eos_token_id"},
        {CONFIG("llama", ",\"eos_token_id\":-7"), "eos_token_id"},
        {CONFIG("llama", ",\"tie_word_embeddings\":1"), "true or false"},
        {CONFIG("llama", ",\"torch_dtype\":\"int3\""), "dtype"},
        {CONFIG("llama", ",\"is_causal\":false"), "is_causal is false"},
        {CONFIG("gemma3_text", ",\"use_bidirectional_attention\":true"), "use_bidirectional"},
        {CONFIG("gemma2", ",\"sliding_window\":-1"), "sliding_window is -1"},
        {CONFIG("gemma2", ",\"sliding_window_pattern\":0"), "sliding_window_pattern is 0"},
        {CONFIG("gemma2", ",\"layer_types\":[\"full_attention\"]"), "one entry per layer"},
        {CONFIG("qwen3", ",\"layer_types\":[\"sliding_attention\",\"full_attention\","
                         "\"full_attention\",\"full_attention\"]"),
         "sliding_window is not set"},
        {CONFIG("llama", ",\"quantization_config\":{\"quant_method\":\"hqq\"}"), "'hqq'"},
        {CONFIG("qwen3_moe", ",\"num_experts\":4,\"num_experts_per_tok\":5"), "5 of num_experts 4"},
        {CONFIG("qwen3_moe", ",\"num_experts\":2147483648"), "num_experts is 2147483648"},
        {CONFIG("mixtral", ",\"num_local_experts\":2147483648"), "num_local_experts is 2147483648"},
        {CONFIG("mixtral", ",\"num_local_experts\":-1"), "num_local_experts is -1"},
        {CONFIG("mixtral", ",\"num_local_experts\":4,\"num_experts_per_tok\":5,"
                           "\"num_key_value_heads\":2"),
         "5 of num_experts 4"},
        {CONFIG("mixtral", ",\"num_local_experts\":[4]"), "num_local_experts is not"},
        {CONFIG("qwen2_moe", ",\"num_experts_per_tok\":99999999999"), "num_experts_per_tok is"},
        {CONFIG("qwen2_moe", ",\"shared_expert_intermediate_size\":1e12"),
         "shared_expert_intermediate_size is"},
        {CONFIG("glm4_moe", ",\"n_routed_experts\":9,\"num_experts_per_tok\":2,\"n_group\":2,"
                            "\"topk_group\":1"),
         "group"},
        {CONFIG("glm4_moe", ",\"n_routed_experts\":8,\"num_experts_per_tok\":6,\"n_group\":4,"
                            "\"topk_group\":2"),
         "2 of 4 groups"},
        {"{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":64,\"intermediate_size\":96,"
         "\"num_hidden_layers\":2147483648,\"num_attention_heads\":4}",
         "2147483648"},
        {"{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":64,\"intermediate_size\":96,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":0}",
         "num_attention_heads is 0"},
        {"{\"model_type\":\"llama\",\"vocab_size\":512,\"hidden_size\":65,\"intermediate_size\":96,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":4}",
         "65 is not a multiple"},
        {"{\"model_type\":\"llama\",\"vocab_size\":1e30,\"hidden_size\":64,\"intermediate_size\":9,"
         "\"num_hidden_layers\":2,\"num_attention_heads\":4}",
         "vocab_size"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        af_error err = {0};
        af_hf_config c = {0};
        const char *t = cases[i].text;
        CHECK_MSG(af_hf_config_parse(&c, t, strlen(t), "config.json", &err) != AF_OK,
                  "accepted: %s", t);
        CHECK_MSG(strstr(err.msg, cases[i].says), "%s: '%s'", t, err.msg);
    }
}

static void test_gguf_metadata_gives_the_same_struct(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/../fuzz/corpus/fuzz_gguf/small.gguf", golden_dir());
    af_error err = {0};
    af_hf_config c = {0};
    CHECK_OK(af_model_config(&c, path, &err), err);
    assert_string_equal(c.model_type, "qwen3");
    assert_string_equal(c.architecture, "Qwen3ForCausalLM");
    assert_int_equal(c.head_dim, 16);
    assert_int_equal(c.vocab_size, 3);
    assert_int_equal(c.num_hidden_layers, 2);
    assert_int_equal(c.num_key_value_heads, 2);
    assert_true(c.rope.theta == 1e6 && c.rope.partial_rotary_factor == 1);
    assert_true(c.tie_word_embeddings);
    assert_int_equal(c.dtype, AF_DTYPE_F16);
    assert_int_equal(c.eos_token_id[0], 2);
    assert_int_equal(c.layer_types[1], AF_LAYER_FULL);
    assert_true(c.from_gguf && !c.raw);
    af_hf_config_clear(&c);
}

/* As transformers 4 wrote configs of Mamba-2. */
static void test_limits_that_are_infinite(void **state)
{
    (void)state;
    af_hf_config c = {0};
    parse(&c, CONFIG("mamba2",
                     ", \"num_heads\": 8, \"head_dim\": 16, \"state_size\": 8, \"n_groups\": 1, "
                     "\"time_step_limit\": [0.25, Infinity], \"x\": NaN"));
    assert_true(c.state.step_min == 0.25 && c.state.step_max == 0);
    af_hf_config_clear(&c);
}

static void test_gguf_rotates_pairs_of_values(void **state)
{
    static const char *const keys[] = {"qwen3.rope.dimension_count",
                                       "qwen3.rope.dimension_count_swa"};
    (void)state;
    for (size_t k = 0; k < AF_LEN(keys); k++) {
        char path[4096];
        af_error err = {0};
        af_gguf *g;
        af_gguf_writer *w;
        af_hf_config c = {0};
        snprintf(path, sizeof path, "%s/../fuzz/corpus/fuzz_gguf/small.gguf", golden_dir());
        CHECK_OK(af_gguf_open(&g, path, &err), err);
        snprintf(path, sizeof path, "%s/odd.gguf", tmp_dir);
        CHECK_OK(af_gguf_writer_new(&w, path, &err), err);
        for (int i = 0; i < af_gguf_kv_count(g); i++)
            if (strcmp(af_gguf_kv_at(g, i)->key, keys[k]) != 0)
                CHECK_OK(af_gguf_put_kv(w, af_gguf_kv_at(g, i), &err), err);
        CHECK_OK(af_gguf_put_u32(w, keys[k], 15, &err), err);
        CHECK_OK(af_gguf_writer_begin(w, &err), err);
        CHECK_OK(af_gguf_writer_commit(w, &err), err);
        af_gguf_close(g);
        assert_int_equal(af_model_config(&c, path, &err), AF_EFORMAT);
        CHECK_MSG(strstr(err.msg, keys[k]) && strstr(err.msg, "is 15, not an even number"),
                  "says '%s'", err.msg);
        CHECK_OK(af_path_remove(path, &err), err);
    }
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(tmp_dir) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return af_path_remove(tmp_dir, NULL) == AF_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v4_and_v5_spellings_agree),
        cmocka_unit_test(test_sliding_layers_by_family),
        cmocka_unit_test(test_family_details),
        cmocka_unit_test(test_mimo_as_published),
        cmocka_unit_test(test_minimax_m3_as_published),
        cmocka_unit_test(test_rows_of_padding_by_family),
        cmocka_unit_test(test_keys_are_read_where_transformers_reads_them),
        cmocka_unit_test(test_experts_of_dense_families_are_not_read),
        cmocka_unit_test(test_longrope),
        cmocka_unit_test(test_the_original_length_is_outside_or_inside),
        cmocka_unit_test(test_a_multimodal_model_says_at_the_top_whether_its_head_is_tied),
        cmocka_unit_test(test_wrong_values_have_one_clear_error),
        cmocka_unit_test(test_gguf_metadata_gives_the_same_struct),
        cmocka_unit_test(test_limits_that_are_infinite),
        cmocka_unit_test(test_gguf_rotates_pairs_of_values),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
