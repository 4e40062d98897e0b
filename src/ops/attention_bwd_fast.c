/* attention_bwd_fast.c - the gradient of attention.c in the blocks of attention_fast.c.
 *
 * One item of work is one kv head of one sequence: its dk and dv are summed in the thread's scratch
 * over the query heads of the group (a few at a time, stacked) and their blocks in order, so no two
 * threads share an output. Probabilities are made again from the stored log sums. */
#include "ops/attention_fast.h"
#include "ops/attention_tiles.h"

#include <math.h>

enum { BLOCK = AF_ATTN_ROWS * AF_ATTN_K };

/* s, dp: blocks of f32; two bf16 copies; dq of a block, its q and do; delta; two rows; dk and dv of
 * a whole sequence */
static int64_t share_floats(const af_node *n)
{
    const int64_t E = n->attr.attention.head_dim, N = n->in[0]->dim[0];
    return 2 * BLOCK + BLOCK + AF_ATTN_ROWS * (3 * E + 1) + 2 * E + 2 * N * E + 16;
}

typedef struct seat {
    float *s, *dp, *dq, *q, *go, *delta, *rows, *dk, *dv;
    uint16_t *p16, *ds16;
    void *work;
} seat;

static seat seat_of(const af_attn *a, int share)
{
    float *w = (float *)((uint8_t *)a->work + (uint64_t)share * a->share_bytes);
    seat t = {.s = w, .dp = w + BLOCK, .p16 = (uint16_t *)(w + 2 * BLOCK)};
    t.ds16 = t.p16 + BLOCK;
    t.dq = w + 3 * BLOCK;
    t.q = t.dq + AF_ATTN_ROWS * a->E;
    t.go = t.q + AF_ATTN_ROWS * a->E;
    t.delta = t.go + AF_ATTN_ROWS * a->E;
    t.rows = t.delta + AF_ATTN_ROWS;
    t.dk = t.rows + 2 * a->E;
    t.dv = t.dk + a->n->in[0]->dim[0] * a->E;
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
static void row_gradient(const af_attn *a, seat *t, int64_t q, int64_t len, int64_t at, int64_t n,
                         int64_t i, float lse)
{
    const float cap = (float)a->n->attr.attention.softcap;
    float *s = t->s + i * n, *dp = t->dp + i * n;
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

/* One block of m queries of `heads` heads from h: its dq, and its share of dk and dv. */
static void query_block(const af_attn *a, seat *t, int64_t row, int64_t len, int64_t i, int64_t m,
                        int64_t h, int64_t heads)
{
    const int64_t E = a->E, kv = h / (a->H / a->K), M = m * heads;
    const af_operand k = af_attn_head(a, a->H + kv, row),
                     v = af_attn_head(a, a->H + a->K + kv, row),
                     q = af_attn_stack(a, a->qkv, a->width, row + i, m, h, heads, t->q),
                     go = af_attn_stack(a, a->n->in[4], a->H * E, row + i, m, h, heads, t->go);
    const float *lse = (const float *)a->n->in[3]->data + (row + i) * a->H + h;
    int64_t from, to, unused;
    for (int64_t r = 0; r < M; r++)
        t->delta[r] =
            a->f->dot(head_row(a, a->n->in[2], h + r / m, row + i + r % m, t->rows),
                      head_row(a, a->n->in[4], h + r / m, row + i + r % m, t->rows + E), E);
    af_attn_visible(a->n, i, len, &from, &unused);
    af_attn_visible(a->n, i + m - 1, len, &unused, &to);
    memset(t->dq, 0, (size_t)(M * E) * sizeof *t->dq);
    for (int64_t at = from; at < to; at += AF_ATTN_K) {
        const int64_t n = AF_MIN((int64_t)AF_ATTN_K, to - at);
        af_attn_product(a, q, at_row(k, at, true), M, n, E, t->s, n, af_attn_before(a), false,
                        t->work);
        af_attn_product(a, go, at_row(v, at, true), M, n, E, t->dp, n, 1, false, t->work);
        for (int64_t r = 0; r < M; r++)
            row_gradient(a, t, i + r % m, len, at, n, r, lse[r % m * a->H + r / m]);
        af_operand p = af_attn_sums(a, t->s, t->p16, M * n, n),
                   ds = af_attn_sums(a, t->dp, t->ds16, M * n, n);
        af_attn_product(a, ds, at_row(k, at, false), M, E, n, t->dq, E, 1, true, t->work);
        p.trans = ds.trans = true;
        af_attn_product(a, p, go, n, E, M, t->dv + at * E, E, 1, true, t->work);
        af_attn_product(a, ds, q, n, E, M, t->dk + at * E, E, 1, true, t->work);
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

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const af_attn *a = arg;
    seat t = seat_of(a, share);
    const int64_t group = a->H / a->K;
    for (int64_t item = from; item < to; item++) {
        const int64_t s = item / a->K, kv = item % a->K, row = a->bounds[s],
                      len = a->bounds[s + 1] - row;
        memset(t.dk, 0, (size_t)(len * a->E) * sizeof *t.dk);
        memset(t.dv, 0, (size_t)(len * a->E) * sizeof *t.dv);
        for (int64_t h = kv * group; h < (kv + 1) * group; h += AF_ATTN_HEADS)
            for (int64_t i = 0; i < len; i += AF_ATTN_Q) {
                const int64_t m = AF_MIN((int64_t)AF_ATTN_Q, len - i),
                              heads = AF_MIN((int64_t)AF_ATTN_HEADS, (kv + 1) * group - h);
                query_block(a, &t, row, len, i, m, h, heads);
                for (int64_t k = 0; k < heads; k++)
                    put_rows(a, t.dq + k * m * a->E, row + i, m, h + k);
            }
        put_rows(a, t.dk, row, len, a->H + kv);
        put_rows(a, t.dv, row, len, a->H + a->K + kv);
    }
}

static void attention_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_attn a = af_attn_of(n, cpu, share_floats(n));
    af_attn_zero_rows(&a);
    af_pool_run(cpu->pool, a.S * a.K, items, &a);
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * af_attn_share_bytes(share_floats(n));
}

static const af_cpu_op bwd_op = {attention_bwd_run, work};

const af_cpu_op *af_attention_bwd_fast(const af_node *n)
{
    const af_cpu_op *tiles = af_attention_bwd_tiles(n);
    if (tiles)
        return tiles;
    return af_fast_type(n->in[0]) && af_fast_type(n->in[4]) ? &bwd_op : NULL;
}
