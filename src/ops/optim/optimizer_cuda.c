/* optimizer_cuda.c - launchers of optimizer.c: the norm in two launches, an update in one per
 * group.
 */
#include "ops/optim/optim_cuda.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"
#include "ops/ranks/rank_cuda.h"

enum { THREADS = 256, FINAL_THREADS = 1024 };

static af_kernel *kernel(af_cuda *cu, const char *name)
{
    return af_cuda_kernel(cu, "optimizer.cu", name, "");
}

static bool has_bf16(const af_node *n) { return n->in[0]->dtype == AF_DTYPE_BF16; }

AF_CHECKED static af_status check(const af_node *n, af_error *err)
{
    const bool adam = n->op == AF_OP_ADAM || n->op == AF_OP_ADAM_8BIT;
    if (n->in[0]->dtype != AF_DTYPE_F32 && !(adam && has_bf16(n)))
        return af_fail(err, AF_EUNSUPPORTED, "%s on CUDA works on f32 parameters, not on %s",
                       af_ops[n->op]->name, af_dtype_name(n->in[0]->dtype));
    return AF_OK;
}

static int64_t norm_parts(const af_graph *g)
{
    return AF_MAX((g->shard.cut[g->shard.ranks] + AF_NORM_PIECE - 1) / AF_NORM_PIECE, INT64_C(1));
}

/* Where a piece of several ranks lies, after a sum for each piece: it is read four at a time. */
static uint64_t shared_piece(const af_graph *g)
{
    return AF_ALIGN_UP((uint64_t)norm_parts(g) * sizeof(double), (uint64_t)16);
}

static uint64_t grad_norm_work(const af_cuda *cu, const af_node *n)
{
    (void)cu;
    return shared_piece(n->in[0]->graph) + AF_NORM_PIECE * sizeof(float);
}

static void sum_pieces(af_cuda *cu, af_node *n, double *part, const float *grads, int64_t count)
{
    if (count <= 0)
        return;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "grad_norm_parts"),
                                  (count + AF_NORM_PIECE - 1) / AF_NORM_PIECE, 1, 1, THREADS, 0);
    af_arg_ptr(l, part);
    af_arg_ptr(l, grads);
    af_arg_i64(l, count);
    af_arg_i32(l, AF_NORM_PIECE);
}

/* As split_norm.c: pieces of this rank; those in which a shard ends come together; then the sums of
 * all ranks. */
static void sum_split(af_cuda *cu, af_graph *g, af_node *n, double *part, float *shared)
{
    const af_shard *d = &g->shard;
    const int64_t from = d->cut[d->rank], to = d->cut[d->rank + 1], total = d->cut[d->ranks];
    const int64_t a = (from + AF_NORM_PIECE - 1) / AF_NORM_PIECE,
                  b = to == total ? norm_parts(g) : to / AF_NORM_PIECE;
    const float *own = n->in[0]->data;
    int64_t *cut = af_shard_cuts_of(g, 0, total), *all = af_shard_cuts_of(g, 0, total);
    if (!cut || !all)
        return;
    sum_pieces(cu, n, part + a, own + (a * AF_NORM_PIECE - from),
               AF_MIN(b * AF_NORM_PIECE, to) - a * AF_NORM_PIECE);
    for (int64_t p = -1; af_norm_next_shared(g, &p, cut);) {
        const int64_t at = p * AF_NORM_PIECE + cut[d->rank] - from;
        af_cuda_copy(cu, n, shared + cut[d->rank], own + at,
                     (uint64_t)(cut[d->rank + 1] - cut[d->rank]) * sizeof *own);
        af_cuda_gather_pieces(cu, n, &(af_pieces){shared, sizeof *shared, cut}, 1, d->rank,
                              d->ranks);
        sum_pieces(cu, n, part + p, shared, cut[d->ranks]);
    }
    af_norm_piece_cuts(g, all);
    af_cuda_gather_pieces(cu, n, &(af_pieces){part, sizeof *part, all}, 1, d->rank, d->ranks);
}

static af_status grad_norm_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    const af_status st = check(n, err);
    if (st != AF_OK)
        return st;
    double *part = cu->work;
    if (g->shard.split >= AF_SHARD_GRADIENTS)
        sum_split(cu, g, n, part, (float *)((uint8_t *)cu->work + shared_piece(g)));
    else
        sum_pieces(cu, n, part, in.grads->data, af_count(in.grads));
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, "grad_norm_final"), 1, 1, 1, FINAL_THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, part);
    af_arg_i32(l, norm_parts(g));
    af_arg_f32(l, n->attr.optim.max_norm);
    af_arg_f32(l, AF_CLIP_EPS);
    return AF_OK;
}

/* The inputs every update has; but for 8-bit blocks, ranges begin and end on 4 elements
 * (optimizer.c places them so). */
