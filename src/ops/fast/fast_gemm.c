/* fast_gemm.c - matrix products: panels are packed on the way (fast_pack.c), one register tile does
 * the arithmetic (fast_tile.c), the sums leave through one store (fast_store.c).
 *
 * K (of all terms, one after another) is walked in steps, M in blocks. The threads pack a block of
 * A together, so that it fills the second-level cache; then each takes panels of columns, packs a
 * strip of them (a panel stays in the first-level cache) and multiplies it with all of A. Every
 * element of C is one sum in the order of k, with the same tile code for edges (panels are padded
 * with zeros): results do not depend on the number of threads. */
#include "ops/fast/isa.h"

enum { A_BYTES = AF_GEMM_A_BYTES, B_BYTES = AF_GEMM_B_BYTES, MS = AF_GEMM_MS, NS = AF_GEMM_NS };

/* k's of one term that lie at `at` in the panels. */
typedef struct chunk {
    const af_operand *a, *b;
    int64_t k, kc, at;
    bool rest; /* what rounding B to bf16 lost: the second half of a split term */
} chunk;

typedef struct task {
    const af_gemm *g;
    uint8_t *a, *shares;
    float *scratch; /* [tiles of MS x NS]: unfinished sums of a bf16 C */
    bool bf16;
    bool staged;              /* the sums wait in the scratch */
    bool first, last;         /* this step, of this block of C */
    int64_t m, rows, n, cols; /* the block of C */
    chunk chunk[AF_GEMM_CHUNKS];
    int chunks;
    int64_t depth;        /* k's of the step, padded */
    int64_t panels, wide; /* panels of columns; how many of them have the full width */
    int64_t pieces;       /* of the block's rows, when there are fewer panels than threads */
} task;

static int tile_rows(const task *t) { return t->bf16 ? BM : MR; }
static int tile_cols(const task *t) { return t->bf16 ? BN : NR; }

static uint64_t share_bytes(void) { return B_BYTES + AF_PACK_BUF * sizeof(float); }

uint64_t AF_ISA_NAME(af_gemm_work)(int threads)
{
    const uint64_t all = A_BYTES + (uint64_t)MS * NS * sizeof(float);
    return AF_MAX(all + (uint64_t)threads * share_bytes(), AF_ISA_NAME(af_thin_work)(threads));
}

static float *pack_buffer(const task *t, int share)
{
    return (float *)(t->shares + (uint64_t)share * share_bytes() + B_BYTES);
}

static void pack_a(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    const int64_t tm = tile_rows(t), end = AF_MIN(to * tm, t->rows);
    float *buf = pack_buffer(t, share);
    for (int64_t m = from * tm; m < end; m += MS) {
        const int64_t rows = AF_MIN(end - m, (int64_t)MS);
        for (int i = 0; i < t->chunks; i++) {
            const chunk *c = &t->chunk[i];
            const af_panels p = {t->a + m * t->depth * (t->bf16 ? 2 : 4), (int)tm, BGA, t->depth,
                                 c->at};
            if (t->bf16)
                AF_ISA_NAME(af_pack_bf16)
            (&p, c->a, !c->a->trans, t->m + m, rows, c->k, c->kc, buf);
            else AF_ISA_NAME(af_pack_f32)(&p, c->a, !c->a->trans, t->m + m, rows, c->k, c->kc, buf);
        }
    }
}

/* Columns [n, n+cols) of the block as panels. */
static void pack_b(const task *t, void *strip, int64_t n, int64_t cols, int width, float *buf)
{
    for (int i = 0; i < t->chunks; i++) {
        const chunk *c = &t->chunk[i];
        const af_panels p = {strip, width, BGB, t->depth, c->at};
        af_operand b = *c->b;
        b.rest = c->rest;
        if (t->bf16)
            AF_ISA_NAME(af_pack_bf16)(&p, &b, b.trans, t->n + n, cols, c->k, c->kc, buf);
        else
            AF_ISA_NAME(af_pack_f32)(&p, &b, b.trans, t->n + n, cols, c->k, c->kc, buf);
    }
}

