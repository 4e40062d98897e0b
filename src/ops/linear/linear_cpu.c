/* linear_cpu.c - the twins of linear.c.
 *
 * x is multiplied with weight rows tile by tile: TILE rows of x are laid out transposed as
 * doubles, each weight row is decoded once per tile, and the sums of a tile's rows run in parallel.
 * Every output is one sum in the order of i (then of r), whatever the number of threads. */
#include "backend/cpu/cpu.h"
#include "ops/linear/fp8_linear.h"
#include "ops/linear/linear_in.h"

#include <math.h>

enum { TILE = 32 };

typedef struct linear_job {
    const af_node *n;
    af_linear_inputs in;
    int64_t I, O, R;
    int64_t row;    /* first of the tile */
    int m;          /* rows of the tile */
    double *x, *xa; /* [I][TILE], [R][TILE]: the tile transposed */
    double *rows;   /* [threads][widest row] */
    int64_t stride;
} linear_job;

/* sum[t] += sum_i w[i] * x[i][t] */
static void add_products(double *restrict sum, const double *w, const double *restrict x, int64_t I)
{
    for (int64_t i = 0; i < I; i++)
        for (int t = 0; t < TILE; t++)
            sum[t] += w[i] * x[i * TILE + t];
}

static void load_tile(const af_tensor *t, int64_t row, int m, double *out, double *buf)
{
    const int64_t W = af_last(t);
    for (int k = 0; k < m; k++) {
        af_ld_row(t, (row + k) * W, W, buf);
        for (int64_t i = 0; i < W; i++)
            out[i * TILE + k] = buf[i];
    }
    for (int k = m; k < TILE; k++)
        for (int64_t i = 0; i < W; i++)
            out[i * TILE + k] = 0;
}

/* Output columns [from, to) of the tile. */
static void forward_columns(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    const af_node *n = j->n;
    const int64_t *start = n->attr.linear.piece_from;
    double *w = j->rows + share * j->stride;
    for (int64_t o = from; o < to; o++) {
        double sum[TILE] = {0};
        for (int i = 0; i < n->attr.linear.pieces; i++) {
            if (o < start[i] || o >= start[i + 1])
                continue;
            const af_tensor *bias = j->in.bias[i];
            af_ld_row(j->in.w[i], (o - start[i]) * j->I, j->I, w);
            add_products(sum, w, j->x, j->I);
            for (int t = 0; bias && t < j->m; t++)
                sum[t] += af_ld(bias, o - start[i]);
        }
        for (int p = 0; p < n->attr.linear.parts; p++) {
            const af_adapter_part *q = &n->attr.linear.part[p];
            if (o < q->out_from || o >= q->out_from + q->out_rows)
                continue;
            af_ld_row(j->in.b, af_linear_part_at(n, p) + (o - q->out_from) * q->rank, q->rank, w);
            add_products(sum, w, j->xa + (int64_t)q->rank_from * TILE, q->rank);
        }
        for (int t = 0; t < j->m; t++)
            af_st(n->out[0], (j->row + t) * j->O + o, sum[t]);
    }
}

static int64_t rank_rows(const af_linear_inputs *in) { return in->a ? in->a->dim[0] : 0; }

static void linear_run(const af_node *n, af_cpu *cpu)
{
    if (n->attr.linear.fp8) {
        af_fp8_cpu_run(n, cpu, linear_run);
        return;
    }
    linear_job j = {.n = n, .in = af_linear_in(n), .O = n->attr.linear.out};
    const af_tensor *x = j.in.x;
    j.I = af_last(x);
    j.R = rank_rows(&j.in);
    j.x = cpu->work;
    j.xa = j.x + j.I * TILE;
    j.rows = j.xa + j.R * TILE;
    j.stride = AF_MAX(j.I, j.R);
    const int64_t N = af_live(x);
    for (j.row = 0; j.row < N; j.row += TILE) {
        j.m = (int)AF_MIN(N - j.row, (int64_t)TILE);
        load_tile(x, j.row, j.m, j.x, j.rows);
        if (j.R)
            load_tile(j.in.xa, j.row, j.m, j.xa, j.rows);
        af_pool_run(cpu->pool, j.O, forward_columns, &j);
    }
}

static uint64_t linear_work(const af_node *n, int threads)
{
    const af_linear_inputs in = af_linear_in(n);
    const int64_t I = af_last(in.x), R = rank_rows(&in);
    return af_fp8_cpu_bytes(n) +
           (uint64_t)((I + R) * TILE + threads * AF_MAX(I, R)) * sizeof(double);
}

/* The scale of the part rank row r belongs to; 0 when none does. */
static double rank_scale(const af_node *n, int64_t r)
{
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        if (r >= q->rank_from && r < q->rank_from + q->rank)
            return q->scale;
    }
    return 0;
}

static void down_columns(void *arg, int64_t from, int64_t to, int share)
{
    const linear_job *j = arg;
    const af_node *n = j->n;
    double *w = j->rows + share * j->stride;
    for (int64_t r = from; r < to; r++) {
        double sum[TILE] = {0};
        af_ld_row(j->in.a, r * j->I, j->I, w);
        add_products(sum, w, j->x, j->I);
        for (int t = 0; t < j->m; t++)
            af_st(n->out[0], (j->row + t) * j->R + r, rank_scale(n, r) * sum[t]);
    }
}

static void adapter_down_run(const af_node *n, af_cpu *cpu)
{
    linear_job j = {.n = n, .in = af_linear_in(n), .x = cpu->work};
    j.I = af_last(j.in.x);
    j.R = rank_rows(&j.in);
    j.rows = j.x + j.I * TILE;
    j.stride = j.I;
    const int64_t N = af_live(j.in.x);
    for (j.row = 0; j.row < N; j.row += TILE) {
        j.m = (int)AF_MIN(N - j.row, (int64_t)TILE);
        load_tile(j.in.x, j.row, j.m, j.x, j.rows);
        af_pool_run(cpu->pool, j.R, down_columns, &j);
    }
}

static uint64_t adapter_down_work(const af_node *n, int threads)
{
    return (uint64_t)(af_last(n->in[0]) * (TILE + threads)) * sizeof(double);
}

/* Row n of g: small, so rows are the items. */
static void g_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *dy = in.dy, *b = in.b;
    const int64_t O = af_last(dy), R = af_last(n->out[0]);
    (void)share;
    for (int64_t row = from; row < to; row++) {
        for (int64_t r = 0; r < R; r++)
            af_st(n->out[0], row * R + r, 0);
        for (int p = 0; p < n->attr.linear.parts; p++) {
            const af_adapter_part *q = &n->attr.linear.part[p];
            const int64_t at = af_linear_part_at(n, p);
            for (int r = 0; r < q->rank; r++) {
                double sum = 0;
                for (int64_t o = 0; o < q->out_rows; o++)
                    sum += af_ld(dy, row * O + q->out_from + o) * af_ld(b, at + o * q->rank + r);
                af_st(n->out[0], row * R + q->rank_from + r, q->scale * sum);
            }
        }
    }
}

static void adapter_g_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), g_rows, (void *)n);
}

const af_cpu_op af_cpu_linear = {linear_run, linear_work};
const af_cpu_op af_cpu_adapter_down = {adapter_down_run, adapter_down_work};
const af_cpu_op af_cpu_adapter_g = {adapter_g_run, NULL};
