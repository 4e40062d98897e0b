/* list_experts.c - the tensors of a mixture of experts: router, experts, shared expert. */
#include "model/arch/arch_list.h"

void af_list_mlp_experts(af_lister *l, int i)
{
    const af_model_spec *s = l->s;
    const int64_t D = s->width, X = s->experts, F = s->expert_ffn, S = s->router.shared_ffn,
                  L = s->expert_width, all = X + s->router.identity;
    af_list_tensor(l, AF_SLOT_ROUTER, i, 2, all, D, 1);
    if (s->router.bias)
        af_list_tensor(l, AF_SLOT_ROUTER_BIAS, i, 1, X, 1, 1);
    if (s->router.choice_bias && s->arch->choice_row)
        l->s->tensor[af_list_tensor(l, AF_SLOT_ROUTER_CHOICE, i, 2, s->arch->image_experts ? 2 : 1,
                                    X, 1)]
            .buffer = true;
    else if (s->router.choice_bias)
        af_list_buffer(l, AF_SLOT_ROUTER_CHOICE, i, all);
    if (s->router.expert_scale)
        af_list_tensor(l, AF_SLOT_EXPERT_SCALE, i, 1, X, 1, 1);
    if (s->router.latent)
        af_list_linear(l, i, AF_GROUP_EXPERTS_IN, AF_SLOT_EXPERTS_IN, L, D, -1);
    if (s->arch->plain_mlp)
        af_list_experts(l, i, AF_GROUP_EXPERTS_GATE_UP, AF_SLOT_EXPERTS_UP, F, L);
    else
        af_list_experts(l, i, AF_GROUP_EXPERTS_GATE_UP, AF_SLOT_EXPERTS_GATE_UP, 2 * F, D);
    if (s->router.expert_bias)
        af_list_tensor(l, AF_SLOT_EXPERTS_GATE_UP_BIAS, i, 2, X, 2 * F, 1);
    af_list_experts(l, i, AF_GROUP_EXPERTS_DOWN, AF_SLOT_EXPERTS_DOWN, L, F);
    if (s->router.expert_bias)
        af_list_tensor(l, AF_SLOT_EXPERTS_DOWN_BIAS, i, 2, X, D, 1);
    if (s->arch->attn_experts)
        af_list_tensor(l, AF_SLOT_EXPERTS_SUM_BIAS, i, 1, D, 1, 1);
    if (s->router.latent)
        af_list_linear(l, i, AF_GROUP_EXPERTS_OUT, AF_SLOT_EXPERTS_OUT, D, L, -1);
    if (S > 0 && s->arch->plain_mlp)
        af_list_linear(l, i, AF_GROUP_SHARED_GATE_UP, AF_SLOT_SHARED_UP, S, D, -1);
    else if (S > 0 && s->arch->fused_gate_up)
        af_list_linear(l, i, AF_GROUP_SHARED_GATE_UP, AF_SLOT_SHARED_GATE_UP, 2 * S, D, -1);
    else if (S > 0) {
        af_list_linear(l, i, AF_GROUP_SHARED_GATE_UP, AF_SLOT_SHARED_GATE, S, D, -1);
        af_list_linear(l, i, AF_GROUP_SHARED_GATE_UP, AF_SLOT_SHARED_UP, S, D, -1);
    }
    if (S > 0)
        af_list_linear(l, i, AF_GROUP_SHARED_DOWN, AF_SLOT_SHARED_DOWN, D, S, -1);
    if (S > 0 && s->router.shared_gate)
        af_list_linear(l, i, AF_GROUP_SHARED_ROUTER, AF_SLOT_SHARED_ROUTER, 1, D, -1);
}

void af_list_mlp_shortcut(af_lister *l, int i)
{
    af_list_mlp_gated(l, i);
    if (i % 2 == 0)
        af_list_mlp_experts(l, i);
}
