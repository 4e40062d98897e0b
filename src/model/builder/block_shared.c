/* block_shared.c - Mamba-2 after a transformer that several layers share (zamba2):
 *   t = linear(mlp(norm(attention(norm([x, embedding])))));   y = mamba(norm(x + t))
 * Each use of the transformer adds low-rank parts of its own to its first linears. */
#include "model/builder/blocks.h"

af_tensor *af_use_qkv(const af_forward *f, int layer, af_tensor *h, af_tensor *qkv)
{
    af_graph *g = f->g;
    const int64_t R = f->s->state.use_rank;
    af_tensor *part[3];
    if (!f->s->layer[layer].pieces[AF_GROUP_USE_QKV_IN])
        return qkv;
    af_tensor *low = af_project(f, layer, AF_GROUP_USE_QKV_IN, h);
    for (int k = 0; k < 3; k++)
        part[k] =
            af_project(f, layer, (af_group)(AF_GROUP_USE_Q + k), af_slice(g, low, 1, k * R, R));
    return af_add(g, qkv, af_concat(g, part, 3, 1));
}

/* The transformer, without a residual of its own. */
static af_tensor *transformer(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    af_tensor *h = af_concat(g, (af_tensor *[]){x, f->embedding}, 2, 1);
    h = af_rmsnorm(g, h, af_layer_leaf(f, layer, AF_SLOT_SHARED_NORM), s->eps, false);
    h = af_block_attention.record(f, layer, h);
    h = af_rmsnorm(g, h, af_layer_leaf(f, layer, AF_SLOT_MLP_NORM), s->eps, false);
    af_tensor *low = af_project(f, layer, AF_GROUP_USE_GATE_UP_IN, h);
    af_tensor *wide = af_add(g, af_project(f, layer, AF_GROUP_GATE_UP, h),
                             af_project(f, layer, AF_GROUP_USE_GATE_UP, low));
    h = af_project(f, layer, AF_GROUP_DOWN, af_glu(g, wide, s->act));
    return af_project(f, layer, AF_GROUP_SHARED_LINEAR, h);
}

static af_tensor *record(const af_forward *f, int layer, af_tensor *x)
{
    x = af_add(f->g, x, transformer(f, layer, x));
    x = af_rmsnorm(f->g, x, af_layer_leaf(f, layer, AF_SLOT_MIXER_NORM), f->s->eps, false);
    return af_block_mamba2.record(f, layer, x);
}

static void caches(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                   af_layer_cache *out)
{
    af_block_hybrid.caches(l, layer, z, out);
}

const af_mixer_block af_block_shared = {record, caches};
