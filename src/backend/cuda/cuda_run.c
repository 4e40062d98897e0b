/* cuda_run.c - runs a prepared graph: steps one after another, or the same steps captured once per
 * mask and replayed. Nothing here allocates, looks up, or waits. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "base/log.h"

af_status af_cuda_issue(af_cuda *cu, const af_exec *e, int what, int chunks, uint64_t *count,
                        af_error *err)
{
    const af_driver *drv = cu->drv;
    af_status st = AF_OK;
    for (int i = 0; e && i < e->n; i++) {
        const af_step *s = &e->step[i];
        if ((s->backward_only && !(what & (AF_RUN_BACKWARD | AF_RUN_KEEP))) || s->chunk > chunks ||
            (s->renew_only && !(what & AF_RUN_RENEW)) || (s->probe && !cu->probing))
            continue;
        const bool other = s->alternative && s->alternative->chosen;
        if (s->prelude && !other)
            continue;
        ++*count;
        if (s->kind != AF_STEP_LAUNCH || (other && !s->prelude))
            cu->after_launch = false;
        if (other && !s->prelude) {
            AF_TRY(s->alternative->issue(cu, s->alternative, err));
            continue;
        }
        switch (s->kind) {
        case AF_STEP_LAUNCH:
            AF_TRY(af_cuda_issue_launch(cu, s->launch, err));
            break;
        case AF_STEP_GEMM:
            AF_TRY(af_cuda_gemm_issue(cu, s->gemm, err));
            cu->after_launch |= cu->after_gemm;
            break;
        case AF_STEP_ZERO:
            AF_TRY(af_cu_check(drv, drv->fill(s->to, 0, s->bytes, cu->stream), "cuMemsetD8Async",
                               "a node", err));
            break;
        case AF_STEP_COPY:
            AF_TRY(af_cu_check(drv, drv->copy_inside(s->to, s->from, s->bytes, cu->stream),
                               "cuMemcpyDtoDAsync", "a node", err));
            break;
        case AF_STEP_SWAP:
            AF_TRY(s->exchange->swap(s->exchange->user, s->swap, s->swaps, cu->stream, err));
            cu->device.counters.sent_bytes += s->bytes;
            break;
        }
    }
done:
    return st;
}

static void swap_streams(af_cuda *cu)
{
    cu->after_launch = false;
    void *s = cu->stream;
    cu->stream = cu->second;
    cu->second = s;
    void *w = cu->gemm_work;
    cu->gemm_work = cu->second_gemm_work;
    cu->second_gemm_work = w;
}

/* The main stream waits for what was last issued on the second one. */
static af_status join_second(af_cuda *cu, bool *pending, af_error *err)
{
    if (!*pending)
        return AF_OK;
    *pending = cu->after_launch = false;
    return af_cu_check(cu->drv, cu->drv->stream_wait(cu->stream, cu->join, 0), "cuStreamWaitEvent",
                       "the second stream", err);
}

/* Nodes [from, from + n) on the second stream, after all that was issued so far. */
static af_status issue_on_second(af_cuda *cu, const af_graph *g, int what, int from, int n,
                                 uint64_t *count, af_error *err)
{
    const af_cuda_graph *cg = g->backend;
    const af_driver *drv = cu->drv;
    af_status st = AF_OK;
    AF_TRY(af_cu_check(drv, drv->event_record(cu->fork, cu->stream), "cuEventRecord",
                       "the second stream", err));
    AF_TRY(af_cu_check(drv, drv->stream_wait(cu->second, cu->fork, 0), "cuStreamWaitEvent",
                       "the second stream", err));
    swap_streams(cu);
    for (int i = from; i < from + n && st == AF_OK; i++)
        st = af_cuda_issue(cu, af_exec_of(g->nodes[i], cg->level), what, cg->chunks, count, err);
    if (st == AF_OK)
        st = af_cu_check(drv, drv->event_record(cu->join, cu->stream), "cuEventRecord",
                         "the second stream", err);
    swap_streams(cu);
done:
    return st;
}

