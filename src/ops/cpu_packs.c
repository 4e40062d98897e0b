/* cpu_packs.c - frozen weights in the panels that products read, packed once and kept.
 *
 * A weight has up to two forms, one for products along its rows (forward) and one across them (dX):
 * the pairs of k's that a matrix instruction takes lie along different axes, so that no layout
 * serves both. They are part of the workspace that is planned, and there are none when they would
 * take more than their share of the memory that is free: products then pack as they go, with the
 * same results. */
#include "ops/cpu_fast.h"

enum {
    ROWS_MIN = 64,    /* products with fewer rows read each weight about once anyway */
    MEMORY_SHARE = 4, /* of the free memory, one part in so many */
};

typedef struct packs {
    af_packed form[2]; /* by trans */
    uint64_t at[2], bytes[2];
    af_dtype rows;
    bool stale;
} packs;

static bool is_frozen(const af_tensor *t)
{
    const bool plain =
        t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16;
    return t->role == AF_ROLE_WEIGHT && plain && t->ndim == 2 && !t->base;
}

typedef struct plan {
    af_graph *g;
    af_packing packing;
    uint64_t total;
} plan;

/* One more use of a weight; the first type of rows that uses it is the one it is packed for. */
static void use(plan *l, af_tensor *w, const af_tensor *x, bool trans)
{
    const af_fast *f = af_fast_get();
    packs *p = w->backend;
    const int64_t N = w->dim[!trans], K = w->dim[trans];
    if (!is_frozen(w) || af_rows(x) < ROWS_MIN ||
        !(l->packing == AF_PACKS_ALL || f->packs_once(x->dtype, trans, N, K)))
        return;
    if (!p)
        p = w->backend = af_arena_take(&l->g->mem, sizeof *p);
    if (!p)
        return; /* a plan without packs is as good */
    if (!p->bytes[0] && !p->bytes[1])
        p->rows = x->dtype;
    if (p->rows != x->dtype || p->bytes[trans])
        return;
    p->bytes[trans] = f->packed_bytes(x->dtype, N, K);
    p->at[trans] = l->total;
    l->total += AF_ALIGN_UP(p->bytes[trans], (uint64_t)64);
}

static void use_node(plan *l, const af_node *n)
{
    if (n->op == AF_OP_LINEAR && !n->attr.linear.few)
        for (int i = 0; i < n->attr.linear.pieces; i++)
            use(l, n->in[1 + i], n->in[0], true);
    else if (n->op == AF_OP_LINEAR_DX)
        for (int i = 0; i < n->attr.linear.pieces; i++)
            use(l, n->in[1 + i], n->in[0], false);
    else if (n->op == AF_OP_MATMUL && !(n->attr.matmul.kind & AF_MATMUL_TN))
        use(l, n->in[1], n->in[0], n->attr.matmul.kind & AF_MATMUL_NT);
    else if (n->op == AF_OP_HEAD_LOSS)
        for (int trans = 1; trans >= (n->attr.head.dh ? 0 : 1); trans--)
            use(l, n->in[1], n->in[0], trans);
}

uint64_t af_cpu_packs_plan(const af_cpu *cpu, af_graph *g)
{
    plan l = {.g = g, .packing = cpu->packing};
    const bool none = cpu->twins_only || cpu->packing == AF_PACKS_NONE;
    for (int i = 0; i < g->n_nodes && !none; i++)
        if (af_cpu_fast(g->nodes[i]))
            use_node(&l, g->nodes[i]);
    return l.total <= cpu->device.ops->memory_free(&cpu->device) / MEMORY_SHARE ? l.total : 0;
}

uint64_t af_cpu_packs_work(const af_cpu *cpu) { return af_fast_get()->gemm_work(cpu->threads); }

void af_cpu_packs_place(af_graph *g, uint8_t *memory)
{
    for (int i = 0; i < g->n_tensors; i++) {
        packs *p = is_frozen(g->tensors[i]) ? g->tensors[i]->backend : NULL;
        for (int k = 0; p && k < 2; k++)
            p->form[k] = (af_packed){.panels = memory && p->bytes[k] ? memory + p->at[k] : NULL,
                                     .rows = p->rows};
        if (p)
            p->stale = memory != NULL;
    }
}

void af_cpu_packs_fill(af_graph *g, af_cpu *cpu)
{
    const af_fast *f = af_fast_get();
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *w = g->tensors[i];
        packs *p = is_frozen(w) ? w->backend : NULL;
        if (!p || !p->stale)
            continue;
        for (int k = 0; k < 2; k++) {
            const af_operand b = {
                .data = w->data, .ld = w->dim[1], .dtype = w->dtype, .trans = k != 0};
            if (p->form[k].panels)
                p->form[k] = f->pack_once(&b, p->rows, w->dim[!k], w->dim[k],
                                          (void *)p->form[k].panels, cpu->pool, cpu->work);
        }
        p->stale = false;
    }
}

void af_cpu_packs_touch(af_tensor *t)
{
    packs *p = is_frozen(t) ? t->backend : NULL;
    if (p)
        p->stale = p->form[0].panels || p->form[1].panels;
}

const af_packed *af_cpu_packed(const af_tensor *t, bool trans)
{
    const packs *p = is_frozen(t) ? t->backend : NULL;
    return p && p->form[trans].panels ? &p->form[trans] : NULL;
}
