/* linear_bwd_cpu.c - the backward twins of linear.c, and DORA_NORM. */
#include "backend/cpu/cpu.h"
#include "ops/linear/fp8_linear.h"
#include "ops/linear/linear_in.h"

#include <math.h>

enum { TILE = 32 }; /* rows of dx summed side by side; one decoded weight row serves them */

typedef struct linear_bwd_job {
    const af_node *n;
    af_linear_inputs in;
    int64_t I, O;
    const af_tensor *x, *y; /* outer products: sum_n y[n][from + o] x[n][i] */
    int64_t from, into;     /* first column of y; first element of the output */
    double *xs;             /* [N][I] as doubles */
    double *rows;           /* [threads][I], or [threads][TILE][I] */
} linear_bwd_job;

/* sum[t][i] += g[row+t][col] * w[i] for the m rows of a tile */
static void add_row(double *sum, const af_tensor *g, int64_t row, int64_t m, int64_t col,
                    const double *w, int64_t I)
{
    const int64_t W = af_last(g);
    for (int64_t t = 0; t < m; t++) {
        const double f = af_ld(g, (row + t) * W + col);
        double *s = sum + t * I;
        for (int64_t i = 0; i < I; i++)
            s[i] += f * w[i];
    }
}

/* Tiles of TILE rows: every weight row is decoded once per tile. */
static void dx_tiles(void *arg, int64_t from, int64_t to, int share)
{
    const linear_bwd_job *j = arg;
    const af_node *n = j->n;
    const int64_t N = af_live(j->in.dy), I = j->I, *start = n->attr.linear.piece_from;
    double *sum = j->rows + share * (TILE + 1) * I, *w = sum + TILE * I;
    for (int64_t tile = from; tile < to; tile++) {
        const int64_t row = tile * TILE, m = AF_MIN(N - row, (int64_t)TILE);
        memset(sum, 0, (size_t)(m * I) * sizeof *sum);
        for (int k = 0; k < n->attr.linear.pieces; k++)
            for (int64_t o = start[k]; o < start[k + 1]; o++) {
                af_ld_row(j->in.w[k], (o - start[k]) * I, I, w);
                add_row(sum, j->in.dy, row, m, o, w, I);
            }
        for (int64_t r = 0; j->in.a && r < j->in.a->dim[0]; r++) {
            af_ld_row(j->in.a, r * I, I, w);
            add_row(sum, j->in.g, row, m, r, w, I);
        }
        af_st_row(n->out[0], row * I, m * I, sum);
    }
}

static void linear_dx_run(const af_node *n, af_cpu *cpu)
{
    if (n->attr.linear.fp8) {
        af_fp8_cpu_run(n, cpu, linear_dx_run);
        return;
    }
    linear_bwd_job j = {.n = n, .in = af_linear_in(n), .I = af_last(n->out[0]), .rows = cpu->work};
    af_pool_run(cpu->pool, (af_live(j.in.dy) + TILE - 1) / TILE, dx_tiles, &j);
}

static uint64_t linear_dx_work(const af_node *n, int threads)
{
    return af_fp8_cpu_bytes(n) +
           (uint64_t)threads * (TILE + 1) * (uint64_t)af_last(n->out[0]) * sizeof(double);
}

/* Rows o of sum_n y[n][from + o] x[n][:], each over n in order. */
static void outer_rows(void *arg, int64_t from, int64_t to, int share)
{
    const linear_bwd_job *j = arg;
    const int64_t N = af_live(j->x), W = af_last(j->y), I = j->I;
    double *sum = j->rows + share * I;
    for (int64_t o = from; o < to; o++) {
        memset(sum, 0, (size_t)I * sizeof *sum);
        for (int64_t r = 0; r < N; r++) {
            const double f = af_ld(j->y, r * W + j->from + o);
            const double *x = j->xs + r * I;
            for (int64_t i = 0; i < I; i++)
                sum[i] += f * x[i];
        }
        for (int64_t i = 0; i < I; i++)
            af_put(j->n, j->n->out[0], j->into + o * I + i, sum[i]);
    }
}

static void linear_dw_run(const af_node *n, af_cpu *cpu)
{
    linear_bwd_job j = {.n = n, .in = af_linear_in(n), .xs = cpu->work};
    j.x = j.in.x;
    j.y = n->op == AF_OP_LINEAR_DW ? j.in.dy : j.in.g;
    j.I = af_last(j.x);
    const int64_t rows = af_live(j.x);
    j.from = n->op == AF_OP_LINEAR_DW ? n->attr.linear.piece_from[n->attr.linear.piece] : 0;
    j.rows = j.xs + rows * j.I;
    af_ld_row(j.x, 0, rows * j.I, j.xs);
    af_pool_run(cpu->pool, n->out[0]->dim[0], outer_rows, &j);
}

