/* scan_channel_fast.c - the gated delta rule of scan.c with a decay per channel of the key, in f32:
 * row by row on a state, which costs about what chunks cost on a CPU.
 *
 * With e = exp(decay) of a row, s the state before it and s1 the one after it:
 *   error = v - s^T (e k);   d = beta error;   s1 = e s + k d^T;   y = s1^T q
 * and from ds, the gradient of s1 (dy through q included):
 *   dq = s1 dy;   dd = ds^T k;   dbeta = dd . error;   dv = beta dd;   dk = ds d - e (s dv)
 *   ds' = ds - k dv^T;   ddecay = e (ds' . s), over columns;   the gradient of s: e ds' */
#include "ops/state/scan_chunk.h"

/* With a decay per channel: d and error of row t of a chunk from the state before it, s [K][V], and
 * the state after it (next may be s). */
static void channel_step(const af_scan_job *j, af_scan_chunk *c, int64_t t, const float *s,
                         float *next)
{
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand state = af_scan_rows(s, V);
    const float *k = c->k + t * K, *e = c->k_t + t * K;
    float *error = c->error + t * V, *d = c->d + t * V;
    j->f->mul(c->row_buf, k, e, K);
    memset(d, 0, (size_t)V * sizeof *d);
    j->f->weigh(d, c->row_buf, &state, K, V);
    memcpy(error, c->v + t * V, (size_t)V * sizeof *error);
    j->f->axpy(error, -1.0f, d, V);
    j->f->scale(d, c->beta[t], error, V);
    for (int64_t i = 0; i < K; i++) {
        j->f->scale(next + i * V, e[i], s + i * V, V);
        j->f->axpy(next + i * V, k[i], d, V);
    }
}

void af_scan_channel_pass(const af_scan_job *j, af_scan_chunk *c, float *s, bool outputs)
{
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand state = af_scan_rows(s, V);
    float *y = c->row_buf;
    for (int64_t t = 0; t < c->len; t++) {
        channel_step(j, c, t, s, s);
        if (!outputs)
            continue;
        memset(y, 0, (size_t)V * sizeof *y);
        j->f->weigh(y, c->q + t * K, &state, K, V);
        af_scan_store(j, j->n->out[0], ((c->row + t) * j->in.H + c->h) * V, V, y);
    }
}

/* Row t, with s before it. dq = s1 dy = e (s dy) + k (d . dy), so s is all that is read. */
static void row_back(const af_scan_job *j, af_scan_chunk *c, int64_t t, const float *s, float *ds,
                     float *dq, float *dk)
{
    const int64_t K = j->in.K, V = j->in.V, at = (c->row + t) * j->in.H + c->h;
    const af_operand gradient = af_scan_rows(ds, V);
    const float *q = c->q + t * K, *k = c->k + t * K, *e = c->k_t + t * K, *d = c->d + t * V;
    float *dy = c->v + t * V, *dv = c->row_buf, *ddecay = (float *)j->n->out[1]->data + at * K;
    af_scan_load(j, j->in.dy, at * V, V, dy); /* v itself is in error */
    for (int64_t i = 0; i < K; i++)
        j->f->axpy(ds + i * V, q[i], dy, V);
    memset(dv, 0, (size_t)V * sizeof *dv);
    j->f->weigh(dv, k, &gradient, K, V);
    const float dbeta = j->f->dot(dv, c->error + t * V, V), d_dy = j->f->dot(d, dy, V);
    j->f->scale(dv, c->beta[t], dv, V);
    for (int64_t i = 0; i < K; i++) {
        float *g = ds + i * V;
        const float *row = s + i * V, s_dv = j->f->dot(row, dv, V);
        dq[i] += e[i] * j->f->dot(row, dy, V) + k[i] * d_dy;
        dk[i] += j->f->dot(g, d, V) - e[i] * s_dv;
        j->f->axpy(g, -k[i], dv, V);
        ddecay[i] = e[i] * j->f->dot(g, row, V);
        j->f->scale(g, e[i], g, V);
    }
    af_scan_store(j, j->n->out[2], at, 1, &dbeta);
    af_scan_store(j, j->n->out[0], (c->row + t) * j->in.width + j->in.v_from + c->h * V, V, dv);
}

void af_scan_channel_back(const af_scan_job *j, af_scan_chunk *c, const float *s0, float *states,
                          float *ds, float *dq, float *dk)
{
    const int64_t K = j->in.K, KV = K * j->in.V;
    memcpy(states, s0, (size_t)KV * sizeof *states);
    for (int64_t t = 0; t < c->len; t++)
        channel_step(j, c, t, states + t * KV, states + (t + 1) * KV);
    for (int64_t t = c->len - 1; t >= 0; t--)
        row_back(j, c, t, states + t * KV, ds, dq + t * K, dk + t * K);
}
