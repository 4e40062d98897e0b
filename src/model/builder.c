/* builder.c - a decoder, one line per op; see builder.h. */
#include "model/builder.h"
#include "ops/moe/router_loss.h"

/* Apart from the streams of dropout, which are small numbers. */
static const uint64_t NOISE_STREAM = UINT64_C(0x6e6f697365);
static const uint64_t RESIDUAL_STREAM = UINT64_C(0x726573) << 32;

/* The context of one forward pass. */
typedef struct forward {
    af_model_leaves *l;
    const af_model_spec *s;
    af_graph *g;
    const af_batch_inputs *in;
    af_forward_opts o;
    const af_adapter *adapter; /* NULL when this forward has none */
} forward;

static af_tensor *leaf(const forward *f, int layer, af_slot slot)
{
    const int i = f->s->layer[layer].tensor[slot];
    return i < 0 ? NULL : f->l->tensor[i];
}

/* ---- projections ---- */

static af_linear_opts base_linear(const forward *f, int layer, af_group group)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    af_linear_opts o = {.pieces = ls->pieces[group], .few_rows = f->o.cache != NULL};
    for (int p = 0; p < o.pieces; p++) {
        const af_module_spec *m = &f->s->module[ls->module[group][p]];
        o.weight[p] = f->l->tensor[m->weight];
        o.bias[p] = m->bias < 0 ? NULL : f->l->tensor[m->bias];
    }
    return o;
}

/* Adds the adapters of a group's modules; false when none has one. */
static bool add_parts(const forward *f, int layer, af_group group, af_linear_opts *o)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    for (int p = 0; f->adapter && p < ls->pieces[group]; p++) {
        const int i = ls->module[group][p];
        const af_module_spec *m = &f->s->module[i];
        const af_adapter_module *am = &f->adapter->module[i];
        const af_adapter_leaf *al = &f->l->module[i];
        if (am->rank == 0)
            continue;
        o->a = al->a;
        o->b = al->b;
        o->part[o->parts++] = (af_adapter_part){.out_from = m->out_from,
                                                .out_rows = m->out,
                                                .rank_from = (int)al->a_row,
                                                .rank = am->rank,
                                                .scale = am->scale};
    }
    return o->parts > 0;
}

static af_tensor *as_type(af_graph *g, af_tensor *t, af_dtype type)
{
    return af_tensor_dtype(t) == type ? t : af_cast(g, t, type);
}

/* The input of an adapter in training: masked by dropout, one stream per projection. */
static af_tensor *adapter_input(const forward *f, int layer, af_group group, af_tensor *x)
{
    if (f->o.dropout <= 0)
        return x;
    return af_dropout(f->g, x, f->o.dropout, (uint64_t)layer * AF_GROUP_LAYER_COUNT + group);
}

/* DoRA (Liu et al. 2024) as PEFT has it, x' = dropout(x):
 *   y = W x + (m/n - 1) W x' + (m/n) s B A x' + bias, n = row norms of W + s B A, not
 * differentiated; without dropout that is (m/n) (W x + s B A x) + bias. */
static af_tensor *dora(const forward *f, int layer, af_group group, int piece, af_tensor *x)
{
    af_graph *g = f->g;
    const int i = f->s->layer[layer].module[group][piece];
    const af_module_spec *m = &f->s->module[i];
    const af_adapter_module *am = &f->adapter->module[i];
    const af_adapter_leaf *al = &f->l->module[i];
    const af_dtype type = af_tensor_dtype(x);
    af_tensor *bias = m->bias < 0 ? NULL : f->l->tensor[m->bias];
    af_linear_opts o = {
        .pieces = 1, .weight = {f->l->tensor[m->weight]}, .few_rows = f->o.cache != NULL};
    if (am->rank == 0) {
        o.bias[0] = bias;
        return af_linear(g, x, &o);
    }
    o.a = al->a;
    o.b = al->b;
    o.parts = 1;
    o.part[0] = (af_adapter_part){
        .out_rows = m->out, .rank_from = (int)al->a_row, .rank = am->rank, .scale = am->scale};
    af_tensor *ratio = af_div(g, al->magnitude, af_dora_norm(g, &o));
    ratio = as_type(g, ratio, type);
    af_tensor *y = af_mul(g, af_linear(g, adapter_input(f, layer, group, x), &o), ratio);
    if (f->o.dropout > 0) { /* the base term itself sees the whole input */
        const af_linear_opts w = {.pieces = 1, .weight = {o.weight[0]}};
        af_tensor *masked = af_linear(g, adapter_input(f, layer, group, x), &w);
        y = af_add(g, y, af_sub(g, af_linear(g, x, &w), masked));
    }
    return bias ? af_add(g, y, as_type(g, bias, type)) : y;
}

