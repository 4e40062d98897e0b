/* moe_cpu.c - the twins of moe.c.
 *
 * A pair is (token, j): pair p = n*k + j. Pairs are listed by expert, in order; every matrix row of
 * an expert is decoded once and serves all its pairs. Sums run over pairs in order, so nothing
 * depends on the number of threads. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"
#include "ops/moe/moe_in.h"

typedef struct moe_job {
    const af_node *n;
    af_moe_inputs in;
    int64_t N, D, F, X, P, k, stride;
    int32_t *head, *next;           /* [X], [P]: the pairs of each expert */
    double *x, *dy;                 /* [N][D] */
    double *gu, *hid, *out;         /* [P][2F], [P][F], [P][D] */
    double *dhid, *dgu, *dout, *dx; /* [P][F], [P][2F], [P][D], [P][D] */
    double *rows;                   /* [threads][stride] */
} moe_job;

/* ---- router ---- */

static void route_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_moe_inputs in = af_moe_in(n);
    const int64_t X = af_last(in.logits), k = n->attr.moe.k;
    int32_t *index = n->out[1]->data;
    (void)share;
    for (int64_t r = from; r < to; r++) {
        double max = -INFINITY, sum = 0, top = 0;
        for (int64_t e = 0; e < X; e++)
            max = fmax(max, af_ld(in.logits, r * X + e));
        for (int64_t e = 0; e < X; e++)
            sum += exp(af_ld(in.logits, r * X + e) - max);
        for (int64_t e = 0; e < X; e++)
            af_st(n->out[2], r * X + e, exp(af_ld(in.logits, r * X + e) - max) / sum);
        for (int64_t j = 0; j < k; j++) { /* the next one by (probability, lower index first) */
            int32_t best = -1;
            for (int64_t e = 0; e < X; e++) {
                bool taken = false;
                for (int64_t i = 0; i < j; i++)
                    taken |= index[r * k + i] == e;
                if (!taken &&
                    (best < 0 || af_ld(in.logits, r * X + e) > af_ld(in.logits, r * X + best)))
                    best = (int32_t)e;
            }
            index[r * k + j] = best;
            top += exp(af_ld(in.logits, r * X + best) - max) / sum;
        }
        for (int64_t j = 0; j < k; j++)
            af_st(n->out[0], r * k + j,
                  exp(af_ld(in.logits, r * X + index[r * k + j]) - max) / sum /
                      (n->attr.moe.norm ? top : 1));
    }
}

static void moe_route_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    af_pool_run(cpu->pool, af_live(in.logits), route_rows, (void *)n);
}

static void route_back_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *probs = in.probs, *weights = in.weights, *dw = in.dweights;
    const int64_t X = af_last(probs), k = n->attr.moe.k;
    const int32_t *index = in.index->data;
    (void)share;
    for (int64_t r = from; r < to; r++) {
        double top = 1, mean = 0, dot = 0;
        if (n->attr.moe.norm) {
            top = 0;
            for (int64_t j = 0; j < k; j++) {
                top += af_ld(probs, r * X + index[r * k + j]);
                mean += af_ld(dw, r * k + j) * af_ld(weights, r * k + j);
            }
        }
        for (int64_t j = 0; j < k; j++)
            dot += af_ld(probs, r * X + index[r * k + j]) * (af_ld(dw, r * k + j) - mean) / top;
        for (int64_t e = 0; e < X; e++) {
            double dp = 0;
            for (int64_t j = 0; j < k; j++)
                dp += index[r * k + j] == e ? (af_ld(dw, r * k + j) - mean) / top : 0;
            af_st(n->out[0], r * X + e, af_ld(probs, r * X + e) * (dp - dot));
        }
    }
}

static void moe_route_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    af_pool_run(cpu->pool, af_live(in.probs), route_back_rows, (void *)n);
}

/* ---- experts ---- */

/* out[p][row] = matrix[e][row] . in of the pair, for rows e*R + row; in has `width` columns. */
static void rows_times(const moe_job *m, const af_tensor *matrix, int64_t item, int64_t R,
                       int64_t width, bool by_token, const double *in, double *out, double *w)
{
    const int64_t e = item / R, row = item % R;
    if (m->head[e] < 0)
        return;
    af_ld_row(matrix, item * width, width, w);
    for (int32_t p = m->head[e]; p >= 0; p = m->next[p]) {
        const double *v = in + (by_token ? p / m->k : p) * width;
        double sum = 0;
        for (int64_t i = 0; i < width; i++)
            sum += w[i] * v[i];
        out[p * R + row] = sum;
    }
}

