/* stable_adamw_cuda.c - launcher of STABLE_ADAMW (stable_adamw_cpu.c): moments and sums of ranges,
 * the learning rate of the matrix, the update. */
#include "ops/common/cuda_ops.h"
#include "ops/optim/optim_in.h"

enum { THREADS = 256, SPAN = 8192 };

typedef struct stable_launch {
    af_optim_inputs in;
    int64_t count, spans;
    const char *vec; /* values of one access */
    float *rate;     /* in the work memory, before the sums */
} stable_launch;

static int64_t spans_of(const af_node *n) { return (af_count(n->in[0]) + SPAN - 1) / SPAN; }

static uint64_t stable_adamw_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return (uint64_t)(spans_of(n) + 4) * sizeof(float);
}

static af_launch *launch(af_cuda *cu, af_node *n, const stable_launch *f, const char *name,
                         int64_t grid)
{
    return af_cuda_launch(cu, n, af_cuda_kernel(cu, "stable_adamw.cu", name, f->vec), grid, 1, 1,
                          THREADS, 0);
}

static void launch_rate(af_cuda *cu, af_node *n, const stable_launch *f)
{
    af_launch *l = launch(cu, n, f, "stable_adamw_moments", f->spans);
    af_arg_ptr(l, f->rate + 4);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.hyper->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_ptr(l, f->in.state[0]->data);
    af_arg_ptr(l, f->in.state[1]->data);
    af_arg_i64(l, f->count);
    af_arg_i64(l, SPAN);
    af_arg_f32(l, n->attr.optim.eps);
    l = launch(cu, n, f, "stable_adamw_rate", 1);
    af_arg_ptr(l, f->rate);
    af_arg_ptr(l, f->rate + 4);
    af_arg_ptr(l, f->in.hyper->data);
    af_arg_i64(l, f->spans);
    af_arg_i64(l, f->count);
    af_arg_f32(l, n->attr.optim.lr_factor);
}

static void launch_apply(af_cuda *cu, af_node *n, const stable_launch *f)
{
    af_launch *l = launch(cu, n, f, "stable_adamw_apply", f->spans);
    af_arg_ptr(l, f->in.params->data);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_ptr(l, f->in.state[0]->data);
    af_arg_ptr(l, f->in.state[1]->data);
    af_arg_ptr(l, f->rate);
    af_arg_i64(l, f->count);
    af_arg_i64(l, SPAN);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
}

static af_status stable_adamw_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    stable_launch f = {
        .in = in, .count = af_count(in.params), .spans = spans_of(n), .rate = cu->work};
    bool whole = f.count % 4 == 0;
    (void)g;
    if (in.params->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, in.params, err);
    if (f.count == 0)
        return AF_OK;
    const af_tensor *const all[] = {in.params, in.grads, in.state[0], in.state[1]};
    for (size_t i = 0; i < AF_LEN(all); i++)
        whole &= (uintptr_t)all[i]->data % 16 == 0;
    f.vec = whole ? "AF_VEC=4" : "AF_VEC=1";
    launch_rate(cu, n, &f);
    launch_apply(cu, n, &f);
    return AF_OK;
}

const af_cuda_op af_cuda_stable_adamw = {stable_adamw_prepare, stable_adamw_work, false};
