/* row_adapter.c - low-rank terms of adapters that are chosen per row.
 *
 * ROW_DOWN  x [N][I], which i32 [N], a f32 [C][P R][I], scale f32 [C*P], rank i32 [C*P], order
 *           -> xa f32 [N][P R] = scale[c,p] * x a[c]^T with c = which[n], the first rank[c,p] of
 *           the R columns of each part p; the others, and rows with c = -100, are undefined
 * ROW_UP    y [N][O], xa, which, b f32 [C][..], rank, order -> y + xa b^T, in the columns of each
 *           part; in place
 * attr.linear.part[p]: output columns, rank_from = p R, rank = R. The base's GEMM is shared by all
 * rows; these read what each row's adapter has. */
#include "ops/linear/row_adapter.h"

#include "graph/node.h"

static bool is_of_rows(const af_tensor *t, const af_tensor *x)
{
    return t->ndim == 1 && t->dim[0] == x->dim[0] && t->dtype == AF_DTYPE_I32;
}

static bool check(af_graph *g, const af_tensor *y, const af_tensor *x, const af_row_choice *rows,
                  const af_row_adapter *o)
{
    const int64_t C = o->a->dim[0], P = o->parts, R = o->ranks;
    int64_t values = 0;
    bool fits = P > 0 && P <= AF_ADAPTER_PARTS && R > 0 && y->ndim == 2 && x->ndim == 2 &&
                x->dim[0] == y->dim[0] && is_of_rows(rows->which, x) && is_of_rows(rows->order, x);
    for (int p = 0; fits && p < P; p++) {
        values += o->part[p].out_rows * R;
        fits = o->part[p].out_from >= 0 && o->part[p].out_from + o->part[p].out_rows <= y->dim[1];
    }
    fits = fits && o->a->ndim == 3 && o->a->dim[1] == P * R && o->a->dim[2] == x->dim[1] &&
           o->b->ndim == 2 && o->b->dim[0] == C && o->b->dim[1] == values &&
           o->a->dtype == AF_DTYPE_F32 && o->b->dtype == AF_DTYPE_F32 &&
           o->scale->dtype == AF_DTYPE_F32 && o->rank->dtype == AF_DTYPE_I32 &&
           o->scale->ndim == 1 && o->scale->dim[0] == C * P && o->rank->ndim == 1 &&
           o->rank->dim[0] == C * P;
    if (!fits)
        af_graph_bad(g, "row_adapters: tensors of %" PRId64 " adapters do not fit each other", C);
    return fits;
}

static void set_attr(af_node *n, const af_row_adapter *o, int64_t out)
{
    n->attr.linear.parts = o->parts;
    n->attr.linear.out = out;
    n->attr.linear.few_rows = true;
    for (int p = 0; p < o->parts; p++) {
        n->attr.linear.part[p] = o->part[p];
        n->attr.linear.part[p].rank_from = p * o->ranks;
        n->attr.linear.part[p].rank = o->ranks;
    }
}

af_tensor *af_row_adapters(af_graph *g, af_tensor *y, af_tensor *x, const af_row_choice *rows,
                           const af_row_adapter *o)
{
    af_tensor *which = rows->which, *order = rows->order;
    af_tensor *all[] = {y, x, which, order, o->a, o->b, o->scale, o->rank};
    if (af_graph_refuses(g, "row_adapters", all, 8) || !check(g, y, x, rows, o))
        return af_graph_dummy(g);
    af_expect(which, AF_VALUE_LABELS, o->a->dim[0]);
    af_expect(order, AF_VALUE_ROWS, x->dim[0]);
    af_expect(o->rank, AF_VALUE_ROWS, o->ranks + 1);
    af_node *n = af_node_new(g, AF_OP_ROW_DOWN,
                             (af_tensor *[]){x, which, o->a, o->scale, o->rank, order}, 6);
    set_attr(n, o, y->dim[1]);
    af_tensor *xa =
        af_node_output(g, n, AF_DTYPE_F32, 2, (int64_t[]){x->dim[0], (int64_t)o->parts * o->ranks});
    if (af_graph_failed(g))
        return xa;
    n = af_node_new(g, AF_OP_ROW_UP, (af_tensor *[]){y, xa, which, o->b, o->rank, order}, 6);
    set_attr(n, o, y->dim[1]);
    return af_node_output_like(g, n, y);
}

static double flops(const af_node *n)
{
    const bool down = n->op == AF_OP_ROW_DOWN;
    const double N = (double)n->in[0]->dim[0], R = (double)af_last(down ? n->out[0] : n->in[1]);
    return 2 * N * R * (double)(down ? af_last(n->in[0]) : n->attr.linear.out);
}

const af_op_info af_op_row_down = {.name = "row_down", .flops = flops};
const af_op_info af_op_row_up = {.name = "row_up", .flops = flops, .inplace = 1};
