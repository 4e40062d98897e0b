/* planner.c - lifetimes to offsets.
 *
 * Leaves (inputs, weights, params, gradients, state) get a range of their own in the arena of their
 * role. Activations live from the node that makes them to the last node that reads them; a sweep in
 * execution order allocates the best fitting free range and frees it afterwards, so two live
 * tensors never overlap. An op that may work in place takes over its input's range when no other
 * node reads that input later. What a node needs only while it runs (node->work) is a range of the
 * same arena for that one position. The tightest of a few sweeps and pack.c's layout is taken. */
#include "graph/planner.h"

#include <stdlib.h>

typedef struct free_range {
    uint64_t from, size;
} free_range;

typedef struct sweep {
    af_graph *g;
    free_range *hole; /* free ranges below `top`, by address */
    int n, cap;
    uint64_t top; /* high-water mark */
    bool failed;
} sweep;

static af_tensor *root(af_tensor *t) { return t->base ? t->base : t; }

static void find_lifetimes(af_graph *g)
{
    for (int i = 0; i < g->n_tensors; i++)
        g->tensors[i]->first = g->tensors[i]->last = -1;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        for (int k = 0; k < n->n_out; k++) {
            af_tensor *t = root(n->out[k]);
            t->first = t->first < 0 ? i : t->first;
            t->last = AF_MAX(t->last, i);
        }
        for (int k = 0; k < n->n_in; k++) {
            af_tensor *t = root(n->in[k]);
            t->last = AF_MAX(t->last, i);
        }
    }
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->hold_until > g->tensors[i]->last && g->tensors[i]->last >= 0)
            g->tensors[i]->last = g->tensors[i]->hold_until;
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->fill_from > 0 && g->tensors[i]->last >= 0)
            g->tensors[i]->first = g->tensors[i]->fill_from;
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->keep || (af_guard_bytes(g) && g->tensors[i]->last >= 0))
            root(g->tensors[i])->last = g->n_nodes;
}

static void insert_hole(sweep *s, int at, free_range r)
{
    if (s->n == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 64;
        free_range *p = af_realloc(s->hole, (uint64_t)cap, sizeof *p);
        if (!p) {
            s->failed = true;
            return;
        }
        s->hole = p;
        s->cap = cap;
    }
    memmove(s->hole + at + 1, s->hole + at, (size_t)(s->n - at) * sizeof *s->hole);
    s->hole[at] = r;
    s->n++;
}

static void remove_hole(sweep *s, int at)
{
    s->n--;
    memmove(s->hole + at, s->hole + at + 1, (size_t)(s->n - at) * sizeof *s->hole);
}

static uint64_t take(sweep *s, uint64_t size)
{
    int best = -1;
    for (int i = 0; i < s->n; i++)
        if (s->hole[i].size >= size && (best < 0 || s->hole[i].size < s->hole[best].size))
            best = i;
    if (best < 0) { /* grow, using a hole that touches the top */
        const bool touch = s->n > 0 && s->hole[s->n - 1].from + s->hole[s->n - 1].size == s->top;
        const uint64_t from = touch ? s->hole[s->n - 1].from : s->top;
        if (touch)
            remove_hole(s, s->n - 1);
        s->top = from + size;
        return from;
    }
    const uint64_t from = s->hole[best].from;
    s->hole[best].from += size;
    s->hole[best].size -= size;
    if (s->hole[best].size == 0)
        remove_hole(s, best);
    return from;
}

static void release(sweep *s, uint64_t from, uint64_t size)
{
    int at = 0;
    while (at < s->n && s->hole[at].from < from)
        at++;
    const bool left = at > 0 && s->hole[at - 1].from + s->hole[at - 1].size == from;
    const bool right = at < s->n && from + size == s->hole[at].from;
    if (left) {
        s->hole[at - 1].size += size;
        if (right) {
            s->hole[at - 1].size += s->hole[at].size;
            remove_hole(s, at);
        }
    } else if (right) {
        s->hole[at].from = from;
        s->hole[at].size += size;
    } else {
        insert_hole(s, at, (free_range){from, size});
    }
}

af_tensor *af_inplace_input(const af_node *n)
{
    const int k = af_ops[n->op]->inplace - 1;
    if (k < 0 || k >= n->n_in || !af_in_arena(n->out[0]))
        return NULL;
    af_tensor *t = n->in[k];
    if (!af_in_arena(t) || t->last != n->at || af_tensor_extent(t) != af_tensor_extent(n->out[0]) ||
        t->ld != n->out[0]->ld)
        return NULL;
    for (int i = 0; i < n->n_in; i++) /* the same memory read through another input is not safe */
        if (i != k && root(n->in[i]) == t)
            return NULL;
    return t;
}

