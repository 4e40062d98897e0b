/* dora_cuda.c - launcher of DORA_NORM (linear.c): one launch per piece. */
#include "backend/cuda/cuda_graph.h"
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/linear/linear_in.h"

enum { ROWS = 8, THREADS = 128 }; /* as in dora.cu */

typedef struct dora_part { /* as in dora.cu */
    int32_t out_from, out_rows, rank_from, rank;
    float scale;
    int32_t pad;
    int64_t at;
} dora_part;

/* The rows of A that they have, all together. */
static int64_t describe(const af_node *n, dora_part part[AF_ADAPTER_PARTS])
{
    int64_t at = 0, ranks = 0;
    memset(part, 0, AF_ADAPTER_PARTS * sizeof *part);
    for (int i = 0; i < n->attr.linear.parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        part[i] = (dora_part){.out_from = (int32_t)q->out_from,
                              .out_rows = (int32_t)q->out_rows,
                              .rank_from = q->rank_from,
                              .rank = q->rank,
                              .scale = q->scale,
                              .at = at};
        at += q->out_rows * q->rank;
        ranks = AF_MAX(ranks, (int64_t)q->rank_from + q->rank);
    }
    return ranks;
}

/* Values of one access: four where each row of W and of A begins on a whole one. */
static int width(const af_mat *w, const af_tensor *a)
{
    const uint64_t bytes = (uint64_t)af_dtype_get(w->dtype)->bytes * 4;
    const bool whole = w->cols % 4 == 0 && w->ld % 4 == 0 && (uintptr_t)w->data % bytes == 0 &&
                       (!a || (uintptr_t)a->data % 16 == 0);
    return whole ? 4 : 1;
}

/* A quantised piece passes through the workspace, in the type its values are rounded to. */
static af_mat readable(af_cuda *cu, af_node *n, const af_tensor *w)
{
    if (af_cuda_float(w))
        return af_mat_of(w);
    const af_dtype t = w->quant && w->quant->round == AF_DTYPE_BF16 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    const af_mat m = {cu->work, w->dim[0], w->dim[1], w->dim[1], t};
    af_cuda_dequantise(cu, n, m, w);
    return m;
}

static af_status dora_norm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    dora_part part[AF_ADAPTER_PARTS];
    const int parts = n->attr.linear.parts;
    const af_linear_inputs in = af_linear_in(n);
    if (n->out[0]->dtype != AF_DTYPE_F32 ||
        (parts && (in.a->dtype != AF_DTYPE_F32 || in.b->dtype != AF_DTYPE_F32)))
        return af_fail(err, AF_EUNSUPPORTED, "dora_norm on the GPU: adapters are f32");
    const int64_t ranks = describe(n, part);
    for (int i = 0; i < n->attr.linear.pieces; i++) {
        const af_mat w = readable(cu, n, in.w[i]);
        af_kernel *k = af_cuda_kernel(cu, "dora.cu", "dora_norm",
                                      af_cuda_text(cu, "AF_T=%s AF_VEC=%d", af_cuda_ctype(w.dtype),
                                                   width(&w, parts ? in.a : NULL)));
        af_launch *l = af_cuda_launch(cu, n, k, (w.rows + ROWS - 1) / ROWS, 1, 1, THREADS,
                                      (uint64_t)ranks * ROWS * sizeof(float));
        af_arg_ptr(l, n->out[0]->data);
        af_arg_mat(l, w);
        af_arg_i64(l, n->attr.linear.piece_from[i]);
        af_arg_i64(l, w.rows);
        af_arg_i64(l, w.cols);
        af_arg_ptr(l, parts ? in.a->data : NULL);
        af_arg_ptr(l, parts ? in.b->data : NULL);
        af_arg_i32(l, ranks);
        af_arg_i32(l, parts);
        af_arg_bytes(l, part, sizeof part);
    }
    return AF_OK;
}

static uint64_t dora_norm_work(const af_cuda *cu, const af_node *n)
{
    uint64_t most = 0;
    (void)cu;
    for (int i = 0; i < n->attr.linear.pieces; i++)
        if (!af_cuda_float(n->in[i]))
            most = AF_MAX(most, (uint64_t)af_count(n->in[i]) * 4);
    return most;
}

const af_cuda_op af_cuda_dora_norm = {dora_norm_prepare, dora_norm_work, true};
