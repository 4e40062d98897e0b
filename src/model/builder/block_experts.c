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

/* x [N][D] -> the logits' weights [N][k] and the experts they are for. */
static af_tensor *route(const af_forward *f, int layer, af_tensor *x, af_tensor **index)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    const af_router_keys *k = &s->router;
    const af_linear_opts linear = {.pieces = 1,
                                   .weight = {af_layer_leaf(f, layer, AF_SLOT_ROUTER)},
                                   .bias = {af_layer_leaf(f, layer, AF_SLOT_ROUTER_BIAS)},
                                   .few_rows = f->o.cache != NULL};
    af_tensor *logits = af_linear(g, x, &linear);
    af_tensor *choice = af_layer_leaf(f, layer, AF_SLOT_ROUTER_CHOICE);
    const af_route_opts o = {.used = s->experts_used,
                             .score = k->sigmoid ? AF_ROUTE_SIGMOID : AF_ROUTE_SOFTMAX,
                             .bias = choice ? af_as_type(g, choice, AF_DTYPE_F32) : NULL,
                             .norm = s->norm_topk,
                             .eps = k->eps,
                             .scale = k->scale,
                             .groups = (int)k->groups,
                             .groups_used = (int)k->groups_used,
                             .group_best = (int)k->group_best};
    af_tensor *w = af_moe_route(g, logits, &o, index);
    if (f->o.router)
        af_router_loss_add(f->o.router, g, logits, *index);
    af_tensor *scale = af_layer_leaf(f, layer, AF_SLOT_EXPERT_SCALE);
    if (!scale || af_graph_status(g, NULL) != AF_OK)
        return w;
    const int64_t rows = af_tensor_dim(x, 0) * s->experts_used, X = s->experts;
    af_tensor *table = af_reshape(g, scale, 2, (int64_t[]){X, 1});
    af_tensor *by = af_embedding(g, af_reshape(g, *index, 1, &rows), table, AF_DTYPE_F32);
    return af_mul(g, w, af_reshape(g, by, 2, (int64_t[]){af_tensor_dim(x, 0), s->experts_used}));
}

/* The parameter of a group with its bias and its adapter. */
static af_expert_linear expert_linear(const af_forward *f, int layer, af_group group, af_slot bias)
{
    const int i = f->s->layer[layer].module[group][0];
    af_expert_linear l = {.weight = f->l->tensor[f->s->module[i].weight],
                          .bias = af_layer_leaf(f, layer, bias)};
    if (f->adapter && f->adapter->module[i].rank) {
        l.a = f->l->module[i].a;
        l.b = f->l->module[i].b;
        l.scale = f->adapter->module[i].scale;
    }
    return l;
}

af_tensor *af_routed_experts(const af_forward *f, int layer, af_tensor *router_x, af_tensor *x)
{
    af_tensor *index, *w = route(f, layer, router_x, &index);
    const af_experts_opts experts = {
        .gate_up = expert_linear(f, layer, AF_GROUP_EXPERTS_GATE_UP, AF_SLOT_EXPERTS_GATE_UP_BIAS),
        .down = expert_linear(f, layer, AF_GROUP_EXPERTS_DOWN, AF_SLOT_EXPERTS_DOWN_BIAS),
        .act = f->s->act,
        .clamp = f->s->router.clamp,
    };
    return af_moe_ffn(f->g, x, w, index, &experts);
}

af_tensor *af_block_experts(const af_forward *f, int layer, af_tensor *h)
{
    af_tap(f, layer, AF_GROUP_GATE_UP, h);
    af_tensor *y = af_routed_experts(f, layer, h, h);
    return f->s->layer[layer].pieces[AF_GROUP_SHARED_DOWN]
               ? af_add(f->g, y, shared_expert(f, layer, h))
               : y;
}
