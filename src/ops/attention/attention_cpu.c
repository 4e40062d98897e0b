/* attention_cpu.c - the twins of attention.c.
 *
 * One item of work is one kv head of one sequence: its keys and values are read once into the
 * thread's scratch, every query head of its group passes over them, and in the backward its dk and
 * dv are summed there, queries in order. So no two threads share an output. */
#include "backend/cpu/cpu.h"
#include "ops/attention/attention_in.h"

#include <math.h>

typedef struct attn_job {
    const af_node *n;
    af_attention_inputs in;
    const int32_t *bounds, *start;
    int64_t scratch; /* doubles of one thread */
    double *work;
} attn_job;

/* Keys [from, to) that the query at position q may see. */
static void visible(const af_node *n, int64_t q, int64_t len, int64_t *from, int64_t *to)
{
    const int window = n->attr.attention.window, chunk = n->attr.attention.chunk;
    *from = chunk ? q / chunk * chunk : window && q - window + 1 > 0 ? q - window + 1 : 0;
    *to = n->attr.attention.causal ? q + 1 : len;
}

static double score(const af_node *n, const double *q, const double *k, int64_t E)
{
    double s = 0;
    for (int64_t e = 0; e < E; e++)
        s += q[e] * k[e];
    s *= n->attr.attention.scale;
    const double cap = n->attr.attention.softcap;
    return cap > 0 ? cap * tanh(s / cap) : s;
}

/* o = softmax(q k) v over keys [from, to); p: scratch for the scores. Returns log sum exp. */
static double attend(const af_node *n, const double *q, const double *k, const double *v, int64_t E,
                     int64_t from, int64_t to, double *p, double *o)
{
    double max = -INFINITY, sum = 0;
    for (int64_t i = from; i < to; i++) {
        p[i] = score(n, q, k + i * E, E);
        max = fmax(max, p[i]);
    }
    memset(o, 0, (size_t)E * sizeof *o);
    for (int64_t i = from; i < to; i++) {
        const double w = exp(p[i] - max);
        sum += w;
        for (int64_t e = 0; e < E; e++)
            o[e] += w * v[i * E + e];
    }
    for (int64_t e = 0; e < E; e++)
        o[e] /= sum;
    return max + log(sum);
}

/* Head `head` (of q, k or v, counted through the row) of `len` rows from `row`, as [len][E]. */
static void load_head(const attn_job *a, int64_t head, int64_t row, int64_t len, double *out)
{
    for (int64_t i = 0; i < len; i++)
        af_ld_row(a->in.qkv, (row + i) * a->in.width + head * a->in.E, a->in.E, out + i * a->in.E);
}

static void forward_item(const attn_job *a, int64_t s, int64_t kv, double *w)
{
    const int64_t E = a->in.E, row = a->bounds[s], len = a->bounds[s + 1] - row,
                  group = a->in.H / a->in.K;
    double *k = w, *v = k + len * E, *p = v + len * E, *q = p + len, *o = q + E;
    int64_t from, to;
    load_head(a, a->in.H + kv, row, len, k);
    load_head(a, a->in.H + a->in.K + kv, row, len, v);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < len; i++) {
            load_head(a, h, row + i, 1, q);
            visible(a->n, i, len, &from, &to);
            af_st(a->n->out[1], (row + i) * a->in.H + h, attend(a->n, q, k, v, E, from, to, p, o));
            af_st_row(a->n->out[0], ((row + i) * a->in.H + h) * E, E, o);
        }
}

/* One query of the backward: adds to dk, dv, gives dq. */
static void backward_query(const attn_job *a, int64_t row, int64_t i, int64_t len, int64_t h,
                           const double *k, const double *v, double *dk, double *dv, double *s)
{
    const int64_t E = a->in.E, at = ((row + i) * a->in.H + h) * E;
    const double lse = af_ld(a->in.lse, (row + i) * a->in.H + h),
                 cap = a->n->attr.attention.softcap;
    double *q = s, *go = q + E, *o = go + E, *dq = o + E, delta = 0;
    int64_t from, to;
    load_head(a, h, row + i, 1, q);
    af_ld_row(a->in.o, at, E, o);
    af_ld_row(a->in.dy, at, E, go);
    for (int64_t e = 0; e < E; e++)
        delta += go[e] * o[e];
    memset(dq, 0, (size_t)E * sizeof *dq);
    visible(a->n, i, len, &from, &to);
    for (int64_t j = from; j < to; j++) {
        const double x = score(a->n, q, k + j * E, E), p = exp(x - lse);
        double dp = 0;
        for (int64_t e = 0; e < E; e++) {
            dp += go[e] * v[j * E + e];
            dv[j * E + e] += p * go[e];
        }
        double ds = p * (dp - delta) * a->n->attr.attention.scale;
        if (cap > 0)
            ds *= 1.0 - (x / cap) * (x / cap);
        for (int64_t e = 0; e < E; e++) {
            dq[e] += ds * k[j * E + e];
            dk[j * E + e] += ds * q[e];
        }
    }
    af_st_row(a->n->out[0], (row + i) * a->in.width + h * E, E, dq);
}