/* An exchange on the third stream, after all that was issued so far on the main one and, if set, on
 * the second one; `done` is recorded after it. */
static af_status issue_on_third(af_cuda *cu, const af_graph *g, const af_node *n, bool second,
                                void *done, uint64_t *count, af_error *err)
{
    const af_cuda_graph *cg = g->backend;
    const af_driver *drv = cu->drv;
    static const char *const what = "the stream of exchanges";
    void *main = cu->stream;
    af_status st = AF_OK;
    AF_TRY(af_cu_check(drv, drv->event_record(cu->ready, main), "cuEventRecord", what, err));
    AF_TRY(af_cu_check(drv, drv->stream_wait(cu->third, cu->ready, 0), "cuStreamWaitEvent", what,
                       err));
    if (second)
        AF_TRY(af_cu_check(drv, drv->stream_wait(cu->third, cu->join, 0), "cuStreamWaitEvent", what,
                           err));
    cu->stream = cu->third;
    st = af_cuda_issue(cu, af_exec_of(n, cg->level), AF_RUN_BACKWARD, cg->chunks, count, err);
    cu->stream = main;
    AF_TRY(st);
    st = af_cu_check(drv, drv->event_record(done, cu->third), "cuEventRecord", what, err);
done:
    return st;
}

/* Exchanges of a run that are, or were, under way on the third stream. */
typedef struct exchanges {
    int sums, gathers;
    int at[AF_GATHERS_AHEAD]; /* positions of the last gathers */
    int known;                /* the main stream has waited for those before this position */
} exchanges;

static af_status wait_third(af_cuda *cu, void *event, af_error *err)
{
    cu->after_launch = false;
    return af_cu_check(cu->drv, cu->drv->stream_wait(cu->stream, event, 0), "cuStreamWaitEvent",
                       "the stream of exchanges", err);
}

/* The main stream first waits for the sum that is AF_EXCHANGES_AHEAD before: its memory is used
 * again. */
static af_status issue_exchange(af_cuda *cu, const af_graph *g, const af_node *n, bool second,
                                exchanges *x, uint64_t *count, af_error *err)
{
    if (n->op == AF_OP_RANK_GATHER) {
        const int k = x->gathers++ % AF_GATHERS_AHEAD;
        x->at[k] = n->at;
        return issue_on_third(cu, g, n, false, cu->gathered[k], count, err);
    }
    void *done = cu->done[x->sums % AF_EXCHANGES_AHEAD];
    const af_status st = x->sums >= AF_EXCHANGES_AHEAD ? wait_third(cu, done, err) : AF_OK;
    x->sums++;
    return st == AF_OK ? issue_on_third(cu, g, n, second, done, count, err) : st;
}

/* Before the nodes [from, to): the main stream waits for what they read. */
static af_status wait_for_gathers(af_cuda *cu, const af_cuda_graph *cg, int from, int to,
                                  exchanges *x, af_error *err)
{
    int last = 0;
    for (int i = from; i < to; i++)
        last = AF_MAX(last, cg->plan.gather[i]);
    if (last <= x->known)
        return AF_OK;
    int event = (x->gathers - 1) % AF_GATHERS_AHEAD; /* the newest: after all others */
    x->known = last;
    for (int k = 0; k < AF_MIN(x->gathers, AF_GATHERS_AHEAD); k++)
        if (x->at[k] == last - 1)
            event = k;
    return wait_third(cu, cu->gathered[event], err);
}

/* The main stream waits for all sums: the last one ends after the others. */
static af_status join_third(af_cuda *cu, exchanges *x, af_error *err)
{
    if (x->sums == 0)
        return AF_OK;
    void *last = cu->done[(x->sums - 1) % AF_EXCHANGES_AHEAD];
    x->sums = 0;
    return wait_third(cu, last, err);
}

/* Every step of the phases in `what`, in order. *count: how many. Weight gradients run on the
 * second stream while the LINEAR_DX before them runs (plan.on_second): the planner holds what they
 * read until the next such group. The streams join there, or earlier before a node that needs one
 * of the gradients (plan.joins). */
