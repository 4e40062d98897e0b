/* amx_attention_bwd.c - the gradient of amx_attention.c.
 *
 * Scores are computed transposed (keys by queries): then probabilities and their gradients come as
 * rows of the operands of dv and dk, and, two rows interleaved, as columns of that of dq, which is
 * computed transposed too. A block is some positions of a few heads (their columns next to one
 * another, so that dk and dv are summed over all of them at once) by some keys; keys and values are
 * packed before, once for a head, whose queries may be done in parts. Probabilities are recomputed
 * from the stored log sums. */
#include "cpu/rows/amx/amx_attention.h"

#include "cpu/gemm/amx/amx_split.h"

enum {
    HEADS = 4,
    TILE = AF_ATTEND_TILE,
    SKEW = 320, /* bytes: what lies 4 KiB after what was stored would wait for it */
};

/* Of a block: queries of each head, and keys. Those of f32 have three planes in the caches. */
static int64_t queries_of(int planes) { return planes == 1 ? 64 : 32; }
static int64_t keys_at_once(int planes) { return planes == 1 ? 128 : 64; }
/* Panels of 32 columns: one head's queries each. */
static int64_t panels_of(int planes) { return HEADS * queries_of(planes) / 32; }

static const float log2_e = 1.44269504088896341f;

/* Of a head, tiles [len/32][E/32]: k and v as rows, and k turned. */
typedef struct packed_keys {
    uint16_t *k, *v, *kt;
} packed_keys;

typedef struct amx_bwd_buffers {
    uint16_t *ql, *gl;      /* of a panel's q and dy, tiles [panels][E/32]: columns */
    uint16_t *qp, *gp;      /* and pairs of queries */
    uint16_t *p, *ds, *dsp; /* tiles [keys/32][panels]: rows twice, pairs of keys */
    float *s;               /* of two cells: scores and dy v, [32][32] each */
    float *sums;            /* two of [32][32] */
    float *dq;              /* [panels][E][32], transposed */
    float *lse, *delta;     /* [panels][32] */
    int32_t *from, *to;     /* the same: keys that the query sees */
} amx_bwd_buffers;

static packed_keys keys_of(const void *at, int64_t len, int64_t EP, int planes)
{
    uint16_t *k = (uint16_t *)at;
    const int64_t each = af_attend_pad(len) * EP * planes;
    return (packed_keys){k, k + each, k + 2 * each};
}

/* The bytes it takes; EP: E padded. */
static uint64_t lay_out(amx_bwd_buffers *r, uint8_t *work, int64_t EP, int planes)
{
    const int64_t rows = panels_of(planes) * 32, panels = rows * EP * 2 * planes,
                  cells = keys_at_once(planes) * rows * 2 * planes;
    uint64_t at = 0;
    const struct {
        void *field;
        int64_t bytes;
    } parts[] = {
        {&r->ql, panels},         {&r->gl, panels},
        {&r->qp, panels},         {&r->gp, panels},
        {&r->p, cells},           {&r->ds, cells},
        {&r->dsp, cells},         {&r->s, 2 * 2 * TILE * 4},
        {&r->sums, 2 * TILE * 4}, {&r->dq, rows * EP * 4},
        {&r->lse, rows * 4},      {&r->delta, rows * 4},
        {&r->from, rows * 4},     {&r->to, rows * 4},
    };
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        if (work)
            memcpy(parts[i].field, &(void *){work + at}, sizeof(void *));
        at += AF_ALIGN_UP((uint64_t)parts[i].bytes, UINT64_C(64)) + SKEW;
    }
    return at;
}

uint64_t af_attend_bwd_keys(int64_t len, int64_t E, int planes)
{
    return (uint64_t)(3 * af_attend_pad(len) * af_attend_pad(E) * planes) * sizeof(uint16_t);
}

void af_attend_bwd_pack(const af_attend *a, int64_t from, int64_t to, void *at)
{
    const int64_t EP = af_attend_pad(a->E), step = EP * a->planes;
    const packed_keys x = keys_of(at, a->len, EP, a->planes);
    for (int64_t i = from; i < to; i += 32) {
        const void *k[32], *v[32];
        af_attend_rows(a, k, a->k, a->ld, i, a->len);
        af_attend_rows(a, v, a->v, a->ld, i, a->len);
        af_attend_pack_rows(a, x.k + i * step, k);
        af_attend_pack_rows(a, x.v + i * step, v);
        af_attend_pack_turned(a, x.kt + i * step, k);
    }
}

uint64_t af_attend_bwd_work(int64_t E, int planes)
{
    amx_bwd_buffers r;
    return lay_out(&r, NULL, af_attend_pad(E), planes);
}

