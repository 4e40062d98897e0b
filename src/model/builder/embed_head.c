/* embed_head.c - from ids to hidden states, and from those to logits and the loss. */
#include "model/builder/blocks.h"

#include <math.h>

/* Apart from the streams of dropout in layers, as those in builder.c. */
static const uint64_t NOISE_STREAM = UINT64_C(0x6e6f697365);
static const uint64_t HEAD_STREAM = UINT64_C(0x68656164);

/* An adapter outside the layers as two plain matrices: A [R][in], B [out][R]. NULL when there is
 * none. */
static af_tensor *outer_adapter(const af_model_leaves *l, int module, af_tensor **b)
{
    const af_adapter_leaf *al = &l->module[module];
    if (!al->a)
        return NULL;
    const int64_t dim[2] = {l->spec->module[module].out, l->adapter->module[module].rank};
    *b = af_as_type(l->graph, af_reshape(l->graph, al->b, 2, dim), l->compute);
    return af_as_type(l->graph, al->a, l->compute);
}

/* The trained rows of the embedding or the head; of a tied model the same. */
static af_tensor *token_rows(const af_model_leaves *l, int tensor)
{
    const int k = af_adapter_token_table(l->adapter, tensor);
    return k < 0 ? NULL : af_as_type(l->graph, l->tokens[k], l->compute);
}

/* ids [N] -> [N][D] by a table with columns for trained rows (adapter_tokens.c) */
static af_tensor *embed_wide(const af_forward *f, af_tensor *rows)
{
    af_graph *g = f->g;
    const int64_t D = f->s->embed_width, columns = af_tensor_dim(rows, 0);
    af_tensor *wide = af_embedding(g, f->in->ids, f->l->tensor[f->s->embed], f->l->compute);
    af_tensor *marks = af_slice(g, wide, 1, D, columns);
    return af_add(g, af_slice(g, wide, 1, 0, D), af_matmul(g, marks, rows, AF_MATMUL_NN));
}

/* x [N][D] and the vectors of its positions, learned or computed, where the model has them. */
static af_tensor *add_positions(const af_forward *f, af_tensor *x)
{
    af_graph *g = f->g;
    af_tensor *table = f->l->sinusoids;
    const int64_t from = table ? 0 : f->s->arch->positions_from;
    if (!table)
        table = af_outer_leaf(f->l, AF_SLOT_POSITIONS);
    if (!table || af_graph_status(g, NULL) != AF_OK)
        return x;
    if (from > 0)
        table = af_slice(g, table, 0, from, f->s->max_positions);
    return af_add(g, x, af_embedding(g, f->in->positions, table, f->l->compute));
}

/* NEFTune: x [N][P] and its noise. */
static af_tensor *add_noise(const af_forward *f, af_tensor *x)
{
    const double alpha = f->o.neftune;
    return alpha > 0 ? af_neftune_noise(f->g, x, f->in->bounds, alpha, NOISE_STREAM) : x;
}

/* ids [N] -> [N][D], by way of [N][P] where the embedding is narrower; an adapter adds s * B A[:,
 * id] */
af_tensor *af_embed(const af_forward *f)
{
    af_graph *g = f->g;
    const af_model_leaves *l = f->l;
    af_tensor *tokens = token_rows(l, f->s->embed);
    af_tensor *x = tokens ? embed_wide(f, tokens)
                          : af_embedding(g, f->in->ids, l->tensor[f->s->embed], l->compute);
    if (f->s->padding_row >= 0 && !tokens)
        af_embedding_frozen_row(g, x, f->s->padding_row);
    if (l->qat.embedding) /* groups lie within rows: the same as those of the whole table */
        x = af_qat_weight(l, x, l->compute);
    af_tensor *b, *a = f->adapter ? outer_adapter(l, f->s->embed_module, &b) : NULL;
    if (a) {
        af_tensor *rows =
            af_embedding(g, f->in->ids, af_transpose(g, a, (int[]){1, 0}), l->compute);
        if (f->s->padding_row >= 0)
            af_embedding_frozen_row(g, rows, f->s->padding_row);
        const double scale = f->adapter->module[f->s->embed_module].scale;
        x = af_add(g, x, af_scale(g, af_matmul(g, rows, b, AF_MATMUL_NT), scale));
    }
    if (!f->s->embed_scales)
        x = add_noise(f, x);
    if (f->s->embed_scale != 1)
        x = af_scale(g, x, f->s->embed_scale);
    if (f->s->arch->embed_norm_inside)
        x = af_rmsnorm(g, x, af_bare_norm(f, f->s->width), f->s->eps, false);
    if (f->s->embed_scales)
        x = add_noise(f, x);
    if (f->s->embed_width != f->s->width)
        x = af_project(f, 0, AF_GROUP_PROJECT_IN, x);
    return add_positions(f, x);
}

/* DoRA on the head: its rows times m / n. */
static af_tensor *scale_rows(const af_model_leaves *l, af_tensor *wide)
{
    af_graph *g = l->graph;
    const int i = l->spec->head_module;
    const af_adapter_leaf *al = &l->module[i];
    const af_adapter_module *am = &l->adapter->module[i];
    const int64_t rows = l->spec->module[i].out;
    const af_linear_opts o = {.pieces = 1,
                              .weight = {l->tensor[l->spec->head]},
                              .a = al->a,
                              .b = al->b,
                              .parts = 1,
                              .part = {{.out_rows = rows, .rank = am->rank, .scale = am->scale}}};
    af_tensor *ratio = af_as_type(g, af_div(g, al->magnitude, af_dora_norm(g, &o)), l->compute);
    return af_mul(g, wide, af_reshape(g, ratio, 2, (int64_t[]){rows, 1}));
}

