/* adam_mini_cuda.c - launcher of ADAM_MINI (adam_mini_cpu.c): sums of squares, second moments, the
 * update. */
#include "ops/common/cuda_ops.h"
#include "ops/optim/optim_in.h"

enum { THREADS = 256, SPAN = 8192 };

typedef struct mini_launch {
    af_optim_inputs in;
    int64_t blocks, size, spans; /* size: values of a block; spans: ranges of one */
    const char *vec;             /* values of one access */
} mini_launch;

static mini_launch open(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    mini_launch f = {.in = in, .blocks = af_count(in.state[1])};
    f.size = f.blocks ? af_count(in.params) / f.blocks : 0;
    f.spans = (f.size + SPAN - 1) / SPAN;
    const bool whole = f.size % 4 == 0 && (uintptr_t)in.params->data % 16 == 0 &&
                       (uintptr_t)in.grads->data % 16 == 0 &&
                       (uintptr_t)in.state[0]->data % 16 == 0;
    f.vec = whole ? "AF_VEC=4" : "AF_VEC=1";
    return f;
}

static uint64_t adam_mini_work(const af_cuda *cu, const af_node *n)
{
    const mini_launch f = open(n);
    (void)cu;
    return (uint64_t)(f.blocks * f.spans) * sizeof(float);
}

static af_launch *launch(af_cuda *cu, af_node *n, const mini_launch *f, const char *name,
                         int64_t grid)
{
    return af_cuda_launch(cu, n, af_cuda_kernel(cu, "adam_mini.cu", name, f->vec), grid, 1, 1,
                          THREADS, 0);
}

static void launch_moments(af_cuda *cu, af_node *n, const mini_launch *f)
{
    af_launch *l = launch(cu, n, f, "adam_mini_parts", f->blocks * f->spans);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, f->in.grads->data);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, f->size);
    af_arg_i64(l, SPAN);
    af_arg_i32(l, f->spans);
    l = launch(cu, n, f, "adam_mini_moments", (f->blocks + THREADS - 1) / THREADS);
    af_arg_ptr(l, f->in.state[1]->data);
    af_arg_ptr(l, cu->work);
    af_arg_ptr(l, f->in.stats->data);
    af_arg_i64(l, f->blocks);
    af_arg_i64(l, f->size);
    af_arg_i32(l, f->spans);
    af_arg_f32(l, n->attr.optim.beta2);
    af_arg_f32(l, 1 - n->attr.optim.beta2);
}

static void launch_apply(af_cuda *cu, af_node *n, const mini_launch *f)
{
    af_launch *l = launch(cu, n, f, "adam_mini_apply", f->blocks * f->spans);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i64(l, f->size);
    af_arg_i64(l, SPAN);
    af_arg_i32(l, f->spans);
    af_arg_f32(l, n->attr.optim.beta1);
    af_arg_f32(l, 1 - n->attr.optim.beta1);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
}

static af_status adam_mini_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const mini_launch f = open(n);
    (void)g;
    if (f.in.params->dtype != AF_DTYPE_F32)
        return af_cuda_no_type(n, f.in.params, err);
    if (f.size == 0)
        return AF_OK;
    launch_moments(cu, n, &f);
    launch_apply(cu, n, &f);
    return AF_OK;
}

const af_cuda_op af_cuda_adam_mini = {adam_mini_prepare, adam_mini_work, false};
