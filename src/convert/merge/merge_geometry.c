/* merge_geometry.c - methods whose result is a mixture of the inputs: linear, slerp and its kin,
 * model stock, task arithmetic.
 *
 * Angles and norms of any mixture follow from the Gram matrix of the inputs, so that each of these
 * is one pass for that matrix, some arithmetic on its n x n numbers, and one pass that mixes. */
#include "convert/merge/merge_method.h"

#include <math.h>

/* Starts with the first term, so that a sum of negative zeros stays one. */
void af_merge_mix_emit(const af_merge_task *t, const af_merge_block *b)
{
    for (int64_t i = 0; i < b->len; i++) {
        double sum = b->base ? t->base_coef * b->base[i] : t->coef[0] * b->x[0][i];
        for (int k = b->base ? 0 : 1; k < t->n; k++)
            sum += t->coef[k] * b->x[k][i];
        b->out[i] = (float)sum;
    }
}

static double weight_sum(const af_merge_task *t)
{
    double sum = 0;
    for (int k = 0; k < t->n; k++)
        sum += t->w[k].weight;
    return fabs(sum) < 1e-8 ? 1 : sum;
}

af_status af_merge_linear_prepare(af_merge_task *t, af_error *err)
{
    const double sum = t->p.normalize ? weight_sum(t) : 1;
    (void)err;
    for (int k = 0; k < t->n; k++)
        t->coef[k] = t->w[k].weight / sum;
    return AF_OK;
}

af_status af_merge_arithmetic_prepare(af_merge_task *t, af_error *err)
{
    const double sum = t->p.normalize ? weight_sum(t) : 1;
    (void)err;
    t->base_coef = 1;
    for (int k = 0; k < t->n; k++) {
        t->coef[k] = t->p.lambda * t->w[k].weight / sum;
        t->base_coef -= t->coef[k];
    }
    return AF_OK;
}

/* ---- spherical ---- */

/* Coefficients of the spherical mix of a and b from |a|^2, a b, |b|^2. */
static void slerp(double t, double aa, double ab, double bb, bool nearly, double *ca, double *cb)
{
    const double na = sqrt(aa), nb = sqrt(bb);
    double dot = ab / ((na > 1e-8 ? na : 1) * (nb > 1e-8 ? nb : 1));
    dot = dot > 1 ? 1 : dot < -1 ? -1 : dot;
    if (nearly ? fabs(dot) > 0.9995 : 1 - dot * dot <= 1e-16) {
        *ca = 1 - t;
        *cb = t;
        return;
    }
    const double angle = acos(dot);
    *ca = sin((1 - t) * angle) / sin(angle);
    *cb = sin(t * angle) / sin(angle);
}

static void visit_pair(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    double *sum = part;
    (void)arg;
    (void)t;
    for (int64_t i = 0; i < b->len; i++) {
        sum[0] += (double)b->base[i] * b->base[i];
        sum[1] += (double)b->base[i] * b->x[0][i];
        sum[2] += (double)b->x[0][i] * b->x[0][i];
    }
}

af_status af_merge_slerp_prepare(af_merge_task *t, af_error *err)
{
    void *parts;
    double all[3] = {0};
    const af_status st = af_merge_scan(t, visit_pair, sizeof all, NULL, &parts, err);
    if (st != AF_OK)
        return st;
    for (int64_t i = 0; i < t->blocks; i++)
        for (int k = 0; k < 3; k++)
            all[k] += ((double *)parts)[3 * i + k];
    free(parts);
    slerp(t->p.t, all[0], all[1], all[2], true, &t->base_coef, &t->coef[0]);
    return AF_OK;
}

static double delta(const af_merge_block *b, int k, int64_t i)
{
    return b->base ? (double)b->x[k][i] - b->base[i] : b->x[k][i];
}

static double nuslerp_t(const af_merge_task *t)
{
    const double sum = t->w[0].weight + t->w[1].weight;
    return fabs(sum) < 1e-6 ? 0.5 : t->w[1].weight / sum;
}

static void visit_columns(const af_merge_task *t, const af_merge_block *b, void *part, void *arg)
{
    double *sum = part;
    (void)arg;
    for (int64_t i = 0; i < b->len; i++) {
        const double x = delta(b, 0, i), y = delta(b, 1, i);
        double *s = sum + i % t->cols * 3;
        s[0] += x * x;
        s[1] += x * y;
        s[2] += y * y;
    }
}

