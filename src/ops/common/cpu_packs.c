/* cpu_packs.c - frozen weights in the panels that GEMMs read, packed once.
 *
 * A weight has up to two forms, one for GEMMs along its rows (forward) and one across them (dX):
 * the pairs of k's that a matrix instruction takes lie along different axes, so that no layout
 * serves both. In both cases a weight is in memory twice: in both forms, where its stored form lies
 * in a mapped file and nothing but GEMMs reads it, so that its pages are released once it is
 * packed; else as it is stored and in one form, that of the longer sum, where the GEMM itself is
 * slower (decision 0004). Forms are part of the workspace that is planned, and there are none when
 * they would take more than their share of the memory that is free: GEMMs then pack as they go,
 * with the same results. */
#include "ops/common/cpu_packs.h"
#include "base/file.h"
#include "ops/common/cpu_fast.h"

enum {
    ROWS_MIN = 64,    /* GEMMs with fewer rows read each weight about once anyway */
    MEMORY_SHARE = 4, /* packs take at most 1/MEMORY_SHARE of the free memory */
};

typedef struct packs {
    af_packed form[2]; /* by trans */
    uint64_t at[2], bytes[2];
    af_dtype rows; /* of the first GEMM that reads it: the type it is packed for */
    bool used[2];  /* by GEMMs that can read it in this form */
    bool stored;   /* something reads it as it is stored */
    bool returns;  /* its pages are released once it is packed */
    bool stale;
} packs;

static bool is_frozen(const af_tensor *t)
{
    const bool plain =
        t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16;
    return t->role == AF_ROLE_WEIGHT && plain && t->ndim == 2 && !t->base;
}

/* The packs of a weight that has or may have some. */
static packs *packs_of(const af_tensor *t) { return is_frozen(t) ? t->backend : NULL; }

bool af_cpu_packs_pay(af_dtype rows) { return af_fast_packs_frozen(af_fast_get(), rows); }

/* In which forms the node reads input k; none: as it is stored. */
static void forms_read(const af_node *n, int k, bool form[2])
{
    const int kind = n->attr.matmul.kind;
    form[0] = form[1] = false;
    const bool fp8 =
        (n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX) && n->attr.linear.fp8; /* from copies */
    if (!af_cpu_fast(n) || af_rows(n->in[0]) < ROWS_MIN || fp8)
        return;
    if (n->op == AF_OP_LINEAR && !n->attr.linear.few_rows)
        form[1] = k >= 1 && k <= n->attr.linear.pieces;
    else if (n->op == AF_OP_LINEAR_DX)
        form[0] = k >= 1 && k <= n->attr.linear.pieces;
    else if (n->op == AF_OP_MATMUL && !(kind & AF_MATMUL_TN))
        form[(kind & AF_MATMUL_NT) != 0] = k == 1;
    else if (n->op == AF_OP_HEAD_LOSS && k == 1)
        form[0] = n->attr.head.dh, form[1] = true;
}

/* One more reader of a weight. */
static void use(af_graph *g, const af_node *n, int k)
{
    af_tensor *w = n->in[k]->base ? n->in[k]->base : n->in[k];
    if (!is_frozen(w))
        return;
    packs *p = w->backend;
    if (!p)
        p = w->backend = af_arena_take(&g->mem, sizeof *p);
    if (!p)
        return; /* a plan without packs is as good */
    const af_dtype rows = n->in[0]->dtype;
    bool form[2];
    forms_read(n, k, form);
    if (!p->used[0] && !p->used[1])
        p->rows = rows;
    const bool serves = w == n->in[k] && (form[0] || form[1]) && p->rows == rows;
    for (int trans = 0; trans < 2 && serves; trans++)
        p->used[trans] |= form[trans];
    p->stored |= !serves;
}

/* Whether this is the form of the longer sum. */
static bool is_longer(const af_tensor *w, bool trans)
{
    const int64_t N = w->dim[!trans], K = w->dim[trans];
    return K > N || (K == N && !trans);
}