static void tap(const forward *f, int layer, af_group group, af_tensor *x)
{
    if (f->o.tap)
        f->o.tap(f->o.tap_user, layer, group, x);
}

/* lora_bias: s times the bias of each adapted piece is added. */
static af_tensor *add_bias(const forward *f, int layer, af_group group, af_tensor *y)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *piece[AF_LINEAR_PIECES];
    int64_t from = 0;
    if (!f->adapter->config.lora_bias)
        return y;
    for (int p = 0; p < ls->pieces[group]; p++) {
        const int i = ls->module[group][p];
        af_tensor *bias = f->l->module[i].bias;
        piece[p] = ls->pieces[group] == 1 ? y : af_slice(g, y, 1, from, f->s->module[i].out);
        if (bias)
            bias = as_type(g, af_scale(g, bias, f->adapter->module[i].scale), af_tensor_dtype(y));
        piece[p] = bias ? af_add(g, piece[p], bias) : piece[p];
        from += f->s->module[i].out;
    }
    return ls->pieces[group] == 1 ? piece[0] : af_concat(g, piece, ls->pieces[group], 1);
}

/* x [N][I] -> [N][O]: the pieces of a group side by side, adapters included. */
static af_tensor *project(const forward *f, int layer, af_group group, af_tensor *x)
{
    af_graph *g = f->g;
    tap(f, layer, group, x);
    af_linear_opts o = base_linear(f, layer, group), z = {0};
    if (!add_parts(f, layer, group, &z))
        return af_linear(g, x, &o);
    if (f->adapter->config.dora) {
        af_tensor *y[AF_LINEAR_PIECES];
        for (int p = 0; p < o.pieces; p++)
            y[p] = dora(f, layer, group, p, x);
        return o.pieces == 1 ? y[0] : af_concat(g, y, o.pieces, 1);
    }
    if (f->o.dropout > 0) {
        for (int p = 0; p < o.pieces; p++)
            z.out += af_tensor_dim(o.weight[p], 0);
        af_tensor *low = af_linear(g, adapter_input(f, layer, group, x), &z);
        return add_bias(f, layer, group, af_add(g, af_linear(g, x, &o), low));
    }
    o.a = z.a;
    o.b = z.b;
    o.parts = z.parts;
    memcpy(o.part, z.part, sizeof o.part);
    return add_bias(f, layer, group, af_linear(g, x, &o));
}

/* An adapter outside the layers as two plain matrices: A [R][in], B [out][R]. NULL when there is
 * none. */
static af_tensor *outer_adapter(const af_model_leaves *l, int module, af_tensor **b)
{
    const af_adapter_leaf *al = &l->module[module];
    if (!al->a)
        return NULL;
    const int64_t dim[2] = {l->spec->module[module].out, l->adapter->module[module].rank};
    *b = as_type(l->graph, af_reshape(l->graph, al->b, 2, dim), l->compute);
    return as_type(l->graph, al->a, l->compute);
}

/* The trained rows of the embedding or the head; of a tied model the same. */
static af_tensor *token_rows(const af_model_leaves *l, int tensor)
{
    const int k = af_adapter_token_table(l->adapter, tensor);
    return k < 0 ? NULL : as_type(l->graph, l->tokens[k], l->compute);
}

/* ids [N] -> [N][D] by a table with columns for trained rows (adapter_tokens.c) */
static af_tensor *embed_wide(const forward *f, af_tensor *rows)
{
    af_graph *g = f->g;
    const int64_t D = f->s->width, columns = af_tensor_dim(rows, 0);
    af_tensor *wide = af_embedding(g, f->in->ids, f->l->tensor[f->s->embed], f->l->compute);
    af_tensor *marks = af_slice(g, wide, 1, D, columns);
    return af_add(g, af_slice(g, wide, 1, 0, D), af_matmul(g, marks, rows, AF_MATMUL_NN));
}