static af_launch *launch_update(af_cuda *cu, af_node *n, const char *name)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t count = af_count(in.params);
    const bool blocks = n->op == AF_OP_ADAM_8BIT;
    assert(blocks || count % 4 == 0);
    const int64_t grid = blocks ? (count + AF_ADAM_8BIT_BLOCK - 1) / AF_ADAM_8BIT_BLOCK
                                : af_cuda_grid(cu, count / 4, THREADS);
    af_kernel *k = has_bf16(n)
                       ? af_cuda_kernel(cu, "optimizer_bf16.cu", af_cuda_text(cu, "%s_bf16", name),
                                        af_cuda_text(cu, "AF_ROUND=%d", n->attr.optim.rounding))
                       : kernel(cu, name);
    af_launch *l = af_cuda_launch(cu, n, k, grid, 1, 1, THREADS, 0);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    if ((n->op == AF_OP_SGD && n->n_in == 4) || (n->op == AF_OP_ADAPTIVE && n->n_in == 5) ||
        (has_bf16(n) && !in.rest))
        af_arg_ptr(l, NULL); /* no momentum; nothing kept of what is cut off */
    af_arg_i64(l, count);
    return l;
}

static af_status adam_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, n->op == AF_OP_ADAM ? "adam" : "adam_8bit");
    af_arg_betas(l, n);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    if (n->op == AF_OP_ADAM)
        af_arg_i32(l, n->attr.optim.kind == AF_OPTIMIZER_ADAM);
    if (has_bf16(n)) {
        assert(n->attr.optim.from % 8 == 0);
        af_arg_u64(l, n->attr.optim.seed);
        af_arg_i64(l, n->attr.optim.from);
    }
    return AF_OK;
}

static af_status adam_4bit_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    assert(af_count(in.params) % AF_ADAM_4BIT_BLOCK == 0);
    af_launch *l =
        af_cuda_launch(cu, n, kernel(cu, "adam_4bit"), af_count(in.params) / AF_ADAM_4BIT_BLOCK, 1,
                       1, AF_ADAM_4BIT_BLOCK, 0);
    for (int i = 0; i < n->n_in; i++)
        af_arg_ptr(l, n->in[i]->data);
    af_arg_i64(l, af_count(in.params));
    af_arg_betas(l, n);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    return AF_OK;
}

static af_status rmsprop_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, "rmsprop");
    af_arg_f32(l, n->attr.optim.beta2);
    af_arg_f32(l, 1 - n->attr.optim.beta2);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    return AF_OK;
}

static af_status ademamix_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, "ademamix");
    af_arg_betas(l, n);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_f32(l, n->attr.optim.slow_beta);
    af_arg_f32(l, 1 - n->attr.optim.slow_beta);
    af_arg_f32(l, n->attr.optim.slow_share);
    return AF_OK;
}

static af_status adaptive_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, "adaptive");
    af_arg_betas(l, n);
    af_arg_f32(l, n->attr.optim.eps);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_i32(l, (int)n->attr.optim.kind - (int)AF_OPTIMIZER_ADAGRAD);
    return AF_OK;
}

static af_status sgd_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, "sgd");
    af_arg_f32(l, n->attr.optim.momentum);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    af_arg_i32(l, n->attr.optim.nesterov);
    return AF_OK;
}

static af_status lion_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)g;
    const af_status st = check(n, err);
    if (st != AF_OK || af_count(in.params) == 0)
        return st;
    af_launch *l = launch_update(cu, n, "lion");
    af_arg_betas(l, n);
    af_arg_f32(l, n->attr.optim.weight_decay);
    af_arg_f32(l, n->attr.optim.lr_factor);
    return AF_OK;
}

static af_status clear_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    (void)g, (void)err;
    af_cuda_zero(cu, n, n->in[0]->data, af_tensor_bytes(n->in[0]));
    return AF_OK;
}

const af_cuda_op af_cuda_clear = {clear_prepare, NULL, false};
const af_cuda_op af_cuda_grad_norm = {grad_norm_prepare, grad_norm_work, false};
const af_cuda_op af_cuda_sgd = {sgd_prepare, NULL, false};
const af_cuda_op af_cuda_adam = {adam_prepare, NULL, false};
const af_cuda_op af_cuda_adam_8bit = {adam_prepare, NULL, false};
const af_cuda_op af_cuda_adam_4bit = {adam_4bit_prepare, NULL, false};
const af_cuda_op af_cuda_rmsprop = {rmsprop_prepare, NULL, false};
const af_cuda_op af_cuda_ademamix = {ademamix_prepare, NULL, false};
const af_cuda_op af_cuda_adaptive = {adaptive_prepare, NULL, false};
const af_cuda_op af_cuda_lion = {lion_prepare, NULL, false};
