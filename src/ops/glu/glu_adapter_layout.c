/* glu_adapter_layout.c - which gated units take over which nodes: see glu_adapter.h. */
#include "backend/cuda/cuda_test.h"
#include "ops/glu/gate_up.h"
#include "ops/glu/glu_adapter_in.h"
#include "ops/glu/take_over.h"
#include "ops/linear/fp8_cuda.h"

enum { ARCH_MIN = 80, UNIT = 8 };

static bool rows_fit(const af_tensor *t) { return t->dtype == AF_DTYPE_BF16 && t->ld % UNIT == 0; }

static bool rank_fits(int rank) { return rank == AF_GLU_RANK / 2 || rank == AF_GLU_RANK; }

/* The one node of `op` in nodes [from, to) that reads t first, or NULL. */
static af_node *reader(const af_graph *g, af_op op, const af_tensor *t, int from, int to)
{
    af_node *found = NULL;
    for (int i = from; i < to; i++)
        if (g->nodes[i]->op == op && g->nodes[i]->in[0] == t) {
            if (found)
                return NULL;
            found = g->nodes[i];
        }
    return found;
}

/* Nodes of a block are close to each other: how far to look. */
enum { REACH = 48 };

static bool unit_fits(const af_node *n)
{
    const af_tensor *x = n->in[0];
    return n->attr.glu.limit <= 0 && x->ndim >= 2 && af_last(x) % (2 * UNIT) == 0 && rows_fit(x) &&
           rows_fit(n->out[0]) && af_rows(x) > 0 && af_last(x) > 0;
}

/* A node's adapter: the halves of gate and up in this order, or one of the whole width. */
static bool adapter_fits(const af_node *n, int parts, int64_t width)
{
    int64_t at = 0;
    int rank = 0;
    if (n->attr.linear.parts != parts)
        return false;
    for (int i = 0; i < parts; i++) {
        const af_adapter_part *q = &n->attr.linear.part[i];
        if (q->out_from != at || q->rank_from != rank || !rank_fits(q->rank) ||
            (parts > 1 && q->out_rows != width / parts))
            return false;
        at += q->out_rows;
        rank += q->rank;
    }
    return true;
}

/* The narrow result: as linear_cuda.c writes it, whole groups of 8 columns. */
static bool low_fits(const af_graph *g, const af_node *n)
{
    const af_linear_group *p = af_linear_group_of(g, n);
    const af_tensor *low = n->out[0];
    return p && (p->fused || p->scratch) && p->type == AF_DTYPE_BF16 && rows_fit(low) &&
           p->I % UNIT == 0 && p->O % UNIT == 0 && low->base_offset % 16 == 0;
}

/* ---- rows as codes ---- */

static bool in_fp8(const af_node *n, af_op op) { return n && n->op == op && n->attr.linear.fp8; }

/* The product in FP8 that makes t, alone. */
static af_node *maker_in_fp8(const af_graph *g, const af_tensor *t, af_op op)
{
    af_node *n = t->producer;
    if (!in_fp8(n, op) || n->out[0] != t || n->accumulate)
        return NULL;
    for (int i = n->at + 1; i < AF_MIN(n->at + REACH, g->n_nodes); i++)
        for (int k = 0; k < g->nodes[i]->n_out; k++)
            if (g->nodes[i]->out[k] == t)
                return NULL;
    return n;
}

/* May the unit write codes: the products before it find the largest magnitudes of what it reads,
 * and one after it reads codes. */
static bool can_code(const af_graph *g, const af_node *n)
{
    const bool back = n->op == AF_OP_GLU_BWD;
    const int end = AF_MIN(n->at + REACH, g->n_nodes);
    const af_node *next = reader(g, back ? AF_OP_LINEAR_DX : AF_OP_LINEAR, n->out[0], n->at, end);
    return in_fp8(next, back ? AF_OP_LINEAR_DX : AF_OP_LINEAR) &&
           maker_in_fp8(g, n->in[0], AF_OP_LINEAR) &&
           (!back || maker_in_fp8(g, n->in[1], AF_OP_LINEAR_DX));
}

