/* attention_bwd_fast.c - the gradient of attention.c in the blocks of attention_fast.c.
 *
 * One item of work is a part of a kv head of one sequence (attention_parts.h): its dk and dv are
 * summed over the query heads of the group (a few at a time, stacked) and their blocks in order.
 * Probabilities are made again from the stored log sums. */
#include "ops/attention/attention_parts.h"
#include "ops/attention/attention_plain.h"
#include "ops/attention/attention_tiles.h"

#include <math.h>

enum { BLOCK = AF_ATTN_ROWS * AF_ATTN_LD };

/* s, dp: blocks of f32; two bf16 copies; dq of a block, its q and do; delta; two rows; dk and dv of
 * a whole sequence */
static int64_t share_floats(const af_node *n)
{
    const int64_t E = n->attr.attention.head_dim, N = af_attn_padded(n->in[0]->dim[0]);
    return 2 * BLOCK + BLOCK + AF_ATTN_ROWS * (3 * E + 1) + 2 * E + 2 * N * E + 16;
}

typedef struct bwd_buffers {
    float *s, *dp, *dq, *q, *go, *delta, *rows, *dk, *dv;
    uint16_t *p16, *ds16;
    void *work;
    const af_part *part; /* dk and dv: from its first key on */
    int64_t done;        /* keys before this have sums */
    const float *plain;  /* its head's keys, values and keys again (keys_of), or NULL */
    int64_t ld;          /* of s and dp */
} bwd_buffers;

static bwd_buffers buffers_of(const af_attn *a, int share)
{
    float *w = (float *)((uint8_t *)a->work + (uint64_t)share * a->share_bytes);
    bwd_buffers t = {.s = w, .dp = w + BLOCK, .p16 = (uint16_t *)(w + 2 * BLOCK)};
    t.ds16 = t.p16 + BLOCK;
    t.dq = w + 3 * BLOCK;
    t.q = t.dq + AF_ATTN_ROWS * a->E;
    t.go = t.q + AF_ATTN_ROWS * a->E;
    t.delta = t.go + AF_ATTN_ROWS * a->E;
    t.rows = t.delta + AF_ATTN_ROWS;
    t.dk = t.rows + 2 * a->E;
    t.dv = t.dk + af_attn_padded(a->n->in[0]->dim[0]) * a->E;
    t.work = w + a->share;
    return t;
}

static const float *head_row(const af_attn *a, const af_tensor *t, int64_t h, int64_t row,
                             float *buf)
{
    const int64_t at = (row * a->H + h) * a->E;
    if (t->dtype == AF_DTYPE_F32)
        return (const float *)t->data + at;
    a->f->to_f32(buf, (const uint16_t *)t->data + at, a->E);
    return buf;
}

/* Row i of a block of scores: p in s, ds in dp, zero where the query does not see. */
static void row_gradient(const af_attn *a, bwd_buffers *t, int64_t q, int64_t len, int64_t at,
                         int64_t n, int64_t i, float lse)
{
    const float cap = (float)a->n->attr.attention.softcap;
    float *s = t->s + i * t->ld, *dp = t->dp + i * t->ld;
    int64_t from, to;
    af_attn_visible(a->n, q, len, &from, &to);
    from = AF_MIN(AF_MAX(from - at, INT64_C(0)), n);
    to = AF_MAX(AF_MIN(to - at, n), from);
    memset(s, 0, (size_t)from * sizeof *s);
    memset(dp, 0, (size_t)from * sizeof *dp);
    memset(s + to, 0, (size_t)(n - to) * sizeof *s);
    memset(dp + to, 0, (size_t)(n - to) * sizeof *dp);
    float kept[AF_ATTN_K]; /* the capped scores */
    if (cap > 0) {
        a->f->softcap(s + from, s + from, cap, to - from);
        memcpy(kept, s + from, (size_t)(to - from) * sizeof *s);
    }
    a->f->exp_sum(s + from, s + from, af_attn_after(a), lse, to - from);
    a->f->softmax_bwd(dp + from, s + from, dp + from, kept, t->delta[i],
                      (float)a->n->attr.attention.scale, cap, to - from);
}

