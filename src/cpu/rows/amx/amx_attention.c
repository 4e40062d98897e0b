/* amx_attention.c - attention of one kv head with the tiles of AMX.
 *
 * Keys and values are packed once for all heads and queries that read them. A block of 32 queries
 * meets some of them at a time: scores and probabilities (rounded, or of f32 in planes) stay in the
 * first two caches, the softmax is kept running as in attention_fast.c. In f32 the tiles take
 * longer than the softmax, so its rows are done between their instructions. */
#include "cpu/rows/amx/amx_attention.h"

#include "cpu/gemm/amx/amx_split.h"

#include <math.h>

enum { Q = AF_ATTEND_Q, HEADS = 4, KEYS = 256, LDS = KEYS + 16, TILE = AF_ATTEND_TILE };

/* What is near at once: values of f32 have three planes. */
static int64_t keys_at_once(int planes) { return planes == 1 ? KEYS : KEYS / 4; }
static int64_t heads_at_once(int planes) { return planes == 1 ? 1 : HEADS; }

static const float log2_e = 1.44269504088896341f;

/* In tiles: k, v [len/32][E/32], q [HEADS][E/32] and, of two steps, p [keys/32]. */
typedef struct attention_buffers {
    uint16_t *k, *v; /* pairs of e, and of keys */
    uint16_t *q, *p; /* rows */
    float *s, *o;    /* two of [Q][LDS], and [HEADS][Q][E] */
    float *sums;     /* [32][32] */
} attention_buffers;

/* EP: E padded. */
static attention_buffers buffers_of(void *work, int64_t len, int64_t EP, int planes)
{
    attention_buffers r = {.k = work};
    r.v = r.k + af_attend_pad(len) * EP * planes;
    r.q = r.v + af_attend_pad(len) * EP * planes;
    r.p = r.q + HEADS * Q * EP * planes;
    r.s = (float *)(r.p + 2 * Q * keys_at_once(planes) * planes);
    r.o = r.s + 2 * Q * LDS;
    r.sums = r.o + HEADS * Q * EP;
    return r;
}

static uint64_t attend_work(int64_t len, int64_t E, int planes)
{
    const int64_t EP = af_attend_pad(E);
    return (uint64_t)((2 * af_attend_pad(len) + HEADS * Q) * EP + 2 * Q * keys_at_once(planes)) *
               (uint64_t)planes * 2 +
           (uint64_t)(2 * Q * LDS + HEADS * Q * EP + TILE) * 4;
}

static void attend_pack(const af_attend *a, void *work)
{
    const int64_t EP = af_attend_pad(a->E), step = EP * a->planes;
    const attention_buffers r = buffers_of(work, a->len, EP, a->planes);
    for (int64_t i = 0; i < a->len; i += 32) {
        const void *k[32], *v[32];
        af_attend_rows(a, k, a->k, a->ld, i, a->len);
        af_attend_rows(a, v, a->v, a->ld, i, a->len);
        af_attend_pack_columns(a, r.k + i * step, k);
        af_attend_pack_pairs(a, r.v + i * step, v);
    }
}

/* A block of queries in progress: rows of a few heads. */
typedef struct query_block {
    const af_attend *a;
    attention_buffers r;
    int64_t EP, row, rows;
    int64_t head, heads;                /* head: the first */
    int64_t from, to;                   /* keys that any row sees, from a multiple of 32 */
    float max[HEADS][Q], sum[HEADS][Q]; /* max: of scores times scale, to the base 2 */
    af_amx_turns turns;
    bool two; /* this turn */
} query_block;

/* One head of it and keys [at, at+n). */
typedef struct key_block {
    query_block *b;
    int64_t head, at, n;
    float *s;     /* scores, [Q][LDS] */
    uint16_t *p;  /* probabilities */
    float fix[Q]; /* of planes: what the sums so far are multiplied with */
    bool whole;   /* all keys are seen by all rows */
} key_block;

