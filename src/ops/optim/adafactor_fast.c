/* adafactor_fast.c - Adafactor on f32 tensors; the formula is in adafactor_cpu.c.
 *
 * A matrix is cut into pieces of whole rows that depend on its shape alone, and sums over pieces
 * are added in their order: results do not depend on the number of threads. The gradient is read
 * three times: for the means of its squares, for the size of the update, for the update. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

enum { PIECE = 1 << 14, PIECES_MAX = 64, RUN = 512 };

typedef struct adafactor_fast_job {
    const af_fast *f;
    int64_t batches, rows, cols; /* matrices of [rows][cols] */
    int64_t piece_rows, pieces;  /* of one matrix */
    float *w, *g, *row, *col;    /* of the current matrix; row [rows], col [cols] */
    double *sum;                 /* [pieces][cols] of squares, then [pieces] of the update's */
    float *by_col;               /* [cols] 1 / sqrt(col) */
    double clip, b, eps, mean;   /* mean: of row */
    double rate, keep;           /* w = keep w - rate g / sqrt(row) / sqrt(col) */
} adafactor_fast_job;

static void cut(adafactor_fast_job *j)
{
    const int64_t least = AF_MAX(PIECE / AF_MAX(j->cols, INT64_C(1)), INT64_C(1));
    j->piece_rows = AF_MAX(least, (j->rows + PIECES_MAX - 1) / PIECES_MAX);
    j->pieces = (j->rows + j->piece_rows - 1) / j->piece_rows;
}

/* 1 / sqrt(row / mean), times the clip factor. */
static double by_row(const adafactor_fast_job *j, int64_t r)
{
    return j->clip / sqrt((double)j->row[r] / j->mean);
}

/* New means of the rows, and sums of the columns of each piece. */
static void square_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adafactor_fast_job *j = arg;
    const double scale = j->clip * j->clip / (double)j->cols;
    for (int64_t p = from; p < to; p++) {
        double *restrict sum = j->sum + p * j->cols;
        memset(sum, 0, (size_t)j->cols * sizeof *sum);
        for (int64_t r = p * j->piece_rows; r < AF_MIN((p + 1) * j->piece_rows, j->rows); r++) {
            const float *restrict g = j->g + r * j->cols;
            double all = 0;
            for (int64_t c = 0; c < j->cols; c += RUN)
                all += (double)j->f->sum_squares(g + c, AF_MIN((int64_t)RUN, j->cols - c));
            for (int64_t c = 0; c < j->cols; c++)
                sum[c] += (double)g[c] * (double)g[c];
            j->row[r] = (float)(j->b * (double)j->row[r] + (1 - j->b) * (all * scale + j->eps));
        }
    }
}

static void add_columns(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adafactor_fast_job *j = arg;
    const double scale = j->clip * j->clip / (double)j->rows;
    for (int64_t c = from; c < to; c++) {
        double sum = 0;
        for (int64_t p = 0; p < j->pieces; p++)
            sum += j->sum[p * j->cols + c];
        j->col[c] = (float)(j->b * (double)j->col[c] + (1 - j->b) * (sum * scale + j->eps));
    }
}

/* The sum of the squared update of each piece. */
static void size_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adafactor_fast_job *j = arg;
    for (int64_t p = from; p < to; p++) {
        double sum = 0;
        for (int64_t r = p * j->piece_rows; r < AF_MIN((p + 1) * j->piece_rows, j->rows); r++) {
            const float *g = j->g + r * j->cols, factor = (float)by_row(j, r);
            for (int64_t c = 0; c < j->cols; c += RUN) {
                float u[RUN];
                const int64_t n = AF_MIN((int64_t)RUN, j->cols - c);
                for (int64_t i = 0; i < n; i++)
                    u[i] = g[c + i] * factor * j->by_col[c + i];
                sum += (double)j->f->sum_squares(u, n);
            }
        }
        j->sum[p] = sum;
    }
}

static void update_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const adafactor_fast_job *j = arg;
    const float keep = (float)j->keep;
    const int64_t end = AF_MIN(to * j->piece_rows, j->rows);
    for (int64_t r = from * j->piece_rows; r < end; r++) {
        float *restrict w = j->w + r * j->cols, *restrict g = j->g + r * j->cols;
        const float factor = (float)(by_row(j, r) * j->rate), *by_col = j->by_col;
        for (int64_t c = 0; c < j->cols; c++) {
            w[c] = w[c] * keep - g[c] * factor * by_col[c];
            g[c] = 0.0f;
        }
    }
}

