/* block_attention.c - softmax attention over keys and values, with a cache in generation. */
#include "model/arch/alibi.h"
#include "model/builder/blocks.h"

/* q|k|v [N][(H+2K)E] from what was projected: values may be the raw keys, and may be normed. */
static af_tensor *with_values(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    if (!f->s->arch->value_norm || ls->kv_from != layer || af_graph_status(g, NULL) != AF_OK)
        return x;
    const int64_t N = af_tensor_dim(x, 0), E = ls->head_dim, HE = ls->heads * E,
                  KE = ls->kv_heads * E, heads[3] = {N, ls->kv_heads, E};
    af_tensor *v = af_slice(g, x, 1, ls->k_is_v ? HE : HE + KE, KE);
    af_tensor *one = af_graph_constant(g, AF_DTYPE_F32, 1, &E, 1);
    v = af_rmsnorm(g, af_reshape(g, v, 3, heads), one, f->s->eps, false);
    af_tensor *parts[] = {af_slice(g, x, 1, 0, HE + KE), af_reshape(g, v, 2, (int64_t[]){N, KE})};
    return af_concat(g, parts, 2, 1);
}

af_tensor *af_pad_values(const af_forward *f, af_tensor *v, int64_t E)
{
    if (af_graph_status(f->g, NULL) != AF_OK || af_tensor_dim(v, 2) == E)
        return v;
    const int64_t rest[3] = {af_tensor_dim(v, 0), af_tensor_dim(v, 1), E - af_tensor_dim(v, 2)};
    af_tensor *zeros = af_graph_constant(f->g, af_tensor_dtype(v), 3, rest, 0);
    return af_concat(f->g, (af_tensor *[]){v, zeros}, 2, 2);
}

af_tensor *af_cut_values(const af_forward *f, int layer, af_tensor *o)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    const int64_t V = f->s->latent.v_dim, E = ls->head_dim, H = ls->heads;
    if (!V || V == E || af_graph_status(f->g, NULL) != AF_OK)
        return o;
    const int64_t N = af_tensor_dim(o, 0);
    o = af_slice(f->g, af_reshape(f->g, o, 3, (int64_t[]){N, H, E}), 2, 0, V);
    return af_reshape(f->g, o, 2, (int64_t[]){N, H * V});
}

/* q|k|v [N][(H+2K)E] from values of their own size, which are scaled. */
static af_tensor *wide_values(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    const int64_t V = f->s->latent.v_dim, E = ls->head_dim, K = ls->kv_heads,
                  QK = (ls->heads + K) * E;
    if (!V || af_graph_status(g, NULL) != AF_OK)
        return x;
    const int64_t N = af_tensor_dim(x, 0);
    af_tensor *v = af_slice(g, x, 1, QK, K * V);
    if (f->s->value_scale != 1)
        v = af_scale(g, v, f->s->value_scale);
    v = af_pad_values(f, af_reshape(g, v, 3, (int64_t[]){N, K, V}), E);
    af_tensor *parts[] = {af_slice(g, x, 1, 0, QK), af_reshape(g, v, 2, (int64_t[]){N, K * E})};
    return af_concat(g, parts, 2, 1);
}

/* q|k|v of rows that have, for each kv head or group of heads, queries, keys and values. */
static af_tensor *ungroup(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    const int own = f->s->arch->qkv_groups;
    const int64_t G = own ? own : ls->kv_heads, HE = (int64_t)ls->heads * ls->head_dim,
                  KE = (int64_t)ls->kv_heads * ls->head_dim, q = HE / G, k = KE / G;
    if (!f->s->arch->qkv_grouped || G == 1 || af_graph_status(g, NULL) != AF_OK)
        return x;
    const int64_t N = af_tensor_dim(x, 0), queries[2] = {N, HE}, keys[2] = {N, KE};
    x = af_reshape(g, x, 3, (int64_t[]){N, G, q + 2 * k});
    af_tensor *first = af_reshape(g, af_slice(g, x, 2, q, k), 2, keys);
    af_tensor *second = af_reshape(g, af_slice(g, x, 2, q + k, k), 2, keys);
    af_tensor *parts[] = {af_reshape(g, af_slice(g, x, 2, 0, q), 2, queries), own ? second : first,
                          own ? first : second};
    return af_concat(g, parts, 3, 1);
}

