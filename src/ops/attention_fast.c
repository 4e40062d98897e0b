/* attention_fast.c - attention.c in blocks of queries by blocks of keys, through the packed
 * product.
 *
 * A block of scores is all that is ever held: the softmax is kept running (maximum, sum, weighted
 * values) and corrected when a later block raises the maximum. One item of work is one block of
 * queries of the heads that share keys (a few of them, stacked); key blocks are always taken in
 * rising order from the first visible one, so threads do not change results. With bf16 values the
 * probabilities are rounded to bf16 before they meet the values, as the values are. The backward is
 * attention_bwd_fast.c. */
#include "ops/attention_fast.h"
#include "ops/attention_tiles.h"

#include <math.h>

enum { ONE_KEYS = 128 }; /* of single queries: what their heads share stays in the first cache */

/* s [ROWS][K], its bf16 copy, o and the stacked queries [ROWS][E], maximum and sum [ROWS] */
static int64_t share_floats(const af_node *n)
{
    const int64_t E = n->attr.attention.head_dim;
    return AF_ATTN_ROWS * AF_ATTN_K * 3 / 2 + AF_ATTN_ROWS * (2 * E + 2) + 16;
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
typedef struct block {
    af_operand q, k, v;
    int64_t rows, each, first, keys; /* `each` rows a head; first: position of the first query */
} block;

static af_operand shifted(af_operand o, int64_t rows, bool trans)
{
    o.data = (const uint8_t *)o.data + rows * o.ld * (int64_t)af_dtype_get(o.dtype)->bytes;
    o.trans = trans;
    return o;
}

/* Row i of the block against keys [at, at+n): scores become probabilities relative to the row's new
 * maximum; what was summed so far is corrected. */
static void soften(const af_attn *a, const block *b, int64_t i, int64_t at, int64_t n, float *s,
                   float *max, float *sum, float *o)
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

/* o [rows][E] and lse (of the first head; may be NULL) of one block of queries. */
static void attend(const af_attn *a, const block *b, float *o, float *lse, uint8_t *scratch)
{
    float *s = (float *)scratch;
    uint16_t *half = (uint16_t *)(s + AF_ATTN_ROWS * AF_ATTN_K);
    float *max = s + AF_ATTN_ROWS * AF_ATTN_K * 3 / 2 + 2 * AF_ATTN_ROWS * a->E,
          *sum = max + AF_ATTN_ROWS;
    void *work = (float *)scratch + a->share;
    int64_t from, to, unused;
    af_attn_visible(a->n, b->first, b->keys, &from, &unused);
    af_attn_visible(a->n, b->first + b->each - 1, b->keys, &unused, &to);
    for (int64_t i = 0; i < b->rows; i++) {
        max[i] = -INFINITY;
        sum[i] = 0;
    }
    memset(o, 0, (size_t)(b->rows * a->E) * sizeof *o);
    const bool one = a->cache && b->each == 1; /* generation: nothing is worth packing */
    const int64_t step = one ? ONE_KEYS : AF_ATTN_K;
    for (int64_t at = from; at < to; at += step) {
        const int64_t n = AF_MIN(step, to - at);
        const af_operand v = shifted(b->v, at, false);
        af_attn_gemm(a, b->q, shifted(b->k, at, true), b->rows, n, a->E, s, n, af_attn_before(a),
                     false, one, work);
        for (int64_t i = 0; i < b->rows; i++) {
            soften(a, b, i, at, n, s + i * n, &max[i], &sum[i], o + i * a->E);
            if (one)
                a->f->weigh(o + i * a->E, s + i * n, &v, n, a->E);
        }
        if (one)
            continue;
        af_attn_product(a, af_attn_sums(a, s, half, b->rows * n, n), v, b->rows, a->E, n, o, a->E,
                        1, true, work);
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

/* Head h of the cache's keys (or values) of sequence s. */
static af_operand cached(const af_attn *a, int64_t s, int64_t head)
{
    af_operand o = {.ld = af_last(a->cache), .dtype = a->cache->dtype};
    o.data = (const uint8_t *)a->cache->data +
             (s * a->cache->dim[1] * o.ld + head * a->E) * (int64_t)af_dtype_get(o.dtype)->bytes;
    return o;
}

/* Block i of sequence s, stack `stack` of all its kv heads' stacks. */
static void query_block(const af_attn *a, int64_t s, int64_t stack, int64_t i, uint8_t *scratch)
{
    const int64_t row = a->bounds[s] + i * AF_ATTN_Q, group = a->H / a->K,
                  kv = stack / stacks_of(a), skip = stack % stacks_of(a) * AF_ATTN_HEADS,
                  h = kv * group + skip, heads = AF_MIN((int64_t)AF_ATTN_HEADS, group - skip);
    const int64_t start = a->cache ? a->start[s] : 0;
    float *o = (float *)scratch + AF_ATTN_ROWS * AF_ATTN_K * 3 / 2;
    block b = {.first = start + i * AF_ATTN_Q};
    b.each = AF_MIN((int64_t)AF_ATTN_Q, a->bounds[s + 1] - row);
    b.rows = b.each * heads;
    b.q = af_attn_stack(a, a->qkv, a->width, row, b.each, h, heads, o + AF_ATTN_ROWS * a->E);
    b.keys = start + a->bounds[s + 1] - a->bounds[s];
    b.k = a->cache ? cached(a, s, kv) : af_attn_head(a, a->H + kv, a->bounds[s]);
    b.v = a->cache ? cached(a, s, a->K + kv) : af_attn_head(a, a->H + a->K + kv, a->bounds[s]);
    float *lse = a->cache ? NULL : (float *)a->n->out[1]->data + row * a->H + h;
    attend(a, &b, o, lse, scratch);
    for (int64_t k = 0; k < heads; k++)
        put_block(a, o + k * b.each * a->E, row, b.each, h + k);
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const af_attn *a = arg;
    uint8_t *scratch = (uint8_t *)a->work + (uint64_t)share * a->share_bytes;
    int64_t at = 0; /* items before sequence s */
    for (int64_t s = 0; s < a->S && at < to; s++) {
        const int64_t blocks = blocks_of(a, s), n = blocks * a->K * stacks_of(a);
        for (int64_t i = AF_MAX(from - at, INT64_C(0)); i < AF_MIN(n, to - at); i++)
            query_block(a, s, i / blocks, i % blocks, scratch);
        at += n;
    }
}

/* New keys and values into the cache. */
static void store_cache(void *arg, int64_t from, int64_t to, int share)
{
    const af_attn *a = arg;
    const int64_t width = af_last(a->cache), L = a->cache->dim[1];
    (void)share;
    for (int64_t s = 0; s < a->S; s++)
        for (int64_t r = AF_MAX(from, (int64_t)a->bounds[s]); r < AF_MIN(to, a->bounds[s + 1]);
             r++) {
            const int64_t p = a->start[s] + r - a->bounds[s], to_at = (s * L + p) * width;
            const int64_t from_at = r * a->width + a->H * a->E;
            assert(p >= 0 && p < L);
            af_convert((uint8_t *)a->cache->data + to_at * af_dtype_get(a->cache->dtype)->bytes,
                       a->cache->dtype,
                       (const uint8_t *)a->qkv->data + from_at * af_dtype_get(a->qkv->dtype)->bytes,
                       a->qkv->dtype, (uint64_t)width);
        }
}

static void attention_run(const af_node *n, af_cpu *cpu)
{
    af_attn a = af_attn_of(n, cpu, share_floats(n));
    int64_t count = 0;
    for (int64_t s = 0; s < a.S; s++)
        count += blocks_of(&a, s) * a.K * stacks_of(&a);
    af_attn_zero_rows(&a);
    if (a.cache)
        af_pool_run(cpu->pool, af_live(a.qkv), store_cache, &a);
    af_pool_run(cpu->pool, count, items, &a);
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * af_attn_share_bytes(share_floats(n));
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
