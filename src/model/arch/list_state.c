/* list_state.c - the tensors of layers with a state. */
#include "model/arch/arch_list.h"

static void list_conv(af_lister *l, int i, int64_t columns)
{
    const af_state_keys *k = &l->s->state;
    af_list_tensor(l, AF_SLOT_CONV, i, 3, columns, 1, k->conv_kernel);
    if (k->conv_bias)
        af_list_tensor(l, AF_SLOT_CONV_BIAS, i, 1, columns, 1, 1);
}

/* Of a decay per channel: b, and the matrices of decays and gates. */
static void list_channel_gates(af_lister *l, int i)
{
    const af_state_keys *k = &l->s->state;
    const int64_t D = l->s->width, R = k->gate_rank, in = R > 0 ? R : D;
    af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_B, k->heads, D, -1);
    if (R > 0) {
        af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_A, R, D, -1);
        af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_Z_A, R, D, -1);
    }
    af_list_linear(l, i, AF_GROUP_STEP_OUT, AF_SLOT_STEP_OUT, k->heads * k->key_dim, in, -1);
    af_list_linear(l, i, AF_GROUP_IN_Z, AF_SLOT_IN_Z, k->heads * k->head_dim, in, -1);
}

void af_list_delta_net(af_lister *l, int i)
{
    const af_state_keys *k = &l->s->state;
    const int64_t D = l->s->width, keys = k->key_heads * k->key_dim,
                  values = k->heads * k->head_dim;
    if (k->by_key_head) {
        af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, 2 * keys + 2 * values, D, -1);
        af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_B, 2 * k->heads, D, -1);
    } else {
        af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, k->apart ? keys : 2 * keys + values, D, -1);
        if (k->apart) {
            af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN_K, keys, D, -1);
            af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN_V, values, D, -1);
        }
    }
    if (k->channels) {
        list_channel_gates(l, i);
    } else if (!k->by_key_head) {
        af_list_linear(l, i, AF_GROUP_IN_Z, AF_SLOT_IN_Z, values, D, -1);
        af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_B, k->heads, D, -1);
        af_list_linear(l, i, AF_GROUP_IN_GATES, AF_SLOT_IN_A, k->heads, D, -1);
    }
    list_conv(l, i, 2 * keys + values);
    af_list_tensor(l, AF_SLOT_DT_BIAS, i, 1, k->channels ? k->heads * k->key_dim : k->heads, 1, 1);
    af_list_tensor(l, AF_SLOT_A_LOG, i, 1, k->heads, 1, 1);
    af_list_tensor(l, AF_SLOT_STATE_NORM, i, 1, k->head_dim, 1, 1);
    af_list_linear(l, i, AF_GROUP_OUT, AF_SLOT_OUT, D, values, -1);
}

void af_list_mamba2(af_lister *l, int i)
{
    const af_state_keys *k = &l->s->state;
    const int64_t D = l->s->width, values = k->heads * k->head_dim,
                  columns = values + 2 * k->key_heads * k->key_dim;
    af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, values + columns + k->heads, D,
                   k->proj_bias ? AF_SLOT_IN_BIAS : -1);
    list_conv(l, i, columns);
    af_list_tensor(l, AF_SLOT_DT_BIAS, i, 1, k->heads, 1, 1);
    af_list_tensor(l, AF_SLOT_A_LOG, i, 1, k->heads, 1, 1);
    af_list_tensor(l, AF_SLOT_D, i, 1, k->heads, 1, 1);
    if (!k->no_norm)
        af_list_tensor(l, AF_SLOT_STATE_NORM, i, 1, values, 1, 1);
    af_list_linear(l, i, AF_GROUP_OUT, AF_SLOT_OUT, D, values, k->out_bias ? AF_SLOT_OUT_BIAS : -1);
}

void af_list_mamba1(af_lister *l, int i)
{
    const af_state_keys *k = &l->s->state;
    const int64_t D = l->s->width, I = k->inner, n = k->key_dim;
    af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, 2 * I, D, k->proj_bias ? AF_SLOT_IN_BIAS : -1);
    list_conv(l, i, I);
    af_list_linear(l, i, AF_GROUP_STEP_IN, AF_SLOT_STEP_IN, k->step_rank + 2 * n, I, -1);
    af_list_linear(l, i, AF_GROUP_STEP_OUT, AF_SLOT_STEP_OUT, I, k->step_rank, -1);
    af_list_tensor(l, AF_SLOT_DT_BIAS, i, 1, I, 1, 1);
    af_list_tensor(l, AF_SLOT_A_LOG, i, 2, I, n, 1);
    af_list_tensor(l, AF_SLOT_D, i, 1, I, 1, 1);
    if (k->step_norms) {
        af_list_tensor(l, AF_SLOT_STEP_NORM, i, 1, k->step_rank, 1, 1);
        af_list_tensor(l, AF_SLOT_STEP_B_NORM, i, 1, n, 1, 1);
        af_list_tensor(l, AF_SLOT_STEP_C_NORM, i, 1, n, 1, 1);
    }
    af_list_linear(l, i, AF_GROUP_OUT, AF_SLOT_OUT, D, I, k->out_bias ? AF_SLOT_OUT_BIAS : -1);
}

