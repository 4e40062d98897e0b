/* cuda_layout.c - before offsets are assigned: the families' layouts, what runs on the second
 * stream, what is offloaded, and how much workspace each node needs. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/gemm.h"

enum {
    /* elements of a gradient whose GEMM leaves multiprocessors idle: larger ones fill the GPU, and
     * what overlaps with them costs more than it hides (measured at 2048 and 8192 rows) */
    SECOND_STREAM_MAX = 1 << 23,
    CODE_BYTES = 16 << 20, /* modules and captured graphs of a step (9 to 25 MB measured) */
};

static af_status check_ops(const af_graph *g, af_error *err)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (!af_ops[n->op]->view && !af_cuda_ops[n->op])
            return af_fail(err, AF_EUNSUPPORTED, "op '%s' has no CUDA version",
                           af_ops[n->op]->name);
    }
    return AF_OK;
}

/* One message, or where the number of ranks has an odd factor one of each rank. */
static int64_t receive_elements(int ranks, int64_t most)
{
    const int64_t all = AF_RANK_MESSAGE / (int64_t)sizeof(float), unit = 64;
    if ((ranks & (ranks - 1)) == 0)
        return AF_MIN(most, all);
    return ranks * AF_MIN((most + unit - 1) / unit, AF_MAX(all / ranks / unit, 1)) * unit;
}

/* Where messages wait that are added to a gradient. */
static void add_receive_buffers(af_graph *g)
{
    for (int i = 0; i < g->n_nodes && !af_graph_failed(g); i++) {
        af_node *n = g->nodes[i];
        const int64_t *cut = n->attr.ranks.cut;
        int64_t most = 1;
        for (int r = 0; n->op == AF_OP_RANK_SUM && r < n->attr.ranks.ranks; r++)
            most = AF_MAX(most, cut[r + 1] - cut[r]);
        if (n->op == AF_OP_RANK_SUM)
            (void)af_node_output(g, n, AF_DTYPE_F32, 1,
                                 (int64_t[]){receive_elements(n->attr.ranks.ranks, most)});
    }
}

/* Does anything run on the second stream? */
static bool uses_second(const af_graph *g, const af_cuda_graph *cg)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (cg->plan.on_second[i])
            return true;
    return false;
}

static bool is_weight_gradient(af_op op)
{
    return op == AF_OP_LINEAR_DW || op == AF_OP_LINEAR_DBIAS || op == AF_OP_ADAPTER_DA ||
           op == AF_OP_ADAPTER_DB;
}

/* What nodes [from, from + n) read is not reused before position `until`. */
static void hold_inputs(const af_graph *g, int from, int n, int until)
{
    for (int i = from; i < from + n; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            af_tensor *t = g->nodes[i]->in[k];
            t = t->base ? t->base : t;
            t->hold_until = AF_MAX(t->hold_until, until);
        }
}

/* Delays every LINEAR_DX until its result is read: what the weight gradients (and recomputation)
 * before that need is free again by then. */
static void delay_dx(af_graph *g)
{
    for (int i = g->n_nodes - 2; i >= 0; i--) {
        af_node *n = g->nodes[i];
        if (n->op != AF_OP_LINEAR_DX)
            continue;
        int at = i;
        for (; at + 1 < g->n_nodes && g->nodes[at + 1]->phase == n->phase &&
               !af_node_touches(g->nodes[at + 1], n->out[0]);
             at++) {
            g->nodes[at] = g->nodes[at + 1];
            g->nodes[at]->at = at;
        }
        g->nodes[at] = n;
        n->at = at;
    }
}

/* Does n read or change what the nodes [from, from + count) make? Gradients of parameters, all in
 * one tensor, are not needed before the update, but those of weights that are made from parameters
 * (rounded ones) are. */
static bool needs_any(const af_graph *g, const af_node *n, int from, int count)
{
    bool found = false;
    for (int i = from; i < from + count; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            found |= af_node_touches(n, g->nodes[i]->out[k]);
    return found;
}

/* Does one of these nodes make something else than gradients of parameters? */
static bool makes_others(const af_graph *g, int from, int count)
{
    bool found = false;
    for (int i = from; i < from + count; i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++) {
            const af_tensor *t = g->nodes[i]->out[k];
            found |= (t->base ? t->base : t)->role != AF_ROLE_GRADIENT;
        }
    return found;
}

/* The workspace of a LINEAR_DX is free where the node ends, and may be where those next to it put
 * their results: then they come after it. */
static void set_work(af_cuda *cu, af_graph *g, const af_cuda_graph *cg)
{
    cu->graph = g;
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        const af_cuda_op *op = af_ops[n->op]->view ? NULL : af_cuda_ops[n->op];
        n->work = op && op->work ? op->work(cu, n) : 0;
        if (n->work && makes_others(g, i + 1, cg->plan.on_second[i])) {
            cg->plan.on_second[i] = 0;
            cg->plan.joins[i] = true;
        }
    }
    cu->graph = NULL;
}

