/* gemm_loop.c - the one driver of all packed GEMMs: five loops around a micro-kernel.
 *
 *   for blocks of columns nc, for blocks of rows mc            (gemm_plan.c chooses all sizes)
 *     for groups of steps of kc along K
 *       all threads pack the panels of A and B for the group, nothing twice (f32 rows of A may be
 *       read where they lie)
 *       threads claim strips of panels and pieces of rows and multiply them through all steps
 *
 * Terms of a sum follow one another along K. Every element of C is one sum in the order of k (an
 * f32 C of several steps: the sum of theirs), a chain of multiply-adds that is the same in every
 * form of a tile: results depend neither on the number of rows nor on that of threads (one
 * exception: gemm_plan.c, kind_of). */
#include "cpu/gemm/gemm_blocks.h"

static const af_gemm_machine *const machine = &AF_ISA_NAME(af_gemm_machine);

static const af_gemm_kernel *const kernels[AF_GEMM_KINDS] = {
    &AF_ISA_NAME(af_gemm_f32), AF_ISA_BF16_KERNEL, AF_ISA_PLANES_KERNEL};

enum {
    FEW_LINES = 16,    /* packed at once where a line is a stored row */
    SOME_K = 192,      /* and k's, where those lines are a whole panel of B */
    TILE_LINES = 96,   /* lines of A where a line is a stored column: narrow tiles would push one
                          another out of the cache */
    PLANE_LINES = 192, /* the same of B in planes, of which 32 k's are packed at once */
    VALUES = 12288,    /* packed at once of such lines */
};

/* ---- steps along K ---- */

/* Where the loop along K is: in which term, in which half of a split one, at which k. */
typedef struct k_cursor {
    int term;
    bool residual;
    int64_t k;
} k_cursor;

static void take_step(const af_gemm_job *j, k_cursor *at, af_gemm_step *s)
{
    const af_gemm *g = j->g;
    const af_gemm_kind kind = j->plan.kind;
    *s = (af_gemm_step){.first = at->term == 0 && at->k == 0 && !at->residual};
    for (; at->term <= g->terms && s->depth < j->plan.kc; s->segments++) {
        assert(s->segments < AF_GEMM_SEGMENTS);
        const af_gemm_term t = af_gemm_term_at(g, at->term);
        const bool split = af_gemm_is_split(kind, &t);
        af_gemm_segment *q = &s->segment[s->segments];
        *q = (af_gemm_segment){.a = at->term ? &g->term[at->term - 1].a : &g->a,
                               .b = at->term ? &g->term[at->term - 1].b : &g->b,
                               .k = at->k,
                               .kc = AF_MIN(j->plan.kc - s->depth, t.K - at->k),
                               .at = s->depth,
                               .at_a = s->depth_a,
                               .at_b = s->depth_b,
                               .planes = af_planes_b(kind, &t.b),
                               .residual = at->residual,
                               .in_place = af_gemm_in_place(kind, &t, j->machine),
                               .packed = af_gemm_is_packed(kind, &t, j->machine)};
        const int64_t depth = af_gemm_pad(j, q->kc);
        s->depth += depth;
        s->depth_a += q->in_place ? 0 : depth * af_planes_a(kind);
        s->depth_b += q->packed ? 0 : depth * q->planes;
        at->k += q->kc;
        if (at->k < t.K)
            continue;
        at->k = 0;
        at->residual = split && !at->residual;
        at->term += !at->residual;
    }
    s->last = at->term > g->terms;
}

/* The next steps, as many as are packed together; panels of A, then those of B. */
static void take_group(af_gemm_job *j, k_cursor *at)
{
    const af_gemm_plan *p = &j->plan;
    const int64_t size = af_value_bytes(p->kind), mr = j->kernel->mr,
                  lines = p->own_rows ? 0 : af_ceil_div(p->mc, mr) * mr * size,
                  k = AF_MIN(p->packed_k, p->group * p->kc) * af_planes_a(p->kind);
    uint8_t *a = j->memory, *b = a + lines * k;
    bool last = false;
    for (j->steps = 0; !last && j->steps < p->group; j->steps++) {
        af_gemm_step *s = &j->step[j->steps];
        take_step(j, at, s);
        s->a = a;
        s->b = b;
        a += lines * s->depth_a;
        b += j->panels * j->kernel->nr * s->depth_b * size;
        last = s->last;
    }
}

