/* muon_cuda.c - launcher of MUON (muon_cpu.c): one matrix per node, its iterations as GEMMs over
 * the workspace, in bf16 where the graph's optimizer says so. */
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { THREADS = 256, PARTS = 1024 };

typedef struct muon_launch {
    af_optim_inputs in;
    int64_t count;
    bool tall;
    af_mat x, y, a, b; /* in the workspace */
    float *part;       /* after them */
} muon_launch;

/* A matrix at offset *at of the workspace; *at becomes the offset after it. */
static af_mat place(uint8_t *work, uint64_t *at, int64_t rows, int64_t cols, af_dtype type)
{
    const af_mat m = {work ? work + *at : NULL, rows, cols, cols, type};
    *at += AF_ALIGN_UP((uint64_t)(rows * cols) * af_dtype_get(type)->bytes, (uint64_t)256);
    return m;
}

static muon_launch open(const af_node *n, void *work, uint64_t *bytes)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t R = in.params->dim[0], C = in.params->dim[1], k = AF_MIN(R, C);
    const af_dtype type = n->attr.optim.bf16 ? AF_DTYPE_BF16 : AF_DTYPE_F32;
    muon_launch m = {.in = in, .count = R * C, .tall = R > C};
    uint64_t at = 0;
    m.x = place(work, &at, R, C, type);
    m.y = place(work, &at, R, C, type);
    m.a = place(work, &at, k, k, type);
    m.b = place(work, &at, k, k, type);
    m.part = work ? (float *)((uint8_t *)work + at) : NULL;
    *bytes = at + PARTS * sizeof(float);
    return m;
}

static uint64_t muon_work(const af_cuda *cu, const af_node *n)
{
    uint64_t bytes;
    (void)cu;
    open(n, NULL, &bytes);
    return bytes;
}

static af_launch *launch(af_cuda *cu, af_node *n, const muon_launch *m, const char *name,
                         int64_t grid)
{
    const char *type = af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(m->x.dtype));
    return af_cuda_launch(cu, n, af_cuda_kernel(cu, "muon.cu", name, type), grid, 1, 1, THREADS, 0);
}

/* x = (g + mu m) / norm */
static void launch_direction(af_cuda *cu, af_node *n, const muon_launch *m)
{
    const int64_t all = af_cuda_grid(cu, m->count, THREADS), parts = AF_MIN(all, (int64_t)PARTS);
    af_launch *l = launch(cu, n, m, "muon_momentum", parts);
    af_arg_ptr(l, m->in.state[0]->data);
    af_arg_ptr(l, m->in.grads->data);
    af_arg_ptr(l, m->in.stats->data);
    af_arg_ptr(l, m->part);
    af_arg_i64(l, m->count);
    af_arg_f32(l, n->attr.optim.momentum);
    l = launch(cu, n, m, "muon_direction", all);
    af_arg_ptr(l, m->x.data);
    af_arg_ptr(l, m->in.state[0]->data);
    af_arg_ptr(l, m->in.grads->data);
    af_arg_ptr(l, m->in.stats->data);
    af_arg_ptr(l, m->part);
    af_arg_i32(l, parts);
    af_arg_i64(l, m->count);
    af_arg_f32(l, n->attr.optim.momentum);
    af_arg_f32(l, AF_MUON_EPS);
}

/* Y = next of X */
static void add_iteration(af_cuda *cu, af_node *n, const muon_launch *m, af_mat X, af_mat Y)
{
    const bool tall = m->tall;
    const af_mat A = m->a, B = m->b;
    af_cuda_add_gemm(cu, n,
                     &(af_cuda_gemm){.a = X, .b = X, .c = A, .ta = tall, .tb = !tall, .alpha = 1});
    af_cuda_add_gemm(
        cu, n,
        &(af_cuda_gemm){
            .a = A, .b = A, .c = B, .add = A, .alpha = (float)AF_MUON_C, .beta = (float)AF_MUON_B});
    af_cuda_add_gemm(cu, n,
                     &(af_cuda_gemm){.a = tall ? X : B,
                                     .b = tall ? B : X,
                                     .c = Y,
                                     .add = X,
                                     .alpha = 1,
                                     .beta = (float)AF_MUON_A});
}

static af_status muon_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    uint64_t bytes;
    const muon_launch m = open(n, cu->work, &bytes);
    const af_tensor *w = m.in.params;
    if (w->dtype != AF_DTYPE_F32)
        return af_fail(err, AF_EUNSUPPORTED, "muon on CUDA works on f32 parameters, not on %s",
                       af_dtype_name(w->dtype));
    if (m.count == 0)
        return AF_OK;
    launch_direction(cu, n, &m);
    for (int s = 0; s < AF_MUON_STEPS; s++)
        add_iteration(cu, n, &m, s % 2 ? m.y : m.x, s % 2 ? m.x : m.y);
    af_launch *l = launch(cu, n, &m, "muon_apply", af_cuda_grid(cu, m.count, THREADS));
    af_arg_ptr(l, w->data);
    af_arg_ptr(l, m.in.grads->data);
    af_arg_ptr(l, AF_MUON_STEPS % 2 ? m.y.data : m.x.data);
    af_arg_ptr(l, m.in.hyper->data);
    af_arg_ptr(l, m.in.stats->data);
    af_arg_i64(l, m.count);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_f32(l, AF_MUON_RMS * sqrt((double)AF_MAX(w->dim[0], w->dim[1])));
    return AF_OK;
}

const af_cuda_op af_cuda_muon = {muon_prepare, muon_work, false};