static af_operand at_row(af_operand o, int64_t rows, bool trans)
{
    o.data = (const uint8_t *)o.data + rows * o.ld * (int64_t)af_dtype_get(o.dtype)->bytes;
    o.trans = trans;
    return o;
}

/* Whether sums of keys [from, to) are added to what is there, and zeros where nothing is yet. */
static bool begin_sums(const af_attn *a, bwd_buffers *t, int64_t from, int64_t to)
{
    const int64_t key = t->part->key, E = a->E;
    const bool first = t->done == key;
    const int64_t zero = first ? key : t->done, end = first ? from : to;
    if (end > zero) {
        memset(t->dk + (zero - key) * E, 0, (size_t)((end - zero) * E) * sizeof *t->dk);
        memset(t->dv + (zero - key) * E, 0, (size_t)((end - zero) * E) * sizeof *t->dv);
    }
    t->done = AF_MAX(t->done, to);
    return !first;
}

/* A block of queries: `each` rows of some heads, M in all, and what they are multiplied with. */
typedef struct bwd_query_block {
    af_operand q, go, k, v;
    int64_t M, each, first; /* first: position of the first query */
} bwd_query_block;

/* Scores of keys [at, at+n), and go v. */
static void make_scores(const af_attn *a, bwd_buffers *t, const bwd_query_block *b, int64_t at,
                        int64_t n)
{
    t->ld = n;
    af_attn_product(a, b->q, at_row(b->k, at, true), b->M, n, a->E, t->s, n, af_attn_before(a),
                    false, t->work);
    af_attn_product(a, b->go, at_row(b->v, at, true), b->M, n, a->E, t->dp, n, 1, false, t->work);
}

/* What the gradients of these scores add to dq, dv and dk; the first of dq, and unless `add` those
 * of the others, are set. */
static void add_gradients(const af_attn *a, bwd_buffers *t, const bwd_query_block *b, int64_t at,
                          int64_t n, bool first, bool add)
{
    const int64_t E = a->E, M = b->M, sum = (at - t->part->key) * E;
    af_operand p = af_attn_sums(a, t->s, t->p16, M * n, n),
               ds = af_attn_sums(a, t->dp, t->ds16, M * n, n);
    af_attn_product(a, ds, at_row(b->k, at, false), M, E, n, t->dq, E, 1, !first, t->work);
    p.trans = ds.trans = true;
    af_attn_product(a, p, b->go, n, E, M, t->dv + sum, E, 1, add, t->work);
    af_attn_product(a, ds, b->q, n, E, M, t->dk + sum, E, 1, add, t->work);
}

static int64_t length_of(const af_attn *a, const bwd_buffers *t)
{
    return a->bounds[t->part->seq + 1] - a->bounds[t->part->seq];
}

/* The same two of what lies in t->plain: a few rows of one head at a time, with the keys that these
 * see. */
static void plain_scores(const af_attn *a, bwd_buffers *t, const bwd_query_block *b, int64_t at,
                         int64_t n)
{
    const int64_t E = a->E, len = length_of(a, t), keys = af_attn_padded(len);
    t->ld = AF_ATTN_LD;
    for (int64_t i = 0, m; i < b->M; i += m) {
        const int64_t row = i % b->each;
        m = AF_MIN((int64_t)AF_ATTN_FEW, b->each - row);
        const int64_t seen = af_attn_seen(a, b->first + row + m - 1, len, at, n),
                      to = i * AF_ATTN_LD;
        af_plain_scores(a, t->q + i * E, t->plain + at * E, m, seen, t->s + to);
        af_plain_scores(a, t->go + i * E, t->plain + (keys + at) * E, m, seen, t->dp + to);
    }
}

