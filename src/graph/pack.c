/* pack.c - the arena of activations, the largest value first.
 *
 * Values (and what nodes need while they run) are placed one by one, each in the lowest gap
 * between those that live at the same time. A chain of ops that work in place is one value. This
 * finds tighter layouts than the sweep where a few large values dominate, and costs more time.
 *
 * Gradients that are rewritten in each step are placed before everything else: from
 * the node that writes one first to the end of the update its range is taken, before that it is
 * free. The backward pass writes them layer by layer while it drops activations layer by layer. */
#include "graph/occupied.h"
#include "graph/planner.h"

#include <stdlib.h>

typedef struct pack_item {
    uint64_t size, offset;
    int first, last, id; /* id: a tensor's, or n_tensors + the position of a node; fixed: FIXED */
} pack_item;

enum { FIXED = -1 };

typedef struct packer {
    af_graph *g;
    pack_item *item; /* in the order they are placed */
    int n;
    int *chain; /* by tensor: the tensor whose memory it takes over, or itself */
    int *at;    /* by tensor: where its item is */
    af_occupied occupied;
    bool failed;
} packer;

static void collect(packer *p)
{
    const af_graph *g = p->g;
    for (int i = 0; i < g->n_tensors; i++)
        p->chain[i] = i;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_tensor *t = af_inplace_input(g->nodes[i]);
        if (t && g->nodes[i]->out[0]->first == i)
            p->chain[g->nodes[i]->out[0]->id] = p->chain[t->id];
    }
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *t = g->tensors[i];
        if (!af_in_arena(t) || t->first < 0 || p->chain[i] != i)
            continue;
        p->at[i] = p->n;
        p->item[p->n++] = (pack_item){af_arena_size(g, t), 0, t->first, t->last, i};
    }
    for (int i = 0; i < g->n_tensors; i++)
        if (p->chain[i] != i) {
            pack_item *x = &p->item[p->at[p->chain[i]]];
            x->last = AF_MAX(x->last, g->tensors[i]->last);
        }
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->work)
            p->item[p->n++] = (pack_item){af_work_size(g, g->nodes[i]), 0, i,
                                          af_guard_bytes(g) ? g->n_nodes : i, g->n_tensors + i};
}

static void add_fixed(packer *p, uint64_t from, uint64_t to, int first)
{
    if (to > from)
        p->item[p->n++] = (pack_item){to - from, from, first, p->g->n_nodes, FIXED};
}

static int by_offset(const void *a, const void *b)
{
    const af_tensor *x = *(const af_tensor *const *)a, *y = *(const af_tensor *const *)b;
    return x->base_offset < y->base_offset ? -1 : x->base_offset > y->base_offset;
}

/* The gradients, and the gaps between them, which stay zero: the norm reads them too. */
static void collect_grads(packer *p)
{
    const af_graph *g = p->g;
    int n = 0;
    uint64_t at = 0;
    af_tensor **grad = af_calloc((uint64_t)g->n_tensors + 1, sizeof *grad);
    int *first = af_calloc((uint64_t)g->n_tensors + 1, sizeof *first); /* 1 + its position, or 0 */
    p->failed |= !grad || !first;
    for (int i = g->n_nodes - 1; i >= 0 && !p->failed; i--) {
        const af_node *k = g->nodes[i];
        for (int j = 0; j < k->n_in + k->n_out; j++)
            first[(j < k->n_in ? k->in[j] : k->out[j - k->n_in])->id] = i + 1;
    }
    for (int i = 0; i < g->n_tensors && !p->failed; i++)
        if (g->tensors[i]->role == AF_ROLE_PARAM && g->tensors[i]->grad) {
            grad[n] = g->shard.pass ? g->tensors[i]->own_grad : g->tensors[i]->grad;
            n += grad[n] != NULL;
        }
    if (!p->failed)
        qsort(grad, (size_t)n, sizeof *grad, by_offset);
    for (int i = 0; i < n && !p->failed; i++) {
        const uint64_t from = grad[i]->base_offset, to = from + af_tensor_extent(grad[i]);
        add_fixed(p, at, from, 0);
        add_fixed(p, from, to, AF_MAX(first[grad[i]->id] - 1, 0));
        at = to;
    }
    if (!p->failed)
        add_fixed(p, at, af_arena_size(g, g->grads_flat), 0);
    free(grad);
    free(first);
}

