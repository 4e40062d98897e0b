/* list_attention.c - the tensors of softmax attention. */
#include "model/arch/arch_list.h"

/* Values of so many heads. */
static int64_t values_of(const af_lister *l, const af_layer_spec *ls, int heads)
{
    const int64_t own = l->s->latent.v_dim;
    return heads * (own ? own : ls->head_dim);
}

/* Layers that use another layer's keys and values have none of their own. */
static void list_qkv(af_lister *l, int i, bool bias)
{
    const af_layer_spec *ls = &l->s->layer[i];
    const int64_t D = l->s->width, E = ls->head_dim, HE = ls->heads * E, KE = ls->kv_heads * E;
    if (l->s->arch->fused_qkv) {
        af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_QKV, HE + 2 * KE, D,
                       bias ? AF_SLOT_QKV_BIAS : -1);
        return;
    }
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_Q, l->s->arch->attn_gate ? 2 * HE : HE, D,
                   bias ? AF_SLOT_Q_BIAS : -1);
    if (ls->kv_from != i)
        return;
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_K, KE, D, bias ? AF_SLOT_K_BIAS : -1);
    if (!ls->k_is_v)
        af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_V, values_of(l, ls, ls->kv_heads), D,
                       bias ? AF_SLOT_V_BIAS : -1);
}

static void list_qk_norm(af_lister *l, af_slot slot, af_slot bias, int i, int heads)
{
    const af_arch *a = l->s->arch;
    const int64_t E = l->s->layer[i].head_dim;
    if (a->qk_norm_heads)
        af_list_tensor(l, slot, i, 2, heads, E, 1);
    else
        af_list_tensor(l, slot, i, 1, a->qk_norm_row ? heads * E : E, 1, 1);
    if (a->qk_norm_layer)
        af_list_tensor(l, bias, i, 1, E, 1, 1);
}

/* A mixture of heads: queries and outputs of each expert, keys and values of all. */
static void list_experts(af_lister *l, int i)
{
    const int64_t D = l->s->width, KE = (int64_t)l->s->kv_heads * l->s->head_dim;
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_QKV, 2 * KE, D, -1);
    af_list_tensor(l, AF_SLOT_ATTN_ROUTER, i, 2, l->s->experts, D, 1);
    af_list_experts(l, i, AF_GROUP_ATTN_EXPERTS_IN, AF_SLOT_ATTN_EXPERTS_IN, KE, D);
    af_list_experts(l, i, AF_GROUP_ATTN_EXPERTS_OUT, AF_SLOT_ATTN_EXPERTS_OUT, D, KE);
    af_list_tensor(l, AF_SLOT_ATTN_EXPERTS_BIAS, i, 1, D, 1, 1);
}

void af_list_attention(af_lister *l, int i)
{
    const af_arch *a = l->s->arch;
    if (a->attn_experts) {
        list_experts(l, i);
        return;
    }
    const af_layer_spec *ls = &l->s->layer[i];
    const int64_t D = l->s->width, E = ls->head_dim, HE = ls->heads * E;
    const bool asked = a->bias != AF_BIAS_NEVER && l->c->attention_bias;
    const bool qkv = a->bias == AF_BIAS_QKV || asked;
    const bool o = a->bias == AF_BIAS_APART ? l->c->attention_out_bias
                                            : a->bias == AF_BIAS_CONFIG && l->c->attention_bias;
    list_qkv(l, i, qkv);
    if (a->qk_norm || (a->qk_norm_config && l->c->qk_norm)) {
        list_qk_norm(l, AF_SLOT_Q_NORM, AF_SLOT_Q_NORM_BIAS, i, ls->heads);
        if (ls->kv_from == i)
            list_qk_norm(l, AF_SLOT_K_NORM, AF_SLOT_K_NORM_BIAS, i, ls->kv_heads);
    }
    if (a->attn_gate_apart)
        af_list_linear(l, i, AF_GROUP_ATTN_GATE, AF_SLOT_ATTN_GATE,
                       l->s->attn_gate_heads ? ls->heads : HE, D, -1);
    if (a->sinks && (ls->window || !a->sinks_sliding))
        af_list_tensor(l, AF_SLOT_SINKS, i, 1, ls->heads, 1, 1);
    for (int k = AF_SLOT_LAMBDA_Q1; a->differential && k <= AF_SLOT_LAMBDA_K2; k++)
        af_list_tensor(l, (af_slot)k, i, 1, E, 1, 1);
    if (a->sub_norms)
        af_list_tensor(l, AF_SLOT_ATTN_SUB_NORM, i, 1, HE, 1, 1);
    af_list_linear(l, i, AF_GROUP_O, AF_SLOT_O, D, values_of(l, ls, ls->heads),
                   o ? AF_SLOT_O_BIAS : -1);
    af_list_indexer(l, i);
}
