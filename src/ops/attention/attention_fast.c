/* attention_fast.c - attention.c in blocks of queries by blocks of keys, through the packed
 * GEMM.
 *
 * A block of scores is all that is ever held: the softmax is kept running (maximum, sum, weighted
 * values) and corrected when a later block raises the maximum. One item of work is one block of
 * queries of the heads that share keys (a few of them, stacked); key blocks are always taken in
 * rising order from the first visible one, so threads do not change results. With bf16 values the
 * probabilities are rounded to bf16 before they meet the values, as the values are. In f32, where
 * there are GEMMs that need no packing (attention_plain.h), keys and values are laid out once
 * for a head and a few rows are done at a time. The backward is attention_bwd_fast.c. */
#include "ops/attention/attention_plain.h"
#include "ops/attention/attention_tiles.h"

#include <math.h>

enum { ONE_KEYS = 128 }; /* of single queries: what their heads share stays in the first cache */

enum { BLOCK = AF_ATTN_ROWS * AF_ATTN_LD };

/* s [ROWS][LD], its bf16 copy, o and the stacked queries [ROWS][E], maximum and sum [ROWS] */
static int64_t share_floats(const af_node *n)
{
    const int64_t E = n->attr.attention.head_dim;
    return BLOCK * 3 / 2 + AF_ATTN_ROWS * (2 * E + 2) + 16;
}

static int64_t blocks_of(const af_attn *a, int64_t s)
{
    return (a->bounds[s + 1] - a->bounds[s] + AF_ATTN_Q - 1) / AF_ATTN_Q;
}

/* Stacks of heads that share one kv head. */
static int64_t stacks_of(const af_attn *a)
{
    return (a->H / a->K + AF_ATTN_HEADS - 1) / AF_ATTN_HEADS;
}

/* What one block of queries reads: rows from `q`, keys and values of `keys` positions. */
typedef struct fwd_query_block {
    int64_t s, kv;                   /* sequence, kv head */
    af_operand q, k, v;              /* k, v: not with a cache */
    int64_t rows, each, first, keys; /* `each` rows a head; first: position of the first query */
    const float *plain;              /* its head's keys and values (attn_fast_job), or NULL */
} fwd_query_block;

static af_operand shifted(af_operand o, int64_t rows, bool trans)
{
    o.data = (const uint8_t *)o.data + rows * o.ld * (int64_t)af_dtype_get(o.dtype)->bytes;
    o.trans = trans;
    return o;
}

/* Row i of the block against keys [at, at+n): scores become probabilities relative to the row's new
 * maximum; what was summed so far is corrected. */
static void online_softmax(const af_attn *a, const fwd_query_block *b, int64_t i, int64_t at,
                           int64_t n, float *s, float *max, float *sum, float *o)
{
    const float cap = (float)a->n->attr.attention.softcap, scale = af_attn_after(a);
    int64_t from, to;
    af_attn_visible(a->n, b->first + i % b->each, b->keys, &from, &to);
    from = AF_MAX(from - at, INT64_C(0));
    to = AF_MIN(to - at, n);
    if (to <= from) {
        memset(s, 0, (size_t)n * sizeof *s);
        return;
    }
    if (cap > 0)
        a->f->softcap(s + from, s + from, cap, to - from);
    const float m = a->f->max(s + from, to - from) * scale;
    if (m > *max) {
        const float fix = *max == -INFINITY ? 0.0f : expf(*max - m);
        *sum *= fix;
        a->f->scale(o, fix, o, a->E);
        *max = m;
    }
    *sum += a->f->exp_sum(s + from, s + from, scale, *max, to - from);
    memset(s, 0, (size_t)from * sizeof *s);
    memset(s + to, 0, (size_t)(n - to) * sizeof *s);
}

/* Head `head` of the cache's keys (or values) of sequence s from position `at` on, which end with
 * its page. */
static af_operand cached(const af_attn *a, int64_t s, int64_t head, int64_t at, bool trans)
{
    af_operand o = {.ld = af_last(a->cache), .dtype = a->cache->dtype, .trans = trans};
    o.data = (const uint8_t *)a->cache->data + (af_cache_row(&a->in, s, at) * o.ld + head * a->E) *
                                                   (int64_t)af_dtype_get(o.dtype)->bytes;
    return o;
}