/* Queries of this layer, keys and values of the one they are shared with. */
static af_tensor *with_shared(const af_forward *f, int layer, af_tensor *qkv)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    const int64_t E = ls->head_dim, HE = ls->heads * E, KE = ls->kv_heads * E;
    if (ls->kv_from != layer)
        return af_concat(g, (af_tensor *[]){qkv, f->kv[ls->kv_from]}, 2, 1);
    if (f->s->layer[f->s->layers - 1].kv_from != f->s->layers - 1)
        f->kv[layer] = af_slice(g, qkv, 1, HE, 2 * KE);
    return qkv;
}

/* Columns [from, from + H * E) of x under a LayerNorm per head: w [H][E], or w [E] and b [E] for
 * all heads. */
static af_tensor *head_norm(const af_forward *f, af_tensor *x, af_tensor *w, af_tensor *b,
                            int64_t H, int64_t from)
{
    af_graph *g = f->g;
    const bool own = f->s->arch->qk_norm_heads;
    const int64_t N = af_tensor_dim(x, 0), E = af_tensor_dim(w, own ? 1 : 0);
    const af_dtype t = af_tensor_dtype(w);
    af_tensor *y = af_reshape(g, af_slice(g, x, 1, from, H * E), 3, (int64_t[]){N, H, E});
    y = af_layernorm(g, y, own ? af_graph_constant(g, t, 1, &E, 1) : w,
                     own ? af_graph_constant(g, t, 1, &E, 0) : b, f->s->eps);
    if (own)
        y = af_mul(g, y, af_as_type(g, w, af_tensor_dtype(y)));
    return af_reshape(g, y, 2, (int64_t[]){N, H * E});
}

static bool layer_norms(const af_arch *a) { return a->qk_norm_heads || a->qk_norm_layer; }

static af_tensor *with_head_norms(const af_forward *f, int layer, af_tensor *qkv)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *q = af_layer_leaf(f, layer, AF_SLOT_Q_NORM);
    if (!layer_norms(f->s->arch) || !q || af_graph_status(g, NULL) != AF_OK)
        return qkv;
    const int64_t HE = (int64_t)ls->heads * ls->head_dim, KE = (int64_t)ls->kv_heads * ls->head_dim;
    af_tensor *parts[] = {
        head_norm(f, qkv, q, af_layer_leaf(f, layer, AF_SLOT_Q_NORM_BIAS), ls->heads, 0),
        head_norm(f, qkv, af_layer_leaf(f, layer, AF_SLOT_K_NORM),
                  af_layer_leaf(f, layer, AF_SLOT_K_NORM_BIAS), ls->kv_heads, HE),
        af_slice(g, qkv, 1, HE + KE, KE),
    };
    return af_concat(g, parts, 3, 1);
}

