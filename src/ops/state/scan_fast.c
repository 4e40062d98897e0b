/* scan_fast.c - scan.c by chunks of 64 rows in f32: forward, and with a carried state.
 *
 * One item of work is one head of one sequence; its chunks follow one another. Every product is a
 * sum in a fixed order, so threads do not change results. */
#include "ops/state/scan_chunk.h"

#include <math.h>

int64_t af_scan_chunk_floats(const af_scan_inputs *in)
{
    return AF_CHUNK * (3 * in->K + 3 * in->V + 2 * AF_CHUNK + 6) + AF_MAX(in->K, in->V);
}

void af_scan_chunk_place(af_scan_chunk *c, const af_scan_inputs *in, float *at)
{
    const struct {
        float **to;
        int64_t floats;
    } parts[] = {{&c->q, in->K}, {&c->k, in->K},     {&c->k_t, in->K},      {&c->v, in->V},
                 {&c->d, in->V}, {&c->error, in->V}, {&c->score, AF_CHUNK}, {&c->m, AF_CHUNK},
                 {&c->G, 1},     {&c->eG, 1},        {&c->beta, 1},         {&c->to_end, 1},
                 {&c->length, 2}};
    for (size_t i = 0; i < AF_LEN(parts); i++) {
        *parts[i].to = at;
        at += AF_CHUNK * parts[i].floats;
    }
    c->row_buf = at;
}

/* x / sqrt(sum x^2 + 1e-6) * factor; gives what x was divided by, inverted. */
static float normalise(const af_fast *f, float *x, int64_t n, float factor)
{
    const float r = (float)(1.0 / sqrt((double)f->sum_squares(x, n) + 1e-6));
    f->scale(x, r * factor, x, n);
    return r;
}

/* score and m, from exp(G[t] - G[i]). */
static void chunk_scores(const af_scan_job *j, af_scan_chunk *c)
{
    const int64_t K = j->in.K;
    for (int64_t t = 0; t < c->len; t++)
        for (int64_t i = 0; i <= t; i++) {
            const float a = expf(c->G[t] - c->G[i]);
            c->score[t * AF_CHUNK + i] = a * j->f->dot(c->q + t * K, c->k + i * K, K);
            if (j->delta && i < t)
                c->m[t * AF_CHUNK + i] = c->beta[t] * a * j->f->dot(c->k + t * K, c->k + i * K, K);
        }
}

void af_scan_chunk_load(const af_scan_job *j, af_scan_chunk *c, int64_t row, int64_t len, int64_t h)
{
    const af_scan_inputs *in = &j->in;
    const int64_t K = in->K, V = in->V, kh = h / (in->H / in->J);
    double G = 0;
    c->row = row;
    c->len = len;
    c->h = h;
    for (int64_t t = 0; t < len; t++) {
        const int64_t at = (row + t) * in->width;
        af_scan_load(j, in->x, at + in->q_from + kh * K, K, c->q + t * K);
        af_scan_load(j, in->x, at + in->k_from + kh * K, K, c->k + t * K);
        af_scan_load(j, in->x, at + in->v_from + h * V, V, c->v + t * V);
        if (j->delta) {
            c->length[t] = normalise(j->f, c->q + t * K, K, (float)(1.0 / sqrt((double)K)));
            c->length[AF_CHUNK + t] = normalise(j->f, c->k + t * K, K, 1.0f);
        }
        af_scan_load(j, in->beta, (row + t) * in->H + h, 1, c->beta + t);
        if (in->D > 1) {
            const float *decay = (const float *)in->decay->data + ((row + t) * in->H + h) * K;
            for (int64_t i = 0; i < K; i++)
                c->k_t[t * K + i] = expf(decay[i]);
            continue;
        }
        for (int64_t i = 0; i < K; i++)
            c->k_t[i * AF_CHUNK + t] = c->k[t * K + i];
        G += (double)((const float *)in->decay->data)[(row + t) * in->H + h];
        c->G[t] = (float)G;
        c->eG[t] = expf(c->G[t]);
    }
    if (in->D > 1)
        return;
    for (int64_t t = 0; t < len; t++)
        c->to_end[t] = expf(c->G[len - 1] - c->G[t]);
    chunk_scores(j, c);
}

void af_scan_chunk_solve(const af_scan_job *j, af_scan_chunk *c, const float *s0)
{
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand state = af_scan_rows(s0, V), d = af_scan_rows(c->d, V);
    for (int64_t t = 0; t < c->len; t++) {
        float *error = c->error + t * V, *row = c->d + t * V;
        memcpy(error, c->v + t * V, (size_t)V * sizeof *error);
        if (j->delta) {
            memset(row, 0, (size_t)V * sizeof *row);
            j->f->weigh(row, c->k + t * K, &state, K, V);
            j->f->axpy(error, -c->eG[t], row, V);
        }
        j->f->scale(row, c->beta[t], error, V);
        if (j->delta && t > 0) {
            memset(c->row_buf, 0, (size_t)V * sizeof *row);
            j->f->weigh(c->row_buf, c->m + t * AF_CHUNK, &d, t, V);
            j->f->axpy(row, -1.0f, c->row_buf, V);
        }
    }
}

