/* amx_loop.c - the macro-kernel of AMX, for bf16 and for f32 in planes: rows of A stay in the
 * first-level cache and panels of B pass.
 *
 * A thread takes a strip of panels with as many tiles of rows as it claimed, at the end with parts
 * of a strip: one with a core of its own is three times as fast as one that shares it. Finished
 * sums reach C, and the rows of A of the next tile are packed, between the instructions of the
 * present one (af_amx_work). */
#include "cpu/gemm/amx/amx.h"

enum {
    ROWS_MAX = 16, /* tiles of f32 rows that pass a strip: their sums stay in a near cache too */
    KC_NEAR = 640, /* k's of a bf16 sum for which rows of A stay in the first-level cache */
    ROWS_BYTES = 36 << 10,               /* a tile of rows in planes */
    STRIP_BYTES = 24 * AF_GEMM_TILE * 4, /* the sums of a strip */
};
_Static_assert(2 * ROWS_BYTES <= STRIP_BYTES, "af_gemm_machine.thread_bytes");

/* Panels [p, end) with rows [from, to) of the block. */
typedef struct amx_item {
    int64_t p, end, from, to;
} amx_item;

/* The state of a thread while it processes tiles. */
typedef struct amx_thread {
    const af_gemm_job *j;
    int thread;
    float sums[2][AF_GEMM_TILE]
        __attribute__((aligned(64))); /* of this tile and the previous one */
    int flip;                         /* which of them is this tile's */
    float *strip_sums;                /* of a strip of tiles, between parts of a long sum */
    uint8_t *rows, *spare;    /* of A, where a thread packs its own: this tile's, the next one's */
    const af_gemm_step *next; /* the step and row whose own rows follow this strip, or NULL */
    int64_t next_row;
    bool last; /* this tile is the last one of the strip that reads these rows */
    af_amx_rows_f32 next_rows[AF_GEMM_SEGMENTS];
    float block[BM * BK] __attribute__((aligned(64))); /* of them */
    af_amx_work w;
} amx_thread;

/* Finished sums that are not read soon and that fill lines of the cache: written past it, the lines
 * need not be read first. */
static bool streams(const af_gemm_job *j, const af_gemm_step *s)
{
    const af_gemm *g = j->g;
    return g->nontemporal && j->plan.kind == AF_GEMM_BF16 && s->first && s->last &&
           (uintptr_t)g->c % AF_LINE == 0 &&
           g->ldc * af_dtype_get(g->c_dtype)->bytes % AF_LINE == 0;
}

/* ---- a thread's own rows of A ---- */

/* Groups of four tile instructions that a tile of planes is made of. */
static int64_t tile_groups(const af_gemm_job *j, const af_gemm_step *s)
{
    int64_t groups = 0;
    for (int i = 0; i < s->segments; i++)
        groups += af_gemm_pad(j, s->segment[i].kc) / BK * (s->segment[i].planes == 1 ? 3 : 6);
    return groups;
}

/* The rows from i on become those that are split between the instructions of so many tiles; false
 * where they must be decoded. */
static bool begin_rows(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t tiles)
{
    const af_gemm_job *j = h->j;
    int64_t rows = 0;
    for (int c = 0; c < s->segments; c++) {
        const af_gemm_segment *q = &s->segment[c];
        const af_operand *a = q->a;
        const int64_t m = j->m + i;
        if (!af_operand_is(a, AF_DTYPE_F32))
            return false;
        h->next_rows[c] = (af_amx_rows_f32){
            .from = (const float *)a->data + (a->trans ? q->k * a->ld + m : m * a->ld + q->k),
            .ld = a->ld,
            .trans = a->trans,
            .lines = AF_MIN(j->rows - i, (int64_t)BM),
            .kc = q->kc,
            .to = (uint16_t *)h->spare + q->at_a * BM,
            .block = h->block,
            .row = a->trans ? -AF_TRANSPOSE_PARTS : 0,
        };
        rows += af_gemm_pad(j, q->kc) / BK * (BM + AF_TRANSPOSE_PARTS);
    }
    const int64_t groups = (tile_groups(j, s) + 1) / 2 * tiles; /* every other */
    h->w.rows_f32 = h->next_rows;
    h->w.segments = s->segments;
    h->w.each = (int)af_ceil_div(rows, groups);
    return true;
}

