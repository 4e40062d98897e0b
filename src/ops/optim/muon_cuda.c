/* muon_cuda.c - launcher of MUON (muon_cpu.c): one matrix per node, its iterations as GEMMs in f32
 * over the workspace. */
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { THREADS = 256, PARTS = 256 };

typedef struct muon_launch {
    af_optim_inputs in;
    int64_t R, C, k, count;
    float *x, *y, *a, *b, *part; /* in the workspace */
} muon_launch;

static muon_launch open(const af_node *n, void *work)
{
    const af_optim_inputs in = af_optim_in(n);
    muon_launch m = {.in = in, .R = in.params->dim[0], .C = in.params->dim[1]};
    m.k = AF_MIN(m.R, m.C);
    m.count = m.R * m.C;
    const int64_t whole = AF_ALIGN_UP(m.count, (int64_t)64),
                  square = AF_ALIGN_UP(m.k * m.k, (int64_t)64);
    if (work) {
        m.x = work;
        m.y = m.x + whole;
        m.a = m.y + whole;
        m.b = m.a + square;
        m.part = m.b + square;
    }
    return m;
}

static uint64_t muon_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    const muon_launch m = open(n, NULL);
    return (uint64_t)(2 * AF_ALIGN_UP(m.count, (int64_t)64) +
                      2 * AF_ALIGN_UP(m.k * m.k, (int64_t)64) + PARTS) *
           sizeof(float);
}

static af_mat matrix(float *x, int64_t rows, int64_t cols)
{
    return (af_mat){x, rows, cols, cols, AF_DTYPE_F32};
}

static int64_t grid(const af_cuda *cu, const muon_launch *m)
{
    return AF_MIN(af_cuda_grid(cu, m->count, THREADS), (int64_t)PARTS);
}

/* x = (g + mu m) / norm */
static void launch_direction(af_cuda *cu, af_node *n, const muon_launch *m)
{
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "muon.cu", "muon_direction", ""),
                                  grid(cu, m), 1, 1, THREADS, 0);
    af_arg_ptr(l, m->x);
    af_arg_ptr(l, m->in.state[0]->data);
    af_arg_ptr(l, m->in.grads->data);
    af_arg_ptr(l, m->in.stats->data);
    af_arg_ptr(l, m->part);
    af_arg_i64(l, m->count);
    af_arg_f32(l, n->attr.optim.momentum);
    l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "muon.cu", "muon_normalise", ""), grid(cu, m), 1,
                       1, THREADS, 0);
    af_arg_ptr(l, m->x);
    af_arg_ptr(l, m->part);
    af_arg_i32(l, grid(cu, m));
    af_arg_i64(l, m->count);
    af_arg_f32(l, AF_MUON_EPS);
}

/* y = next of x */
static void launch_iteration(af_cuda *cu, af_node *n, const muon_launch *m, float *x, float *y)
{
    const bool tall = m->R > m->C;
    const af_mat X = matrix(x, m->R, m->C), Y = matrix(y, m->R, m->C), A = matrix(m->a, m->k, m->k),
                 B = matrix(m->b, m->k, m->k);
    af_cuda_add_gemm(cu, n,
                     &(af_cuda_gemm){.a = X, .b = X, .c = A, .ta = tall, .tb = !tall, .alpha = 1});
    af_cuda_copy_2d(cu, n, B, A, m->k, 1);
    af_cuda_add_gemm(
        cu, n,
        &(af_cuda_gemm){
            .a = A, .b = A, .c = B, .alpha = (float)AF_MUON_C, .beta = (float)AF_MUON_B});
    af_cuda_copy_2d(cu, n, Y, X, m->C, 1);
    af_cuda_add_gemm(
        cu, n,
        &(af_cuda_gemm){
            .a = tall ? X : B, .b = tall ? B : X, .c = Y, .alpha = 1, .beta = (float)AF_MUON_A});
}

static af_status muon_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const muon_launch m = open(n, cu->work);
    if (m.in.params->dtype != AF_DTYPE_F32)
        return af_fail(err, AF_EUNSUPPORTED, "muon on CUDA works on f32 parameters, not on %s",
                       af_dtype_name(m.in.params->dtype));
    if (m.count == 0)
        return AF_OK;
    launch_direction(cu, n, &m);
    for (int s = 0; s < AF_MUON_STEPS; s++)
        launch_iteration(cu, n, &m, s % 2 ? m.y : m.x, s % 2 ? m.x : m.y);
    af_launch *l = af_cuda_launch(cu, n, af_cuda_kernel(cu, "muon.cu", "muon_apply", ""),
                                  af_cuda_grid(cu, m.count, THREADS), 1, 1, THREADS, 0);
    af_arg_ptr(l, m.in.params->data);
    af_arg_ptr(l, m.in.grads->data);
    af_arg_ptr(l, AF_MUON_STEPS % 2 ? m.y : m.x);
    af_arg_ptr(l, m.in.hyper->data);
    af_arg_ptr(l, m.in.stats->data);
    af_arg_i64(l, m.count);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_f32(l, AF_MUON_RMS * sqrt((double)AF_MAX(m.R, m.C)));
    return AF_OK;
}

const af_cuda_op af_cuda_muon = {muon_prepare, muon_work, false};