/* Weight gradients that follow a LINEAR_DX run on the second stream while it runs. Until the next
 * such group (or the end of the pass) nothing that they or it read may be overwritten; a node that
 * needs one of them waits for all. */
static af_status plan_second_stream(af_graph *g, af_cuda_graph *cg, af_error *err)
{
    int from = -1, count = 0;
    cg->plan.on_second = af_arena_take(&g->mem, (uint64_t)g->n_nodes + 1);
    cg->plan.joins = af_arena_take(&g->mem, ((uint64_t)g->n_nodes + 1) * sizeof(bool));
    if (!cg->plan.on_second || !cg->plan.joins)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_nodes);
    if (g->recompute >= AF_RECOMPUTE_WIDE) { /* memory is short: hold nothing longer than needed */
        delay_dx(g);
        return AF_OK;
    }
    for (int i = 0; i <= g->n_nodes; i++) {
        const af_node *n = i < g->n_nodes ? g->nodes[i] : NULL;
        int k = 0;
        while (n && n->op == AF_OP_LINEAR_DX && af_count(n->out[0]) <= SECOND_STREAM_MAX &&
               i + 1 + k < g->n_nodes && k < 255 && g->nodes[i + 1 + k]->phase == n->phase &&
               is_weight_gradient(g->nodes[i + 1 + k]->op))
            k++;
        if ((k > 0 || !n || n->phase == AF_PHASE_UPDATE) && count > 0) {
            hold_inputs(g, from, count, i);
            if (makes_others(g, from, count)) /* they may lie where the LINEAR_DX reads */
                hold_inputs(g, from - 1, 1, i);
            count = 0;
        }
        if (n && count > 0)
            cg->plan.joins[i] = needs_any(g, n, from, count);
        if (k > 0) {
            cg->plan.on_second[i] = (uint8_t)k;
            from = i + 1;
            count = k;
            i += k;
        }
    }
    return AF_OK;
}

static int group_part(const af_node *n)
{
    return n->op == AF_OP_CLEAR       ? 0
           : n->op == AF_OP_LINEAR_DX ? 1
           : af_cuda_sums_on_third(n) ? 3
                                      : 2;
}

/* A LINEAR_DX and the weight gradients after it with what belongs to those: zeros go first, sums
 * over ranks last, so that the gradients are one group. */
static void order_groups(af_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        int to = i + 1;
        const af_phase phase = g->nodes[i]->phase;
        if (g->nodes[i]->op != AF_OP_LINEAR_DX)
            continue;
        while (to < g->n_nodes && g->nodes[to]->phase == phase &&
               (is_weight_gradient(g->nodes[to]->op) || af_cuda_sums_on_third(g->nodes[to]) ||
                g->nodes[to]->op == AF_OP_CLEAR))
            to++;
        for (int k = i + 1; k < to; k++) /* few, and nearly in order: insertion */
            for (int j = k; j > i && group_part(g->nodes[j - 1]) > group_part(g->nodes[j]); j--) {
                af_node *n = g->nodes[j];
                g->nodes[j] = g->nodes[j - 1];
                g->nodes[j - 1] = n;
            }
        i = to - 1;
    }
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->at = i;
}

static bool is_gather(const af_node *n) { return n->op == AF_OP_RANK_GATHER; }

/* The weights of a node are gathered while the node before it that reads gathered ones runs: they
 * move there, to the third stream. */
static void gather_ahead(af_graph *g)
{
    int reader = -1; /* what the gathers before this one are for */
    for (int i = 0; i < g->n_nodes; i++) {
        int to = i;
        while (to < g->n_nodes && is_gather(g->nodes[to]) &&
               g->nodes[to]->phase == g->nodes[i]->phase)
            to++;
        if (to == i)
            continue;
        if (reader >= 0 && g->nodes[reader]->phase == g->nodes[i]->phase)
            for (int k = i; k < to; k++) {
                af_node *n = g->nodes[k];
                const int at = reader + k - i;
                memmove(&g->nodes[at + 1], &g->nodes[at], (size_t)(k - at) * sizeof(af_node *));
                g->nodes[at] = n;
            }
        reader = to;
        i = to - 1;
    }
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->at = i;
}