static void backward_item(const attn_job *a, int64_t s, int64_t kv, double *w)
{
    const int64_t E = a->in.E, row = a->bounds[s], len = a->bounds[s + 1] - row,
                  group = a->in.H / a->in.K;
    double *k = w, *v = k + len * E, *dk = v + len * E, *dv = dk + len * E, *small = dv + len * E;
    load_head(a, a->in.H + kv, row, len, k);
    load_head(a, a->in.H + a->in.K + kv, row, len, v);
    memset(dk, 0, (size_t)(2 * len * E) * sizeof *dk);
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < len; i++)
            backward_query(a, row, i, len, h, k, v, dk, dv, small);
    for (int64_t i = 0; i < len; i++) {
        const int64_t at = (row + i) * a->in.width + (a->in.H + kv) * E;
        af_st_row(a->n->out[0], at, E, dk + i * E);
        af_st_row(a->n->out[0], at + a->in.K * E, E, dv + i * E);
    }
}

static void cached_item(const attn_job *a, int64_t s, int64_t kv, double *w)
{
    const int64_t E = a->in.E, row = a->bounds[s], len = a->bounds[s + 1] - row,
                  group = a->in.H / a->in.K;
    const int64_t start = a->start[s], total = start + len;
    double *k = w, *v = k + total * E, *p = v + total * E, *q = p + total, *o = q + E;
    int64_t from, to;
    assert(len == 0 || (start >= 0 && total <= af_cache_length(&a->in)));
    for (int64_t i = 0; i < total && len > 0; i++) {
        const int64_t at = (af_cache_row(&a->in, s, i) * 2 * a->in.K + kv) * E;
        if (i >= start) { /* new: stored first, then read back as the cache's type keeps it */
            load_head(a, a->in.H + kv, row + i - start, 1, k + i * E);
            load_head(a, a->in.H + a->in.K + kv, row + i - start, 1, v + i * E);
            af_st_row((af_tensor *)a->in.cache, at, E, k + i * E);
            af_st_row((af_tensor *)a->in.cache, at + a->in.K * E, E, v + i * E);
        }
        af_ld_row(a->in.cache, at, E, k + i * E);
        af_ld_row(a->in.cache, at + a->in.K * E, E, v + i * E);
    }
    for (int64_t h = kv * group; h < (kv + 1) * group; h++)
        for (int64_t i = 0; i < len; i++) {
            load_head(a, h, row + i, 1, q);
            visible(a->n, start + i, total, &from, &to);
            const double lse = attend(a->n, q, k, v, E, from, AF_MIN(to, start + i + 1), p, o);
            if (a->n->n_out > 1) /* sinks follow */
                af_st(a->n->out[1], (row + i) * a->in.H + h, lse);
            af_st_row(a->n->out[0], ((row + i) * a->in.H + h) * E, E, o);
        }
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const attn_job *a = arg;
    double *w = a->work + share * a->scratch;
    for (int64_t i = from; i < to; i++) {
        if (a->n->op == AF_OP_ATTENTION)
            forward_item(a, i / a->in.K, i % a->in.K, w);
        else if (a->n->op == AF_OP_ATTENTION_BWD)
            backward_item(a, i / a->in.K, i % a->in.K, w);
        else
            cached_item(a, i / a->in.K, i % a->in.K, w);
    }
}

static int64_t scratch_of(const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    const int64_t keys = in.cache ? af_cache_length(&in) : in.qkv->dim[0];
    return keys * (4 * in.E + 1) + 4 * in.E;
}

/* Rows outside every sequence. */
static void zero_rows(const af_node *n, int64_t from, int64_t to)
{
    for (int k = 0; k < n->n_out; k++) {
        const int64_t w = af_last(n->out[k]);
        for (int64_t i = from * w; i < to * w; i++)
            af_st(n->out[k], i, 0);
    }
}

static void attention_run(const af_node *n, af_cpu *cpu)
{
    attn_job a = {.n = n, .in = af_attention_in(n), .work = cpu->work, .scratch = scratch_of(n)};
    a.start = a.in.start ? a.in.start->data : NULL;
    a.bounds = af_attention_bounds(&a.in);
    const int64_t N = af_live(a.in.qkv);
    zero_rows(n, 0, a.bounds[0]);
    zero_rows(n, a.bounds[a.in.S], N);
    af_pool_run(cpu->pool, a.in.S * a.in.K, items, &a);
}

static uint64_t attention_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)scratch_of(n) * sizeof(double);
}

const af_cpu_op af_cpu_attention = {attention_run, attention_work};
const af_cpu_op af_cpu_attention_bwd = {attention_run, attention_work};
const af_cpu_op af_cpu_attention_cached = {attention_run, attention_work};