/* One angle per column. The sums run over rows in order, on one thread. */
static af_status prepare_columns(af_merge_task *t, af_error *err)
{
    void *parts;
    int shares;
    af_merge_task alone = *t;
    alone.pool = NULL;
    const af_status st = af_merge_scan_shares(
        &alone, visit_columns, (size_t)t->cols * 3 * sizeof(double), NULL, &parts, &shares, err);
    if (st != AF_OK)
        return st;
    double *sum = parts;
    for (int64_t c = 0; c < t->cols; c++) {
        double a, b;
        slerp(nuslerp_t(t), sum[3 * c], sum[3 * c + 1], sum[3 * c + 2], false, &a, &b);
        sum[2 * c] = a; /* after what was read already */
        sum[2 * c + 1] = b;
    }
    t->by_row = sum;
    return AF_OK;
}

static bool is_whole(const af_merge_task *t) { return t->p.flatten || t->rows == 1; }

af_status af_merge_nuslerp_prepare(af_merge_task *t, af_error *err)
{
    double g[4];
    if (!is_whole(t))
        return t->p.row_wise ? prepare_columns(t, err) : AF_OK;
    const af_status st = af_merge_gram(t, t->has_base, g, err);
    if (st == AF_OK)
        slerp(nuslerp_t(t), g[0], g[1], g[3], false, &t->coef[0], &t->coef[1]);
    return st;
}

static void row_angle(const af_merge_task *t, const af_merge_block *b, int64_t row, double *ca,
                      double *cb)
{
    double aa = 0, ab = 0, bb = 0;
    for (int64_t i = row * b->cols; i < (row + 1) * b->cols; i++) {
        const double x = delta(b, 0, i), y = delta(b, 1, i);
        aa += x * x;
        ab += x * y;
        bb += y * y;
    }
    slerp(nuslerp_t(t), aa, ab, bb, false, ca, cb);
}

void af_merge_nuslerp_emit(const af_merge_task *t, const af_merge_block *b)
{
    double ca = t->coef[0], cb = t->coef[1];
    for (int64_t i = 0; i < b->len; i++) {
        if (!is_whole(t) && t->by_row) {
            ca = t->by_row[i % b->cols * 2];
            cb = t->by_row[i % b->cols * 2 + 1];
        } else if (!is_whole(t) && i % b->cols == 0) {
            row_angle(t, b, i / b->cols, &ca, &cb);
        }
        const double mix = ca * delta(b, 0, i) + cb * delta(b, 1, i);
        b->out[i] = (float)(b->base ? b->base[i] + mix : mix);
    }
}

/* ---- on the sphere, in coefficients ---- */

/* <p, q> of two mixtures. */
static double inner(const double *g, int n, const double *p, const double *q)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            sum += p[i] * q[j] * g[i * n + j];
    return sum;
}

static double norm(const double *g, int n, const double *p)
{
    const double v = inner(g, n, p, p);
    return v > 0 ? sqrt(v) : 0;
}

af_status af_merge_multislerp_prepare(af_merge_task *t, af_error *err)
{
    enum { MAX = AF_MERGE_INPUTS_MAX };
    const int n = t->n;
    double w[MAX], len[MAX], mean[MAX] = {0}, tan[MAX] = {0}, size = 0, sum = 0;
    double *g = af_calloc(MAX * MAX, sizeof *g);
    if (!g)
        return af_fail_nomem(err, "a Gram matrix", MAX * MAX * 8);
    const af_status st = af_merge_gram(t, t->has_base, g, err);
    for (int k = 0; k < n; k++)
        sum += t->w[k].weight;
    for (int k = 0; k < n && st == AF_OK; k++) {
        w[k] = t->p.normalize_weights ? t->w[k].weight / sum : t->w[k].weight;
        len[k] = sqrt(g[k * n + k]);
        mean[k] = w[k] / (len[k] + t->p.eps);
        size += w[k] * len[k];
    }
    const double scale = st == AF_OK ? norm(g, n, mean) : 0;
    for (int k = 0; k < n && st == AF_OK; k++)
        mean[k] = scale < t->p.eps ? mean[k] : mean[k] / scale;
    for (int k = 0; k < n && st == AF_OK; k++) {
        double unit[MAX] = {0};
        unit[k] = 1 / (len[k] + t->p.eps);
        const double dot = inner(g, n, unit, mean);
        for (int i = 0; i < n; i++)
            tan[i] += w[k] * (unit[i] - dot * mean[i]);
    }
    const double along = st == AF_OK ? norm(g, n, tan) + t->p.eps : 1;
    t->base_coef = 1;
    for (int k = 0; k < n && st == AF_OK; k++) {
        t->coef[k] =
            scale < t->p.eps ? w[k] : (mean[k] * cos(along) + tan[k] * sin(along) / along) * size;
        t->base_coef -= t->has_base ? t->coef[k] : 0;
    }
    free(g);
    return st;
}