/* Norms of queries and keys, and their rotation. */
static af_tensor *rotate(const af_forward *f, int layer, af_tensor *qkv)
{
    const af_model_spec *s = f->s;
    const af_layer_spec *ls = &s->layer[layer];
    const af_rope_set *set = ls->rope < 0 ? NULL : &s->rope[ls->rope];
    const bool bare = s->qk_norm_still ? set != NULL : s->arch->qk_norm_bare;
    const double beta = set && s->arch->query_scale_still ? 0 : s->query_scale;
    af_tensor *q_norm = layer_norms(s->arch) ? NULL
                        : bare               ? af_bare_norm(f, ls->head_dim)
                                             : af_layer_leaf(f, layer, AF_SLOT_Q_NORM);
    qkv = with_head_norms(f, layer, qkv);
    if (!set && !q_norm && !(beta > 0 && s->arch->query_scale_still))
        return qkv;
    const bool shared = ls->kv_from != layer; /* no keys of its own */
    af_rope_opts r = {.heads = ls->heads,
                      .kv_heads = shared ? 0 : ls->kv_heads,
                      .head_dim = ls->head_dim,
                      .rotary_dim = set ? set->rotary_dim : s->rope[0].rotary_dim,
                      .scale = set ? af_rope_scale(&set->config) : 1,
                      .q_norm = q_norm,
                      .k_norm = shared || !q_norm || bare ? q_norm
                                                          : af_layer_leaf(f, layer, AF_SLOT_K_NORM),
                      .norm_eps = s->eps,
                      .norm_plus_one = s->arch->norm_plus_one && !bare,
                      .pairs = s->rope_pairs,
                      .query_beta = beta,
                      .query_length = s->query_scale_from,
                      .query_from = s->query_scale_offset};
    if (q_norm && s->qkv_clip > 0) { /* between norm and rotation */
        af_rope_opts norm = r;
        norm.query_beta = 0;
        qkv = af_clip(f->g, af_rope(f->g, qkv, f->in->positions, NULL, &norm), s->qkv_clip);
        r.q_norm = r.k_norm = NULL;
        if (!set)
            return qkv;
    } else if (set && q_norm && s->arch->qk_norm_after) {
        af_rope_opts turn = r;
        turn.q_norm = turn.k_norm = NULL;
        qkv = af_rope(f->g, qkv, f->in->positions, f->l->inv_freq[ls->rope], &turn);
        r.query_beta = 0;
        set = NULL;
    }
    return af_rope(f->g, qkv, f->in->positions, set ? f->l->inv_freq[ls->rope] : NULL, &r);
}

/* The gates [N][H*E] out of a projection whose heads are followed by theirs; *qkv loses them. */
static af_tensor *take_gates(const af_forward *f, int layer, af_tensor **qkv)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    if (af_graph_status(g, NULL) != AF_OK)
        return *qkv;
    const int64_t H = ls->heads, E = ls->head_dim, N = af_tensor_dim(*qkv, 0),
                  rest = af_tensor_dim(*qkv, 1) - 2 * H * E, flat[2] = {N, H * E};
    af_tensor *q = af_reshape(g, af_slice(g, *qkv, 1, 0, 2 * H * E), 3, (int64_t[]){N, H, 2 * E});
    af_tensor *parts[] = {af_reshape(g, af_slice(g, q, 2, 0, E), 2, flat),
                          af_slice(g, *qkv, 1, 2 * H * E, rest)};
    *qkv = af_concat(g, parts, 2, 1);
    return af_reshape(g, af_slice(g, q, 2, E, E), 2, flat);
}

/* Attention without a cache: of rows as they are, or of copies where answers share a prompt. */
static af_tensor *attend(const af_forward *f, af_tensor *qkv, af_tensor *bounds,
                         const af_attention_opts *o)
{
    const af_batch_inputs *in = f->in;
    if (!in->spread)
        return af_attention(f->g, qkv, bounds, o);
    af_tensor *rows = af_row_pick(f->g, qkv, in->spread, in->gather);
    return af_row_pick(f->g, af_attention(f->g, rows, bounds, o), in->taken, in->given);
}

af_tensor *af_chunk_bounds(const af_forward *f)
{
    const af_tensor *rows = f->in->spread ? f->in->spread : f->in->ids;
    for (int i = 0; i < f->s->layers && !f->o.cache; i++)
        if (f->s->layer[i].chunk && f->s->layer[i].chunk < af_tensor_dim(rows, 0))
            return af_bounds_cut(f->g, f->in->bounds, f->s->layer[i].chunk, af_tensor_dim(rows, 0));
    return f->in->bounds;
}

af_tensor *af_attn_gate(const af_forward *f, int layer, af_tensor *o, af_tensor *gate)
{
    af_graph *g = f->g;
    if (af_graph_status(g, NULL) != AF_OK)
        return o;
    const int64_t N = af_tensor_dim(o, 0), n = af_tensor_dim(gate, 1), H = f->s->layer[layer].heads,
                  E = af_tensor_dim(o, 1) / H;
    if (f->s->arch->attn_gate_soft)
        gate =
            af_as_type(g, af_softplus(g, gate, af_graph_constant(g, AF_DTYPE_F32, 1, &n, 0), NULL),
                       af_tensor_dtype(o));
    else
        gate = af_sigmoid(g, gate);
    if (!f->s->attn_gate_heads)
        return af_mul(g, o, gate);
    o = af_mul(g, af_reshape(g, o, 3, (int64_t[]){N, H, E}),
               af_reshape(g, gate, 3, (int64_t[]){N, H, 1}));
    return af_reshape(g, o, 2, (int64_t[]){N, H * E});
}