/* Generation after the prompt: one query per sequence. */
static bool is_one(const af_attn *a) { return a->cache && a->qkv->graph->one_token; }

/* Keys [at, at+n): their scores, what these become, and the values weighed with it. */
static void key_block(const af_attn *a, const fwd_query_block *b, int64_t at, int64_t n, float *s,
                      float *max, float *sum, float *o)
{
    const bool one = is_one(a); /* nothing is worth packing */
    const af_operand k = a->cache ? cached(a, b->s, b->kv, at, true) : shifted(b->k, at, true),
                     v = a->cache ? cached(a, b->s, a->K + b->kv, at, false)
                                  : shifted(b->v, at, false);
    uint16_t *half = (uint16_t *)(s + BLOCK);
    void *work = s + a->share;
    af_attn_gemm(a, b->q, k, b->rows, n, a->E, s, n, af_attn_before(a), false, one, work);
    for (int64_t i = 0; i < b->rows; i++) {
        online_softmax(a, b, i, at, n, s + i * n, &max[i], &sum[i], o + i * a->E);
        if (one)
            a->f->weigh(o + i * a->E, s + i * n, &v, n, a->E);
    }
    if (!one)
        af_attn_product(a, af_attn_sums(a, s, half, b->rows * n, n), v, b->rows, a->E, n, o, a->E,
                        1, true, work);
}

/* The same a few rows of one head at a time, with the keys that these see. */
static void plain_block(const af_attn *a, const fwd_query_block *b, int64_t at, int64_t n, float *s,
                        float *max, float *sum, float *o)
{
    const int64_t keys = af_attn_padded(b->keys);
    for (int64_t i = 0, m; i < b->rows; i += m) {
        const int64_t row = i % b->each;
        m = AF_MIN((int64_t)AF_ATTN_FEW, b->each - row);
        const int64_t seen = af_attn_seen(a, b->first + row + m - 1, b->keys, at, n);
        if (seen == 0)
            continue;
        af_plain_scores(a, (const float *)b->q.data + i * a->E, b->plain + at * a->E, m, seen, s);
        for (int64_t r = i; r < i + m; r++)
            online_softmax(a, b, r, at, af_attn_padded(seen), s + (r - i) * AF_ATTN_LD, &max[r],
                           &sum[r], o + r * a->E);
        af_plain_weigh(a, s, b->plain + keys * a->E + at * AF_SMALL_COLS, m, seen, keys,
                       o + i * a->E, true);
    }
}

/* Where the blocks of keys begin of which `from` is the first visible one. In a cache these places
 * do not depend on the query: a row's sums are then the same in every block of queries. */
static int64_t first_block(const af_attn *a, const fwd_query_block *b, int64_t from, int64_t step)
{
    if (a->cache) {
        const int64_t page = from / a->cache->dim[1] * a->cache->dim[1];
        return page + (from - page) / step * step;
    }
    return b->plain ? from / AF_SMALL_COLS * AF_SMALL_COLS : from;
}

