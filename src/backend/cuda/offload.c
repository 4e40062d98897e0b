/* offload.c - values of the forward pass that stay in pinned host memory until the backward pass.
 *
 * With block recomputation only the inputs of blocks (and results of attention, where those are
 * kept) live from one pass to the other. Each of them is copied out after its last reader of the
 * forward pass, on the second stream, and its memory is free again when the next one leaves; it
 * comes back one block before it is read, into a tensor of its own. The copies overlap
 * with the work of a block, so they cost time only where the bus is slower than the block. Bytes
 * come back as they left: results do not change. */
#include "backend/cuda/cuda_graph.h"

#include <stdlib.h>

enum {
    BYTES_MIN = 4096, /* smaller values stay on the device */
    GAP_MIN = 40,     /* positions between the passes: values needed sooner stay */
    PREFETCH = 32,    /* positions the first one is fetched before it is read: about a block */
};

typedef struct offloaded {
    af_tensor *t;
    int last_forward, first_backward;
    int block;     /* that reads it last in the forward pass; values of a block travel together */
    uint64_t host; /* offset in the pinned memory */
} offloaded;

static af_tensor *root(af_tensor *t) { return t->base ? t->base : t; }

static bool has_views(const af_graph *g, const af_tensor *t)
{
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->base == t)
            return true;
    return false;
}

/* Where every activation is used: last in the forward pass, first after it (-1: not). */
static void find_uses(const af_graph *g, offloaded *by_id)
{
    for (int i = 0; i < g->n_tensors; i++)
        by_id[i] = (offloaded){g->tensors[i], -1, -1, -1, 0};
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        for (int k = 0; k < n->n_in + n->n_out; k++) {
            offloaded *s = &by_id[root(k < n->n_in ? n->in[k] : n->out[k - n->n_in])->id];
            if (n->phase == AF_PHASE_FORWARD) {
                s->last_forward = i;
                s->block = n->block;
            } else if (s->first_backward < 0) {
                s->first_backward = i;
            }
        }
    }
}

static bool can_offload(const af_graph *g, const offloaded *s)
{
    const af_tensor *t = s->t;
    return t->role == AF_ROLE_ACTIVATION && !t->base && !t->keep && t->producer &&
           t->producer->phase == AF_PHASE_FORWARD && t->producer->block < g->recompute_blocks &&
           s->last_forward >= 0 && s->first_backward >= 0 &&
           s->first_backward - s->last_forward > GAP_MIN && af_tensor_extent(t) >= BYTES_MIN &&
           !has_views(g, t);
}

static int by_last_forward(const void *a, const void *b)
{
    const offloaded *x = a, *y = b;
    return x->last_forward != y->last_forward ? x->last_forward - y->last_forward
                                              : y->first_backward - x->first_backward;
}

static int by_first_backward(const void *a, const void *b)
{
    const offloaded *x = a, *y = b;
    return x->first_backward != y->first_backward ? x->first_backward - y->first_backward
                                                  : y->last_forward - x->last_forward;
}

static int by_position(const void *a, const void *b)
{
    const af_move *x = a, *y = b;
    const int bx = x->kind >= AF_MOVE_IN_DONE, by = y->kind >= AF_MOVE_IN_DONE;
    if (x->at != y->at)
        return x->at - y->at;
    if (bx != by) /* what happens before a node comes first */
        return by - bx;
    /* the pending copy ends before the next one begins */
    return (x->kind == AF_MOVE_OUT || x->kind == AF_MOVE_IN) -
           (y->kind == AF_MOVE_OUT || y->kind == AF_MOVE_IN);
}

static af_tensor *copied_back(af_graph *g, const af_tensor *t, int from)
{
    af_node maker = {0}; /* not of the graph: af_node_output only links the tensor to it */
    af_tensor *x = af_node_output(g, &maker, t->dtype, t->ndim, t->dim);
    if (af_graph_failed(g))
        return NULL;
    x->producer = NULL;
    x->ld = t->ld;
    x->live = t->live;
    x->fill_from = from;
    for (int i = from; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t)
                g->nodes[i]->in[k] = x;
    return x;
}

static void add_move(af_cuda_graph *cg, int at, af_move_kind kind, const af_tensor *t,
                     uint64_t host)
{
    cg->plan.move[cg->plan.moves++] = (af_move){at, kind, t, host};
}

/* Values of a block travel together where two are large; in the smallest mode each makes place for
 * the next. */
static bool together(const af_graph *g, const offloaded *a, const offloaded *b)
{
    return g->recompute == AF_RECOMPUTE_HOST && a->block == b->block;
}

