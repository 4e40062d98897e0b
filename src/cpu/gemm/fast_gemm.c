/* fast_gemm.c - matrix products: panels are packed on the way (fast_pack.c), one register tile does
 * the arithmetic (fast_tile.c), the sums leave through one store (fast_store.c).
 *
 * K (of all terms, one after another) is walked in steps, M in blocks. The threads pack a block of
 * A together, so that it fills the second-level cache; then each takes panels of columns, packs a
 * strip of them (a panel stays in the first-level cache) and multiplies it with all of A. Every
 * element of C is one sum in the order of k (a f32 C of several steps: the sum of theirs), with the
 * same tile code for edges (panels are padded with zeros): results do not depend on the number of
 * rows, nor on that of threads (but see kind_of). */
#include "cpu/gemm/fast_task.h"

uint64_t AF_ISA_NAME(af_gemm_work)(int threads)
{
    const uint64_t all = A_BYTES + (uint64_t)MS * NS * sizeof(float),
                   share = B_BYTES + hand_bytes();
    return AF_MAX(all + (uint64_t)threads * share, AF_ISA_NAME(af_thin_work)(threads));
}

void AF_ISA_NAME(af_task_pack)(const task *t, const af_panels *p, const af_operand *o, bool along,
                               int64_t line, int64_t lines, int64_t k, int64_t kc, int share)
{
    const int64_t most = t->kind == KIND_BF16 ? AF_GEMM_KC_BF16 : AF_GEMM_KC;
    af_panels q = *p;
    for (int64_t at = 0; at < kc; at += most, q.at += most * p->planes) {
        const int64_t n = AF_MIN(most, kc - at);
        float *buf = pack_buffer(t, share);
#if defined(AF_ISA_amx)
        if (t->kind == KIND_PLANES) {
            AF_ISA_NAME(af_pack_planes)(&q, o, along, line, lines, k + at, n, buf);
            continue;
        }
#endif
        if (t->kind == KIND_BF16)
            AF_ISA_NAME(af_pack_bf16)(&q, o, along, line, lines, k + at, n, buf);
        else
            AF_ISA_NAME(af_pack_f32)(&q, o, along, line, lines, k + at, n, buf);
    }
}

/* Rows [m, end) of the block as panels of A that are `depth` deep; `edge`: all chunks, as they
 * follow one another in the sum, else those that are not in place. */
static void pack_rows(const task *t, uint8_t *to, bool edge, int64_t m, int64_t end, int share)
{
    const int64_t depth = edge ? t->depth : t->depth_a;
    for (; m < end; m += MS, to += MS * depth * value_bytes(t))
        for (int i = 0; i < t->chunks; i++) {
            const chunk *c = &t->chunk[i];
            const af_panels p = {to, tile_rows(t), BGA, depth, edge ? c->at : c->at_a, planes_a(t)};
            if (edge || !c->in_place)
                AF_ISA_NAME(af_task_pack)
            (t, &p, c->a, !c->a->trans, t->m + m, AF_MIN(end - m, (int64_t)MS), c->k, c->kc, share);
        }
}

/* Tiles [from, to) of A: what is not in place, and the last part of a tile that is. */
static void pack_a(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const int64_t tm = tile_rows(t), end = AF_MIN(to * tm, t->rows),
                  full = t->edge ? t->rows / tm * tm : t->rows;
    if (!t->own)
        pack_rows(t, t->a + from * tm * t->depth_a * value_bytes(t), false, from * tm,
                  AF_MIN(end, full), share);
    pack_rows(t, t->edge, true, AF_MAX(full, from * tm), end, share);
}

/* Columns [n, n+cols) of the block as panels, where they are not there already. */
static void pack_b(const task *t, void *strip, int64_t n, int64_t cols, int width, int share)
{
    for (int i = 0; i < t->chunks; i++) {
        const chunk *c = &t->chunk[i];
        const af_panels p = {strip, width, BGB, t->depth_b, c->at_b, c->planes};
        af_operand b = *c->b;
        b.rest = c->rest;
        if (!c->once)
            AF_ISA_NAME(af_task_pack)
        (t, &p, &b, b.trans, t->n + n, cols, c->k, c->kc, share);
    }
}

/* Reading one value of these types decodes a block of 256: strips of them are wide. */
static bool is_coarse(const af_operand *b)
{
    return b->weight && !b->trans && af_dtype_get(b->weight->dtype)->elems >= 256;
}

static bool any_coarse(const af_gemm *g)
{
    bool coarse = is_coarse(&g->b);
    for (int i = 0; i < g->terms; i++)
        coarse |= is_coarse(&g->term[i].b);
    return coarse;
}

