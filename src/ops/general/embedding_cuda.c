/* embedding_cuda.c - launchers of embedding.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 128, GATHER_THREADS = 256, LIST_ROWS = 8, VEC = 8 };

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *y, const af_tensor *table)
{
    const bool fits =
        af_cuda_rows_fit(y, VEC) && af_cuda_rows_fit(table, VEC) && table->dtype != AF_DTYPE_F16;
    return af_cuda_kernel(cu, "embedding.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_W=%s AF_VEC=%d", af_cuda_ctype(y->dtype),
                                       af_cuda_ctype(table->dtype), fits ? VEC : 1));
}

/* Rows of a table in a block type. */
static void launch_gather(af_cuda *cu, af_node *n)
{
    const af_tensor *ids = n->in[0], *table = n->in[1], *y = n->out[0];
    const bool four = table->dtype == AF_DTYPE_NF4 || table->dtype == AF_DTYPE_FP4;
    const af_quant *q = table->quant;
    af_kernel *k =
        af_cuda_kernel(cu, "dequant.cu", af_cuda_text(cu, "%s_gather", af_dtype_name(table->dtype)),
                       af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(y->dtype)));
    af_launch *l = af_cuda_launch(cu, n, k, af_cuda_grid(cu, af_count(y) / VEC + 1, GATHER_THREADS),
                                  1, 1, GATHER_THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, table->data);
    if (four) {
        assert(q);
        af_arg_ptr(l, q->absmax->data);
        af_arg_ptr(l, q->nested ? q->nested->data : NULL);
        af_arg_f32_late(cu, l, &af_gathered_from(table)->quant->offset);
    }
    af_arg_ptr(l, ids->data);
    af_arg_i64(l, af_rows(y));
    af_arg_i64(l, af_last(y));
    if (four) {
        af_arg_i32(l, q->block);
        af_arg_i32(l, q->nested_block);
        af_arg_i32(l, q->round == AF_DTYPE_BF16);
    }
}

static af_status embedding_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *ids = n->in[0], *table = n->in[1], *y = n->out[0];
    if (!af_cuda_float(y))
        return af_cuda_no_type(n, y, err);
    if (af_rows(y) == 0)
        return AF_OK;
    if (af_dtype_is_block(table->dtype)) {
        launch_gather(cu, n);
        return AF_OK;
    }
    if (!af_cuda_float(table))
        return af_cuda_no_type(n, table, err);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "embedding_fwd", y, table), af_rows(y), 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, ids->data);
    af_arg_ptr(l, table->data);
    af_arg_i32(l, af_last(y));
    af_arg_i64(l, y->ld);
    return AF_OK;
}

static uint64_t embedding_bwd_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)n->in[0]->dim[0] * 2 * sizeof(int32_t);
}

static af_status embedding_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *ids = n->in[0], *dy = n->in[1], *d = n->out[0];
    if (!af_cuda_float(dy))
        return af_cuda_no_type(n, dy, err);
    if (d->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, d, err);
    const int64_t N = ids->dim[0];
    int32_t *first = cu->work, *next = first + N;
    if (!n->accumulate)
        af_cuda_zero(cu, n, d->data, (uint64_t)af_count(d) * sizeof(float));
    if (N == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "embedding_lists", dy, d),
                                  (N + LIST_ROWS - 1) / LIST_ROWS, 1, 1, LIST_ROWS * 32, 0);
    af_arg_ptr(l, first);
    af_arg_ptr(l, next);
    af_arg_ptr(l, ids->data);
    af_arg_i32(l, N);
    af_arg_i32(l, n->attr.embedding.frozen - 1);
    l = af_cuda_launch(cu, n, kernel(cu, "embedding_bwd", dy, d), N, 1, 1, THREADS, 0);
    af_arg_ptr(l, d->data);
    af_arg_ptr(l, first);
    af_arg_ptr(l, next);
    af_arg_ptr(l, ids->data);
    af_arg_ptr(l, dy->data);
    af_arg_i32(l, d->dim[1]);
    af_arg_i64(l, dy->ld);
    return AF_OK;
}

const af_cuda_op af_cuda_embedding = {embedding_prepare, NULL, true};
const af_cuda_op af_cuda_embedding_bwd = {embedding_bwd_prepare, embedding_bwd_work, true};
