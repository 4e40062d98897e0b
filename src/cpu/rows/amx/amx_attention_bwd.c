/* amx_attention_bwd.c - the gradient of amx_attention.c.
 *
 * Scores are computed transposed (keys by queries): then probabilities and their gradients come as
 * rows of the operands of dv and dk, and, two rows interleaved, as columns of that of dq, which is
 * computed transposed too. A block is QUERIES positions of a few heads (their columns next to one
 * another, so that dk and dv are summed over all of them at once) by KEYS keys; keys and values are
 * packed before, once for a head, whose queries may be done in parts. Probabilities are recomputed
 * from the stored log sums. */
#include "cpu/rows/amx/amx_attention.h"

enum {
    QUERIES = 64,
    HEADS = 4,
    PANELS = HEADS * QUERIES / 32, /* of 32 columns: one head's queries each */
    KEYS = 128,
    LDM = PANELS * 32 + 32, /* columns of a row of probabilities; not a power of two */
    TILE = 1024,            /* bf16 values of two tiles next to one another */
};

static const float log2_e = 1.44269504088896341f;

/* Of a head: k and v as rows [len][E], and k as [len/32][E/32][32 of e][32 keys]. */
typedef struct packed_keys {
    uint16_t *k, *v, *kt;
} packed_keys;

typedef struct amx_bwd_buffers {
    uint16_t *ql, *gl;      /* of a panel's q and dy: columns, [PANELS][E/32][2][16 pairs][16][2] */
    uint16_t *qp, *gp;      /* and rows, the same with pairs of queries */
    uint16_t *p, *ds, *dsp; /* [KEYS][LDM] twice; [KEYS/32][PANELS][TILE], pairs of keys */
    float *s;               /* of two cells: scores and dy v, [32][32] each */
    float *dq;              /* [PANELS][E][32], transposed */
    float *lse, *delta;     /* [PANELS][32] */
    int32_t *from, *to;     /* the same: keys that the query sees */
    uint16_t *zeros;        /* a row of zeros */
} amx_bwd_buffers;

static int64_t pad(int64_t n) { return (n + 31) / 32 * 32; }

static packed_keys keys_of(const void *at, int64_t len, int64_t EP)
{
    uint16_t *k = (uint16_t *)at;
    return (packed_keys){k, k + pad(len) * EP, k + 2 * pad(len) * EP};
}

/* The bytes it takes; EP: E padded. */
static uint64_t lay_out(amx_bwd_buffers *r, uint8_t *work, int64_t EP)
{
    uint64_t at = 0;
    const struct {
        void *field;
        int64_t bytes;
    } parts[] = {
        {&r->ql, PANELS * 32 * EP * 2},
        {&r->gl, PANELS * 32 * EP * 2},
        {&r->qp, PANELS * 32 * EP * 2},
        {&r->gp, PANELS * 32 * EP * 2},
        {&r->p, KEYS * LDM * 2},
        {&r->ds, KEYS * LDM * 2},
        {&r->dsp, KEYS / 32 * PANELS * TILE * 2},
        {&r->s, 2 * 2 * 1024 * 4},
        {&r->dq, PANELS * 32 * EP * 4},
        {&r->lse, PANELS * 32 * 4},
        {&r->delta, PANELS * 32 * 4},
        {&r->from, PANELS * 32 * 4},
        {&r->to, PANELS * 32 * 4},
        {&r->zeros, EP * 2},
    };
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        if (work)
            memcpy(parts[i].field, &(void *){work + at}, sizeof(void *));
        at += AF_ALIGN_UP((uint64_t)parts[i].bytes, UINT64_C(64));
    }
    return at;
}

uint64_t af_attend_bwd_keys(int64_t len, int64_t E)
{
    return (uint64_t)(3 * pad(len) * pad(E)) * sizeof(uint16_t);
}