/* One block in progress. */
typedef struct bwd_block {
    const af_attend *a;
    amx_bwd_buffers r;
    packed_keys x;
    int64_t EP, panels, most; /* most: room for so many panels */
    int64_t row, rows;        /* its queries */
    int64_t head, heads;
    int64_t done; /* keys before this have sums */
    af_amx_turns turns;
    bool two; /* this turn, a block of keys */
    /* Of planes: these sums are added to c (or there are none: NULL) during the next product. */
    float *c, *sums;
    int64_t ldc;
} bwd_block;

/* Both forms of 32 rows of one head. */
static void pack_rows(const bwd_block *b, const void *x, int64_t ld, int64_t row, uint16_t *columns,
                      uint16_t *pairs)
{
    const void *h[32];
    af_attend_rows(b->a, h, x, ld, row, b->a->len);
    af_attend_pack_columns(b->a, columns, h);
    af_attend_pack_pairs(b->a, pairs, h);
}

/* Sixteen values of a row from `at` on, zeros after its end. */
static __m512 values(const af_attend *a, const void *row, int64_t at)
{
    const __mmask16 mask = (__mmask16)(((uint32_t)1 << AF_MIN(a->E - at, INT64_C(16))) - 1);
    if (a->planes > 1)
        return _mm512_maskz_loadu_ps(mask, (const float *)row + at);
    const __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)row + at);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* Panel c: 32 queries of one head from `row`. */
static void pack_panel(const bwd_block *b, int64_t c, int64_t head, int64_t row)
{
    const af_attend *a = b->a;
    const amx_bwd_buffers *r = &b->r;
    const int64_t at = c * 32 * b->EP * a->planes;
    pack_rows(b, af_attend_at(a, a->q, head * a->E), a->ld, row, r->ql + at, r->qp + at);
    pack_rows(b, af_attend_at(a, a->dy, head * a->E), a->ldy, row, r->gl + at, r->gp + at);
    for (int64_t i = 0; i < 32; i++) {
        const bool there = row + i < b->row + b->rows;
        const int64_t q = there ? row + i : b->row;
        const int64_t from_at = q * a->ldy + head * a->E;
        const void *y = af_attend_at(a, a->y, from_at), *g = af_attend_at(a, a->dy, from_at);
        __m512 sum = _mm512_setzero_ps();
        int64_t from = 0, to = 0;
        for (int64_t e = 0; e < a->E; e += 16)
            sum = _mm512_fmadd_ps(values(a, y, e), values(a, g, e), sum);
        if (there)
            af_attend_visible(a, q, &from, &to);
        r->delta[c * 32 + i] = _mm512_reduce_add_ps(sum);
        r->lse[c * 32 + i] = a->lse[q * a->ldl + head] * log2_e;
        r->from[c * 32 + i] = (int32_t)from;
        r->to[c * 32 + i] = (int32_t)to;
    }
}

static void begin_block(bwd_block *b)
{
    const int64_t each = af_attend_pad(b->rows) / 32;
    b->panels = each * b->heads;
    for (int64_t c = 0; c < b->panels; c++)
        pack_panel(b, c, b->head + c / each, b->row + c % each * 32);
    memset(b->r.dq, 0, (size_t)(b->panels * 32 * b->EP) * sizeof(float));
}

/* What one row of a cell needs: sixteen queries of a panel, twice. */
typedef struct lanes {
    __m512 lse[2], delta[2], scale;
    __m512i from[2], to[2];
} lanes;

/* Probabilities of 32 queries and their gradients. */
typedef struct cell_row {
    __m512 p[2], ds[2];
} cell_row;

/* Row `key` of a cell. */
AF_INLINE cell_row row_of(const lanes *l, const float *s, const float *dp, int64_t key,
                          const bool whole, const int planes)
{
    cell_row r;
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        const __m512 e = _mm512_fmsub_ps(_mm512_loadu_ps(s + 16 * v), l->scale, l->lse[v]);
        r.p[v] = af_amx_exp2(planes == 1 ? e : _mm512_min_ps(_mm512_setzero_ps(), e));
        if (!whole) {
            const __m512i k = _mm512_set1_epi32((int32_t)key);
            const __mmask16 seen =
                _mm512_cmple_epi32_mask(l->from[v], k) & _mm512_cmplt_epi32_mask(k, l->to[v]);
            r.p[v] = _mm512_maskz_mov_ps(seen, r.p[v]);
        }
        r.ds[v] = _mm512_mul_ps(r.p[v], _mm512_sub_ps(_mm512_loadu_ps(dp + 16 * v), l->delta[v]));
    }
    return r;
}