/* Which of sixteen keys from j are in [from, to). */
AF_INLINE __mmask16 seen(int64_t j, __m512i from, __m512i to, bool whole)
{
    static const int32_t lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    if (whole)
        return 0xffff;
    const __m512i at = _mm512_add_epi32(_mm512_loadu_si512(lane), _mm512_set1_epi32((int32_t)j));
    return _mm512_cmple_epi32_mask(from, at) & _mm512_cmplt_epi32_mask(at, to);
}

AF_INLINE __m512 scores(const float *s, int64_t j, __m512i from, __m512i to, bool whole)
{
    const __m512 x = _mm512_loadu_ps(s + j);
    return whole ? x : _mm512_mask_blend_ps(seen(j, from, to, false), _mm512_set1_ps(-INFINITY), x);
}

/* 2^(x scale + shift) of sixteen scores from j, 0 of those that are not seen. In f32 at most 1: of
 * scores beyond 10^9 the rounding alone could be more than a float holds. */
AF_INLINE __m512 probabilities(const float *s, int64_t j, __m512 scale, __m512 shift, __m512i from,
                               __m512i to, bool whole, const int planes)
{
    const __m512 x = _mm512_fmadd_ps(_mm512_loadu_ps(s + j), scale, shift);
    const __m512 e = af_amx_exp2(planes == 1 ? x : _mm512_min_ps(_mm512_setzero_ps(), x));
    return whole ? e : _mm512_maskz_mov_ps(seen(j, from, to, false), e);
}

/* 32 probabilities into their row of a tile. */
AF_INLINE void put_probabilities(uint16_t *p, __m512 low, __m512 high, const int planes)
{
    if (planes == 1)
        _mm512_storeu_si512(p, af_amx_round(low, high));
    else
        af_planes_row(p, _mm512_castps_si512(low), _mm512_castps_si512(high));
}

/* Row i's scores become probabilities relative to its new maximum. */
AF_INLINE void softmax_row(key_block *x, int64_t i, const bool whole, const int planes)
{
    query_block *b = x->b;
    const int64_t at = x->at, n = x->n;
    const float *s = x->s + i * LDS, factor = b->a->scale * log2_e;
    float *o = b->r.o + (x->head * Q + i) * b->EP, *max = &b->max[x->head][i],
          *sum = &b->sum[x->head][i];
    uint16_t *p = x->p + i * 32;
    int64_t first = 0, end = 0;
    x->fix[i] = 1;
    if (i < b->rows)
        af_attend_visible(b->a, b->row + i, &first, &end);
    if (end - at <= 0 || first - at >= n) {
        for (int64_t j = 0; j < n / 32 * planes; j++)
            memset(p + j * TILE, 0, 64);
        return;
    }
    const __m512i from = _mm512_set1_epi32((int32_t)(first - at)),
                  to = _mm512_set1_epi32((int32_t)(end - at));
    __m512 m0 = scores(s, 0, from, to, whole), m1 = scores(s, 16, from, to, whole);
    for (int64_t j = 32; j < n; j += 32) {
        m0 = _mm512_max_ps(m0, scores(s, j, from, to, whole));
        m1 = _mm512_max_ps(m1, scores(s, j + 16, from, to, whole));
    }
    const float m = _mm512_reduce_max_ps(_mm512_max_ps(m0, m1)) * factor;
    if (m > *max) {
        const __m512 fix = af_amx_exp2(_mm512_set1_ps(*max - m)); /* 0 at first */
        x->fix[i] = _mm512_cvtss_f32(fix);
        *sum *= x->fix[i];
        for (int64_t e = 0; planes == 1 && e < b->EP; e += 16)
            _mm512_storeu_ps(o + e, _mm512_mul_ps(_mm512_loadu_ps(o + e), fix));
        *max = m;
    }
    const __m512 scale = _mm512_set1_ps(factor), shift = _mm512_set1_ps(-*max);
    __m512 t0 = _mm512_setzero_ps(), t1 = t0;
    for (int64_t j = 0; j < n; j += 32) {
        const __m512 e0 = probabilities(s, j, scale, shift, from, to, whole, planes),
                     e1 = probabilities(s, j + 16, scale, shift, from, to, whole, planes);
        t0 = _mm512_add_ps(t0, e0);
        t1 = _mm512_add_ps(t1, e1);
        put_probabilities(p + j / 32 * planes * TILE, e0, e1, planes);
    }
    *sum += _mm512_reduce_add_ps(_mm512_add_ps(t0, t1));
}