void af_attend_bwd_pack(const af_attend *a, int64_t from, int64_t to, void *at)
{
    const int64_t EP = pad(a->E);
    const packed_keys x = keys_of(at, a->len, EP);
    for (int64_t i = from; i < pad(to); i++) {
        const int64_t n = i < to ? a->E : 0, row = (n ? i : 0) * a->ld;
        af_amx_copy(x.k + i * EP, a->k + row, n, EP);
        af_amx_copy(x.v + i * EP, a->v + row, n, EP);
    }
    for (int64_t i = from; i < to; i += 32) {
        const uint16_t *k[32];
        for (int64_t j = 0; j < 32; j++)
            k[j] = x.k + (i + j) * EP;
        af_amx_columns(x.kt + i * EP, k, EP, TILE);
    }
}

uint64_t af_attend_bwd_work(int64_t E)
{
    amx_bwd_buffers r;
    return lay_out(&r, NULL, pad(E));
}

/* One block in progress. */
typedef struct bwd_block {
    const af_attend *a;
    amx_bwd_buffers r;
    packed_keys x;
    int64_t EP, panels;
    int64_t row, rows; /* its queries */
    int64_t head, heads;
    int64_t done; /* keys before this have sums */
    af_amx_turns turns;
    bool two; /* this turn, a block of keys */
} bwd_block;

/* Both forms of 32 rows of one head. */
static void pack_rows(const bwd_block *b, const uint16_t *x, int64_t ld, int64_t row,
                      uint16_t *columns, uint16_t *pairs)
{
    const uint16_t *h[32];
    for (int64_t j = 0; j < 32; j++)
        h[j] = row + j < b->a->len ? x + (row + j) * ld : b->r.zeros;
    af_amx_lines(columns, h, b->a->E, b->EP);
    af_amx_lines(columns + 512, h + 16, b->a->E, b->EP);
    af_amx_pairs(pairs, h, b->a->E, TILE);
}

static __m512 widen(const uint16_t *x, int64_t left)
{
    const __mmask16 mask = (__mmask16)(((uint32_t)1 << AF_MIN(left, INT64_C(16))) - 1);
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, x)), 16));
}

