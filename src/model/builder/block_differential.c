/* block_differential.c - differential attention (Ye et al. 2024), as diffllama has it.
 *
 * H heads, K kv heads. Pass p has all queries and keys and the p-th half of the values, each of its
 * K/2 heads twice. Of what comes out, head h of the first half of the heads becomes
 *   o[h] = (1 - l0) rmsnorm([o1[h] - l o1[h + H/2], o2[h] - l o2[h + H/2]]),
 *   l = exp(q1 . k1) - exp(q2 . k2) + l0,  l0 = 0.8 - 0.6 exp(-0.3 layer) */
#include "model/builder/blocks.h"

#include <math.h>

static double first_lambda(int layer) { return 0.8 - 0.6 * exp(-0.3 * layer); }

af_tensor *af_differential_add(const af_forward *f, int layer, af_tensor *qkv)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    if (!f->s->arch->differential || af_graph_status(g, NULL) != AF_OK)
        return qkv;
    const int64_t HE = (int64_t)ls->heads * ls->head_dim, KE = (int64_t)ls->kv_heads * ls->head_dim;
    af_tensor *q = af_slice(g, qkv, 1, 0, HE), *k = af_slice(g, qkv, 1, HE, KE),
              *v1 = af_slice(g, qkv, 1, HE + KE, KE / 2),
              *v2 = af_slice(g, qkv, 1, HE + KE + KE / 2, KE / 2);
    return af_concat(g, (af_tensor *[]){q, q, k, k, v1, v1, v2, v2}, 8, 1);
}

/* exp(q . k) [1] in f32 */
static af_tensor *share(const af_forward *f, int layer, af_slot q, af_slot k)
{
    af_tensor *a = af_as_type(f->g, af_layer_leaf(f, layer, q), AF_DTYPE_F32);
    af_tensor *b = af_as_type(f->g, af_layer_leaf(f, layer, k), AF_DTYPE_F32);
    return af_exp(f->g, af_sum_all(f->g, af_mul(f->g, a, b)));
}

/* o[h] - l o[h + H/2] of a pass: [N][H/2][E] */
static af_tensor *difference(const af_forward *f, int layer, af_tensor *o, int pass, af_tensor *l)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    const int64_t half = (int64_t)ls->heads / 2 * ls->head_dim;
    af_tensor *first = af_slice(g, o, 1, 2 * pass * half, half);
    af_tensor *second = af_slice(g, o, 1, (2 * pass + 1) * half, half);
    return af_reshape(g, af_sub(g, first, af_mul(g, second, l)), 3,
                      (int64_t[]){af_tensor_dim(o, 0), ls->heads / 2, ls->head_dim});
}

af_tensor *af_differential_cut(const af_forward *f, int layer, af_tensor *o)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    const double l0 = first_lambda(layer);
    if (!f->s->arch->differential || af_graph_status(g, NULL) != AF_OK)
        return o;
    const int64_t flat[2] = {af_tensor_dim(o, 0), (int64_t)ls->heads * ls->head_dim}, one = 1;
    af_tensor *l = af_sub(g, share(f, layer, AF_SLOT_LAMBDA_Q1, AF_SLOT_LAMBDA_K1),
                          share(f, layer, AF_SLOT_LAMBDA_Q2, AF_SLOT_LAMBDA_K2));
    l = af_add(g, l, af_graph_constant(g, AF_DTYPE_F32, 1, &one, l0));
    l = af_as_type(g, l, af_tensor_dtype(o));
    o = af_concat(g, (af_tensor *[]){difference(f, layer, o, 0, l), difference(f, layer, o, 1, l)},
                  2, 2);
    o = af_rmsnorm(g, o, af_bare_norm(f, 2 * ls->head_dim), f->s->eps, false);
    return af_scale(g, af_reshape(g, o, 2, flat), 1 - l0);
}
