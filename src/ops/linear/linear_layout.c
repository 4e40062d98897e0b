/* linear_layout.c - before offsets are assigned: which projections share a matrix, which
 * activations get spare columns, which adapter values lie in them. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "ops/common/weight_type.h"
#include "ops/linear/fp8_cuda.h"
#include "ops/linear/linear_cuda.h"

static bool is_linear(af_op op) { return op == AF_OP_LINEAR || op == AF_OP_LINEAR_DX; }

static bool reads(const af_node *n, const af_tensor *t)
{
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] == t)
            return true;
    return false;
}

/* What the graph does with a tensor, found in one pass. */
typedef struct uses {
    bool viewed; /* another tensor is a view of it */
    bool fixed;  /* some adjacent op requires packed rows */
    bool other;  /* read by something else than a projection */
    int last;    /* position of the last node around it, -1 = none */
    int narrow;  /* low-rank GEMMs that read it, or have others' results in its spare columns */
} uses;

static void note_use(uses *u, const af_node *n, bool input)
{
    u->last = n->at;
    u->fixed |= af_ops[n->op]->view || !af_cuda_ops[n->op]->strided;
    u->other |= input && !is_linear(n->op) && n->op != AF_OP_DORA_NORM;
}

/* By tensor, for those there are now. */
static uses *find_uses(const af_graph *g)
{
    uses *u = af_calloc((uint64_t)g->n_tensors + 1, sizeof *u);
    for (int i = 0; u && i < g->n_tensors; i++)
        u[i].last = -1;
    for (int i = 0; u && i < g->n_tensors; i++)
        if (g->tensors[i]->base)
            u[g->tensors[i]->base->id].viewed = true;
    for (int i = 0; u && i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in; k++)
            note_use(&u[n->in[k]->id], n, true);
        for (int k = 0; k < n->n_out; k++)
            note_use(&u[n->out[k]->id], n, false);
        const af_tensor *xa = n->op == AF_OP_LINEAR ? af_linear_in(n).xa : NULL;
        const bool copies = xa && xa->producer->in[0] != n->in[0]; /* into the spare columns */
        if (n->op == AF_OP_ADAPTER_DOWN || n->op == AF_OP_ADAPTER_G || copies)
            u[n->in[0]->id].narrow++;
    }
    return u;
}

/* ---- groups ---- */

/* The same values: one tensor, or what two nodes gathered of one. */
static bool same_source(const af_tensor *a, const af_tensor *b)
{
    if (a->base && b->base)
        return a == b || (af_gathered_from(a->base) == af_gathered_from(b->base) &&
                          a->base_offset == b->base_offset && af_same_shape(a, b));
    return af_gathered_from(a) == af_gathered_from(b);
}

static bool same_weights(const af_linear_group *p, const af_node *n, const af_linear_inputs *in)
{
    if (p->pieces != n->attr.linear.pieces)
        return false;
    for (int i = 0; i < p->pieces; i++)
        if (!same_source(p->w[i], in->w[i]))
            return false;
    return true;
}

/* A LINEAR_DX through the weights alone, or through the adapter alone: half of what p has. */
static bool serves_half(const af_linear_group *p, const af_node *n)
{
    const af_linear_inputs in = af_linear_in(n);
    if (n->op != AF_OP_LINEAR_DX || p->type != n->in[0]->dtype || p->of->op == AF_OP_HEAD_LOSS)
        return false;
    return n->attr.linear.pieces == 0 ? p->a == in.a
                                      : n->attr.linear.parts == 0 && same_weights(p, n, &in) &&
                                            p->fp8 == n->attr.linear.fp8;
}

static bool serves(const af_linear_group *p, const af_node *n)
{
    if (n->op == AF_OP_HEAD_LOSS)
        return p->of->op == AF_OP_HEAD_LOSS && same_source(p->w[0], n->in[1]) &&
               p->type == n->in[0]->dtype;
    const af_linear_inputs in = af_linear_in(n);
    switch (n->op) {
    case AF_OP_LINEAR:
    case AF_OP_LINEAR_DX:
        return same_weights(p, n, &in) && p->a == in.a && p->type == n->in[0]->dtype &&
               p->of->op != AF_OP_HEAD_LOSS && p->fp8 == n->attr.linear.fp8;
    case AF_OP_ADAPTER_DOWN:
        return p->a == in.a && p->type == in.x->dtype;
    case AF_OP_ADAPTER_G:
        return p->b == in.b && p->type == in.dy->dtype;
    default:
        return false;
    }
}