/* Long-lived values in a region of their own (s[1]) leave no gaps between the others. */
static sweep *region(sweep *s, int reach, const af_tensor *t)
{
    return &s[t->last - t->first > reach];
}

/* What a backend requested: tensors it fills, and tensors that are held, by the position where
 * their range begins or ends. */
typedef struct listed {
    int at;
    af_tensor *t;
} listed;
typedef struct requests {
    listed *filled, *held;
    int n_filled, n_held, next_filled, next_held;
} requests;

static int by_position(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    return x->at != y->at ? x->at - y->at : x->t->id - y->t->id;
}

static bool collect_requests(const af_graph *g, requests *w)
{
    *w = (requests){0};
    w->filled = af_calloc((uint64_t)g->n_tensors * 2 + 1, sizeof *w->filled);
    if (!w->filled)
        return false;
    w->held = w->filled + g->n_tensors;
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (!af_in_arena(t) || t->first < 0)
            continue;
        if (t->fill_from > 0)
            w->filled[w->n_filled++] = (listed){t->first, t};
        if (t->hold_until > 0 && t->hold_until == t->last)
            w->held[w->n_held++] = (listed){t->last, t};
    }
    qsort(w->filled, (size_t)w->n_filled, sizeof *w->filled, by_position);
    qsort(w->held, (size_t)w->n_held, sizeof *w->held, by_position);
    return true;
}

/* Tensors that a backend fills from here on. */
static void take_filled(sweep *s, int reach, const af_node *n, requests *w)
{
    for (; w->next_filled < w->n_filled && w->filled[w->next_filled].at <= n->at;
         w->next_filled++) {
        af_tensor *t = w->filled[w->next_filled].t;
        t->offset = take(region(s, reach, t), af_arena_size(s->g, t));
    }
}

static void sweep_node(sweep *s, int reach, af_node *n)
{
    af_tensor *reused = af_inplace_input(n);
    if (reused && region(s, reach, reused) != region(s, reach, n->out[0]))
        reused = NULL;
    for (int k = 0; k < n->n_out; k++) {
        af_tensor *t = n->out[k];
        if (!af_in_arena(t) || t->first != n->at)
            continue;
        if (k == 0 && reused)
            t->offset = reused->offset;
        else
            t->offset = take(region(s, reach, t), af_arena_size(s->g, t));
    }
    const uint64_t work = af_work_size(s->g, n);
    if (work) {
        n->work_offset = take(s, work);
        if (!af_guard_bytes(s->g))
            release(s, n->work_offset, work);
    }
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        af_tensor *t = root(k < n->n_in ? n->in[k] : n->out[k - n->n_in]);
        if (!af_in_arena(t) || t->last != n->at || t == reused)
            continue;
        release(region(s, reach, t), t->offset, af_arena_size(s->g, t));
        t->last = -2 - t->last; /* released: an input listed twice must not be released again */
    }
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        af_tensor *t = root(k < n->n_in ? n->in[k] : n->out[k - n->n_in]);
        if (t->last < -1)
            t->last = -2 - t->last;
    }
}

/* Tensors that were held for a backend and end here, though this node does not use them. */
static void release_held(sweep *s, int reach, const af_node *n, requests *w)
{
    for (; w->next_held < w->n_held && w->held[w->next_held].at <= n->at; w->next_held++) {
        const af_tensor *t = w->held[w->next_held].t;
        bool used = false;
        for (int k = 0; k < n->n_in && !used; k++)
            used = root(n->in[k]) == t;
        for (int k = 0; k < n->n_out && !used; k++)
            used = root(n->out[k]) == t;
        if (!used)
            release(region(s, reach, t), t->offset, af_arena_size(s->g, t));
    }
}

static void place_leaves(af_graph *g)
{
    g->grads_in_arena = false;
    memset(g->role_bytes, 0, sizeof g->role_bytes);
    g->bound_bytes = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->role == AF_ROLE_ACTIVATION || t->base)
            continue;
        if (t->bound) {
            g->bound_bytes += af_tensor_bytes(t);
            continue;
        }
        t->offset = g->role_bytes[t->role];
        g->role_bytes[t->role] += af_arena_size(g, t);
    }
}

/* A node takes as long as its arithmetic or its memory traffic, whichever is longer; weights that
 * are dequantised at each use are read and written once more. */
