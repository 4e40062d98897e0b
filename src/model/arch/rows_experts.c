/* rows_experts.c - families with experts and ordinary attention. */
#include "model/arch/arch_rows.h"

static const af_slot_name granitemoe_names[] = {
    {AF_SLOT_SHARED_GATE_UP, "shared_mlp.input_linear.weight", NULL},
    {AF_SLOT_SHARED_DOWN, "shared_mlp.output_linear.weight", NULL},
    {AF_SLOT_ROUTER, "block_sparse_moe.router.layer.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "block_sparse_moe.input_linear.weight", NULL},
    {AF_SLOT_EXPERTS_DOWN, "block_sparse_moe.output_linear.weight", NULL},
    {0},
};

/* Younger than the renaming of experts: called on disk as they are in memory. */
static const af_slot_name granitemoe_swa_names[] = {
    {AF_SLOT_SHARED_GATE_UP, "shared_mlp.input_linear.weight", NULL},
    {AF_SLOT_SHARED_DOWN, "shared_mlp.output_linear.weight", NULL},
    {AF_SLOT_ROUTER, "block_sparse_moe.router.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "block_sparse_moe.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {AF_SLOT_EXPERTS_DOWN, "block_sparse_moe.experts.down_proj", NULL},
    {0},
};

static const af_slot_name hunyuan_moe_names[] = {
    {AF_SLOT_Q_NORM, "self_attn.query_layernorm.weight", NULL},
    {AF_SLOT_K_NORM, "self_attn.key_layernorm.weight", NULL},
    {AF_SLOT_ROUTER, "mlp.gate.wg.weight", NULL},
    AF_SHARED_NAMES("mlp.shared_mlp"),
    {0},
};

static const af_slot_name ernie_moe_names[] = {
    {AF_SLOT_ROUTER_CHOICE, "mlp.moe_statics.e_score_correction_bias", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

static const af_slot_name aria_names[] = {
    {AF_SLOT_ROUTER, "mlp.router.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "mlp.experts.fc1.weight", NULL},
    {AF_SLOT_EXPERTS_DOWN, "mlp.experts.fc2.weight", NULL},
    AF_SHARED_NAMES("mlp.shared_experts"),
    {0},
};

static const af_slot_name dbrx_names[] = {
    {AF_SLOT_EMBED, "transformer.wte.weight", NULL},
    {AF_SLOT_ATTN_NORM, "norm_attn_norm.norm_1.weight", NULL},
    {AF_SLOT_QKV, "norm_attn_norm.attn.Wqkv.weight", NULL},
    {AF_SLOT_O, "norm_attn_norm.attn.out_proj.weight", NULL},
    {AF_SLOT_MLP_NORM, "norm_attn_norm.norm_2.weight", "attn_output_norm.weight"},
    {AF_SLOT_ROUTER, "ffn.router.layer.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "ffn.experts.mlp.w1", NULL},
    {AF_SLOT_EXPERTS_DOWN, "ffn.experts.mlp.w2", NULL},
    {AF_SLOT_FINAL_NORM, "transformer.norm_f.weight", NULL},
    {0},
};

#define PHIMOE                                                                                     \
    .model_type = "phimoe", .pre_norm = true, .bias = AF_BIAS_CONFIG, .layer_norm = true,          \
    .norm_bias = true, .moe = true, .experts = "block_sparse_moe.experts",                         \
    .expert_part = {"w1", "w3", "w2"}, .router = "block_sparse_moe.gate.weight",                   \
    .names = (const af_slot_name[])                                                                \
    {                                                                                              \
        {AF_SLOT_ROUTER, "mlp.router.weight", NULL}, { 0 }                                         \
    }

static const af_arch phimoe_head_bias = {PHIMOE, .head_bias = true};

static af_status phimoe_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    if (c->head_bias)
        s->arch = &phimoe_head_bias;
    return AF_OK;
}

static const af_slot_name minimax_names[] = {
    {AF_SLOT_IN, "self_attn.qkv_proj.weight", NULL},
    {AF_SLOT_IN_Z, "self_attn.output_gate.weight", NULL},
    {AF_SLOT_STATE_NORM, "self_attn.norm.weight", NULL},
    {AF_SLOT_OUT, "self_attn.out_proj.weight", NULL},
    {0},
};

/* Layers without softmax attention, and factors of the sums: to what a block gives, the norm that
 * it read is added, not its input. */
static af_status minimax_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->residual_normed = true;
    s->state = (af_state_keys){.heads = s->heads,
                               .head_dim = s->head_dim,
                               .key_heads = s->heads,
                               .key_dim = s->head_dim,
                               .fixed_decay = true};
    if (s->head_dim > AF_STATE_DIM_MAX)
        return af_fail(err, AF_EFORMAT, "head_dim is %d, more than the %d of a state", s->head_dim,
                       AF_STATE_DIM_MAX);
    for (int i = 0; i < s->layers; i++) {
        af_layer_spec *l = &s->layer[i];
        const bool linear = c->layer_types[i] == AF_LAYER_LINEAR;
        l->mixer = linear ? AF_MIXER_LIGHTNING : AF_MIXER_ATTENTION;
        l->keep[0] = c->residual_keep[linear];
        l->add[0] = c->residual_add[linear];
        l->keep[1] = c->residual_keep[2];
        l->add[1] = c->residual_add[2];
    }
    return AF_OK;
}

#define MINIMAX(type)                                                                              \
    .model_type = type, .pre_norm = true, .moe = true, .experts = "block_sparse_moe.experts",      \
    .expert_part = {"w1", "w3", "w2"}, .router = "block_sparse_moe.gate.weight",                   \
    .names = minimax_names, .fill = minimax_fill

static const af_slot_name jetmoe_names[] = {
    {AF_SLOT_QKV, "self_attention.kv_proj.weight", NULL},
    {AF_SLOT_ROUTER, "mlp.router.layer.weight", NULL},
    {AF_SLOT_EXPERTS_GATE_UP, "mlp.input_linear.weight", NULL},
    {AF_SLOT_EXPERTS_DOWN, "mlp.output_linear.weight", NULL},
    {0},
};

/* Norms of layers have an epsilon that is in the code. */
static af_status jetmoe_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)c;
    (void)err;
    s->eps = 1e-6;
    return AF_OK;
}

#define MINIMAX_M3                                                                                 \
    .model_type = "minimax_m3_vl_text", .pre_norm = true, .norm_plus_one = true, .qk_norm = true,  \
    .fused_gate_up = true, .moe = true

/* As published: with gates and ups apart, and names of its own. */
static const af_arch minimax_m3_inside = {
    MINIMAX_M3,
    .gate_up_halves = true,
    .experts = "block_sparse_moe.experts",
    .expert_part = {"w1", "w3", "w2"},
    .router = "block_sparse_moe.gate.weight",
    .in_memory = (const char *const[][2]){{".block_sparse_moe.", ".mlp."}, {NULL, NULL}},
    .names =
        (const af_slot_name[]){
            {AF_SLOT_ROUTER_CHOICE, "block_sparse_moe.e_score_correction_bias", NULL},
            {AF_SLOT_SHARED_GATE_UP, "block_sparse_moe.shared_experts.gate_up_proj.weight", NULL},
            {AF_SLOT_SHARED_DOWN, "block_sparse_moe.shared_experts.down_proj.weight", NULL},
            {AF_SLOT_INDEX_Q, "self_attn.index_q_proj.weight", NULL},
            {AF_SLOT_INDEX_K, "self_attn.index_k_proj.weight", NULL},
            {AF_SLOT_INDEX_Q_NORM, "self_attn.index_q_norm.weight", NULL},
            {AF_SLOT_INDEX_NORM, "self_attn.index_k_norm.weight", NULL},
            {0}},
};

static af_status minimax_m3_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->ffn = c->dense_ffn;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = c->dense_ffn;
    if (c->nested)
        s->arch = &minimax_m3_inside;
    return AF_OK;
}

const af_arch af_rows_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true},
    {.model_type = "qwen2_moe",
     .gguf = "qwen2moe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .moe = true},
    {.model_type = "olmoe",
     .gguf = "olmoe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true,
     .peft_converts = true,
     .moe = true},
    {.model_type = "dbrx",
     .gguf = "dbrx",
     .pre_norm = true,
     .layer_norm = true,
     .fused_qkv = true,
     .moe = true,
     .stem = "transformer.",
     .layers = "blocks",
     .names = dbrx_names,
     .experts_whole = true,
     .experts_flat_up = "ffn.experts.mlp.v1",
     .router_linear = true},
    {.model_type = "mixtral",
     .gguf = "llama",
     .pre_norm = true,
     .peft_converts = true,
     .moe = true,
     .gguf_permuted = true,
     .experts = "block_sparse_moe.experts",
     .expert_part = {"w1", "w3", "w2"},
     .router = "block_sparse_moe.gate.weight"},
    {MINIMAX("minimax"), .peft_converts = true},
    {MINIMAX("minimax_text_01")},
    {MINIMAX("minimax_m1")},
    {PHIMOE, .fill = phimoe_fill},
    {.model_type = "granitemoe",
     .gguf = "granitemoe",
     .gguf_permuted = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fused_gate_up = true,
     .multipliers = true,
     .moe = true,
     .experts_module = "block_sparse_moe.experts",
     .experts_whole = true,
     .names = granitemoe_names},
    {.model_type = "granitemoeshared",
     .gguf = "granitemoe",
     .gguf_permuted = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fused_gate_up = true,
     .multipliers = true,
     .moe = true,
     .experts_module = "block_sparse_moe.experts",
     .experts_whole = true,
     .names = granitemoe_names},
    {.model_type = "granitemoe_swa",
     .gguf = "granite_swa",
     .gguf_permuted = true,
     .gguf_fused_experts = true,
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .fused_gate_up = true,
     .multipliers = true,
     .moe = true,
     .sinks = true,
     .experts_whole = true,
     .names = granitemoe_swa_names,
     .fill = af_fill_layer_thetas},
    {.model_type = "aria_text",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .moe = true,
     .no_router_loss = true,
     .experts_module = "mlp.experts",
     .experts_whole = true,
     .experts_turned = true,
     .names = aria_names},
    {.model_type = "hunyuan_v1_moe",
     .gguf = "hunyuan-moe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_after = true,
     .peft_converts = true,
     .moe = true,
     .no_router_loss = true,
     .router_linear = true,
     .names = hunyuan_moe_names},
    {.model_type = "ernie4_5_moe",
     .gguf = "ernie4_5-moe",
     .pre_norm = true,
     .rope_pairs = true,
     .peft_converts = true,
     .moe = true,
     .choice_row = true,
     .names = ernie_moe_names},
    {.model_type = "ernie4_5_vl_moe_text",
     .pre_norm = true,
     .rope_pairs = true,
     .peft_converts = true,
     .moe = true,
     .choice_row = true,
     .image_experts = true,
     .in_memory = (const char *const[][2]){{".mlp.experts.", ".mlp.text_moe.experts."},
                                           {".mlp.gate.", ".mlp.text_moe.gate."},
                                           {NULL, NULL}},
     .names = ernie_moe_names},
    {.model_type = "minimax_m2",
     .gguf = "minimax-m2",
     .pre_norm = true,
     .qk_norm = true,
     .qk_norm_row = true,
     .peft_converts = true,
     .moe = true,
     .experts = "block_sparse_moe.experts",
     .expert_part = {"w1", "w3", "w2"},
     .router = "block_sparse_moe.gate.weight",
     .names =
         (const af_slot_name[]){
             {AF_SLOT_ROUTER_CHOICE, "block_sparse_moe.e_score_correction_bias", NULL}, {0}}},
    {MINIMAX_M3, .experts_whole = true,
     .names =
         (const af_slot_name[]){
             {AF_SLOT_SHARED_GATE_UP, "mlp.shared_experts.gate_up_proj.weight", NULL},
             {AF_SLOT_SHARED_DOWN, "mlp.shared_experts.down_proj.weight", NULL},
             {AF_SLOT_INDEX_Q, "self_attn.indexer.q_proj.weight", NULL},
             {AF_SLOT_INDEX_K, "self_attn.indexer.k_proj.weight", NULL},
             {0}},
     .fill = minimax_m3_fill},
    {.model_type = "flex_olmo",
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .qk_norm_row = true,
     .peft_converts = true,
     .moe = true},
    {.model_type = "mellum",
     .gguf = "mellum",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true},
    {.model_type = "jetmoe",
     .pre_norm = true,
     .moe = true,
     .attn_experts = true,
     .experts_whole = true,
     .router_linear = true,
     .names = jetmoe_names,
     .fill = jetmoe_fill},
    {.model_type = "flint",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .sinks = true,
     .moe = true,
     .names = (const af_slot_name[]){{AF_SLOT_SINKS, "self_attn.softmax_offset", NULL}, {0}},
     .fill = af_fill_rope_sliding},
    {0},
};