af_linear_groups *af_linear_groups_of(const af_graph *g)
{
    return *af_cuda_slot(g, &af_cuda_linear_family);
}

const af_linear_group *af_linear_group_of(const af_graph *g, const af_node *n)
{
    const af_linear_groups *all = af_linear_groups_of(g);
    for (int i = 0; i < all->n; i++)
        if (serves(&all->group[i], n))
            return &all->group[i];
    for (int i = 0; i < all->n; i++)
        if (serves_half(&all->group[i], n))
            return &all->group[i];
    return NULL;
}

static void describe_head(af_linear_group *p, const af_node *n)
{
    *p = (af_linear_group){.of = n,
                           .w = {n->in[1]},
                           .pieces = 1,
                           .I = af_last(n->in[1]),
                           .O = n->in[1]->dim[0],
                           .type = n->in[0]->dtype};
}

static void describe_linear(af_linear_group *p, const af_node *n)
{
    const af_linear_inputs in = af_linear_in(n);
    *p = (af_linear_group){.of = n,
                           .pieces = n->attr.linear.pieces,
                           .parts = n->attr.linear.parts,
                           .I = af_last(in.x),
                           .O = n->attr.linear.out,
                           .a = in.a,
                           .b = in.b,
                           .type = in.x->dtype,
                           .fp8 = n->attr.linear.fp8};
    for (int i = 0; i < p->pieces; i++) {
        p->w[i] = in.w[i];
        p->bias_in[i] = in.bias[i];
    }
    if (p->parts) {
        p->R = p->a->dim[0];
        p->ext = AF_ALIGN_UP(p->R, (int64_t)AF_FOLD_RANK);
    }
}

/* Do ranks split it? */
static bool is_gathered(const af_tensor *t)
{
    return af_gathered_from(t) != t || (t->base && af_gathered_from(t->base) != t->base);
}

/* May the piece become a view into the group's matrix, or might it if it were not split? */
static bool movable(const uses *u, const af_tensor *t, af_dtype type)
{
    const af_tensor *from = af_gathered_from(t);
    return from->role == AF_ROLE_WEIGHT && !from->base && t->dtype == type && !t->quant &&
           !u[from->id].viewed && !u[t->id].other;
}

static void move_into(af_tensor *t, af_tensor *base, int64_t element)
{
    t->base = base;
    t->base_offset = (uint64_t)element * (uint64_t)af_dtype_get(base->dtype)->bytes;
    if (t->ndim > 1)
        t->ld = base->ld;
}

static void make_bias(af_graph *g, const uses *u, af_linear_group *p)
{
    bool any = false;
    for (int i = 0; i < p->pieces; i++)
        any |= p->bias_in[i] != NULL;
    if (!any)
        return;
    for (int i = 0; i < p->pieces; i++)
        p->gathered |= p->bias_in[i] && is_gathered(p->bias_in[i]);
    if (p->gathered)
        return;
    p->bias = af_leaf(g, AF_ROLE_WEIGHT, "", p->type, 1, (int64_t[]){p->O});
    for (int i = 0; i < p->pieces && !af_graph_failed(g); i++)
        if (p->bias_in[i] && movable(u, p->bias_in[i], p->type))
            move_into(p->bias_in[i], p->bias, p->of->attr.linear.piece_from[i]);
}

static void make_matrix(af_graph *g, const uses *u, af_linear_group *p)
{
    bool plain = p->parts == 0, can_move = true;
    int64_t covered = 0;
    for (int i = 0; i < p->pieces; i++) {
        p->scratch |= is_gathered(p->w[i]);
        plain &= p->w[i]->dtype == p->type;
        p->quant |= af_is_coded(p->w[i]->dtype);
        can_move &= movable(u, p->w[i], p->type);
        covered += p->w[i]->dim[0];
    }
    p->direct = plain && covered == p->O && (p->pieces == 1 || (!can_move && !p->fp8));
    p->scratch &= !p->direct;
    if (p->direct || p->scratch)
        return;
    p->fused =
        af_leaf(g, AF_ROLE_WEIGHT, "", p->type, 2, (int64_t[]){p->O + p->ext, p->I + p->ext});
    for (int i = 0; i < p->pieces && !af_graph_failed(g); i++)
        if (movable(u, p->w[i], p->type))
            move_into(p->w[i], p->fused,
                      (p->of->op == AF_OP_HEAD_LOSS ? 0 : p->of->attr.linear.piece_from[i]) *
                          p->fused->ld);
}

