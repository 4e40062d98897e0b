/* list_mlp.c - the tensors of dense MLPs, with a gate and without. */
#include "model/arch/arch_list.h"

void af_list_mlp_gated(af_lister *l, int i)
{
    const af_arch *a = l->s->arch;
    const int64_t D = l->s->width, F = l->s->layer[i].ffn;
    const bool bias = a->mlp_bias || l->c->mlp_bias;
    if (a->fused_gate_up) {
        af_list_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_GATE_UP, 2 * F, D, -1);
        af_list_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, -1);
        return;
    }
    af_list_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_GATE, F, D, bias ? AF_SLOT_GATE_BIAS : -1);
    af_list_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_UP, F, D, bias ? AF_SLOT_UP_BIAS : -1);
    if (a->sub_norms)
        af_list_tensor(l, AF_SLOT_MLP_SUB_NORM, i, 1, F, 1, 1);
    af_list_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, bias ? AF_SLOT_DOWN_BIAS : -1);
}

void af_list_mlp_plain(af_lister *l, int i)
{
    const int64_t D = l->s->width, F = l->s->layer[i].ffn;
    const bool bias = l->s->arch->mlp_bias || l->c->mlp_bias;
    af_list_linear(l, i, AF_GROUP_GATE_UP, AF_SLOT_UP, F, D, bias ? AF_SLOT_UP_BIAS : -1);
    if (l->s->plain_act == AF_PLAIN_XIELU) {
        af_list_tensor(l, AF_SLOT_ACT_P, i, 1, 1, 1, 1);
        af_list_tensor(l, AF_SLOT_ACT_N, i, 1, 1, 1, 1);
        af_list_buffer(l, AF_SLOT_ACT_BETA, i, 0);
        af_list_buffer(l, AF_SLOT_ACT_EPS, i, 0);
    }
    af_list_linear(l, i, AF_GROUP_DOWN, AF_SLOT_DOWN, D, F, bias ? AF_SLOT_DOWN_BIAS : -1);
}
