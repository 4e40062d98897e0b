/* fast_gemm.c - matrix products: panels are packed on the way (fast_pack.c), one register tile does
 * the arithmetic (fast_tile.c), the sums leave through one store (fast_store.c).
 *
 * K is walked in steps, M in blocks. The threads pack a block of A together, so that it fills the
 * second-level cache; then each takes panels of columns, packs a strip of them (a panel stays in
 * the first-level cache) and multiplies it with all of A. Every element of C is one sum in the
 * order of k, with the same tile code for edges (panels are padded with zeros): results do not
 * depend on the number of threads. */
#include "ops/fast/isa.h"

enum { A_BYTES = AF_GEMM_A_BYTES, B_BYTES = AF_GEMM_B_BYTES, MS = AF_GEMM_MS, NS = AF_GEMM_NS };

typedef struct task {
    const af_gemm *g;
    uint8_t *a, *shares;
    float *scratch; /* [MS][NS]: unfinished sums of a bf16 C */
    bool bf16;
    bool split;               /* bf16 A, f32 B that must not be rounded: B as two bf16 numbers */
    bool staged;              /* the sums wait in the scratch */
    bool rest, first, last;   /* this step: the second half of a split; of this block of C */
    int64_t m, rows, n, cols; /* the block of C */
    int64_t k, kc, padded;    /* the step */
    int64_t panels, wide;     /* panels of columns; how many of them have the full width */
    int64_t pieces;           /* of the block's rows, when there are fewer panels than threads */
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
    const af_operand *a = &t->g->a;
    const int64_t tm = tile_rows(t), end = AF_MIN(to * tm, t->rows);
    float *buf = pack_buffer(t, share);
    for (int64_t m = from * tm; m < end; m += MS) {
        const int64_t rows = AF_MIN(end - m, (int64_t)MS), at = m * t->padded;
        if (t->bf16)
            AF_ISA_NAME(af_pack_bf16)
        ((uint16_t *)t->a + at, a, !a->trans, t->m + m, rows, t->k, t->kc, BM, BGA, buf);
        else AF_ISA_NAME(af_pack_f32)((float *)t->a + at, a, !a->trans, t->m + m, rows, t->k, t->kc,
                                      MR, buf);
    }
}

/* Columns [n, n+cols) of the block as panels. */
static void pack_b(const task *t, void *strip, int64_t n, int64_t cols, int width, float *buf)
{
    af_operand b = t->g->b;
    b.rest = t->rest;
    if (t->bf16)
        AF_ISA_NAME(af_pack_bf16)
    (strip, &b, b.trans, t->n + n, cols, t->k, t->kc, width, BGB, buf);
    else AF_ISA_NAME(af_pack_f32)(strip, &b, b.trans, t->n + n, cols, t->k, t->kc, width, buf);
}

/* One tile at row i, column j of the block, from packed panels to where its sums go. */
static void one_tile(const task *t, af_tile *tile, const void *a, const void *b, int64_t i,
                     int64_t j, int width)
{
    const af_gemm *g = t->g;
    const int64_t r = AF_MIN((int64_t)tile_rows(t), t->rows - i),
                  c = AF_MIN((int64_t)width, t->cols - j), m = t->m + i, n = t->n + j;
    const bool f32 = g->c_dtype == AF_DTYPE_F32, plain = g->alpha == 1.0f && !g->add &&
                                                         r == tile_rows(t) && c == width &&
                                                         !(g->bias && (!f32 || t->first));
    float sums[BM * BN > MR * NR ? BM * BN : MR * NR] __attribute__((aligned(64)));
    float *s = t->staged ? t->scratch + i * NS + j : sums;
    const int64_t lds = t->staged ? NS : width;
    if (plain && f32) {
        tile(t->padded, a, b, (float *)g->c + m * g->ldc + n, g->ldc, !t->first, NULL);
    } else if (plain && t->last && AF_ISA_NAME(af_tile_rounds)(t->bf16, width)) {
        const af_tile_out out = {(uint16_t *)g->c + m * g->ldc + n, g->ldc};
        tile(t->padded, a, b, s, lds, !t->first, &out);
    } else {
        tile(t->padded, a, b, s, lds, t->staged && !t->first, NULL);
        if (!t->staged || t->last)
            AF_ISA_NAME(af_gemm_store)(g, s, lds, m, r, n, c, t->staged || t->first);
    }
}