void af_scan_chunk_pass(const af_scan_job *j, const af_scan_chunk *c, float *s)
{
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand d = af_scan_rows(c->d, V);
    float weight[AF_CHUNK];
    for (int64_t i = 0; i < K; i++) {
        j->f->mul(weight, c->to_end, c->k_t + i * AF_CHUNK, c->len);
        j->f->scale(s + i * V, c->eG[c->len - 1], s + i * V, V);
        j->f->weigh(s + i * V, weight, &d, c->len, V);
    }
}

static void chunk_outputs(const af_scan_job *j, const af_scan_chunk *c, const float *s0)
{
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand state = af_scan_rows(s0, V), d = af_scan_rows(c->d, V);
    const float skip = j->in.skip ? (float)af_ld(j->in.skip, c->h) : 0.0f;
    float *y = c->row_buf;
    for (int64_t t = 0; t < c->len; t++) {
        memset(y, 0, (size_t)V * sizeof *y);
        j->f->weigh(y, c->q + t * K, &state, K, V);
        j->f->scale(y, c->eG[t], y, V);
        j->f->weigh(y, c->score + t * AF_CHUNK, &d, t + 1, V);
        if (j->in.skip)
            j->f->axpy(y, skip, c->v + t * V, V);
        af_scan_store(j, j->n->out[0], ((c->row + t) * j->in.H + c->h) * V, V, y);
    }
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const af_scan_job *j = arg;
    const af_scan_inputs *in = &j->in;
    const int64_t KV = in->K * in->V;
    af_scan_chunk c;
    float *scratch = j->work + share * j->share;
    af_scan_chunk_place(&c, in, scratch + KV);
    for (int64_t i = from; i < to; i++) {
        const int64_t seq = i / in->H, h = i % in->H, row = j->bounds[seq],
                      end = j->bounds[seq + 1];
        float *s = in->state ? (float *)in->state->data + i * KV : scratch;
        if (row == end)
            continue;
        if (!in->state || ((const int32_t *)in->start->data)[seq] == 0)
            memset(s, 0, (size_t)KV * sizeof *s);
        for (int64_t r = row; r < end; r += AF_CHUNK) {
            af_scan_chunk_load(j, &c, r, AF_MIN(end - r, (int64_t)AF_CHUNK), h);
            if (in->D > 1) {
                af_scan_channel_pass(j, &c, s, true);
                continue;
            }
            af_scan_chunk_solve(j, &c, s);
            chunk_outputs(j, &c, s);
            af_scan_chunk_pass(j, &c, s);
        }
    }
}

af_scan_job af_scan_job_of(const af_node *n, const af_cpu *cpu, int64_t share)
{
    af_scan_job j = {.n = n,
                     .f = af_fast_get(),
                     .in = af_scan_in(n),
                     .work = cpu->work,
                     .share = share,
                     .delta = n->attr.scan.delta};
    j.bounds = af_state_bounds(j.in.bounds, j.in.x);
    return j;
}

void af_scan_zero_rows(const af_scan_job *j)
{
    const int64_t N = af_live(j->in.x), first = j->bounds[0], last = j->bounds[j->in.S];
    for (int k = 0; k < AF_MIN(j->n->n_out, 3); k++) {
        const af_tensor *t = j->n->out[k];
        const int64_t w = af_last(t) * af_dtype_get(t->dtype)->bytes;
        memset(t->data, 0, (size_t)(first * w));
        memset((uint8_t *)t->data + last * w, 0, (size_t)((N - last) * w));
    }
}

static int64_t share_floats(const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    return AF_ALIGN_UP(af_scan_chunk_floats(&in) + in.K * in.V, INT64_C(16));
}

static void scan_run(const af_node *n, af_cpu *cpu)
{
    af_scan_job j = af_scan_job_of(n, cpu, share_floats(n));
    af_scan_zero_rows(&j);
    af_pool_run(cpu->pool, j.in.S * j.in.H, items, &j);
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)share_floats(n) * sizeof(float);
}

static const af_cpu_op scan_op = {scan_run, work};

bool af_scan_serves(const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    return af_fast_type(in.x) && af_fast_type(in.beta) && (!in.dy || af_fast_type(in.dy));
}
const af_cpu_op *af_scan_fast(const af_node *n) { return af_scan_serves(n) ? &scan_op : NULL; }
const af_cpu_op *af_scan_cached_fast(const af_node *n)
{
    return af_scan_serves(n) ? &scan_op : NULL;
}