/* 32 keys by one panel of queries. */
typedef struct cell {
    int64_t key, at, panel, tile; /* at: row of the block's scores */
    bool seen, whole;
    float *s, *dp; /* [32][32] */
} cell;

/* Rounded, where rows are paired with the next. */
AF_INLINE void cell_rows_bf16(const amx_bwd_buffers *r, const lanes *at, const cell *x,
                              const bool whole)
{
    static const uint16_t even[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_loadu_si512(even),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const lanes l = *at; /* in registers */
    const int64_t to = x->tile * TILE;
    uint16_t *p = r->p + to, *ds = r->ds + to, *pairs = r->dsp + to;
    const float *s = x->s, *dp = x->dp;
    for (int64_t i = 0; i < 32; i += 2, p += 64, ds += 64, pairs += 32) {
        const cell_row a = row_of(&l, s + i * 32, dp + i * 32, x->key + i, whole, 1),
                       b = row_of(&l, s + i * 32 + 32, dp + i * 32 + 32, x->key + i + 1, whole, 1);
        const __m512i d0 = af_amx_round(a.ds[0], a.ds[1]), d1 = af_amx_round(b.ds[0], b.ds[1]);
        _mm512_storeu_si512(p, af_amx_round(a.p[0], a.p[1]));
        _mm512_storeu_si512(p + 32, af_amx_round(b.p[0], b.p[1]));
        _mm512_storeu_si512(ds, d0);
        _mm512_storeu_si512(ds + 32, d1);
        _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(d0, low, d1));
        _mm512_storeu_si512(pairs + 512, _mm512_permutex2var_epi16(d0, high, d1));
    }
}

AF_INLINE af_planes split(__m512 x) { return af_planes_of(_mm512_castps_si512(x)); }

/* In planes, where rows are paired with the sixteenth after them: rows [from, to) of sixteen. */
AF_INLINE void cell_rows_f32(const amx_bwd_buffers *r, const lanes *l, const cell *x, int64_t from,
                             int64_t to, const bool whole)
{
    const int64_t at = x->tile * 3 * TILE + from * 32;
    uint16_t *p = r->p + at, *ds = r->ds + at, *pairs = r->dsp + at;
    const float *s = x->s + from * 32, *dp = x->dp + from * 32;
    for (int64_t i = from; i < to; i++, p += 32, ds += 32, pairs += 32, s += 32, dp += 32) {
        const cell_row a = row_of(l, s, dp, x->key + i, whole, 3),
                       b = row_of(l, s + 512, dp + 512, x->key + i + 16, whole, 3);
        af_planes_row(p, _mm512_castps_si512(a.p[0]), _mm512_castps_si512(a.p[1]));
        af_planes_row(p + 512, _mm512_castps_si512(b.p[0]), _mm512_castps_si512(b.p[1]));
        const af_planes a0 = split(a.ds[0]), a1 = split(a.ds[1]), b0 = split(b.ds[0]),
                        b1 = split(b.ds[1]);
        af_planes_put(ds, &a0, &a1);
        af_planes_put(ds + 512, &b0, &b1);
        af_planes_put(pairs, &a0, &b0);
        af_planes_put(pairs + 512, &a1, &b1);
    }
}

static void no_cell(const bwd_block *b, const cell *x)
{
    const int64_t tile = TILE * b->a->planes, to = x->tile * tile;
    memset(b->r.p + to, 0, (size_t)tile * 2);
    memset(b->r.ds + to, 0, (size_t)tile * 2);
    memset(b->r.dsp + to, 0, (size_t)tile * 2);
}

/* Cell i of the block of keys from `key`: its scores and dy v, where queries see any of it. */
static cell begin_cell(const bwd_block *b, int64_t key, int64_t i, af_attend_work *w)
{
    const amx_bwd_buffers *r = &b->r;
    const int64_t EP = b->EP, each = b->panels / b->heads, panel = i % b->panels,
                  first = b->row + panel % each * 32,
                  last = AF_MIN(first + 32, b->row + b->rows) - 1, step = EP * b->a->planes,
                  tile = TILE * 2 * b->a->planes;
    cell x = {.at = i / b->panels * 32, .panel = panel, .s = r->s + i % 2 * 2 * TILE};
    int64_t from, to, from_last, to_first;
    x.tile = x.at / 32 * b->most + panel;
    x.key = key + x.at;
    x.dp = x.s + TILE;
    af_attend_visible(b->a, first, &from, &to_first);
    af_attend_visible(b->a, last, &from_last, &to);
    x.seen = x.key < to && x.key + 32 > from;
    x.whole = last == first + 31 && from_last <= x.key && x.key + 32 <= to_first;
    if (!x.seen)
        return x;
    const af_attend_product s = {b->x.k + x.key * step, r->ql + panel * 32 * step, tile, tile,
                                 EP / 32},
                            dp = {b->x.v + x.key * step, r->gl + panel * 32 * step, tile, tile,
                                  EP / 32};
    if (b->a->planes == 1) {
        af_attend_bf16(x.s, 32, &s, b->two, false);
        af_attend_bf16(x.dp, 32, &dp, b->two, false);
    } else {
        af_attend_planes(x.s, 32, &s, w);
        af_attend_planes(x.dp, 32, &dp, w);
    }
    return x;
}

