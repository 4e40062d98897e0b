/* fast_team.c - a f32 product on several threads that would pack the same panels of B again and
 * again, once for each piece of the rows that a thread takes: packing 48 columns costs as much as
 * multiplying them with some 20 rows.
 *
 * The threads pack A and B together, for as many steps of K as there is room for, and then multiply
 * pieces of the rows with panels, each through all those steps. The steps are those of one thread,
 * so results are the same to the last bit.
 *
 * With planes of bf16 (fast_planes.c) they pack B only, where each has tiles enough, and each
 * splits the rows of A it needs beside its products. A thread whose core has nothing else to do is
 * three times as fast there as one that shares it: a thread begins with many tiles, and at the end
 * all take a few at a time. */
#include "cpu/gemm/fast_task.h"

enum {
    GROUP = 8,         /* steps that are packed together, at most */
    GROUP_PLANES = 24, /* and of planes, whose steps are short */
    ITEMS = 6,         /* for a thread to take, when the rows allow it */
    LEAST_ROWS = 32,   /* of a piece: a panel of B comes from afar for each */
    FEW_LINES = 16,    /* packed at once where a line is a stored row */
    SOME_K = 192,      /* and k's, where those lines are a whole panel of B */
    MANY_LINES = 768,  /* of B where a line is a stored column: whole stored rows, or nearly */
    TILE_LINES = 96, /* the same of A, whose narrow tiles would push one another out of the cache */
    VALUES = 12288,  /* packed at once of such lines */
    PLANE_LINES = 192, /* the same of planes, of which 32 k's are packed at once */
    STRIP_MOST = 18,   /* panels beside which rows of A are split: they stay in a near cache */
    STRIP_LEAST = 6,   /* fewer do not hide the splitting */
    OWN_TILES = 10,    /* of a thread's share: with fewer, A is packed together */
    ROWS_MOST = 16,    /* tiles of rows that pass a strip: their sums stay as well */
    LAST_PANELS = 3,   /* that a thread takes at the end */
    MEETING = 1 << 14, /* values a thread could pack while all wait for one another */
    SLOTS = 8,         /* places for panels, at most */
    PAGE = 4096,
};

/* How a product is cut. */
typedef struct plan {
    int64_t group, rows, cols, step; /* group: steps */
    bool all_k;                      /* one group is all */
} plan;

