/* optimizer_matrix.c - updates that see a matrix (or a vector) as a whole: nodes of their own, and
 * states that one rank has all of. */
#include "ops/optim/optim_in.h"
#include "tensor/dtype.h"

void af_optim_set_attr(af_node *n, const af_optimizer_opts *o, const af_tensor *first)
{
    n->attr.optim.kind = o->kind;
    n->attr.optim.beta1 = o->beta1;
    n->attr.optim.beta2 = o->beta2;
    n->attr.optim.eps = o->eps;
    n->attr.optim.momentum = o->momentum;
    n->attr.optim.nesterov = o->nesterov;
    n->attr.optim.slow_beta = o->slow_beta;
    n->attr.optim.slow_share = o->slow_share;
    n->attr.optim.bf16 = o->bf16;
    n->attr.optim.max_norm = o->max_grad_norm;
    n->attr.optim.lr_factor = first->lr_factor;
    n->attr.optim.weight_decay = first->decay ? o->weight_decay : 0;
    n->attr.optim.rounding = o->rounding;
    n->attr.optim.seed = o->seed;
    n->attr.optim.rank = o->rank;
    n->attr.optim.scale = o->scale;
    n->attr.optim.per_tensor = o->per_tensor;
    n->attr.optim.scale_front = o->scale_front;
    n->attr.optim.projection = o->projection;
}

static af_tensor *matrix_state(af_graph *g, const af_tensor *p, int number, const char *what,
                               int64_t count, af_dtype type)
{
    char name[64];
    snprintf(name, sizeof name, "optimizer.%d.%s", number, what);
    return af_state_part_new(
        g, &(af_state_part){
               .name = name, .dtype = type, .full = count, .from = p->flat, .matrix = true});
}

/* A state of `count` elements: f32 of a bf16 parameter. */
static af_tensor *matrix_moment(af_graph *g, const af_tensor *p, int number, const char *what,
                                int64_t count)
{
    return matrix_state(g, p, number, what, count, af_grad_type(p));
}

/* The node with one or two states (b may be NULL), unless they are another rank's. */
static void add_update(af_graph *g, const af_optimizer_opts *o, af_op op, af_tensor *p,
                       af_tensor *grad, af_tensor *a, af_tensor *b)
{
    af_tensor *in[] = {p, grad, g->hyper, g->stats, a, b};
    if (!af_graph_failed(g) && a)
        af_optim_set_attr(af_node_new(g, op, in, b ? 6 : 5), o, p);
}

/* Matrices keep one mean per row and one per column; vectors keep every square (in `row`). */
static void update_factored(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                            int i)
{
    const int64_t cols = af_last(p), rows = af_rows(p);
    const bool matrix = p->ndim >= 2;
    const int64_t batches = matrix && p->dim[p->ndim - 2] ? rows / p->dim[p->ndim - 2] : 1;
    af_tensor *row = matrix_moment(g, p, i, "row", matrix ? rows : af_count(p));
    af_tensor *col = matrix_moment(g, p, i, "col", matrix ? batches * cols : 1);
    add_update(g, o, AF_OP_ADAFACTOR, p, grad, row, col);
}

static void update_muon(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                        int i)
{
    add_update(g, o, AF_OP_MUON, p, grad, matrix_moment(g, p, i, "momentum", af_count(p)), NULL);
}

/* A second moment for each block of neighbours. */
static void update_mini(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                        int i)
{
    const int64_t count = af_count(p), block = p->moment_block ? p->moment_block : count;
    af_tensor *m = matrix_moment(g, p, i, "m", count);
    af_tensor *v = matrix_moment(g, p, i, "v", block ? count / block : 0);
    add_update(g, o, AF_OP_ADAM_MINI, p, grad, m, v);
}

static void update_stable(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                          int i)
{
    af_tensor *m = matrix_moment(g, p, i, "m", af_count(p));
    af_tensor *v = matrix_moment(g, p, i, "v", af_count(p));
    add_update(g, o, AF_OP_STABLE_ADAMW, p, grad, m, v);
}