/* ---- packing, by all threads ---- */

void AF_ISA_NAME(af_gemm_pack_part)(const af_gemm_job *j, const af_panels *p, const af_operand *o,
                                    int64_t line, int64_t lines, int64_t k, int64_t kc, int thread)
{
    const int64_t most = j->plan.kind == AF_GEMM_BF16 ? AF_PACK_K : machine->tile[AF_GEMM_F32].kc;
    float *buf = (float *)(af_gemm_own(j, thread) + machine->thread_bytes);
    af_panels q = *p;
    for (int64_t at = 0; at < kc; at += most, q.at += most * p->planes)
        j->kernel->pack(&q, o, p->b ? o->trans : !o->trans, line, lines, k + at,
                        AF_MIN(most, kc - at), buf);
}

/* How one matrix of a step is cut for packing: units are tiles of rows, or panels. */
typedef struct pack_cut {
    bool b;
    int64_t units, units_each, k_each;
} pack_cut;

static pack_cut cut_packing(const af_gemm_job *j, const af_gemm_step *s, bool b)
{
    const af_operand *o = b ? s->segment[0].b : s->segment[0].a;
    const int64_t wide = b ? j->kernel->nr : j->kernel->mr;
    pack_cut c = {b, b ? j->panels : j->tiles, af_ceil_div(FEW_LINES, wide), s->depth};
    if (b ? s->depth_b == 0 : j->plan.own_rows || s->depth_a == 0)
        c.units = 0;
    if (!b && j->edge && j->rows % wide != 0) /* the last tile is always packed */
        c.units = j->tiles;
    if (b ? o->trans : !o->trans) {
        if (b && !o->decode && wide > FEW_LINES && j->threads > 1) /* blocks are decoded whole */
            c.k_each = af_gemm_pad(j, SOME_K);
        return c;
    }
    const int64_t lines = !b                               ? TILE_LINES
                          : j->plan.kind == AF_GEMM_PLANES ? PLANE_LINES
                                                           : AF_PACK_LINES;
    c.units_each = lines / wide;
    c.k_each = af_gemm_pad(j, VALUES / (AF_MAX(AF_MIN(c.units, c.units_each), INT64_C(1)) * wide));
    return c;
}

static int64_t cut_items(const af_gemm_step *s, const pack_cut *c)
{
    return af_ceil_div(c->units, c->units_each) * af_ceil_div(s->depth, c->k_each);
}

/* k's [k, end) of the panels at `to` for lines [line, line+lines); edge: a tile of A with all its
 * segments, in the order of the sum. */
static void pack_lines(const af_gemm_job *j, const af_gemm_step *s, bool b, bool edge, uint8_t *to,
                       int64_t line, int64_t lines, int64_t k, int64_t end, int thread)
{
    for (int i = 0; i < s->segments; i++) {
        const af_gemm_segment *q = &s->segment[i];
        const int64_t from = AF_MAX(k, q->at), n = AF_MIN(end, q->at + q->kc) - from;
        const int planes = b ? q->planes : af_planes_a(j->plan.kind);
        const af_panels p = {.to = to,
                             .width = b ? j->kernel->nr : j->kernel->mr,
                             .b = b,
                             .depth = b      ? s->depth_b
                                      : edge ? s->depth
                                             : s->depth_a,
                             .at = (b      ? q->at_b
                                    : edge ? q->at
                                           : q->at_a) +
                                   (from - q->at) * planes,
                             .planes = planes,
                             .residual = b && q->residual};
        if (n > 0 && !(b ? q->packed : q->in_place && !edge))
            AF_ISA_NAME(af_gemm_pack_part)
        (j, &p, b ? q->b : q->a, line, lines, q->k + from - q->at, n, thread);
    }
}

