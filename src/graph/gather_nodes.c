/* gather_nodes.c - weights that the ranks split (AF_SHARD_WEIGHTS): a node brings one together
 * before the nodes that read it, into memory of activations.
 *
 * Inside a block one gather serves all readers of a pass: at most about one layer is whole. Outside
 * (embedding, head) every reader has its own, so that a table that both read is not held between
 * them. Every rank has the same nodes in the same order, so that the exchanges meet. */
#include "graph/node.h"

enum { PIECE_ALIGN = 64 }; /* bytes */

typedef struct gathering {
    af_graph *g;
    af_tensor **whole; /* by id of a split leaf: what the last gather made of it */
    int *reader;       /* by the same id: its last reader */
    af_node **order;
    int n;
} gathering;

/* Equal pieces. */
static void split(af_graph *g, af_tensor *t)
{
    const int ranks = g->shard.ranks;
    const int64_t bytes = (int64_t)af_tensor_bytes(t);
    const int64_t each =
        (int64_t)AF_ALIGN_UP((uint64_t)((bytes + ranks - 1) / ranks), (uint64_t)PIECE_ALIGN);
    int64_t *cut = af_arena_take(&g->mem, ((uint64_t)ranks + 1) * sizeof *cut);
    if (!cut) {
        af_fail_nomem(&g->err, "shards", (uint64_t)ranks * sizeof *cut);
        return;
    }
    for (int r = 0; r <= ranks; r++)
        cut[r] = AF_MIN(r * each, bytes);
    t->cut = cut;
}

static void split_weights(af_graph *g)
{
    for (int i = 0; i < g->n_tensors && !af_graph_failed(g); i++) {
        af_tensor *w = g->tensors[i];
        if (w->role != AF_ROLE_WEIGHT || w->base || w->bound || w->ndim < 2)
            continue;
        split(g, w);
        if (w->quant)
            split(g, w->quant->absmax);
        if (w->quant && w->quant->nested)
            split(g, w->quant->nested);
    }
}

/* The split leaf that a node reads as t, or NULL. */
static af_tensor *split_leaf(af_tensor *t)
{
    af_tensor *leaf = t->base && t->base->cut ? t->base : t;
    return leaf->cut ? leaf : NULL;
}

static void set_scales(af_graph *g, const af_tensor *w, af_node *n)
{
    af_quant *q = af_arena_take(&g->mem, sizeof *q);
    if (!q) {
        af_fail_nomem(&g->err, "scales of a 4-bit tensor", sizeof *q);
        return;
    }
    *q = *w->quant;
    q->absmax = n->out[1];
    q->nested = n->n_out > 2 ? n->out[2] : NULL;
    n->out[0]->quant = q;
}

static af_tensor *gather(gathering *s, af_tensor *w, const af_node *reader)
{
    af_graph *g = s->g;
    const int before = g->n_nodes;
    af_tensor *in[3] = {w};
    int n_in = 1;
    if (w->quant)
        in[n_in++] = w->quant->absmax;
    if (w->quant && w->quant->nested)
        in[n_in++] = w->quant->nested;
    af_node *n = af_node_new(g, AF_OP_RANK_GATHER, in, n_in);
    g->n_nodes = before; /* its place is another */
    n->phase = reader->phase;
    n->block = reader->block;
    for (int k = 0; k < n_in && !af_graph_failed(g); k++)
        af_node_output_like(g, n, in[k])->name = in[k]->name;
    if (w->quant && !af_graph_failed(g))
        set_scales(g, w, n);
    if (af_graph_failed(g))
        return w;
    s->order[s->n++] = n;
    s->whole[w->id] = n->out[0];
    return n->out[0];
}

/* Whether what the last gather made still serves: see above. */
static bool serves(const gathering *s, const af_tensor *w, const af_node *n)
{
    const af_tensor *x = s->whole[w->id];
    return x && x->producer->phase == n->phase && x->producer->block == n->block &&
           (n->block >= 0 || s->reader[w->id] == n->at);
}

/* What n reads instead of its input t. */
static af_tensor *read_whole(gathering *s, af_tensor *t, const af_node *n)
{
    af_tensor *w = split_leaf(t);
    if (!w)
        return t;
    af_tensor *x = serves(s, w, n) ? s->whole[w->id] : gather(s, w, n);
    s->reader[w->id] = n->at;
    if (t == w || af_graph_failed(s->g))
        return x;
    af_tensor *view = af_leaf(s->g, AF_ROLE_ACTIVATION, "", t->dtype, t->ndim, t->dim);
    view->base = x;
    view->base_offset = t->base_offset;
    view->ld = t->ld;
    return view;
}

static void hold(af_tensor *t, int until)
{
    if (t)
        t->hold_until = AF_MAX(t->hold_until, until);
}

/* Scales are no inputs of the nodes that read codes. */
void af_graph_hold_scales(af_graph *g)
{
    for (int i = 0; i < g->n_nodes && g->shard.split >= AF_SHARD_WEIGHTS; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const af_tensor *t = g->nodes[i]->in[k];
            if (t->role != AF_ROLE_ACTIVATION || !t->quant)
                continue;
            hold(t->quant->absmax, i);
            hold(t->quant->nested, i);
        }
}

const af_tensor *af_gathered_from(const af_tensor *t)
{
    const af_node *n = t->producer;
    return n && n->op == AF_OP_RANK_GATHER && t == n->out[0] ? n->in[0] : t;
}

void af_graph_gather_weights(af_graph *g)
{
    if (g->shard.split < AF_SHARD_WEIGHTS || af_graph_failed(g))
        return;
    gathering s = {.g = g};
    const int n = g->n_nodes;
    uint64_t reads = 0;
    split_weights(g);
    for (int i = 0; i < n; i++)
        reads += (uint64_t)g->nodes[i]->n_in;
    s.whole = af_calloc((uint64_t)g->n_tensors + 1, sizeof *s.whole);
    s.reader = af_calloc((uint64_t)g->n_tensors + 1, sizeof *s.reader);
    s.order = af_calloc((uint64_t)n + reads + 1, sizeof *s.order);
    if (!s.whole || !s.reader || !s.order)
        af_fail_nomem(&g->err, "a graph", ((uint64_t)n + reads) * sizeof *s.order);
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        af_node *reader = g->nodes[i];
        const bool computes = reader->phase <= AF_PHASE_BACKWARD && !af_ops[reader->op]->view;
        for (int k = 0; k < reader->n_in && computes && !af_graph_failed(g); k++)
            reader->in[k] = read_whole(&s, reader->in[k], reader);
        s.order[s.n++] = reader;
    }
    if (af_graph_failed(g))
        free(s.order);
    else
        af_graph_take_order(g, s.order, s.n, n + (int)reads + 1);
    free(s.whole);
    free(s.reader);
}