static uint64_t linear_dw_work(const af_node *n, int threads)
{
    return (uint64_t)((af_rows(n->in[0]) + threads) * af_last(n->in[0])) * sizeof(double);
}

static void bias_columns(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const int64_t N = af_live(n->in[0]), W = af_last(n->in[0]);
    const int64_t first = n->attr.linear.piece_from[n->attr.linear.piece];
    (void)share;
    for (int64_t o = from; o < to; o++) {
        double sum = 0;
        for (int64_t r = 0; r < N; r++)
            sum += af_ld(n->in[0], r * W + first + o);
        af_put(n, n->out[0], o, sum);
    }
}

static void linear_dbias_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, n->out[0]->dim[0], bias_columns, (void *)n);
}

/* One part's B: rows o, columns r. xs holds xa. */
static void db_rows(void *arg, int64_t from, int64_t to, int share)
{
    const linear_bwd_job *j = arg;
    const af_tensor *dy = j->in.dy;
    const int64_t N = af_live(dy), W = af_last(dy), R = af_last(j->in.xa);
    for (int64_t o = from; o < to; o++) {
        double *sum = j->rows + share * R;
        memset(sum, 0, (size_t)j->I * sizeof *sum);
        for (int64_t n = 0; n < N; n++) {
            const double f = af_ld(dy, n * W + j->from + o);
            for (int64_t r = 0; r < j->I; r++)
                sum[r] += f * j->xs[n * R + j->O + r];
        }
        for (int64_t r = 0; r < j->I; r++)
            af_put(j->n, j->n->out[0], j->into + o * j->I + r, sum[r]);
    }
}

static void adapter_db_run(const af_node *n, af_cpu *cpu)
{
    linear_bwd_job j = {.n = n, .in = af_linear_in(n), .xs = cpu->work};
    const int64_t N = af_live(j.in.dy), R = af_last(j.in.xa);
    j.rows = j.xs + N * R;
    af_ld_row(j.in.xa, 0, N * R, j.xs);
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        j.I = q->rank;
        j.O = q->rank_from;
        j.from = q->out_from;
        j.into = af_linear_part_at(n, p);
        af_pool_run(cpu->pool, q->out_rows, db_rows, &j);
    }
}

static uint64_t adapter_db_work(const af_node *n, int threads)
{
    const af_tensor *xa = af_linear_in(n).xa;
    return (uint64_t)((af_rows(xa) + threads) * af_last(xa)) * sizeof(double);
}

static void norm_rows(void *arg, int64_t from, int64_t to, int share)
{
    const linear_bwd_job *j = arg;
    const af_node *n = j->n;
    const int64_t I = j->I, *start = n->attr.linear.piece_from;
    double *w = j->rows + share * 2 * I, *a = w + I;
    for (int64_t o = from; o < to; o++) {
        memset(w, 0, (size_t)I * sizeof *w);
        for (int k = 0; k < n->attr.linear.pieces; k++)
            if (o >= start[k] && o < start[k + 1])
                af_ld_row(j->in.w[k], (o - start[k]) * I, I, w);
        for (int p = 0; p < n->attr.linear.parts; p++) {
            const af_adapter_part *q = &n->attr.linear.part[p];
            const bool mine = o >= q->out_from && o < q->out_from + q->out_rows;
            for (int r = 0; mine && r < q->rank; r++) {
                const int64_t at = af_linear_part_at(n, p) + (o - q->out_from) * q->rank + r;
                const double f = (double)q->scale * af_ld(j->in.b, at);
                af_ld_row(j->in.a, (q->rank_from + r) * I, I, a);
                for (int64_t i = 0; i < I; i++)
                    w[i] += f * a[i];
            }
        }
        double ss = 0;
        for (int64_t i = 0; i < I; i++)
            ss += w[i] * w[i];
        af_st(n->out[0], o, sqrt(ss));
    }
}

static void dora_norm_run(const af_node *n, af_cpu *cpu)
{
    linear_bwd_job j = {.n = n, .in = af_linear_in(n), .rows = cpu->work};
    j.I = af_last(j.in.w[0]);
    af_pool_run(cpu->pool, n->out[0]->dim[0], norm_rows, &j);
}

static uint64_t dora_norm_work(const af_node *n, int threads)
{
    return 2 * (uint64_t)threads * (uint64_t)af_last(n->in[0]) * sizeof(double);
}

const af_cpu_op af_cpu_linear_dx = {linear_dx_run, linear_dx_work};
const af_cpu_op af_cpu_linear_dw = {linear_dw_run, linear_dw_work};
const af_cpu_op af_cpu_adapter_da = {linear_dw_run, linear_dw_work};
const af_cpu_op af_cpu_linear_dbias = {linear_dbias_run, NULL};
const af_cpu_op af_cpu_adapter_db = {adapter_db_run, adapter_db_work};
const af_cpu_op af_cpu_dora_norm = {dora_norm_run, dora_norm_work};