static void pack_item(const af_gemm_job *j, const af_gemm_step *s, const pack_cut *c, int64_t item,
                      int thread)
{
    const int64_t across = af_ceil_div(s->depth, c->k_each), k = item % across * c->k_each,
                  end = AF_MIN(k + c->k_each, s->depth), size = af_value_bytes(j->plan.kind),
                  wide = c->b ? j->kernel->nr : j->kernel->mr, from = item / across * c->units_each,
                  to = AF_MIN(from + c->units_each, c->units), all = c->b ? j->cols : j->rows,
                  full = !c->b && j->edge ? all / wide * wide : all, last = AF_MIN(to * wide, full);
    uint8_t *at = (c->b ? s->b : s->a) + from * wide * (c->b ? s->depth_b : s->depth_a) * size;
    if (last > from * wide && !(!c->b && (j->plan.own_rows || s->depth_a == 0)))
        pack_lines(j, s, c->b, false, at, (c->b ? j->n : j->m) + from * wide, last - from * wide, k,
                   end, thread);
    if (full < AF_MIN(to * wide, all))
        pack_lines(j, s, false, true, j->edge, j->m + full, all - full, k, end, thread);
}

static int64_t pack_items(const af_gemm_job *j, int i, pack_cut *c)
{
    const bool b = i % 2;
    *c = cut_packing(j, &j->step[i / 2], b);
    return (b ? j->pack_b : j->pack_a) ? cut_items(&j->step[i / 2], c) : 0;
}

static void pack(void *arg, int64_t from, int64_t to, int thread)
{
    const af_gemm_job *j = arg;
    pack_cut c;
    for (int i = 0; i < 2 * j->steps; i++) {
        const int64_t items = pack_items(j, i, &c);
        for (int64_t k = AF_MAX(from, INT64_C(0)); k < AF_MIN(to, items); k++)
            pack_item(j, &j->step[i / 2], &c, k, thread);
        from -= items;
        to -= items;
    }
}

/* ---- the macro-kernel of the vector tiles: a panel of B stays, rows of A pass ---- */

/* Whether the panels of both matrices are this step's, so that those of such segments follow on. */
static bool in_panels(const af_gemm_segment *q) { return !q->packed && !q->in_place; }

/* What a tile sums up. Segments whose panels follow on are one part. */
static int parts_of(const af_gemm_job *j, const af_gemm_step *s, int64_t i, int64_t col,
                    af_tile_part part[AF_GEMM_SEGMENTS])
{
    const int64_t size = af_value_bytes(j->plan.kind);
    int parts = 0, q = 0;
    do {
        const af_gemm_segment *x = &s->segment[q++];
        af_tile_part *p = &part[parts++];
        *p = (af_tile_part){.kc = af_gemm_pad(j, x->kc), .b = af_gemm_panel(j, s, x, col)};
        p->a = s->a + (i * s->depth_a + x->at_a * j->kernel->mr) * size;
        if (x->in_place) {
            assert(x->a->ld > 0); /* 0 is a panel */
            p->a = (const uint8_t *)x->a->data + ((j->m + i) * x->a->ld + x->k) * size;
            p->ld = x->a->ld;
        }
        while (q < s->segments && in_panels(x) && in_panels(&s->segment[q]))
            p->kc += af_gemm_pad(j, s->segment[q++].kc);
    } while (q < s->segments);
    return parts;
}

/* The sums of one tile. */
static void sum_tile(const af_gemm_job *j, const af_gemm_step *s, int64_t i, int64_t col, float *c,
                     int64_t ldc, af_tile_mode mode, const af_tile_bf16 *rounded, af_prefetch *next)
{
    af_tile_part part[AF_GEMM_SEGMENTS];
    const int parts = parts_of(j, s, i, col, part);
    if (j->kernel->tile_parts)
        j->kernel->tile_parts(part, parts, j->rows - i, c, ldc, mode, next);
    for (int q = 0; !j->kernel->tile_parts && q < parts; q++)
        j->kernel->tile(part[q].kc, part[q].a, part[q].b, c, ldc, q ? AF_TILE_CONTINUE : mode,
                        q + 1 == parts ? rounded : NULL);
}

