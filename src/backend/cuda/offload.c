/* offload.c - values of the forward pass that stay in pinned host memory until the backward pass.
 *
 * With AF_RECOMPUTE_HOST and AF_RECOMPUTE_OFFLOAD the inputs of blocks live from one pass to the
 * other, results of attention (HOST), or what moved.c chose (OFFLOAD). Each value is copied out
 * when it is there, on the second stream, one after another (with those that are made soon after
 * it: whenever one stream waits for the other, some 10 us are lost); its memory is free again after
 * its last reader of the forward pass and at the node where the copy is expected to be done (where
 * the main stream waits for it). It comes back into a tensor of its own, just before it is read.
 * When a copy begins and ends is estimated from the work of the nodes, so that copies overlap with
 * them; an estimate that is wrong costs time only. Bytes come back as they left: results do not
 * change.
 */
#include "backend/cuda/cuda_graph.h"

#include <stdlib.h>

enum {
    BYTES_MIN = 1 << 17, /* smaller values stay on the device */
    OUT_SPAN = 4, /* positions from the first to the last value of a group that is copied out, */
    IN_SPAN = 7,  /* or copied back, */
    SMALL_IN_SPAN = 12, /* the same while all of the group are small */
    AHEAD_MAX = 32,     /* positions a value is held for its copy, or fetched before it is read */
};

typedef struct offloaded {
    af_tensor *t;
    int made, last_forward, first_backward; /* positions, -1 = none */
    bool written_back;                      /* the backward pass writes there */
    int start, use;  /* copied out after this node, needed back before that one */
    int done_at;     /* the main stream waits for the copy out after this node, */
    int until, from; /* its memory is held until, and needed again from these */
    uint64_t host;   /* offset in the pinned memory */
} offloaded;

typedef struct offload_plan {
    af_graph *g;
    af_cuda_graph *cg;
    offloaded *list;
    int n;
    double *end; /* by position: when the node is done, in FLOP */
    uint64_t largest;
    int last_forward, first_backward;
} offload_plan;

static af_tensor *root(af_tensor *t) { return t->base ? t->base : t; }

/* Where every activation is made and used. */
static void find_uses(const af_graph *g, offloaded *by_id)
{
    for (int i = 0; i < g->n_tensors; i++)
        by_id[i] = (offloaded){.t = g->tensors[i], .made = -1, -1, -1};
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            offloaded *s = &by_id[root(k < n->n_in ? n->in[k] : n->out[k - n->n_in])->id];
            if (n->phase != AF_PHASE_FORWARD) {
                s->first_backward = s->first_backward < 0 ? i : s->first_backward;
                s->written_back |= k >= n->n_in && !af_ops[n->op]->view;
                continue;
            }
            s->last_forward = i;
            s->made = k >= n->n_in ? i : s->made;
        }
    }
}

static bool can_offload(const af_graph *g, const offloaded *s)
{
    const af_tensor *t = s->t;
    return t->role == AF_ROLE_ACTIVATION && !t->base && !t->keep && t->producer &&
           t->producer->phase == AF_PHASE_FORWARD && t->producer->block < g->recompute_blocks &&
           s->made >= 0 && s->first_backward >= 0 && !s->written_back &&
           af_tensor_extent(t) >= BYTES_MIN;
}

static int by_made(const void *a, const void *b)
{
    const offloaded *x = a, *y = b;
    return x->made != y->made ? x->made - y->made : x->t->id - y->t->id;
}

static int by_first_backward(const void *a, const void *b)
{
    const offloaded *x = a, *y = b;
    return x->first_backward != y->first_backward ? x->first_backward - y->first_backward
                                                  : y->t->id - x->t->id;
}

static int by_position(const void *a, const void *b)
{
    const af_move *x = a, *y = b;
    const int bx = x->kind >= AF_MOVE_IN_DONE, by = y->kind >= AF_MOVE_IN_DONE;
    if (x->at != y->at)
        return x->at - y->at;
    if (bx != by) /* what happens before a node comes first */
        return by - bx;
    const int copies = (x->kind == AF_MOVE_OUT || x->kind == AF_MOVE_IN) -
                       (y->kind == AF_MOVE_OUT || y->kind == AF_MOVE_IN);
    return copies ? copies : x->order - y->order;
}