/* A copy per case. */
static void softmax_rows(void *arg, int64_t from, int64_t to)
{
    key_block *x = arg;
    const bool half = x->b->a->planes == 1;
    for (int64_t i = from; half && x->whole && i < to; i++)
        softmax_row(x, i, true, 1);
    for (int64_t i = from; half && !x->whole && i < to; i++)
        softmax_row(x, i, false, 1);
    for (int64_t i = from; !half && x->whole && i < to; i++)
        softmax_row(x, i, true, 3);
    for (int64_t i = from; !half && !x->whole && i < to; i++)
        softmax_row(x, i, false, 3);
}

/* Step i of the block: its heads for the first keys, then for the next ones. */
static key_block key_block_of(query_block *b, int64_t i)
{
    const int planes = b->a->planes;
    const int64_t keys = keys_at_once(planes), at = b->from + i / b->heads * keys;
    key_block x = {.b = b, .head = i % b->heads, .at = at};
    int64_t from, to, unused;
    x.n = af_attend_pad(AF_MIN(keys, b->to - at));
    x.s = b->r.s + i % 2 * Q * LDS;
    x.p = b->r.p + i % 2 * Q * keys * planes;
    af_attend_visible(b->a, b->row, &unused, &to);
    af_attend_visible(b->a, b->row + b->rows - 1, &from, &unused);
    x.whole = b->rows == Q && from <= at && at + x.n <= to;
    return x;
}

static void make_scores(const key_block *x, af_attend_work *w)
{
    const query_block *b = x->b;
    const int64_t tile = b->a->planes * TILE, step = b->EP * b->a->planes; /* values */
    for (int64_t j = 0; j < x->n; j += 32) {
        const af_attend_product p = {b->r.q + x->head * Q * step, b->r.k + (x->at + j) * step,
                                     2 * tile, 2 * tile, b->EP / 32};
        if (b->a->planes == 1)
            af_attend_bf16(x->s + j, LDS, &p, b->two, false);
        else
            af_attend_planes(x->s + j, LDS, &p, w);
    }
}

/* o = fix o + p v. */
static void weigh_values(const key_block *x, af_attend_work *w)
{
    const query_block *b = x->b;
    const int64_t EP = b->EP, tile = b->a->planes * TILE, step = EP * b->a->planes;
    for (int64_t e = 0; e < EP; e += 32) {
        const af_attend_product p = {x->p, b->r.v + x->at * step + e / 32 * tile, 2 * tile,
                                     64 * step, x->n / 32};
        float *o = b->r.o + x->head * Q * EP + e;
        if (b->a->planes == 1) {
            af_attend_bf16(o, EP, &p, b->two, true);
            continue;
        }
        af_attend_planes(b->r.sums, 32, &p, w);
        for (int64_t i = 0; i < Q; i++, o += EP) {
            const __m512 fix = _mm512_set1_ps(x->fix[i]);
            const float *sum = b->r.sums + i * 32;
            _mm512_storeu_ps(o, _mm512_fmadd_ps(_mm512_loadu_ps(o), fix, _mm512_loadu_ps(sum)));
            _mm512_storeu_ps(
                o + 16, _mm512_fmadd_ps(_mm512_loadu_ps(o + 16), fix, _mm512_loadu_ps(sum + 16)));
        }
    }
}

/* The block's queries. */
static void begin(query_block *b)
{
    const af_attend *a = b->a;
    const void *h[32];
    int64_t unused;
    for (int64_t k = 0; k < b->heads; k++) {
        af_attend_rows(a, h, af_attend_at(a, a->q, (b->head + k) * a->E), a->ld, b->row,
                       b->row + b->rows);
        af_attend_pack_rows(a, b->r.q + k * Q * b->EP * a->planes, h);
        for (int64_t i = 0; i < Q; i++) {
            b->max[k][i] = -INFINITY;
            b->sum[k][i] = 0;
        }
    }
    memset(b->r.o, 0, (size_t)(b->heads * Q * b->EP) * sizeof *b->r.o);
    af_attend_visible(a, b->row, &b->from, &unused);
    af_attend_visible(a, b->row + b->rows - 1, &unused, &b->to);
    b->from = b->from / 32 * 32;
}