static void gate_up_rows(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    double *w = m->rows + share * m->stride;
    for (int64_t i = from; i < to; i++)
        rows_times(m, m->in.gate_up, i, 2 * m->F, m->D, true, m->x, m->gu, w);
}

static void act_pairs(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    (void)share;
    for (int64_t p = from; p < to; p++)
        for (int64_t f = 0; f < m->F; f++) {
            const double *gu = m->gu + p * 2 * m->F;
            m->hid[p * m->F + f] = af_act_value(m->n->attr.moe.act, gu[f]) * gu[m->F + f];
        }
}

static void down_rows(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    double *w = m->rows + share * m->stride;
    for (int64_t i = from; i < to; i++)
        rows_times(m, m->in.down, i, m->D, m->F, false, m->hid, m->out, w);
}

static void combine_tokens(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    (void)share;
    for (int64_t n = from; n < to; n++)
        for (int64_t d = 0; d < m->D; d++) {
            double sum = 0;
            for (int64_t p = n * m->k; p < (n + 1) * m->k; p++)
                sum += af_ld(m->in.weights, p) * m->out[p * m->D + d];
            af_st(m->n->out[0], n * m->D + d, sum);
        }
}

/* Work is laid out for all rows, used for the live ones. */
static uint64_t layout(moe_job *m, const af_node *n, int threads, double *work)
{
    const af_moe_inputs in = af_moe_in(n);
    const int64_t rows = in.x->dim[0];
    const bool back = n->op == AF_OP_MOE_FFN_BWD;
    *m = (moe_job){.n = n, .in = in, .N = af_live(in.x), .k = n->attr.moe.k};
    m->X = in.gate_up->dim[0];
    m->F = in.gate_up->dim[1] / 2;
    m->D = in.gate_up->dim[2];
    m->P = m->N * m->k;
    m->stride = AF_MAX(m->D, m->F);
    const int64_t P = rows * m->k;
    int64_t at = 0;
    double **const part[] = {&m->x,    &m->gu,  &m->hid,  &m->out, &m->rows,
                             &m->dhid, &m->dgu, &m->dout, &m->dx,  &m->dy};
    const int64_t size[] = {rows * m->D, P * 2 * m->F, P * m->F, P * m->D, threads * m->stride,
                            P * m->F,    P * 2 * m->F, P * m->D, P * m->D, rows * m->D};
    for (int i = 0; i < (back ? 10 : 5); i++) {
        *part[i] = work ? work + at : NULL;
        at += size[i];
    }
    m->head = work ? (void *)(work + at) : NULL;
    m->next = work ? m->head + m->X : NULL;
    return (uint64_t)at * sizeof(double) + (uint64_t)(m->X + P) * sizeof(int32_t);
}

static uint64_t ffn_work(const af_node *n, int threads)
{
    moe_job m;
    return layout(&m, n, threads, NULL);
}

/* Everything up to the experts' outputs. */
static void run_experts(moe_job *m, const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    (void)layout(m, n, cpu->threads, cpu->work);
    const int32_t *index = in.index->data;
    memset(m->head, 0xff, (size_t)m->X * sizeof *m->head);
    for (int64_t p = m->P - 1; p >= 0; p--) {
        assert(index[p] >= 0 && index[p] < m->X);
        m->next[p] = m->head[index[p]];
        m->head[index[p]] = (int32_t)p;
    }
    af_ld_row(in.x, 0, m->N * m->D, m->x);
    af_pool_run(cpu->pool, m->X * 2 * m->F, gate_up_rows, m);
    af_pool_run(cpu->pool, m->P, act_pairs, m);
    af_pool_run(cpu->pool, m->X * m->D, down_rows, m);
}

static void moe_ffn_run(const af_node *n, af_cpu *cpu)
{
    moe_job m;
    run_experts(&m, n, cpu);
    af_pool_run(cpu->pool, m.N, combine_tokens, &m);
}

/* ---- experts, backward ---- */

static void dout_pairs(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    (void)share;
    for (int64_t p = from; p < to; p++) {
        const double *dy = m->dy + p / m->k * m->D, w = af_ld(m->in.weights, p);
        double dot = 0;
        for (int64_t d = 0; d < m->D; d++) {
            dot += dy[d] * m->out[p * m->D + d];
            m->dout[p * m->D + d] = w * dy[d];
        }
        af_st(m->n->out[1], p, dot);
    }
}