/* A bias is more columns of the head: [h | 1] times [W | b, 0..]^T, a multiple of 8 for GEMMs. */
static af_tensor *add_head_bias(const af_model_leaves *l, af_tensor *w, af_tensor **h)
{
    enum { COLUMNS = 8 };
    af_graph *g = l->graph;
    const int64_t V = l->spec->vocab, one[2] = {af_tensor_dim(*h, 0), COLUMNS};
    af_tensor *b = af_as_type(g, af_outer_leaf(l, AF_SLOT_HEAD_BIAS), l->compute);
    b = af_reshape(g, b, 2, (int64_t[]){V, 1});
    af_tensor *zero = af_graph_constant(g, l->compute, 2, (int64_t[]){V, COLUMNS - 1}, 0);
    af_tensor *ones = af_graph_constant(g, l->compute, 2, one, 1);
    *h = af_concat(g, (af_tensor *[]){*h, ones}, 2, 1);
    return af_concat(g, (af_tensor *[]){af_as_type(g, w, l->compute), b, zero}, 3, 1);
}

/* Rows of length 1: a norm whose weight is the length that it would give them. */
static af_tensor *unit_rows(const af_model_leaves *l, af_tensor *w)
{
    const double least = 1e-20; /* of the mean square: rows of zeros stay so */
    const int64_t D = af_tensor_dim(w, 1);
    af_tensor *one = af_graph_constant(l->graph, AF_DTYPE_F32, 1, &D, 1 / sqrt((double)D));
    return af_rmsnorm(l->graph, af_as_type(l->graph, w, l->compute), one, least, false);
}

/* The head as one matrix: with an adapter, [h | s A h'] times [W | B]^T is what it computes, h'
 * after dropout (DoRA's rows of W keep h, where PEFT takes some of h'); with trained rows, which a
 * tied model may have besides, W has their marks (adapter_tokens.c). */
static af_tensor *head(const af_model_leaves *l, const af_forward_opts *o, af_tensor **h)
{
    af_graph *g = l->graph;
    af_tensor *w = l->tensor[l->spec->head], *x = *h;
    const bool off = !l->adapter || (o && o->no_adapter);
    if (l->spec->head_normed && af_graph_status(g, NULL) == AF_OK)
        w = unit_rows(l, w);
    w = af_qat_weight(l, w, l->compute);
    *h = x = af_qat_input(l, x);
    af_tensor *tokens = token_rows(l, l->spec->head);
    if (tokens)
        *h = af_concat(g, (af_tensor *[]){x, af_matmul(g, x, tokens, AF_MATMUL_NT)}, 2, 1);
    if (af_outer_leaf(l, AF_SLOT_HEAD_BIAS))
        w = add_head_bias(l, w, h);
    af_tensor *b, *a = off ? NULL : outer_adapter(l, l->spec->head_module, &b);
    if (!a)
        return w;
    const double scale = l->adapter->module[l->spec->head_module].scale;
    if (l->dropout > 0)
        x = af_dropout(g, x, l->dropout, HEAD_STREAM);
    af_tensor *low = af_scale(g, af_matmul(g, x, a, AF_MATMUL_NT), scale);
    *h = af_concat(g, (af_tensor *[]){*h, low}, 2, 1);
    af_tensor *wide = af_concat(g, (af_tensor *[]){af_as_type(g, w, l->compute), b}, 2, 1);
    return l->module[l->spec->head_module].magnitude ? scale_rows(l, wide) : wide;
}

af_tensor *af_model_logits(af_model_leaves *l, af_tensor *h, const af_forward_opts *o)
{
    const af_model_spec *s = l->spec;
    const af_linear_opts w = {
        .pieces = 1, .weight = {head(l, o, &h)}, .few_rows = o && o->cache != NULL};
    af_tensor *y = af_linear(l->graph, h, &w);
    if (s->logit_scale != 1)
        y = af_scale(l->graph, y, s->logit_scale);
    return s->logit_softcap > 0 ? af_softcap(l->graph, y, s->logit_softcap) : y;
}

static af_tensor *head_loss(af_model_leaves *l, af_tensor *h, af_tensor *labels, af_head_opts o)
{
    o.softcap = l->spec->logit_softcap;
    o.logit_scale = l->spec->logit_scale;
    af_tensor *w = head(l, NULL, &h);
    return af_head_loss(l->graph, h, w, labels, &o);
}

af_tensor *af_model_loss(af_model_leaves *l, af_tensor *h, af_tensor *labels, af_tensor *scale,
                         double smoothing, af_tensor **rows)
{
    return head_loss(l, h, labels,
                     (af_head_opts){.scale = scale, .smoothing = smoothing, .rows = rows});
}

af_tensor *af_model_row_losses(af_model_leaves *l, af_tensor *h, af_tensor *labels,
                               af_tensor *row_weight, af_tensor **rows)
{
    return head_loss(l, h, labels,
                     (af_head_opts){.row_weight = row_weight, .stats = true, .rows = rows});
}

af_tensor *af_model_scores(af_model_leaves *l, af_tensor *h, af_tensor *weight, af_tensor **scores)
{
    *scores = af_as_type(l->graph, af_model_logits(l, h, NULL), AF_DTYPE_F32);
    return weight ? af_sum_all(l->graph, af_mul(l->graph, *scores, weight)) : NULL;
}
