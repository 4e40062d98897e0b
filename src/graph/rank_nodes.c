/* rank_nodes.c - nodes that exchange with other ranks, placed among the nodes that compute.
 *
 * A split gradient is summed over the ranks right after the last node that adds to it: no rank
 * holds more whole gradients than the backward pass has in work. Every rank has the same nodes in
 * the same order, so that the exchanges meet. */
#include "graph/graph_test.h"
#include "graph/node.h"
#include "tensor/dtype.h"

#include <stdlib.h>

enum {
    CUT_UNIT = 64,     /* elements: pieces of whole gradients begin on a multiple */
    BUCKET = 32 << 20, /* bytes of whole gradients that are summed together, at least */
};

/* A range of the flat gradients that is whole after node after - 1. */
typedef struct bucket {
    int after;
    int64_t from, to;
} bucket;

/* Where the sums of gradients go. */
typedef struct sum_places {
    af_graph *g;
    af_tensor **param; /* by the id of its gradient; NULL = no gradient */
    int *at;           /* by the same id: 1 + the last node that writes it; 0 = none */
    int *begin;        /* likewise, the first one */
    af_node **order;
    int n;
    bucket *bucket;
    int buckets;
} sum_places;

static void note_write(sum_places *s, const af_node *n, int id)
{
    if (!s->param[id])
        return;
    s->at[id] = n->at + 1;
    s->begin[id] = s->begin[id] ? s->begin[id] : n->at + 1;
}

static void note_writes(sum_places *s, const af_node *n)
{
    if (n->op == AF_OP_ACCUM)
        note_write(s, n, n->in[0]->id);
    for (int k = 0; k < n->n_out; k++)
        note_write(s, n, n->out[k]->id);
}

static void find_places(sum_places *s)
{
    af_graph *g = s->g;
    int forward = 0; /* the gradients of a head are made there, and summed by the backward pass */
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad)
            s->param[g->tensors[i]->grad->id] = g->tensors[i];
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        note_writes(s, n);
        if (n->phase == AF_PHASE_FORWARD)
            forward = i + 1;
        if (n->op == AF_OP_ACCUM && n->first && s->param[n->in[0]->id]) /* what it writes */
            n->out[n->n_out++] = n->in[0];
    }
    for (int i = 0; i < g->n_tensors; i++)
        if (s->at[i])
            s->at[i] = AF_MAX(s->at[i], forward);
}

static af_node *rank_node(af_graph *g, af_op op, af_tensor *const *in, int n_in, int rank,
                          int ranks, const int64_t *cut)
{
    af_node *n = af_node_new(g, op, in, n_in);
    n->attr.ranks.rank = rank;
    n->attr.ranks.ranks = ranks;
    n->attr.ranks.cut = cut;
    return n;
}

/* p's gradient summed over the ranks: this rank's piece goes to its own gradients. */
static af_node *sum_node(af_graph *g, af_tensor *p)
{
    const int before = g->n_nodes;
    int64_t *cut = af_shard_cuts_of(g, p->flat, p->flat + af_count(p));
    if (!cut)
        return NULL;
    af_node *n = rank_node(g, AF_OP_RANK_SUM, (af_tensor *[]){p->grad, p->own_grad},
                           p->own_grad ? 2 : 1, g->shard.rank, g->shard.ranks, cut);
    g->n_nodes = before; /* its place is another */
    n->phase = AF_PHASE_BACKWARD;
    return n;
}

/* p's gradient, zero before the first node adds to it. */
static af_node *clear_node(af_graph *g, af_tensor *p, af_phase phase)
{
    const int before = g->n_nodes;
    af_node *n = af_node_new(g, AF_OP_CLEAR, &p->grad, 1);
    g->n_nodes = before;
    n->phase = phase;
    n->out[n->n_out++] = p->grad;
    return n;
}

