/* fp8_error.c - see fp8_error.h. Everything is read back to the host: the same code judges every
 * device. */
#include "ops/linear/fp8_error.h"
#include "backend/cpu/cpu.h"
#include "ops/linear/linear_in.h"

#include <math.h>

enum { ROWS = 16, COLUMNS = 64 };

typedef struct sample {
    af_graph *g;
    const af_node *n;
    af_linear_inputs in; /* weights, bias, a, b: copies on the host */
    int64_t width;       /* of a row of x or dy */
    int rows, columns;
    int64_t column[COLUMNS];
    double *x;   /* [rows][width] */
    double *low; /* [rows][ranks], or NULL */
    double *y;   /* [rows][all columns] */
    double sum[ROWS][COLUMNS];
    void *copy[4 * AF_LINEAR_PIECES + 4]; /* to be freed */
    af_tensor copied[3 * AF_LINEAR_PIECES + 4];
    af_quant quant[AF_LINEAR_PIECES];
    af_tensor *weight[AF_LINEAR_PIECES];
    int copies, tensors;
} sample;

static void *take(sample *s, uint64_t bytes)
{
    assert(s->copies < (int)AF_LEN(s->copy));
    return s->copy[s->copies++] = af_calloc(AF_MAX(bytes, (uint64_t)1), 1);
}

/* t as the host can read it: itself, or a copy of a GPU's. */
static af_status on_host(sample *s, af_tensor **out, af_tensor *t, af_error *err)
{
    const af_device *d = s->g->device;
    *out = t;
    if (!t || d->ops->host)
        return AF_OK;
    af_tensor *copy = &s->copied[s->tensors++];
    *copy = *t;
    copy->data = take(s, af_tensor_bytes(t));
    copy->base = NULL;
    copy->ld = af_last(t);
    if (!copy->data)
        return af_fail_nomem(err, "a copy on the host", af_tensor_bytes(t));
    *out = copy;
    return d->ops->read(s->g->device, s->g, t, copy->data, err);
}

static af_status weight_on_host(sample *s, int k, af_tensor *w, af_error *err)
{
    af_status st = on_host(s, &s->weight[k], w, err);
    if (st != AF_OK || s->weight[k] == w || !w->quant)
        return st;
    s->quant[k] = *w->quant;
    s->weight[k]->quant = &s->quant[k];
    st = on_host(s, &s->quant[k].absmax, w->quant->absmax, err);
    return st == AF_OK ? on_host(s, &s->quant[k].nested, w->quant->nested, err) : st;
}

/* Rows of an activation, spread over those in use. */
static af_status read_rows(sample *s, double **out, const af_tensor *t, af_error *err)
{
    const int64_t W = af_last(t), live = af_live(t);
    const int64_t size = af_dtype_get(t->dtype)->bytes;
    *out = take(s, (uint64_t)(s->rows * W) * sizeof **out);
    void *row = take(s, (uint64_t)(W * size));
    if (!*out || !row)
        return af_fail_nomem(err, "rows of an activation", (uint64_t)(s->rows * W) * 8);
    af_status st = AF_OK;
    for (int r = 0; r < s->rows && st == AF_OK; r++) {
        af_tensor one = *t;
        one.ndim = 2;
        one.dim[0] = 1;
        one.dim[1] = W;
        one.live = NULL;
        one.data = (uint8_t *)t->data + r * live / s->rows * t->ld * size;
        st = s->g->device->ops->read(s->g->device, s->g, &one, row, err);
        for (int64_t i = 0; i < W; i++)
            (*out)[r * W + i] = af_load_f64(row, t->dtype, (uint64_t)i);
    }
    return st;
}

static af_status load(sample *s, af_error *err)
{
    af_status st = AF_OK;
    const af_linear_inputs in = s->in;
    const af_tensor *low = in.xa ? in.xa : in.g;
    AF_TRY(read_rows(s, &s->x, s->n->in[0], err));
    AF_TRY(read_rows(s, &s->y, s->n->out[0], err));
    if (low)
        AF_TRY(read_rows(s, &s->low, low, err));
    for (int k = 0; k < s->n->attr.linear.pieces; k++) {
        AF_TRY(weight_on_host(s, k, in.w[k], err));
        AF_TRY(on_host(s, &s->in.bias[k], in.bias[k], err));
    }
    s->in.w = s->weight;
    AF_TRY(on_host(s, &s->in.a, in.a, err));
    AF_TRY(on_host(s, &s->in.b, in.b, err));
done:
    return st;
}

