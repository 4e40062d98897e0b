/* block_experts.c - a mixture of experts: router, experts, and the expert every token sees. */
#include "model/builder/blocks.h"
#include "ops/moe/router_loss.h"

/* sigmoid(gate x) * shared(x), or shared(x) where it has no gate. */
static af_tensor *shared_expert(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    af_tensor *up = af_project(f, layer, AF_GROUP_SHARED_GATE_UP, h);
    up = f->s->arch->plain_mlp ? af_activate(f, layer, up) : af_gated_unit(f, up);
    af_tensor *y = af_project(f, layer, AF_GROUP_SHARED_DOWN, up);
    if (!af_layer_leaf(f, layer, AF_SLOT_SHARED_ROUTER))
        return y;
    af_tensor *gate = af_project(f, layer, AF_GROUP_SHARED_ROUTER, h);
    return af_mul(g, y, af_sigmoid(g, gate));
}

/* Times the factor of each expert that was chosen. One column of choices at a time: only those keep
 * to the live rows. */
static af_tensor *scale_weights(const af_forward *f, int layer, af_tensor *w, af_tensor *index)
{
    af_graph *g = f->g;
    enum { AT_ONCE = 16 };
    af_tensor *scale = af_layer_leaf(f, layer, AF_SLOT_EXPERT_SCALE), *by = NULL;
    if (!scale || af_graph_status(g, NULL) != AF_OK)
        return w;
    const int64_t N = af_tensor_dim(w, 0), k = f->s->experts_used;
    af_tensor *table = af_reshape(g, scale, 2, (int64_t[]){f->s->experts, 1});
    for (int64_t from = 0; from < k; from += AT_ONCE - 1) {
        af_tensor *column[AT_ONCE];
        int n = 0;
        if (by)
            column[n++] = by;
        for (int64_t j = from; j < AF_MIN(from + AT_ONCE - 1, k); j++) {
            af_tensor *ids = af_reshape(g, af_slice(g, index, 1, j, 1), 1, &N);
            column[n++] = af_embedding(g, ids, table, af_tensor_dtype(w));
        }
        by = n > 1 ? af_concat(g, column, n, 1) : column[0];
    }
    return af_mul(g, w, by);
}

af_tensor *af_route_tokens(const af_forward *f, int layer, af_group group, af_tensor *x,
                           af_tensor **index)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    const af_router_keys *k = &s->router;
    af_tensor *logits = af_project(f, layer, group, x);
    if (k->softcap > 0)
        logits = af_softcap(g, logits, k->softcap);
    af_tensor *choice = af_layer_leaf(f, layer, AF_SLOT_ROUTER_CHOICE);
    if (choice && s->arch->image_experts)
        choice = af_slice(g, choice, 0, 0, 1);
    if (choice && s->arch->choice_row)
        choice = af_reshape(g, choice, 1, (int64_t[]){s->experts});
    const af_route_opts o = {.used = s->experts_used,
                             .score = k->near      ? AF_ROUTE_NEAR
                                      : k->sigmoid ? AF_ROUTE_SIGMOID
                                                   : AF_ROUTE_SOFTMAX,
                             .bias = choice ? af_as_type(g, choice, AF_DTYPE_F32) : NULL,
                             .by_logit = k->by_logit,
                             .norm = s->norm_topk,
                             .eps = k->eps,
                             .scale = k->scale,
                             .groups = (int)k->groups,
                             .groups_used = (int)k->groups_used,
                             .group_best = (int)k->group_best};
    af_tensor *w = af_moe_route(g, logits, &o, index);
    /* transformers counts routers of attention twice */
    for (int i = 0; f->o.router && i < (group == AF_GROUP_ATTN_ROUTER ? 2 : 1); i++)
        af_router_loss_add(f->o.router, g, logits, *index);
    return scale_weights(f, layer, w, *index);
}

