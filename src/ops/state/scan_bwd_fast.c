/* scan_bwd_fast.c - the backward of scan.c by chunks: the states at the borders are made again in
 * rising order, then the chunks follow from the last one.
 *
 * With ds1 the gradient of the state after a chunk, and s0, G, M, a as in scan.c (score[t][i] =
 * a[t][i] q[t].k[i], to_end[i] = exp(G[end] - G[i])):
 *   dd = score^T dy + to_end (k ds1);   dr = (1 + M)^-T dd;   dscore = dy d^T;   dM = -dr d^T
 *   dv = beta dr;   dbeta = dr . error + sum_i dM M / beta
 *   dq[t] = exp(G) s0 dy + sum_i a dscore k[i]
 *   dk = -beta exp(G) s0 dr + (a dscore)^T q + (beta a dM) k + (beta a dM)^T k + to_end ds1 d
 *   ds0 = exp(G[end]) ds1 + q^T (exp(G) dy) - k^T (beta exp(G) dr)
 * and every factor exp(G[t] - G[i]) passes its share to G[t] and G[i]. Without delta M = 0 and
 * error = v. One item of work is one key head of one sequence with its heads in order. */
#include "ops/state/scan_chunk.h"

#include <math.h>

typedef struct back_chunk {
    af_scan_chunk c;
    float *dy, *dr;     /* [len][V] */
    float *dscore, *dm; /* [len][CHUNK], times a (and beta) */
    float *dG;          /* [CHUNK] */
    float *s0, *ds;     /* [K][V] */
    float *dq, *dk;     /* [rows of the sequence][K] */
    float *states;      /* [chunks][K][V] */
} back_chunk;

static int64_t chunks_of(int64_t rows) { return (rows + AF_CHUNK - 1) / AF_CHUNK; }

static int64_t share_floats(const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const int64_t N = in.x->dim[0];
    return AF_ALIGN_UP(af_scan_chunk_floats(&in) + AF_CHUNK * (2 * in.V + 2 * AF_CHUNK + 1) +
                           2 * N * in.K +
                           (chunks_of(N) + (in.D > 1 ? AF_CHUNK + 1 : 0) + 2) * in.K * in.V,
                       INT64_C(16));
}

static void place(back_chunk *b, const af_scan_inputs *in, float *at)
{
    af_scan_chunk_place(&b->c, in, at);
    b->dy = at + af_scan_chunk_floats(in);
    b->dr = b->dy + AF_CHUNK * in->V;
    b->dscore = b->dr + AF_CHUNK * in->V;
    b->dm = b->dscore + AF_CHUNK * AF_CHUNK;
    b->dG = b->dm + AF_CHUNK * AF_CHUNK;
    b->ds = b->dG + AF_CHUNK;
    b->dq = b->ds + in->K * in->V;
    b->dk = b->dq + in->x->dim[0] * in->K;
    b->states = b->dk + in->x->dim[0] * in->K;
}

/* dr: the gradient of what the triangular system is solved for. */
static void solve_back(const af_scan_job *j, back_chunk *b)
{
    const af_scan_chunk *c = &b->c;
    const int64_t K = j->in.K, V = j->in.V, len = c->len;
    const af_operand ds = af_scan_rows(b->ds, V), dy = af_scan_rows(b->dy, V),
                     dr = af_scan_rows(b->dr, V);
    float column[AF_CHUNK];
    for (int64_t t = len - 1; t >= 0; t--) {
        float *row = b->dr + t * V;
        memset(row, 0, (size_t)V * sizeof *row);
        j->f->weigh(row, c->k + t * K, &ds, K, V);
        j->f->scale(row, c->to_end[t], row, V);
        for (int64_t u = t; u < len; u++)
            column[u - t] = c->score[u * AF_CHUNK + t];
        af_operand later = dy;
        later.data = b->dy + t * V;
        j->f->weigh(row, column, &later, len - t, V);
        if (!j->delta || t + 1 == len)
            continue;
        for (int64_t u = t + 1; u < len; u++)
            column[u - t - 1] = -c->m[u * AF_CHUNK + t];
        later = dr;
        later.data = b->dr + (t + 1) * V;
        j->f->weigh(row, column, &later, len - t - 1, V);
    }
}

/* dscore and dm; what they pass to dG and dbeta. */
static void score_back(const af_scan_job *j, back_chunk *b, float *dbeta)
{
    const af_scan_chunk *c = &b->c;
    const int64_t V = j->in.V;
    memset(b->dG, 0, AF_CHUNK * sizeof *b->dG);
    for (int64_t t = 0; t < c->len; t++) {
        dbeta[t] = j->f->dot(b->dr + t * V, c->error + t * V, V);
        for (int64_t i = 0; i <= t; i++) {
            const int64_t at = t * AF_CHUNK + i;
            const float a = expf(c->G[t] - c->G[i]), ds = j->f->dot(b->dy + t * V, c->d + i * V, V);
            float pass = ds * c->score[at];
            b->dscore[at] = a * ds;
            if (j->delta && i < t) {
                const float dm = -j->f->dot(b->dr + t * V, c->d + i * V, V);
                pass += dm * c->m[at];
                b->dm[at] = c->beta[t] * a * dm;
                dbeta[t] +=
                    c->beta[t] != 0.0f
                        ? dm * c->m[at] / c->beta[t]
                        : dm * a * j->f->dot(c->k + t * j->in.K, c->k + i * j->in.K, j->in.K);
            }
            b->dG[t] += pass;
            b->dG[i] -= pass;
        }
    }
}