static bool any_packed(const af_gemm *g)
{
    bool packed = g->b.packed != NULL;
    for (int i = 0; i < g->terms; i++)
        packed |= g->term[i].b.packed != NULL;
    return packed;
}

/* The panels packed once that the strip after this one will read. */
static ahead packed_ahead(const task *t, const chunk *c, int64_t n, int64_t cols, int64_t tiles)
{
    const int64_t size = value_bytes(t), w = tile_cols(t), depth = c->b->packed->depth;
    ahead h = {.rows = cols / w, .bytes = c->kc * c->planes * w * size, .step = depth * w * size};
    h.at =
        (const uint8_t *)c->b->packed->panels + ((t->n + n) * depth + c->k * c->planes * w) * size;
    h.lines = (h.rows * ((h.bytes + LINE - 1) / LINE) + tiles - 1) / tiles;
    return h;
}

/* The memory of B that the strip after this one will be packed from: it comes from far away and is
 * read once. Plain types only. */
static ahead look_ahead(const task *t, int64_t n, int64_t cols, int64_t tiles)
{
    const chunk *c = &t->chunk[0];
    const af_operand *b = c->b;
    const int64_t size = af_dtype_get(b->dtype)->bytes, line = t->n + n;
    if (cols <= 0 || (b->weight && !c->once))
        return (ahead){0};
    if (c->once)
        return packed_ahead(t, c, n, cols, tiles);
    ahead h = {.rows = b->trans ? cols : c->kc, .bytes = (b->trans ? c->kc : cols) * size};
    h.step = b->ld * size;
    h.at = (const uint8_t *)b->data + (b->trans ? line : c->k) * h.step +
           (b->trans ? c->k : line) * size;
    h.lines = (h.rows * ((h.bytes + LINE - 1) / LINE) + tiles - 1) / tiles;
    return h;
}

/* Most panels of a strip. AMX reads them past a few rows of A: as many as stay in the second-level
 * cache beside those rows. */
static int64_t strip_panels(const task *t)
{
    if (any_coarse(t->g))
        return AF_GEMM_WIDE / tile_cols(t);
#if defined(AF_ISA_amx)
    const int64_t kept = B_BYTES / (t->depth * planes_a(t) * BN * 2) - 1;
    if (t->kind != KIND_F32)
        return AF_MAX(AF_MIN(kept, (int64_t)AF_GEMM_WIDE / BN), INT64_C(1));
#endif
    return AF_GEMM_STRIP / tile_cols(t);
}

/* LEAST_PANELS: what a thread takes at once, because a strip is packed and passes all of A. */
#if defined(AF_ISA_amx)
enum { ROWS_STAY = 1, LEAST_PANELS = 4 };
#else
enum { ROWS_STAY = 0, LEAST_PANELS = AF_GEMM_STRIP / AF_MIN((int)BN, (int)NR) };
#endif

/* A strip of n panels from column j of the block with rows [from, to): AMX keeps rows of A in the
 * first-level cache and lets B pass, the others keep a panel of B. */
void AF_ISA_NAME(af_task_strip)(const task *t, const spot *first, int64_t n, int64_t to,
                                ahead *next_b, int share, hand *h)
{
    const int64_t tm = tile_rows(t), tiles = (to - first->i + tm - 1) / tm,
                  bytes = t->depth_b * first->width * value_bytes(t);
    const bool stay = ROWS_STAY && t->kind != KIND_F32;
    AF_ISA_NAME(af_spot_ahead)(t, next_b, h);
    const int64_t outer = stay ? tiles : n, inner = stay ? n : tiles;
    const task *then = h->then;
    const int64_t then_row = h->then_row;
    for (int64_t u = 0; u < outer; u++) {
        spot o = *first;
        o.i += stay ? u * tm : 0;
        if (t->own) {
            h->then = u + 1 < outer ? t : then;
            h->then_row = u + 1 < outer ? o.i + tm : then_row;
            AF_ISA_NAME(af_spot_rows)(t, o.i, n, share, h);
        }
        for (int64_t v = stay ? AF_ISA_NAME(af_spot_row)(t, &o, n, h) : 0; v < inner; v++) {
            const int64_t q = stay ? v : u, i = stay ? u : v;
            o.i = first->i + i * tm;
            o.j = first->j + q * first->width;
            o.b = first->b + q * bytes;
            h->last = q == n - 1;
            if (t->kind != KIND_PLANES)
                af_ahead_fetch(next_b, next_b->lines);
            AF_ISA_NAME(af_spot_run)(t, &o, h);
        }
    }
}