static af_status issue_all(af_cuda *cu, const af_graph *g, int what, uint64_t *count, af_error *err)
{
    static const int bit[] = {[AF_PHASE_FORWARD] = AF_RUN_FORWARD,
                              [AF_PHASE_BACKWARD] = AF_RUN_BACKWARD,
                              [AF_PHASE_UPDATE] = AF_RUN_UPDATE};
    const af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    const bool one = cu->test && cu->test->one_stream, third = cg->plan.uses_third && !one;
    bool pending = false;
    int next = 0;
    exchanges x = {0};
    *count = 0;
    cu->after_launch = false;
    cu->after_gemm = cg->levels > 1; /* steps of training take longer with it */
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        const int overlapping = one ? 0 : cg->plan.on_second[i];
        if (!(what & bit[n->phase]))
            continue;
        if (third && (af_cuda_sums_on_third(n) || n->op == AF_OP_RANK_GATHER)) {
            AF_TRY(issue_exchange(cu, g, n, pending, &x, count, err));
            continue;
        }
        if (third)
            AF_TRY(wait_for_gathers(cu, cg, i, i + 1 + overlapping, &x, err));
        AF_TRY(af_cuda_offload_issue(cu, cg, i, true, &next, err));
        if (n->phase == AF_PHASE_UPDATE)
            AF_TRY(join_third(cu, &x, err));
        if (overlapping || cg->plan.joins[i] || n->phase == AF_PHASE_UPDATE)
            AF_TRY(join_second(cu, &pending, err));
        if (overlapping) {
            AF_TRY(issue_on_second(cu, g, what, i + 1, overlapping, count, err));
            pending = true;
        }
        AF_TRY(af_cuda_issue(cu, af_exec_of(n, cg->level), what, cg->chunks, count, err));
        AF_TRY(af_cuda_offload_issue(cu, cg, i, false, &next, err));
        i += overlapping;
    }
    AF_TRY(join_second(cu, &pending, err));
    AF_TRY(join_third(cu, &x, err));
    if (what & AF_RUN_UPDATE) /* the copies GEMMs read follow the params */
        AF_TRY(af_cuda_issue(cu, af_exec_of(&cg->on_params, 0), what, 0, count, err));
done:
    return st;
}

static af_status capture(af_cuda *cu, af_graph *g, int what, af_error *err)
{
    const af_driver *drv = cu->drv;
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    void *graph = NULL;
    AF_TRY(af_cu_check(drv, drv->capture_begin(cu->stream, AF_CU_CAPTURE_THREAD),
                       "cuStreamBeginCapture", "a step", err));
    const uint64_t before = cu->device.counters.sent_bytes;
    st = issue_all(cu, g, what, &cg->captured[cg->level][what][cg->chunks].launches, err);
    cg->captured[cg->level][what][cg->chunks].sent_bytes = cu->device.counters.sent_bytes - before;
    cu->device.counters.sent_bytes = before;
    const int ended = drv->capture_end(cu->stream, &graph);
    if (st == AF_OK)
        st = af_cu_check(drv, ended, "cuStreamEndCapture", "a step", err);
    if (st == AF_OK)
        st = af_cu_check(
            drv, drv->graph_instantiate(&cg->captured[cg->level][what][cg->chunks].exec, graph, 0),
            "cuGraphInstantiate", "a step", err);
done:
    if (graph)
        drv->graph_free(graph);
    return st;
}

void af_cuda_drop_captures(af_cuda *cu, af_cuda_graph *cg)
{
    for (int level = 0; level < AF_ROW_LEVELS; level++)
        for (int i = 0; i < AF_RUN_MASKS; i++)
            for (int k = 0; k <= AF_CHUNKS_MAX; k++) {
                void **exec = &cg->captured[level][i][k].exec;
                if (*exec)
                    cu->drv->graph_exec_free(*exec);
                *exec = NULL;
            }
}