void af_list_hybrid(af_lister *l, int i)
{
    af_list_mamba2(l, i);
    af_list_attention(l, i);
}

void af_list_short_conv(af_lister *l, int i)
{
    const int64_t D = l->s->width;
    const bool bias = l->s->state.proj_bias;
    af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, 3 * D, D, bias ? AF_SLOT_IN_BIAS : -1);
    list_conv(l, i, D);
    af_list_linear(l, i, AF_GROUP_OUT, AF_SLOT_OUT, D, D, bias ? AF_SLOT_OUT_BIAS : -1);
}

void af_list_lightning(af_lister *l, int i)
{
    const int64_t D = l->s->width, values = l->s->state.heads * l->s->state.head_dim;
    af_list_linear(l, i, AF_GROUP_IN, AF_SLOT_IN, 3 * values, D, -1);
    af_list_linear(l, i, AF_GROUP_IN_Z, AF_SLOT_IN_Z, values, D, -1);
    af_list_tensor(l, AF_SLOT_STATE_NORM, i, 1, values, 1, 1);
    af_list_linear(l, i, AF_GROUP_OUT, AF_SLOT_OUT, D, values, -1);
}

/* ---- Mamba-2 after a transformer that several layers share (zamba2) ----
 * The first `shared_blocks` such layers own a transformer each; later ones use these in order,
 * again and again. What each use has of its own is stored among the tensors of the owner, by the
 * number of the use. */

/* The use of a transformer that layer i is, counted from 0, and the layer that owns it. */
static int use_of(const af_model_spec *s, int layer, int *owner)
{
    int use = 0, seen = 0;
    for (int i = 0; i < layer; i++)
        use += s->layer[i].mixer == AF_MIXER_SHARED;
    for (*owner = 0; *owner < layer; ++*owner)
        if (s->layer[*owner].mixer == AF_MIXER_SHARED && seen++ == use % s->state.shared_blocks)
            break;
    return use;
}

static void list_transformer(af_lister *l, int i)
{
    const af_layer_spec *ls = &l->s->layer[i];
    const int64_t D = l->s->width, F = l->s->ffn, HE = (int64_t)ls->heads * ls->head_dim,
                  KE = (int64_t)ls->kv_heads * ls->head_dim;
    const bool bias = l->c->mlp_bias;
    af_list_tensor(l, AF_SLOT_SHARED_NORM, i, 1, 2 * D, 1, 1);
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_Q, HE, 2 * D, -1);
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_K, KE, 2 * D, -1);
    af_list_linear(l, i, AF_GROUP_QKV, AF_SLOT_V, KE, 2 * D, -1);
    af_list_linear(l, i, AF_GROUP_O, AF_SLOT_O, D, HE, -1);
    af_list_tensor(l, AF_SLOT_MLP_NORM, i, 1, D, 1, 1);
    af_list_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_GATE_UP, 2 * F, D,
                   bias ? AF_SLOT_GATE_BIAS : -1);
    af_list_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, bias ? AF_SLOT_DOWN_BIAS : -1);
}

static void list_use(af_lister *l, int i)
{
    const af_layer_spec *ls = &l->s->layer[i];
    const int64_t D = l->s->width, R = l->s->state.use_rank, HE = (int64_t)ls->heads * ls->head_dim;
    const int parts = l->s->state.use_qkv ? 3 : 0;
    for (int k = 0; k < parts; k++) /* modules of a group one after another */
        af_list_linear(l, i, AF_GROUP_USE_QKV_IN, (af_slot)(AF_SLOT_USE_Q_IN + k), R, 2 * D, -1);
    for (int k = 0; k < parts; k++)
        af_list_linear(l, i, (af_group)(AF_GROUP_USE_Q + k), (af_slot)(AF_SLOT_USE_Q + k), HE, R,
                       -1);
    af_list_linear(l, i, AF_GROUP_USE_GATE_UP_IN, AF_SLOT_USE_GATE_UP_IN, R, D, -1);
    af_list_linear(l, i, AF_GROUP_USE_GATE_UP, AF_SLOT_USE_GATE_UP, 2 * l->s->ffn, R, -1);
}

void af_list_shared(af_lister *l, int i)
{
    const int64_t D = l->s->width;
    const int use = use_of(l->s, i, &l->first);
    l->part = "mamba_decoder.";
    af_list_tensor(l, AF_SLOT_MIXER_NORM, i, 1, D, 1, 1);
    af_list_mamba2(l, i);
    l->part = NULL;
    af_list_linear(l, i, AF_GROUP_SHARED_LINEAR, AF_SLOT_SHARED_LINEAR, D, D, -1);
    l->part = "shared_transformer.";
    l->again = l->first != i;
    list_transformer(l, i);
    l->again = false;
    l->use = use + 1;
    list_use(l, i);
    l->use = 0;
    l->part = NULL;
}