double af_node_effort(const af_node *n, double flop_per_byte)
{
    const af_op_info *op = af_ops[n->op];
    const double flops = op->flops ? op->flops(n) : 0;
    double bytes = 0, more = 0;
    if (op->view)
        return 0;
    for (int k = 0; k < n->n_in + n->n_out; k++) {
        const af_tensor *t = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        bytes += t->quant ? 2.0 * (double)af_count(t) : (double)af_tensor_bytes(t);
        more += t->quant ? 2.5 * (double)af_count(t) : 0;
    }
    return AF_MAX(flops, flop_per_byte * bytes) + flop_per_byte * more;
}

static void count_work(af_graph *g)
{
    g->flops = g->effort = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        g->flops += af_ops[n->op]->flops ? af_ops[n->op]->flops(n) : 0;
        g->effort += af_node_effort(n, g->flop_per_byte);
    }
}

/* Gives every activation its offset; values that live longer than `reach` nodes come after all the
 * others. Returns the bytes it takes, 0 with *failed when memory for the plan is gone. */
static uint64_t sweep_all(af_graph *g, int reach, bool *failed)
{
    sweep s[2] = {{.g = g}, {.g = g}};
    requests w;
    s[0].failed = !collect_requests(g, &w);
    for (int i = 0; i < g->n_nodes && !s[0].failed && !s[1].failed; i++) {
        take_filled(s, reach, g->nodes[i], &w);
        sweep_node(s, reach, g->nodes[i]);
        release_held(s, reach, g->nodes[i], &w);
    }
    free(w.filled);
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (af_in_arena(t) && t->first >= 0 && region(s, reach, t) == &s[1])
            t->offset += s[0].top;
    }
    *failed |= s[0].failed || s[1].failed;
    free(s[0].hole);
    free(s[1].hole);
    return s[0].top + s[1].top;
}

/* Offsets of a layout that may turn out to be the best: of tensors, then of workspaces. */
static void save_offsets(const af_graph *g, uint64_t *best)
{
    for (int i = 0; i < g->n_tensors; i++)
        best[i] = g->tensors[i]->offset;
    for (int i = 0; i < g->n_nodes; i++)
        best[g->n_tensors + i] = g->nodes[i]->work_offset;
}

static void restore_offsets(af_graph *g, const uint64_t *best)
{
    for (int i = 0; i < g->n_tensors; i++)
        g->tensors[i]->offset = best[i];
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->work_offset = best[g->n_tensors + i];
}

af_status af_graph_layout(af_graph *g, af_error *err)
{
    static const int reaches[] = {8, 24, 64, INT32_MAX};
    /* where every value lives long, the sweeps find all there is to find */
    const size_t layouts = AF_LEN(reaches) + (g->recompute >= AF_RECOMPUTE_WIDE ? 2 : 0);
    uint64_t least = UINT64_MAX;
    uint64_t *best = af_calloc((uint64_t)g->n_tensors + (uint64_t)g->n_nodes + 1, sizeof *best);
    bool failed = !best;
    af_graph_hold_scales(g);
    find_lifetimes(g);
    place_leaves(g);
    for (size_t i = 0; i < layouts && !failed; i++) {
        const af_pack_order order = i > AF_LEN(reaches) ? AF_PACK_SIMILAR : AF_PACK_LARGEST;
        const uint64_t bytes = i < AF_LEN(reaches) ? sweep_all(g, reaches[i], &failed)
                                                   : af_graph_pack(g, order, &failed);
        if (bytes < least && !failed) {
            least = bytes;
            save_offsets(g, best);
        }
    }
    for (int order = AF_PACK_LARGEST_GRADS; order <= AF_PACK_LONGEST_GRADS && g->one_pass;
         order++) {
        const uint64_t bytes = failed ? 0 : af_graph_pack(g, (af_pack_order)order, &failed);
        const uint64_t apart = g->grads_in_arena ? 0 : af_arena_size(g, g->grads_flat);
        if (failed || bytes >= least + apart)
            continue;
        least = bytes;
        g->grads_in_arena = true;
        save_offsets(g, best);
    }
    if (!failed)
        restore_offsets(g, best);
    if (g->grads_in_arena) /* they are the last ones of their role */
        g->role_bytes[AF_ROLE_GRADIENT] -= af_arena_size(g, g->grads_flat);
    free(best);
    g->role_bytes[AF_ROLE_ACTIVATION] = least;
    count_work(g);
    return failed ? af_fail_nomem(err, "the plan", (uint64_t)g->n_tensors * sizeof(free_range))
                  : AF_OK;
}
