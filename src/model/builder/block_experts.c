/* block_experts.c - a mixture of experts: router, experts, and the expert every token sees. */
#include "model/builder/blocks.h"
#include "ops/moe/router_loss.h"

/* sigmoid(gate x) * shared(x), or shared(x) where it has no gate. */
static af_tensor *shared_expert(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    af_tensor *gate_up = af_project(f, layer, AF_GROUP_SHARED_GATE_UP, h);
    af_tensor *y = af_project(f, layer, AF_GROUP_SHARED_DOWN, af_glu(g, gate_up, f->s->act));
    if (!af_layer_leaf(f, layer, AF_SLOT_SHARED_ROUTER))
        return y;
    af_tensor *gate = af_project(f, layer, AF_GROUP_SHARED_ROUTER, h);
    return af_mul(g, y, af_sigmoid(g, gate));
}

af_tensor *af_block_experts(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    af_tap(f, layer, AF_GROUP_GATE_UP, h);
    const af_linear_opts router = {.pieces = 1,
                                   .weight = {af_layer_leaf(f, layer, AF_SLOT_ROUTER)},
                                   .few_rows = f->o.cache != NULL};
    af_tensor *index, *logits = af_linear(g, h, &router);
    af_tensor *w = af_moe_route(g, logits, s->experts_used, s->norm_topk, &index);
    if (f->o.router)
        af_router_loss_add(f->o.router, g, logits, index);
    af_tensor *y = af_moe_ffn(g, h, w, index, af_layer_leaf(f, layer, AF_SLOT_EXPERTS_GATE_UP),
                              af_layer_leaf(f, layer, AF_SLOT_EXPERTS_DOWN), s->act);
    return s->layer[layer].pieces[AF_GROUP_SHARED_DOWN] ? af_add(g, y, shared_expert(f, layer, h))
                                                        : y;
}