/* Whether a tile is several calls, which cannot add to C one by one. */
static bool in_parts(const af_gemm_job *j, const af_gemm_step *s)
{
    bool packed = false;
    for (int i = 0; i < s->segments; i++)
        packed |= s->segment[i].packed;
    return packed && s->segments > 1 && !j->kernel->tile_parts;
}

/* The tile at row i and column c of the block; sums: for one that does not end in C. */
static void run_tile(const af_gemm_job *j, const af_gemm_step *s, int64_t i, int64_t c, float *sums,
                     af_prefetch *next)
{
    const af_gemm *g = j->g;
    const int64_t mr = j->kernel->mr, nr = j->kernel->nr, rows = AF_MIN(mr, j->rows - i),
                  cols = AF_MIN(nr, j->cols - c), m = j->m + i, n = j->n + c;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, add = g->add || !s->first,
               as_it_is =
                   g->alpha == 1.0f && rows == mr && cols == nr && !(g->bias && (!f32 || s->first));
    const af_tile_mode mode = j->plan.staged && !s->first ? AF_TILE_CONTINUE : AF_TILE_SET;
    if (j->plan.staged)
        sums = j->scratch + i * j->machine->scratch_cols + c * mr;
    if (as_it_is && f32 && !(add && in_parts(j, s))) {
        sum_tile(j, s, i, c, (float *)g->c + m * g->ldc + n, g->ldc,
                 add ? AF_TILE_ADD : AF_TILE_SET, NULL, next);
    } else if (as_it_is && !f32 && !g->add && s->last && j->kernel->rounds) {
        sum_tile(j, s, i, c, sums, nr, mode,
                 &(af_tile_bf16){(uint16_t *)g->c + m * g->ldc + n, g->ldc}, next);
    } else {
        sum_tile(j, s, i, c, sums, nr, mode, NULL, next);
        if (!j->plan.staged || s->last)
            AF_ISA_NAME(af_gemm_store)(g, sums, nr, m, rows, n, cols, j->plan.staged || s->first);
    }
}

af_prefetch AF_ISA_NAME(af_gemm_next_panels)(const af_gemm_job *j, int i, int64_t p, int64_t n,
                                             int64_t end, int64_t tiles)
{
    const bool on = i + 1 < j->steps;
    const af_gemm_step *s = &j->step[on ? i + 1 : 0];
    const int64_t from = on ? p : p + n, to = AF_MIN(from + n, on ? p + n : end),
                  bytes = j->kernel->nr * s->depth_b * af_value_bytes(j->plan.kind);
    if (to <= from || bytes == 0)
        return (af_prefetch){0};
    return (af_prefetch){s->b + from * bytes, (to - from) * bytes,
                         af_ceil_div(af_ceil_div((to - from) * bytes, AF_LINE), tiles)};
}

/* Panels [p, end) with rows [from, to), strip by strip through all steps. */
static void run_panels(const af_gemm_job *j, int64_t p, int64_t end, int64_t from, int64_t to)
{
    float sums[AF_GEMM_TILE] __attribute__((aligned(64)));
    const int64_t mr = j->kernel->mr, nr = j->kernel->nr;
    for (int64_t n; p < end; p += n) {
        n = af_even_part(end - p, j->plan.strip, 1);
        for (int i = 0; i < j->steps; i++) {
            af_prefetch next =
                AF_ISA_NAME(af_gemm_next_panels)(j, i, p, n, end, n * af_ceil_div(to - from, mr));
            for (int64_t q = p; q < p + n; q++)
                for (int64_t row = from; row < to; row += mr) {
                    af_prefetch some = af_prefetch_take(&next);
                    run_tile(j, &j->step[i], row, q * nr, sums, &some);
                    af_prefetch_some(&some, some.lines);
                }
        }
    }
}

