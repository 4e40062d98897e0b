/* gguf_parts.c - see gguf_parts.h. */
#include "model/arch/gguf_parts.h"

int af_gguf_exp_of(const af_model_spec *s, const af_tensor_spec *t)
{
    return t->slot != AF_SLOT_A_LOG ? 0 : s->state.decay_bound != 0 ? 1 : -1;
}

int64_t af_gguf_vector_columns(const af_model_spec *s, const af_tensor_spec *t)
{
    if (t->slot == AF_SLOT_A_LOG && s->state.channels)
        return 1;
    if (t->layer < 0 || (s->layer[t->layer].mixer != AF_MIXER_MAMBA2 &&
                         s->layer[t->layer].mixer != AF_MIXER_HYBRID))
        return 0;
    return t->slot == AF_SLOT_A_LOG || t->slot == AF_SLOT_D ? 1
           : t->slot == AF_SLOT_STATE_NORM                  ? t->dim[0] / s->state.key_heads
                                                            : 0;
}

int af_gguf_stack_of(const af_model_spec *s, const af_tensor_spec *t, int *index)
{
    *index =
        t->slot - (t->slot < AF_SLOT_ALTUP_CLOSE_1 ? AF_SLOT_ALTUP_OPEN_1 : AF_SLOT_ALTUP_CLOSE_1);
    return t->slot >= AF_SLOT_ALTUP_OPEN_1 && t->slot <= AF_SLOT_ALTUP_CLOSE_3
               ? (int)s->altup.streams - 1
               : 0;
}

static af_gguf_parts halves(const af_tensor_spec *t, const char *gate, const char *up)
{
    const int64_t matrices = t->ndim == 3 ? t->dim[0] : 1, half = t->dim[t->ndim - 2] / 2;
    return (af_gguf_parts){
        .count = 2, .name = {gate, up}, .rows = {matrices * half, matrices * half}, .half = half};
}

static af_gguf_parts by_key(const af_state_keys *k)
{
    const int64_t keys = k->key_heads * k->key_dim, values = k->heads * k->head_dim;
    return (af_gguf_parts){.count = 2,
                           .name = {"attn_qkv.weight", "attn_gate.weight"},
                           .rows = {2 * keys + values, values},
                           .keys = k->key_heads,
                           .key_dim = k->key_dim,
                           .value_dim = k->heads / k->key_heads * k->head_dim};
}

static af_gguf_parts queries_keys_values(const af_model_spec *s, const af_tensor_spec *t)
{
    const af_layer_spec *l = &s->layer[t->layer];
    const int64_t E = l->head_dim, H = l->heads, K = l->kv_heads;
    af_gguf_parts p = {.count = 3,
                       .name = {"attn_q.weight", "attn_k.weight", "attn_v.weight"},
                       .rows = {H * E, K * E, K * E}};
    if (s->arch->qkv_grouped)
        p.heads = (af_gguf_order){.keys = K, .per_key = H / K, .size = E, .qkv = true};
    if (s->arch->gguf_permuted && l->rope >= 0)
        p.rotated = (af_gguf_order){.keys = 1, .size = E, .pairs = s->rope[l->rope].rotary_dim};
    return p;
}

static af_gguf_parts convolutions(const af_state_keys *k)
{
    const int64_t keys = k->key_heads * k->key_dim;
    return (af_gguf_parts){
        .count = 3,
        .name = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"},
        .rows = {keys, keys, k->heads * k->head_dim}};
}

af_gguf_parts af_gguf_parts_of(const af_model_spec *s, const af_tensor_spec *t)
{
    static const af_gguf_parts none = {0};
    switch (t->slot) {
    case AF_SLOT_EXPERTS_GATE_UP:
        return s->arch->gguf_fused_experts
                   ? none
                   : halves(t, "ffn_gate_exps.weight", "ffn_up_exps.weight");
    case AF_SLOT_SHARED_GATE_UP:
        return s->arch->gguf_fused_experts
                   ? none
                   : halves(t, "ffn_gate_shexp.weight", "ffn_up_shexp.weight");
    case AF_SLOT_GATE_UP:
        return s->arch->gguf_cut_mlp ? halves(t, "ffn_gate.weight", "ffn_up.weight") : none;
    case AF_SLOT_QKV:
        return s->arch->gguf_cut_qkv ? queries_keys_values(s, t) : none;
    case AF_SLOT_CONV:
        return s->state.channels ? convolutions(&s->state) : none;
    case AF_SLOT_IN:
        return s->state.by_key_head ? by_key(&s->state) : none;
    default:
        return none;
    }
}

void af_gguf_part_dims(const af_gguf_parts *p, int part, const af_tensor_spec *t, int64_t dim[3])
{
    const bool experts = t->ndim == 3 && t->slot != AF_SLOT_CONV; /* a convolution: [C][1][K] */
    memcpy(dim, t->dim, 3 * sizeof *dim);
    dim[experts] = p->rows[part] / (experts ? t->dim[0] : 1);
}

static int64_t qkv_here(const af_gguf_parts *p, int part, int64_t r)
{
    r = part < 2 ? af_gguf_order_here(&p->rotated, r) : r;
    for (int i = 0; i < part; i++)
        r += p->rows[i];
    return af_gguf_order_here(&p->heads, r);
}

static int64_t qkv_there(const af_gguf_parts *p, int64_t r, int *part)
{
    r = af_gguf_order_there(&p->heads, r);
    for (*part = 0; r >= p->rows[*part]; (*part)++)
        r -= p->rows[*part];
    return *part < 2 ? af_gguf_order_there(&p->rotated, r) : r;
}

int64_t af_gguf_parts_here(const af_gguf_parts *p, int part, int64_t r)
{
    if (p->count == 3)
        return qkv_here(p, part, r);
    if (p->half)
        return r / p->half * 2 * p->half + part * p->half + r % p->half;
    const int64_t dk = p->key_dim, dv = p->value_dim, all = 2 * (dk + dv), qk = p->keys * dk;
    if (part)
        return r / dv * all + 2 * dk + dv + r % dv;
    if (r >= 2 * qk)
        return (r - 2 * qk) / dv * all + 2 * dk + (r - 2 * qk) % dv;
    return r % qk / dk * all + r / qk * dk + r % dk;
}

int64_t af_gguf_parts_there(const af_gguf_parts *p, int64_t r, int *part)
{
    if (p->count == 3)
        return qkv_there(p, r, part);
    if (p->half) {
        *part = (int)(r % (2 * p->half) / p->half);
        return r / (2 * p->half) * p->half + r % p->half;
    }
    const int64_t dk = p->key_dim, dv = p->value_dim, all = 2 * (dk + dv);
    const int64_t key = r / all, at = r % all;
    *part = at >= 2 * dk + dv;
    if (*part)
        return key * dv + at - 2 * dk - dv;
    return at < 2 * dk ? at / dk * p->keys * dk + key * dk + at % dk
                       : 2 * p->keys * dk + key * dv + at - 2 * dk;
}