static int by_size(const void *a, const void *b)
{
    const pack_item *x = a, *y = b;
    if ((x->id == FIXED) != (y->id == FIXED))
        return x->id == FIXED ? -1 : 1;
    if (x->size != y->size)
        return x->size < y->size ? 1 : -1;
    return x->first != y->first ? x->first - y->first : x->id - y->id;
}

/* Among gradients the values that live longest are the ones hard to place: each fits only where the
 * backward pass writes late. */
static int by_life(const void *a, const void *b)
{
    const pack_item *x = a, *y = b;
    const int life = x->last - x->first, other = y->last - y->first;
    if ((x->id == FIXED) == (y->id == FIXED) && life != other)
        return life < other ? 1 : -1;
    return by_size(a, b);
}

/* The lowest gap that holds it. */
static void place(packer *p, pack_item *x)
{
    if (x->id != FIXED)
        x->offset = af_occupied_gap(&p->occupied, x->first, x->last, x->size);
    af_occupied_add(&p->occupied, x->first, x->last, x->offset,
                    AF_ALIGN_UP(x->offset + x->size, (uint64_t)AF_ARENA_ALIGN));
}

static void give_offsets(const packer *p)
{
    af_graph *g = p->g;
    for (int i = 0; i < p->n; i++) {
        const pack_item *x = &p->item[i];
        if (x->id == FIXED)
            continue;
        if (x->id < g->n_tensors)
            g->tensors[x->id]->offset = x->offset;
        else
            g->nodes[x->id - g->n_tensors]->work_offset = x->offset;
    }
    for (int i = 0; i < g->n_tensors; i++)
        if (p->chain[i] != i)
            g->tensors[i]->offset = g->tensors[p->chain[i]]->offset;
}

/* Sizes that differ by less than an eighth are nearly the same. */
static int size_class(uint64_t size)
{
    int steps = 0;
    for (uint64_t s = 4096; s < size; s += s / 8)
        steps++;
    return steps;
}

static int by_class(const void *a, const void *b)
{
    const pack_item *x = a, *y = b;
    const int p = size_class(x->size), q = size_class(y->size);
    return p != q ? q - p : by_life(a, b);
}

uint64_t af_graph_pack(af_graph *g, af_pack_order order, bool *failed)
{
    static int (*const first[])(const void *, const void *) = {[AF_PACK_LARGEST] = by_size,
                                                               [AF_PACK_SIMILAR] = by_class,
                                                               [AF_PACK_LARGEST_GRADS] = by_size,
                                                               [AF_PACK_LONGEST_GRADS] = by_life};
    const bool grads = order >= AF_PACK_LARGEST_GRADS;
    const uint64_t most = (uint64_t)g->n_tensors * (grads ? 3 : 1) + (uint64_t)g->n_nodes;
    packer p = {.g = g};
    uint64_t top = 0;
    p.item = af_calloc(most + 1, sizeof *p.item);
    p.at = af_calloc((uint64_t)g->n_tensors + 1, sizeof *p.at);
    p.chain = af_calloc((uint64_t)g->n_tensors + 1, sizeof *p.chain);
    p.failed = !p.item || !p.at || !p.chain;
    af_occupied_init(&p.occupied, g->n_nodes + 1);
    if (!p.failed) {
        collect(&p);
        if (grads)
            collect_grads(&p);
        qsort(p.item, (size_t)p.n, sizeof *p.item, first[order]);
    }
    for (int i = 0; i < p.n && !p.failed; i++) {
        place(&p, &p.item[i]);
        top = AF_MAX(top, p.item[i].offset + p.item[i].size);
    }
    p.failed |= p.occupied.failed;
    if (!p.failed)
        give_offsets(&p);
    free(p.item);
    af_occupied_clear(&p.occupied);
    free(p.at);
    free(p.chain);
    *failed |= p.failed;
    return p.failed ? 0 : top;
}
