/* adafactor_cpu.c - the twin of Adafactor (Shazeer and Stern, 2018), with an explicit learning rate
 * (no relative step, no scaling by the parameter), as transformers has it.
 *
 *   b = 1 - t^-0.8;  q = g^2 + eps
 *   matrix: row[i] = b row[i] + (1-b) mean_j q[i][j];  col[j] likewise over i;
 *           u[i][j] = g[i][j] / sqrt(row[i] / mean(row)) / sqrt(col[j])
 *   vector: row[i] = b row[i] + (1-b) q[i];  u[i] = g[i] / sqrt(row[i])
 *   u /= max(1, rms(u) / threshold);  w -= lr wd w;  w -= lr u
 * Tensors of more axes are batches of matrices; rms(u) is over the whole tensor. */
#include "ops/common/twin.h"
#include "ops/optim/optim_in.h"
#include "ops/optim/optimizer.h"

#include <math.h>

typedef struct adafactor_job {
    af_tensor *w, *g, *row, *col;
    double clip, b, eps;
    int64_t batches, rows, cols;
    bool matrix;
} adafactor_job;

static double grad_at(const adafactor_job *f, int64_t i) { return af_ld(f->g, i) * f->clip; }

static void update_matrix_moments(const adafactor_job *f, int64_t batch)
{
    const int64_t base = batch * f->rows * f->cols;
    for (int64_t r = 0; r < f->rows; r++) {
        double sum = 0;
        for (int64_t c = 0; c < f->cols; c++) {
            const double g = grad_at(f, base + r * f->cols + c);
            sum += g * g + f->eps;
        }
        const int64_t at = batch * f->rows + r;
        af_st(f->row, at, f->b * af_ld(f->row, at) + (1 - f->b) * sum / (double)f->cols);
    }
    for (int64_t c = 0; c < f->cols; c++) {
        double sum = 0;
        for (int64_t r = 0; r < f->rows; r++) {
            const double g = grad_at(f, base + r * f->cols + c);
            sum += g * g + f->eps;
        }
        const int64_t at = batch * f->cols + c;
        af_st(f->col, at, f->b * af_ld(f->col, at) + (1 - f->b) * sum / (double)f->rows);
    }
}

static void update_vector_moments(const adafactor_job *f)
{
    for (int64_t i = 0; i < f->cols; i++) {
        const double g = grad_at(f, i);
        af_st(f->row, i, f->b * af_ld(f->row, i) + (1 - f->b) * (g * g + f->eps));
    }
}

static double mean_row(const adafactor_job *f, int64_t batch)
{
    double sum = 0;
    for (int64_t r = 0; r < f->rows; r++)
        sum += af_ld(f->row, batch * f->rows + r);
    return sum / (double)f->rows;
}

/* The update before its root mean square is cut; mean is that of the rows of its batch. */
static double update_at(const adafactor_job *f, int64_t i, double mean)
{
    if (!f->matrix)
        return grad_at(f, i) / sqrt(af_ld(f->row, i));
    const int64_t batch = i / (f->rows * f->cols);
    const double r = af_ld(f->row, i / f->cols), c = af_ld(f->col, batch * f->cols + i % f->cols);
    return grad_at(f, i) / sqrt(r / mean) / sqrt(c);
}

static void step(const adafactor_job *f, double lr, double decay)
{
    const int64_t size = f->rows * f->cols;
    double sum = 0;
    for (int64_t b = 0; b < f->batches; b++) {
        const double mean = f->matrix ? mean_row(f, b) : 1;
        for (int64_t i = b * size; i < (b + 1) * size; i++)
            sum += update_at(f, i, mean) * update_at(f, i, mean);
    }
    const double rms = sqrt(sum / (double)(size * f->batches));
    const double cut = fmax(1, rms / AF_ADAFACTOR_THRESHOLD);
    for (int64_t b = 0; b < f->batches; b++) {
        const double mean = f->matrix ? mean_row(f, b) : 1;
        for (int64_t i = b * size; i < (b + 1) * size; i++) {
            const double w = af_ld(f->w, i);
            af_st(f->w, i, w - lr * decay * w - lr * update_at(f, i, mean) / cut);
        }
    }
}

static void adafactor_run(const af_node *n, af_cpu *cpu)
{
    const af_optim_inputs in = af_optim_in(n);
    (void)cpu;
    af_tensor *w = in.params;
    adafactor_job f = {
        .w = w, .g = in.grads, .row = in.state[0], .col = in.state[1], .batches = 1, .rows = 1};
    f.matrix = w->ndim >= 2;
    f.cols = af_last(w);
    f.rows = f.matrix ? w->dim[w->ndim - 2] : 1;
    f.batches = f.matrix && f.rows ? af_rows(w) / f.rows : 1;
    f.clip = af_ld(in.stats, AF_STATS_CLIP);
    f.eps = n->attr.optim.eps;
    f.b = 1 - pow(af_ld(in.hyper, AF_HYPER_STEP), -n->attr.optim.beta2);
    const int64_t count = af_count(w);
    if (af_ld(in.stats, AF_STATS_FINITE) == 1 && count > 0) {
        for (int64_t b = 0; f.matrix && b < f.batches; b++)
            update_matrix_moments(&f, b);
        if (!f.matrix)
            update_vector_moments(&f);
        step(&f, af_ld(in.hyper, AF_HYPER_LR) * n->attr.optim.lr_factor,
             n->attr.optim.weight_decay);
    }
    for (int64_t i = 0; i < count; i++)
        af_st(f.g, i, 0);
}

const af_cpu_op af_cpu_adafactor = {adafactor_run, NULL};