typedef struct team {
    task step[GROUP_PLANES];
    int steps;
    bool pack_a, pack_b;
    bool kept;       /* the panels of B are those of the product before */
    uint8_t *panels; /* of B, those of A follow them */
    int64_t slot;    /* where they lie, of several places */
    /* planes: strips of panels, and parts of them that are taken one by one with a tile of rows */
    int64_t strips, parts;
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

/* For the panels of A and the strips of all threads. */
static int64_t room(int threads) { return A_BYTES + (int64_t)threads * B_BYTES; }

static plan make_plan(const task *t, int64_t step, int64_t total, int threads)
{
    const af_gemm *g = t->g;
    const int64_t all = room(threads), steps = parts(total, step), tm = tile_rows(t),
                  w = tile_cols(t);
    plan best = {0};
    const int64_t most = t->kind == KIND_PLANES ? GROUP_PLANES : GROUP;
    for (int64_t group = AF_MIN(steps, most); group > 0; group--) {
        const int64_t line = group * step * bytes_a(t), column = group * step * bytes_b(t);
        const int64_t rows = line ? AF_MAX(all / 2 / line / tm, INT64_C(1)) * tm : g->M;
        plan p = {group, even_part(g->M, rows, tm), 0, step, group == steps};
        const int64_t cols = AF_MAX((all - p.rows * line) / column / w, INT64_C(1)) * w;
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

/* Panels [p, end) with rows [from, to) of the block. */
typedef struct item {
    int64_t p, end, from, to;
} item;

/* What is read after n panels from p of step i: the same of the next step, or the panels after. */
static ahead next_panels(const team *w, int i, int64_t p, int64_t n, const item *of)
{
    const bool on = i + 1 < w->steps;
    const task *t = &w->step[on ? i + 1 : 0];
    const int64_t from = on ? p : p + n, to = AF_MIN(from + n, on ? p + n : of->end),
                  tiles = n * parts(of->to - of->from, tile_rows(t)), j = panel_start(t, from),
                  bytes = t->depth_b * value_bytes(t);
    ahead h = {.rows = 1};
    if (to <= from)
        return (ahead){0};
    h.at = t->b + j * bytes;
    h.bytes = (panel_start(t, to) - j) * bytes;
    h.lines = parts(parts(h.bytes, LINE), tiles);
    return h;
}

/* One item through all steps; the rows of the one after it follow. */
static void run_item(const team *w, const item *of, const item *then, int share, hand *h)
{
    const task *t = w->step;
    const int64_t most = t->kind == KIND_F32 ? AF_GEMM_STRIP / tile_cols(t) : STRIP_MOST;
    for (int64_t n, p = of->p; p < of->end; p += n) {
        const int width = panel_width(t, p);
        const int64_t left = p < t->wide ? AF_MIN(of->end, t->wide) - p : of->end - p,
                      j = panel_start(t, p);
        n = even_part(left, most, 1);
        for (int i = 0; i < w->steps; i++) {
            const task *s = &w->step[i];
            const bool on = i + 1 < w->steps, more = on || p + n < of->end;
            const spot first = {of->from, j, s->b + j * s->depth_b * value_bytes(t), width,
                                AF_ISA_NAME(af_tile_for)(false, width)};
            ahead next = next_panels(w, i, p, n, of);
            h->then = on ? s + 1 : more || then ? w->step : NULL;
            h->then_row = more || !then ? of->from : then->from;
            AF_ISA_NAME(af_task_strip)(s, &first, n, of->to, &next, share, h);
        }
    }
}

/* The panels of one piece of the rows, or as many tiles of rows with a strip of panels as there are
 * in [*at, to), or with a part of one; false after the last. */
static bool next_item(const team *w, int64_t *at, int64_t to, item *out)
{
    const task *t = w->step;
    const int64_t tm = tile_rows(t), tiles = parts(t->rows, tm);
    if (*at >= to)
        return false;
    if (t->kind == KIND_F32) {
        const int64_t piece = *at / t->panels, p = *at % t->panels;
        *out = (item){p, AF_MIN(t->panels, p + to - *at), tiles * piece / t->pieces * tm,
                      AF_MIN(tiles * (piece + 1) / t->pieces * tm, t->rows)};
        *at += out->end - p;
        return true;
    }
    const int64_t strip = *at / (tiles * w->parts), row = *at / w->parts % tiles,
                  part = *at % w->parts, p = t->panels * strip / w->strips,
                  n = t->panels * (strip + 1) / w->strips - p;
    const int64_t rows = AF_MIN(AF_MIN((to - *at) / w->parts, tiles - row), (int64_t)ROWS_MOST);
    const bool whole = part == 0 && rows > 0;
    const int64_t end = whole ? w->parts : AF_MIN(w->parts, part + to - *at);
    *out = (item){p + n * part / w->parts, p + n * end / w->parts, row * tm,
                  AF_MIN((row + (whole ? rows : 1)) * tm, t->rows)};
    *at += whole ? rows * w->parts : end - part;
    return true;
}

static void multiply(void *arg, int64_t from, int64_t to, int share)
{
    const team *w = arg;
    hand h;
    item a, b;
    AF_ISA_NAME(af_spot_begin)(w->step, share, &h);
    for (bool more = next_item(w, &from, to, &a); more; a = b) {
        more = next_item(w, &from, to, &b);
        run_item(w, &a, more ? &b : NULL, share, &h);
    }
    AF_ISA_NAME(af_spot_end)(w->step, &h);
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

/* Panels of a strip for planes: a thread's share of the tiles is about a square then. */
static int64_t strip_panels(const task *t, int64_t tiles, int threads)
{
    int64_t side = t->own ? STRIP_LEAST : 1;
    while (side < STRIP_MOST && side * side * threads < tiles * t->panels)
        side++;
    return side;
}

static void cut_strips(team *w, const task *t, int threads)
{
    const int64_t tiles = parts(t->rows, tile_rows(t)), each = tiles * t->panels / threads,
                  last = AF_MAX(AF_MIN(each / 8, (int64_t)LAST_PANELS), INT64_C(1));
    w->strips = parts(t->panels, strip_panels(t, tiles, threads));
    w->parts = AF_MIN(parts(parts(t->panels, w->strips), last), t->panels / w->strips);
}

/* Bytes that panels of B, and of both, take in one group of steps. */
static int64_t group_b(const task *t, const plan *p)
{
    return p->cols * p->group * p->step * bytes_b(t);
}
static int64_t group_bytes(const task *t, const plan *p)
{
    const int64_t rows = parts(p->rows, tile_rows(t)) * tile_rows(t);
    return AF_ALIGN_UP(group_b(t, p) + rows * p->group * p->step * bytes_a(t), (int64_t)PAGE);
}

/* Where the panels of a group lie. */
static uint8_t *find_place(const team *w, const task *t, const plan *p, int threads)
{
    const int64_t all = group_bytes(t, p), places = room(threads) / all;
    const bool change = t->kind == KIND_PLANES && places > 1;
    return t->a + (change ? w->slot % AF_MIN(places, (int64_t)SLOTS) * all : 0);
}

/* The next steps of the block. */
static void take_group(team *w, const task *t, const plan *p, place *at)
{
    const int64_t tm = tile_rows(t), size = value_bytes(t), rows = parts(p->rows, tm) * tm,
                  cols = panel_start(t, t->panels);
    uint8_t *b = w->panels, *a = b + group_b(t, p);
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
    const int64_t tiles = parts(t->rows, tile_rows(t)), items = t->kind == KIND_F32
                                                                    ? t->panels * t->pieces
                                                                    : w->strips * w->parts * tiles;
    place at = {0, false, 0};
    do {
        if (!w->kept)
            w->panels = find_place(w, t, p, af_pool_threads(pool));
        take_group(w, t, p, &at);
        af_pool_run(pool, pack_items(w), pack, w);
        af_pool_run(pool, items, multiply, w);
        w->slot += t->own || !p->all_k; /* else the next block finds panels there */
    } while (!w->step[w->steps - 1].last);
}

/* Writing over panels of B takes twice as long when all threads have just read them, as they have
 * in the product before: products differ in where theirs begin. */
static int64_t first_slot(const af_gemm *g)
{
    const uint64_t mixed = ((uint64_t)(uintptr_t)g->b.data ^ (uint64_t)(uintptr_t)g->c) >> 6;
    return (int64_t)(mixed * UINT64_C(0x9e3779b97f4a7c15) >> 48);
}

/* Whether B is packed whole, once, in one place. */
static bool packs_whole(const task *t, const plan *p)
{
    return p->all_k && p->cols >= t->g->N && t->g->terms == 0 && !t->g->b.weight;
}

/* The same panels where the product before left them, if there is room for this one's A after. */
static uint8_t *kept_panels(const task *t, const plan *p, int threads)
{
    const af_gemm *g = t->g;
    const af_kept *k = &t->kept;
    const bool same = packs_whole(t, p) && k->data == g->b.data && k->N == g->N && k->K == g->K &&
                      k->step == p->step && k->kind == (int)t->kind;
    return same && k->panels >= t->a && k->panels + group_bytes(t, p) <= t->a + room(threads)
               ? k->panels
               : NULL;
}

void AF_ISA_NAME(af_team_run)(const task *of, af_pool *pool, int64_t step, int64_t total)
{
    const af_gemm *g = of->g;
    const int threads = af_pool_threads(pool);
    task t = *of;
    t.own = t.kind == KIND_PLANES && parts(g->M, BM) * parts(g->N, BN) >= OWN_TILES * threads;
    const plan p = make_plan(&t, step, total, threads);
    team w;
    w.slot = first_slot(g);
    w.panels = kept_panels(&t, &p, threads);
    w.kept = w.panels;
    for (t.n = 0; t.n < g->N; t.n += p.cols)
        for (t.m = 0; t.m < g->M; t.m += p.rows) {
            t.rows = AF_MIN(p.rows, g->M - t.m);
            t.cols = AF_MIN(p.cols, g->N - t.n);
            AF_ISA_NAME(af_task_cut)(&t, threads);
            t.pieces = row_pieces(&t, step, threads);
            cut_strips(&w, &t, threads);
            /* what lies there from the block before stays */
            w.pack_a = !t.own && !(p.all_k && p.rows >= g->M && t.n > 0);
            w.pack_b = !w.kept && !(p.all_k && t.m > 0);
            run_block(&w, &t, &p, pool);
        }
    if (g->kept && packs_whole(&t, &p))
        *g->kept = (af_kept){g->b.data, w.panels, g->N, g->K, p.step, (int)t.kind};
}