/* Rows of A from i on, at once. */
static void pack_rows(const amx_thread *h, const af_gemm_step *s, int64_t i, uint8_t *to)
{
    const af_gemm_job *j = h->j;
    for (int c = 0; c < s->segments; c++) {
        const af_gemm_segment *q = &s->segment[c];
        const af_panels p = {.to = to,
                             .width = BM,
                             .depth = s->depth_a,
                             .at = q->at_a,
                             .planes = af_planes_a(j->plan.kind)};
        AF_ISA_NAME(af_gemm_pack_part)
        (j, &p, q->a, j->m + i, AF_MIN(j->rows - i, (int64_t)BM), q->k, q->kc, h->thread);
    }
}

static af_amx_rows_bf16 rows_bf16_of(const amx_thread *h, const af_gemm_step *s, int64_t i)
{
    const af_gemm_segment *q = &s->segment[0];
    return (af_amx_rows_bf16){.from = (const uint16_t *)q->a->data + q->k * q->a->ld + h->j->m + i,
                              .to = (uint16_t *)h->rows,
                              .ld = q->a->ld};
}

/* bf16: the next rows come where these are, k's after k's, once the last tile has read them: a
 * second buffer would push this one out of the first-level cache. */
static void take_rows_bf16(amx_thread *h, const af_gemm_step *s, int64_t i)
{
    af_amx_rows_bf16 *next = &h->w.rows_bf16;
    if (!next->to && h->j->rows - i >= BM) {
        *next = rows_bf16_of(h, s, i);
        next->left = s->depth / BK;
        af_amx_transpose_rest(next);
    } else if (!next->to) {
        pack_rows(h, s, i, h->rows);
    }
    *next = (af_amx_rows_bf16){0};
    if (h->next && h->j->rows - h->next_row >= BM)
        *next = rows_bf16_of(h, h->next, h->next_row);
}

/* Rows from i on become this tile's; those after them are packed while so many tiles are made. */
static void take_rows(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t tiles)
{
    uint8_t *to = h->spare;
    if (h->j->plan.kind == AF_GEMM_BF16) {
        take_rows_bf16(h, s, i);
        return;
    }
    if (!h->w.rows_f32 && !begin_rows(h, s, i, 1))
        pack_rows(h, s, i, to);
    af_planes_finish(&h->w);
    h->w.rows_f32 = NULL;
    h->spare = h->rows;
    h->rows = to;
    if (h->next)
        begin_rows(h, h->next, h->next_row, tiles);
}

/* So many k's of the next bf16 rows during the tile that reads these last. */
static void transpose_next(amx_thread *h, int64_t depth)
{
    h->w.rows_bf16.left = h->w.rows_bf16.to ? depth / BK : 0;
}

/* ---- tiles ---- */

/* The spans of the tile at row i and column c. */
static void find_spans(const amx_thread *h, const af_gemm_step *s, int64_t i, int64_t c,
                       af_amx_span out[AF_GEMM_SEGMENTS])
{
    const af_gemm_job *j = h->j;
    const uint8_t *rows = j->plan.own_rows ? h->rows : s->a + i * s->depth_a * 2;
    for (int k = 0; k < s->segments; k++) {
        const af_gemm_segment *q = &s->segment[k];
        out[k] = (af_amx_span){.a = rows + q->at_a * BM * 2,
                               .b = af_gemm_panel(j, s, q, c),
                               .row = 64,
                               .step = BK * BM * 2,
                               .depth = af_gemm_pad(j, q->kc),
                               .planes = j->plan.kind == AF_GEMM_PLANES ? q->planes : 0};
        if (j->rows - i < BM && j->edge) {
            out[k].a = j->edge + q->at * BM * 2;
        } else if (q->in_place) {
            out[k].a = (const uint16_t *)q->a->data + (j->m + i) * q->a->ld + q->k;
            out[k].row = q->a->ld * 2;
            out[k].step = BK * 2;
        }
    }
}

/* k's [from, to) of the sums for the panel n after the spans': the parts of the spans they lie in,
 * how many. */
static int cut_spans(const af_gemm_step *s, const af_amx_span in[AF_GEMM_SEGMENTS], int64_t n,
                     int64_t from, int64_t to, af_amx_span out[AF_GEMM_SEGMENTS])
{
    int spans = 0;
    for (int i = 0; i < s->segments; i++) {
        const af_gemm_segment *q = &s->segment[i];
        const int64_t begin = AF_MAX(from - q->at, INT64_C(0)),
                      end = AF_MIN(to - q->at, in[i].depth),
                      panel = (q->packed ? q->b->packed->depth : s->depth_b) * BN * 2;
        if (begin >= end)
            continue;
        af_amx_span *x = &out[spans++];
        *x = in[i];
        x->a = (const uint8_t *)in[i].a + begin / BK * in[i].step;
        x->b = (const uint8_t *)in[i].b + n * panel + begin * BN * 2;
        x->depth = end - begin;
    }
    return spans;
}