/* Copies of A and B where no matrix holds them all the time. */
static void make_narrow(af_graph *g, af_linear_group *p)
{
    const int64_t ranks = AF_ALIGN_UP(p->R, (int64_t)16);
    bool four = p->parts && p->pieces && p->R <= AF_FOLD_RANK && p->type == AF_DTYPE_BF16 &&
                p->O % 32 == 0 && p->I % 32 == 0;
    for (int i = 0; i < p->pieces; i++)
        four = four && p->w[i]->quant;
    if (!four)
        return;
    p->bt = af_leaf(g, AF_ROLE_WEIGHT, "", p->type, 2, (int64_t[]){ranks, p->O});
    p->down = af_leaf(g, AF_ROLE_WEIGHT, "", p->type, 2, (int64_t[]){ranks, p->I});
}

static af_status find_groups(const af_cuda *cu, af_graph *g, const uses *u, af_error *err)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += g->nodes[i]->op == AF_OP_LINEAR || g->nodes[i]->op == AF_OP_HEAD_LOSS;
    af_linear_groups *all = af_arena_take(&g->mem, sizeof *all);
    af_linear_group *group = af_arena_take(&g->mem, (uint64_t)(n + 1) * sizeof *group);
    if (!all || !group)
        return af_fail_nomem(err, "the plan", (uint64_t)n * sizeof *group);
    *all = (af_linear_groups){.group = group};
    *af_cuda_slot(g, &af_cuda_linear_family) = all;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *node = g->nodes[i];
        if ((node->op != AF_OP_LINEAR && node->op != AF_OP_HEAD_LOSS) ||
            af_linear_group_of(g, node))
            continue;
        af_linear_group *p = &all->group[all->n++];
        if (node->op == AF_OP_LINEAR)
            describe_linear(p, node);
        else
            describe_head(p, node);
        make_matrix(g, u, p);
        make_bias(g, u, p);
        make_narrow(g, p);
        if (p->fp8 && !af_fp8_cuda_can(cu, p->type, p->I, p->O))
            return af_fail(err, AF_EUNSUPPORTED,
                           "a projection of %s from %" PRId64 " to %" PRId64
                           " columns has no FP8 product on %s",
                           af_dtype_name(p->type), p->I, p->O, cu->name);
        if (p->fp8)
            af_fp8_cuda_leaves(g, p);
    }
    return af_graph_status(g, err);
}

/* ---- spare columns ---- */

/* Every op around t must honour its row stride, and no view may give it another shape. */
static bool can_pad(const uses *u, const af_tensor *t)
{
    return t->role == AF_ROLE_ACTIVATION && !t->base && t->ld == af_last(t) && t->ndim >= 2 &&
           !u[t->id].viewed && !u[t->id].fixed;
}

static void pad(const af_cuda *cu, af_graph *g, const uses *u)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        const af_linear_group *p = is_linear(n->op) ? af_linear_group_of(g, n) : NULL;
        if (!p || !n->attr.linear.parts || !n->attr.linear.pieces || p->R > AF_FOLD_RANK ||
            (cu->test && cu->test->no_fold))
            continue;
        af_tensor *t = n->in[0];
        if (can_pad(u, t))
            t->ld = af_last(t) + p->ext;
    }
}

/* An op that could work in place does so only between equal row strides: the narrower side is
 * padded too. */
static void match_inplace(af_graph *g, const uses *u)
{
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const af_node *n = g->nodes[i];
        const int k = af_ops[n->op]->inplace - 1;
        if (k < 0 || k >= n->n_in || !af_same_shape(n->in[k], n->out[0]) ||
            n->in[k]->ld == n->out[0]->ld || n->in[k]->dtype != n->out[0]->dtype)
            continue;
        af_tensor *narrow = n->in[k]->ld < n->out[0]->ld ? n->in[k] : n->out[0];
        const af_tensor *wide = narrow == n->in[k] ? n->out[0] : n->in[k];
        if (u[n->in[k]->id].last == i && can_pad(u, narrow))
            narrow->ld = wide->ld;
    }
}

static bool one_scale(const af_node *n)
{
    for (int i = 1; i < n->attr.linear.parts; i++)
        if (n->attr.linear.part[i].scale != n->attr.linear.part[0].scale)
            return false;
    return true;
}