/* y: every sampled output column is a row of a weight. */
static void sum_forward(sample *s, double *w)
{
    const int64_t I = s->width, *start = s->n->attr.linear.piece_from;
    for (int c = 0; c < s->columns; c++) {
        const int64_t o = s->column[c];
        int k = 0;
        while (o >= start[k + 1])
            k++;
        af_ld_row(s->in.w[k], (o - start[k]) * I, I, w);
        for (int r = 0; r < s->rows; r++) {
            double *sum = &s->sum[r][c];
            *sum = s->in.bias[k] ? af_ld(s->in.bias[k], o - start[k]) : 0;
            for (int64_t i = 0; i < I; i++)
                *sum += s->x[r * I + i] * w[i];
        }
    }
    for (int p = 0; p < s->n->attr.linear.parts; p++) {
        const af_adapter_part *q = &s->n->attr.linear.part[p];
        const int64_t at = af_linear_part_at(s->n, p), ranks = s->in.a->dim[0];
        for (int c = 0; c < s->columns; c++) {
            const int64_t o = s->column[c] - q->out_from;
            for (int r = 0; r < s->rows && o >= 0 && o < q->out_rows; r++)
                for (int k = 0; k < q->rank; k++)
                    s->sum[r][c] +=
                        s->low[r * ranks + q->rank_from + k] * af_ld(s->in.b, at + o * q->rank + k);
        }
    }
}

/* One row of a weight, or of the adapter's a, times column `at` of the rows. */
static void add_scaled(sample *s, const double *w, const double *rows, int64_t width, int64_t at)
{
    for (int r = 0; r < s->rows; r++)
        for (int c = 0; c < s->columns; c++)
            s->sum[r][c] += rows[r * width + at] * w[s->column[c]];
}

/* The sampled columns of a row; coded ones are decoded as a whole. */
static void load_columns(const sample *s, const af_tensor *w, int64_t row, int64_t I, double *out)
{
    if (af_dtype_is_block(w->dtype) || w->quant)
        af_ld_row(w, row * I, I, out);
    else
        for (int c = 0; c < s->columns; c++)
            out[s->column[c]] = af_ld(w, row * I + s->column[c]);
}

static void sum_backward(sample *s, double *w)
{
    const int64_t I = af_last(s->n->out[0]), *start = s->n->attr.linear.piece_from;
    for (int k = 0; k < s->n->attr.linear.pieces; k++)
        for (int64_t o = start[k]; o < start[k + 1]; o++) {
            load_columns(s, s->in.w[k], o - start[k], I, w);
            add_scaled(s, w, s->x, s->width, o);
        }
    for (int64_t r = 0; s->low && r < s->in.a->dim[0]; r++) {
        load_columns(s, s->in.a, r, I, w);
        add_scaled(s, w, s->low, s->in.a->dim[0], r);
    }
}

/* Rows that are zero, as those of gradients without a loss are, say nothing. */
static double relative_error(const sample *s)
{
    const int64_t W = af_last(s->n->out[0]);
    double all = 0;
    int counted = 0;
    for (int r = 0; r < s->rows; r++) {
        double e = 0, size = 0;
        for (int c = 0; c < s->columns; c++) {
            const double exact = s->sum[r][c], d = s->y[r * W + s->column[c]] - exact;
            e += d * d;
            size += exact * exact;
        }
        if (size == 0 && e == 0)
            continue;
        all += size > 0 ? e / size : INFINITY;
        counted++;
    }
    return counted ? sqrt(all / counted) : 0;
}

static af_status measure(af_graph *g, const af_node *n, double *error, af_error *err)
{
    af_status st = AF_OK;
    sample *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "a sample of products", sizeof *s);
    const int64_t all = af_last(n->out[0]), I = n->op == AF_OP_LINEAR ? af_last(n->in[0]) : all;
    s->g = g;
    s->n = n;
    s->in = af_linear_in(n);
    s->width = af_last(n->in[0]);
    s->rows = (int)AF_MIN(af_live(n->in[0]), (int64_t)ROWS);
    s->columns = (int)AF_MIN(all, (int64_t)COLUMNS);
    for (int c = 0; c < s->columns; c++)
        s->column[c] = c * all / s->columns;
    AF_TRY(load(s, err));
    double *w = take(s, (uint64_t)I * sizeof *w);
    if (!w)
        AF_TRY(af_fail_nomem(err, "a weight row", (uint64_t)I * sizeof *w));
    (n->op == AF_OP_LINEAR ? sum_forward : sum_backward)(s, w);
    *error = relative_error(s);
done:
    for (int i = 0; i < s->copies; i++)
        free(s->copy[i]);
    free(s);
    return st;
}

static bool is_fp8(const af_node *n)
{
    return (n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX) && n->attr.linear.fp8 &&
           !n->recomputed;
}

af_status af_fp8_measure(af_graph *g, af_fp8_error_fn *show, void *user, af_error *err)
{
    af_status st = AF_OK;
    int from = 0;
    AF_TRY(af_graph_begin_run(g, AF_RUN_GRAD, err));
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (!is_fp8(n) && i + 1 < g->n_nodes)
            continue;
        AF_TRY(g->device->ops->run_nodes(g->device, g, AF_RUN_GRAD, from, i + 1, err));
        from = i + 1;
        double error = 0;
        if (!is_fp8(n))
            continue;
        AF_TRY(measure(g, n, &error, err));
        show(user, n->in[1], n->op == AF_OP_LINEAR_DX, error);
    }
done:
    return st;
}
