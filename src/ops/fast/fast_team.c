/* fast_team.c - a f32 product on several threads that would pack the same panels of B again and
 * again, once for each piece of the rows that a thread takes: packing 48 columns costs as much as
 * multiplying them with some 20 rows.
 *
 * The threads pack A and B together, for as many steps of K as there is room for, and then multiply
 * pieces of the rows with panels, each through all those steps. The steps are those of one thread,
 * so results are the same to the last bit. */
#include "ops/fast/fast_task.h"

enum {
    GROUP = 8,        /* steps that are packed together, at most */
    ITEMS = 6,        /* for a thread to take, when the rows allow it */
    LEAST_ROWS = 32,  /* of a piece: a panel of B comes from afar for each */
    FEW_LINES = 16,   /* packed at once where a line is a stored row */
    SOME_K = 192,     /* and k's, where those lines are a whole panel of B */
    MANY_LINES = 768, /* of B where a line is a stored column: whole stored rows, or nearly */
    TILE_LINES = 96, /* the same of A, whose narrow tiles would push one another out of the cache */
    VALUES = 12288,  /* packed at once of such lines */
    PLANE_LINES = 128, /* and of planes, which take 32 k's at least */
    STRIP_MOST = 12,
    ROWS_MOST = 8,     /* panels and tiles of rows that a thread takes of planes */
    MEETING = 1 << 14, /* values a thread could pack while all wait for one another */
};

/* How a product is cut. */
typedef struct plan {
    int64_t group, rows, cols, step; /* group: steps */
    bool all_k;                      /* one group is all */
} plan;

typedef struct team {
    task step[GROUP];
    int steps;
    bool pack_a, pack_b;
    int64_t strips; /* of panels: a thread takes them one by one with a piece of the rows */
} team;

static int64_t parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

/* Bytes that one k of a line takes among the panels. */
static int64_t bytes_a(const task *t) { return t->own ? 0 : value_bytes(t) * planes_a(t); }
static int64_t bytes_b(const task *t)
{
    int planes = planes_b(t, &t->g->b);
    for (int i = 0; i < t->g->terms; i++)
        planes = AF_MAX(planes, planes_b(t, &t->g->term[i].b));
    return value_bytes(t) * planes;
}

/* Values packed in all, and the waiting. */
static int64_t cost(const plan *p, const task *t, int64_t total, int threads)
{
    const af_gemm *g = t->g;
    const int64_t m = parts(g->M, p->rows), n = parts(g->N, p->cols),
                  k = parts(total, p->group * p->step);
    const int64_t times_a = t->own ? 0 : k == 1 && m == 1 ? 1 : n, times_b = k == 1 ? 1 : m;
    return total * (g->M * times_a + g->N * times_b) + 2 * m * n * k * threads * MEETING;
}

/* Room: for the panels of A and the strips of all threads. */
static plan make_plan(const task *t, int64_t step, int64_t total, int threads)
{
    const af_gemm *g = t->g;
    const int64_t room = A_BYTES + (int64_t)threads * B_BYTES, steps = parts(total, step),
                  tm = tile_rows(t), w = tile_cols(t);
    plan best = {0};
    for (int64_t group = AF_MIN(steps, (int64_t)GROUP); group > 0; group--) {
        const int64_t line = group * step * bytes_a(t), column = group * step * bytes_b(t);
        const int64_t rows = line ? AF_MAX(room / 2 / line / tm, INT64_C(1)) * tm : g->M;
        plan p = {group, even_part(g->M, rows, tm), 0, step, group == steps};
        const int64_t cols = AF_MAX((room - p.rows * line) / column / w, INT64_C(1)) * w;
        p.cols = even_part(g->N, cols, w);
        if (best.group == 0 || cost(&p, t, total, threads) < cost(&best, t, total, threads))
            best = p;
    }
    return best;
}

/* How one matrix of a step is cut for packing: units are tiles of rows, or panels. */
typedef struct cut {
    bool b;
    int64_t units, units_each, k_each;
} cut;

static cut cut_of(const task *t, bool b)
{
    const af_operand *o = b ? t->chunk[0].b : t->chunk[0].a;
    const int64_t wide = b ? tile_cols(t) : tile_rows(t);
    cut c = {b, b ? t->panels : parts(t->rows, wide), parts(FEW_LINES, wide), t->depth};
    if (b ? o->trans : !o->trans) {
        if (b && !o->weight && wide > FEW_LINES) /* blocks are decoded whole */
            c.k_each = pad_k(t, SOME_K);
        return c;
    }
    const int64_t lines = !b ? TILE_LINES : t->kind == KIND_PLANES ? PLANE_LINES : MANY_LINES;
    c.units_each = lines / wide;
    c.k_each = pad_k(t, VALUES / (AF_MIN(c.units, c.units_each) * wide));
    return c;
}

static int64_t cut_items(const task *t, const cut *c)
{
    return parts(c->units, c->units_each) * parts(t->depth, c->k_each);
}