/* ids [N] -> [N][D]; an adapter adds s * B A[:, id] */
static af_tensor *embed(const forward *f)
{
    af_graph *g = f->g;
    const af_model_leaves *l = f->l;
    af_tensor *tokens = token_rows(l, f->s->embed);
    af_tensor *x = tokens ? embed_wide(f, tokens)
                          : af_embedding(g, f->in->ids, l->tensor[f->s->embed], l->compute);
    if (f->s->padding_row >= 0 && !tokens)
        af_embedding_frozen_row(g, x, f->s->padding_row);
    af_tensor *b, *a = f->adapter ? outer_adapter(l, f->s->embed_module, &b) : NULL;
    if (a) {
        af_tensor *rows =
            af_embedding(g, f->in->ids, af_transpose(g, a, (int[]){1, 0}), l->compute);
        if (f->s->padding_row >= 0)
            af_embedding_frozen_row(g, rows, f->s->padding_row);
        const double scale = f->adapter->module[f->s->embed_module].scale;
        x = af_add(g, x, af_scale(g, af_matmul(g, rows, b, AF_MATMUL_NT), scale));
    }
    return f->s->embed_scale != 1 ? af_scale(g, x, f->s->embed_scale) : x;
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
    af_tensor *ratio = as_type(g, af_div(g, al->magnitude, af_dora_norm(g, &o)), l->compute);
    return af_mul(g, wide, af_reshape(g, ratio, 2, (int64_t[]){rows, 1}));
}

/* The head as one matrix: with an adapter, [h | s A h] times [W | B]^T is what it computes; with
 * trained rows, which a tied model may have besides, W has their marks (adapter_tokens.c). */
static af_tensor *head(const af_model_leaves *l, const af_forward_opts *o, af_tensor **h)
{
    af_graph *g = l->graph;
    af_tensor *w = l->tensor[l->spec->head], *x = *h;
    const bool off = !l->adapter || (o && o->no_adapter);
    af_tensor *tokens = token_rows(l, l->spec->head);
    if (tokens)
        *h = af_concat(g, (af_tensor *[]){x, af_matmul(g, x, tokens, AF_MATMUL_NT)}, 2, 1);
    af_tensor *b, *a = off ? NULL : outer_adapter(l, l->spec->head_module, &b);
    if (!a)
        return w;
    const double scale = l->adapter->module[l->spec->head_module].scale;
    af_tensor *low = af_scale(g, af_matmul(g, x, a, AF_MATMUL_NT), scale);
    *h = af_concat(g, (af_tensor *[]){*h, low}, 2, 1);
    af_tensor *wide = af_concat(g, (af_tensor *[]){as_type(g, w, l->compute), b}, 2, 1);
    return l->module[l->spec->head_module].magnitude ? scale_rows(l, wide) : wide;
}

/* ---- blocks ---- */

/* h [N][D] -> attention's output before the residual, [N][D] */
static af_tensor *attention(const forward *f, int layer, af_tensor *h)
{
    const af_model_spec *s = f->s;
    const af_layer_spec *ls = &s->layer[layer];
    af_tensor *qkv = project(f, layer, AF_GROUP_QKV, h);
    af_tensor *q_norm = leaf(f, layer, AF_SLOT_Q_NORM);
    if (ls->rope >= 0 || q_norm) {
        const af_rope_opts r = {.heads = s->heads,
                                .kv_heads = s->kv_heads,
                                .head_dim = s->head_dim,
                                .rotary_dim = s->rotary_dim,
                                .scale = ls->rope < 0 ? 1 : af_rope_scale(&s->rope[ls->rope]),
                                .q_norm = q_norm,
                                .k_norm = leaf(f, layer, AF_SLOT_K_NORM),
                                .norm_eps = s->eps,
                                .norm_plus_one = s->arch->norm_plus_one};
        qkv = af_rope(f->g, qkv, f->in->positions, ls->rope < 0 ? NULL : f->l->inv_freq[ls->rope],
                      &r);
    }
    const af_attention_opts a = {.heads = s->heads,
                                 .kv_heads = s->kv_heads,
                                 .head_dim = s->head_dim,
                                 .scale = s->attn_scale,
                                 .softcap = s->attn_softcap,
                                 .window = ls->window,
                                 .causal = true};
    af_tensor *o = f->o.cache ? af_attention_cached(f->g, qkv, f->o.cache[layer], f->in->bounds,
                                                    f->in->start, &a)
                              : af_attention(f->g, qkv, f->in->bounds, &a);
    return project(f, layer, AF_GROUP_O, o);
}

