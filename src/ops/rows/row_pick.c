/* row_pick.c - rows by their numbers: copies of rows, and sums of copies.
 *
 * ROW_PICK  x [M][D], index i32 [N][2], back i32 [M][2] -> y [N][D]
 *   y[n] = x[index[n][0]] + x[index[n][1]], where a number of -100 adds nothing
 *   dx[m] = dy[back[m][0]] + dy[back[m][1]]: a row is used at most twice, and `back` says where.
 * Answers that share a prompt attend as if each had a copy of it: the rows of q, k and v are copied
 * before attention, and one copy of its output is taken back. */
#include "graph/node.h"
#include "tensor/dtype.h"

static bool is_index(const af_tensor *t, int64_t rows)
{
    return t->dtype == AF_DTYPE_I32 && t->ndim == 2 && t->dim[1] == 2 && t->dim[0] == rows;
}

af_tensor *af_row_pick(af_graph *g, af_tensor *x, af_tensor *index, af_tensor *back)
{
    char a[96], b[96];
    if (af_graph_refuses(g, "row_pick", (af_tensor *[]){x, index, back}, 3))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || !is_index(index, index->dim[0]) ||
        !is_index(back, x->dim[0]))
        return af_graph_bad(g, "row_pick: rows %s cannot be picked by numbers %s",
                            af_shape_text(x, a, sizeof a), af_shape_text(index, b, sizeof b));
    af_expect(index, AF_VALUE_LABELS, x->dim[0]);
    af_expect(back, AF_VALUE_LABELS, index->dim[0]);
    af_node *n = af_node_new(g, AF_OP_ROW_PICK, (af_tensor *[]){x, index, back}, 3);
    return af_node_output(g, n, x->dtype, 2, (int64_t[]){index->dim[0], x->dim[1]});
}

static void row_pick_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (dout[0])
        af_grad_add(g, n->in[0], af_row_pick(g, dout[0], n->in[2], n->in[1]));
}

static double row_pick_flops(const af_node *n) { return (double)af_count(n->in[0]); }

const af_op_info af_op_row_pick = {
    .name = "row_pick", .grad = row_pick_grad, .flops = row_pick_flops};