/* Does anything but `product` read values of t, other than what u puts into its spare columns? */
static bool read_by_others(const af_graph *g, const af_glu_adapter *u, const af_node *product)
{
    const af_tensor *t = u->glu->out[0];
    bool found = t->keep;
    for (int i = 0; i < g->n_tensors; i++)
        found |= g->tensors[i]->base == t && g->tensors[i] != u->low->out[0];
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            found |= g->nodes[i]->in[k] == t && (g->nodes[i] != product || k > 0);
    return found;
}

/* When all units have taken over what they can. */
static void add_codes(af_graph *g, af_glu_adapter *u)
{
    af_node *n = u->glu;
    const bool back = n->op == AF_OP_GLU_BWD;
    if (!can_code(g, n) || n->n_in + 1 + back > AF_NODE_IN_MAX)
        return;
    af_node *next = reader(g, back ? AF_OP_LINEAR_DX : AF_OP_LINEAR, n->out[0], n->at,
                           AF_MIN(n->at + REACH, g->n_nodes));
    af_tensor *most = af_fp8_most_add(g, n->in[0]->producer);
    af_tensor *most_dy = back ? af_fp8_most_add(g, n->in[1]->producer) : NULL;
    if (!most || (back && !most_dy) || !af_fp8_rows_add(g, n, next))
        return;
    n->in[n->n_in++] = most;
    if (back)
        n->in[n->n_in++] = most_dy;
    u->codes = true;
    u->plain = read_by_others(g, u, next);
}

static void find_forward(const af_graph *g, af_glu_adapter *u)
{
    const int end = AF_MIN(u->glu->at + REACH, g->n_nodes);
    af_node *n = reader(g, AF_OP_ADAPTER_DOWN, u->glu->out[0], u->glu->at + 1, end);
    if (n && af_may_take_over(g, u->glu, n, 1) && adapter_fits(n, 1, 0) && low_fits(g, n) &&
        (!af_linear_group_of(g, n)->fp8 || can_code(g, u->glu)))
        u->low = n;
}

static void find_backward(const af_graph *g, af_glu_adapter *u)
{
    const af_node *b = u->glu;
    const af_tensor *d = b->out[0];
    const int end = AF_MIN(b->at + REACH, g->n_nodes);
    af_node *low = reader(g, AF_OP_ADAPTER_G, d, b->at + 1, end);
    af_node *db = reader(g, AF_OP_ADAPTER_DB, d, b->at + 1, end);
    if (!low || !db || !rows_fit(b->in[1]) || !adapter_fits(low, 2, af_last(d)) ||
        !low_fits(g, low) || !rows_fit(db->in[1]) || db->in[1]->base_offset % 16 ||
        db->out[0]->dtype != AF_DTYPE_F32 || !af_may_take_over(g, b, db, 1) ||
        !af_may_take_over(g, b, low, 1))
        return;
    for (int i = b->at + 1; i < low->at; i++) /* copies of its weights come first */
        if (af_node_touches(g->nodes[i], low->in[1]))
            return;
    u->low = low;
    u->db = db;
    for (int i = AF_MAX(b->at - REACH, 0); i < b->at && !u->da; i++) {
        af_node *n = g->nodes[i];
        const af_node *h = n->op == AF_OP_ADAPTER_DA ? n->in[0]->producer : NULL;
        if (h && h->op == AF_OP_GLU && h->in[0] == b->in[0] && n->attr.linear.parts == 1 &&
            rank_fits(n->attr.linear.part[0].rank) && rows_fit(n->in[1]) &&
            n->in[1]->base_offset % 16 == 0 && n->out[0]->dtype == AF_DTYPE_F32 &&
            af_may_take_over(g, b, n, 1))
            u->da = n;
    }
}

/* ---- units as the epilogue of a GEMM ---- */

/* The first unit that reads t after node `from`. */
static af_node *first_unit(const af_graph *g, const af_tensor *t, int from)
{
    for (int i = from + 1; i < AF_MIN(from + REACH, g->n_nodes); i++)
        if (g->nodes[i]->op == AF_OP_GLU && g->nodes[i]->in[0] == t)
            return g->nodes[i];
    return NULL;
}

static bool can_join(const af_graph *g, const af_node *n, const af_node *glu)
{
    bool can = glu && unit_fits(glu) && glu->out[0]->base_offset % 16 == 0 &&
               af_may_take_over(g, n, glu, 1) && n->n_in + glu->n_in - 1 <= AF_NODE_IN_MAX &&
               n->n_out + glu->n_out <= AF_NODE_OUT_MAX;
    for (int k = 1; can && k < glu->n_out; k++)
        for (int i = n->at + 1; i < glu->at; i++)
            can &= !af_node_touches(g->nodes[i], glu->out[k]);
    return can;
}