static int panel_width(const task *t, int64_t p) { return p < t->wide ? tile_cols(t) : AF_NARROW; }

static int64_t panel_start(const task *t, int64_t p)
{
    return AF_MIN(p, t->wide) * tile_cols(t) + AF_MAX(p - t->wide, INT64_C(0)) * AF_NARROW;
}

/* Reading one value of these types decodes a block of 256: strips of them are wide. */
static bool is_coarse(const af_gemm *g)
{
    return g->b.weight && !g->b.trans && af_dtype_get(g->b.weight->dtype)->elems >= 256;
}

/* Panels [p, end) of one piece of the rows. */
static void columns(const task *t, int64_t p, int64_t end, int64_t piece, int share)
{
    const int64_t size = t->bf16 ? 2 : 4, tm = tile_rows(t), tiles = (t->rows + tm - 1) / tm;
    const int64_t from = tiles * piece / t->pieces * tm, to = tiles * (piece + 1) / t->pieces * tm;
    const int64_t most = is_coarse(t->g) ? AF_GEMM_WIDE : AF_GEMM_STRIP;
    uint8_t *strip = t->shares + (uint64_t)share * share_bytes();
    while (p < end) {
        const int width = panel_width(t, p);
        int64_t n = AF_MIN(most / width, end - p); /* panels of the strip */
        if (p < t->wide)
            n = AF_MIN(n, t->wide - p);
        const int64_t j = panel_start(t, p), bytes = t->padded * width * size;
        af_tile *tile = AF_ISA_NAME(af_tile_for)(t->bf16, width);
        pack_b(t, strip, j, AF_MIN(n * width, t->cols - j), width, pack_buffer(t, share));
        for (int64_t q = 0; q < n; q++)
            for (int64_t i = from; i < AF_MIN(to, t->rows); i += tm)
                one_tile(t, tile, t->a + i * t->padded * size, strip + q * bytes, i, j + q * width,
                         width);
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

/* All steps of one block of C. */
static void block(task *t, af_pool *pool, int64_t step)
{
    const int64_t K = t->g->K, unit = t->bf16 ? BK : KR, tm = tile_rows(t);
    cut_columns(t, af_pool_threads(pool));
    for (t->k = 0; t->k < K; t->k += step) {
        t->kc = AF_MIN(step, K - t->k);
        t->padded = (t->kc + unit - 1) / unit * unit;
        af_pool_run(pool, (t->rows + tm - 1) / tm, pack_a, t);
        for (int half = 0; half < (t->split ? 2 : 1); half++) {
            t->rest = half;
            t->first = t->k == 0 && !half;
            t->last = t->k + step >= K && half == t->split;
            af_pool_run(pool, t->panels * t->pieces, multiply, t);
        }
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
    const int64_t most = is_coarse(g) ? AF_GEMM_KC_WIDE : t->bf16 ? AF_GEMM_KC_BF16 : AF_GEMM_KC;
    const int64_t step = even_part(g->K, most, unit);
    t->staged = g->c_dtype != AF_DTYPE_F32 && (g->K > step || t->split);
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

void AF_ISA_NAME(af_gemm_run)(const af_gemm *g, af_pool *pool, void *work)
{
    task t = {.g = g, .a = work};
    t.scratch = (float *)(t.a + A_BYTES);
    t.shares = (uint8_t *)(t.scratch + (int64_t)MS * NS);
    if (g->M <= 0 || g->N <= 0)
        return;
    if (g->K <= 0) {
        store_nothing(g);
        return;
    }
    if (AF_ISA_NAME(af_thin_serves)(g)) {
        AF_ISA_NAME(af_thin_run)(g, pool, work);
        return;
    }
#if defined(AF_BF16_TILE)
    t.bf16 = g->a.dtype == AF_DTYPE_BF16 && !g->a.weight;
    t.split = t.bf16 && g->exact && (g->b.weight || g->b.dtype != AF_DTYPE_BF16);
#endif
    run_blocks(&t, pool);
}
