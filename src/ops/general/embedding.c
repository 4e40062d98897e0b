/* embedding.c - rows of a table by number, and the gradient of the table.
 *
 * EMBEDDING      y[n][d] = table[ids[n]][d]
 *                ids: i32 [N]; table: [V][D] of any type, block types included; y: [N][D]
 * EMBEDDING_BWD  dtable[v][d] = sum over n with ids[n] = v of dy[n][d], n in rising order
 *                dtable: [V][D] of the table's type; may be added to. Row attr.embedding.frozen - 1
 *                (when it is above 0) counts as unused.
 * Ids are checked when they are written (af_expect): one outside the table is our own bug. */
#include "graph/node.h"
#include "ops/common/weight_type.h"

af_tensor *af_embedding(af_graph *g, af_tensor *ids, af_tensor *table, af_dtype out)
{
    char a[96], b[96];
    if (af_graph_refuses(g, "embedding", (af_tensor *[]){ids, table}, 2))
        return af_graph_dummy(g);
    if (ids->dtype != AF_DTYPE_I32 || ids->ndim != 1 || table->ndim != 2)
        return af_graph_bad(g, "embedding: ids %s and table %s are not i32 [N] and [V][D]",
                            af_shape_text(ids, a, sizeof a), af_shape_text(table, b, sizeof b));
    if (!af_dtype_known(out) || !af_dtype_is_float(out) || !af_is_weight(table->dtype))
        return af_graph_bad(g, "embedding: the result cannot be %s with table %s",
                            af_dtype_name(out), af_shape_text(table, b, sizeof b));
    af_expect(ids, AF_VALUE_ROWS, table->dim[0]);
    af_node *n = af_node_new(g, AF_OP_EMBEDDING, (af_tensor *[]){ids, table}, 2);
    return af_node_output(g, n, out, 2, (int64_t[]){ids->dim[0], table->dim[1]});
}

void af_embedding_frozen_row(af_graph *g, af_tensor *y, int64_t id)
{
    if (af_graph_refuses(g, "embedding_frozen_row", &y, 1))
        return;
    if (!y->producer || y->producer->op != AF_OP_EMBEDDING || id < 0 ||
        id >= y->producer->in[1]->dim[0]) {
        af_graph_bad(g, "embedding_frozen_row: there is no row %" PRId64 " in the table of '%s'",
                     id, y->name);
        return;
    }
    y->producer->attr.embedding.frozen = id + 1;
}

static void embedding_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *table = n->in[1];
    af_node *b = af_node_new(g, AF_OP_EMBEDDING_BWD, (af_tensor *[]){n->in[0], dout[0]}, 2);
    af_tensor *d = af_node_output(g, b, af_grad_type(table), 2, table->dim);
    if (af_graph_failed(g))
        return;
    b->attr.embedding.frozen = n->attr.embedding.frozen;
    d->live = NULL; /* V may happen to equal N; it is not the token axis */
    af_grad_add(g, table, d);
}

const af_op_info af_op_embedding = {.name = "embedding", .grad = embedding_grad};
const af_op_info af_op_embedding_bwd = {.name = "embedding_bwd", .accum_out = 1};