af_expert_linear af_expert_linear_of(const af_forward *f, int layer, af_group group, int bias)
{
    const int i = f->s->layer[layer].module[group][0];
    af_expert_linear l = {.weight = f->l->tensor[f->s->module[i].weight],
                          .bias = bias < 0 ? NULL : af_layer_leaf(f, layer, (af_slot)bias)};
    if (f->adapter && f->adapter->module[i].rank) {
        l.a = f->l->module[i].a;
        l.b = f->l->module[i].b;
        if (f->s->module[i].copies > f->s->experts) { /* of experts that have no weights, too */
            l.a = af_slice(f->g, l.a, 0, 0, f->s->experts);
            l.b = af_slice(f->g, l.b, 0, 0, f->s->experts);
        }
        l.scale = f->adapter->module[i].scale;
    }
    return l;
}

/* sum_j expert(w[n][j] x[n]): the weights are factors of what goes in. */
static af_tensor *scaled_inputs(const af_forward *f, af_tensor *x, af_tensor *w, af_tensor *index,
                                const af_experts_opts *experts)
{
    af_graph *g = f->g;
    af_tensor *sum = NULL;
    if (af_graph_status(g, NULL) != AF_OK)
        return x;
    const int64_t one[2] = {af_tensor_dim(w, 0), 1};
    af_tensor *ones = af_graph_constant(g, af_tensor_dtype(w), 2, one, 1);
    for (int64_t j = 0; j < f->s->experts_used; j++) {
        af_tensor *by = f->s->experts_used == 1 ? w : af_slice(g, w, 1, j, 1);
        af_tensor *who = f->s->experts_used == 1 ? index : af_slice(g, index, 1, j, 1);
        by = af_mul(g, x, af_as_type(g, by, af_tensor_dtype(x)));
        af_tensor *y = af_moe_ffn(g, by, ones, who, experts);
        sum = sum ? af_add(g, sum, y) : y;
    }
    return sum;
}

af_tensor *af_routed_experts(const af_forward *f, int layer, af_tensor *router_x, af_tensor *x)
{
    af_tensor *index, *w = af_route_tokens(f, layer, AF_GROUP_ROUTER, router_x, &index);
    const af_experts_opts experts = {
        .gate_up =
            af_expert_linear_of(f, layer, AF_GROUP_EXPERTS_GATE_UP, AF_SLOT_EXPERTS_GATE_UP_BIAS),
        .down = af_expert_linear_of(f, layer, AF_GROUP_EXPERTS_DOWN, AF_SLOT_EXPERTS_DOWN_BIAS),
        .act = f->s->act,
        .plain = f->s->arch->plain_mlp,
        .relu2 = f->s->plain_act == AF_PLAIN_RELU2,
        .clamp = f->s->router.clamp,
        .identity = (int)f->s->router.identity,
    };
    return f->s->router.scale_input ? scaled_inputs(f, x, w, index, &experts)
                                    : af_moe_ffn(f->g, x, w, index, &experts);
}

af_tensor *af_block_experts(const af_forward *f, int layer, af_tensor *h)
{
    const bool latent = f->s->layer[layer].pieces[AF_GROUP_EXPERTS_IN] > 0;
    af_tensor *x = latent ? af_project(f, layer, AF_GROUP_EXPERTS_IN, h) : h;
    af_tensor *y = af_routed_experts(f, layer, h, x);
    if (latent)
        y = af_project(f, layer, AF_GROUP_EXPERTS_OUT, y);
    if (f->s->arch->attn_experts)
        y = af_add_vector(f, y, af_layer_leaf(f, layer, AF_SLOT_EXPERTS_SUM_BIAS));
    if (!f->s->layer[layer].pieces[AF_GROUP_SHARED_DOWN])
        return y;
    y = af_add(f->g, y, shared_expert(f, layer, h));
    return f->s->router.shared_mean ? af_scale(f->g, y, 0.5) : y;
}

af_tensor *af_block_shortcut(const af_forward *f, int layer, af_tensor *h)
{
    af_tensor *y = af_block_mlp_gated(f, layer, h);
    if (layer % 2)
        return af_add(f->g, y, f->kv[layer - 1]);
    f->kv[layer] = af_block_experts(f, layer, h);
    return y;
}