/* o [rows][E] and lse (of the first head; may be NULL) of one block of queries. */
static void attend(const af_attn *a, const fwd_query_block *b, float *o, float *lse,
                   uint8_t *scratch)
{
    float *s = (float *)scratch;
    float *max = s + BLOCK * 3 / 2 + 2 * AF_ATTN_ROWS * a->E, *sum = max + AF_ATTN_ROWS;
    int64_t from, to, unused;
    af_attn_visible(a->n, b->first, b->keys, &from, &unused);
    af_attn_visible(a->n, b->first + b->each - 1, b->keys, &unused, &to);
    for (int64_t i = 0; i < b->rows; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    memset(o, 0, (size_t)(b->rows * a->E) * sizeof *o);
    const int64_t step = is_one(a) ? ONE_KEYS : AF_ATTN_K;
    from = first_block(a, b, from, step);
    for (int64_t at = from, n; at < to; at += n) {
        n = AF_MIN(step, to - at);
        if (a->cache) /* within a page */
            n = AF_MIN(n, a->cache->dim[1] - at % a->cache->dim[1]);
        (b->plain ? plain_block : key_block)(a, b, at, n, s, max, sum, o);
    }
    for (int64_t i = 0; i < b->rows; i++) {
        a->f->scale(o + i * a->E, 1.0f / sum[i], o + i * a->E, a->E);
        if (lse)
            lse[i % b->each * a->H + i / b->each] = max[i] + logf(sum[i]);
    }
}

static void put_block(const af_attn *a, const float *o, int64_t row, int64_t rows, int64_t h)
{
    const af_tensor *y = a->n->out[0];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = ((row + i) * a->H + h) * a->E;
        if (y->dtype == AF_DTYPE_F32)
            memcpy((float *)y->data + at, o + i * a->E, (size_t)a->E * sizeof *o);
        else
            a->f->to_bf16((uint16_t *)y->data + at, o + i * a->E, a->E);
    }
}

/* Block i of sequence s, stack `stack` of all its kv heads' stacks; plain: of its kv heads. */
static void query_block(const af_attn *a, int64_t s, int64_t stack, int64_t i, const float *plain,
                        uint8_t *scratch)
{
    const int64_t row = a->bounds[s] + i * AF_ATTN_Q, group = a->H / a->K,
                  kv = stack / stacks_of(a), skip = stack % stacks_of(a) * AF_ATTN_HEADS,
                  h = kv * group + skip, heads = AF_MIN((int64_t)AF_ATTN_HEADS, group - skip);
    const int64_t start = a->cache ? a->start[s] : 0;
    float *o = (float *)scratch + BLOCK * 3 / 2;
    fwd_query_block b = {.s = s, .kv = kv, .first = start + i * AF_ATTN_Q};
    b.each = AF_MIN((int64_t)AF_ATTN_Q, a->bounds[s + 1] - row);
    b.rows = b.each * heads;
    b.q = af_attn_stack(a, a->qkv, a->width, row, b.each, h, heads, o + AF_ATTN_ROWS * a->E);
    b.keys = start + a->bounds[s + 1] - a->bounds[s];
    if (!a->cache) {
        b.k = af_attn_head(a, a->H + kv, a->bounds[s]);
        b.v = af_attn_head(a, a->H + a->K + kv, a->bounds[s]);
    }
    b.plain = plain ? plain + 2 * kv * af_attn_padded(b.keys) * a->E : NULL;
    float *lse = a->n->n_out > 1 ? (float *)a->n->out[1]->data + row * a->H + h : NULL;
    attend(a, &b, o, lse, scratch);
    for (int64_t k = 0; k < heads; k++)
        put_block(a, o + k * b.each * a->E, row, b.each, h + k);
}

typedef struct attn_fast_job {
    af_attn a;
    float *plain; /* [sequence][kv head] of k as columns and of v as rows, or NULL */
} attn_fast_job;

static int64_t padded_keys(const af_attn *a, int64_t s)
{
    return af_attn_padded(a->bounds[s + 1] - a->bounds[s]);
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const attn_fast_job *j = arg;
    const af_attn *a = &j->a;
    uint8_t *scratch = (uint8_t *)a->work + (uint64_t)share * a->share_bytes;
    const float *plain = j->plain;
    int64_t at = 0; /* items before sequence s */
    for (int64_t s = 0; s < a->S && at < to; s++) {
        const int64_t blocks = blocks_of(a, s), n = blocks * a->K * stacks_of(a);
        for (int64_t i = AF_MAX(from - at, INT64_C(0)); i < AF_MIN(n, to - at); i++)
            query_block(a, s, i / blocks, i % blocks, plain, scratch);
        at += n;
        plain += plain ? 2 * a->K * padded_keys(a, s) * a->E : 0;
    }
}