/* dq and dk of row t, added; what exp(G) passes to dG. */
static void keys_back(const af_scan_job *j, back_chunk *b, int64_t t, float *dq, float *dk)
{
    const af_scan_chunk *c = &b->c;
    const int64_t K = j->in.K, V = j->in.V;
    const af_operand k = af_scan_rows(c->k, K);
    const float minus = -c->beta[t] * c->eG[t];
    float column[AF_CHUNK], *k_t = c->k + t * K, end = 0;
    j->f->weigh(dq, b->dscore + t * AF_CHUNK, &k, t + 1, K);
    if (j->delta && t > 0)
        j->f->weigh(dk, b->dm + t * AF_CHUNK, &k, t, K);
    for (int64_t u = t; u < c->len; u++)
        column[u - t] = b->dscore[u * AF_CHUNK + t];
    const af_operand q = af_scan_rows(c->q + t * K, K), later = af_scan_rows(k_t + K, K);
    j->f->weigh(dk, column, &q, c->len - t, K);
    for (int64_t u = t + 1; u < c->len && j->delta; u++)
        column[u - t - 1] = b->dm[u * AF_CHUNK + t];
    if (j->delta && t + 1 < c->len)
        j->f->weigh(dk, column, &later, c->len - t - 1, K);
    for (int64_t i = 0; i < K; i++) {
        const float *s = b->s0 + i * V, y = c->eG[t] * j->f->dot(b->dy + t * V, s, V),
                    r = j->delta ? minus * j->f->dot(b->dr + t * V, s, V) : 0.0f,
                    e = c->to_end[t] * j->f->dot(c->d + t * V, b->ds + i * V, V);
        dq[i] += y;
        dk[i] += r + e;
        b->dG[t] += c->q[t * K + i] * y + k_t[i] * (r - e);
        end += k_t[i] * e;
    }
    b->dG[c->len - 1] += end;
}

/* ds from after the chunk to before it. */
static void state_back(const af_scan_job *j, back_chunk *b)
{
    const af_scan_chunk *c = &b->c;
    const int64_t K = j->in.K, V = j->in.V, len = c->len;
    const af_operand dy = af_scan_rows(b->dy, V), dr = af_scan_rows(b->dr, V);
    const float last = c->eG[len - 1];
    float column[AF_CHUNK], end = 0;
    for (int64_t i = 0; i < K; i++) {
        float *ds = b->ds + i * V;
        end += last * j->f->dot(ds, b->s0 + i * V, V);
        j->f->scale(ds, last, ds, V);
        for (int64_t t = 0; t < len; t++)
            column[t] = c->q[t * K + i] * c->eG[t];
        j->f->weigh(ds, column, &dy, len, V);
        for (int64_t t = 0; t < len && j->delta; t++)
            column[t] = -c->k[t * K + i] * c->beta[t] * c->eG[t];
        if (j->delta)
            j->f->weigh(ds, column, &dr, len, V);
    }
    b->dG[len - 1] += end;
}

static void chunk_back(const af_scan_job *j, back_chunk *b, int64_t first)
{
    const af_scan_inputs *in = &j->in;
    const af_scan_chunk *c = &b->c;
    const int64_t K = in->K, V = in->V, H = in->H, h = c->h;
    const float skip = in->skip ? (float)af_ld(in->skip, h) : 0.0f;
    float dbeta[AF_CHUNK], sum = 0;
    for (int64_t t = 0; t < c->len; t++)
        af_scan_load(j, in->dy, ((c->row + t) * H + h) * V, V, b->dy + t * V);
    solve_back(j, b);
    score_back(j, b, dbeta);
    for (int64_t t = 0; t < c->len; t++) {
        const int64_t at = (c->row - first + t) * K;
        keys_back(j, b, t, b->dq + at, b->dk + at);
    }
    state_back(j, b);
    for (int64_t t = c->len - 1; t >= 0; t--) {
        sum += b->dG[t];
        ((float *)j->n->out[1]->data)[(c->row + t) * H + h] = sum;
        af_scan_store(j, j->n->out[2], (c->row + t) * H + h, 1, &dbeta[t]);
        j->f->scale(b->dr + t * V, c->beta[t], b->dr + t * V, V);
        if (in->skip)
            j->f->axpy(b->dr + t * V, skip, b->dy + t * V, V);
        af_scan_store(j, j->n->out[0], (c->row + t) * in->width + in->v_from + h * V, V,
                      b->dr + t * V);
    }
}

