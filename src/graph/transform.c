/* transform.c - rewrites of a recorded graph that change no result: accumulate in place, drop dead
 * nodes, recompute. */
#include "graph/node.h"

static af_tensor *root(af_tensor *t) { return t->base ? t->base : t; }

/* Uses of every tensor (by id), views counted for themselves and for their base. */
static int *count_uses(af_graph *g)
{
    int *uses = af_calloc((uint64_t)g->n_tensors, sizeof *uses);
    for (int i = 0; uses && i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const af_tensor *t = g->nodes[i]->in[k];
            uses[t->id]++;
            if (t->base)
                uses[t->base->id]++;
        }
    return uses;
}

static void renumber(af_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->at = i;
}

void af_graph_take_order(af_graph *g, af_node **order, int n, int cap)
{
    free(g->nodes);
    g->nodes = order;
    g->n_nodes = n;
    g->cap_nodes = cap;
    renumber(g);
}

static void remove_null_nodes(af_graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i])
            g->nodes[n++] = g->nodes[i];
    g->n_nodes = n;
    renumber(g);
}

/* d = op(...); G += d   becomes   G += op(...)  where the op can add. */
void af_graph_fuse_accumulate(af_graph *g)
{
    int *uses = count_uses(g);
    for (int i = 0; uses && i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        if (n->op != AF_OP_ACCUM)
            continue;
        af_tensor *into = n->in[0], *d = n->in[1];
        af_node *p = d->producer;
        const int k = p ? af_ops[p->op]->accum_out - 1 : -1;
        if (k < 0 || p->accumulate || p->out[k] != d || uses[d->id] != 1 || d->keep ||
            d->dtype != into->dtype)
            continue;
        p->out[k] = into;
        p->accumulate = true;
        g->nodes[i] = NULL;
        uses[d->id] = 0;
    }
    free(uses);
    remove_null_nodes(g);
}

void af_graph_write_first(af_graph *g)
{
    bool *seen = g->one_pass ? af_calloc((uint64_t)g->n_tensors, sizeof *seen) : NULL;
    if (!seen) {
        g->one_pass = false;
        return;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        const af_tensor *t = n->op == AF_OP_ACCUM ? n->in[0]
                             : n->accumulate      ? n->out[af_ops[n->op]->accum_out - 1]
                                                  : NULL;
        if (!t || seen[t->id] || n->phase == AF_PHASE_CARRY)
            continue;
        seen[t->id] = true;
        n->first = n->op == AF_OP_ACCUM;
        n->accumulate = false;
    }
    free(seen);
}

static bool has_effect(const af_node *n)
{
    bool effect = af_ops[n->op]->effect || n->accumulate;
    for (int k = 0; k < n->n_out; k++)
        effect |= n->out[k]->keep || n->out[k]->role != AF_ROLE_ACTIVATION;
    return effect;
}

void af_graph_drop_dead(af_graph *g)
{
    bool *wanted = af_calloc((uint64_t)g->n_tensors, sizeof *wanted);
    if (!wanted)
        return; /* dead nodes cost time; results are the same */
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        const af_node *n = g->nodes[i];
        bool live = has_effect(n);
        for (int k = 0; k < n->n_out; k++)
            live |= wanted[n->out[k]->id];
        if (!live) {
            g->nodes[i] = NULL;
            continue;
        }
        for (int k = 0; k < n->n_in; k++) {
            wanted[n->in[k]->id] = true;
            wanted[root(n->in[k])->id] = true;
        }
    }
    free(wanted);
    remove_null_nodes(g);
}

/* ---- recompute ---- */

/* Forward activations that the mode drops are rebuilt right before the first backward node that
 * reads them, by copies of the nodes that made them. Copies read the kept originals, or copies of
 * dropped ones; the same kernels on the same values give the same bits. */

