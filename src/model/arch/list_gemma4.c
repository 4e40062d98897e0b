/* list_gemma4.c - experts next to an MLP, and inputs that each layer has of its own. */
#include "model/arch/arch_list.h"

void af_list_mlp_and_experts(af_lister *l, int i)
{
    af_list_mlp_gated(l, i);
    af_list_norm(l, AF_SLOT_POST_DENSE_NORM, -1, i);
    af_list_norm(l, AF_SLOT_EXPERTS_NORM, -1, i);
    af_list_norm(l, AF_SLOT_POST_EXPERTS_NORM, -1, i);
    af_list_tensor(l, AF_SLOT_ROUTER_SCALE, i, 1, l->s->width, 1, 1);
    af_list_mlp_experts(l, i);
}

void af_list_layer_inputs(af_lister *l)
{
    af_model_spec *s = l->s;
    const int64_t P = s->per_layer_input;
    uint64_t wide;
    if (P == 0)
        return;
    l->failed |= !af_mul_ok((uint64_t)P, (uint64_t)s->layers, &wide);
    wide = l->failed ? 1 : wide;
    af_list_tensor(l, AF_SLOT_PER_LAYER_EMBED, -1, 2, s->per_layer_vocab, (int64_t)wide, 1);
    af_list_tensor(l, AF_SLOT_PER_LAYER_MODEL_NORM, -1, 1, P, 1, 1);
    af_list_outer_linear(l, AF_GROUP_PER_LAYER_MODEL, AF_SLOT_PER_LAYER_MODEL_PROJ, (int64_t)wide,
                         s->width);
}

void af_list_altup_outer(af_lister *l)
{
    const int64_t D = l->s->width;
    const int n = (int)l->s->altup.streams - 1;
    for (int i = 0; i < n; i++)
        af_list_outer_linear(l, AF_GROUP_ALTUP_OPEN, (af_slot)(AF_SLOT_ALTUP_OPEN_1 + i), D, D);
    for (int i = 0; i < n; i++)
        af_list_outer_linear(l, (af_group)(AF_GROUP_ALTUP_CLOSE_1 + i),
                             (af_slot)(AF_SLOT_ALTUP_CLOSE_1 + i), D, D);
}

void af_list_altup(af_lister *l, int i)
{
    const af_altup_keys *k = &l->s->altup;
    const int64_t D = l->s->width, A = k->streams;
    if (A == 0)
        return;
    af_list_linear(l, i, AF_GROUP_LAUREL_LEFT, AF_SLOT_LAUREL_LEFT, k->laurel, D, -1);
    af_list_linear(l, i, AF_GROUP_LAUREL_RIGHT, AF_SLOT_LAUREL_RIGHT, D, k->laurel, -1);
    af_list_norm(l, AF_SLOT_LAUREL_NORM, -1, i);
    af_list_linear(l, i, AF_GROUP_ALTUP_ROUTER, AF_SLOT_ALTUP_ROUTER, A, D, -1);
    af_list_norm(l, AF_SLOT_ALTUP_NORM, -1, i);
    af_list_linear(l, i, AF_GROUP_ALTUP_PREDICT, AF_SLOT_ALTUP_PREDICT, A * A, A, -1);
    af_list_linear(l, i, AF_GROUP_ALTUP_CORRECT, AF_SLOT_ALTUP_CORRECT, A, A, -1);
    af_list_tensor(l, AF_SLOT_ALTUP_SCALE, i, 1, D, 1, 1);
}

void af_list_layer_input(af_lister *l, int i)
{
    const int64_t P = l->s->per_layer_input, D = l->s->width;
    if (P == 0)
        return;
    af_list_linear(l, i, AF_GROUP_PER_LAYER_GATE, AF_SLOT_PER_LAYER_GATE, P, D, -1);
    af_list_linear(l, i, AF_GROUP_PER_LAYER_PROJ, AF_SLOT_PER_LAYER_PROJ, D, P, -1);
    af_list_norm(l, AF_SLOT_PER_LAYER_NORM, -1, i);
}