/* One tile at row i, column j of the block, from packed panels to where its sums go. */
static void one_tile(const task *t, af_tile *tile, const void *a, const void *b, int64_t i,
                     int64_t j, int width)
{
    const af_gemm *g = t->g;
    const int64_t tm = tile_rows(t), r = AF_MIN(tm, t->rows - i),
                  c = AF_MIN((int64_t)width, t->cols - j), m = t->m + i, n = t->n + j;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, plain = g->alpha == 1.0f && r == tm &&
                                                         c == width &&
                                                         !(g->bias && (!f32 || t->first));
    float sums[BM * BN > MR * NR ? BM * BN : MR * NR] __attribute__((aligned(64)));
    float *s = t->staged ? t->scratch + i * NS + j * tm : sums; /* whole tiles, one by one */
    const af_tile_way way = t->staged && !t->first ? AF_TILE_CONTINUE : AF_TILE_SET;
    if (plain && f32) {
        const af_tile_way onto = g->add ? AF_TILE_ADD : t->first ? AF_TILE_SET : AF_TILE_CONTINUE;
        tile(t->depth, a, b, (float *)g->c + m * g->ldc + n, g->ldc, onto, NULL);
    } else if (plain && !g->add && t->last && AF_ISA_NAME(af_tile_rounds)(t->bf16, width)) {
        const af_tile_half half = {(uint16_t *)g->c + m * g->ldc + n, g->ldc};
        tile(t->depth, a, b, s, width, way, &half);
    } else {
        tile(t->depth, a, b, s, width, way, NULL);
        if (!t->staged || t->last)
            AF_ISA_NAME(af_gemm_store)(g, s, width, m, r, n, c, t->staged || t->first);
    }
}

static int panel_width(const task *t, int64_t p) { return p < t->wide ? tile_cols(t) : AF_NARROW; }

