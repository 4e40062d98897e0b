/* lm_block.h - a two-layer decoder from the language-model ops, for tests: grouped heads, norms of
 * q and k, low-rank adapters on q and v, SwiGLU, tied head. Leaves come from the caller by name. */
#ifndef AF_LM_BLOCK_H
#define AF_LM_BLOCK_H

#include "afinar/graph.h"

#include <stdio.h>

enum { LMB_V = 11, LMB_D = 8, LMB_H = 4, LMB_K = 2, LMB_E = 4, LMB_F = 12, LMB_LAYERS = 2 };

typedef af_tensor *lm_block_leaf(void *arg, const char *name);

static inline af_tensor *lmb_leaf(lm_block_leaf *leaf, void *arg, const char *name, int layer)
{
    char text[16];
    snprintf(text, sizeof text, "%s%d", name, layer);
    return leaf(arg, text);
}

static inline af_tensor *lmb_attention(af_graph *g, lm_block_leaf *leaf, void *arg, int l,
                                       af_tensor *h, af_tensor *const in[3])
{
    const int64_t q = LMB_H * LMB_E, k = LMB_K * LMB_E;
    af_linear_opts p = {.pieces = 3, .parts = 2};
    p.weight[0] = lmb_leaf(leaf, arg, "wq", l);
    p.weight[1] = lmb_leaf(leaf, arg, "wk", l);
    p.weight[2] = lmb_leaf(leaf, arg, "wv", l);
    p.a = lmb_leaf(leaf, arg, "a", l);
    p.b = lmb_leaf(leaf, arg, "b", l);
    p.part[0] = (af_adapter_part){0, q, 0, 2, 0.5f};
    p.part[1] = (af_adapter_part){q + k, k, 2, 2, 0.5f};
    af_rope_opts r = {.heads = LMB_H, .kv_heads = LMB_K, .head_dim = LMB_E, .norm_eps = 1e-5};
    r.q_norm = lmb_leaf(leaf, arg, "qn", l);
    r.k_norm = lmb_leaf(leaf, arg, "kn", l);
    const af_attention_opts o = {
        .heads = LMB_H, .kv_heads = LMB_K, .head_dim = LMB_E, .causal = true};
    af_tensor *qkv = af_rope(g, af_linear(g, h, &p), in[0], in[1], &r);
    const af_linear_opts out = {.weight[0] = lmb_leaf(leaf, arg, "wo", l), .pieces = 1};
    return af_linear(g, af_attention(g, qkv, in[2], &o), &out);
}

static inline af_tensor *lmb_mlp(af_graph *g, lm_block_leaf *leaf, void *arg, int l, af_tensor *h)
{
    af_linear_opts gu = {.pieces = 2};
    gu.weight[0] = lmb_leaf(leaf, arg, "wg", l);
    gu.weight[1] = lmb_leaf(leaf, arg, "wu", l);
    const af_linear_opts down = {.weight[0] = lmb_leaf(leaf, arg, "wd", l), .pieces = 1};
    return af_linear(g, af_glu(g, af_linear(g, h, &gu), AF_ACT_SILU), &down);
}

/* Leaves: ids labels positions bounds freq scale table nf, and by layer n1 wq wk wv a b qn kn wo n2
 * wg wu wd. Returns the loss. */
static inline af_tensor *lm_block_build(af_graph *g, lm_block_leaf *leaf, void *arg)
{
    af_tensor *ids = leaf(arg, "ids"), *labels = leaf(arg, "labels"), *scale = leaf(arg, "scale");
    af_tensor *const in[3] = {leaf(arg, "positions"), leaf(arg, "freq"), leaf(arg, "bounds")};
    af_tensor *table = leaf(arg, "table"), *first = lmb_leaf(leaf, arg, "n1", 0);
    const af_dtype compute = af_tensor_dtype(first) == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_BF16;
    af_tensor *x = af_embedding(g, ids, table, compute);
    af_tensor *h = af_rmsnorm(g, x, first, 1e-5, false);
    for (int l = 0; l < LMB_LAYERS; l++) {
        af_graph_set_block(g, l);
        af_tensor *a = lmb_attention(g, leaf, arg, l, h, in);
        h = af_rmsnorm_add(g, a, x, lmb_leaf(leaf, arg, "n2", l), 1e-5, false, &x);
        af_tensor *m = lmb_mlp(g, leaf, arg, l, h);
        af_graph_set_block(g, l + 1 < LMB_LAYERS ? l + 1 : -1);
        h = af_rmsnorm_add(g, m, x,
                           l + 1 < LMB_LAYERS ? lmb_leaf(leaf, arg, "n1", l + 1) : leaf(arg, "nf"),
                           1e-5, false, &x);
    }
    af_graph_set_block(g, -1);
    const af_head_opts o = {.scale = scale};
    return af_head_loss(g, h, table, labels, &o);
}
#endif
