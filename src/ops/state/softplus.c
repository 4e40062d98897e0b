/* softplus.c - the step sizes and decays of layers with a state.
 *
 * SOFTPLUS      x [N][H], bias [H], [a_log [H]] -> y f32 (f64 for f64) [N][H]
 *               y = log(1 + exp(x + bias)), times -exp(a_log) where that is given
 * SOFTPLUS_BWD  x, bias, dy, [a_log] -> dx, dbias, [da_log]: fixed order */
#include "ops/state/softplus_in.h"
#include "tensor/dtype.h"

static bool fits(const af_tensor *x, const af_tensor *w)
{
    return !w || (af_dtype_is_float(w->dtype) && w->ndim == 1 && w->dim[0] == af_last(x));
}

af_tensor *af_softplus(af_graph *g, af_tensor *x, af_tensor *bias, af_tensor *a_log)
{
    char a[96], b[96];
    af_tensor *in[] = {x, bias, a_log};
    const int n_in = a_log ? 3 : 2;
    if (af_graph_refuses(g, "softplus", in, n_in))
        return af_graph_dummy(g);
    const af_tensor *bad = !fits(x, bias) ? bias : !fits(x, a_log) ? a_log : NULL;
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || bad)
        return af_graph_bad(g, "softplus: x %s and %s do not fit together",
                            af_shape_text(x, a, sizeof a),
                            af_shape_text(bad ? bad : bias, b, sizeof b));
    af_node *n = af_node_new(g, AF_OP_SOFTPLUS, in, n_in);
    return af_node_output(g, n, x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32, 2, x->dim);
}

static void softplus_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_softplus_inputs f = af_softplus_in(n);
    af_tensor *in[] = {f.x, f.bias, dout[0], f.a_log}, *d[3] = {0};
    af_tensor *const of[] = {f.x, f.bias, f.a_log};
    if (!dout[0])
        return;
    af_node *b = af_node_new(g, AF_OP_SOFTPLUS_BWD, in, f.a_log ? 4 : 3);
    for (int i = 0; i < (f.a_log ? 3 : 2) && !af_graph_failed(g); i++) {
        d[i] = af_node_output_like(g, b, of[i]);
        if (i > 0)
            d[i]->live = NULL;
    }
    for (int i = 0; i < 3 && !af_graph_failed(g); i++)
        if (d[i])
            af_grad_add(g, of[i], d[i]);
}

const af_op_info af_op_softplus = {.name = "softplus", .grad = softplus_grad, .cheap = true};
const af_op_info af_op_softplus_bwd = {.name = "softplus_bwd"};
