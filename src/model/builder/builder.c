/* builder.c - a decoder: embedding, layers in their residual order, final norm; see builder.h. The
 * blocks are in the files next to this one. */
#include "model/builder/blocks.h"

/* Apart from the streams of dropout, which are small numbers. */
static const uint64_t EMBED_STREAM = UINT64_C(0x656d626564);
static const uint64_t RESIDUAL_STREAM = UINT64_C(0x726573) << 32;

static const af_mixer_block *const mixers[AF_MIXER_COUNT] = {
    [AF_MIXER_ATTENTION] = &af_block_attention, [AF_MIXER_LATENT] = &af_block_latent,
    [AF_MIXER_DELTA_NET] = &af_block_delta_net, [AF_MIXER_MAMBA1] = &af_block_mamba1,
    [AF_MIXER_MAMBA2] = &af_block_mamba2,       [AF_MIXER_SHORT_CONV] = &af_block_short_conv,
    [AF_MIXER_HYBRID] = &af_block_hybrid,       [AF_MIXER_SHARED] = &af_block_shared,
    [AF_MIXER_LIGHTNING] = &af_block_lightning,
};

static af_tensor *(*const mlps[AF_MLP_COUNT])(const af_forward *f, int layer, af_tensor *h) = {
    [AF_MLP_GATED] = af_block_mlp_gated,   [AF_MLP_PLAIN] = af_block_mlp_plain,
    [AF_MLP_EXPERTS] = af_block_experts,   [AF_MLP_AND_EXPERTS] = af_block_mlp_and_experts,
    [AF_MLP_SHORTCUT] = af_block_shortcut,
};

af_tensor *af_layer_leaf(const af_forward *f, int layer, af_slot slot)
{
    const int i = f->s->layer[layer].tensor[slot];
    return i < 0 ? NULL : f->l->tensor[i];
}

af_tensor *af_outer_leaf(const af_model_leaves *l, af_slot slot)
{
    const int i = l->spec->outer[slot];
    return i < 0 ? NULL : l->tensor[i];
}

/* ---- norms and residuals ---- */

/* A norm's weight and the bias of a LayerNorm; weight NULL = no norm. */
typedef struct norm_leaf {
    af_tensor *w, *b;
    double eps;
    bool plus_one; /* the weight is stored as w, used as 1 + w */
} norm_leaf;

/* Ones [n] for norms that have no weights. */
af_tensor *af_bare_norm(const af_forward *f, int64_t n)
{
    return af_graph_constant(f->g, AF_DTYPE_F32, 1, &n, 1);
}

static norm_leaf norm_of(const af_forward *f, int layer, af_slot slot, af_slot bias)
{
    const af_arch *a = f->s->arch;
    if (a->norm_bare && a->pre_norm && (slot != AF_SLOT_MLP_NORM || !f->s->parallel))
        return (norm_leaf){.w = af_bare_norm(f, f->s->width), .eps = f->s->eps};
    return (norm_leaf){af_layer_leaf(f, layer, slot), af_layer_leaf(f, layer, bias), f->s->eps,
                       a->norm_plus_one};
}

static norm_leaf post_norm(const af_forward *f, int layer, af_slot slot)
{
    const double own = f->s->post_eps;
    return (norm_leaf){.w = af_layer_leaf(f, layer, slot),
                       .eps = own > 0 ? own : f->s->eps,
                       .plus_one = f->s->arch->norm_plus_one};
}

/* The family's norm of x; a LayerNorm without a bias has zeros. */
static af_tensor *block_norm(const af_forward *f, af_tensor *x, norm_leaf n)
{
    af_graph *g = f->g;
    if (!f->s->arch->layer_norm)
        return af_rmsnorm(g, x, n.w, n.eps, n.plus_one);
    const int64_t D = f->s->width;
    if (n.plus_one) { /* in f32: 1 + w has more digits than w */
        n.w = af_as_type(g, n.w, AF_DTYPE_F32);
        n.w = af_add(g, n.w, af_graph_constant(g, AF_DTYPE_F32, 1, &D, 1));
    }
    if (n.b)
        n.b = af_as_type(g, n.b, af_tensor_dtype(n.w));
    else
        n.b = af_graph_constant(g, af_tensor_dtype(n.w), 1, &D, 0);
    return af_layernorm(g, x, n.w, n.b, n.eps);
}

af_tensor *af_times(const af_forward *f, af_tensor *x, double factor)
{
    return factor == 1 ? x : af_scale(f->g, x, factor);
}

/* A factor of which 0 is none. */
static double or_one(double factor) { return factor > 0 ? factor : 1; }

static af_tensor *branch_dropout(const af_forward *f, af_tensor *y, int branch)
{
    const af_branch_dropout *d = &f->o.residual_dropout;
    const double p = branch % 2 ? d->mlp : d->attention;
    if (p <= 0)
        return y;
    const int mask = d->sum ? branch / 2 * 2 : branch;
    return af_dropout(f->g, y, p, RESIDUAL_STREAM + (uint64_t)mask);
}