/* One step of the mean: the tangent towards all inputs. Returns its length. */
static double karcher_step(const double *g, int n, const double *len, double *mean, double tol)
{
    double tan[AF_MERGE_INPUTS_MAX] = {0};
    for (int k = 0; k < n; k++) {
        double unit[AF_MERGE_INPUTS_MAX] = {0};
        if (len[k] <= 0)
            continue;
        unit[k] = 1 / len[k];
        double dot = inner(g, n, unit, mean);
        dot = dot > 1 ? 1 : dot < -1 ? -1 : dot;
        const double angle = acos(dot);
        for (int i = 0; angle >= tol && i < n; i++)
            tan[i] += angle / sin(angle) / n * (unit[i] - dot * mean[i]);
    }
    const double along = norm(g, n, tan);
    if (along < tol)
        return along;
    for (int i = 0; i < n; i++)
        mean[i] = cos(along) * mean[i] + sin(along) * tan[i] / along;
    const double scale = norm(g, n, mean);
    for (int i = 0; i < n; i++)
        mean[i] /= scale;
    return along;
}

af_status af_merge_karcher_prepare(af_merge_task *t, af_error *err)
{
    enum { MAX = AF_MERGE_INPUTS_MAX };
    const int n = t->n;
    double len[MAX], mean[MAX] = {0}, size = 0;
    double *g = af_calloc(MAX * MAX, sizeof *g);
    if (!g)
        return af_fail_nomem(err, "a Gram matrix", MAX * MAX * 8);
    const af_status st = af_merge_gram(t, false, g, err);
    for (int k = 0; k < n && st == AF_OK; k++) {
        len[k] = sqrt(g[k * n + k]);
        mean[k] = len[k] > 0 ? 1 / (n * len[k]) : 0;
        size += len[k] / n;
    }
    const double scale = st == AF_OK ? norm(g, n, mean) : 0;
    for (int k = 0; k < n; k++)
        mean[k] = scale > 0 ? mean[k] / scale : 0;
    for (int i = 0; scale > 0 && i < t->p.max_iter; i++)
        if (karcher_step(g, n, len, mean, t->p.tol) < t->p.tol)
            break;
    for (int k = 0; k < n; k++)
        t->coef[k] = size * mean[k];
    free(g);
    return st;
}

/* ---- model stock ---- */

/* How far to go from the base to the mean, from the Gram matrix of the differences. */
static double stock_t(const double *g, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = i + 1; j < n; j++) {
            const double size = sqrt(g[i * n + i]) * sqrt(g[j * n + j]);
            const double c = g[i * n + j] / (size > 1e-6 ? size : 1e-6);
            sum += c > 1 ? 1 : c < -1 ? -1 : c;
        }
    const double c = sum / (n * (n - 1) / 2.0), under = 1 + (n - 1) * c;
    return fabs(under) < 1e-6 ? 0 : n * c / under;
}

af_status af_merge_stock_prepare(af_merge_task *t, af_error *err)
{
    if (t->p.filter_wise)
        return AF_OK;
    double *g = af_calloc((uint64_t)(t->n * t->n), sizeof *g);
    if (!g)
        return af_fail_nomem(err, "a Gram matrix", (uint64_t)(t->n * t->n) * 8);
    const af_status st = af_merge_gram(t, true, g, err);
    const double at = st == AF_OK ? stock_t(g, t->n) : 0;
    for (int k = 0; k < t->n; k++)
        t->coef[k] = at / t->n;
    t->base_coef = 1 - at;
    free(g);
    return st;
}

static void stock_row(const af_merge_task *t, const af_merge_block *b, int64_t row)
{
    double g[AF_MERGE_INPUTS_MAX * AF_MERGE_INPUTS_MAX] = {0};
    const int n = t->n;
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            for (int64_t k = row * b->cols; k < (row + 1) * b->cols; k++)
                g[i * n + j] +=
                    ((double)b->x[i][k] - b->base[k]) * ((double)b->x[j][k] - b->base[k]);
    const double at = stock_t(g, n);
    for (int64_t k = row * b->cols; k < (row + 1) * b->cols; k++) {
        double sum = 0;
        for (int i = 0; i < n; i++)
            sum += b->x[i][k];
        b->out[k] = (float)(at * sum / n + (1 - at) * b->base[k]);
    }
}

void af_merge_stock_emit(const af_merge_task *t, const af_merge_block *b)
{
    if (!t->p.filter_wise) {
        af_merge_mix_emit(t, b);
        return;
    }
    for (int64_t r = 0; r < b->rows; r++)
        stock_row(t, b, r);
}