/* The rows of a cell that has begun. */
typedef struct cell_work {
    const bwd_block *b;
    const cell *x;
    lanes l;
} cell_work;

static void some_rows(void *arg, int64_t from, int64_t to)
{
    const cell_work *w = arg;
    if (w->x->whole)
        cell_rows_f32(&w->b->r, &w->l, w->x, from, to, true);
    else
        cell_rows_f32(&w->b->r, &w->l, w->x, from, to, false);
}

/* What is left to do between the tiles of the next cell. */
static af_attend_work end_cell(cell_work *w, const bwd_block *b, const cell *x)
{
    const amx_bwd_buffers *r = &b->r;
    *w = (cell_work){.b = b, .x = x, .l.scale = _mm512_set1_ps(b->a->scale * log2_e)};
    if (!x->seen) {
        no_cell(b, x);
        return (af_attend_work){0};
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        const int64_t at = x->panel * 32 + 16 * v;
        w->l.lse[v] = _mm512_loadu_ps(r->lse + at);
        w->l.delta[v] = _mm512_loadu_ps(r->delta + at);
        w->l.from[v] = _mm512_loadu_si512(r->from + at);
        w->l.to[v] = _mm512_loadu_si512(r->to + at);
    }
    if (b->a->planes > 1)
        return af_attend_work_of(16, 2 * b->EP / 32, some_rows, w);
    if (x->whole)
        cell_rows_bf16(r, &w->l, x, true);
    else
        cell_rows_bf16(r, &w->l, x, false);
    return (af_attend_work){0};
}

static void add_rows(void *arg, int64_t from, int64_t to)
{
    const bwd_block *b = arg;
    for (int64_t i = from; i < to; i++)
        af_amx_add_row(b->sums + i * 32, b->c + i * b->ldc);
}

static void end_sums(bwd_block *b)
{
    if (b->c)
        add_rows(b, 0, 32);
    b->c = NULL;
}

/* c [32][32] = or += the product, in planes at end_sums at the latest: small products do not vanish
 * next to large sums when these are added afterwards. */
static void add_product(bwd_block *b, float *c, int64_t ldc, const af_attend_product *p, bool add)
{
    if (b->a->planes == 1) {
        af_attend_bf16(c, ldc, p, b->two, add);
        return;
    }
    float *sums = b->sums == b->r.sums ? b->r.sums + TILE : b->r.sums;
    af_attend_work w = b->c ? af_attend_work_of(32, p->steps, add_rows, b) : (af_attend_work){0};
    af_attend_planes(add ? sums : c, add ? 32 : ldc, p, &w);
    af_attend_finish(&w);
    b->c = add ? c : NULL;
    b->sums = sums;
    b->ldc = ldc;
}

/* What keys [key, key+n) add to dv or dk: rows of cells times pairs of queries. */
static void add_keys(bwd_block *b, int64_t key, int64_t n, const uint16_t *rows,
                     const uint16_t *pairs, float *sums, bool add)
{
    const int64_t EP = b->EP, tile = b->a->planes * TILE, across = EP / 32 * tile;
    for (int64_t e = 0; e < EP; e += 32)
        for (int64_t i = 0; i < n; i += 32) {
            const int64_t at = e / 32 % 2 ? n - 32 - i : i; /* what was read last comes first */
            const af_attend_product p = {rows + at / 32 * b->most * tile, pairs + e / 32 * tile,
                                         2 * tile, 2 * across, b->panels};
            add_product(b, sums + (key + at - b->a->key) * EP + e, EP, &p, add);
        }
}

/* Keys [key, key+n) by all panels: scores (the tiles of a cell while the rows of the one before are
 * at work, which then does not wait for stores; those of bf16 are over before the rows begin), and
 * what they add to dv, dk and dq. */