static void sum_tile(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t c, float *to,
                     int64_t ld, af_tile_mode mode)
{
    af_amx_span spans[AF_GEMM_SEGMENTS];
    find_spans(h, s, i, c, spans);
    if (h->last)
        transpose_next(h, s->depth);
    af_amx_tile(spans, s->segments, to, ld, mode, &h->w);
}

/* Whole sums into an f32 C. Those of planes that are added are added while the next tile is made.
 */
static void sum_into_c(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t c, float *to,
                       bool add)
{
    const int64_t ld = h->j->g->ldc;
    if (h->j->plan.kind != AF_GEMM_PLANES) {
        sum_tile(h, s, i, c, to, ld, add ? AF_TILE_ADD : AF_TILE_SET);
        return;
    }
    h->w.fetch = to;
    h->w.fetch_ld = ld;
    h->w.fetch_rows = BM;
    float *sums = h->sums[h->flip];
    sum_tile(h, s, i, c, add ? sums : to, add ? BN : ld, AF_TILE_SET);
    if (!add)
        return;
    h->w.epilogue = (af_amx_epilogue){.from = sums, .add_to = to, .ld = ld, .rows = BM};
    h->flip ^= 1;
}

static void run_tile(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t c)
{
    const af_gemm_job *j = h->j;
    const af_gemm *g = j->g;
    const int64_t rows = AF_MIN((int64_t)BM, j->rows - i), cols = AF_MIN((int64_t)BN, j->cols - c),
                  m = j->m + i, n = j->n + c;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, staged = j->plan.staged,
               as_it_is =
                   g->alpha == 1.0f && rows == BM && cols == BN && !(g->bias && (!f32 || s->first));
    const af_tile_mode mode = !staged || s->first              ? AF_TILE_SET
                              : j->plan.kind == AF_GEMM_PLANES ? AF_TILE_ADD
                                                               : AF_TILE_CONTINUE;
    float *sums = staged ? j->scratch + i * j->machine->scratch_cols + c * BM : h->sums[h->flip];
    if (as_it_is && f32) {
        sum_into_c(h, s, i, c, (float *)g->c + m * g->ldc + n, g->add || !s->first);
        return;
    }
    sum_tile(h, s, i, c, sums, BN, mode);
    if (as_it_is && !f32 && !g->add && s->last) {
        h->w.epilogue = (af_amx_epilogue){
            .from = sums, .to = (uint16_t *)g->c + m * g->ldc + n, .ld = g->ldc, .rows = BM};
        h->flip ^= 1;
    } else if (!staged || s->last) {
        AF_ISA_NAME(af_gemm_store)(g, sums, BN, m, rows, n, cols, staged || s->first);
    }
}

/* The first so many of n tiles next to one another that are whole and only rounded or streamed to
 * C: how many. Long sums are made KC_NEAR k's at a time for all of them. */
static int64_t run_row(amx_thread *h, const af_gemm_step *s, int64_t i, int64_t c, int64_t n)
{
    const af_gemm_job *j = h->j;
    const af_gemm *g = j->g;
    const int64_t full = j->rows - i >= BM ? AF_MIN(n, (j->cols - c) / BN) : 0;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, stream = streams(j, s), staged = j->plan.staged,
               planes = j->plan.kind == AF_GEMM_PLANES;
    if ((f32 && !stream) || g->alpha != 1.0f || g->add || g->bias || (staged && planes))
        return 0;
    af_amx_span spans[AF_GEMM_SEGMENTS], part[AF_GEMM_SEGMENTS];
    find_spans(h, s, i, c, spans);
    const int64_t at = (j->m + i) * g->ldc + j->n + c,
                  parts = planes ? 1 : af_ceil_div(s->depth, KC_NEAR);
    for (int64_t p = 0; p < parts; p++)
        for (int64_t q = 0; q < full; q++, h->flip ^= parts == 1) {
            float *sums = staged ? j->scratch + i * j->machine->scratch_cols + (c + q * BN) * BM
                          : parts > 1 ? h->strip_sums + q * AF_GEMM_TILE
                                      : h->sums[h->flip];
            const int64_t from = s->depth / BK * p / parts * BK,
                          to = s->depth / BK * (p + 1) / parts * BK;
            const int count = cut_spans(s, spans, q, from, to, part);
            if (q == n - 1)
                transpose_next(h, to - from);
            af_amx_tile(part, count, sums, BN,
                        p > 0 || (staged && !s->first) ? AF_TILE_CONTINUE : AF_TILE_SET, &h->w);
            if (p == parts - 1 && (s->last || !staged))
                h->w.epilogue = (af_amx_epilogue){
                    .from = sums,
                    .to = f32 ? NULL : (uint16_t *)g->c + at + q * BN,
                    .stream = f32 ? (float *)g->c + at + q * BN : NULL,
                    .ld = g->ldc,
                    .rows = BM,
                    .nontemporal = stream,
                };
        }
    return full;
}

