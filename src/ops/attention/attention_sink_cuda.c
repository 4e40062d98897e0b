/* attention_sink_cuda.c - launchers of attention_sink (attention.c). */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256 /* 32 * WARPS of attention_sink.cu */, ROWS_PER_PART = 16, PARTS_MAX = 256 };

AF_CHECKED static af_status check(const af_node *n, af_error *err)
{
    if (!af_cuda_float(n->in[0]))
        return af_cuda_no_type(n, n->in[0], err);
    return af_cuda_float(n->in[2]) ? AF_OK : af_cuda_no_type(n, n->in[2], err);
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_node *n, int vec)
{
    return af_cuda_kernel(cu, "attention_sink.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_W=%s",
                                       af_cuda_ctype(n->in[0]->dtype), vec,
                                       af_cuda_ctype(n->in[2]->dtype)));
}

/* `other`: the second matrix of the type of o that is read or written along it. */
static int vec_of(const af_node *n, const af_tensor *other)
{
    const int wide = af_cuda_wide(n->in[0]);
    return n->attr.attention.head_dim % wide == 0 && af_cuda_rows_fit(n->in[0], wide) &&
                   af_cuda_rows_fit(other, wide)
               ? wide
               : 1;
}

static af_status sink_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_status st = check(n, err);
    const af_tensor *o = n->in[0], *y = n->out[0];
    const int H = n->attr.attention.heads, E = n->attr.attention.head_dim;
    const int64_t heads = af_rows(o) * H;
    if (st != AF_OK || heads == 0)
        return st;
    const int vec = vec_of(n, y), lanes = af_cuda_lanes(E, vec);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "attention_sink", n, vec),
                                  (heads * lanes + THREADS - 1) / THREADS, 1, 1, THREADS, 0);
    af_arg_ptr(l, y->data);
    af_arg_ptr(l, n->out[1]->data);
    for (int i = 0; i < 3; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i64(l, heads);
    af_arg_i32(l, H);
    af_arg_i32(l, E);
    af_arg_i64(l, y->ld);
    af_arg_i64(l, o->ld);
    af_arg_i32(l, lanes);
    return AF_OK;
}

static int64_t parts_of(const af_node *n)
{
    return AF_MAX(AF_MIN(af_rows(n->in[0]) / ROWS_PER_PART, (int64_t)PARTS_MAX), INT64_C(1));
}

static uint64_t sink_bwd_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(parts_of(n) * n->attr.attention.heads) * sizeof(float);
}

static af_status sink_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK)
        return st;
    const af_tensor *o = n->in[0], *dy = n->in[3];
    const int64_t rows = af_rows(o), parts = parts_of(n), H = n->attr.attention.heads;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "attention_sink_bwd", n, vec_of(n, dy)), parts,
                                  1, 1, THREADS, 0);
    af_arg_ptr(l, cu->work);
    for (int i = 0; i < 4; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i64(l, rows);
    af_arg_i32(l, H);
    af_arg_i32(l, n->attr.attention.head_dim);
    af_arg_i64(l, o->ld);
    af_arg_i64(l, dy->ld);
    af_arg_i64(l, (rows + parts - 1) / parts);
    af_cuda_reduce_parts(cu, n, n->out[0], cu->work, H, parts, 1, false);
    return AF_OK;
}

const af_cuda_op af_cuda_attention_sink = {sink_prepare, NULL, true};
const af_cuda_op af_cuda_attention_sink_bwd = {sink_bwd_prepare, sink_bwd_work, true};