/* Panel c: 32 queries of one head from `row`. */
static void pack_panel(const bwd_block *b, int64_t c, int64_t head, int64_t row)
{
    const af_attend *a = b->a;
    const amx_bwd_buffers *r = &b->r;
    const int64_t at = c * 32 * b->EP;
    pack_rows(b, a->q + head * a->E, a->ld, row, r->ql + at, r->qp + at);
    pack_rows(b, a->dy + head * a->E, a->ldy, row, r->gl + at, r->gp + at);
    for (int64_t i = 0; i < 32; i++) {
        const bool there = row + i < b->row + b->rows;
        const int64_t q = there ? row + i : b->row;
        const uint16_t *y = a->y + q * a->ldy + head * a->E, *g = a->dy + q * a->ldy + head * a->E;
        __m512 sum = _mm512_setzero_ps();
        int64_t from = 0, to = 0;
        for (int64_t e = 0; e < a->E; e += 16)
            sum = _mm512_fmadd_ps(widen(y + e, a->E - e), widen(g + e, a->E - e), sum);
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
    const int64_t each = pad(b->rows) / 32;
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

/* Row `key` of a cell: probabilities and their gradients of 32 queries, rounded. */
AF_INLINE void cell_row(const lanes *l, const float *s, const float *dp, int64_t key, bool whole,
                        __m512i *p, __m512i *ds)
{
    __m512 e[2], d[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        e[v] = af_amx_exp2(_mm512_fmsub_ps(_mm512_loadu_ps(s + 16 * v), l->scale, l->lse[v]));
        if (!whole) {
            const __m512i k = _mm512_set1_epi32((int32_t)key);
            const __mmask16 seen =
                _mm512_cmple_epi32_mask(l->from[v], k) & _mm512_cmplt_epi32_mask(k, l->to[v]);
            e[v] = _mm512_maskz_mov_ps(seen, e[v]);
        }
        d[v] = _mm512_mul_ps(e[v], _mm512_sub_ps(_mm512_loadu_ps(dp + 16 * v), l->delta[v]));
    }
    *p = af_amx_round(e[0], e[1]);
    *ds = af_amx_round(d[0], d[1]);
}

/* 32 keys by one panel of queries. */
typedef struct cell {
    int64_t key, at, panel; /* at: row of the block's scores */
    bool seen, whole;
    float *s, *dp; /* [32][32] */
} cell;

AF_INLINE void cell_rows(const amx_bwd_buffers *r, const lanes *l, const cell *x, bool whole)
{
    static const uint16_t even[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                      8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
    const __m512i low = _mm512_loadu_si512(even),
                  high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const int64_t to = x->at * LDM + x->panel * 32;
    uint16_t *p = r->p + to, *ds = r->ds + to,
             *pairs = r->dsp + (x->at / 32 * PANELS + x->panel) * TILE;
    const float *s = x->s, *dp = x->dp;
    for (int64_t i = 0; i < 32; i += 2, p += 2 * LDM, ds += 2 * LDM, pairs += 32) {
        __m512i p0, p1, d0, d1;
        cell_row(l, s + i * 32, dp + i * 32, x->key + i, whole, &p0, &d0);
        cell_row(l, s + i * 32 + 32, dp + i * 32 + 32, x->key + i + 1, whole, &p1, &d1);
        _mm512_storeu_si512(p, p0);
        _mm512_storeu_si512(p + LDM, p1);
        _mm512_storeu_si512(ds, d0);
        _mm512_storeu_si512(ds + LDM, d1);
        _mm512_storeu_si512(pairs, _mm512_permutex2var_epi16(d0, low, d1));
        _mm512_storeu_si512(pairs + 512, _mm512_permutex2var_epi16(d0, high, d1));
    }
}

static void no_cell(const amx_bwd_buffers *r, const cell *x)
{
    for (int64_t i = x->at; i < x->at + 32; i++) {
        memset(r->p + i * LDM + x->panel * 32, 0, 64);
        memset(r->ds + i * LDM + x->panel * 32, 0, 64);
    }
    memset(r->dsp + (x->at / 32 * PANELS + x->panel) * TILE, 0, TILE * 2);
}

/* Cell i of the block of keys from `key`: its scores and dy v, where queries see any of it. */
static cell begin_cell(const bwd_block *b, int64_t key, int64_t i)
{
    const amx_bwd_buffers *r = &b->r;
    const int64_t EP = b->EP, each = b->panels / b->heads, panel = i % b->panels,
                  first = b->row + panel % each * 32,
                  last = AF_MIN(first + 32, b->row + b->rows) - 1;
    cell x = {.at = i / b->panels * 32, .panel = panel, .s = r->s + i % 2 * 2048};
    int64_t from, to, from_last, to_first;
    x.key = key + x.at;
    x.dp = x.s + 1024;
    af_attend_visible(b->a, first, &from, &to_first);
    af_attend_visible(b->a, last, &from_last, &to);
    x.seen = x.key < to && x.key + 32 > from;
    x.whole = last == first + 31 && from_last <= x.key && x.key + 32 <= to_first;
    if (!x.seen)
        return x;
    af_amx_block(x.s, 32,
                 &(af_amx_product){b->x.k + x.key * EP, r->ql + panel * 32 * EP, EP * 2, 64,
                                   TILE * 2, EP / 32},
                 b->two, false);
    af_amx_block(x.dp, 32,
                 &(af_amx_product){b->x.v + x.key * EP, r->gl + panel * 32 * EP, EP * 2, 64,
                                   TILE * 2, EP / 32},
                 b->two, false);
    return x;
}

static void end_cell(const bwd_block *b, const cell *x)
{
    const amx_bwd_buffers *r = &b->r;
    lanes l = {.scale = _mm512_set1_ps(b->a->scale * log2_e)};
    if (!x->seen) {
        no_cell(r, x);
        return;
    }
#pragma GCC unroll 2
    for (int v = 0; v < 2; v++) {
        const int64_t at = x->panel * 32 + 16 * v;
        l.lse[v] = _mm512_loadu_ps(r->lse + at);
        l.delta[v] = _mm512_loadu_ps(r->delta + at);
        l.from[v] = _mm512_loadu_si512(r->from + at);
        l.to[v] = _mm512_loadu_si512(r->to + at);
    }
    if (x->whole)
        cell_rows(r, &l, x, true);
    else
        cell_rows(r, &l, x, false);
}

/* Keys [key, key+n) by all panels: scores (the tiles of a cell while the rows of the one before are
 * at work, which then does not wait for stores), and what they add to dv, dk and dq. */
static void key_block(const bwd_block *b, int64_t key, int64_t n, bool add)
{
    const amx_bwd_buffers *r = &b->r;
    const int64_t EP = b->EP, across = EP / 32 * TILE * 2, cells = n / 32 * b->panels;
    cell x = begin_cell(b, key, 0);
    for (int64_t i = 1; i <= cells; i++) {
        const cell next = i < cells ? begin_cell(b, key, i) : x;
        end_cell(b, &x);
        x = next;
    }
    for (int64_t at = 0; at < n; at += 32)
        for (int64_t e = 0; e < EP; e += 32) {
            const int64_t to = (key + at - b->a->key) * EP + e;
            const af_amx_product dv = {r->p + at * LDM, r->gp + e / 32 * TILE, LDM * 2, 64, across,
                                       b->panels},
                                 dk = {r->ds + at * LDM, r->qp + e / 32 * TILE, LDM * 2, 64, across,
                                       b->panels};
            af_amx_block(b->a->dv_sums + to, EP, &dv, b->two, add);
            af_amx_block(b->a->dk_sums + to, EP, &dk, b->two, add);
        }
    for (int64_t c = 0; c < b->panels; c++)
        for (int64_t e = 0; e < EP; e += 32)
            af_amx_block(r->dq + (c * EP + e) * 32, 32,
                         &(af_amx_product){b->x.kt + key * EP + e / 32 * TILE, r->dsp + c * TILE,
                                           64, across, PANELS * TILE * 2, n / 32},
                         b->two, true);
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
        uint16_t *to = a->dq + row * a->ld + (b->head + c / each) * a->E + e;
        for (int64_t k = 0; k < n; k++)
            _mm512_mask_storeu_epi16(
                to + k * a->ld, af_amx_first(a->E - e),
                af_amx_round(_mm512_mul_ps(_mm512_castsi512_ps(x[k]), scale),
                             _mm512_mul_ps(_mm512_castsi512_ps(x[16 + k]), scale)));
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
    const bool add = begin_sums(b, pad(to));
    for (int64_t key = from / 32 * 32; key < to; key += KEYS) {
        const int64_t n = pad(AF_MIN((int64_t)KEYS, to - key));
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
    bwd_block b = {.a = a, .EP = pad(a->E), .done = a->key};
    lay_out(&b.r, work, b.EP);
    b.x = keys_of(a->keys, a->len, b.EP);
    memset(b.r.zeros, 0, (size_t)b.EP * sizeof *b.r.zeros);
    af_amx_begin();
    for (b.head = 0; b.head < a->heads; b.head += HEADS) {
        b.heads = AF_MIN((int64_t)HEADS, a->heads - b.head);
        for (b.row = a->from; b.row < a->to; b.row += QUERIES) {
            b.rows = AF_MIN((int64_t)QUERIES, a->to - b.row);
            run_block(&b);
        }
    }
    af_amx_end();
}
