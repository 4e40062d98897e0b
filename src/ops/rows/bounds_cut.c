/* bounds_cut.c - sequences in pieces, for attention that sees its own chunk alone.
 *
 * BOUNDS_CUT  bounds i32 [S+1] of at most N rows -> i32 [S + N/chunk + 1]: every sequence gives
 *             ceil(length / chunk) sequences of `chunk` rows, the last of what is left; an empty
 *             one gives none. What remains of the list is bounds[S]: empty sequences. */
#include "graph/node.h"

af_tensor *af_bounds_cut(af_graph *g, af_tensor *bounds, int64_t chunk, int64_t N)
{
    char a[96];
    if (af_graph_refuses(g, "bounds_cut", &bounds, 1))
        return af_graph_dummy(g);
    if (bounds->dtype != AF_DTYPE_I32 || bounds->ndim != 1 || bounds->dim[0] < 2 || chunk < 1 ||
        N < 0)
        return af_graph_bad(
            g, "bounds_cut: %s cannot be cut into pieces of %" PRId64 " of %" PRId64 " rows",
            af_shape_text(bounds, a, sizeof a), chunk, N);
    af_expect(bounds, AF_VALUE_BOUNDS, N);
    af_node *n = af_node_new(g, AF_OP_BOUNDS_CUT, &bounds, 1);
    n->attr.cut.chunk = chunk;
    af_tensor *y = af_node_output(g, n, AF_DTYPE_I32, 1, (int64_t[]){bounds->dim[0] + N / chunk});
    y->live = NULL;
    return y;
}

const af_op_info af_op_bounds_cut = {.name = "bounds_cut"};
