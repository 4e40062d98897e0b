/* gemm_plan.c - the plan of a GEMM: which kernel, how long the steps of K are, how large the blocks
 * of C, and how a block is dealt to threads. Constants: gemm_machine.c. */
#include "cpu/gemm/gemm_plan.h"

enum {
    OWN_TILES = 10,     /* of a thread's share: with fewer, A is packed by all threads together */
    ITEMS = 6,          /* for a thread to claim, when the rows allow it */
    ROWS_MIN = 32,      /* of a piece: a panel of B comes from far away for each */
    STRIP_MIN = 6,      /* panels: fewer do not hide the packing of own rows */
    LAST_PANELS = 3,    /* that a thread claims at the end */
    KC_MIN = 640,       /* k's of a step whose sums continue */
    WAITING = 1 << 14,  /* values that a thread could pack while all wait for one another */
    COLUMNS_MAX = 5120, /* for which rows are split into planes by all threads together */
};

af_gemm_kind af_gemm_kind_for(af_dtype rows, const af_gemm_machine *m)
{
    if (rows == AF_DTYPE_BF16 && m->tile[AF_GEMM_BF16].mr)
        return AF_GEMM_BF16;
    return m->tile[AF_GEMM_PLANES].mr ? AF_GEMM_PLANES : AF_GEMM_F32;
}

/* Few columns leave most of a matrix tile empty, and so do few rows of a transposed A, as an
 * adapter's gradient has them. (Rows of A as it is are tokens: a sequence must not get other bits
 * alone than in a batch.) More than a few threads multiply f32 with f32 faster on the vector unit:
 * planes of both are half as many bytes again, which all threads exchange. */
static af_gemm_kind kind_of(const af_gemm *g, int threads, const af_gemm_machine *m)
{
    const af_gemm_kind k = af_gemm_kind_for(g->a.decode ? AF_DTYPE_F32 : g->a.dtype, m);
    const bool both = af_operand_is(&g->b, AF_DTYPE_F32), few = g->a.trans && g->M < m->planes_min;
    if (k == AF_GEMM_PLANES &&
        (AF_MIN(g->N, g->K) < m->planes_min || few || (both && threads > m->planes_threads)))
        return AF_GEMM_F32;
    return k;
}

int64_t af_gemm_panel_bytes(const af_gemm_machine *m, int threads)
{
    return m->a_bytes + threads * m->b_bytes;
}

uint64_t af_gemm_work_bytes(const af_gemm_machine *m, int threads)
{
    const int64_t thread = m->thread_bytes + m->pack_floats * (int64_t)sizeof(float),
                  scratch = m->scratch_rows * m->scratch_cols * (int64_t)sizeof(float);
    return (uint64_t)(af_gemm_panel_bytes(m, threads) + threads * thread + scratch);
}

/* Fills total and packed_k; the bytes that a column of B takes among the panels. */
static int64_t count_k(af_gemm_plan *p, const af_gemm *g, const af_gemm_machine *m)
{
    int64_t bytes = 0;
    for (int i = 0; i <= g->terms; i++) {
        const af_gemm_term t = af_gemm_term_at(g, i);
        const int64_t kr = m->tile[p->kind].kr, twice = af_gemm_is_split(p->kind, &t) ? 2 : 1,
                      k = af_ceil_div(t.K, kr) * kr * twice;
        p->total += k;
        p->packed_k += af_gemm_in_place(p->kind, &t, m) ? 0 : k;
        if (!af_gemm_is_packed(p->kind, &t, m))
            bytes += k * af_value_bytes(p->kind) * af_planes_b(p->kind, &t.b);
    }
    return bytes;
}

/* Rows of a bf16 A whose stored rows are k's (a gradient of weights) and that pass few strips are
 * transposed between the multiplications of those before; so are rows split into planes. Threads
 * that would split them again for many strips split them once, if that is not once per block of
 * very many columns (the head). */