static void key_block(bwd_block *b, int64_t key, int64_t n, bool add)
{
    const af_attend *a = b->a;
    const amx_bwd_buffers *r = &b->r;
    const int64_t EP = b->EP, cells = n / 32 * b->panels, tile = a->planes * TILE,
                  across = EP / 32 * tile; /* values */
    cell x[2] = {begin_cell(b, key, 0, NULL)};
    for (int64_t i = 1; i <= cells; i++) {
        cell_work rows;
        const bool early = a->planes == 1;
        if (early && i < cells)
            x[i % 2] = begin_cell(b, key, i, NULL);
        af_attend_work w = end_cell(&rows, b, &x[(i - 1) % 2]);
        if (!early && i < cells)
            x[i % 2] = begin_cell(b, key, i, &w);
        af_attend_finish(&w);
    }
    add_keys(b, key, n, r->p, r->gp, a->dv_sums, add);
    add_keys(b, key, n, r->ds, r->qp, a->dk_sums, add);
    for (int64_t c = 0; c < b->panels; c++)
        for (int64_t e = 0; e < EP; e += 32)
            add_product(b, r->dq + (c * EP + e) * 32, 32,
                        &(af_attend_product){b->x.kt + key / 32 * across + e / 32 * tile,
                                             r->dsp + c * tile, 2 * across, 2 * b->most * tile,
                                             n / 32},
                        true);
    end_sums(b);
}

/* Sixteen queries of a panel's dq, from query i: columns of [E][32]. */
static void put_queries(const bwd_block *b, int64_t c, int64_t i)
{
    const af_attend *a = b->a;
    const int64_t each = b->panels / b->heads, row = b->row + c % each * 32 + i,
                  n = AF_MIN(INT64_C(16), b->row + b->rows - row);
    const __m512 scale = _mm512_set1_ps(a->scale);
    for (int64_t e = 0; e < a->E; e += 32) {
        __m512i x[32];
        for (int k = 0; k < 32; k++)
            x[k] = _mm512_loadu_si512(b->r.dq + (c * b->EP + e + k) * 32 + i);
        af_x86_columns(x);
        af_x86_columns(x + 16);
        for (int64_t k = 0; k < n; k++) {
            const int64_t to = (row + k) * a->ld + (b->head + c / each) * a->E + e;
            af_attend_put(a, (void *)af_attend_at(a, a->dq, to),
                          _mm512_mul_ps(_mm512_castsi512_ps(x[k]), scale),
                          _mm512_mul_ps(_mm512_castsi512_ps(x[16 + k]), scale), a->E - e);
        }
    }
}

/* Whether sums of keys up to `to` are added to what is there: the first block's are not, and what
 * later ones see beyond it begins with zeros. */
static bool begin_sums(bwd_block *b, int64_t to)
{
    const af_attend *a = b->a;
    const bool first = b->done == a->key;
    if (!first && to > b->done) {
        const int64_t at = (b->done - a->key) * b->EP;
        const size_t bytes = (size_t)((to - b->done) * b->EP) * sizeof(float);
        memset(a->dk_sums + at, 0, bytes);
        memset(a->dv_sums + at, 0, bytes);
    }
    b->done = AF_MAX(b->done, to);
    return !first;
}

static void run_block(bwd_block *b)
{
    int64_t from, to, unused;
    begin_block(b);
    af_attend_visible(b->a, b->row, &from, &unused);
    af_attend_visible(b->a, b->row + b->rows - 1, &unused, &to);
    const bool add = begin_sums(b, af_attend_pad(to));
    const int64_t keys = keys_at_once(b->a->planes);
    for (int64_t key = from / 32 * 32; key < to; key += keys) {
        const int64_t n = af_attend_pad(AF_MIN(keys, to - key));
        uint64_t start;
        b->two = af_amx_turn(&b->turns, &start);
        key_block(b, key, n, add);
        af_amx_turn_end(&b->turns, start, n * b->panels);
    }
    for (int64_t c = 0; c < b->panels; c++)
        for (int64_t i = 0; i < 32; i += 16)
            put_queries(b, c, i);
}

void af_attend_bwd(const af_attend *a, void *work)
{
    const int64_t queries = queries_of(a->planes);
    bwd_block b = {.a = a, .EP = af_attend_pad(a->E), .most = panels_of(a->planes), .done = a->key};
    lay_out(&b.r, work, b.EP, a->planes);
    b.x = keys_of(a->keys, a->len, b.EP, a->planes);
    af_amx_begin();
    for (b.head = 0; b.head < a->heads; b.head += HEADS) {
        b.heads = AF_MIN((int64_t)HEADS, a->heads - b.head);
        for (b.row = a->from; b.row < a->to; b.row += queries) {
            b.rows = AF_MIN(queries, a->to - b.row);
            run_block(&b);
        }
    }
    af_amx_end();
}