/* What a block adds to the residual, the mixer of layer branch / 2 or its MLP: under dropout,
 * normed and scaled where the family does. */
static af_tensor *branch_end(const af_forward *f, af_tensor *y, norm_leaf post, int branch)
{
    y = branch_dropout(f, y, branch);
    if (post.w)
        y = block_norm(f, y, post);
    return af_times(f, y, f->s->residual_scale * or_one(f->s->layer[branch / 2].add[branch % 2]));
}

/* *x += y; the result is *x under the next norm, or *x itself where there is none. */
static af_tensor *close_residual(const af_forward *f, af_tensor *y, norm_leaf next, af_tensor **x)
{
    if (next.w && !f->s->arch->layer_norm)
        return af_rmsnorm_add(f->g, y, *x, next.w, next.eps, next.plus_one, x);
    *x = af_add(f->g, *x, y);
    return next.w ? block_norm(f, *x, next) : *x;
}

/* *x is a sum under its norm, and so is what it becomes. */
static af_tensor *layer_of_sums(const af_forward *f, int i, af_tensor **x)
{
    const af_layer_spec *ls = &f->s->layer[i];
    const norm_leaf first = norm_of(f, i, AF_SLOT_ATTN_NORM, AF_SLOT_ATTN_NORM_BIAS);
    const norm_leaf second = norm_of(f, i, AF_SLOT_MLP_NORM, AF_SLOT_MLP_NORM_BIAS);
    af_tensor *y = branch_end(f, mixers[ls->mixer]->record(f, i, *x), (norm_leaf){0}, 2 * i);
    *x = close_residual(f, y, first, x);
    y = branch_end(f, mlps[ls->mlp](f, i, *x), (norm_leaf){0}, 2 * i + 1);
    *x = close_residual(f, y, second, x);
    return *x;
}

/* h sigmoid(up silu(down h)), where the norm that gave h has a gate. */
static af_tensor *norm_gate(const af_forward *f, int i, af_group down, af_tensor *h)
{
    if (!f->s->layer[i].pieces[down])
        return h;
    af_tensor *low = af_silu(f->g, af_project(f, i, down, h));
    return af_mul(f->g, h, af_sigmoid(f->g, af_project(f, i, (af_group)(down + 1), low)));
}

/* h is *x under the layer's first norm; the result is that of the next layer. */
static af_tensor *layer(const af_forward *f, int i, af_tensor *h, norm_leaf next, af_tensor **x)
{
    const af_layer_spec *ls = &f->s->layer[i];
    if (f->s->norm_after)
        return layer_of_sums(f, i, x);
    if (ls->mixer == AF_MIXER_NONE)
        return close_residual(f, branch_end(f, mlps[ls->mlp](f, i, h), (norm_leaf){0}, 2 * i), next,
                              x);
    if (f->s->residual_normed)
        *x = af_times(f, h, or_one(ls->keep[0]));
    h = norm_gate(f, i, AF_GROUP_ATTN_NORM_DOWN, h);
    af_tensor *y = mixers[ls->mixer]->record(f, i, h);
    y = branch_end(f, y, post_norm(f, i, AF_SLOT_POST_ATTN_NORM), 2 * i);
    if (ls->mlp == AF_MLP_NONE)
        return close_residual(f, y, next, x);
    if (f->s->parallel) {
        const norm_leaf own = norm_of(f, i, AF_SLOT_MLP_NORM, AF_SLOT_MLP_NORM_BIAS);
        af_tensor *m = own.w ? block_norm(f, *x, own) : h;
        af_tensor *z = branch_end(f, mlps[ls->mlp](f, i, m), (norm_leaf){0}, 2 * i + 1);
        return close_residual(f, af_add(f->g, y, z), next, x);
    }
    h = close_residual(f, y, norm_of(f, i, AF_SLOT_MLP_NORM, AF_SLOT_MLP_NORM_BIAS), x);
    if (f->s->residual_normed)
        *x = af_times(f, h, or_one(ls->keep[1]));
    h = norm_gate(f, i, AF_GROUP_MLP_NORM_DOWN, h);
    y = branch_end(f, mlps[ls->mlp](f, i, h), post_norm(f, i, AF_SLOT_POST_MLP_NORM), 2 * i + 1);
    if (!f->per_layer && !f->s->arch->layer_scale)
        return close_residual(f, y, next, x);
    *x = af_layer_end(f, i, af_add(f->g, *x, y));
    return next.w ? block_norm(f, *x, next) : *x;
}

static norm_leaf outer_norm(const af_forward *f, af_slot slot, af_slot bias)
{
    if (f->s->arch->norm_bare)
        return (norm_leaf){.w = af_bare_norm(f, f->s->width), .eps = f->s->final_eps};
    return (norm_leaf){af_outer_leaf(f->l, slot), af_outer_leaf(f->l, bias), f->s->final_eps,
                       f->s->arch->norm_plus_one && !f->s->arch->final_norm_whole};
}

