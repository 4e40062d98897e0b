/* block_latent.c - multi-head latent attention: queries, and keys with values, come through narrow
 * projections; a part of each key is rotated and is the same for all heads.
 *
 * The attention op sees heads of [rotated | rest] (the order inside a head changes no score) and
 * values filled up with zeros to that width, which are cut off its output: exact, and every kernel
 * of attention serves. In generation the cache has keys and values of all heads. */
#include "model/builder/blocks.h"

/* Whatever rms_norm_eps says. */
static const double LATENT_EPS = 1e-6;

static af_tensor *heads_of(const af_forward *f, af_tensor *x, int64_t H)
{
    const int64_t N = af_tensor_dim(x, 0), W = af_tensor_dim(x, 1);
    return af_reshape(f->g, x, 3, (int64_t[]){N, H, W / H});
}

static af_tensor *queries(const af_forward *f, int layer, af_tensor *h)
{
    if (!f->s->latent.q_lora_rank)
        return af_project(f, layer, AF_GROUP_QKV, h);
    af_tensor *raw = af_project(f, layer, AF_GROUP_Q_A, h);
    af_tensor *a =
        af_rmsnorm(f->g, raw, af_layer_leaf(f, layer, AF_SLOT_Q_A_NORM), LATENT_EPS, false);
    if (f->s->latent.out_gate)
        a = af_concat(f->g, (af_tensor *[]){a, raw}, 2, 1);
    return af_project(f, layer, AF_GROUP_Q_B, a);
}

/* [N][H*E] for q, k and v one after another; *gate [N][H*V]: of the result, or NULL. */
static af_tensor *qkv_of(const af_forward *f, int layer, af_tensor *h, af_tensor **gate)
{
    af_graph *g = f->g;
    const af_latent_keys *k = &f->s->latent;
    const int64_t N = af_tensor_dim(h, 0), H = f->s->layer[layer].heads, R = k->kv_lora_rank,
                  nope = k->qk_nope_dim, rope = k->qk_rope_dim, E = nope + rope;
    af_tensor *q = heads_of(f, queries(f, layer, h), H);
    *gate = k->out_gate
                ? af_reshape(g, af_slice(g, q, 2, E, k->v_dim), 2, (int64_t[]){N, H * k->v_dim})
                : NULL;
    af_tensor *down = af_project(f, layer, AF_GROUP_KV_A, h);
    af_tensor *latent = af_rmsnorm(g, af_slice(g, down, 1, 0, R),
                                   af_layer_leaf(f, layer, AF_SLOT_KV_A_NORM), LATENT_EPS, false);
    if (k->kv_scale > 0)
        latent = af_scale(g, latent, k->kv_scale);
    af_tensor *kv = heads_of(f, af_project(f, layer, AF_GROUP_KV_B, latent), H);
    af_tensor *shared = af_reshape(g, af_slice(g, down, 1, R, rope), 3, (int64_t[]){N, 1, rope});
    af_tensor *stretch = af_graph_constant(g, af_tensor_dtype(h), 3, (int64_t[]){1, H, 1}, 0);
    af_tensor *q_parts[] = {af_slice(g, q, 2, nope, rope), af_slice(g, q, 2, 0, nope)};
    af_tensor *k_parts[] = {af_add(g, shared, stretch), af_slice(g, kv, 2, 0, nope)};
    af_tensor *v = af_pad_values(f, af_slice(g, kv, 2, nope, k->v_dim), E);
    af_tensor *all[] = {af_concat(g, q_parts, 2, 2), af_concat(g, k_parts, 2, 2), v};
    return af_reshape(g, af_concat(g, all, 3, 1), 2, (int64_t[]){N, 3 * H * E});
}

static af_tensor *record(const af_forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    const af_layer_spec *ls = &s->layer[layer];
    const int E = ls->head_dim;
    const af_rope_opts r = {.heads = ls->heads,
                            .kv_heads = ls->heads,
                            .head_dim = E,
                            .rotary_dim = s->rope[0].rotary_dim,
                            .scale = af_rope_scale(&s->rope[0].config),
                            .pairs = s->rope_pairs,
                            .query_beta = s->query_scale,
                            .query_length = s->query_scale_from};
    af_tensor *gate, *qkv = qkv_of(f, layer, h, &gate);
    if (ls->rope >= 0)
        qkv = af_rope(g, qkv, f->in->positions, f->l->inv_freq[0], &r);
    const af_attention_opts a = {.heads = ls->heads,
                                 .kv_heads = ls->heads,
                                 .head_dim = E,
                                 .scale = s->attn_scale,
                                 .causal = true,
                                 .pages = f->in->pages};
    af_tensor *o = f->o.cache ? af_attention_cached(g, qkv, f->o.cache[layer].kv, f->in->bounds,
                                                    f->in->start, &a)
                              : af_attention(g, qkv, f->in->bounds, &a);
    o = af_cut_values(f, layer, o);
    if (s->arch->attn_gate_apart)
        gate = af_project(f, layer, AF_GROUP_ATTN_GATE, h);
    if (gate)
        o = af_attn_gate(f, layer, o, gate);
    return af_project(f, layer, AF_GROUP_O, o);
}

static void caches(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                   af_layer_cache *out)
{
    const af_latent_keys *k = &l->spec->latent;
    const int64_t wide = 2 * l->spec->layer[layer].heads * (k->qk_nope_dim + k->qk_rope_dim);
    char name[64];
    snprintf(name, sizeof name, "cache.%d", layer);
    out->kv = af_graph_state(l->graph, name, l->compute, 3, (int64_t[]){z->pages, z->page, wide});
}

const af_mixer_block af_block_latent = {record, caches};