/* Turns to matrix `batch`: its memory, and what follows from its moments. */
static void turn_to(adafactor_fast_job *j, const af_node *n, int64_t batch, bool moments)
{
    const af_optim_inputs in = af_optim_in(n);
    const int64_t at = batch * j->rows * j->cols;
    j->w = (float *)in.params->data + at;
    j->g = (float *)in.grads->data + at;
    j->row = (float *)in.state[0]->data + batch * j->rows;
    j->col = (float *)in.state[1]->data + batch * j->cols;
    j->mean = 0;
    for (int64_t r = 0; r < j->rows && moments; r++)
        j->mean += (double)j->row[r] / (double)j->rows;
    for (int64_t c = 0; c < j->cols && moments; c++)
        j->by_col[c] = (float)(1 / sqrt((double)j->col[c]));
}

static void step_matrices(adafactor_fast_job *j, const af_node *n, af_pool *pool, double lr)
{
    const af_optim_inputs in = af_optim_in(n);
    double squares = 0;
    for (int64_t b = 0; b < j->batches; b++) {
        turn_to(j, n, b, false);
        af_pool_run(pool, j->pieces, square_pieces, j);
        af_pool_run(pool, j->cols, add_columns, j);
        turn_to(j, n, b, true);
        af_pool_run(pool, j->pieces, size_pieces, j);
        for (int64_t p = 0; p < j->pieces; p++)
            squares += j->sum[p];
    }
    const double rms = sqrt(squares / (double)af_count(in.params));
    j->rate = lr / fmax(1, rms / AF_ADAFACTOR_THRESHOLD);
    for (int64_t b = 0; b < j->batches; b++) {
        if (j->batches > 1)
            turn_to(j, n, b, true);
        af_pool_run(pool, j->pieces, update_pieces, j);
    }
}

/* A vector keeps every square, and is short. */
static void step_vector(const adafactor_fast_job *j, const af_node *n, double lr)
{
    const af_optim_inputs in = af_optim_in(n);
    float *w = in.params->data, *g = in.grads->data, *row = in.state[0]->data;
    double squares = 0;
    for (int64_t i = 0; i < j->cols; i++) {
        const double d = (double)g[i] * j->clip;
        row[i] = (float)(j->b * (double)row[i] + (1 - j->b) * (d * d + j->eps));
        squares += d * d / (double)row[i];
    }
    const double cut = fmax(1, sqrt(squares / (double)j->cols) / AF_ADAFACTOR_THRESHOLD);
    for (int64_t i = 0; i < j->cols; i++) {
        const double u = (double)g[i] * j->clip / sqrt((double)row[i]);
        w[i] = (float)((double)w[i] * j->keep - lr * u / cut);
        g[i] = 0.0f;
    }
}

static adafactor_fast_job job_of(const af_node *n)
{
    const af_optim_inputs in = af_optim_in(n);
    const af_tensor *w = in.params;
    const bool matrix = w->ndim >= 2;
    adafactor_fast_job j = {.f = af_fast_get(), .cols = af_last(w), .batches = 1, .rows = 1};
    if (matrix) {
        j.rows = w->dim[w->ndim - 2];
        j.batches = j.rows ? af_rows(w) / j.rows : 1;
    }
    cut(&j);
    return j;
}

static void adafactor_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    adafactor_fast_job j = job_of(n);
    const int64_t count = af_count(in.params);
    if (af_ld(in.stats, AF_STATS_FINITE) != 1 || count == 0) {
        memset(in.grads->data, 0, (size_t)count * sizeof(float));
        return;
    }
    const double lr = af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor;
    j.clip = af_ld(in.stats, AF_STATS_CLIP);
    j.eps = n->attr.optim.eps;
    j.b = 1 - pow(af_ld(in.hyper, AF_HYPER_STEP), -n->attr.optim.beta2);
    j.keep = 1 - lr * n->attr.optim.weight_decay;
    j.sum = cpu->work;
    j.by_col = (float *)(j.sum + j.pieces * j.cols);
    if (in.params->ndim >= 2)
        step_matrices(&j, n, cpu->pool, lr);
    else
        step_vector(&j, n, lr);
}

static uint64_t adafactor_work(const af_node *n, int threads)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)threads;
    const adafactor_fast_job j = job_of(n);
    return in.params->ndim < 2
               ? 0
               : (uint64_t)j.cols * ((uint64_t)j.pieces * sizeof(double) + sizeof(float));
}

static const af_cpu_op adafactor_op = {adafactor_run, adafactor_work};

const af_cpu_op *af_adafactor_fast(const af_node *n)
{
    bool f32 = true;
    for (int i = 0; i < n->n_in; i++)
        f32 &= n->in[i]->dtype == AF_DTYPE_F32;
    return f32 ? &adafactor_op : NULL;
}