static void place_clears(sum_places *s, const af_node *before)
{
    for (int i = 0; i < s->g->n_tensors && !s->g->one_pass && !af_graph_failed(s->g); i++)
        if (s->begin[i] == before->at + 1)
            s->order[s->n++] = clear_node(s->g, s->param[i], before->phase);
}

static void place_sums(sum_places *s, int after)
{
    for (int i = 0; i < s->g->n_tensors && !af_graph_failed(s->g); i++)
        if (s->at[i] == after)
            s->order[s->n++] = sum_node(s->g, s->param[i]);
}

/* ---- whole gradients ---- */

/* Equal pieces of `count` elements. */
static int64_t *even_cuts(af_graph *g, int64_t count)
{
    int64_t *cut = af_arena_take(&g->mem, ((uint64_t)g->ranks + 1) * sizeof *cut);
    const int64_t units = (count + CUT_UNIT - 1) / CUT_UNIT;
    if (!cut)
        af_fail_nomem(&g->err, "ranks", (uint64_t)g->ranks * sizeof *cut);
    for (int r = 0; cut && r <= g->ranks; r++)
        cut[r] = AF_MIN((units + g->ranks - 1) / g->ranks * r * CUT_UNIT, count);
    return cut;
}

static void sum_and_join(af_graph *g, af_tensor *x, af_node *made[2])
{
    const int64_t *cut = even_cuts(g, af_count(x));
    for (int k = 0; k < 2 && !af_graph_failed(g); k++)
        made[k] = rank_node(g, k ? AF_OP_RANK_JOIN : AF_OP_RANK_SUM, &x, 1, g->rank, g->ranks, cut);
}

static int by_place(const void *a, const void *b)
{
    const af_tensor *const *x = a, *const *y = b;
    return ((*x)->flat > (*y)->flat) - ((*x)->flat < (*y)->flat);
}

/* The backward pass makes the gradients of the last parameters first: neighbours in the flat
 * gradients are whole at about the same time. */
static void fill_buckets(sum_places *s)
{
    af_graph *g = s->g;
    int n = 0;
    af_tensor **p = af_calloc((uint64_t)g->n_tensors + 1, sizeof *p);
    s->bucket = af_calloc((uint64_t)g->n_tensors + 1, sizeof *s->bucket);
    if (!p || !s->bucket)
        af_fail_nomem(&g->err, "a graph", (uint64_t)g->n_tensors * sizeof *p);
    for (int i = 0; p && i < g->n_tensors; i++)
        if (g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad)
            p[n++] = g->tensors[i];
    if (p)
        qsort(p, (size_t)n, sizeof *p, by_place);
    bucket b = {.to = af_count(g->grads_flat)};
    const int64_t least = g->test && g->test->bucket ? (int64_t)g->test->bucket : BUCKET;
    for (int i = n - 1; i >= 0 && !af_graph_failed(g); i--) {
        b.from = p[i]->flat;
        b.after = AF_MAX(b.after, s->at[p[i]->grad->id]);
        if (i > 0 && (b.to - b.from) * (int64_t)sizeof(float) < least)
            continue;
        s->bucket[s->buckets++] = b;
        b = (bucket){.to = b.from};
    }
    free(p);
}

static void place_buckets(sum_places *s, int after)
{
    af_graph *g = s->g;
    for (int i = 0; i < s->buckets && !af_graph_failed(g); i++) {
        const bucket *b = &s->bucket[i];
        af_node *made[2] = {NULL, NULL};
        const int before = g->n_nodes;
        if (b->after != after)
            continue;
        af_tensor *x =
            af_leaf(g, AF_ROLE_GRADIENT, "", g->grads_flat->dtype, 1, (int64_t[]){b->to - b->from});
        if (af_graph_failed(g))
            return;
        x->base = g->grads_flat;
        x->base_offset = (uint64_t)b->from * sizeof(float);
        sum_and_join(g, x, made);
        g->n_nodes = before; /* their place is another */
        for (int k = 0; k < 2 && made[k]; k++) {
            made[k]->phase = AF_PHASE_BACKWARD;
            s->order[s->n++] = made[k];
        }
    }
}