/* The length of chunks where the cache is longer than one. */
static int cached_chunk(const af_forward *f, int layer)
{
    const int chunk = f->s->layer[layer].chunk;
    if (!f->o.cache || !chunk || af_graph_status(f->g, NULL) != AF_OK)
        return 0;
    const int64_t page = af_tensor_dim(f->o.cache[layer].kv, 1);
    const int64_t length = f->in->pages ? page * af_tensor_dim(f->in->pages, 1) : page;
    return length > chunk ? chunk : 0;
}

/* h [N][D] -> attention's output before the residual, [N][D] */
static af_tensor *record(const af_forward *f, int layer, af_tensor *h)
{
    const af_model_spec *s = f->s;
    const af_layer_spec *ls = &s->layer[layer];
    const bool experts = s->arch->attn_experts;
    af_head_choice chosen;
    af_tensor *qkv = experts ? af_expert_queries(f, layer, h, &chosen)
                             : ungroup(f, layer, af_project(f, layer, AF_GROUP_QKV, h));
    qkv = af_use_qkv(f, layer, h, qkv);
    if (s->qkv_clip > 0 && !s->arch->qk_norm && !s->arch->qk_norm_bare)
        qkv = af_clip(f->g, qkv, s->qkv_clip);
    af_tensor *gate = s->arch->attn_gate         ? take_gates(f, layer, &qkv)
                      : s->arch->attn_gate_apart ? af_project(f, layer, AF_GROUP_ATTN_GATE, h)
                                                 : NULL;
    qkv = wide_values(f, layer, with_values(f, layer, qkv));
    qkv = with_shared(f, layer, rotate(f, layer, qkv));
    qkv = af_differential_add(f, layer, af_alibi_add(f, qkv));
    const af_attention_opts a = {.heads = af_attention_passes(s) * ls->heads,
                                 .kv_heads = af_attention_passes(s) * ls->kv_heads,
                                 .head_dim = ls->head_dim + af_alibi_columns(s),
                                 .scale = s->attn_scale,
                                 .softcap = s->attn_softcap,
                                 .window = ls->window,
                                 .chunk = cached_chunk(f, layer),
                                 .causal = true,
                                 .sinks = af_layer_leaf(f, layer, AF_SLOT_SINKS),
                                 .pages = f->in->pages};
    af_tensor *o = f->o.cache ? af_attention_cached(f->g, qkv, f->o.cache[layer].kv, f->in->bounds,
                                                    f->in->start, &a)
                              : attend(f, qkv, ls->chunk ? f->chunks : f->in->bounds, &a);
    o = af_differential_cut(f, layer, af_cut_values(f, layer, af_alibi_cut(f, o)));
    if (gate)
        o = af_attn_gate(f, layer, o, gate);
    if (s->arch->sub_norms)
        o = af_rmsnorm(f->g, o, af_layer_leaf(f, layer, AF_SLOT_ATTN_SUB_NORM), s->eps, false);
    return experts ? af_expert_outputs(f, layer, o, &chosen) : af_project(f, layer, AF_GROUP_O, o);
}

/* Keys, then values, of each position. */
static void caches(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                   af_layer_cache *out)
{
    const af_layer_spec *ls = &l->spec->layer[layer];
    const int64_t E = ls->head_dim + af_alibi_columns(l->spec);
    const int64_t dim[3] = {z->pages, z->page, 2 * af_attention_passes(l->spec) * ls->kv_heads * E};
    char name[64];
    snprintf(name, sizeof name, "cache.%d", layer);
    out->kv = af_graph_state(l->graph, name, l->compute, 3, dim);
}

const af_mixer_block af_block_attention = {record, caches};
