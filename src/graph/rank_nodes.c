/* rank_nodes.c - nodes that exchange with other ranks, placed among the nodes that compute.
 *
 * A split gradient is summed over the ranks right after the last node that adds to it: no rank
 * holds more whole gradients than the backward pass has in work. Every rank has the same nodes in
 * the same order, so that the exchanges meet. */
#include "graph/node.h"

/* Where the sums of gradients go. */
typedef struct sum_places {
    af_graph *g;
    af_tensor **param; /* by the id of its gradient; NULL = no gradient */
    int *at;           /* by the same id: 1 + the last node that writes it; 0 = none */
    af_node **order;
    int n;
} sum_places;

static void note_writes(sum_places *s, const af_node *n)
{
    if (n->op == AF_OP_ACCUM && s->param[n->in[0]->id])
        s->at[n->in[0]->id] = n->at + 1;
    for (int k = 0; k < n->n_out; k++)
        if (s->param[n->out[k]->id])
            s->at[n->out[k]->id] = n->at + 1;
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

/* p's gradient summed over the ranks: this rank's piece goes to its own gradients. */
static af_node *sum_node(af_graph *g, af_tensor *p)
{
    const int before = g->n_nodes;
    const int64_t first = (int64_t)(p->base_offset / sizeof(float));
    int64_t *cut = af_shard_cuts_of(g, first, first + af_count(p));
    if (!cut)
        return NULL;
    af_node *n =
        af_node_new(g, AF_OP_RANK_SUM, (af_tensor *[]){p->grad, p->own_grad}, p->own_grad ? 2 : 1);
    g->n_nodes = before; /* its place is another */
    n->phase = AF_PHASE_BACKWARD;
    n->attr.ranks.cut = cut;
    return n;
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
    s.order = af_calloc((uint64_t)n + tensors, sizeof *s.order);
    if (!s.param || !s.at || !s.order)
        af_fail_nomem(&g->err, "a graph", (uint64_t)n * sizeof *s.order);
    else
        find_places(&s);
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        s.order[s.n++] = g->nodes[i];
        place_sums(&s, i + 1);
    }
    if (!af_graph_failed(g)) {
        free(g->nodes);
        g->nodes = s.order;
        g->cap_nodes = n + (int)tensors;
        g->n_nodes = s.n;
        s.order = NULL;
        for (int i = 0; i < s.n; i++)
            g->nodes[i]->at = i;
    }
    free(s.param);
    free(s.at);
    free(s.order);
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
        if (n->op == AF_OP_RANK_SUM)
            fn(user, n->attr.ranks.cut, sizeof(float), false);
        else if (n->op == AF_OP_GRAD_NORM && g->shard.split >= AF_SPLIT_GRADIENTS)
            af_norm_exchanges(g, fn, user);
    }
}
