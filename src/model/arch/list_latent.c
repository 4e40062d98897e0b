/* list_latent.c - the tensors of multi-head latent attention. */
#include "model/arch/arch_list.h"

static void list_kept(af_lister *l, af_slot slot, int i, int64_t rows, int64_t cols)
{
    l->s->tensor[af_list_tensor(l, slot, i, 2, rows, cols, 1)].buffer = true;
}

/* Up to index_topk keys the indexer picks them all, and no gradient reaches it; transformers does
 * not train it either. */
void af_list_indexer(af_lister *l, int i)
{
    const af_latent_keys *k = &l->s->latent;
    const int64_t D = l->s->width;
    const bool latent = k->kv_lora_rank > 0; /* else minimax_m3 */
    if (!k->index_topk || (k->index_shared && k->index_shared[i]))
        return;
    list_kept(l, AF_SLOT_INDEX_Q, i, k->index_heads * k->index_dim, latent ? k->q_lora_rank : D);
    list_kept(l, AF_SLOT_INDEX_K, i, k->index_dim, D);
    if (latent)
        list_kept(l, AF_SLOT_INDEX_WEIGHTS, i, k->index_heads, D);
    else
        af_list_buffer(l, AF_SLOT_INDEX_Q_NORM, i, k->index_dim);
    af_list_buffer(l, AF_SLOT_INDEX_NORM, i, k->index_dim);
    if (latent)
        af_list_buffer(l, AF_SLOT_INDEX_NORM_BIAS, i, k->index_dim);
}

void af_list_latent(af_lister *l, int i)
{
    const af_latent_keys *k = &l->s->latent;
    const int64_t D = l->s->width, H = l->s->layer[i].heads, E = k->qk_nope_dim + k->qk_rope_dim;
    const bool bias = l->c->attention_bias;
    if (k->q_lora_rank > 0) {
        af_list_linear(l, i, AF_GROUP_Q_A, AF_SLOT_Q_A, k->q_lora_rank, D,
                       bias ? AF_SLOT_Q_A_BIAS : -1);
        af_list_tensor(l, AF_SLOT_Q_A_NORM, i, 1, k->q_lora_rank, 1, 1);
        af_list_linear(l, i, AF_GROUP_Q_B, AF_SLOT_Q_B, H * (E + (k->out_gate ? k->v_dim : 0)),
                       (k->out_gate ? 2 : 1) * k->q_lora_rank, -1);
    } else {
        af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_Q, H * E, D, -1);
    }
    af_list_linear(l, i, AF_GROUP_KV_A, AF_SLOT_KV_A, k->kv_lora_rank + k->qk_rope_dim, D,
                   bias ? AF_SLOT_KV_A_BIAS : -1);
    af_list_tensor(l, AF_SLOT_KV_A_NORM, i, 1, k->kv_lora_rank, 1, 1);
    af_list_linear(l, i, AF_GROUP_KV_B, AF_SLOT_KV_B, H * (k->qk_nope_dim + k->v_dim),
                   k->kv_lora_rank, -1);
    if (l->s->arch->attn_gate_apart) /* one for each head */
        af_list_linear(l, i, AF_GROUP_ATTN_GATE, AF_SLOT_ATTN_GATE, H, D, -1);
    af_list_linear(l, i, AF_GROUP_O, AF_SLOT_O, D, H * k->v_dim, bias ? AF_SLOT_O_BIAS : -1);
    af_list_indexer(l, i);
}

void af_list_norm_gate(af_lister *l, int i, bool mlp)
{
    const int64_t D = l->s->width, R = l->s->latent.norm_gate;
    if (R == 0)
        return;
    af_tensor_spec *norm =
        &l->s->tensor[l->s->layer[i].tensor[mlp ? AF_SLOT_MLP_NORM : AF_SLOT_ATTN_NORM]];
    if (norm->name) /* "input_layernorm.norm.weight" */
        norm->name = af_arena_printf(&l->s->arena, "%.*s.norm.weight",
                                     (int)(strlen(norm->name) - strlen(".weight")), norm->name);
    l->failed |= !norm->name;
    af_list_linear(l, i, mlp ? AF_GROUP_MLP_NORM_DOWN : AF_GROUP_ATTN_NORM_DOWN,
                   mlp ? AF_SLOT_MLP_NORM_DOWN : AF_SLOT_ATTN_NORM_DOWN, R, D, -1);
    af_list_linear(l, i, mlp ? AF_GROUP_MLP_NORM_UP : AF_GROUP_ATTN_NORM_UP,
                   mlp ? AF_SLOT_MLP_NORM_UP : AF_SLOT_ATTN_NORM_UP, D, R, -1);
}