static double move_time(const offload_plan *p, const offloaded *s)
{
    return (double)af_tensor_extent(s->t) * p->g->flop_per_move;
}

/* The first position from `at` on whose node ends at `time` or later. */
static int position_at(const offload_plan *p, int at, double time)
{
    while (at + 1 < p->g->n_nodes && p->end[at] < time)
        at++;
    return at;
}

/* Values that are made soon after each other are copied out as a group: the streams wait for each
 * other once. Sorted by made; the first one of the next group. */
static int out_group_end(const offload_plan *p, int first)
{
    int i = first;
    while (i < p->n && p->list[i].made - p->list[first].made <= OUT_SPAN)
        i++;
    return i;
}

/* When the memory of each value is free. */
static void time_copies_out(const offload_plan *p)
{
    double done = 0;
    for (int i = 0; i < p->n;) {
        const int next = out_group_end(p, i), start = p->list[next - 1].made;
        done = AF_MAX(done, p->end[start]);
        for (int k = i; k < next; k++)
            done += move_time(p, &p->list[k]);
        const int at = AF_MIN(position_at(p, start, done), start + AHEAD_MAX);
        for (; i < next; i++) {
            offloaded *s = &p->list[i];
            s->start = start;
            s->done_at = AF_MIN(at, p->last_forward);
            /* the last reader may work in place: not before the copy is done */
            s->until = AF_MAX(s->done_at, s->last_forward + (s->done_at >= s->last_forward));
        }
    }
}

static bool is_small(const offload_plan *p, int i)
{
    return 8 * af_tensor_extent(p->list[i].t) <= p->largest;
}

/* Those that are needed soon after each other are copied back as a group, small ones earlier than
 * alone. Sorted by first use; the first one of the group that ends with `last`. */
static int in_group_begin(const offload_plan *p, int last)
{
    int i = last, use = p->list[last].first_backward;
    bool small = is_small(p, last);
    while (i > 0 && use - p->list[i - 1].first_backward <= (small ? SMALL_IN_SPAN : IN_SPAN)) {
        i--;
        if (small && !is_small(p, i)) { /* it counts from here */
            small = false;
            use = p->list[i].first_backward;
        }
    }
    return i;
}

/* When each copy back begins: as late as those after it allow. */
static void time_copies_in(const offload_plan *p)
{
    double begin = p->end[AF_MAX(p->g->n_nodes - 1, 0)];
    for (int last = p->n - 1; last >= 0;) {
        const int first = in_group_begin(p, last), use = p->list[first].first_backward;
        int at = use - 1;
        begin = AF_MIN(begin, p->end[AF_MAX(at, 0)]);
        for (int k = first; k <= last; k++)
            begin -= move_time(p, &p->list[k]);
        while (at > AF_MAX(use - AHEAD_MAX, p->first_backward) && p->end[at - 1] > begin)
            at--;
        for (; last >= first; last--) {
            p->list[last].from = at;
            p->list[last].use = use;
        }
    }
}

/* Values whose memory would be needed again before it is free stay where they are. */
static void drop_short(offload_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const offloaded *s = &p->list[i];
        if (s->until <= p->last_forward && s->from > s->until && s->from >= p->first_backward)
            p->list[n++] = *s;
    }
    p->n = n;
}

static af_tensor *like(af_graph *g, const af_tensor *t)
{
    af_node maker = {0}; /* not of the graph: af_node_output only links the tensor to it */
    af_tensor *x = af_node_output(g, &maker, t->dtype, t->ndim, t->dim);
    if (af_graph_failed(g))
        return NULL;
    x->producer = NULL;
    x->ld = t->ld;
    x->live = t->live;
    return x;
}