/* The gradient of what was read, from that of y = x length factor; in place. */
static void unnormalise(const af_scan_job *j, const float *x, float factor, float *d)
{
    const int64_t K = j->in.K;
    const float r = (float)(1.0 / sqrt((double)j->f->sum_squares(x, K) + 1e-6)),
                dot = r * r * j->f->dot(x, d, K);
    for (int64_t i = 0; i < K; i++)
        d[i] = r * factor * (d[i] - x[i] * dot);
}

static void put_keys(const af_scan_job *j, int64_t row, int64_t kh, float *dq, float *dk,
                     float *buf)
{
    const int64_t K = j->in.K, q = row * j->in.width + j->in.q_from + kh * K,
                  k = row * j->in.width + j->in.k_from + kh * K;
    if (j->delta) {
        af_scan_load(j, j->in.x, q, K, buf);
        unnormalise(j, buf, (float)(1.0 / sqrt((double)K)), dq);
        af_scan_load(j, j->in.x, k, K, buf);
        unnormalise(j, buf, 1.0f, dk);
    }
    af_scan_store(j, j->n->out[0], q, K, dq);
    af_scan_store(j, j->n->out[0], k, K, dk);
}

static void head_back(const af_scan_job *j, back_chunk *b, int64_t row, int64_t end, int64_t h)
{
    const int64_t KV = j->in.K * j->in.V, chunks = chunks_of(end - row);
    memset(b->states, 0, (size_t)KV * sizeof *b->states);
    for (int64_t i = 0; i + 1 < chunks; i++) {
        float *s = b->states + i * KV;
        af_scan_chunk_load(j, &b->c, row + i * AF_CHUNK, AF_CHUNK, h);
        memcpy(s + KV, s, (size_t)KV * sizeof *s);
        if (j->in.D > 1) {
            af_scan_channel_pass(j, &b->c, s + KV, false);
            continue;
        }
        af_scan_chunk_solve(j, &b->c, s);
        af_scan_chunk_pass(j, &b->c, s + KV);
    }
    memset(b->ds, 0, (size_t)KV * sizeof *b->ds);
    for (int64_t i = chunks - 1; i >= 0; i--) {
        const int64_t r = row + i * AF_CHUNK;
        b->s0 = b->states + i * KV;
        af_scan_chunk_load(j, &b->c, r, AF_MIN(end - r, (int64_t)AF_CHUNK), h);
        if (j->in.D > 1) {
            af_scan_channel_back(j, &b->c, b->s0, b->states + chunks * KV, b->ds,
                                 b->dq + (r - row) * j->in.K, b->dk + (r - row) * j->in.K);
            continue;
        }
        af_scan_chunk_solve(j, &b->c, b->s0);
        chunk_back(j, b, row);
    }
}

static void items(void *arg, int64_t from, int64_t to, int share)
{
    const af_scan_job *j = arg;
    const int64_t J = j->in.J, K = j->in.K, group = j->in.H / J;
    back_chunk b;
    place(&b, &j->in, j->work + share * j->share);
    for (int64_t i = from; i < to; i++) {
        const int64_t row = j->bounds[i / J], end = j->bounds[i / J + 1], kh = i % J;
        memset(b.dq, 0, (size_t)((end - row) * K) * sizeof *b.dq);
        memset(b.dk, 0, (size_t)((end - row) * K) * sizeof *b.dk);
        for (int64_t h = kh * group; h < (kh + 1) * group && row < end; h++)
            head_back(j, &b, row, end, h);
        for (int64_t r = row; r < end; r++)
            put_keys(j, r, kh, b.dq + (r - row) * K, b.dk + (r - row) * K, b.c.row_buf);
    }
}

/* dskip of heads, each over all rows in order. */
static void skip_heads(void *arg, int64_t from, int64_t to, int share)
{
    const af_scan_job *j = arg;
    const int64_t V = j->in.V, H = j->in.H;
    float *v = j->work + share * j->share, *dy = v + V;
    for (int64_t h = from; h < to; h++) {
        double sum = 0;
        for (int64_t r = j->bounds[0]; r < j->bounds[j->in.S]; r++) {
            af_scan_load(j, j->in.x, r * j->in.width + j->in.v_from + h * V, V, v);
            af_scan_load(j, j->in.dy, (r * H + h) * V, V, dy);
            sum += (double)j->f->dot(v, dy, V);
        }
        af_st(j->n->out[3], h, sum);
    }
}

static void scan_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_scan_job j = af_scan_job_of(n, cpu, share_floats(n));
    af_scan_zero_rows(&j);
    af_pool_run(cpu->pool, j.in.S * j.in.J, items, &j);
    if (n->n_out > 3)
        af_pool_run(cpu->pool, j.in.H, skip_heads, &j);
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)share_floats(n) * sizeof(float);
}

static const af_cpu_op bwd_op = {scan_bwd_run, work};

const af_cpu_op *af_scan_bwd_fast(const af_node *n) { return af_scan_serves(n) ? &bwd_op : NULL; }