/* h [N][D] -> [N][D] */
static af_tensor *mlp(const forward *f, int layer, af_tensor *h)
{
    af_graph *g = f->g;
    const af_model_spec *s = f->s;
    if (s->layer[layer].moe) {
        tap(f, layer, AF_GROUP_GATE_UP, h);
        const af_linear_opts router = {.pieces = 1,
                                       .weight = {leaf(f, layer, AF_SLOT_ROUTER)},
                                       .few_rows = f->o.cache != NULL};
        af_tensor *index, *logits = af_linear(g, h, &router);
        const af_route_opts route = {.used = s->experts_used, .norm = s->norm_topk};
        af_tensor *w = af_moe_route(g, logits, &route, &index);
        if (f->o.router)
            af_router_loss_add(f->o.router, g, logits, index);
        const af_experts_opts experts = {
            .gate_up = {.weight = leaf(f, layer, AF_SLOT_EXPERTS_GATE_UP)},
            .down = {.weight = leaf(f, layer, AF_SLOT_EXPERTS_DOWN)},
            .act = s->act,
        };
        return af_moe_ffn(g, h, w, index, &experts);
    }
    af_tensor *gate_up = project(f, layer, AF_GROUP_GATE_UP, h);
    return project(f, layer, AF_GROUP_DOWN, af_glu(g, gate_up, s->act));
}

/* *x += y (normed and scaled first where the family does that); the result is *x under the next
 * norm, or *x itself where there is none. */
static af_tensor *close_residual(const forward *f, af_tensor *y, af_tensor *post, af_tensor *next,
                                 af_tensor **x, int branch)
{
    const bool one = f->s->arch->norm_plus_one;
    if (f->o.residual_dropout > 0)
        y = af_dropout(f->g, y, f->o.residual_dropout, RESIDUAL_STREAM + (uint64_t)branch);
    if (post)
        y = af_rmsnorm(f->g, y, post, f->s->eps, one);
    if (f->s->residual_scale != 1)
        y = af_scale(f->g, y, f->s->residual_scale);
    if (next)
        return af_rmsnorm_add(f->g, y, *x, next, f->s->eps, one, x);
    *x = af_add(f->g, *x, y);
    return *x;
}

af_tensor *af_model_forward(af_model_leaves *l, const af_batch_inputs *in, const af_forward_opts *o)
{
    const af_model_spec *s = l->spec;
    af_graph *g = l->graph;
    forward f = {.l = l, .s = s, .g = g, .in = in, .o = o ? *o : (af_forward_opts){0}};
    f.adapter = f.o.no_adapter ? NULL : l->adapter;
    const bool one = s->arch->norm_plus_one, pre = s->arch->pre_norm;

    af_graph_set_block(g, -1);
    af_tensor *x = embed(&f);
    if (f.o.neftune > 0)
        x = af_neftune_noise(g, x, in->bounds, f.o.neftune, NOISE_STREAM);
    af_graph_set_block(g, 0);
    af_tensor *h = pre ? af_rmsnorm(g, x, leaf(&f, 0, AF_SLOT_ATTN_NORM), s->eps, one) : x;
    for (int i = 0; i < s->layers; i++) {
        af_graph_set_block(g, i);
        af_tensor *next =
            i + 1 < s->layers ? leaf(&f, i + 1, AF_SLOT_ATTN_NORM) : l->tensor[s->final_norm];
        h = close_residual(&f, attention(&f, i, h), leaf(&f, i, AF_SLOT_POST_ATTN_NORM),
                           leaf(&f, i, AF_SLOT_MLP_NORM), &x, 2 * i);
        h = close_residual(&f, mlp(&f, i, h), leaf(&f, i, AF_SLOT_POST_MLP_NORM), next, &x,
                           2 * i + 1);
    }
    af_graph_set_block(g, -1);
    return h;
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

af_tensor *af_model_loss(af_model_leaves *l, af_tensor *h, af_tensor *labels, af_tensor *scale,
                         double smoothing, af_tensor **rows)
{
    const af_model_spec *s = l->spec;
    const af_head_opts o = {.scale = scale,
                            .softcap = s->logit_softcap,
                            .logit_scale = s->logit_scale,
                            .smoothing = smoothing,
                            .rows = rows};
    af_tensor *w = head(l, NULL, &h);
    return af_head_loss(l->graph, h, w, labels, &o);
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

af_status af_model_caches(af_model_leaves *l, af_tensor **cache, int64_t seqs, int64_t length,
                          af_error *err)
{
    const af_model_spec *s = l->spec;
    const int64_t dim[3] = {seqs, length, (int64_t)2 * s->kv_heads * s->head_dim};
    char name[64];
    for (int i = 0; i < s->layers; i++) {
        snprintf(name, sizeof name, "cache.%d", i);
        cache[i] = af_graph_state(l->graph, name, l->compute, 3, dim);
    }
    return af_graph_status(l->graph, err);
}