static void replace(const af_graph *g, int from, const af_tensor *t, af_tensor *x)
{
    for (int i = from; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t)
                g->nodes[i]->in[k] = x;
}

/* What the backward pass reads in place of s->t, and of the views of it. */
static af_tensor *copied_back(af_graph *g, const offloaded *s)
{
    const int n = g->n_tensors;
    af_tensor *x = like(g, s->t);
    if (!x)
        return NULL;
    x->fill_from = s->from;
    replace(g, s->from, s->t, x);
    for (int i = 0; i < n; i++) {
        af_tensor *v = g->tensors[i];
        if (v->base != s->t)
            continue;
        if (!v->producer || v->producer->phase == AF_PHASE_FORWARD) {
            const af_tensor *of = v;
            v = like(g, of);
            if (!v)
                return NULL;
            v->base_offset = of->base_offset;
            replace(g, s->from, of, v);
        }
        v->base = x;
    }
    return x;
}

static void add_move(const offload_plan *p, af_move m)
{
    p->cg->plan.move[p->cg->plan.moves++] = m;
}

static void plan_copies_out(const offload_plan *p)
{
    uint64_t at = 0;
    for (int i = 0; i < p->n; i++) {
        offloaded *s = &p->list[i];
        const bool first = i == 0 || p->list[i - 1].start != s->start;
        const bool last = i + 1 == p->n || p->list[i + 1].start != s->start;
        s->t->hold_until = AF_MAX(s->t->hold_until, s->until);
        s->host = at;
        add_move(p, (af_move){s->start, AF_MOVE_OUT, s->t, at, i, first, last});
        if (last)
            add_move(p, (af_move){s->done_at, AF_MOVE_OUT_DONE, s->t, at, i, true, true});
        at += AF_ALIGN_UP(af_tensor_extent(s->t), (uint64_t)256);
    }
    p->g->host_bytes = at;
}

static void plan_copies_in(const offload_plan *p)
{
    for (int i = 0; i < p->n; i++) {
        const offloaded *s = &p->list[i];
        const bool first = i == 0 || p->list[i - 1].use != s->use;
        const bool last = i + 1 == p->n || p->list[i + 1].use != s->use;
        const af_tensor *x = copied_back(p->g, s);
        if (!x)
            return;
        add_move(p, (af_move){s->from, AF_MOVE_IN, x, s->host, p->n + i, first, last});
        if (last)
            add_move(p, (af_move){s->use, AF_MOVE_IN_DONE, x, s->host, p->n + i, true, true});
    }
}

static void find_times(offload_plan *p)
{
    double now = 0;
    p->last_forward = p->first_backward = -1;
    for (int i = 0; i < p->g->n_nodes; i++) {
        const af_node *n = p->g->nodes[i];
        p->end[i] = now += n->phase == AF_PHASE_CARRY ? 0 : af_node_effort(n, p->g->flop_per_byte);
        if (n->phase == AF_PHASE_FORWARD)
            p->last_forward = i;
        else if (p->first_backward < 0)
            p->first_backward = i;
    }
}