typedef struct recompute_pass {
    af_graph *g;
    af_tensor **copy;    /* by tensor id: the rebuilt tensor, or NULL */
    bool *crosses;       /* by tensor id: read by a forward node of another block */
    bool *used_backward; /* by tensor id: read by a node after the recorded forward pass */
    bool *moved;         /* by tensor id: waits in host memory (moved.c) */
    af_node **order;
    int n, cap;
} recompute_pass;

af_recompute af_graph_recompute_of(const af_graph *g, const af_node *n)
{
    if (!n || n->phase != AF_PHASE_FORWARD || n->block < 0)
        return AF_RECOMPUTE_NONE;
    if (g->rebuilt_from && n->block >= g->rebuilt_from)
        return AF_RECOMPUTE_BLOCK;
    return n->block < g->recompute_blocks ? g->recompute : g->recompute_rest;
}

static bool is_wide(const af_node *n)
{
    return af_ops[n->op]->wide && n->n_in > 0 && af_count(n->out[0]) > af_count(n->in[0]);
}

static bool dropped(const recompute_pass *r, const af_tensor *t);

/* A sum of two values that no other node needs later: to rebuild it both would be kept. */
static bool costs_more(const recompute_pass *r, const af_node *n)
{
    bool more = n->op == AF_OP_BINARY;
    for (int k = 0; k < n->n_in && more; k++) {
        const af_tensor *x = n->in[k];
        more = x->role == AF_ROLE_ACTIVATION && af_same_shape(x, n->out[0]) &&
               !r->used_backward[x->id] && !dropped(r, x);
    }
    return more;
}

/* Is t rebuilt rather than kept? */
static bool dropped(const recompute_pass *r, const af_tensor *t)
{
    const af_node *n = t->producer;
    const af_recompute mode = af_graph_recompute_of(r->g, n);
    if (mode == AF_RECOMPUTE_NONE || t->role != AF_ROLE_ACTIVATION || t->keep ||
        af_ops[n->op]->effect)
        return false;
    if (af_ops[n->op]->view)
        return dropped(r, n->in[0]);
    if (r->moved[t->id])
        return false;
    if (n->op == AF_OP_RMSNORM_ADD) /* y follows from the sum alone; the sum itself only when the
                                       norm stays inside: at the end of a block it would take the
                                       whole block to rebuild it */
        return t == n->out[0] || (t == n->out[1] && mode >= AF_RECOMPUTE_MOST &&
                                  !r->crosses[t->id] && !r->crosses[n->out[0]->id]);
    if (r->crosses[t->id]) /* else one block's rebuilding would reach into all blocks before it */
        return false;
    if (af_ops[n->op]->cheap)
        return t == n->out[0] && !costs_more(r, n);
    if (mode >= AF_RECOMPUTE_WIDE && is_wide(n))
        return true;
    return mode >= AF_RECOMPUTE_BLOCK || (mode >= AF_RECOMPUTE_MOST && !af_ops[n->op]->costly);
}

static void append(recompute_pass *r, af_node *n)
{
    if (r->n == r->cap) {
        const int cap = r->cap ? r->cap * 2 : 256;
        af_node **p = af_realloc(r->order, (uint64_t)cap, sizeof *p);
        if (!p) {
            af_fail_nomem(&r->g->err, "a graph", (uint64_t)cap * sizeof *p);
            return;
        }
        r->order = p;
        r->cap = cap;
    }
    r->order[r->n++] = n;
}

static af_tensor *recomputed(recompute_pass *r, af_tensor *t);

/* New outputs for a copied node; those that were kept keep serving their readers. */
static void copy_outputs(recompute_pass *r, const af_node *n, af_node *c)
{
    for (int k = 0; k < n->n_out && !af_graph_failed(r->g); k++) {
        const af_tensor *o = n->out[k];
        af_tensor *x = o->base ? af_node_view(r->g, c, o->ndim, o->dim)
                               : af_node_output(r->g, c, o->dtype, o->ndim, o->dim);
        x->ld = o->ld;
        x->live = o->live;
        r->copy[o->id] = x;
    }
}

