/* block_heads.c - a mixture of attention heads (jetmoe).
 *
 * Each of a token's k experts makes K heads of queries, which see the keys and values of all
 * tokens, and an output; the outputs are added with the router's weights. One expert of every token
 * at a time: attention needs queries in the order of tokens. Heads are kv head by kv head, as
 * attention groups them: [K][k][E]. */
#include "model/builder/blocks.h"

af_tensor *af_add_vector(const af_forward *f, af_tensor *y, af_tensor *vector)
{
    return af_add(f->g, y, af_as_type(f->g, vector, af_tensor_dtype(y)));
}

static af_tensor *column(const af_forward *f, af_tensor *x, int j)
{
    return f->s->experts_used == 1 ? x : af_slice(f->g, x, 1, j, 1);
}

af_tensor *af_expert_queries(const af_forward *f, int layer, af_tensor *h, af_head_choice *c)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *q = NULL, *kv = af_project(f, layer, AF_GROUP_QKV, h);
    c->weights = af_route_tokens(f, layer, AF_GROUP_ATTN_ROUTER, h, &c->index);
    if (af_graph_status(g, NULL) != AF_OK)
        return h;
    const af_expert_linear in = af_expert_linear_of(f, layer, AF_GROUP_ATTN_EXPERTS_IN, -1);
    const int64_t N = af_tensor_dim(h, 0), one[2] = {N, 1}, K = ls->kv_heads, E = ls->head_dim;
    af_tensor *ones = af_graph_constant(g, af_tensor_dtype(c->weights), 2, one, 1);
    for (int j = 0; j < f->s->experts_used; j++) {
        af_tensor *own = af_moe_project(g, h, ones, column(f, c->index, j), &in);
        own = af_reshape(g, own, 3, (int64_t[]){N, K, E});
        q = q ? af_concat(g, (af_tensor *[]){q, own}, 2, 2) : own;
    }
    q = af_reshape(g, q, 2, (int64_t[]){N, K * f->s->experts_used * E});
    return af_concat(g, (af_tensor *[]){q, kv}, 2, 1);
}

af_tensor *af_expert_outputs(const af_forward *f, int layer, af_tensor *o, const af_head_choice *c)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *y = NULL;
    if (af_graph_status(g, NULL) != AF_OK)
        return o;
    const af_expert_linear out = af_expert_linear_of(f, layer, AF_GROUP_ATTN_EXPERTS_OUT, -1);
    const int64_t N = af_tensor_dim(o, 0), K = ls->kv_heads, E = ls->head_dim;
    o = af_reshape(g, o, 3, (int64_t[]){N, K, f->s->experts_used * E});
    for (int j = 0; j < f->s->experts_used; j++) {
        af_tensor *own = af_reshape(g, af_slice(g, o, 2, j * E, E), 2, (int64_t[]){N, K * E});
        own = af_moe_project(g, own, column(f, c->weights, j), column(f, c->index, j), &out);
        y = y ? af_add(g, y, own) : own;
    }
    return af_add_vector(f, y, af_layer_leaf(f, layer, AF_SLOT_ATTN_EXPERTS_BIAS));
}