static void finish(const query_block *b)
{
    const af_attend *a = b->a;
    for (int64_t k = 0; k < b->heads; k++)
        for (int64_t i = 0; i < b->rows; i++) {
            const int64_t row = b->row + i, h = b->head + k;
            const float *o = b->r.o + (k * Q + i) * b->EP;
            const __m512 by = _mm512_set1_ps(1.0f / b->sum[k][i]);
            for (int64_t e = 0; e < a->E; e += 32) {
                void *y = (void *)af_attend_at(a, a->y, row * a->ldy + h * a->E + e);
                af_attend_put(a, y, _mm512_mul_ps(_mm512_loadu_ps(o + e), by),
                              _mm512_mul_ps(_mm512_loadu_ps(o + e + 16), by), a->E - e);
            }
            a->lse[row * a->ldl + h] = b->max[k][i] / log2_e + logf(b->sum[k][i]);
        }
}

static int64_t steps_of(const query_block *b)
{
    const int64_t keys = keys_at_once(b->a->planes);
    return (b->to - b->from + keys - 1) / keys * b->heads;
}

static void run_bf16(query_block *b)
{
    uint64_t start;
    b->two = af_amx_turn(&b->turns, &start);
    for (int64_t i = 0, n = steps_of(b); i < n; i++) {
        key_block x = key_block_of(b, i);
        x.s = b->r.s; /* it is still near */
        x.p = b->r.p;
        make_scores(&x, NULL);
        softmax_rows(&x, 0, Q);
        weigh_values(&x, NULL);
    }
    af_amx_turn_end(&b->turns, start, (b->to - b->from) * b->heads);
}

/* The rows of a step are at work while the tiles make the next one's scores and weigh the values
 * of the one before. */
static void run_planes(query_block *b)
{
    const int64_t n = steps_of(b);
    key_block x[2] = {key_block_of(b, 0)};
    make_scores(&x[0], NULL);
    for (int64_t i = 0; i < n; i++) {
        key_block *now = &x[i % 2], *other = &x[(i + 1) % 2];
        af_attend_work w = af_attend_work_of(
            Q, (i > 0) * other->n / 32 * b->EP / 32 + now->n / 32 * b->EP / 32, softmax_rows, now);
        if (i > 0)
            weigh_values(other, &w);
        if (i + 1 < n) {
            *other = key_block_of(b, i + 1);
            make_scores(other, &w);
        }
        af_attend_finish(&w);
    }
    weigh_values(&x[(n - 1) % 2], NULL);
}

static void run_block(query_block *b)
{
    begin(b);
    if (b->a->planes == 1)
        run_bf16(b);
    else
        run_planes(b);
    finish(b);
}

static void attend(const af_attend *a, int64_t from, int64_t to, void *work)
{
    const int64_t each = heads_at_once(a->planes);
    query_block b = {.a = a, .EP = af_attend_pad(a->E)};
    b.r = buffers_of(work, a->len, b.EP, a->planes);
    af_amx_begin();
    for (int64_t i = from; i < to; i++) {
        b.row = i * Q;
        b.rows = AF_MIN((int64_t)Q, a->len - b.row);
        for (b.head = 0; b.head < a->heads; b.head += each) {
            b.heads = AF_MIN(each, a->heads - b.head);
            run_block(&b);
        }
    }
    af_amx_end();
}

const af_attention_kernels AF_ISA_NAME(af_attention) = {.work = attend_work,
                                                        .pack = attend_pack,
                                                        .run = attend,
                                                        .bwd_keys = af_attend_bwd_keys,
                                                        .bwd_pack = af_attend_bwd_pack,
                                                        .bwd_work = af_attend_bwd_work,
                                                        .bwd = af_attend_bwd};
