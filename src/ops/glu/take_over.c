/* take_over.c - see take_over.h. */
#include "ops/glu/take_over.h"
#include "backend/cuda/cuda_graph.h"

bool af_may_take_over(const af_graph *g, const af_node *unit, const af_node *n, int in)
{
    for (int k = in; k < n->n_in; k++)
        if (n->in[k]->producer && n->in[k]->producer->at >= unit->at)
            return false;
    for (int i = AF_MIN(unit->at, n->at) + 1; i < AF_MAX(unit->at, n->at); i++) {
        const af_node *o = g->nodes[i];
        if (o->op != AF_OP_CLEAR && !af_cuda_sums_on_third(o) && af_node_touches(o, n->out[0]))
            return false;
    }
    return n->phase == unit->phase;
}

static void move_node(af_graph *g, int from, int to)
{
    af_node *n = g->nodes[from];
    for (int i = from; i != to; i += from < to ? 1 : -1) {
        g->nodes[i] = g->nodes[i + (from < to ? 1 : -1)];
        g->nodes[i]->at = i;
    }
    g->nodes[to] = n;
    n->at = to;
}

void af_take_over(af_graph *g, af_node *unit, af_node *n, int in)
{
    /* zeros come before the unit now, sums over ranks after it */
    for (int i = unit->at + 1; i < n->at; i++)
        if (g->nodes[i]->op == AF_OP_CLEAR && af_node_touches(g->nodes[i], n->out[0]))
            move_node(g, i, unit->at);
    for (int i = unit->at - 1; i > n->at; i--)
        if (af_cuda_sums_on_third(g->nodes[i]) && af_node_touches(g->nodes[i], n->out[0]))
            move_node(g, i, unit->at);
    for (int k = in; k < n->n_in; k++)
        unit->in[unit->n_in++] = n->in[k];
    unit->out[unit->n_out++] = n->out[0];
    n->out[0]->producer = unit;
}

void af_remove_taken(af_graph *g, af_node *const *taken, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++)
        g->nodes[taken[i]->at] = NULL;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]) {
            g->nodes[i]->at = n;
            g->nodes[n++] = g->nodes[i];
        }
    g->n_nodes = n;
    if (count > 0)
        af_graph_drop_dead(g);
}