/* Moments of the projected gradient, and the length of the last update. */
static void update_apollo(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                          int i)
{
    const int64_t low = AF_MAX(p->dim[0], p->dim[1]) * o->rank;
    af_tensor *m = matrix_moment(g, p, i, "m", low);
    af_tensor *v = matrix_moment(g, p, i, "v", low);
    af_tensor *norm = matrix_moment(g, p, i, "norm", 1);
    if (af_graph_failed(g) || !m)
        return;
    af_node *n =
        af_node_new(g, AF_OP_APOLLO, (af_tensor *[]){p, grad, g->hyper, g->stats, m, v, norm}, 7);
    af_optim_set_attr(n, o, p);
    n->attr.optim.number = i;
}

/* Moments of the projected gradient, and the vectors that project it. */
static void update_galore(af_graph *g, const af_optimizer_opts *o, af_tensor *p, af_tensor *grad,
                          int i)
{
    const af_galore_shape s = af_galore_shape_for(p->dim[0], p->dim[1], o->rank, o->projection);
    af_tensor *in[9] = {p, grad, g->hyper, g->stats};
    int n_in = 4;
    in[n_in++] = matrix_moment(g, p, i, "m", s.low * s.rank);
    in[n_in++] = matrix_moment(g, p, i, "v", s.low * s.rank);
    if (s.right)
        in[n_in++] = matrix_moment(g, p, i, "right", s.C * s.rank);
    if (s.left)
        in[n_in++] = matrix_moment(g, p, i, "left", s.R * s.rank);
    if (o->rounding == AF_ROUNDING_KAHAN)
        in[n_in++] = matrix_state(g, p, i, "rest", af_count(p), AF_DTYPE_BF16);
    if (af_graph_failed(g) || !in[4])
        return;
    af_node *n = af_node_new(g, AF_OP_GALORE, in, n_in);
    af_optim_set_attr(n, o, p);
    n->attr.optim.number = i;
    n->attr.optim.from = p->flat;
}

/* A matrix of a parameter (or its gradient) of several, `from` elements in. */
static af_tensor *part_of(af_graph *g, af_tensor *whole, const int64_t *dim, int64_t from)
{
    af_tensor *t = af_leaf(g, whole->role, "", whole->dtype, 2, dim);
    if (af_graph_failed(g))
        return NULL;
    t->base = whole->base;
    t->base_offset =
        whole->base_offset + (uint64_t)from * (uint64_t)af_dtype_get(whole->dtype)->bytes;
    t->flat = whole->flat + from;
    t->lr_factor = whole->lr_factor;
    t->decay = whole->decay;
    return t;
}

int af_optim_update_matrices(af_graph *g, const af_optimizer_opts *o, af_tensor *p, int number)
{
    void (*update)(af_graph *, const af_optimizer_opts *, af_tensor *, af_tensor *, int) =
        o->kind == AF_OPTIMIZER_MUON           ? update_muon
        : o->kind == AF_OPTIMIZER_APOLLO       ? update_apollo
        : o->kind == AF_OPTIMIZER_GALORE       ? update_galore
        : o->kind == AF_OPTIMIZER_ADAM_MINI    ? update_mini
        : o->kind == AF_OPTIMIZER_STABLE_ADAMW ? update_stable
                                               : update_factored;
    /* a matrix has one owner: own_grad is all of its gradient, or the update is another's */
    af_tensor *all = g->shard.pass && p->own_grad ? p->own_grad : p->grad;
    if (!p->parts)
        update(g, o, p, all, number++);
    int64_t from = 0;
    for (int i = 0; i < p->parts && !af_graph_failed(g); i++) {
        af_tensor *w = part_of(g, p, p->part[i], from);
        af_tensor *grad = part_of(g, all, p->part[i], from);
        if (w && grad)
            update(g, o, w, grad, number++);
        from += p->part[i][0] * p->part[i][1];
    }
    return number;
}
