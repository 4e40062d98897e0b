/* amx_attention.c - attention of one kv head with the tiles of AMX.
 *
 * Keys and values are packed once for all heads and queries that read them. A block of 32 queries
 * meets up to KEYS of them at a time: scores and rounded probabilities stay in the first two
 * caches, the softmax is kept running as in attention_fast.c. */
#include "cpu/rows/amx/amx_attention.h"

#include <math.h>

enum { Q = AF_ATTEND_Q, KEYS = 256, LDS = KEYS + 16, LDP = KEYS + 32, TILE_BYTES = 2048 };

static const float log2_e = 1.44269504088896341f;

typedef struct attention_buffers {
    uint16_t *k, *v; /* panels: [len/32][E/32][2][16 pairs][16][2]; pairs of e, and of keys */
    uint16_t *q, *p; /* [Q][E] and [Q][LDP] */
    float *s, *o;    /* [Q][LDS] and [Q][E] */
    uint16_t *zeros; /* a row of zeros */
} attention_buffers;

static int64_t pad(int64_t n) { return (n + 31) / 32 * 32; }

/* EP: E padded. */
static attention_buffers buffers_of(void *work, int64_t len, int64_t EP)
{
    attention_buffers r = {.k = work};
    r.v = r.k + pad(len) * EP;
    r.q = r.v + pad(len) * EP;
    r.p = r.q + Q * EP;
    r.zeros = r.p + Q * LDP;
    r.s = (float *)(r.zeros + EP);
    r.o = r.s + Q * LDS;
    return r;
}

static uint64_t attend_work(int64_t len, int64_t E)
{
    const int64_t EP = pad(E);
    return (uint64_t)((2 * pad(len) + Q + 1) * EP + Q * LDP) * 2 +
           (uint64_t)(Q * LDS + Q * EP) * 4 + 64;
}

static void attend_pack(const af_attend *a, void *work)
{
    const int64_t EP = pad(a->E);
    const attention_buffers r = buffers_of(work, a->len, EP);
    memset(r.zeros, 0, (size_t)EP * sizeof *r.zeros);
    for (int64_t i = 0; i < a->len; i += 32) {
        const uint16_t *k[32], *v[32];
        for (int64_t j = 0; j < 32; j++) {
            k[j] = i + j < a->len ? a->k + (i + j) * a->ld : r.zeros;
            v[j] = i + j < a->len ? a->v + (i + j) * a->ld : r.zeros;
        }
        af_amx_lines(r.k + i * EP, k, a->E, EP);
        af_amx_lines(r.k + i * EP + 512, k + 16, a->E, EP);
        af_amx_pairs(r.v + i * EP, v, a->E, TILE_BYTES / 2);
    }
}

/* A block of queries in progress: rows of one head. */
typedef struct query_block {
    const af_attend *a;
    attention_buffers r;
    int64_t EP, row, rows;
    float max[Q], sum[Q]; /* max: of scores times scale, to the base 2 */
    af_amx_turns turns;
} query_block;

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

/* 2^(x scale + shift) of sixteen scores from j, 0 of those that are not seen. */
AF_INLINE __m512 probabilities(const float *s, int64_t j, __m512 scale, __m512 shift, __m512i from,
                               __m512i to, bool whole)
{
    const __m512 e = af_amx_exp2(_mm512_fmadd_ps(_mm512_loadu_ps(s + j), scale, shift));
    return whole ? e : _mm512_maskz_mov_ps(seen(j, from, to, false), e);
}

