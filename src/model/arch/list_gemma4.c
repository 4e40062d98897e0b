/* list_gemma4.c - experts next to an MLP, and inputs that each layer has of its own. */
#include "model/arch/arch_list.h"

void af_list_mlp_beside(af_lister *l, int i)
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
    af_list_linear(l, 0, AF_GROUP_PER_LAYER_MODEL, AF_SLOT_PER_LAYER_MODEL_PROJ, (int64_t)wide,
                   s->width, -1);
    /* it belongs to no layer: the names say so */
    af_module_spec *m = &s->module[s->modules - 1];
    af_tensor_spec *t = &s->tensor[m->weight];
    m->layer = t->layer = -1;
    m->path = af_arena_printf(&s->arena, "%sper_layer_model_projection", s->inner);
    t->name = "model.per_layer_model_projection.weight";
    t->gguf = "per_layer_model_proj.weight";
    l->failed |= !m->path;
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