static const af_node *gather_of(const af_tensor *t)
{
    const af_node *n = t->base ? t->base->producer : t->producer;
    return n && is_gather(n) ? n : NULL;
}

static af_status note_gathers(af_graph *g, af_cuda_graph *cg, af_error *err)
{
    cg->plan.gather = af_arena_take(&g->mem, ((uint64_t)g->n_nodes + 1) * sizeof(int));
    if (!cg->plan.gather)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_nodes * sizeof(int));
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const af_node *n = gather_of(g->nodes[i]->in[k]);
            if (n)
                cg->plan.gather[i] = AF_MAX(cg->plan.gather[i], n->at + 1);
            cg->plan.uses_third |= n != NULL;
        }
    return AF_OK;
}

/* Sums of gradients run on the third stream: what one works on is not reused before the main
 * stream has waited for it, AF_EXCHANGES_AHEAD sums later or at the end of the pass. */
static void plan_third_stream(const af_graph *g, af_cuda_graph *cg)
{
    int ahead[AF_EXCHANGES_AHEAD], count = 0;
    for (int i = 0; i <= g->n_nodes; i++) {
        const af_node *n = i < g->n_nodes ? g->nodes[i] : NULL;
        const bool ends = !n || n->phase == AF_PHASE_UPDATE;
        if (!ends && !af_cuda_sums_on_third(n))
            continue;
        const int from = AF_MAX(count - AF_EXCHANGES_AHEAD, 0), to = ends ? count : from + 1;
        for (int k = from; k < to && (ends || count >= AF_EXCHANGES_AHEAD); k++) {
            const af_node *sum = g->nodes[ahead[k % AF_EXCHANGES_AHEAD]];
            af_tensor *x = sum->in[0]->base ? sum->in[0]->base : sum->in[0];
            x->hold_until = AF_MAX(x->hold_until, i);
            if (sum->n_out > 0)
                sum->out[0]->hold_until = AF_MAX(sum->out[0]->hold_until, i);
        }
        if (ends)
            break;
        ahead[count++ % AF_EXCHANGES_AHEAD] = i;
    }
    cg->plan.uses_third |= count > 0;
}

void af_cuda_rewrite(af_graph *g)
{
    for (int i = 0; i < AF_CUDA_FAMILIES; i++)
        if (af_cuda_families[i]->rewrite)
            af_cuda_families[i]->rewrite(g);
}

af_status af_cuda_layout(af_device *d, af_graph *g, af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_status st = AF_OK;
    af_cuda_graph *cg = af_arena_take(&g->mem, sizeof *cg);
    if (!cg)
        return af_fail_nomem(err, "the plan", sizeof *cg);
    g->backend = cg;
    AF_TRY(check_ops(g, err));
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->bound) { /* values lie in host memory: prepare uploads them */
            g->tensors[i]->backend = (void *)g->tensors[i]->bound;
            g->tensors[i]->bound = NULL;
        }
    for (int i = 0; i < AF_CUDA_FAMILIES; i++)
        if (af_cuda_families[i]->layout)
            AF_TRY(af_cuda_families[i]->layout(cu, g, err));
    add_receive_buffers(g);
    AF_TRY(af_graph_status(g, err));
    order_groups(g);
    if (g->recompute < AF_RECOMPUTE_WIDE)
        gather_ahead(g);
    AF_TRY(plan_second_stream(g, cg, err));
    if (g->recompute < AF_RECOMPUTE_WIDE) {
        plan_third_stream(g, cg);
        AF_TRY(note_gathers(g, cg, err));
    }
    if (g->recompute == AF_RECOMPUTE_HOST || g->recompute == AF_RECOMPUTE_OFFLOAD)
        AF_TRY(af_cuda_offload_layout(g, cg, err));
    cg->plan.uses_second = uses_second(g, cg);
    g->work_bytes =
        CODE_BYTES +
        (af_cuda_gemm_works(cu) ? (uint64_t)AF_LT_WORKSPACE * (cg->plan.uses_second ? 2 : 1) : 0);
    set_work(cu, g, cg);
    if (!cg->plan.can_shrink)
        goto done;
    AF_TRY(af_graph_layout(g, err)); /* to look: does it fit as it is? */
    if (af_graph_bytes(g) > d->ops->memory_free(d)) {
        for (int i = 0; i < AF_CUDA_FAMILIES; i++)
            if (af_cuda_families[i]->shrink)
                af_cuda_families[i]->shrink(cu, g);
        set_work(cu, g, cg);
    }
done:
    return st;
}
