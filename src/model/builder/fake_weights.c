/* fake_weights.c - quantisation-aware training: linears compute with rounded weights and inputs,
 * and gradients pass through the rounding (straight-through estimator).
 *
 * int4, as torchao's Int4WeightFakeQuantizer has it: of each group of a row,
 *   s = (max - min) / 15,  q = round((w - min) / s),  y = s q + min
 * Its gradient is dy, and through s what the maximum and the minimum do to the rounding error:
 *   dmax = -dmin = sum dy (q - (w - min) / s) / 15
 * Here y = w + r s/s', r = (s q + min) - w and s' = s constants: the same value and gradient.
 * Inputs have a grid of 255 steps per token that contains 0, whose gradient is dy inside the grid.
 *
 * nvfp4, mxfp4, fp8: weights and inputs are rounded as fake_float.c says. The gradient is dy, and
 * of fp8 what the largest magnitude of a row does to its rounding errors, as above (torchao's
 * NVFP4FakeQuantizedLinear, MXFakeQuantizedLinear and Float8FakeQuantizer). */
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

/* x + error factor: rounded values, with gradients of x and of their scale; `outside`, see above.
 */
static af_tensor *replaced(const af_model_leaves *l, af_tensor *x, af_tensor *error,
                           af_tensor *factor, bool outside)
{
    af_graph *g = l->graph;
    af_tensor *on = l->qat_on ? af_as_type(g, l->qat_on, af_tensor_dtype(x)) : NULL;
    factor = on && factor ? af_mul(g, factor, on) : on ? on : factor;
    if (factor)
        error = af_mul(g, error, factor);
    const int block = outside ? outside_blocks(g) : af_graph_block(g);
    af_tensor *y = af_add(g, x, error);
    af_graph_set_block(g, block);
    return y;
}

/* v / v, 1 with a gradient. */
static af_tensor *own_ratio(af_graph *g, af_tensor *v)
{
    v = af_add(g, v, af_graph_constant(g, af_tensor_dtype(v), 1, (int64_t[]){1}, LEAST));
    return af_div(g, v, af_detach(g, v));
}

static af_tensor *int4_weight(const af_model_leaves *l, af_tensor *w)
{
    af_graph *g = l->graph;
    const int64_t rows = af_tensor_dim(w, 0), columns = af_tensor_dim(w, 1);
    const int64_t grouped[3] = {rows, columns / l->qat.group, l->qat.group};
    af_tensor *x = af_reshape(g, af_as_type(g, w, AF_DTYPE_F32), 3, grouped);
    af_tensor *low = af_neg(g, af_max(g, af_neg(g, x), 2, true));
    af_tensor *range = af_sub(g, af_max(g, x, 2, true), low);
    af_tensor *from = af_detach(g, low), *was = af_detach(g, x);
    af_tensor *codes = af_fake_quant(g, af_sub(g, was, from), WEIGHT_BITS, -1, false);
    af_tensor *error = af_sub(g, af_add(g, codes, from), was);
    return replaced(l, x, error, own_ratio(g, range), true);
}

/* [N][1]: the largest magnitude of each row. */
static af_tensor *largest(af_graph *g, af_tensor *x)
{
    af_tensor *end[2] = {af_max(g, x, 1, true), af_max(g, af_neg(g, x), 1, true)};
    return af_max(g, af_concat(g, end, 2, 1), 1, true);
}

/* rows: those that share a scale (fake_float.h). */
static af_tensor *float_values(const af_model_leaves *l, af_tensor *x, af_tensor *rows,
                               af_dtype out, bool outside)
{
    af_graph *g = l->graph;
    const af_qat_type type = l->qat.type;
    if (type != AF_QAT_FP8 && !l->qat_on) {
        const int block = outside ? outside_blocks(g) : af_graph_block(g);
        x = af_fake_float(g, x, type, rows, out);
        af_graph_set_block(g, block);
        return x;
    }
    af_tensor *was = af_detach(g, x);
    af_tensor *error = af_sub(g, af_fake_float(g, was, type, rows, af_tensor_dtype(x)), was);
    af_tensor *most = type == AF_QAT_FP8 ? largest(g, x) : NULL;
    return replaced(l, x, error, most ? own_ratio(g, most) : NULL, outside);
}

af_tensor *af_qat_weight(const af_model_leaves *l, af_tensor *w, af_dtype out)
{
    af_graph *g = l->graph;
    if (!l->qat.type || af_graph_status(g, NULL) != AF_OK)
        return w;
    const int64_t *dims = af_tensor_dims(w);
    af_tensor *y =
        l->qat.type == AF_QAT_INT4 ? int4_weight(l, w) : float_values(l, w, NULL, out, true);
    const int block = outside_blocks(g);
    if (l->qat.type == AF_QAT_INT4) /* groups are rows there */
        y = af_reshape(g, y, 2, dims);
    y = af_as_type(g, y, out);
    af_graph_set_block(g, block);
    return y;
}

af_tensor *af_qat_input(const af_model_leaves *l, af_tensor *x)
{
    af_graph *g = l->graph;
    if (!l->qat.inputs || af_graph_status(g, NULL) != AF_OK)
        return x;
    if (l->qat.type != AF_QAT_INT4)
        return float_values(l, x, l->qat_rows, af_tensor_dtype(x), false);
    af_tensor *y = af_fake_quant(g, x, INPUT_BITS, -1, false);
    if (!l->qat_on)
        return y;
    af_tensor *on = af_as_type(g, l->qat_on, af_tensor_dtype(x));
    return af_add(g, x, af_mul(g, af_sub(g, y, x), on));
}