af_status af_cuda_offload_layout(af_graph *g, af_cuda_graph *cg, af_error *err)
{
    offload_plan p = {.g = g, .cg = cg};
    af_status st = AF_OK;
    p.list = af_calloc((uint64_t)g->n_tensors, sizeof *p.list);
    p.end = af_calloc((uint64_t)g->n_nodes + 1, sizeof *p.end);
    if (!p.list || !p.end) {
        st = af_fail_nomem(err, "the plan", (uint64_t)g->n_tensors * sizeof *p.list);
        goto done;
    }
    find_times(&p);
    find_uses(g, p.list);
    for (int i = 0; i < g->n_tensors; i++)
        if (can_offload(g, &p.list[i])) {
            p.largest = AF_MAX(p.largest, af_tensor_extent(p.list[i].t));
            p.list[p.n++] = p.list[i];
        }
    cg->plan.moves = 0;
    cg->plan.move = af_arena_take(&g->mem, (uint64_t)(p.n * 4 + 1) * sizeof *cg->plan.move);
    if (!cg->plan.move) {
        st = af_fail_nomem(err, "the plan", (uint64_t)p.n * 4 * sizeof *cg->plan.move);
        goto done;
    }
    for (int pass = 0; pass < 2; pass++) { /* then without those that stay */
        qsort(p.list, (size_t)p.n, sizeof *p.list, by_first_backward);
        time_copies_in(&p);
        qsort(p.list, (size_t)p.n, sizeof *p.list, by_made);
        time_copies_out(&p);
        drop_short(&p);
    }
    plan_copies_out(&p);
    qsort(p.list, (size_t)p.n, sizeof *p.list, by_first_backward);
    plan_copies_in(&p);
    qsort(cg->plan.move, (size_t)cg->plan.moves, sizeof *cg->plan.move, by_position);
    st = af_graph_status(g, err);
done:
    free(p.list);
    free(p.end);
    return st;
}

af_status af_cuda_offload_prepare(af_cuda *cu, af_graph *g, af_error *err)
{
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    if (cg->plan.moves == 0)
        return AF_OK;
    for (int i = 0; i < AF_MOVES_AHEAD; i++)
        if (!cu->moved[i])
            AF_TRY(af_cu_check(cu->drv, cu->drv->event_new(&cu->moved[i], AF_CU_EVENT_NO_TIMING),
                               "cuEventCreate", "offloaded values", err));
    cu->device.counters.allocations++;
    st = af_cu_check(cu->drv, cu->drv->host_alloc((void **)&cg->pinned, g->host_bytes, 0),
                     "cuMemHostAlloc", "offloaded values", err);
done:
    return st;
}

/* Events of copies that are under way. One that was used again since is recorded later: a longer
 * wait, not a wrong one. */
static void *event_of(const af_cuda *cu, const af_move *m)
{
    return cu->moved[m->order % AF_MOVES_AHEAD];
}

static af_status copy(af_cuda *cu, const af_cuda_graph *cg, const af_move *m, af_error *err)
{
    static const char *const what = "an offloaded value";
    const af_driver *drv = cu->drv;
    const uint64_t bytes = af_tensor_extent(m->t);
    uint8_t *host = cg->pinned + m->host;
    af_status st = AF_OK;
    if (m->first) {
        AF_TRY(
            af_cu_check(drv, drv->event_record(cu->fork, cu->stream), "cuEventRecord", what, err));
        AF_TRY(af_cu_check(drv, drv->stream_wait(cu->second, cu->fork, 0), "cuStreamWaitEvent",
                           what, err));
    }
    AF_TRY(af_cu_check(drv,
                       m->kind == AF_MOVE_OUT ? drv->copy_down(host, m->t->data, bytes, cu->second)
                                              : drv->copy_up(m->t->data, host, bytes, cu->second),
                       "cuMemcpyAsync", what, err));
    if (m->last)
        AF_TRY(af_cu_check(drv, drv->event_record(event_of(cu, m), cu->second), "cuEventRecord",
                           what, err));
done:
    return st;
}

af_status af_cuda_offload_issue(af_cuda *cu, const af_cuda_graph *cg, int at, bool before,
                                int *next, af_error *err)
{
    af_status st = AF_OK;
    for (; *next < cg->plan.moves && cg->plan.move[*next].at <= at; ++*next) {
        const af_move *m = &cg->plan.move[*next];
        if (m->at < at) /* of a pass that does not run */
            continue;
        if (before != (m->kind >= AF_MOVE_IN_DONE))
            break;
        cu->after_launch = false;
        if (m->kind == AF_MOVE_OUT || m->kind == AF_MOVE_IN)
            AF_TRY(copy(cu, cg, m, err));
        else
            AF_TRY(af_cu_check(cu->drv, cu->drv->stream_wait(cu->stream, event_of(cu, m), 0),
                               "cuStreamWaitEvent", "an offloaded value", err));
    }
done:
    return st;
}