/* Panels [p, end) of one piece of the rows. */
static void columns(const task *t, int64_t p, int64_t end, int64_t piece, int share, hand *h)
{
    const int64_t tm = tile_rows(t), tiles = (t->rows + tm - 1) / tm, most = strip_panels(t);
    const int64_t from = tiles * piece / t->pieces * tm,
                  to = AF_MIN(tiles * (piece + 1) / t->pieces * tm, t->rows);
    uint8_t *strip = t->strips + (uint64_t)share * B_BYTES;
    while (p < end) {
        const int width = panel_width(t, p);
        const int64_t left = p < t->wide ? AF_MIN(end, t->wide) - p : end - p;
        const int64_t n = even_part(left, most, 1), j = panel_start(t, p), next = j + n * width;
        const spot first = {from, j, strip, width,
                            AF_ISA_NAME(af_tile_for)(t->kind == KIND_BF16, width)};
        ahead next_b = look_ahead(t, next, AF_MIN(n * width, panel_start(t, end) - next),
                                  n * ((to - from + tm - 1) / tm));
        pack_b(t, strip, j, AF_MIN(n * width, t->cols - j), width, share);
        AF_ISA_NAME(af_task_strip)(t, &first, n, to, &next_b, share, h);
        p += n;
    }
}

static void multiply(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    hand h;
    AF_ISA_NAME(af_spot_begin)(t, share, &h);
    while (from < to) {
        const int64_t piece = from / t->panels, p = from % t->panels,
                      end = AF_MIN(t->panels, p + to - from);
        columns(t, p, end, piece, share, &h);
        from += end - p;
    }
    AF_ISA_NAME(af_spot_end)(t, &h);
}

/* Into how many pieces the rows are cut when there are few panels: no more than keep the threads
 * busy for nine tenths, because a strip of B is packed for each. */
static int64_t row_pieces(int64_t panels, int64_t tiles, int threads)
{
    const int64_t most = AF_MIN((4 * threads + panels - 1) / panels, tiles);
    int64_t pieces = 1;
    while (pieces < most) {
        const int64_t items = panels * pieces, share = (items + threads - 1) / threads;
        if (10 * items >= 9 * threads * share)
            break;
        pieces++;
    }
    return threads == 1 ? 1 : pieces;
}

/* Cuts the block's columns into panels: the last sixteen or fewer go to narrow ones when that
 * leaves less of a panel empty. */
void AF_ISA_NAME(af_task_cut)(task *t, int threads)
{
    const int64_t W = tile_cols(t), left = t->cols % W, tm = tile_rows(t),
                  small = ROWS_STAY && t->kind != KIND_F32 ? 0 : AF_NARROW;
    int64_t narrow = 0;
    t->wide = t->cols / W;
    if (left > 0 && left <= 2 * small - W && t->wide > 0) {
        t->wide--;
        narrow = 2;
    } else if (left > 0 && left <= small) {
        narrow = 1;
    } else if (left > 0 && left <= 2 * small && 2 * small < W) {
        narrow = 2;
    } else if (left > 0) {
        t->wide++;
    }
    t->panels = t->wide + narrow;
    t->pieces = row_pieces(t->panels, (t->rows + tm - 1) / tm, threads);
}

static af_gemm_term term_of(const af_gemm *g, int i)
{
    return i == 0 ? (af_gemm_term){g->K, g->a, g->b, g->exact} : g->term[i - 1];
}

/* A f32 B beside a bf16 A that must not be rounded is taken as two bf16 numbers. */
static bool is_split(const task *t, const af_gemm_term *x)
{
    return t->kind == KIND_BF16 && x->exact && (x->b.weight || x->b.dtype != AF_DTYPE_BF16);
}

static int64_t all_k(const task *t)
{
    int64_t sum = 0;
    for (int i = 0; i <= t->g->terms; i++) {
        const af_gemm_term x = term_of(t->g, i);
        sum += pad_k(t, x.K) * (is_split(t, &x) ? 2 : 1);
    }
    return sum;
}

/* Whether whole tiles of these rows are read where they lie: AMX does, unless the rows fall on few
 * sets of the cache. */
static bool lies_right(const task *t, const af_operand *a, int64_t k)
{
#if defined(AF_ISA_amx)
    return t->kind == KIND_BF16 && a->dtype == AF_DTYPE_BF16 && !a->weight && !a->trans &&
           k % BK == 0 && a->ld * 2 % AF_GEMM_ALIAS != 0;
#else
    (void)t, (void)a, (void)k;
    return false;
#endif
}

