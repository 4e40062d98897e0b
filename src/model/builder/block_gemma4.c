/* block_gemma4.c - experts next to an MLP, and inputs that each layer has of its own. */
#include "model/builder/blocks.h"

#include <math.h>

static af_tensor *norm(const af_forward *f, int layer, af_slot slot, af_tensor *x)
{
    return af_rmsnorm(f->g, x, af_layer_leaf(f, layer, slot), f->s->eps, false);
}

/* Both read the residual, each under its own norm; h is that of the MLP. */
af_tensor *af_block_mlp_and_experts(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    af_tensor *x = *f->residual;
    af_tensor *dense = norm(f, layer, AF_SLOT_POST_DENSE_NORM, af_block_mlp_gated(f, layer, h));
    af_tensor *router =
        af_scale(g, norm(f, layer, AF_SLOT_ROUTER_SCALE, x), 1 / sqrt((double)f->s->width));
    af_tensor *experts =
        af_routed_experts(f, layer, router, norm(f, layer, AF_SLOT_EXPERTS_NORM, x));
    return af_add(g, dense, norm(f, layer, AF_SLOT_POST_EXPERTS_NORM, experts));
}

/* (norm(W x / sqrt(D)) + table[ids] sqrt(P)) / sqrt(2) */
af_tensor *af_layer_inputs(const af_forward *f, af_tensor *x)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    const int64_t P = s->per_layer_input, N = af_tensor_dim(x, 0), L = s->layers;
    if (P == 0)
        return NULL;
    af_tensor *e =
        af_embedding(g, f->in->ids, af_outer_leaf(f->l, AF_SLOT_PER_LAYER_EMBED), f->l->compute);
    if (s->padding_row >= 0)
        af_embedding_frozen_row(g, e, s->padding_row);
    af_tensor *c =
        af_scale(g, af_project(f, 0, AF_GROUP_PER_LAYER_MODEL, x), 1 / sqrt((double)s->width));
    c = af_reshape(g, c, 3, (int64_t[]){N, L, P});
    c = af_rmsnorm(g, c, af_outer_leaf(f->l, AF_SLOT_PER_LAYER_MODEL_NORM), s->eps, false);
    c = af_reshape(g, c, 2, (int64_t[]){N, L * P});
    return af_scale(g, af_add(g, c, af_scale(g, e, sqrt((double)P))), 1 / sqrt(2.0));
}

af_tensor *af_layer_end(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    af_tensor *scale = af_layer_leaf(f, layer, AF_SLOT_LAYER_SCALE);
    const int64_t P = f->s->per_layer_input;
    if (f->per_layer) {
        af_tensor *p = af_slice(g, f->per_layer, 1, layer * P, P);
        af_tensor *y = af_gelu_tanh(g, af_project(f, layer, AF_GROUP_PER_LAYER_GATE, x));
        y = af_project(f, layer, AF_GROUP_PER_LAYER_PROJ, af_mul(g, y, p));
        x = af_add(g, x, norm(f, layer, AF_SLOT_PER_LAYER_NORM, y));
    }
    return scale ? af_mul(g, x, af_as_type(g, scale, af_tensor_dtype(x))) : x;
}