/* What the host wrote since the last run reaches the copies that GEMMs read. */
static af_status follow_writes(af_cuda *cu, af_cuda_graph *cg, af_error *err)
{
    af_status st = AF_OK;
    uint64_t count = 0;
    bool changed = false;
    cu->after_launch = false; /* what the host wrote may be newer than the last launch */
    if (cg->weights_dirty)
        st = af_cuda_load_done(cu, cg, &changed, err);
    if (changed) /* also when loading failed after that */
        af_cuda_drop_captures(cu, cg);
    if (st != AF_OK)
        return st;
    if (cg->weights_dirty)
        AF_TRY(af_cuda_issue(cu, af_exec_of(&cg->on_weights, 0), 0, 0, &count, err));
    cg->weights_dirty = false;
    if (cg->params_dirty)
        AF_TRY(af_cuda_issue(cu, af_exec_of(&cg->on_params, 0), 0, 0, &count, err));
    cg->params_dirty = false;
done:
    return st;
}

/* With RENEW, if this update does that. */
static int mask_of(const af_graph *g, int what)
{
    return what & AF_RUN_UPDATE && g->renews ? what | AF_RUN_RENEW : what;
}

af_status af_cuda_run(af_device *d, af_graph *g, int what, af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    uint64_t count = 0;
    const uint64_t sent = d->counters.sent_bytes;
    cg->level = af_cuda_level_of(g);
    void **exec = &cg->captured[cg->level][what][cg->chunks].exec;
    AF_TRY(
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a run", err));
    AF_TRY(follow_writes(cu, cg, err));
    const int mask = mask_of(g, what);
    const bool capturing = !(cu->test && cu->test->no_capture) && mask == what;
    if (capturing && !cg->capture_refused && !*exec) {
        af_error why = {0};
        if (capture(cu, g, what, &why) != AF_OK) {
            cg->capture_refused = true;
            af_log_write(AF_LOG_WARN,
                         "the step cannot be captured, kernels are launched one by one: %s",
                         why.msg);
        }
    }
    if (capturing && *exec) {
        AF_TRY(af_cu_check(cu->drv, cu->drv->graph_launch(*exec, cu->stream), "cuGraphLaunch",
                           "a step", err));
        count = cg->captured[cg->level][what][cg->chunks].launches;
        d->counters.sent_bytes += cg->captured[cg->level][what][cg->chunks].sent_bytes;
    } else {
        AF_TRY(issue_all(cu, g, mask, &count, err));
    }
    d->counters.launches += count;
    if (g->evaluating) /* not part of a step */
        d->counters.sent_bytes = sent;
done:
    return st;
}

/* One stream, nothing captured. Calls for one pass come in the order of its nodes. */
af_status af_cuda_run_nodes(af_device *d, af_graph *g, int what, int from, int to, af_error *err)
{
    static const int bit[] = {[AF_PHASE_FORWARD] = AF_RUN_FORWARD,
                              [AF_PHASE_BACKWARD] = AF_RUN_BACKWARD,
                              [AF_PHASE_UPDATE] = AF_RUN_UPDATE};
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    uint64_t count = 0;
    int next = 0;
    cg->level = af_cuda_level_of(g);
    AF_TRY(
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "nodes", err));
    AF_TRY(follow_writes(cu, cg, err));
    cu->probing = true;
    for (int i = from; i < to; i++) {
        const af_node *n = g->nodes[i];
        if (n->phase == AF_PHASE_CARRY || !(what & bit[n->phase]))
            continue;
        AF_TRY(af_cuda_offload_issue(cu, cg, i, true, &next, err));
        AF_TRY(
            af_cuda_issue(cu, af_exec_of(n, cg->level), mask_of(g, what), cg->chunks, &count, err));
        AF_TRY(af_cuda_offload_issue(cu, cg, i, false, &next, err));
    }
done:
    cu->probing = false;
    d->counters.launches += count;
    return st;
}

af_status af_cuda_run_node(af_device *d, af_graph *g, const af_node *n, af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    const af_cuda_graph *cg = g->backend;
    uint64_t count = 0;
    cu->after_launch = false;
    af_status st =
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a node", err);
    if (st == AF_OK)
        st = af_cuda_issue(cu, af_exec_of(n, cg->level), 0, 0, &count, err);
    d->counters.launches += count;
    return st;
}
