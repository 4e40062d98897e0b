/* attention_parts.c - which parts there are, who takes them, and how their sums become one. */
#include "ops/attention/attention_parts.h"

enum {
    WANTED = 32,  /* parts of a node: sixteen threads are busy for nine tenths of the time */
    MOST = 8,     /* of one kv head */
    BLOCK = 32,   /* what a block costs by itself, in keys */
    CLASSES = 16, /* of cost */
};

static int64_t padded(int64_t rows)
{
    return (rows + AF_PART_ROWS - 1) / AF_PART_ROWS * AF_PART_ROWS;
}

static int64_t sequences_of(const af_node *n) { return n->in[1]->dim[0] - 1; }

/* Most parts of one head: share_of's result for a sequence that is all there is. */
static int64_t most_parts(int64_t K) { return AF_MIN((2 * WANTED + K) / (2 * K), (int64_t)MOST); }

static uint64_t table_bytes(const af_node *n)
{
    const uint64_t parts = (uint64_t)(WANTED + sequences_of(n) * n->attr.attention.kv_heads);
    return AF_ALIGN_UP(parts * (sizeof(af_part) + sizeof(int32_t)), UINT64_C(64));
}

int64_t af_parts_rows(const af_node *n, int threads)
{
    const int64_t N = n->in[0]->dim[0], K = n->attr.attention.kv_heads;
    return threads == 1 ? padded(N) : K * (N + sequences_of(n) * AF_PART_ROWS);
}

/* A cut sequence has at least 1.5 of the WANTED / K parts: there are not many of them. */
uint64_t af_parts_bytes(const af_node *n, int64_t width, int threads)
{
    const int64_t N = n->in[0]->dim[0], K = n->attr.attention.kv_heads, parts = most_parts(K),
                  cut = threads == 1 ? 1 : AF_MIN(WANTED / K, sequences_of(n)),
                  rows = N + AF_PART_ROWS * cut, heads = threads == 1 ? 1 : K;
    return table_bytes(n) +
           (parts > 1 ? (uint64_t)(heads * parts * rows * 2 * width) * sizeof(float) : 0);
}

/* The keys that queries [from, to) of a sequence see. */
static void span_of(const af_attn *a, int64_t from, int64_t to, int64_t len, int64_t *key,
                    int64_t *end)
{
    int64_t unused;
    af_attn_visible(a->n, from, len, key, &unused);
    af_attn_visible(a->n, to - 1, len, &unused, end);
}

static int64_t length_of(const af_attn *a, int64_t s) { return a->bounds[s + 1] - a->bounds[s]; }

static int64_t block_cost(const af_attn *a, int64_t i, int64_t len)
{
    int64_t key, end;
    span_of(a, i, AF_MIN(i + AF_ATTN_Q, len), len, &key, &end);
    return end - key + BLOCK;
}

static int64_t cost_of(const af_attn *a, int64_t s)
{
    const int64_t len = length_of(a, s);
    int64_t sum = 0;
    for (int64_t i = 0; i < len; i += AF_ATTN_Q)
        sum += block_cost(a, i, len);
    return sum;
}

/* Where the next of n parts of a sequence ends that begins at block `from`, with `done` of the
 * `cost` before it: as near as can be to so many n-ths of the cost. */
static af_part next_part(const af_attn *a, int64_t s, int64_t from, int64_t done, int64_t cost,
                         int64_t index, int64_t n)
{
    const int64_t len = length_of(a, s), goal = cost * (index + 1);
    af_part p = {.seq = s, .from = from, .index = index};
    int64_t at = from, sum = done;
    while (at < len) {
        const int64_t more = block_cost(a, at, len);
        if (index < n - 1 && at > from && goal - sum * n <= (sum + more) * n - goal)
            break;
        sum += more;
        at += AF_ATTN_Q;
    }
    p.to = AF_MIN(at, len);
    p.cost = sum - done;
    span_of(a, from, p.to, len, &p.key, &p.keys);
    p.key = p.key / AF_PART_ROWS * AF_PART_ROWS;
    p.keys -= p.key;
    return p;
}

static void cut_sequence(af_parts *p, int64_t s, int64_t all)
{
    const af_attn *a = p->a;
    const int64_t len = length_of(a, s), cost = cost_of(a, s),
                  n = AF_MIN(AF_MAX((2 * cost * WANTED + all) / (2 * all), INT64_C(1)),
                             most_parts(a->K));
    const int64_t first = p->count;
    for (int64_t at = 0, done = 0; at < len; p->count++) {
        af_part *x = &p->part[p->count];
        *x = next_part(a, s, at, done, cost, p->count - first, n);
        at = x->to;
        done += x->cost;
    }
    const int64_t of = p->count - first;
    for (int64_t i = 0; i < of * a->K; i++) {
        p->part[first + i] = p->part[first + i % of];
        p->part[first + i].kv = i / of;
        p->part[first + i].of = of;
    }
    p->count = first + of * a->K;
}