static bool packs_own_rows(const af_gemm_plan *p, const af_gemm *g, int threads,
                           const af_gemm_machine *m)
{
    const int64_t mr = m->tile[p->kind].mr, nr = m->tile[p->kind].nr;
    if (p->kind == AF_GEMM_PLANES) {
        const int64_t panels = af_ceil_div(g->N, nr),
                      bytes = g->M * p->packed_k * af_value_bytes(p->kind) * af_planes_a(p->kind);
        const bool again = threads > 1 && panels > 2 * m->tile[p->kind].strip &&
                           g->N <= COLUMNS_MAX && bytes <= af_gemm_panel_bytes(m, threads);
        return af_ceil_div(g->M, mr) * panels >= OWN_TILES * threads && !again;
    }
    return p->kind == AF_GEMM_BF16 && m->alias && g->a.trans && p->total == g->K &&
           g->M >= 2 * mr && g->N >= 2 * nr && g->N <= 2 * m->scratch_cols;
}

/* Values packed in all, and the waiting. */
static int64_t cost(const af_gemm_plan *p, const af_gemm *g, int64_t column, int threads)
{
    const int64_t m = af_ceil_div(g->M, p->mc), n = af_ceil_div(g->N, p->nc),
                  k = af_ceil_div(p->total, p->group * p->kc);
    const int64_t times_a = p->own_rows ? 0 : k == 1 && m == 1 ? 1 : n, times_b = k == 1 ? 1 : m;
    return p->packed_k * g->M * times_a + column / af_value_bytes(p->kind) * g->N * times_b +
           2 * m * n * k * threads * WAITING;
}

/* One thread with matrix tiles: packed panels of B should stay in its second-level cache. */
static bool is_alone(const af_gemm_plan *p, int threads, const af_gemm_machine *m)
{
    return threads == 1 && p->kind != AF_GEMM_F32 && m->alias;
}

/* The block of C for this many steps packed together. */
static af_gemm_plan with_group(af_gemm_plan p, const af_gemm *g, int64_t column, int64_t group,
                               int threads, const af_gemm_machine *m)
{
    const int64_t mr = m->tile[p.kind].mr, nr = m->tile[p.kind].nr, k = group * p.kc,
                  size = af_value_bytes(p.kind) * af_planes_a(p.kind),
                  edge = af_gemm_packs_edge(&p, m) ? p.kc * mr * size : 0,
                  all = af_gemm_panel_bytes(m, threads) - edge,
                  a = p.own_rows ? 0 : AF_MIN(p.packed_k, k) * size,
                  b = AF_MIN(column, k * af_value_bytes(p.kind) *
                                         (p.kind == AF_GEMM_PLANES ? AF_GEMM_PLANES_A : 1));
    const int64_t of_a = p.kind == AF_GEMM_F32 ? AF_MIN(all / 2, threads * m->a_bytes) : all / 2;
    int64_t rows = a ? AF_MAX(of_a / a / mr, INT64_C(1)) * mr : g->M;
    rows = af_even_part(g->M, p.staged ? AF_MIN(rows, m->scratch_rows) : rows, mr);
    int64_t cols = b ? AF_MAX((all - rows * a) / b / nr, INT64_C(1)) * nr : g->N;
    if (b && is_alone(&p, threads, m)) /* each strip is packed right before it is read */
        cols = AF_MIN(cols, p.strip * nr);
    cols = af_even_part(g->N, p.staged ? AF_MIN(cols, m->scratch_cols) : cols, nr);
    p.group = group == 1 || rows * a + cols * b <= all ? group : 0; /* 0: too many at once */
    p.all_k = k >= p.total;
    p.mc = rows;
    p.nc = cols;
    return p;
}