/* The norm of a stored sum, without the addition. */
static void recompute_norm(recompute_pass *r, af_node *n)
{
    af_node *c = af_node_new(r->g, AF_OP_RMSNORM, (af_tensor *[]){n->out[1], n->in[2]}, 2);
    c->attr = n->attr;
    c->phase = AF_PHASE_BACKWARD;
    c->block = n->block;
    c->recomputed = true;
    r->copy[n->out[0]->id] = af_node_output_like(r->g, c, n->out[0]);
    r->copy[n->out[0]->id]->live = n->out[0]->live;
    af_node_output_like(r->g, c, n->out[2])->live = n->out[2]->live;
    append(r, c);
}

static void recompute_node(recompute_pass *r, af_node *n)
{
    if (n->op == AF_OP_RMSNORM_ADD && !dropped(r, n->out[1])) {
        recompute_norm(r, n);
        return;
    }
    af_tensor *in[AF_NODE_IN_MAX];
    if (n->op == AF_OP_RMSNORM_ADD) /* before x, whose projection may add it */
        (void)recomputed(r, n->in[1]);
    for (int k = 0; k < n->n_in; k++)
        in[k] = recomputed(r, n->in[k]);
    af_node *c = af_node_new(r->g, n->op, in, n->n_in);
    c->attr = n->attr;
    c->phase = AF_PHASE_BACKWARD;
    c->block = n->block;
    c->recomputed = true;
    copy_outputs(r, n, c);
    append(r, c);
}

static af_tensor *recomputed(recompute_pass *r, af_tensor *t)
{
    if (!dropped(r, t) || af_graph_failed(r->g))
        return t;
    if (!r->copy[t->id])
        recompute_node(r, t->producer);
    return r->copy[t->id];
}

static void find_crossings(recompute_pass *r)
{
    for (int i = 0; i < r->g->n_nodes; i++) {
        const af_node *n = r->g->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            const af_tensor *t = n->in[k];
            r->used_backward[t->id] |= n->phase != AF_PHASE_FORWARD;
            if (n->phase == AF_PHASE_FORWARD && t->producer && t->producer->block != n->block)
                r->crosses[t->id] = r->crosses[root(n->in[k])->id] = true;
        }
    }
}

void af_graph_apply_recompute(af_graph *g)
{
    const bool any = AF_MAX(g->recompute, g->recompute_rest) != AF_RECOMPUTE_NONE;
    if (!(any || g->rebuilt_from) || !g->differentiated)
        return;
    /* every copied node adds at most its outputs once: ids stay below twice the present count */
    recompute_pass r = {.g = g};
    r.copy = af_calloc((uint64_t)g->n_tensors * 2, sizeof *r.copy);
    r.crosses = af_calloc((uint64_t)g->n_tensors * 2, sizeof *r.crosses);
    r.used_backward = af_calloc((uint64_t)g->n_tensors * 2, sizeof *r.used_backward);
    r.moved = af_calloc((uint64_t)g->n_tensors * 2, sizeof *r.moved);
    const int n = g->n_nodes;
    if (!r.copy || !r.crosses || !r.used_backward || !r.moved) {
        af_fail_nomem(&g->err, "a graph", (uint64_t)g->n_tensors * 16);
    } else {
        find_crossings(&r);
        af_graph_choose_moved(g, r.crosses, r.used_backward, r.moved);
    }
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        af_node *node = g->nodes[i];
        for (int k = 0; node->phase != AF_PHASE_FORWARD && k < node->n_in; k++)
            node->in[k] = recomputed(&r, node->in[k]);
        append(&r, node);
    }
    if (af_graph_failed(g))
        free(r.order);
    else
        af_graph_take_order(g, r.order, r.n, r.cap);
    free(r.copy);
    free(r.crosses);
    free(r.used_backward);
    free(r.moved);
}