/* Finds the memory of the heads that are at work at once, and their order: long parts first. */
static void begin_heads(af_parts *p)
{
    float *sums = p->sums;
    int64_t most = 0, n = p->begin;
    p->rows = 0;
    for (int64_t i = p->begin; i < p->end; i++) {
        af_part *x = &p->part[i];
        const int64_t size = padded(x->keys) * p->width;
        x->row = p->rows;
        x->dk = x->of > 1 ? sums : NULL;
        x->dv = x->of > 1 ? sums + size : NULL;
        sums += x->of > 1 ? 2 * size : 0;
        most = AF_MAX(most, x->cost);
        if (x->index == x->of - 1)
            p->rows += padded(length_of(p->a, x->seq));
    }
    assert(sums <= p->sums_end);
    for (int64_t class = CLASSES; class -- > 0;)
        for (int64_t i = p->begin; i < p->end; i++)
            if (p->part[i].cost * CLASSES / (most + 1) == class)
                p->order[n++] = (int32_t)i;
}

static void take_parts(void *arg, int64_t from, int64_t to, int share)
{
    af_parts *p = arg;
    int64_t i;
    (void)from, (void)to;
    while ((i = atomic_fetch_add(&p->next, 1)) < p->end)
        p->run(p->arg, &p->part[p->order[i]], share);
}

typedef void head_rows(const af_parts *p, const af_part *first, int64_t from, int64_t to);

/* Items [from, to) of AF_PART_ROWS keys of the heads at work. */
static void each_head(const af_parts *p, int64_t from, int64_t to, head_rows *todo)
{
    for (int64_t i = p->begin; i < p->end; i += p->part[i].of) {
        const af_part *x = &p->part[i];
        const int64_t len = length_of(p->a, x->seq), at = x->row / AF_PART_ROWS,
                      first = AF_MAX(from - at, INT64_C(0)) * AF_PART_ROWS,
                      end = AF_MIN((to - at) * AF_PART_ROWS, len);
        if (first < end)
            todo(p, x, first, end);
    }
}

static void ready_head(const af_parts *p, const af_part *first, int64_t from, int64_t to)
{
    p->ready(p->arg, first, from, to);
}
static void ready_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    each_head(arg, from, to, ready_head);
}

static void put_rows(const af_parts *p, const float *x, float factor, int64_t row, int64_t rows,
                     int64_t head)
{
    const af_attn *a = p->a;
    const af_tensor *y = a->n->out[0];
    for (int64_t i = 0; i < rows; i++, x += p->width) {
        const int64_t at = (row + i) * a->width + head * a->E;
        if (y->dtype == AF_DTYPE_F32)
            a->f->scale((float *)y->data + at, factor, x, a->E);
        else
            a->f->scale_half((uint16_t *)y->data + at, x, factor, 0, a->E);
    }
}

void af_parts_put(const af_parts *p, const af_part *x, int64_t from, int64_t to, const float *dk,
                  const float *dv)
{
    const af_attn *a = p->a;
    const int64_t row = a->bounds[x->seq] + from;
    put_rows(p, dk, p->factor, row, to - from, a->H + x->kv);
    put_rows(p, dv, 1, row, to - from, a->H + a->K + x->kv);
}

/* Keys [from, to) of a head that was cut: what all parts have of them, into the first that has. */
static void sum_head(const af_parts *p, const af_part *first, int64_t from, int64_t to)
{
    const af_fast *f = p->a->f;
    for (int64_t n; first->of > 1 && from < to; from += n) {
        float *dk = NULL, *dv = NULL;
        n = AF_MIN((int64_t)AF_PART_ROWS, to - from);
        for (const af_part *x = first; x < first + first->of; x++) {
            const int64_t at = (from - x->key) * p->width;
            if (from < x->key || from >= x->key + x->keys)
                continue;
            if (dk) {
                f->add(dk, dk, x->dk + at, n * p->width);
                f->add(dv, dv, x->dv + at, n * p->width);
            } else {
                dk = x->dk + at;
                dv = x->dv + at;
            }
        }
        assert(dk); /* a query sees its own key */
        af_parts_put(p, first, from, from + n, dk, dv);
    }
}
static void sum_rows(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    each_head(arg, from, to, sum_head);
}

/* One thread takes head after head: their sums are still in its cache when they are added. */
void af_parts_run(af_parts *p, af_pool *pool, void *memory)
{
    const int threads = af_pool_threads(pool);
    const af_attn *a = p->a;
    int64_t all = 0;
    p->part = memory;
    p->order = (int32_t *)(p->part + WANTED + a->S * a->K);
    p->sums = (float *)((uint8_t *)memory + table_bytes(a->n));
    p->sums_end = (float *)((uint8_t *)memory + af_parts_bytes(a->n, p->width, threads));
    p->count = 0;
    for (int64_t s = 0; s < a->S; s++)
        all += cost_of(a, s) * a->K;
    for (int64_t s = 0; s < a->S; s++)
        if (length_of(a, s) > 0)
            cut_sequence(p, s, all);
    for (p->begin = 0; p->begin < p->count; p->begin = p->end) {
        p->end = threads == 1 ? p->begin + p->part[p->begin].of : p->count;
        begin_heads(p);
        atomic_store(&p->next, p->begin);
        if (p->ready)
            af_pool_run(pool, p->rows / AF_PART_ROWS, ready_rows, p);
        af_pool_run(pool, threads, take_parts, p);
        af_pool_run(pool, p->rows / AF_PART_ROWS, sum_rows, p);
    }
}