/* ---- items ---- */

/* One step of an item; then, next_row: whose own rows follow. */
static void run_step(amx_thread *h, const af_gemm_step *s, const amx_item *of,
                     const af_gemm_step *then, int64_t next_row)
{
    const int64_t n = of->end - of->p;
    for (int64_t i = of->from; i < of->to; i += BM) {
        const bool more = i + BM < of->to;
        h->next = more ? s : then;
        h->next_row = more ? i + BM : next_row;
        h->last = false;
        if (h->j->plan.own_rows)
            take_rows(h, s, i, n);
        for (int64_t q = run_row(h, s, i, of->p * BN, n); q < n; q++) {
            h->last = q == n - 1;
            run_tile(h, s, i, (of->p + q) * BN);
        }
    }
}

/* One item through all steps; the rows of the item after it follow. */
static void run_item(amx_thread *h, const amx_item *of, const amx_item *then)
{
    const af_gemm_job *j = h->j;
    for (int i = 0; i < j->steps; i++) {
        const af_gemm_step *s = &j->step[i];
        const bool on = i + 1 < j->steps;
        af_prefetch next = {0};
        h->w.next_b = &next;
        if (j->plan.kind == AF_GEMM_PLANES) {
            next = AF_ISA_NAME(af_gemm_next_panels)(j, i, of->p, of->end - of->p, of->end,
                                                    (of->end - of->p) *
                                                        af_ceil_div(of->to - of->from, BM));
            h->w.lines = (int)af_ceil_div(next.lines, tile_groups(j, s));
        }
        run_step(h, s, of, on ? s + 1 : then ? j->step : NULL, on || !then ? of->from : then->from);
    }
}

/* As many tiles of rows with a strip of panels as there are in [*at, to), or one with a part of a
 * strip; false after the last. */
static bool next_item(const af_gemm_job *j, int64_t *at, int64_t to, amx_item *out)
{
    const int64_t parts = j->cut.parts, strip = *at / (j->tiles * parts),
                  row = *at / parts % j->tiles, part = *at % parts,
                  p = j->panels * strip / j->cut.strips,
                  n = j->panels * (strip + 1) / j->cut.strips - p,
                  most = j->plan.kind == AF_GEMM_PLANES ? ROWS_MAX : INT64_MAX;
    if (*at >= to)
        return false;
    const int64_t rows = AF_MIN(AF_MIN((to - *at) / parts, j->tiles - row), most);
    const bool whole = part == 0 && rows > 0;
    const int64_t end = whole ? parts : AF_MIN(parts, part + to - *at);
    *out = (amx_item){p + n * part / parts, p + n * end / parts, row * BM,
                      AF_MIN((row + (whole ? rows : 1)) * BM, j->rows)};
    *at += whole ? rows * parts : end - part;
    return true;
}

static int64_t items(const af_gemm_job *j) { return j->cut.strips * j->cut.parts * j->tiles; }

static void multiply(const af_gemm_job *j, int64_t from, int64_t to, int thread)
{
    uint8_t *own = af_gemm_own(j, thread);
    amx_thread h;
    amx_item a, b;
    h.j = j;
    h.thread = thread;
    h.flip = 0;
    h.strip_sums = (float *)own;
    h.rows = j->plan.kind == AF_GEMM_BF16 ? own + STRIP_BYTES : own;
    h.spare = own + ROWS_BYTES;
    h.w = (af_amx_work){0};
    af_amx_begin();
    for (bool more = next_item(j, &from, to, &a); more; a = b) {
        more = next_item(j, &from, to, &b);
        run_item(&h, &a, more ? &b : NULL);
    }
    af_amx_flush(&h.w.epilogue);
    af_amx_end();
}

const af_gemm_kernel AF_ISA_NAME(af_gemm_bf16) = {
    .mr = BM, .nr = BN, .kr = BK, .pack = af_pack_amx, .items = items, .multiply = multiply};
const af_gemm_kernel AF_ISA_NAME(af_gemm_planes) = {
    .mr = BM, .nr = BN, .kr = BK, .pack = af_pack_planes, .items = items, .multiply = multiply};
