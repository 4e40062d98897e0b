/* fake_weights.c - quantisation-aware training: linears compute with rounded weights and inputs,
 * and gradients pass through the rounding (straight-through estimator).
 *
 * Weights, as torchao's Int4WeightFakeQuantizer has it: of each group of a row,
 *   s = (max - min) / 15,  q = round((w - min) / s),  y = s q + min
 * Its gradient is dy, and through s what the maximum and the minimum do to the rounding error:
 *   dmax = -dmin = sum dy (q - (w - min) / s) / 15
 * Here y = w + r s/s', r = (s q + min) - w and s' = s constants: the same value and gradient.
 * Inputs have a grid of 255 steps per token that contains 0, whose gradient is dy inside the grid.
 */
#include "graph/graph_access.h"
#include "model/builder/blocks.h"

enum { WEIGHT_BITS = 4, INPUT_BITS = 8 };

/* Stands in for the range of equal values; less than a digit of any other. */
static const double LEAST = 1e-30;

/* A rounded weight belongs to no block: the backward pass reads the one that the forward pass had,
 * on a GPU in the same matrix, whatever is rebuilt. */
static int outside_blocks(af_graph *g)
{
    const int block = af_graph_block(g);
    af_graph_set_block(g, -1);
    return block;
}

af_tensor *af_ternary_weight(const af_model_leaves *l, af_tensor *w)
{
    const int block = outside_blocks(l->graph);
    w = af_ternary(l->graph, w, l->compute);
    af_graph_set_block(l->graph, block);
    return w;
}

af_tensor *af_qat_weight(const af_model_leaves *l, af_tensor *w, af_dtype out)
{
    af_graph *g = l->graph;
    if (!l->qat.group || af_graph_status(g, NULL) != AF_OK)
        return w;
    const int64_t rows = af_tensor_dim(w, 0), columns = af_tensor_dim(w, 1);
    const int64_t grouped[3] = {rows, columns / l->qat.group, l->qat.group};
    af_tensor *x = af_reshape(g, af_as_type(g, w, AF_DTYPE_F32), 3, grouped);
    af_tensor *low = af_neg(g, af_max(g, af_neg(g, x), 2, true));
    af_tensor *range = af_sub(g, af_max(g, x, 2, true), low);
    range = af_add(g, range, af_graph_constant(g, AF_DTYPE_F32, 1, (int64_t[]){1}, LEAST));
    af_tensor *from = af_detach(g, low), *was = af_detach(g, x);
    af_tensor *codes = af_fake_quant(g, af_sub(g, was, from), WEIGHT_BITS, -1, false);
    af_tensor *error = af_sub(g, af_add(g, codes, from), was);
    af_tensor *factor = af_div(g, range, af_detach(g, range)); /* 1 */
    if (l->qat_on)
        factor = af_mul(g, factor, l->qat_on);
    error = af_mul(g, error, factor);
    const int block = outside_blocks(g);
    af_tensor *y = af_reshape(g, af_add(g, x, error), 2, (int64_t[]){rows, columns});
    y = af_as_type(g, y, out);
    af_graph_set_block(g, block);
    return y;
}

af_tensor *af_qat_input(const af_model_leaves *l, af_tensor *x)
{
    af_graph *g = l->graph;
    if (!l->qat.inputs || af_graph_status(g, NULL) != AF_OK)
        return x;
    af_tensor *y = af_fake_quant(g, x, INPUT_BITS, -1, false);
    if (!l->qat_on)
        return y;
    af_tensor *on = af_as_type(g, l->qat_on, af_tensor_dtype(x));
    return af_add(g, x, af_mul(g, af_sub(g, y, x), on));
}