static void plain_gradients(const af_attn *a, bwd_buffers *t, const bwd_query_block *b, int64_t at,
                            int64_t n, bool first, bool add)
{
    const int64_t E = a->E, len = length_of(a, t), keys = af_attn_padded(len),
                  sum = (at - t->part->key) * E;
    const float *rows = t->plain + 2 * keys * E + at * AF_SMALL_COLS;
    for (int64_t i = 0, m; i < b->M; i += m) {
        const int64_t row = i % b->each;
        m = AF_MIN((int64_t)AF_ATTN_FEW, b->each - row);
        const int64_t seen = af_attn_seen(a, b->first + row + m - 1, len, at, n);
        af_plain_weigh(a, t->dp + i * AF_ATTN_LD, rows, m, seen, keys, t->dq + i * E, !first);
    }
    af_plain_gather(a, t->s, t->go, b->M, n, t->dv + sum, add);
    af_plain_gather(a, t->dp, t->q, b->M, n, t->dk + sum, add);
}

/* One block of m queries of `heads` heads from h: its dq, and its share of dk and dv. */
static void query_block(const af_attn *a, bwd_buffers *t, int64_t row, int64_t len, int64_t i,
                        int64_t m, int64_t h, int64_t heads)
{
    const int64_t E = a->E, kv = h / (a->H / a->K), M = m * heads;
    const bwd_query_block b = {
        .q = af_attn_stack(a, a->qkv, a->width, row + i, m, h, heads, t->q),
        .go = af_attn_stack(a, a->in.dy, a->H * E, row + i, m, h, heads, t->go),
        .k = af_attn_head(a, a->H + kv, row),
        .v = af_attn_head(a, a->H + a->K + kv, row),
        .M = M,
        .each = m,
        .first = i,
    };
    const float *lse = (const float *)a->in.lse->data + (row + i) * a->H + h;
    int64_t from, to, unused;
    for (int64_t r = 0; r < M; r++)
        t->delta[r] = a->f->dot(head_row(a, a->in.o, h + r / m, row + i + r % m, t->rows),
                                head_row(a, a->in.dy, h + r / m, row + i + r % m, t->rows + E), E);
    af_attn_visible(a->n, i, len, &from, &unused);
    af_attn_visible(a->n, i + m - 1, len, &unused, &to);
    from = t->plain ? from / AF_SMALL_COLS * AF_SMALL_COLS : from;
    const bool add = begin_sums(a, t, from, to);
    for (int64_t at = from; at < to; at += AF_ATTN_K) {
        const int64_t n = AF_MIN((int64_t)AF_ATTN_K, to - at),
                      wide = t->plain ? af_attn_padded(n) : n;
        (t->plain ? plain_scores : make_scores)(a, t, &b, at, n);
        for (int64_t r = 0; r < M; r++)
            row_gradient(a, t, i + r % m, len, at, wide, r, lse[r % m * a->H + r / m]);
        (t->plain ? plain_gradients : add_gradients)(a, t, &b, at, n, at == from, add);
    }
}

static void put_rows(const af_attn *a, const float *x, int64_t row, int64_t rows, int64_t head)
{
    const af_tensor *y = a->n->out[0];
    for (int64_t i = 0; i < rows; i++) {
        const int64_t at = (row + i) * a->width + head * a->E;
        if (y->dtype == AF_DTYPE_F32)
            memcpy((float *)y->data + at, x + i * a->E, (size_t)a->E * sizeof *x);
        else
            a->f->to_bf16((uint16_t *)y->data + at, x + i * a->E, a->E);
    }
}

typedef struct attn_bwd_fast_job {
    af_attn a;
    af_parts parts;
    float *plain; /* of all heads at work, or NULL */
} attn_bwd_fast_job;

/* [keys] of k as columns, of v as columns, of k as rows */
static float *keys_of(const attn_bwd_fast_job *j, const af_part *p)
{
    return j->plain ? j->plain + 3 * p->row * j->a.E : NULL;
}