static void multiply(void *arg, int64_t from, int64_t to, int thread)
{
    const af_gemm_job *j = arg;
    if (j->kernel->multiply) {
        j->kernel->multiply(j, from, to, thread);
        return;
    }
    while (from < to) { /* panels of one piece of the rows after another */
        const int64_t piece = from / j->panels, p = from % j->panels,
                      end = AF_MIN(j->panels, p + to - from), mr = j->kernel->mr;
        run_panels(j, p, end, j->tiles * piece / j->cut.pieces * mr,
                   AF_MIN(j->tiles * (piece + 1) / j->cut.pieces * mr, j->rows));
        from += end - p;
    }
}

/* ---- blocks of C ---- */

static void run_block(af_gemm_job *j, af_pool *pool)
{
    k_cursor at = {0, false, 0};
    j->tiles = af_ceil_div(j->rows, j->kernel->mr);
    j->panels = af_ceil_div(j->cols, j->kernel->nr);
    j->cut = af_gemm_plan_cut(&j->plan, j->rows, j->cols, j->threads, j->machine);
    const int64_t items = j->kernel->items ? j->kernel->items(j) : j->panels * j->cut.pieces;
    do {
        int64_t packing = 0;
        pack_cut c;
        take_group(j, &at);
        for (int i = 0; i < 2 * j->steps; i++)
            packing += pack_items(j, i, &c);
        if (packing > 0)
            af_pool_run(pool, packing, pack, j);
        af_pool_run(pool, items, multiply, j);
    } while (!j->step[j->steps - 1].last);
}

static af_gemm_job begin(const af_gemm *g, int threads, void *work)
{
    af_gemm_job j = {.g = g, .machine = machine, .threads = threads, .memory = work};
    j.plan = af_gemm_plan_make(g, threads, machine);
    j.kernel = kernels[j.plan.kind];
    assert(j.kernel->mr == machine->tile[j.plan.kind].mr &&
           j.kernel->nr == machine->tile[j.plan.kind].nr &&
           j.kernel->kr == machine->tile[j.plan.kind].kr);
    j.thread_memory = j.memory + af_gemm_panel_bytes(machine, threads);
    j.scratch = (float *)af_gemm_own(&j, threads);
    if (af_gemm_packs_edge(&j.plan, machine)) {
        assert(j.plan.group == 1); /* one buffer for the edge rows of a step */
        j.edge = j.memory;
        j.memory += j.plan.kc * j.kernel->mr * af_value_bytes(j.plan.kind);
    }
    return j;
}

static void run_packed(const af_gemm *g, af_pool *pool, void *work)
{
    af_gemm_job j = begin(g, af_pool_threads(pool), work);
    const af_gemm_plan *p = &j.plan;
    for (j.n = 0; j.n < g->N; j.n += p->nc)
        for (j.m = 0; j.m < g->M; j.m += p->mc) {
            j.rows = AF_MIN(p->mc, g->M - j.m);
            j.cols = AF_MIN(p->nc, g->N - j.n);
            /* what lies there from the block before stays */
            j.pack_a = !(p->all_k && p->mc >= g->M && j.n > 0);
            j.pack_b = !(p->all_k && j.m > 0);
            run_block(&j, pool);
        }
}

/* No multiplications: alpha * 0 (+ C) + bias. */
static void store_nothing(const af_gemm *g)
{
    static const float zeros[AF_PACK_LINES];
    for (int64_t n = 0; n < g->N; n += AF_PACK_LINES)
        AF_ISA_NAME(af_gemm_store)
    (g, zeros, 0, 0, g->M, n, AF_MIN((int64_t)AF_PACK_LINES, g->N - n), true);
}

static void run(const af_block_kernels *blocks, const af_gemm *g, af_pool *pool, void *work);