/* Does a node other than `glu` read values of t? */
static bool is_kept(const af_graph *g, const af_tensor *t, const af_node *glu)
{
    bool kept = t->keep;
    for (int i = 0; i < g->n_tensors; i++)
        kept |= g->tensors[i]->base == t;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            kept |= g->nodes[i]->in[k] == t && g->nodes[i] != glu;
    return kept;
}

/* n has the unit's outputs, after gate and up or instead of them. */
static void join_unit(af_graph *g, af_node *n, af_glu_adapter *u)
{
    u->linear = n;
    u->keeps = is_kept(g, n->out[0], u->glu);
    if (!u->keeps)
        n->n_out = 0;
    af_take_over(g, n, u->glu, 1);
    for (int k = 1; k < u->glu->n_out; k++) {
        n->out[n->n_out++] = u->glu->out[k];
        u->glu->out[k]->producer = n;
    }
}

/* With what the unit has taken over itself. */
static void join_units(const af_cuda *cu, af_graph *g, af_glu_adapters *all, af_node **taken)
{
    int count = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        af_node *glu = af_gate_up_fits(cu, g, n) ? first_unit(g, n->out[0], i) : NULL;
        int k = 0;
        while (k < all->n && all->unit[k].glu != glu)
            k++;
        if (!can_join(g, n, glu) || (k < all->n && all->unit[k].codes))
            continue;
        if (k == all->n)
            all->unit[all->n++] = (af_glu_adapter){.glu = glu};
        join_unit(g, n, &all->unit[k]);
        taken[count++] = glu;
    }
    af_remove_taken(g, taken, count);
}

static af_status layout(af_cuda *cu, af_graph *g, af_error *err)
{
    int most = 0, count = 0;
    for (int i = 0; i < g->n_nodes; i++)
        most += g->nodes[i]->op == AF_OP_GLU || g->nodes[i]->op == AF_OP_GLU_BWD;
    af_glu_adapters *all = af_arena_take(&g->mem, sizeof *all);
    af_glu_adapter *unit = af_arena_take(&g->mem, (uint64_t)(most + 1) * sizeof *unit);
    af_node **taken = af_arena_take(&g->mem, (uint64_t)(3 * most + 1) * sizeof(af_node *));
    if (!all || !unit || !taken)
        return af_fail_nomem(err, "the plan", (uint64_t)most * sizeof *unit);
    *all = (af_glu_adapters){.unit = unit};
    *af_cuda_slot(g, &af_cuda_glu_family) = all;
    if (!g->differentiated || cu->arch < ARCH_MIN || cu->smem_max < AF_GLU_SHARED ||
        (cu->test && cu->test->no_low_rank))
        return AF_OK;
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        af_glu_adapter u = {.glu = n};
        if ((n->op != AF_OP_GLU && n->op != AF_OP_GLU_BWD) || !unit_fits(n))
            continue;
        if (n->op == AF_OP_GLU)
            find_forward(g, &u);
        else
            find_backward(g, &u);
        if (!u.low)
            continue;
        af_node *more[] = {u.low, u.db, u.da};
        for (size_t k = 0; k < AF_LEN(more); k++)
            if (more[k]) {
                af_take_over(g, n, more[k], 1);
                taken[count++] = more[k];
            }
        unit[all->n++] = u;
    }
    af_remove_taken(g, taken, count); /* h that was made again for a gradient alone goes, too */
    for (int i = 0; i < all->n && !af_graph_failed(g); i++)
        add_codes(g, &unit[i]);
    af_linear_groups_of(g)->epilogue = &af_gate_up_epilogue;
    join_units(cu, g, all, taken);
    return af_graph_status(g, err);
}

const af_cuda_family af_cuda_glu_family = {.layout = layout};

const af_glu_adapter *af_glu_adapter_of(const af_graph *g, const af_node *n)
{
    const af_glu_adapters *all = *af_cuda_slot(g, &af_cuda_glu_family);
    for (int i = 0; i < all->n; i++)
        if (all->unit[i].glu == n || all->unit[i].linear == n)
            return &all->unit[i];
    return NULL;
}
