/* oft_cuda.c - launchers of oft.c. */
#include "ops/common/cuda_ops.h"

enum { THREADS = 256, TILE = 32, ROWS = 128, MATRICES = 3, BACK_MATRICES = 5 }; /* as in oft.cu */
enum { GRID = 1024, PARTS = 64 }; /* thread blocks, and parts of the rows, at most */

static int64_t tiles(int64_t n) { return (n + TILE - 1) / TILE; }

static af_kernel *kernel(af_cuda *cu, const char *name, const af_tensor *x)
{
    return af_cuda_kernel(cu, "oft.cu", name, af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
}

static af_status blocks_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *q = n->in[0], *r = n->out[0];
    if (q->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, q, err);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "oft_blocks", q), r->dim[0], 1, 1, THREADS, 0);
    af_arg_ptr(l, r->data);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, q->data);
    af_arg_i32(l, r->dim[1]);
    af_arg_i32(l, n->attr.oft.last);
    af_arg_i32(l, n->attr.oft.exact);
    return AF_OK;
}

/* Matrices of a block: rows of an odd number of values. */
static uint64_t space(const af_tensor *r, int matrices)
{
    return (uint64_t)(r->dim[0] * r->dim[1] * (r->dim[1] | 1) * matrices) * sizeof(float);
}

static uint64_t blocks_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return space(n->out[0], MATRICES);
}

static af_status blocks_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *q = n->in[0], *r = n->in[1];
    if (q->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, q, err);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "oft_blocks_bwd", q), r->dim[0], 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, q->data);
    af_arg_ptr(l, r->data);
    af_arg_ptr(l, n->in[2]->data);
    af_arg_i32(l, r->dim[1]);
    af_arg_i32(l, n->attr.oft.last);
    af_arg_i32(l, n->attr.oft.exact);
    af_arg_i32(l, n->accumulate);
    return AF_OK;
}

static uint64_t blocks_bwd_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return space(n->in[1], BACK_MATRICES);
}

static af_status rotate_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *r = n->in[1];
    const int64_t size = r->dim[1], N = af_rows(x);
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    if (N == 0)
        return AF_OK;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "oft_rotate", x), (N + ROWS - 1) / ROWS,
                                  af_last(x) / size * tiles(size), 1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, r->data);
    af_arg_i64(l, N);
    af_arg_i64(l, af_last(x));
    af_arg_i32(l, size);
    af_arg_i32(l, r->dim[0] == 1);
    af_arg_i32(l, n->attr.oft.turned);
    return AF_OK;
}

/* dr in parts: by rows, and where a single block serves all, by block. */
typedef struct dr_parts {
    int64_t blocks, per; /* rows */
    int64_t by_rows, count;
} dr_parts;

static dr_parts parts_of(const af_node *n)
{
    const int64_t N = af_rows(n->in[0]), size = n->out[0]->dim[1];
    dr_parts p = {.blocks = af_last(n->in[0]) / size};
    const int64_t wanted = GRID / (p.blocks * tiles(size) * tiles(size));
    const int64_t steps = (N + ROWS - 1) / ROWS;
    p.per = (steps + PARTS - 1) / PARTS;
    p.per = AF_MAX(p.per, wanted ? (steps + wanted - 1) / wanted : steps) * ROWS;
    p.by_rows = AF_MAX((N + p.per - 1) / AF_MAX(p.per, 1), 1);
    p.count = p.by_rows * (n->out[0]->dim[0] == 1 ? p.blocks : 1);
    return p;
}

static af_status rotate_dr_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_tensor *x = n->in[0], *dr = n->out[0];
    const int64_t size = dr->dim[1];
    const dr_parts p = parts_of(n);
    if (!af_cuda_float(x))
        return af_cuda_no_type(n, x, err);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "oft_rotate_dr", x), tiles(size) * tiles(size),
                                  p.blocks, p.by_rows, THREADS, 0);
    af_arg_ptr(l, p.count > 1 ? cu->work : dr->data);
    af_arg_ptr(l, x->data);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i64(l, af_rows(x));
    af_arg_i64(l, af_last(x));
    af_arg_i32(l, size);
    af_arg_i64(l, p.per);
    if (p.count > 1)
        af_cuda_reduce_parts(cu, n, dr, cu->work, af_count(dr), p.count, 1, false);
    return AF_OK;
}

static uint64_t rotate_dr_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    const dr_parts p = parts_of(n);
    return p.count > 1 ? (uint64_t)(p.count * af_count(n->out[0])) * sizeof(float) : 0;
}

const af_cuda_op af_cuda_oft_blocks = {blocks_prepare, blocks_work, false};
const af_cuda_op af_cuda_oft_blocks_bwd = {blocks_bwd_prepare, blocks_bwd_work, false};
const af_cuda_op af_cuda_oft_rotate = {rotate_prepare, NULL, false};
const af_cuda_op af_cuda_oft_rotate_dr = {rotate_dr_prepare, rotate_dr_work, false};