/* Few rows: term by term. */
static void run_skinny(const af_block_kernels *blocks, const af_gemm *g, af_pool *pool, void *work)
{
    af_gemm one = *g;
    one.terms = 0;
    AF_ISA_NAME(af_skinny_run)(blocks, &one, pool, work);
    for (int i = 0; i < g->terms; i++) {
        const af_gemm_term *t = &g->term[i];
        one.K = t->K;
        one.a = t->a;
        one.b = t->b;
        one.exact = t->exact;
        one.add = true;
        one.bias = NULL;
        run(blocks, &one, pool, work);
    }
}

static void run(const af_block_kernels *blocks, const af_gemm *g, af_pool *pool, void *work)
{
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K <= 0) /* then there are no terms either */
        store_nothing(g);
    else if (AF_ISA_NAME(af_skinny_serves)(g))
        run_skinny(blocks, g, pool, work);
    else
        run_packed(g, pool, work);
}

static uint64_t work_bytes(const af_block_kernels *blocks, int threads)
{
    return AF_MAX(af_gemm_work_bytes(machine, threads),
                  AF_ISA_NAME(af_skinny_work)(blocks, threads));
}

/* What the table of an instruction set holds; only its blocks are its own. */
#define GEMM(isa)                                                                                  \
    static const af_block_kernels AF_ISA_JOIN(blocks, isa) = AF_BLOCK_KERNELS(isa);                \
    uint64_t AF_ISA_JOIN(af_gemm_work, isa)(int threads)                                           \
    {                                                                                              \
        return work_bytes(&AF_ISA_JOIN(blocks, isa), threads);                                     \
    }                                                                                              \
    void AF_ISA_JOIN(af_gemm_run, isa)(const af_gemm *g, af_pool *pool, void *work)                \
    {                                                                                              \
        run(&AF_ISA_JOIN(blocks, isa), g, pool, work);                                             \
    }
GEMM(AF_ISA)
#ifdef AF_ISA_ALSO
AF_BLOCK_DECLARE(AF_ISA_ALSO);
GEMM(AF_ISA_ALSO)
#endif

/* ---- a frozen B, packed once: a panel holds all k's, so that steps of any length read it ---- */

uint64_t AF_ISA_NAME(af_packed_bytes)(af_dtype rows, int64_t N, int64_t K)
{
    const af_gemm_kind kind = af_gemm_kind_for(rows, machine);
    const int64_t nr = machine->tile[kind].nr, kr = machine->tile[kind].kr;
    if (kind == AF_GEMM_PLANES || N <= 0 || K <= 0) /* planes: half as much again as the weight */
        return 0;
    return (uint64_t)(af_ceil_div(N, nr) * nr * af_ceil_div(K, kr) * kr * af_value_bytes(kind));
}

static void pack_frozen(void *arg, int64_t from, int64_t to, int thread)
{
    const af_gemm_job *j = arg;
    const int64_t nr = j->kernel->nr, depth = j->plan.kc;
    for (int64_t n = from; n < to; n++) {
        const af_panels p = {.to = j->memory + n * nr * depth * af_value_bytes(j->plan.kind),
                             .width = (int)nr,
                             .b = true,
                             .depth = depth,
                             .planes = 1};
        AF_ISA_NAME(af_gemm_pack_part)
        (j, &p, &j->g->b, n * nr, AF_MIN(nr, j->g->N - n * nr), 0, j->g->K, thread);
    }
}

af_packed AF_ISA_NAME(af_pack_frozen)(const af_operand *b, af_dtype rows, int64_t N, int64_t K,
                                      void *to, af_pool *pool, void *work)
{
    const af_gemm g = {.N = N, .K = K, .b = *b};
    af_gemm_job j = {.g = &g, .machine = machine, .memory = to, .thread_memory = work};
    j.plan.kind = af_gemm_kind_for(rows, machine);
    j.kernel = kernels[j.plan.kind];
    j.plan.kc = af_gemm_pad(&j, K);
    af_pool_run(pool, af_ceil_div(N, j.kernel->nr), pack_frozen, &j);
    return (af_packed){to, j.plan.kc, rows};
}