bool AF_ISA_NAME(af_task_step)(task *t, place *at, int64_t step)
{
    t->depth = t->depth_a = t->depth_b = 0;
    for (t->chunks = 0; at->term <= t->g->terms && t->depth < step; t->chunks++) {
        assert(t->chunks < AF_GEMM_CHUNKS);
        const af_gemm_term x = term_of(t->g, at->term);
        const af_operand *a = at->term ? &t->g->term[at->term - 1].a : &t->g->a,
                         *b = at->term ? &t->g->term[at->term - 1].b : &t->g->b;
        const int64_t kc = AF_MIN(step - t->depth, x.K - at->k);
        chunk *c = &t->chunk[t->chunks];
        *c = (chunk){.a = a, .b = b, .k = at->k, .kc = kc, .rest = at->rest};
        c->at = t->depth;
        c->at_a = t->depth_a;
        c->at_b = t->depth_b;
        c->split = is_split(t, &x);
        c->planes = planes_b(t, b);
        c->in_place = lies_right(t, a, x.K);
        c->once = b->packed && !c->split && kind_for(b->packed->rows) == t->kind;
        t->depth += pad_k(t, kc);
        t->depth_a += c->in_place ? 0 : pad_k(t, kc) * planes_a(t);
        t->depth_b += c->once ? 0 : pad_k(t, kc) * c->planes;
        at->k += kc;
        if (at->k < x.K)
            continue;
        at->k = 0;
        at->rest = is_split(t, &x) && !at->rest;
        at->term += !at->rest;
    }
    return at->term > t->g->terms;
}

/* All steps of one block of C. */
static void block(task *t, af_pool *pool, int64_t step)
{
    const int64_t tm = tile_rows(t);
    place at = {0, false, 0};
    AF_ISA_NAME(af_task_cut)(t, af_pool_threads(pool));
    t->last = false;
    for (t->first = true; !t->last; t->first = false) {
        t->last = AF_ISA_NAME(af_task_step)(t, &at, step);
        const int64_t least = AF_MIN(strip_panels(t), (int64_t)LEAST_PANELS);
        if ((t->depth_a > 0 && !t->own) || (t->edge && t->rows % tm != 0))
            af_pool_run(pool, (t->rows + tm - 1) / tm, pack_a, t);
        af_pool_run_least(pool, t->panels * t->pieces, least, multiply, t);
    }
}

/* No products: alpha * 0 (+ C) + bias. */
static void store_nothing(const af_gemm *g)
{
    static const float zeros[NS];
    for (int64_t n = 0; n < g->N; n += NS)
        AF_ISA_NAME(af_gemm_store)(g, zeros, 0, 0, g->M, n, AF_MIN((int64_t)NS, g->N - n), true);
}

/* k's of all terms whose rows must be packed. */
static int64_t packed_k(const task *t)
{
    int64_t sum = 0;
    for (int i = 0; i <= t->g->terms; i++) {
        const af_gemm_term x = term_of(t->g, i);
        if (!lies_right(t, &x.a, x.K))
            sum += pad_k(t, x.K) * (is_split(t, &x) ? 2 : 1);
    }
    return sum;
}

/* Whether threads pack rows of A themselves, tile after tile. Planes: one thread does, several only
 * as a team (fast_team.c), else they pack them together, each part once. bf16: those of a gradient
 * of weights, whose stored rows are k's, where they pass few strips: they are turned beside the
 * products, and B is packed once for all of them. */
static bool packs_own(const task *t, int threads)
{
    if (t->kind == KIND_PLANES)
        return threads == 1;
#if defined(AF_ISA_amx)
    const af_gemm *g = t->g;
    return t->kind == KIND_BF16 && g->a.trans && all_k(t) == g->K && g->M >= 2 * BM &&
           g->N >= 2 * BN && g->N <= 2 * AF_GEMM_WIDE;
#else
    return false;
#endif
}

enum { MANY_PANELS = 32 }; /* of planes for a thread: it packs them in its own cache */

/* Whether several threads, in blocks of so many rows, would pack the same panels of B again. Planes
 * are taken as if they always would, but for few rows beside so many panels that they do not. */
static bool packs_again(task *t, int64_t rows, int threads)
{
    if (threads == 1 || t->kind == KIND_BF16 || t->staged || any_coarse(t->g) || any_packed(t->g))
        return false;
    if (t->kind == KIND_PLANES) /* one plane is soon packed, and its products hide less */
        return planes_b(t, &t->g->b) > 1 &&
               (rows < t->g->M || t->g->N < (int64_t)MANY_PANELS * BN * threads);
    t->rows = AF_MIN(rows, t->g->M);
    t->cols = t->g->N;
    AF_ISA_NAME(af_task_cut)(t, threads);
    return rows < t->g->M || t->pieces > 1;
}