/* in[p] = sum over rows of out[p][row] * matrix[e][row], for the pairs of expert e */
static void rows_back(const moe_job *m, const af_tensor *matrix, int64_t e, int64_t R,
                      int64_t width, const double *out, double *in, double *w)
{
    for (int32_t p = m->head[e]; p >= 0; p = m->next[p])
        memset(in + p * width, 0, (size_t)width * sizeof *in);
    for (int64_t row = 0; row < R && m->head[e] >= 0; row++) {
        af_ld_row(matrix, (e * R + row) * width, width, w);
        for (int32_t p = m->head[e]; p >= 0; p = m->next[p])
            for (int64_t i = 0; i < width; i++)
                in[p * width + i] += out[p * R + row] * w[i];
    }
}

static void back_experts(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    const int64_t F = m->F;
    const af_act act = m->n->attr.moe.act;
    double *w = m->rows + share * m->stride;
    for (int64_t e = from; e < to; e++) {
        rows_back(m, m->in.down, e, m->D, F, m->dout, m->dhid, w);
        for (int32_t p = m->head[e]; p >= 0; p = m->next[p])
            for (int64_t f = 0; f < F; f++) {
                const double gate = m->gu[p * 2 * F + f], up = m->gu[p * 2 * F + F + f];
                m->dgu[p * 2 * F + f] = m->dhid[p * F + f] * up * af_act_slope(act, gate);
                m->dgu[p * 2 * F + F + f] = m->dhid[p * F + f] * af_act_value(act, gate);
            }
        rows_back(m, m->in.gate_up, e, 2 * F, m->D, m->dgu, m->dx, w);
    }
}

static void dx_tokens(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    (void)share;
    for (int64_t n = from; n < to; n++)
        for (int64_t d = 0; d < m->D; d++) {
            double sum = 0;
            for (int64_t p = n * m->k; p < (n + 1) * m->k; p++)
                sum += m->dx[p * m->D + d];
            af_st(m->n->out[0], n * m->D + d, sum);
        }
}

/* Row `item` of the gradient of matrix k: sum over pairs of dout[p][row] * in[p]. */
static void matrix_rows(const moe_job *m, int k, int64_t from, int64_t to, double *sum)
{
    const int64_t R = k == 2 ? 2 * m->F : m->D, width = k == 2 ? m->D : m->F;
    const double *dout = k == 2 ? m->dgu : m->dout, *in = k == 2 ? m->x : m->hid;
    for (int64_t item = from; item < to; item++) {
        memset(sum, 0, (size_t)width * sizeof *sum);
        for (int32_t p = m->head[item / R]; p >= 0; p = m->next[p]) {
            const double *v = in + (k == 2 ? p / m->k : p) * width;
            for (int64_t i = 0; i < width; i++)
                sum[i] += dout[p * R + item % R] * v[i];
        }
        af_st_row(m->n->out[k], item * width, width, sum);
    }
}

static void dgate_up_rows(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    matrix_rows(m, 2, from, to, m->rows + share * m->stride);
}

static void ddown_rows(void *arg, int64_t from, int64_t to, int share)
{
    const moe_job *m = arg;
    matrix_rows(m, 3, from, to, m->rows + share * m->stride);
}

static void moe_ffn_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    moe_job m;
    run_experts(&m, n, cpu);
    af_ld_row(in.dy, 0, m.N * m.D, m.dy);
    af_pool_run(cpu->pool, m.P, dout_pairs, &m);
    af_pool_run(cpu->pool, m.X, back_experts, &m);
    af_pool_run(cpu->pool, m.N, dx_tokens, &m);
    if (n->n_out > 2) {
        af_pool_run(cpu->pool, m.X * 2 * m.F, dgate_up_rows, &m);
        af_pool_run(cpu->pool, m.X * m.D, ddown_rows, &m);
    }
}

const af_cpu_op af_cpu_moe_route = {moe_route_run, NULL};
const af_cpu_op af_cpu_moe_route_bwd = {moe_route_bwd_run, NULL};
const af_cpu_op af_cpu_moe_ffn = {moe_ffn_run, ffn_work};
const af_cpu_op af_cpu_moe_ffn_bwd = {moe_ffn_bwd_run, ffn_work};