/* Copies run one after another; one that waits for its own waits for those before it. The memory of
 * a value is held until those of the next block leave. */
static void plan_copies_out(af_graph *g, af_cuda_graph *cg, offloaded *list, int n,
                            int last_forward)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        af_tensor *t = list[i].t;
        int next = i + 1;
        while (next < n && together(g, &list[next], &list[i]))
            next++;
        const int until = next < n ? list[next].last_forward : last_forward;
        t->hold_until = AF_MAX(t->hold_until, until);
        list[i].host = at;
        add_move(cg, list[i].last_forward, AF_MOVE_OUT, t, at);
        add_move(cg, until, AF_MOVE_OUT_DONE, t, at);
        at += AF_ALIGN_UP(af_tensor_extent(t), (uint64_t)256);
    }
    g->host_bytes = at;
}

static void plan_copies_in(af_graph *g, af_cuda_graph *cg, offloaded *list, int n,
                           int first_backward)
{
    for (int i = 0; i < n && !af_graph_failed(g); i++) {
        const int use = list[i].first_backward;
        int last = i - 1;
        while (last >= 0 && together(g, &list[last], &list[i]))
            last--;
        const int from =
            AF_MAX(last >= 0 ? list[last].first_backward : use - PREFETCH, first_backward);
        const af_tensor *x = copied_back(g, list[i].t, from);
        if (!x)
            return;
        add_move(cg, from, AF_MOVE_IN, x, list[i].host);
        add_move(cg, use, AF_MOVE_IN_DONE, x, list[i].host);
    }
}

af_status af_cuda_offload_layout(af_graph *g, af_cuda_graph *cg, af_error *err)
{
    int n = 0, last_forward = -1, first_backward = -1;
    offloaded *list = af_calloc((uint64_t)g->n_tensors, sizeof *list);
    if (!list)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_tensors * sizeof *list);
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i]->phase == AF_PHASE_FORWARD)
            last_forward = i;
        else if (first_backward < 0)
            first_backward = i;
    }
    find_uses(g, list);
    for (int i = 0; i < g->n_tensors; i++)
        if (can_offload(g, &list[i]))
            list[n++] = list[i];
    cg->plan.moves = 0;
    cg->plan.move = af_arena_take(&g->mem, (uint64_t)(n * 4 + 1) * sizeof *cg->plan.move);
    if (!cg->plan.move) {
        free(list);
        return af_fail_nomem(err, "the plan", (uint64_t)n * 4 * sizeof *cg->plan.move);
    }
    qsort(list, (size_t)n, sizeof *list, by_last_forward);
    plan_copies_out(g, cg, list, n, last_forward);
    qsort(list, (size_t)n, sizeof *list, by_first_backward);
    plan_copies_in(g, cg, list, n, first_backward);
    qsort(cg->plan.move, (size_t)cg->plan.moves, sizeof *cg->plan.move, by_position);
    free(list);
    return af_graph_status(g, err);
}

af_status af_cuda_offload_prepare(af_cuda *cu, af_graph *g, af_error *err)
{
    af_cuda_graph *cg = g->backend;
    if (cg->plan.moves == 0)
        return AF_OK;
    cu->device.counters.allocations++;
    return af_cu_check(cu->drv, cu->drv->host_alloc((void **)&cg->pinned, g->host_bytes, 0),
                       "cuMemHostAlloc", "offloaded values", err);
}

static af_status copy(af_cuda *cu, const af_cuda_graph *cg, const af_move *m, af_error *err)
{
    const af_driver *drv = cu->drv;
    const uint64_t bytes = af_tensor_extent(m->t);
    uint8_t *host = cg->pinned + m->host;
    af_status st = AF_OK;
    AF_TRY(af_cu_check(drv, drv->event_record(cu->fork, cu->stream), "cuEventRecord",
                       "an offloaded value", err));
    AF_TRY(af_cu_check(drv, drv->stream_wait(cu->second, cu->fork, 0), "cuStreamWaitEvent",
                       "an offloaded value", err));
    AF_TRY(af_cu_check(drv,
                       m->kind == AF_MOVE_OUT ? drv->copy_down(host, m->t->data, bytes, cu->second)
                                              : drv->copy_up(m->t->data, host, bytes, cu->second),
                       "cuMemcpyAsync", "an offloaded value", err));
    AF_TRY(af_cu_check(drv, drv->event_record(cu->join, cu->second), "cuEventRecord",
                       "an offloaded value", err));
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
            AF_TRY(af_cu_check(cu->drv, cu->drv->stream_wait(cu->stream, cu->join, 0),
                               "cuStreamWaitEvent", "an offloaded value", err));
    }
done:
    return st;
}
