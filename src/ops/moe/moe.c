/* moe.c - mixture of experts: the router and the experts' feed-forward.
 *
 * MOE_ROUTE      logits [N][X] -> weights [N][k], index i32 [N][k], probs [N][X]
 *                probs = softmax over all experts; index = the k largest (of equals the lower
 *                first); weights = their probs, divided by their sum with `norm`
 * MOE_ROUTE_BWD  probs, index, weights, dweights -> dlogits
 * MOE_FFN        x [N][D], weights, index, gate_up [X][2F][D], down [X][D][F] -> y [N][D]
 *                y[n] = sum_j weights[n][j] * down[e] (act(gate) * up), gate|up = gate_up[e] x[n],
 *                e = index[n][j], j in order
 * MOE_FFN_BWD    x, weights, index, gate_up, down, dy -> dx, dweights, [dgate_up, ddown]
 * weights and probs are f32 (f64 for f64). Expert matrices may have any type while frozen. */
#include "ops/common/weight_type.h"
#include "ops/moe/moe_in.h"

af_tensor *af_moe_route(af_graph *g, af_tensor *logits, int k, bool norm, af_tensor **index)
{
    char a[96];
    if (index)
        *index = af_graph_dummy(g);
    if (af_graph_refuses(g, "moe_route", &logits, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(logits->dtype) || logits->ndim != 2 || k < 1 || k > logits->dim[1])
        return af_graph_bad(g, "moe_route: cannot take %d experts of logits %s", k,
                            af_shape_text(logits, a, sizeof a));
    af_node *n = af_node_new(g, AF_OP_MOE_ROUTE, (af_tensor *[]){logits}, 1);
    n->attr.moe.k = k;
    n->attr.moe.norm = norm;
    const af_dtype type = logits->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
    const int64_t dim[2] = {logits->dim[0], k};
    af_tensor *w = af_node_output(g, n, type, 2, dim);
    af_tensor *i = af_node_output(g, n, AF_DTYPE_I32, 2, dim);
    af_tensor *p = af_node_output(g, n, type, 2, logits->dim);
    if (af_graph_failed(g))
        return w;
    i->needs_grad = p->needs_grad = false;
    if (index)
        *index = i;
    return w;
}

static void route_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (!dout[0])
        return;
    af_tensor *in[] = {n->out[2], n->out[1], n->out[0], dout[0]};
    af_node *b = af_node_new(g, AF_OP_MOE_ROUTE_BWD, in, 4);
    b->attr = n->attr;
    af_tensor *d = af_node_output_like(g, b, n->in[0]);
    if (!af_graph_failed(g))
        af_grad_add(g, n->in[0], d);
}

static bool check(af_graph *g, const af_tensor *x, const af_tensor *weights, const af_tensor *index,
                  const af_tensor *gate_up, const af_tensor *down)
{
    char a[96], b[96];
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || gate_up->ndim != 3 ||
        gate_up->dim[2] != x->dim[1] || gate_up->dim[1] % 2)
        af_graph_bad(g, "moe_ffn: x %s and gate_up %s do not fit together",
                     af_shape_text(x, a, sizeof a), af_shape_text(gate_up, b, sizeof b));
    else if (!af_is_weight(gate_up->dtype) || !af_is_weight(down->dtype))
        af_graph_bad(g, "moe_ffn: experts %s and %s cannot be read",
                     af_shape_text(gate_up, a, sizeof a), af_shape_text(down, b, sizeof b));
    else if (down->ndim != 3 || down->dim[0] != gate_up->dim[0] ||
             down->dim[1] != gate_up->dim[2] || down->dim[2] != gate_up->dim[1] / 2)
        af_graph_bad(g, "moe_ffn: down %s and gate_up %s do not fit together",
                     af_shape_text(down, a, sizeof a), af_shape_text(gate_up, b, sizeof b));
    else if (index->dtype != AF_DTYPE_I32 || !af_same_shape(weights, index) || index->ndim != 2 ||
             index->dim[0] != x->dim[0] || !af_dtype_is_float(weights->dtype))
        af_graph_bad(g, "moe_ffn: weights %s and index %s do not fit together",
                     af_shape_text(weights, a, sizeof a), af_shape_text(index, b, sizeof b));
    return !af_graph_failed(g);
}

af_tensor *af_moe_ffn(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                      af_tensor *gate_up, af_tensor *down, af_act act)
{
    if ((unsigned)act > AF_ACT_RELU)
        return af_graph_bad(g, "moe_ffn: activation %d is not one of 0 to %d", (int)act,
                            AF_ACT_RELU);
    if (af_graph_refuses(g, "moe_ffn", (af_tensor *[]){x, weights, index, gate_up, down}, 5) ||
        !check(g, x, weights, index, gate_up, down))
        return af_graph_dummy(g);
    af_node *n =
        af_node_new(g, AF_OP_MOE_FFN, (af_tensor *[]){x, weights, index, gate_up, down}, 5);
    n->attr.moe.k = (int)index->dim[1];
    n->attr.moe.act = act;
    return af_node_output_like(g, n, x);
}

static void ffn_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_moe_inputs in = af_moe_in(n);
    af_tensor *d[4] = {0}, *const of[4] = {in.x, in.weights, in.gate_up, in.down};
    af_node *b =
        af_node_new(g, AF_OP_MOE_FFN_BWD,
                    (af_tensor *[]){in.x, in.weights, in.index, in.gate_up, in.down, dout[0]}, 6);
    b->attr = n->attr;
    const bool train = in.gate_up->needs_grad || in.down->needs_grad;
    for (int i = 0; i < (train ? 4 : 2) && !af_graph_failed(g); i++) {
        const af_tensor *t = of[i];
        /* a frozen one next to a trained one may have a block type; its gradient is not used */
        const af_dtype type = af_dtype_is_float(t->dtype) ? t->dtype : AF_DTYPE_F32;
        d[i] = af_node_output(g, b, type, t->ndim, t->dim);
        if (i >= 2)
            d[i]->live = NULL;
    }
    for (int i = 0; i < 4 && !af_graph_failed(g); i++)
        if (d[i])
            af_grad_add(g, of[i], d[i]);
}

static double ffn_flops(const af_node *n)
{
    const af_tensor *gate_up = af_moe_in(n).gate_up;
    const double pass = 2.0 * (double)af_rows(af_moe_in(n).x) * n->attr.moe.k * 1.5 *
                        (double)gate_up->dim[1] * (double)gate_up->dim[2];
    return n->op == AF_OP_MOE_FFN ? pass : n->n_out > 2 ? 3 * pass : 2 * pass;
}

const af_op_info af_op_moe_route = {.name = "moe_route", .grad = route_grad};
const af_op_info af_op_moe_route_bwd = {.name = "moe_route_bwd"};
const af_op_info af_op_moe_ffn = {.name = "moe_ffn", .grad = ffn_grad, .flops = ffn_flops};
const af_op_info af_op_moe_ffn_bwd = {.name = "moe_ffn_bwd", .flops = ffn_flops};
