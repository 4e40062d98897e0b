/* row_adapter_cuda.c - launchers of row_adapter.c. */
#include "ops/common/cuda_ops.h"

enum { DOWN_THREADS = 256, UP_THREADS = 128, VEC = 4 /* values or ranks of one access */ };

typedef struct row_parts { /* as in row_adapter.cu */
    int32_t out_from[AF_ADAPTER_PARTS], out_rows[AF_ADAPTER_PARTS], count, ranks;
} row_parts;

static row_parts parts_of(const af_node *n)
{
    row_parts q = {.count = n->attr.linear.parts, .ranks = n->attr.linear.part[0].rank};
    for (int p = 0; p < q.count; p++) {
        q.out_from[p] = (int32_t)n->attr.linear.part[p].out_from;
        q.out_rows[p] = (int32_t)n->attr.linear.part[p].out_rows;
    }
    return q;
}

/* Blocks of several rows read an adapter less often, but there are fewer of them. Ranks of a block
 * and columns of a thread: as in row_adapter.cu. */
static int rows_of(const af_tensor *x) { return af_rows(x) <= 8 ? 1 : af_rows(x) <= 64 ? 4 : 8; }
static int down_ranks(int rows) { return AF_MAX(rows / 2, 1); }
static int up_columns(int rows) { return rows == 1 ? 1 : 4; }

static af_launch *launch(af_cuda *cu, af_node *n, const char *name, bool wide, int64_t blocks,
                         int threads)
{
    const af_tensor *x = n->in[0];
    const int rows = rows_of(x);
    af_kernel *k = af_cuda_kernel(cu, "row_adapter.cu", name,
                                  af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_ROWS=%d",
                                               af_cuda_ctype(x->dtype), wide ? VEC : 1, rows));
    return af_cuda_launch(cu, n, k, (af_rows(x) + rows - 1) / rows, blocks, 1, threads, 0);
}

static af_status down_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *x = n->in[0], *xa = n->out[0];
    const row_parts q = parts_of(n);
    (void)g;
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (af_rows(x) == 0)
        return AF_OK;
    const bool wide = af_cuda_rows_fit(x, VEC) && af_cuda_rows_fit(n->in[2], VEC);
    const int ranks = down_ranks(rows_of(x));
    af_launch *l = launch(cu, n, "row_down", wide, (af_last(xa) + ranks - 1) / ranks, DOWN_THREADS);
    af_arg_ptr(l, xa->data);
    af_arg_i64(l, xa->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_ptr(l, n->in[5]->data);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_i64(l, n->in[2]->ld);
    af_arg_ptr(l, n->in[3]->data);
    af_arg_ptr(l, n->in[4]->data);
    af_arg_i32(l, af_rows(x));
    af_arg_i32(l, af_last(x));
    af_arg_bytes(l, &q, sizeof q);
    return AF_OK;
}

static af_status up_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *y = n->in[0], *xa = n->in[1], *b = n->in[3], *out = n->out[0];
    const row_parts q = parts_of(n);
    (void)g;
    if (!af_cuda_float(y))
        return af_cuda_no_type(n, y, err);
    if (af_rows(y) == 0)
        return AF_OK;
    const bool wide = q.ranks % VEC == 0 && af_cuda_rows_fit(b, VEC) && af_cuda_rows_fit(xa, VEC);
    const int columns = UP_THREADS * up_columns(rows_of(y));
    af_launch *l = launch(cu, n, "row_up", wide, (af_last(y) + columns - 1) / columns, UP_THREADS);
    af_arg_ptr(l, out->data);
    af_arg_i64(l, out->ld);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, xa->data);
    af_arg_i64(l, xa->ld);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_ptr(l, n->in[5]->data);
    af_arg_ptr(l, b->data);
    af_arg_i64(l, b->ld);
    af_arg_ptr(l, n->in[4]->data);
    af_arg_i32(l, af_rows(y));
    af_arg_i32(l, af_last(y));
    af_arg_bytes(l, &q, sizeof q);
    return AF_OK;
}

const af_cuda_op af_cuda_row_down = {down_prepare, NULL, true};
const af_cuda_op af_cuda_row_up = {up_prepare, NULL, true};
