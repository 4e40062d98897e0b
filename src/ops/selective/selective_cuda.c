/* selective_cuda.c - launchers of selective.c. */
#include "ops/common/cuda_ops.h"
#include "ops/selective/selective_in.h"

enum { THREADS = 128, CHUNK = 16, STATES_MAX = 64, SEQS_MAX = 65534 };

/* selective_args of selective.cu */
typedef struct selective_args {
    const void *x, *b, *c, *dt, *a, *bounds;
    int64_t ldx, ldt, ldb, ldc;
    int S, I, n, N;
} selective_args;

static selective_args args_of(const af_selective_inputs *in)
{
    return (selective_args){.x = in->x->data,
                            .b = in->b->data,
                            .c = in->c->data,
                            .dt = in->dt->data,
                            .a = in->a->data,
                            .bounds = in->bounds->data,
                            .ldx = in->x->ld,
                            .ldt = in->dt->ld,
                            .ldb = in->b->ld,
                            .ldc = in->c->ld,
                            .S = (int)in->S,
                            .I = (int)in->I,
                            .n = (int)in->n,
                            .N = (int)af_rows(in->x)};
}

static int64_t blocks_of(const af_selective_inputs *in) { return (in->I + THREADS - 1) / THREADS; }

/* Floats of the workspace of the backward. */
static int64_t part_count(const af_selective_inputs *in)
{
    return blocks_of(in) * in->x->dim[0] * 2 * in->n;
}
static int64_t border_count(const af_selective_inputs *in)
{
    return (in->x->dim[0] / CHUNK + in->S + 1) * in->I * in->n;
}

static af_kernel *kernel(af_cuda *cu, const char *name, const af_selective_inputs *in)
{
    return af_cuda_kernel(cu, "selective.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_NS=%d", af_cuda_ctype(in->x->dtype),
                                       in->n <= 16 ? 16 : STATES_MAX));
}

AF_CHECKED static af_status check(const af_node *n, const af_selective_inputs *in, af_error *err)
{
    if (!af_cuda_float(in->x))
        return af_cuda_no_type(n, in->x, err);
    if (in->n > STATES_MAX || in->S > SEQS_MAX)
        return af_fail(err, AF_EUNSUPPORTED,
                       "the selective scan on CUDA has at most %d states and %d sequences, not "
                       "%" PRId64 " and %" PRId64,
                       STATES_MAX, SEQS_MAX, in->n, in->S);
    return AF_OK;
}

static af_status selective_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_selective_inputs in = af_selective_in(n);
    const selective_args a = args_of(&in);
    const af_status st = check(n, &in, err);
    if (st != AF_OK || a.N == 0)
        return st;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "selective_fwd", &in), blocks_of(&in), in.S + 1,
                                  1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, in.state ? in.state->data : NULL);
    af_arg_ptr(l, in.start ? in.start->data : NULL);
    af_arg_bytes(l, &a, sizeof a);
    return AF_OK;
}

static uint64_t selective_bwd_work(const af_cuda *cu, const af_node *n)
{
    const af_selective_inputs in = af_selective_in(n);
    (void)cu;
    return (uint64_t)(part_count(&in) + border_count(&in) + in.S * in.I * in.n) * sizeof(float);
}

static af_status selective_bwd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g;
    const af_selective_inputs in = af_selective_in(n);
    const selective_args a = args_of(&in);
    const af_status st = check(n, &in, err);
    if (st != AF_OK || a.N == 0)
        return st;
    float *part = (float *)(void *)cu->work, *border = part + part_count(&in),
          *da = border + border_count(&in);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "selective_bwd", &in), blocks_of(&in), in.S + 1,
                                  1, THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_i64(l, n->out[1]->ld);
    af_arg_ptr(l, part);
    af_arg_ptr(l, da);
    af_arg_ptr(l, border);
    af_arg_ptr(l, in.dy->data);
    af_arg_i64(l, in.dy->ld);
    af_arg_bytes(l, &a, sizeof a);
    l = af_cuda_launch(cu, n, kernel(cu, "selective_rows", &in), a.N, 1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[3]->data);
    af_arg_i64(l, n->out[3]->ld);
    af_arg_ptr(l, n->out[4]->data);
    af_arg_i64(l, n->out[4]->ld);
    af_arg_ptr(l, part);
    af_arg_i32(l, blocks_of(&in));
    af_arg_bytes(l, &a, sizeof a);
    l = af_cuda_launch(cu, n, kernel(cu, "selective_a", &in), (in.I * in.n + THREADS - 1) / THREADS,
                       1, 1, THREADS, 0);
    af_arg_ptr(l, n->out[2]->data);
    af_arg_ptr(l, da);
    af_arg_bytes(l, &a, sizeof a);
    return AF_OK;
}

const af_cuda_op af_cuda_selective = {selective_prepare, NULL, true};
const af_cuda_op af_cuda_selective_bwd = {selective_bwd_prepare, selective_bwd_work, true};
const af_cuda_op af_cuda_selective_cached = {selective_prepare, NULL, true};