/* The node's result may lie in the spare columns of its input when that lives as long (or a few
 * nodes less), no other node writes there, and every GEMM that reads it reads it from there. */
static bool can_share(const af_graph *g, const uses *u, const af_node *n, const af_linear_group *p)
{
    const af_tensor *x = n->in[0], *xa = n->out[0];
    if (x->ld < af_last(x) + p->ext || !one_scale(n) || xa->keep || u[x->id].narrow != 1 ||
        u[xa->id].last > u[x->id].last + 3)
        return false;
    for (int i = n->at; i <= u[xa->id].last; i++)
        if (is_linear(g->nodes[i]->op) && reads(g->nodes[i], xa) && g->nodes[i]->in[0] != x)
            return false;
    return true;
}

static void share(af_graph *g, const uses *u)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (n->op != AF_OP_ADAPTER_DOWN && n->op != AF_OP_ADAPTER_G)
            continue;
        const af_linear_group *p = af_linear_group_of(g, n);
        if (p && can_share(g, u, n, p)) {
            move_into(n->out[0], n->in[0], af_last(n->in[0]));
            n->out[0]->ld = n->in[0]->ld;
        }
    }
}

/* A result that lies elsewhere is as wide, and its rows as aligned, as in the spare columns: the
 * same GEMMs, with the same alignment for their algorithms, in every mode. */
static void widen(af_graph *g, const uses *u)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (n->op != AF_OP_ADAPTER_DOWN && n->op != AF_OP_ADAPTER_G)
            continue;
        const af_linear_group *p = af_linear_group_of(g, n);
        if (p && p->R <= AF_FOLD_RANK && one_scale(n) && can_pad(u, n->out[0]))
            n->out[0]->ld = p->ext;
    }
}

/* Matrices of block-type weights are filled into the workspace at each use: those of 4-bit weights,
 * or of all types. */
static void use_scratch(af_linear_groups *all, bool all_types)
{
    for (int i = 0; i < all->n; i++) {
        af_linear_group *p = &all->group[i];
        bool every = p->quant, four = false;
        for (int k = 0; k < p->pieces; k++) {
            every &= af_is_coded(p->w[k]->dtype); /* a dense piece lives in the matrix */
            four |= p->w[k]->quant != NULL;
        }
        if (!every || !(four || all_types) || p->scratch)
            continue;
        p->scratch = true;
        p->fused->dim[0] = 0; /* takes no memory of its own */
    }
}

static af_status layout(af_cuda *cu, af_graph *g, af_error *err)
{
    af_cuda_graph *cg = g->backend;
    uses *u = find_uses(g);
    if (!u)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_tensors * sizeof *u);
    const af_status st = find_groups(cu, g, u, err);
    if (st == AF_OK) {
        pad(cu, g, u);
        match_inplace(g, u);
        share(g, u);
        widen(g, u);
        af_fp8_cuda_join(g);
        af_linear_groups *all = af_linear_groups_of(g);
        for (int i = 0; i < all->n; i++)
            cg->plan.can_shrink |= all->group[i].quant;
        use_scratch(all, cu->test && cu->test->scratch);
    }
    free(u);
    return st;
}

static void shrink(af_cuda *cu, af_graph *g)
{
    (void)cu;
    use_scratch(af_linear_groups_of(g), true);
}

const af_cuda_family af_cuda_linear_family = {
    .layout = layout, .shrink = shrink, .prepare = af_cuda_linear_prepare};

static uint64_t matrix_bytes(const af_linear_group *p)
{
    return p->scratch ? (uint64_t)(p->O + p->ext) * (uint64_t)(p->I + p->ext) *
                            (uint64_t)af_dtype_get(p->type)->bytes
                      : 0;
}

static uint64_t bias_offset(const af_linear_group *p)
{
    return AF_ALIGN_UP(matrix_bytes(p), (uint64_t)256);
}

uint64_t af_linear_group_scratch(const af_linear_group *p)
{
    if (!p || !p->gathered)
        return p ? matrix_bytes(p) : 0;
    return bias_offset(p) + (uint64_t)p->O * (uint64_t)af_dtype_get(p->type)->bytes;
}

void *af_linear_group_bias(const af_cuda *cu, const af_linear_group *p, int64_t from)
{
    uint8_t *base = p->gathered ? (uint8_t *)cu->work + bias_offset(p)
                    : p->bias   ? p->bias->data
                                : NULL;
    return base ? base + (uint64_t)from * (uint64_t)af_dtype_get(p->type)->bytes : NULL;
}