/* The nodes of af_graph_sum_whole, which buckets take the place of. */
static bool is_replaced(const af_graph *g, const af_node *n)
{
    return g->sums_early && (n->op == AF_OP_RANK_SUM || n->op == AF_OP_RANK_JOIN) &&
           n->in[0] == g->grads_flat;
}

void af_graph_sum_ranks(af_graph *g)
{
    if ((!g->shard.pass && !g->sums_early) || af_graph_failed(g))
        return;
    const int n = g->n_nodes;
    const uint64_t tensors = (uint64_t)g->n_tensors + 1;
    sum_places s = {.g = g};
    s.param = af_calloc(tensors, sizeof *s.param);
    s.at = af_calloc(tensors, sizeof *s.at);
    s.begin = af_calloc(tensors, sizeof *s.begin);
    s.order = af_calloc((uint64_t)n + 2 * tensors, sizeof *s.order); /* two more a parameter */
    if (!s.param || !s.at || !s.begin || !s.order)
        af_fail_nomem(&g->err, "a graph", (uint64_t)n * sizeof *s.order);
    else
        find_places(&s);
    if (g->sums_early && !af_graph_failed(g))
        fill_buckets(&s);
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        if (g->shard.pass)
            place_clears(&s, g->nodes[i]);
        if (!is_replaced(g, g->nodes[i]))
            s.order[s.n++] = g->nodes[i];
        if (g->shard.pass)
            place_sums(&s, i + 1);
        else
            place_buckets(&s, i + 1);
    }
    if (af_graph_failed(g))
        free(s.order);
    else
        af_graph_take_order(g, s.order, s.n, n + 2 * (int)tensors);
    free(s.param);
    free(s.at);
    free(s.begin);
    free(s.bucket);
}

void af_graph_set_ranks(af_graph *g, int rank, int ranks)
{
    if (af_graph_failed(g))
        return;
    if (rank < 0 || rank >= ranks || g->optimized) {
        af_graph_bad(g, "rank %d of %d, or after the optimizer", rank, ranks);
        return;
    }
    g->rank = rank;
    g->ranks = ranks;
}

void af_graph_sum_whole(af_graph *g)
{
    af_node *made[2];
    if (g->ranks > 1 && g->shard.split < AF_SHARD_GRADIENTS && !af_graph_failed(g))
        sum_and_join(g, g->grads_flat, made);
}

void af_graph_join_params(af_graph *g)
{
    if (g->ranks > 1 && g->shard.split >= AF_SHARD_STATE && g->shard.split < AF_SHARD_PARAMS &&
        !af_graph_failed(g))
        rank_node(g, AF_OP_RANK_JOIN, &g->params_flat, 1, g->rank, g->ranks, g->shard.cut);
}

static int run_of(const af_node *n)
{
    static const int bit[] = {[AF_PHASE_FORWARD] = AF_RUN_FORWARD,
                              [AF_PHASE_BACKWARD] = AF_RUN_BACKWARD,
                              [AF_PHASE_UPDATE] = AF_RUN_UPDATE};
    return n->phase == AF_PHASE_CARRY ? 0 : bit[n->phase];
}

void af_graph_exchanges(const af_graph *g, int what, af_exchanged_fn *fn, void *user)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (run_of(n) != what)
            continue;
        if (n->op == AF_OP_RANK_SUM || n->op == AF_OP_RANK_JOIN)
            fn(user, n->attr.ranks.cut, af_dtype_get(n->in[0]->dtype)->bytes,
               n->op == AF_OP_RANK_JOIN);
        else if (n->op == AF_OP_RANK_GATHER)
            for (int k = 0; k < n->n_in; k++)
                fn(user, n->in[k]->cut, 1, true);
        else if (n->op == AF_OP_GRAD_NORM && g->shard.split >= AF_SHARD_GRADIENTS)
            af_norm_exchanges(g, fn, user);
    }
}