static void ready_keys(void *arg, const af_part *p, int64_t from, int64_t to)
{
    const attn_bwd_fast_job *j = arg;
    const af_attn *a = &j->a;
    const int64_t row = a->bounds[p->seq], keys = af_attn_padded(a->bounds[p->seq + 1] - row);
    const float *k = af_attn_head(a, a->H + p->kv, row).data,
                *v = af_attn_head(a, a->H + a->K + p->kv, row).data;
    float *x = keys_of(j, p);
    af_attn_columns(a, x, k, from, to);
    af_attn_columns(a, x + keys * a->E, v, from, to);
    af_attn_rows(a, x + 2 * keys * a->E, k, from, to, keys);
}

static void run_part(void *arg, const af_part *x, int share)
{
    const attn_bwd_fast_job *j = arg;
    const af_attn *a = &j->a;
    bwd_buffers t = buffers_of(a, share);
    const int64_t row = a->bounds[x->seq], len = a->bounds[x->seq + 1] - row, group = a->H / a->K,
                  end = (x->kv + 1) * group;
    t.part = x;
    t.done = x->key;
    t.plain = keys_of(j, x);
    t.dk = x->dk ? x->dk : t.dk;
    t.dv = x->dv ? x->dv : t.dv;
    for (int64_t h = x->kv * group; h < end; h += AF_ATTN_HEADS)
        for (int64_t i = x->from; i < x->to; i += AF_ATTN_Q) {
            const int64_t m = AF_MIN((int64_t)AF_ATTN_Q, len - i),
                          heads = AF_MIN((int64_t)AF_ATTN_HEADS, end - h);
            query_block(a, &t, row, len, i, m, h, heads);
            for (int64_t k = 0; k < heads; k++)
                put_rows(a, t.dq + k * m * a->E, row + i, m, h + k);
        }
    if (!x->dk)
        af_parts_put(&j->parts, x, 0, len, t.dk, t.dv);
}

static uint64_t shares_bytes(const af_node *n, int threads)
{
    return AF_ALIGN_UP((uint64_t)threads * af_attn_share_bytes(share_floats(n)), UINT64_C(64));
}

static uint64_t plain_bytes(const af_node *n, int threads)
{
    const int64_t floats = 3 * af_parts_rows(n, threads) * n->attr.attention.head_dim;
    return af_attn_is_plain(n) ? AF_ALIGN_UP((uint64_t)floats * sizeof(float), UINT64_C(64)) : 0;
}

static void attention_bwd_run(const af_node *n, af_cpu *cpu)
{
    const int threads = af_pool_threads(cpu->pool);
    uint8_t *rest = (uint8_t *)cpu->work + shares_bytes(n, threads);
    attn_bwd_fast_job j = {.a = af_attn_of(n, cpu, share_floats(n))};
    j.plain = af_attn_is_plain(n) ? (float *)rest : NULL;
    j.parts.a = &j.a;
    j.parts.width = j.a.E;
    j.parts.factor = 1;
    j.parts.ready = j.plain ? ready_keys : NULL;
    j.parts.run = run_part;
    j.parts.arg = &j;
    af_attn_zero_rows(&j.a);
    af_parts_run(&j.parts, cpu->pool, rest + plain_bytes(n, threads));
}

static uint64_t work(const af_node *n, int threads)
{
    return shares_bytes(n, threads) + plain_bytes(n, threads) +
           af_parts_bytes(n, n->attr.attention.head_dim, threads);
}

static const af_cpu_op bwd_op = {attention_bwd_run, work};

const af_cpu_op *af_attention_bwd_fast(const af_node *n)
{
    const af_cpu_op *tiles = af_attention_bwd_tiles(n);
    if (tiles)
        return tiles;
    return af_fast_type(n->in[0]) && af_fast_type(af_attention_in(n).dy) ? &bwd_op : NULL;
}