/* Items of AF_SMALL_COLS keys of one kv head. */
static void ready_keys(void *arg, int64_t from, int64_t to, int share)
{
    const attn_fast_job *j = arg;
    const af_attn *a = &j->a;
    float *plain = j->plain;
    int64_t at = 0; /* items before sequence s */
    (void)share;
    for (int64_t s = 0; s < a->S && at < to; s++) {
        const int64_t row = a->bounds[s], len = a->bounds[s + 1] - row, keys = padded_keys(a, s),
                      each = keys / AF_SMALL_COLS;
        for (int64_t i = AF_MAX(from - at, INT64_C(0)); i < AF_MIN(each * a->K, to - at); i++) {
            const int64_t kv = i / each, key = i % each * AF_SMALL_COLS,
                          end = AF_MIN(key + AF_SMALL_COLS, len);
            float *x = plain + 2 * kv * keys * a->E;
            af_attn_columns(a, x, af_attn_head(a, a->H + kv, row).data, key, end);
            af_attn_rows(a, x + keys * a->E, af_attn_head(a, a->H + a->K + kv, row).data, key, end,
                         keys);
        }
        at += each * a->K;
        plain += 2 * a->K * keys * a->E;
    }
}

/* New keys and values into the cache. */
static void store_cache(void *arg, int64_t from, int64_t to, int share)
{
    const af_attn *a = &((const attn_fast_job *)arg)->a;
    const int64_t width = af_last(a->cache);
    (void)share;
    for (int64_t s = 0; s < a->S; s++)
        for (int64_t r = AF_MAX(from, (int64_t)a->bounds[s]); r < AF_MIN(to, a->bounds[s + 1]);
             r++) {
            const int64_t p = a->start[s] + r - a->bounds[s],
                          to_at = af_cache_row(&a->in, s, p) * width;
            const int64_t from_at = r * a->width + a->H * a->E;
            assert(p >= 0 && p < af_cache_length(&a->in));
            af_convert((uint8_t *)a->cache->data + to_at * af_dtype_get(a->cache->dtype)->bytes,
                       a->cache->dtype,
                       (const uint8_t *)a->qkv->data + from_at * af_dtype_get(a->qkv->dtype)->bytes,
                       a->qkv->dtype, (uint64_t)width);
        }
}

static uint64_t shares_bytes(const af_node *n, int threads)
{
    return AF_ALIGN_UP((uint64_t)threads * af_attn_share_bytes(share_floats(n)), UINT64_C(64));
}

static void attention_run(const af_node *n, af_cpu *cpu)
{
    attn_fast_job j = {.a = af_attn_of(n, cpu, share_floats(n))};
    const af_attn *a = &j.a;
    int64_t count = 0, keys = 0;
    for (int64_t s = 0; s < a->S; s++) {
        count += blocks_of(a, s) * a->K * stacks_of(a);
        keys += padded_keys(a, s) * a->K;
    }
    af_attn_zero_rows(a);
    if (a->cache)
        af_pool_run(cpu->pool, af_live(a->qkv), store_cache, &j);
    if (af_attn_is_plain(n)) {
        j.plain = (float *)((uint8_t *)a->work + shares_bytes(n, af_pool_threads(cpu->pool)));
        af_pool_run(cpu->pool, keys / AF_SMALL_COLS, ready_keys, &j);
    }
    af_pool_run(cpu->pool, count, items, &j);
}

static uint64_t work(const af_node *n, int threads)
{
    const af_attention_inputs in = af_attention_in(n);
    const int64_t keys = in.qkv->dim[0] + in.S * AF_SMALL_COLS,
                  floats = 2 * keys * n->attr.attention.kv_heads * n->attr.attention.head_dim;
    return shares_bytes(n, threads) + (af_attn_is_plain(n) ? (uint64_t)floats * sizeof(float) : 0);
}

static const af_cpu_op attention_op = {attention_run, work};

const af_cpu_op *af_attention_fast(const af_node *n)
{
    const af_cpu_op *tiles = af_attention_tiles(n);
    if (tiles)
        return tiles;
    return af_fast_type(n->in[0]) && af_fast_type(n->out[0]) ? &attention_op : NULL;
}
const af_cpu_op *af_attention_cached_fast(const af_node *n)
{
    return af_fast_type(n->in[0]) && af_fast_type(n->in[1]) ? &attention_op : NULL;
}
