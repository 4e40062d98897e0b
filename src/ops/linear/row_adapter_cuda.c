/* row_adapter_cuda.c - launchers of row_adapter.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256, WARPS = 8 };

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

static af_launch *launch(af_cuda *cu, af_node *n, const char *name, int64_t blocks)
{
    const af_tensor *x = n->in[0];
    af_kernel *k = af_cuda_kernel(cu, "row_adapter.cu", name,
                                  af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
    return af_cuda_launch(cu, n, k, af_rows(x), blocks, 1, THREADS, 0);
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
    af_launch *l = launch(cu, n, "row_down", (af_last(xa) + WARPS - 1) / WARPS);
    af_arg_ptr(l, xa->data);
    af_arg_i64(l, xa->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_i64(l, n->in[2]->ld);
    af_arg_ptr(l, n->in[3]->data);
    af_arg_ptr(l, n->in[4]->data);
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
    af_launch *l = launch(cu, n, "row_up", (af_last(y) + THREADS - 1) / THREADS);
    af_arg_ptr(l, out->data);
    af_arg_i64(l, out->ld);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, xa->data);
    af_arg_i64(l, xa->ld);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_ptr(l, b->data);
    af_arg_i64(l, b->ld);
    af_arg_ptr(l, n->in[4]->data);
    af_arg_i32(l, af_last(y));
    af_arg_bytes(l, &q, sizeof q);
    return AF_OK;
}

const af_cuda_op af_cuda_row_down = {down_prepare, NULL, true};
const af_cuda_op af_cuda_row_up = {up_prepare, NULL, true};