/* k's [k, end) of the panels for lines [line, line+lines). */
static void pack_chunks(const task *t, bool b, uint8_t *to, int width, int64_t line, int64_t lines,
                        int64_t k, int64_t end, int share)
{
    for (int i = 0; i < t->chunks; i++) {
        const chunk *q = &t->chunk[i];
        const int64_t from = AF_MAX(k, q->at), n = AF_MIN(end, q->at + q->kc) - from;
        const int planes = b ? q->planes : planes_a(t);
        const af_panels p = {to,
                             width,
                             b ? BGB : BGA,
                             b ? t->depth_b : t->depth_a,
                             (b ? q->at_b : q->at_a) + (from - q->at) * planes,
                             planes};
        const af_operand *o = b ? q->b : q->a;
        if (n > 0)
            AF_ISA_NAME(af_task_pack)
        (t, &p, o, b ? o->trans : !o->trans, line, lines, q->k + from - q->at, n, share);
    }
}

static void pack_item(const task *t, const cut *c, int64_t item, int share)
{
    const int64_t across = parts(t->depth, c->k_each), k = item % across * c->k_each,
                  end = AF_MIN(k + c->k_each, t->depth), tm = tile_rows(t),
                  bytes = (c->b ? t->depth_b : t->depth_a) * value_bytes(t);
    int64_t u = item / across * c->units_each;
    const int64_t to = AF_MIN(u + c->units_each, c->units);
    if (!c->b) {
        pack_chunks(t, false, t->a + u * tm * bytes, (int)tm, t->m + u * tm,
                    AF_MIN(to * tm, t->rows) - u * tm, k, end, share);
        return;
    }
    for (int64_t n; u < to; u += n) {
        const int width = panel_width(t, u);
        const int64_t j = panel_start(t, u);
        n = u < t->wide ? AF_MIN(to, t->wide) - u : to - u;
        pack_chunks(t, true, t->b + j * bytes, width, t->n + j, AF_MIN(n * width, t->cols - j), k,
                    end, share);
    }
}

static void pack(void *arg, int64_t from, int64_t to, int share)
{
    const team *w = arg;
    for (int i = 0; i < 2 * w->steps; i++) {
        const task *t = &w->step[i / 2];
        const cut c = cut_of(t, i % 2);
        const int64_t items = (i % 2 ? w->pack_b : w->pack_a) ? cut_items(t, &c) : 0;
        for (int64_t k = AF_MAX(from, INT64_C(0)); k < AF_MIN(to, items); k++)
            pack_item(t, &c, k, share);
        from -= items;
        to -= items;
    }
}

static int64_t pack_items(const team *w)
{
    int64_t sum = 0;
    for (int i = 0; i < w->steps; i++) {
        const task *t = &w->step[i];
        const cut a = cut_of(t, false), b = cut_of(t, true);
        sum += (w->pack_a ? cut_items(t, &a) : 0) + (w->pack_b ? cut_items(t, &b) : 0);
    }
    return sum;
}

/* What is read after n panels from p of step i: the same of the next step, or the panels after. */
static ahead next_panels(const team *w, int i, int64_t p, int64_t n, int64_t end, int64_t tiles)
{
    const bool on = i + 1 < w->steps;
    const task *t = &w->step[on ? i + 1 : 0];
    const int64_t from = on ? p : p + n, to = AF_MIN(from + n, on ? p + n : end),
                  j = panel_start(t, from), bytes = t->depth_b * value_bytes(t);
    ahead h = {.rows = 1};
    if (to <= from)
        return (ahead){0};
    h.at = t->b + j * bytes;
    h.bytes = (panel_start(t, to) - j) * bytes;
    h.lines = parts(parts(h.bytes, LINE), tiles);
    return h;
}

/* Panels [p, end) with one piece of the rows, through all steps. */
static void columns(const team *w, int64_t p, int64_t end, int64_t piece, int share, hand *h)
{
    const task *t = w->step;
    const int64_t most =
        t->kind == KIND_F32 ? AF_GEMM_STRIP / tile_cols(t) : parts(t->panels, w->strips);
    const int64_t tm = tile_rows(t), tiles = parts(t->rows, tm),
                  from = tiles * piece / t->pieces * tm,
                  to = AF_MIN(tiles * (piece + 1) / t->pieces * tm, t->rows);
    for (int64_t n; p < end; p += n) {
        const int width = panel_width(t, p);
        const int64_t left = p < t->wide ? AF_MIN(end, t->wide) - p : end - p,
                      j = panel_start(t, p);
        n = even_part(left, most, 1);
        for (int i = 0; i < w->steps; i++) {
            const task *s = &w->step[i];
            const spot first = {from, j, s->b + j * s->depth_b * value_bytes(t), width,
                                AF_ISA_NAME(af_tile_for)(false, width)};
            ahead next = next_panels(w, i, p, n, end, n * parts(to - from, tm));
            h->then = i + 1 < w->steps ? s + 1 : p + n < end ? w->step : NULL;
            h->then_row = from;
            AF_ISA_NAME(af_task_strip)(s, &first, n, to, &next, share, h);
        }
    }
}