static norm_leaf first_norm(const af_forward *f, int i)
{
    if (i < f->s->layers ? f->s->norm_after : f->s->no_final_norm)
        return (norm_leaf){0};
    if (i < f->s->layers)
        return norm_of(f, i, af_first_norm_slot(f->s, i), AF_SLOT_ATTN_NORM_BIAS);
    return outer_norm(f, AF_SLOT_FINAL_NORM, AF_SLOT_FINAL_NORM_BIAS);
}

/* The same with several streams of residuals. */
static af_tensor *stream_layers(af_forward *f, af_tensor *x)
{
    af_streams s = af_streams_open(f, x);
    for (int i = 0; i < f->s->layers; i++) {
        const af_layer_spec *ls = &f->s->layer[i];
        af_graph_set_block(f->g, i);
        af_streams_layer(f, i, mixers[ls->mixer]->record, mlps[ls->mlp], &s);
    }
    af_graph_set_block(f->g, -1);
    const norm_leaf last = first_norm(f, f->s->layers);
    return block_norm(f, af_streams_close(f, &s), last);
}

af_tensor *af_model_forward(af_model_leaves *l, const af_batch_inputs *in, const af_forward_opts *o)
{
    const af_model_spec *s = l->spec;
    af_graph *g = l->graph;
    af_forward f = {.l = l, .s = s, .g = g, .in = in, .o = o ? *o : (af_forward_opts){0}};
    f.adapter = f.o.no_adapter ? NULL : l->adapter;
    f.kv = af_arena_take(&l->arena, (uint64_t)s->layers * sizeof(af_tensor *));

    af_graph_set_block(g, -1);
    af_tensor *x = af_embed(&f);
    if (f.o.embed_dropout > 0)
        x = af_dropout(g, x, f.o.embed_dropout, EMBED_STREAM);
    if (s->arch->embed_norm) {
        const norm_leaf own = outer_norm(&f, AF_SLOT_EMBED_NORM, AF_SLOT_EMBED_NORM_BIAS);
        x = block_norm(&f, x, own);
    }
    f.embedding = x;
    f.per_layer = af_layer_inputs(&f, x);
    f.chunks = af_chunk_bounds(&f);
    f.alibi = af_alibi_record(&f);
    if (s->altup.streams)
        return stream_layers(&f, x);
    f.residual = &x;
    af_graph_set_block(g, 0);
    const norm_leaf first = first_norm(&f, 0);
    af_tensor *h = first.w ? block_norm(&f, x, first) : x;
    for (int i = 0; i < s->layers; i++) {
        af_graph_set_block(g, i);
        h = layer(&f, i, h, first_norm(&f, i + 1), &x);
    }
    af_graph_set_block(g, -1);
    if (s->arch->head_dense)
        return block_norm(&f, af_activate(&f, 0, af_project(&f, 0, AF_GROUP_HEAD_DENSE, h)),
                          (norm_leaf){.w = af_outer_leaf(l, AF_SLOT_HEAD_NORM), .eps = s->eps});
    return s->embed_width != s->width ? af_project(&f, 0, AF_GROUP_PROJECT_OUT, h) : h;
}

af_batch_inputs af_batch_inputs_new(af_graph *g, int64_t rows, int64_t seqs)
{
    const int64_t bounds = seqs + 1 == rows ? seqs + 2 : seqs + 1;
    return (af_batch_inputs){
        .ids = af_graph_input(g, "ids", AF_DTYPE_I32, 1, &rows),
        .positions = af_graph_input(g, "positions", AF_DTYPE_I32, 1, &rows),
        .bounds = af_graph_input(g, "bounds", AF_DTYPE_I32, 1, &bounds),
    };
}

void af_batch_inputs_share(af_batch_inputs *in, af_graph *g, int64_t rows, int64_t attention_rows)
{
    const int64_t here[2] = {rows, 2}, there[2] = {attention_rows, 2};
    in->spread = af_graph_input(g, "spread", AF_DTYPE_I32, 2, there);
    in->gather = af_graph_input(g, "gather", AF_DTYPE_I32, 2, here);
    in->taken = af_graph_input(g, "taken", AF_DTYPE_I32, 2, here);
    in->given = af_graph_input(g, "given", AF_DTYPE_I32, 2, there);
}

af_status af_model_caches(af_model_leaves *l, af_layer_cache *cache, const af_cache_sizes *z,
                          af_error *err)
{
    const af_model_spec *s = l->spec;
    for (int i = 0; i < s->layers; i++) {
        const int from = s->layer[i].kv_from;
        if (s->layer[i].mixer == AF_MIXER_NONE)
            continue;
        if (from == i)
            mixers[s->layer[i].mixer]->caches(l, i, z, &cache[i]);
        else
            cache[i] = cache[from];
    }
    return af_graph_status(l->graph, err);
}