/* Row i's scores of keys [at, at+n) become probabilities relative to its new maximum. */
AF_INLINE void softmax_row(query_block *b, int64_t i, int64_t at, int64_t n, bool whole)
{
    const float *s = b->r.s + i * LDS, factor = b->a->scale * log2_e;
    float *o = b->r.o + i * b->EP;
    uint16_t *p = b->r.p + i * LDP;
    int64_t first = 0, end = 0;
    if (i < b->rows)
        af_attend_visible(b->a, b->row + i, &first, &end);
    if (end - at <= 0 || first - at >= n) {
        memset(p, 0, (size_t)n * sizeof *p);
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
    if (m > b->max[i]) {
        const __m512 fix = af_amx_exp2(_mm512_set1_ps(b->max[i] - m)); /* 0 at first */
        b->sum[i] *= _mm512_cvtss_f32(fix);
        for (int64_t e = 0; e < b->EP; e += 16)
            _mm512_storeu_ps(o + e, _mm512_mul_ps(_mm512_loadu_ps(o + e), fix));
        b->max[i] = m;
    }
    const __m512 scale = _mm512_set1_ps(factor), shift = _mm512_set1_ps(-b->max[i]);
    __m512 t0 = _mm512_setzero_ps(), t1 = t0;
    for (int64_t j = 0; j < n; j += 32) {
        const __m512 e0 = probabilities(s, j, scale, shift, from, to, whole),
                     e1 = probabilities(s, j + 16, scale, shift, from, to, whole);
        t0 = _mm512_add_ps(t0, e0);
        t1 = _mm512_add_ps(t1, e1);
        _mm512_storeu_si512(p + j, af_amx_round(e0, e1));
    }
    b->sum[i] += _mm512_reduce_add_ps(_mm512_add_ps(t0, t1));
}

/* All rows of the block against keys [at, at+n). */
static void softmax_rows(query_block *b, int64_t at, int64_t n)
{
    int64_t from, to, unused;
    af_attend_visible(b->a, b->row, &unused, &to);
    af_attend_visible(b->a, b->row + b->rows - 1, &from, &unused);
    const bool whole = b->rows == Q && from <= at && at + n <= to;
    for (int64_t i = 0; whole && i < Q; i++)
        softmax_row(b, i, at, n, true);
    for (int64_t i = 0; !whole && i < Q; i++)
        softmax_row(b, i, at, n, false);
}

/* The block's queries, missing ones zero. */
static void begin(query_block *b, const uint16_t *q)
{
    const int64_t E = b->a->E;
    for (int64_t i = 0; i < Q; i++) {
        const int64_t n = i < b->rows ? E : 0;
        af_amx_copy(b->r.q + i * b->EP, q + (b->row + (n ? i : 0)) * b->a->ld, n, b->EP);
        b->max[i] = -INFINITY;
        b->sum[i] = 0;
    }
    memset(b->r.o, 0, (size_t)(Q * b->EP) * sizeof *b->r.o);
}

static void finish(const query_block *b, int64_t h)
{
    const int64_t E = b->a->E;
    for (int64_t i = 0; i < b->rows; i++) {
        af_amx_put(b->a->y + (b->row + i) * b->a->ldy + h * E, b->r.o + i * b->EP,
                   _mm512_set1_ps(1.0f / b->sum[i]), E);
        b->a->lse[(b->row + i) * b->a->ldl + h] = b->max[i] / log2_e + logf(b->sum[i]);
    }
}

static void head_block(query_block *b, int64_t h)
{
    const af_attend *a = b->a;
    const attention_buffers *r = &b->r;
    const int64_t EP = b->EP, across = EP / 32 * TILE_BYTES; /* bytes of one panel of 32 keys */
    int64_t from, to, unused;
    af_attend_visible(a, b->row, &from, &unused);
    af_attend_visible(a, b->row + b->rows - 1, &unused, &to);
    begin(b, a->q + h * a->E);
    uint64_t start;
    const bool two = af_amx_turn(&b->turns, &start);
    for (int64_t at = from / 32 * 32; at < to; at += KEYS) {
        const int64_t n = pad(AF_MIN((int64_t)KEYS, to - at));
        const uint8_t *k = (const uint8_t *)(r->k + at * EP),
                      *v = (const uint8_t *)(r->v + at * EP);
        for (int64_t j = 0; j < n; j += 32)
            af_amx_block(
                r->s + j, LDS,
                &(af_amx_product){r->q, k + j / 32 * across, EP * 2, 64, TILE_BYTES, EP / 32}, two,
                false);
        softmax_rows(b, at, n);
        for (int64_t e = 0; e < EP; e += 32)
            af_amx_block(
                r->o + e, EP,
                &(af_amx_product){r->p, v + e / 32 * TILE_BYTES, LDP * 2, 64, across, n / 32}, two,
                true);
    }
    af_amx_turn_end(&b->turns, start, to - from);
    finish(b, h);
}

static void attend(const af_attend *a, int64_t from, int64_t to, void *work)
{
    query_block b = {.a = a, .EP = pad(a->E)};
    b.r = buffers_of(work, a->len, b.EP);
    af_amx_begin();
    for (int64_t i = from; i < to; i++) {
        b.row = i * Q;
        b.rows = AF_MIN((int64_t)Q, a->len - b.row);
        for (int64_t h = 0; h < a->heads; h++)
            head_block(&b, h);
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
