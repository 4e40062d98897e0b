/* rank_nodes.c - nodes that exchange with other ranks, placed among the nodes that compute.
 *
 * A split gradient is summed over the ranks right after the last node that adds to it: no rank
 * holds more whole gradients than the backward pass has in work. Every rank has the same nodes in
 * the same order, so that the exchanges meet. */
#include "graph/node.h"

enum { CUT_UNIT = 64 }; /* elements: pieces of whole gradients begin on a multiple */

/* Where the sums of gradients go. */
typedef struct sum_places {
    af_graph *g;
    af_tensor **param; /* by the id of its gradient; NULL = no gradient */
    int *at;           /* by the same id: 1 + the last node that writes it; 0 = none */
    int *begin;        /* likewise, the first one */
    af_node **order;
    int n;
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
    const int64_t first = (int64_t)(p->base_offset / sizeof(float));
    int64_t *cut = af_shard_cuts_of(g, first, first + af_count(p));
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

void af_graph_sum_ranks(af_graph *g)
{
    if (!g->shard.pass || af_graph_failed(g))
        return;
    const int n = g->n_nodes;
    const uint64_t tensors = (uint64_t)g->n_tensors + 1;
    sum_places s = {.g = g};
    s.param = af_calloc(tensors, sizeof *s.param);
    s.at = af_calloc(tensors, sizeof *s.at);
    s.begin = af_calloc(tensors, sizeof *s.begin);
    s.order = af_calloc((uint64_t)n + 2 * tensors, sizeof *s.order);
    if (!s.param || !s.at || !s.begin || !s.order)
        af_fail_nomem(&g->err, "a graph", (uint64_t)n * sizeof *s.order);
    else
        find_places(&s);
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        place_clears(&s, g->nodes[i]);
        s.order[s.n++] = g->nodes[i];
        place_sums(&s, i + 1);
    }
    if (!af_graph_failed(g)) {
        free(g->nodes);
        g->nodes = s.order;
        g->cap_nodes = n + 2 * (int)tensors;
        g->n_nodes = s.n;
        s.order = NULL;
        for (int i = 0; i < s.n; i++)
            g->nodes[i]->at = i;
    }
    free(s.param);
    free(s.at);
    free(s.begin);
    free(s.order);
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
    if (g->ranks < 2 || g->shard.split >= AF_SPLIT_GRADIENTS || af_graph_failed(g))
        return;
    int64_t *cut = af_arena_take(&g->mem, ((uint64_t)g->ranks + 1) * sizeof *cut);
    if (!cut) {
        af_fail_nomem(&g->err, "ranks", (uint64_t)g->ranks * sizeof *cut);
        return;
    }
    const int64_t count = af_count(g->grads_flat), units = (count + CUT_UNIT - 1) / CUT_UNIT;
    for (int r = 0; r <= g->ranks; r++)
        cut[r] = AF_MIN((units + g->ranks - 1) / g->ranks * r * CUT_UNIT, count);
    rank_node(g, AF_OP_RANK_SUM, &g->grads_flat, 1, g->rank, g->ranks, cut);
    rank_node(g, AF_OP_RANK_GATHER, &g->grads_flat, 1, g->rank, g->ranks, cut);
}

void af_graph_gather_params(af_graph *g)
{
    if (g->ranks > 1 && g->shard.split >= AF_SPLIT_STATE && !af_graph_failed(g))
        rank_node(g, AF_OP_RANK_GATHER, &g->params_flat, 1, g->rank, g->ranks, g->shard.cut);
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
        if (n->op == AF_OP_RANK_SUM || n->op == AF_OP_RANK_GATHER)
            fn(user, n->attr.ranks.cut, sizeof(float), n->op == AF_OP_RANK_GATHER);
        else if (n->op == AF_OP_GRAD_NORM && g->shard.split >= AF_SPLIT_GRADIENTS)
            af_norm_exchanges(g, fn, user);
    }
}