af_gemm_plan af_gemm_plan_make(const af_gemm *g, int threads, const af_gemm_machine *m)
{
    af_gemm_plan p = {.kind = kind_of(g, threads, m)};
    const int64_t column = count_k(&p, g, m), kr = m->tile[p.kind].kr;
    int64_t most = m->tile[p.kind].kc;
    if (af_gemm_packs_edge(&p, m) && p.packed_k <= most / 2)
        most = m->kc_in_place;
    p.kc = af_even_part(p.total, most, kr);
    p.staged = g->c_dtype != AF_DTYPE_F32 && p.total > p.kc;
    if (p.staged && p.kc > KC_MIN && m->alias && column > 0) { /* so that all columns fit */
        const int64_t cols = AF_MIN(g->N, m->scratch_cols),
                      fit = af_gemm_panel_bytes(m, threads) / 2 / (cols * af_value_bytes(p.kind));
        if (p.kind == AF_GEMM_BF16 && fit < p.kc)
            p.kc = af_even_part(p.total, AF_MAX(fit, (int64_t)KC_MIN), kr);
    }
    p.own_rows = packs_own_rows(&p, g, threads, m);
    p.strip = m->tile[p.kind].strip;
    if (p.kind == AF_GEMM_BF16 && m->alias) { /* next to a tile of rows in a near cache */
        const int64_t near = m->b_bytes / (p.kc * m->tile[p.kind].nr * 2) - 1;
        p.strip = AF_MAX(AF_MIN(near, p.strip), INT64_C(1));
    }
    const int64_t steps = af_ceil_div(p.total, p.kc),
                  most_steps = is_alone(&p, threads, m) ? 1 : m->tile[p.kind].group;
    af_gemm_plan best = {0};
    for (int64_t n = AF_MIN(steps, most_steps); n > 0; n--) {
        const af_gemm_plan q = with_group(p, g, column, n, threads, m);
        if (q.group &&
            (best.group == 0 || cost(&q, g, column, threads) < cost(&best, g, column, threads)))
            best = q;
    }
    return best;
}

/* How long the threads are at work when none waits for another, of how long it takes. */
static double busy(int64_t tiles, int64_t panels, int64_t pieces, int threads)
{
    const int64_t longest = af_ceil_div(panels * pieces, threads) * af_ceil_div(tiles, pieces);
    return (double)(tiles * panels) / (double)(longest * threads);
}

/* Pieces of the rows: small enough for the second-level cache, many enough that a slow thread
 * leaves some to the others, and so many that all end together. */
static int64_t row_pieces(const af_gemm_plan *p, int64_t rows, int64_t panels, int threads,
                          const af_gemm_machine *m)
{
    const int64_t tiles = af_ceil_div(rows, m->tile[p->kind].mr),
                  fit = af_ceil_div(rows * p->kc * af_value_bytes(p->kind), m->a_bytes),
                  most = AF_MAX(rows / ROWS_MIN, fit),
                  want = AF_MIN(af_ceil_div((int64_t)ITEMS * threads, panels), most),
                  near = AF_MAX(threads > 1 ? want : 1, fit);
    int64_t best = near;
    for (int64_t n = near + 1; threads > 1 && n <= AF_MIN(2 * near, most); n++)
        if (busy(tiles, panels, n, threads) > busy(tiles, panels, best, threads))
            best = n;
    for (int64_t n = near - 1; threads > 1 && n >= AF_MAX(near / 2, fit); n--)
        if (busy(tiles, panels, n, threads) > busy(tiles, panels, best, threads))
            best = n;
    return AF_MIN(best, tiles);
}

af_gemm_cut af_gemm_plan_cut(const af_gemm_plan *p, int64_t rows, int64_t cols, int threads,
                             const af_gemm_machine *m)
{
    const int64_t tiles = af_ceil_div(rows, m->tile[p->kind].mr),
                  panels = af_ceil_div(cols, m->tile[p->kind].nr), each = tiles * panels / threads,
                  last = AF_MAX(AF_MIN(each / 8, (int64_t)LAST_PANELS), INT64_C(1));
    af_gemm_cut c = {.pieces = row_pieces(p, rows, panels, threads, m)};
    int64_t side = threads == 1 ? p->strip : p->own_rows ? STRIP_MIN : 1;
    while (side < p->strip && side * side * threads < tiles * panels)
        side++; /* a thread's share is about a square of tiles */
    c.strips = af_ceil_div(panels, AF_MIN(side, p->strip));
    c.parts = AF_MIN(af_ceil_div(af_ceil_div(panels, c.strips), last), panels / c.strips);
    if (p->own_rows && p->kind == AF_GEMM_BF16)
        c.parts = 1; /* a few panels do not hide the transpose of their rows */
    return c;
}
