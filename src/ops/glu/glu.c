/* glu.c - the gated unit of a feed-forward block.
 *
 * GLU      y[n][f] = act(gate) * up,  gate = gate_up[n][f], up = gate_up[n][F+f]
 * GLU_BWD  gate_up, dy -> dgate = dy * up * act'(gate), dup = dy * act(gate), in gate_up's layout
 * gate_up: [..][2F]; y: [..][F]. dgate_up may share gate_up's memory.
 * With a limit: gate = min(gate, limit), up = max(min(up, limit), -limit), y = (up + 1) * gate *
 * sigmoid(1.702 gate). */
#include "graph/node.h"
#include "tensor/dtype.h"

static af_tensor *record(af_graph *g, af_tensor *gate_up, af_act act, double limit)
{
    char a[96];
    if (af_graph_refuses(g, "glu", (af_tensor *[]){gate_up}, 1))
        return af_graph_dummy(g);
    const int64_t width = af_last(gate_up);
    if (!af_dtype_is_float(gate_up->dtype) || width % 2)
        return af_graph_bad(g, "glu: %s has %" PRId64 " columns, not two equal halves",
                            af_shape_text(gate_up, a, sizeof a), width);
    int64_t dim[AF_NDIM_MAX];
    memcpy(dim, gate_up->dim, sizeof dim);
    dim[gate_up->ndim - 1] = width / 2;
    af_node *n = af_node_new(g, AF_OP_GLU, (af_tensor *[]){gate_up}, 1);
    n->attr.glu.act = act;
    n->attr.glu.limit = limit;
    return af_node_output(g, n, gate_up->dtype, gate_up->ndim, dim);
}

af_tensor *af_glu(af_graph *g, af_tensor *gate_up, af_act act)
{
    if (!af_graph_failed(g) && (unsigned)act > AF_ACT_RELU)
        return af_graph_bad(g, "glu: activation %d is not one of 0 to %d", (int)act, AF_ACT_RELU);
    return record(g, gate_up, act, 0);
}

af_tensor *af_glu_clamped(af_graph *g, af_tensor *gate_up, double limit)
{
    if (!af_graph_failed(g) && !(limit > 0))
        return af_graph_bad(g, "glu: the limit %g is not above 0", limit);
    return record(g, gate_up, AF_ACT_SILU, limit);
}

static void glu_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_node *b = af_node_new(g, AF_OP_GLU_BWD, (af_tensor *[]){n->in[0], dout[0]}, 2);
    b->attr = n->attr;
    af_tensor *d = af_node_output_like(g, b, n->in[0]);
    if (!af_graph_failed(g))
        af_grad_add(g, n->in[0], d);
}

/* With the gradients of adapters it makes on the way (glu_adapter.h): outputs 2 and on. */
static double glu_flops(const af_node *n)
{
    double sum = 4.0 * (double)af_count(n->in[0]);
    for (int k = 2; k < n->n_out; k++)
        sum += 2.0 * (double)af_rows(n->in[0]) * (double)af_count(n->out[k]);
    return sum;
}

const af_op_info af_op_glu = {.name = "glu", .grad = glu_grad, .flops = glu_flops, .cheap = true};
const af_op_info af_op_glu_bwd = {.name = "glu_bwd", .flops = glu_flops, .inplace = 1};
