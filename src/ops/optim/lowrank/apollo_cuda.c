/* apollo_cuda.c - launcher of APOLLO (apollo_cpu.c): the projection is drawn into the workspace,
 * the projected gradient is a GEMM, then moments and scales, the limit, the update. */
#include "ops/common/cuda_ops.h"
#include "ops/linear/linear_cuda.h"
#include "ops/optim/lowrank/apollo.h"

#include <math.h>

enum { THREADS = 256, PARTS = 1024 };

typedef struct apollo_launch {
    af_optim_inputs in;
    af_apollo_shape s;
    int64_t count;
    /* in the workspace */
    float *projection, *low, *scale, *squares, *part, *factor;
} apollo_launch;

static float *take(uint8_t *work, uint64_t *at, int64_t count)
{
    float *p = work ? (float *)(work + *at) : NULL;
    *at += AF_ALIGN_UP((uint64_t)count * sizeof(float), (uint64_t)256);
    return p;
}

static apollo_launch open(const af_node *n, void *work, uint64_t *bytes)
{
    apollo_launch a = {.in = af_optim_in(n), .s = af_apollo_shape_of(n)};
    uint64_t at = 0;
    a.count = a.s.R * a.s.C;
    a.projection = take(work, &at, a.s.width * a.s.rank);
    a.low = take(work, &at, a.s.channels * a.s.rank);
    a.scale = take(work, &at, a.s.channels);
    a.squares = take(work, &at, 2 * a.s.channels);
    a.part = take(work, &at, PARTS);
    a.factor = take(work, &at, 1);
    *bytes = at;
    return a;
}

static uint64_t apollo_work(const af_cuda *cu, const af_node *n)
{
    uint64_t bytes;
    (void)cu;
    open(n, NULL, &bytes);
    return bytes;
}

static af_launch *launch(af_cuda *cu, af_node *n, const char *name, int64_t grid)
{
    return af_cuda_launch(cu, n, af_cuda_kernel(cu, "apollo.cu", name, ""), grid, 1, 1, THREADS, 0);
}

static void launch_projection(af_cuda *cu, af_node *n, const apollo_launch *a)
{
    const af_apollo_shape *s = &a->s;
    const int64_t values = s->width * s->rank;
    af_launch *l = launch(cu, n, "apollo_draw", af_cuda_grid(cu, (values + 3) / 4, THREADS));
    af_arg_ptr(l, a->projection);
    af_arg_ptr(l, a->in.hyper->data);
    af_arg_u64(l, n->attr.optim.seed);
    af_arg_u64(l, af_lowrank_stream(n));
    af_arg_i64(l, values);
    af_arg_f32(l, 1 / sqrt((double)s->rank));
    af_cuda_add_gemm(cu, n,
                     &(af_cuda_gemm){.a = {a->in.grads->data, s->R, s->C, s->C, AF_DTYPE_F32},
                                     .b = {a->projection, s->width, s->rank, s->rank, AF_DTYPE_F32},
                                     .c = {a->low, s->channels, s->rank, s->rank, AF_DTYPE_F32},
                                     .ta = !s->tall,
                                     .alpha = 1});
}

static void launch_scales(af_cuda *cu, af_node *n, const apollo_launch *a)
{
    const double b1 = n->attr.optim.beta1, b2 = n->attr.optim.beta2;
    af_launch *l = launch(cu, n, "apollo_moments", af_cuda_grid(cu, a->s.channels * 32, THREADS));
    af_arg_ptr(l, a->scale);
    af_arg_ptr(l, a->squares);
    af_arg_ptr(l, a->low);
    af_arg_ptr(l, a->in.state[0]->data);
    af_arg_ptr(l, a->in.state[1]->data);
    af_arg_ptr(l, a->in.stats->data);
    af_arg_i64(l, a->s.channels);
    af_arg_i32(l, a->s.rank);
    af_arg_f32(l, b1);
    af_arg_f32(l, 1 - b1);
    af_arg_f32(l, b2);
    af_arg_f32(l, 1 - b2);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, AF_APOLLO_EPS);
    if (!n->attr.optim.per_tensor)
        return;
    l = launch(cu, n, "apollo_one_scale", 1);
    af_arg_ptr(l, a->scale);
    af_arg_ptr(l, a->squares);
    af_arg_i64(l, a->s.channels);
    af_arg_f32(l, AF_APOLLO_EPS);
}

/* Elements, their columns, and where their scales are. */
static void add_layout(af_launch *l, const af_node *n, const apollo_launch *a)
{
    const bool one = n->attr.optim.per_tensor;
    af_arg_i64(l, a->count);
    af_arg_i64(l, a->s.C);
    af_arg_i32(l, !one && a->s.tall);
    af_arg_i32(l, !one && !a->s.tall);
}

static void launch_update(af_cuda *cu, af_node *n, const apollo_launch *a)
{
    const int64_t all = af_cuda_grid(cu, a->count, THREADS), parts = AF_MIN(all, (int64_t)PARTS);
    const double root = sqrt(n->attr.optim.scale);
    af_launch *l = launch(cu, n, "apollo_norm", parts);
    af_arg_ptr(l, a->part);
    af_arg_ptr(l, a->in.grads->data);
    af_arg_ptr(l, a->scale);
    af_arg_ptr(l, a->in.stats->data);
    add_layout(l, n, a);
    l = launch(cu, n, "apollo_limit", 1);
    af_arg_ptr(l, a->factor);
    af_arg_ptr(l, a->in.state[2]->data);
    af_arg_ptr(l, a->part);
    af_arg_ptr(l, a->in.stats->data);
    af_arg_i32(l, parts);
    af_arg_f32(l, root);
    af_arg_f32(l, n->attr.optim.scale_front ? root : 1);
    af_arg_f32(l, AF_APOLLO_GROWTH);
    af_arg_f32(l, AF_APOLLO_EPS);
    l = launch(cu, n, "apollo_apply", all);
    af_arg_ptr(l, a->in.params->data);
    af_arg_ptr(l, a->in.grads->data);
    af_arg_ptr(l, a->scale);
    af_arg_ptr(l, a->factor);
    af_arg_ptr(l, a->in.hyper->data);
    af_arg_ptr(l, a->in.stats->data);
    add_layout(l, n, a);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
}

static af_status apollo_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    uint64_t bytes;
    const apollo_launch a = open(n, cu->work, &bytes);
    (void)g;
    if (a.in.params->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, a.in.params, err);
    if (a.count == 0)
        return AF_OK;
    launch_projection(cu, n, &a);
    launch_scales(cu, n, &a);
    launch_update(cu, n, &a);
    return AF_OK;
}

const af_cuda_op af_cuda_apollo = {apollo_prepare, apollo_work, false};
