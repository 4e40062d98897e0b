/* topk.c - the most likely tokens of rows as rows of the whole vocabulary.
 *
 * EXPAND_TOPK  id i32 [N][K], x f32 [N][K] -> y f32 [N][V]
 *   y[n][id[n][k]] = x[n][k], and `rest` everywhere else; an id of -100 is none. The ids of a row
 *   are all different. Without a gradient: both are data. */
#include "graph/node.h"

af_tensor *af_expand_topk(af_graph *g, af_tensor *id, af_tensor *x, int64_t V, double rest)
{
    char a[96], b[96];
    if (af_graph_refuses(g, "expand_topk", (af_tensor *[]){id, x}, 2))
        return af_graph_dummy(g);
    if (id->dtype != AF_DTYPE_I32 || x->dtype != AF_DTYPE_F32 || id->ndim != 2 || V < 1 ||
        !af_same_shape(id, x))
        return af_graph_bad(g, "expand_topk: ids %s and values %s do not fit together",
                            af_shape_text(id, a, sizeof a), af_shape_text(x, b, sizeof b));
    af_expect(id, AF_VALUE_LABELS, V);
    af_node *n = af_node_new(g, AF_OP_EXPAND_TOPK, (af_tensor *[]){id, x}, 2);
    n->attr.fill.value = rest;
    af_tensor *y = af_node_output(g, n, AF_DTYPE_F32, 2, (int64_t[]){id->dim[0], V});
    if (!af_graph_failed(g))
        y->needs_grad = false;
    return y;
}

const af_op_info af_op_expand_topk = {.name = "expand_topk"};