/* Which forms there will be: those of weights whose stored form is released, and of the others
 * the longer one. Their bytes. */
static uint64_t choose(const af_cpu *cpu, af_graph *g, bool both)
{
    const af_fast *f = af_fast_get();
    uint64_t total = 0;
    g->returned_bytes = 0;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *w = g->tensors[i];
        packs *p = packs_of(w);
        if (!p)
            continue;
        const bool every = cpu->packing == AF_PACKS_ALL,
                   pays = every || af_fast_packs_frozen(f, p->rows);
        p->returns = pays && both && w->mapped && !p->stored;
        for (int trans = 0; trans < 2; trans++) {
            const bool wanted = every || p->returns || is_longer(w, trans);
            p->bytes[trans] = 0;
            if (pays && wanted && p->used[trans])
                p->bytes[trans] = f->packed_bytes(p->rows, w->dim[!trans], w->dim[trans]);
            p->at[trans] = total;
            total += AF_ALIGN_UP(p->bytes[trans], (uint64_t)64);
        }
        for (int trans = 0; trans < 2; trans++)
            p->returns &= p->bytes[trans] > 0 || !p->used[trans];
        g->returned_bytes += p->returns ? af_tensor_bytes(w) : 0;
    }
    return total;
}

static uint64_t layout(const af_cpu *cpu, af_graph *g, uint64_t *work)
{
    if (cpu->twins_only || cpu->packing == AF_PACKS_NONE)
        return 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            use(g, g->nodes[i], k);
    const uint64_t most = cpu->device.ops->memory_free(&cpu->device) / MEMORY_SHARE;
    for (int both = 1; both >= 0; both--) {
        const uint64_t total = choose(cpu, g, both);
        *work = total ? af_fast_get()->gemm_work(cpu->threads) : 0;
        if (total <= most)
            return total;
    }
    g->returned_bytes = 0;
    *work = 0;
    return 0;
}

static void prepare(af_graph *g, uint8_t *memory)
{
    for (int i = 0; i < g->n_tensors; i++) {
        packs *p = packs_of(g->tensors[i]);
        for (int k = 0; p && k < 2; k++)
            p->form[k] = (af_packed){.panels = memory && p->bytes[k] ? memory + p->at[k] : NULL,
                                     .rows = p->rows};
        if (p)
            p->stale = memory != NULL;
    }
}

/* Weights that are packed are not read again as they are stored. */
static void give_back(const af_tensor *w, const packs *p)
{
    if (p && p->returns && !p->stale)
        af_map_forget_at(w->data, af_tensor_bytes(w));
}

static void begin_run(af_cpu *cpu, af_graph *g)
{
    const af_fast *f = af_fast_get();
    bool filled = false;
    for (int i = 0; i < g->n_tensors; i++) {
        const af_tensor *w = g->tensors[i];
        packs *p = packs_of(w);
        if (!p || !p->stale)
            continue;
        for (int k = 0; k < 2; k++) {
            const af_operand b = {
                .data = w->data, .ld = w->dim[1], .dtype = w->dtype, .trans = k != 0};
            if (p->form[k].panels)
                p->form[k] = f->pack_frozen(&b, p->rows, w->dim[!k], w->dim[k],
                                            (void *)p->form[k].panels, cpu->pool, cpu->work);
        }
        p->stale = false;
        filled = true;
        give_back(w, p);
    }
    /* the system maps some pages before and after the one that is read: those of neighbours too */
    for (int i = 0; i < g->n_tensors && filled; i++)
        give_back(g->tensors[i], packs_of(g->tensors[i]));
}

static void written(af_tensor *t)
{
    packs *p = packs_of(t);
    if (p)
        p->stale = p->form[0].panels || p->form[1].panels;
}

const af_packed *af_cpu_packed(const af_tensor *t, bool trans)
{
    const packs *p = packs_of(t);
    return p && p->form[trans].panels ? &p->form[trans] : NULL;
}

const af_cpu_family af_cpu_packs_family = {
    .layout = layout, .prepare = prepare, .begin_run = begin_run, .written = written};