static void run_blocks(task *t, af_pool *pool)
{
    const af_gemm *g = t->g;
    const int64_t unit = t->kind != KIND_F32 ? BK : KR, size = value_bytes(t) * planes_a(t),
                  tm = tile_rows(t);
    const int64_t total = all_k(t), packed = packed_k(t);
    int64_t most = t->kind == KIND_BF16     ? AF_GEMM_KC_BF16
                   : t->kind == KIND_PLANES ? AF_GEMM_KC_PLANES
                                            : AF_GEMM_KC;
    if (packed <= AF_GEMM_KC_BF16 / 2 && packed < total)
        most = AF_GEMM_KC_PLACE;
    if (any_coarse(g))
        most = AF_MIN(most, (int64_t)AF_GEMM_KC_WIDE);
    const int64_t step = even_part(total, most, unit), edge = packed < total ? step * tm * size : 0;
    t->staged = g->c_dtype != AF_DTYPE_F32 && total > step;
    t->edge = edge ? t->a : NULL;
    t->a += edge;
    const int64_t deep = AF_MAX(AF_MIN(packed, step), INT64_C(1));
    int64_t rows = AF_MAX((A_BYTES - edge) / (deep * size) / tm, INT64_C(1)) * tm;
    t->own = packs_own(t, af_pool_threads(pool));
    if (t->own)
        rows = g->M;
    if (t->staged)
        rows = AF_MIN(rows, (int64_t)MS);
    rows = even_part(g->M, rows, tm);
    const int64_t cols = t->staged ? NS : g->N;
    if (packs_again(t, rows, af_pool_threads(pool))) {
        AF_ISA_NAME(af_team_run)(t, pool, step, total);
        return;
    }
    for (t->n = 0; t->n < g->N; t->n += cols)
        for (t->m = 0; t->m < g->M; t->m += rows) {
            t->rows = AF_MIN(rows, g->M - t->m);
            t->cols = AF_MIN(cols, g->N - t->n);
            block(t, pool, step);
        }
}

/* One to four rows: term after term. */
static void run_thin(const af_gemm *g, af_pool *pool, void *work)
{
    af_gemm one = *g;
    one.terms = 0;
    AF_ISA_NAME(af_thin_run)(&one, pool, work);
    for (int i = 0; i < g->terms; i++) {
        const af_gemm_term *x = &g->term[i];
        one.K = x->K;
        one.a = x->a;
        one.b = x->b;
        one.exact = x->exact;
        one.add = true;
        one.bias = NULL;
        AF_ISA_NAME(af_gemm_run)(&one, pool, work);
    }
}

/* Few columns leave most of an AMX tile empty, and so do few rows of a transposed A, as an
 * adapter's gradient has them. (Rows of A as it is are tokens: a sequence must not get other bits
 * alone than in a batch.) And more than a few threads multiply f32 with f32 sooner on the vector
 * unit: planes of both are half as many bytes again, which all of them exchange. The one choice
 * by which the number of threads changes a result (decision 0018). */
static kind kind_of(const af_gemm *g, int threads)
{
    const kind k = kind_for(g->a.weight ? AF_DTYPE_F32 : g->a.dtype);
#if defined(AF_ISA_amx)
    const bool both = !g->b.weight && g->b.dtype == AF_DTYPE_F32;
    if (k == KIND_PLANES &&
        (AF_MIN(g->N, g->K) < AF_PLANES_LEAST || (g->a.trans && g->M < AF_PLANES_LEAST) ||
         (both && threads > AF_PLANES_THREADS)))
        return KIND_F32;
#endif
    (void)threads;
    return k;
}

void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work)
{
    const uint64_t threads = (uint64_t)af_pool_threads(pool);
    task t = {.g = g, .a = work};
    t.strips = t.a + A_BYTES;
    t.hands = t.strips + threads * B_BYTES;
    t.scratch = (float *)(t.hands + threads * hand_bytes());
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K <= 0) { /* then there are no terms either */
        store_nothing(g);
        return;
    }
    if (g->kept) { /* this product writes over it, unless it finds what it needs */
        t.kept = *g->kept;
        *g->kept = (af_kept){0};
    }
    if (AF_ISA_NAME(af_thin_serves)(g)) {
        run_thin(g, pool, work);
        return;
    }
    t.kind = kind_of(g, (int)threads);
    run_blocks(&t, pool);
}
