/* rows_remote.c - families whose code lies in their own repositories, not in transformers. */
#include "model/arch/arch_rows.h"

static const af_slot_name internlm2_names[] = {
    {AF_SLOT_EMBED, "model.tok_embeddings.weight", NULL},
    {AF_SLOT_ATTN_NORM, "attention_norm.weight", NULL},
    {AF_SLOT_QKV, "attention.wqkv.weight", NULL},
    {AF_SLOT_QKV_BIAS, "attention.wqkv.bias", NULL},
    {AF_SLOT_O, "attention.wo.weight", NULL},
    {AF_SLOT_O_BIAS, "attention.wo.bias", NULL},
    {AF_SLOT_MLP_NORM, "ffn_norm.weight", NULL},
    {AF_SLOT_GATE, "feed_forward.w1.weight", NULL},
    {AF_SLOT_UP, "feed_forward.w3.weight", NULL},
    {AF_SLOT_DOWN, "feed_forward.w2.weight", NULL},
    {AF_SLOT_HEAD, "output.weight", NULL},
    {0},
};

static const af_slot_name exaone_names[] = {
    {AF_SLOT_EMBED, "transformer.wte.weight", NULL},
    {AF_SLOT_ATTN_NORM, "ln_1.weight", NULL},
    {AF_SLOT_Q, "attn.attention.q_proj.weight", NULL},
    {AF_SLOT_K, "attn.attention.k_proj.weight", NULL},
    {AF_SLOT_V, "attn.attention.v_proj.weight", NULL},
    {AF_SLOT_O, "attn.attention.out_proj.weight", NULL},
    {AF_SLOT_MLP_NORM, "ln_2.weight", NULL},
    {AF_SLOT_GATE, "mlp.c_fc_0.weight", NULL},
    {AF_SLOT_UP, "mlp.c_fc_1.weight", NULL},
    {AF_SLOT_DOWN, "mlp.c_proj.weight", NULL},
    {AF_SLOT_FINAL_NORM, "transformer.ln_f.weight", NULL},
    {0},
};

static const af_slot_name bailing_names[] = {
    {AF_SLOT_EMBED, "model.word_embeddings.weight", NULL},
    {AF_SLOT_QKV, "attention.query_key_value.weight", NULL},
    {AF_SLOT_QKV_BIAS, "attention.query_key_value.bias", NULL},
    {AF_SLOT_Q_NORM, "attention.query_layernorm.weight", NULL},
    {AF_SLOT_K_NORM, "attention.key_layernorm.weight", NULL},
    {AF_SLOT_O, "attention.dense.weight", NULL},
    {AF_SLOT_O_BIAS, "attention.dense.bias", NULL},
    {AF_SLOT_ROUTER_CHOICE, "mlp.gate.expert_bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

static const af_slot_name chatglm_names[] = {
    {AF_SLOT_EMBED, "transformer.embedding.word_embeddings.weight", NULL},
    {AF_SLOT_QKV, "self_attention.query_key_value.weight", NULL},
    {AF_SLOT_QKV_BIAS, "self_attention.query_key_value.bias", NULL},
    {AF_SLOT_O, "self_attention.dense.weight", NULL},
    {AF_SLOT_GATE_UP, "mlp.dense_h_to_4h.weight", NULL},
    {AF_SLOT_DOWN, "mlp.dense_4h_to_h.weight", NULL},
    {AF_SLOT_FINAL_NORM, "transformer.encoder.final_layernorm.weight", NULL},
    {AF_SLOT_HEAD, "transformer.output_layer.weight", NULL},
    {0},
};

/* Larger models have ALiBi instead of a rotation, those of the second version a normed head. */
static af_status baichuan_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->alibi = c->alibi;
    s->head_normed = c->head_normed && !s->labels;
    for (int i = 0; i < s->layers && s->alibi > 0; i++)
        s->layer[i].rope = -1;
    return AF_OK;
}

static af_status nas_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    for (int i = 0; i < s->layers; i++) {
        af_layer_spec *l = &s->layer[i];
        const int64_t kv = c->per_layer.kv_heads[i], ffn = c->per_layer.ffn[i];
        l->kv_heads = (int)kv;
        l->ffn = ffn;
        if (!kv)
            l->mixer = AF_MIXER_NONE;
        if (!ffn)
            l->mlp = AF_MLP_NONE;
    }
    return AF_OK;
}

const af_arch af_rows_remote[] = {
    {.model_type = "nemotron-nas", /* llama, less what blocks lack */
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .half_norms = true,
     .fill = nas_fill},
    {.model_type = "internlm2",
     .gguf = "internlm2",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fused_qkv = true,
     .qkv_grouped = true,
     .gguf_permuted = true,
     .gguf_cut_qkv = true,
     .names = internlm2_names},
    {.model_type = "minicpm",
     .gguf = "minicpm",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .multipliers = true,
     .gguf_permuted = true},
    {.model_type = "exaone",
     .gguf = "exaone",
     .pre_norm = true,
     .stem = "transformer.",
     .layers = "h",
     .names = exaone_names},
    {.model_type = "orion",
     .gguf = "orion",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .layer_norm = true,
     .norm_bias = true},
    {.model_type = "xverse", .gguf = "xverse", .pre_norm = true, .gguf_permuted = true},
    {.model_type = "mimo", .gguf = "qwen2", .pre_norm = true, .bias = AF_BIAS_QKV},
    {.model_type = "deepseek",
     .gguf = "deepseek",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .moe_or_dense = true,
     .no_router_loss = true,
     .gguf_permuted = true,
     .names = af_deepseek_names},
    {.model_type = "bailing_moe",
     .gguf = "bailingmoe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .fused_qkv = true,
     .moe = true,
     .no_router_loss = true,
     .gguf_permuted = true,
     .gguf_cut_qkv = true,
     .names = bailing_names},
    {.model_type = "bailing_moe_v2",
     .gguf = "bailingmoe2",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .fused_qkv = true,
     .qk_norm_config = true,
     .moe = true,
     .choice_or_none = true,
     .no_router_loss = true,
     .names = bailing_names},
    {.model_type = "baichuan",
     .gguf = "baichuan",
     .pre_norm = true,
     .fused_qkv = true,
     .gguf_permuted = true,
     .gguf_cut_qkv = true,
     .names = (const af_slot_name[]){{AF_SLOT_QKV, "self_attn.W_pack.weight", NULL}, {0}},
     .fill = baichuan_fill},
    {.model_type = "chatglm",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .rope_pairs = true,
     .fused_qkv = true,
     .fused_gate_up = true,
     .stem = "transformer.encoder.",
     .names = chatglm_names},
    {0},
};