static int64_t panel_start(const task *t, int64_t p)
{
    return AF_MIN(p, t->wide) * tile_cols(t) + AF_MAX(p - t->wide, INT64_C(0)) * AF_NARROW;
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

/* The memory of B that the strip after this one will be packed from, a little with every tile: it
 * comes from far away and is read once. Plain types only. */
typedef struct ahead {
    const uint8_t *at;
    int64_t rows, bytes, step; /* stored rows, bytes of each to fetch, bytes from row to row */
    int64_t row, column;
    int64_t lines; /* a tile */
} ahead;

enum { LINE = 64 };

static ahead look_ahead(const task *t, int64_t n, int64_t cols, int64_t tiles)
{
    const chunk *c = &t->chunk[0];
    const af_operand *b = c->b;
    const int64_t size = af_dtype_get(b->dtype)->bytes, line = t->n + n;
    if (b->weight || cols <= 0)
        return (ahead){0};
    ahead h = {.rows = b->trans ? cols : c->kc, .bytes = (b->trans ? c->kc : cols) * size};
    h.step = b->ld * size;
    h.at = (const uint8_t *)b->data + (b->trans ? line : c->k) * h.step +
           (b->trans ? c->k : line) * size;
    h.lines = (h.rows * ((h.bytes + LINE - 1) / LINE) + tiles - 1) / tiles;
    return h;
}

static void fetch(ahead *h)
{
    for (int64_t i = 0; i < h->lines && h->row < h->rows; i++) {
        __builtin_prefetch(h->at + h->row * h->step + h->column, 0, 2);
        h->column += LINE;
        if (h->column >= h->bytes) {
            h->column = 0;
            h->row++;
        }
    }
}

/* Panels [p, end) of one piece of the rows. */
static void columns(const task *t, int64_t p, int64_t end, int64_t piece, int share)
{
    const int64_t size = t->bf16 ? 2 : 4, tm = tile_rows(t), tiles = (t->rows + tm - 1) / tm;
    const int64_t from = tiles * piece / t->pieces * tm,
                  to = AF_MIN(tiles * (piece + 1) / t->pieces * tm, t->rows);
    const int64_t most = any_coarse(t->g) ? AF_GEMM_WIDE : AF_GEMM_STRIP;
    uint8_t *strip = t->shares + (uint64_t)share * share_bytes();
    while (p < end) {
        const int width = panel_width(t, p);
        int64_t n = AF_MIN(most / width, end - p); /* panels of the strip */
        if (p < t->wide)
            n = AF_MIN(n, t->wide - p);
        const int64_t j = panel_start(t, p), bytes = t->depth * width * size, next = j + n * width;
        af_tile *tile = AF_ISA_NAME(af_tile_for)(t->bf16, width);
        ahead h = look_ahead(t, next, AF_MIN(most, panel_start(t, end) - next),
                             n * ((to - from + tm - 1) / tm));
        pack_b(t, strip, j, AF_MIN(n * width, t->cols - j), width, pack_buffer(t, share));
        for (int64_t q = 0; q < n; q++)
            for (int64_t i = from; i < to; i += tm) {
                fetch(&h);
                one_tile(t, tile, t->a + i * t->depth * size, strip + q * bytes, i, j + q * width,
                         width);
            }
        p += n;
    }
}

static void multiply(void *arg, int64_t from, int64_t to, int share)
{
    const task *t = arg;
    if (t->bf16)
        AF_ISA_NAME(af_tile_begin)();
    while (from < to) {
        const int64_t piece = from / t->panels, p = from % t->panels,
                      end = AF_MIN(t->panels, p + to - from);
        columns(t, p, end, piece, share);
        from += end - p;
    }
    if (t->bf16)
        AF_ISA_NAME(af_tile_end)();
}

/* Cuts the block's columns into panels: the last sixteen or fewer go to narrow ones when that
 * leaves less of a panel empty. */
static void cut_columns(task *t, int threads)
{
    const int64_t W = tile_cols(t), left = t->cols % W, tm = tile_rows(t);
    int64_t narrow = 0;
    t->wide = t->cols / W;
    if (AF_NARROW && left > 0 && left <= 2 * AF_NARROW - W && t->wide > 0) {
        t->wide--;
        narrow = 2;
        // cppcheck-suppress incorrectLogicOperator ; AF_NARROW is 0 on some machines only
    } else if (AF_NARROW && left > 0 && left <= AF_NARROW) {
        narrow = 1;
    } else if (left > 0) {
        t->wide++;
    }
    t->panels = t->wide + narrow;
    const int64_t pieces = (4 * threads + t->panels - 1) / t->panels;
    t->pieces = threads == 1 ? 1 : AF_MAX(AF_MIN(pieces, (t->rows + tm - 1) / tm), INT64_C(1));
}

/* `most` or less, so that the parts of `size` are alike and multiples of `unit`. */
static int64_t even_part(int64_t size, int64_t most, int64_t unit)
{
    const int64_t parts = (size + most - 1) / most, part = (size + parts - 1) / parts;
    return (part + unit - 1) / unit * unit;
}

static af_gemm_term term_of(const af_gemm *g, int i)
{
    return i == 0 ? (af_gemm_term){g->K, g->a, g->b, g->exact} : g->term[i - 1];
}

/* A f32 B beside a bf16 A that must not be rounded is taken as two bf16 numbers. */
static bool is_split(const task *t, const af_gemm_term *x)
{
    return t->bf16 && x->exact && (x->b.weight || x->b.dtype != AF_DTYPE_BF16);
}

static int64_t pad_k(const task *t, int64_t k)
{
    const int64_t unit = t->bf16 ? BK : KR;
    return (k + unit - 1) / unit * unit;
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

/* Where the walk along K stands: in which term, in which half of a split one, at which k. */
typedef struct place {
    int term;
    bool rest;
    int64_t k;
} place;

/* Fills the task's chunks with up to `step` k's; true when they are the last. */
static bool take_step(task *t, place *at, int64_t step)
{
    t->depth = 0;
    for (t->chunks = 0; at->term <= t->g->terms && t->depth < step; t->chunks++) {
        assert(t->chunks < AF_GEMM_CHUNKS);
        const af_gemm_term x = term_of(t->g, at->term);
        const af_operand *a = at->term ? &t->g->term[at->term - 1].a : &t->g->a,
                         *b = at->term ? &t->g->term[at->term - 1].b : &t->g->b;
        const int64_t kc = AF_MIN(step - t->depth, x.K - at->k);
        t->chunk[t->chunks] = (chunk){a, b, at->k, kc, t->depth, at->rest};
        t->depth += pad_k(t, kc);
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
    cut_columns(t, af_pool_threads(pool));
    t->last = false;
    for (t->first = true; !t->last; t->first = false) {
        t->last = take_step(t, &at, step);
        af_pool_run(pool, (t->rows + tm - 1) / tm, pack_a, t);
        af_pool_run(pool, t->panels * t->pieces, multiply, t);
    }
}

/* No products: alpha * 0 (+ C) + bias. */
static void store_nothing(const af_gemm *g)
{
    static const float zeros[NS];
    for (int64_t n = 0; n < g->N; n += NS)
        AF_ISA_NAME(af_gemm_store)(g, zeros, 0, 0, g->M, n, AF_MIN((int64_t)NS, g->N - n), true);
}

static void run_blocks(task *t, af_pool *pool)
{
    const af_gemm *g = t->g;
    const int64_t unit = t->bf16 ? BK : KR, size = t->bf16 ? 2 : 4, tm = tile_rows(t);
    const int64_t most = any_coarse(g) ? AF_GEMM_KC_WIDE : t->bf16 ? AF_GEMM_KC_BF16 : AF_GEMM_KC;
    const int64_t total = all_k(t), step = even_part(total, most, unit);
    t->staged = g->c_dtype != AF_DTYPE_F32 && total > step;
    int64_t rows = A_BYTES / (step * size) / tm * tm;
    if (t->staged)
        rows = AF_MIN(rows, (int64_t)MS);
    rows = even_part(g->M, rows, tm);
    const int64_t cols = t->staged ? NS : g->N;
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

void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work)
{
    task t = {.g = g, .a = work};
    t.scratch = (float *)(t.a + A_BYTES);
    t.shares = (uint8_t *)(t.scratch + (int64_t)MS * NS);
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K <= 0) { /* then there are no terms either */
        store_nothing(g);
        return;
    }
    if (AF_ISA_NAME(af_thin_serves)(g)) {
        run_thin(g, pool, work);
        return;
    }
#if defined(AF_BF16_TILE)
    t.bf16 = g->a.dtype == AF_DTYPE_BF16 && !g->a.weight;
#endif
    run_blocks(&t, pool);
}