static void multiply(void *arg, int64_t from, int64_t to, int share)
{
    const team *w = arg;
    const task *t = w->step;
    hand h;
    AF_ISA_NAME(af_spot_begin)(t, share, &h);
    while (from < to) {
        const int64_t s = from % w->strips, end = AF_MIN(w->strips, s + to - from);
        columns(w, t->panels * s / w->strips, t->panels * end / w->strips, from / w->strips, share,
                &h);
        from += end - s;
    }
    AF_ISA_NAME(af_spot_end)(t, &h);
}

/* How long the threads are at work when none waits for another, of how long it takes. */
static double busy(const task *t, int64_t pieces, int threads)
{
    const int64_t tiles = parts(t->rows, tile_rows(t)),
                  longest = parts(t->panels * pieces, threads) * parts(tiles, pieces);
    return (double)(tiles * t->panels) / (double)(longest * threads);
}

/* Pieces of the rows: small enough for the second-level cache, many enough that a thread that is
 * slower leaves some to the others, and so many that all end together. */
static int64_t row_pieces(const task *t, int64_t step, int threads)
{
    const int64_t tiles = parts(t->rows, tile_rows(t)),
                  fit = parts(t->rows * step * value_bytes(t), A_BYTES),
                  most = AF_MAX(t->rows / LEAST_ROWS, fit),
                  want = AF_MIN(parts((int64_t)ITEMS * threads, t->panels), most);
    const int64_t near = AF_MAX(want, fit);
    int64_t best = near;
    for (int64_t n = near + 1; n <= AF_MIN(2 * near, most); n++)
        if (busy(t, n, threads) > busy(t, best, threads))
            best = n;
    for (int64_t n = near - 1; n >= AF_MAX(near / 2, fit); n--)
        if (busy(t, n, threads) > busy(t, best, threads))
            best = n;
    return AF_MIN(best, tiles);
}

/* The same for the tiles of AMX, where panels are cut as well: a tile of rows and a panel come from
 * afar for each item. Costs are sixteenths of a tile's products; the last item is an eighth late.
 */
static void cut_planes(team *w, task *t, int threads)
{
    const int64_t tiles = parts(t->rows, tile_rows(t));
    int64_t best = INT64_MAX;
    for (int64_t rows = 1; rows <= AF_MIN((int64_t)ROWS_MOST, tiles); rows++)
        for (int64_t cols = 1; cols <= AF_MIN((int64_t)STRIP_MOST, t->panels); cols++) {
            const int64_t pieces = parts(tiles, rows), strips = parts(t->panels, cols);
            const int64_t late = (8 * parts(pieces * strips, threads) + 1) *
                                 (16 * rows * cols + (t->own ? 8 : 3) * rows + 2 * cols);
            if (late >= best)
                continue;
            best = late;
            t->pieces = pieces;
            w->strips = strips;
        }
}

/* The next steps of the block, and where their panels lie: those of A before those of B. */
static void take_group(team *w, const task *t, const plan *p, place *at)
{
    const int64_t tm = tile_rows(t), size = value_bytes(t), rows = parts(p->rows, tm) * tm,
                  cols = panel_start(t, t->panels);
    uint8_t *a = t->a, *b = t->a + rows * p->group * p->step * bytes_a(t);
    bool last = false;
    for (w->steps = 0; !last && w->steps < p->group; w->steps++) {
        task *s = &w->step[w->steps];
        const bool first = at->term == 0 && at->k == 0 && !at->rest;
        *s = *t;
        last = AF_ISA_NAME(af_task_step)(s, at, p->step);
        s->first = first;
        s->last = last;
        s->a = a;
        s->b = b;
        a += t->own ? 0 : rows * s->depth_a * size;
        b += cols * s->depth_b * size;
    }
}

static void run_block(team *w, const task *t, const plan *p, af_pool *pool)
{
    place at = {0, false, 0};
    do {
        take_group(w, t, p, &at);
        af_pool_run(pool, pack_items(w), pack, w);
        af_pool_run(pool, w->strips * t->pieces, multiply, w);
    } while (!w->step[w->steps - 1].last);
}

void AF_ISA_NAME(af_team_run)(const task *of, af_pool *pool, int64_t step, int64_t total)
{
    const af_gemm *g = of->g;
    const int threads = af_pool_threads(pool);
    task t = *of;
    t.own = t.kind == KIND_PLANES;
    const plan p = make_plan(&t, step, total, threads);
    team w;
    for (t.n = 0; t.n < g->N; t.n += p.cols)
        for (t.m = 0; t.m < g->M; t.m += p.rows) {
            t.rows = AF_MIN(p.rows, g->M - t.m);
            t.cols = AF_MIN(p.cols, g->N - t.n);
            AF_ISA_NAME(af_task_cut)(&t, threads);
            w.strips = t.panels;
            if (t.kind == KIND_F32)
                t.pieces = row_pieces(&t, step, threads);
            else
                cut_planes(&w, &t, threads);
            /* what lies there from the block before stays */
            w.pack_a = !t.own && !(p.all_k && p.rows >= g->M && t.n > 0);
            w.pack_b = !(p.all_k && t.m > 0);
            run_block(&w, &t, &p, pool);
        }
}
