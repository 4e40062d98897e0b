/* rows_gemma.c - the gemma families. */
#include "model/arch/arch_rows.h"

#include <math.h>

/* The last layer of gemma4 is always a full one. */
static bool is_full(const af_model_spec *s, const af_hf_config *c, int i)
{
    return c->layer_types[i] == AF_LAYER_FULL || (i + 1 == s->layers && !c->altup.streams);
}

/* The last layer before `end` of the same kind as layer i, or -1. */
static int last_alike(const af_model_spec *s, const af_hf_config *c, int i, int end)
{
    int j = end - 1;
    while (j >= 0 && is_full(s, c, j) != is_full(s, c, i))
        j--;
    return j;
}

static void size_layer(af_model_spec *s, const af_hf_config *c, int i)
{
    const af_layer_keys *k = &c->per_layer;
    af_layer_spec *l = &s->layer[i];
    const bool full = is_full(s, c, i);
    int64_t head = k->head_dim ? k->head_dim[i] : full ? k->full_head_dim : 0;
    int64_t kv = k->kv_heads ? k->kv_heads[i] : full && k->k_is_v ? k->full_kv_heads : 0;
    l->head_dim = head ? (int)head : s->head_dim;
    l->kv_heads = kv ? (int)kv : s->kv_heads;
    l->window = full ? 0 : l->window;
    l->rope = full || s->ropes < 2 ? 0 : 1;
    l->k_is_v = k->k_is_v && full;
    if (k->experts)
        l->mlp = AF_MLP_AND_EXPERTS;
}

/* Layers from `first` on have no keys and values of their own. */
static af_status share_kv(af_model_spec *s, const af_hf_config *c, int first, af_error *err)
{
    for (int i = first; first > 0 && i < s->layers; i++) {
        af_layer_spec *l = &s->layer[i];
        const int from = last_alike(s, c, i, first);
        if (from < 0 || s->layer[from].head_dim != l->head_dim)
            return af_fail(err, AF_EFORMAT,
                           "num_kv_shared_layers is %" PRId64
                           ", but layer %d has no earlier layer of its kind and size to share with",
                           c->per_layer.kv_shared, i);
        l->kv_from = from;
        l->kv_heads = s->layer[from].kv_heads;
        l->k_is_v = false;
        if (c->per_layer.double_wide)
            l->ffn = 2 * s->ffn;
    }
    return AF_OK;
}

static af_status gemma4_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    af_status st = AF_OK;
    s->attn_scale = 1;
    s->per_layer_input = c->per_layer.input;
    s->per_layer_vocab = c->per_layer.input ? c->per_layer.input_vocab : 0;
    for (int i = 0; i < s->layers; i++) {
        size_layer(s, c, i);
        if (s->heads % s->layer[i].kv_heads)
            AF_TRY(af_fail(err, AF_EFORMAT, "layer %d: %d heads cannot share %d kv heads", i,
                           s->heads, s->layer[i].kv_heads));
    }
    AF_TRY(share_kv(s, c, s->layers - (int)AF_MIN(c->per_layer.kv_shared, s->layers), err));
    if (c->per_layer.experts && (s->experts < 1 || s->expert_ffn < 1 || s->experts_used < 1 ||
                                 s->experts_used > s->experts))
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "num_experts is %d, top_k_experts %d and moe_intermediate_size %" PRId64,
                       s->experts, s->experts_used, s->expert_ffn));
    for (int i = 0; i < s->layers; i++) {
        const af_layer_spec *l = &s->layer[i];
        if (l->head_dim != s->layer[last_alike(s, c, i, s->layers)].head_dim)
            AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                           "layer %d has heads of %d, other than layers of its kind", i,
                           l->head_dim));
        AF_TRY(af_spec_rope_dims(&s->rope[l->rope], l->head_dim, err));
    }
done:
    return st;
}

/* The number of standard deviations above the mean below which a share p of a normal distribution
 * lies. */
static double quantile(double p)
{
    double low = -40, high = 40;
    for (int i = 0; i < 200; i++) {
        const double mid = (low + high) / 2;
        if (0.5 * erfc(-mid / sqrt(2.0)) < p)
            low = mid;
        else
            high = mid;
    }
    return (low + high) / 2;
}

static af_status gemma3n_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    s->attn_scale = 1;
    s->per_layer_input = c->per_layer.input;
    s->per_layer_vocab = c->per_layer.input_vocab;
    s->altup = c->altup;
    for (int i = 0; i < s->layers; i++) {
        af_layer_spec *l = &s->layer[i];
        l->ffn = c->per_layer.ffn ? c->per_layer.ffn[i] : s->ffn;
        const double share = c->per_layer.sparsity ? c->per_layer.sparsity[i] : 0;
        l->sparse = share > 0;
        l->sparsity = share > 0 ? quantile((double)(float)share) : 0;
    }
    return share_kv(s, c, s->layers - (int)AF_MIN(c->per_layer.kv_shared, s->layers), err);
}

static af_status muse_glimmer_fill(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    (void)err;
    s->attn_scale *= c->attention_multiplier;
    s->logit_scale = s->labels ? 1 : c->logit_scale;
    s->post_eps = c->post_norm_eps;
    return AF_OK;
}

#define GEMMA4                                                                                     \
    .gguf = "gemma4", .pre_norm = true, .post_norm = true, .bias = AF_BIAS_CONFIG,                 \
    .qk_norm = true, .value_norm = true, .layer_scale = true, .scale_embedding = true,             \
    .logit_cap = true, .fill = gemma4_fill

const af_arch af_rows_gemma[] = {
    {.model_type = "gemma",
     .gguf = "gemma",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .scale_embedding = true,
     .gguf_norm_one = true},
    {.model_type = "gemma2",
     .gguf = "gemma2",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .scale_embedding = true,
     .attn_cap = true,
     .logit_cap = true,
     .query_scalar = true,
     .gguf_norm_one = true},
    {.model_type = "vaultgemma",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .scale_embedding = true,
     .attn_cap = true,
     .logit_cap = true,
     .query_scalar = true,
     .names =
         (const af_slot_name[]){{AF_SLOT_MLP_NORM, "pre_feedforward_layernorm.weight", NULL}, {0}}},
    {.model_type = "gemma3_text",
     .gguf = "gemma3",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .qk_norm = true,
     .scale_embedding = true,
     .logit_cap = true,
     .query_scalar = true,
     .gguf_norm_one = true},
    {GEMMA4, .model_type = "gemma4_text", .gguf_fused_experts = true, .no_router_loss = true,
     .router_linear = true, .experts_whole = true,
     .names = (const af_slot_name[]){{AF_SLOT_ROUTER, "router.proj.weight", NULL},
                                     {AF_SLOT_EXPERTS_GATE_UP, "experts.gate_up_proj",
                                      "ffn_gate_up_exps.weight"},
                                     {AF_SLOT_EXPERTS_DOWN, "experts.down_proj", NULL},
                                     {0}}},
    {GEMMA4, .model_type = "gemma4_unified_text"},
    {.model_type = "gemma3n_text",
     .gguf = "gemma3n",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .value_norm = true,
     .scale_embedding = true,
     .logit_cap = true,
     .fill = gemma3n_fill},
    {.model_type = "muse_glimmer_text",
     .pre_norm = true,
     .post_norm = true,
     .bias = AF_BIAS_CONFIG,
     .norm_plus_one = true,
     .final_norm_whole = true,
     .embed_norm_inside = true,
     .qk_norm_bare = true,
     .attn_gate_apart = true,
     .logit_cap = true,
     .names = (const af_slot_name[]){{AF_SLOT_ATTN_GATE, "self_attn.gate_proj.weight", NULL}, {0}},
     .fill = muse_glimmer_fill},
    {0},
};
