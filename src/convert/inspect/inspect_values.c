/* inspect_values.c - see inspect_values.h. */
#include "convert/inspect/inspect_values.h"

#include <math.h>

const char *af_stored_type_name(af_arena *a, const af_stored *t)
{
    const char *name = af_dtype_get(t->dtype)->safetensors;
    char *up = af_arena_strdup(a, name ? name : af_dtype_name(t->dtype));
    for (char *p = up; p && *p; p++)
        *p = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
    return up ? up : "?";
}

/* The sums of one piece. */
typedef struct value_sums {
    double sum, sum2, min, max;
    int64_t zeros, nans, infs, outliers;
    int64_t bins[AF_INSPECT_BINS];
    double diff2, dot, b2, max_abs; /* for differences: sum2 is A's */
    int64_t changed;
} value_sums;

typedef struct sums_pass {
    const af_stored_values *a, *b;
    value_sums *parts;
    double mean, std; /* of the second pass */
} sums_pass;

static void first_pass(void *arg, int64_t from, int64_t to, int share)
{
    const sums_pass *w = arg;
    float x[AF_VALUES_PIECE];
    (void)share;
    for (int64_t k = from; k < to; k++) {
        const int64_t at = k * AF_VALUES_PIECE, end = AF_MIN(w->a->count, at + AF_VALUES_PIECE);
        value_sums p = {.min = INFINITY, .max = -INFINITY};
        af_stored_values_read(w->a, at, end, x);
        for (int64_t i = 0; i < end - at; i++) {
            const double v = x[i];
            p.nans += isnan(v);
            p.infs += isinf(v);
            p.zeros += v == 0;
            if (!isfinite(v))
                continue;
            p.sum += v;
            p.sum2 += v * v;
            p.min = v < p.min ? v : p.min;
            p.max = v > p.max ? v : p.max;
        }
        w->parts[k] = p;
    }
}

static void second_pass(void *arg, int64_t from, int64_t to, int share)
{
    const sums_pass *w = arg;
    float x[AF_VALUES_PIECE];
    (void)share;
    const double scale = w->std > 0 ? AF_INSPECT_BINS / (8 * w->std) : 0;
    for (int64_t k = from; k < to; k++) {
        const int64_t at = k * AF_VALUES_PIECE, end = AF_MIN(w->a->count, at + AF_VALUES_PIECE);
        value_sums *p = &w->parts[k];
        af_stored_values_read(w->a, at, end, x);
        for (int64_t i = 0; i < end - at; i++) {
            const double d = (double)x[i] - w->mean;
            if (!isfinite(d))
                continue;
            const double bin = floor(d * scale) + AF_INSPECT_BINS / 2;
            p->bins[bin < 0 ? 0 : bin >= AF_INSPECT_BINS ? AF_INSPECT_BINS - 1 : (int)bin]++;
            p->outliers += w->std > 0 && fabs(d) > 6 * w->std;
        }
    }
}

static af_status take_parts(sums_pass *w, int64_t *pieces, af_error *err)
{
    *pieces = (w->a->count + AF_VALUES_PIECE - 1) / AF_VALUES_PIECE;
    w->parts = af_calloc((uint64_t)AF_MAX(*pieces, 1), sizeof *w->parts);
    return w->parts ? AF_OK
                    : af_fail_nomem(err, w->a->t->name, (uint64_t)*pieces * sizeof(value_sums));
}

af_status af_values_stats(const af_stored_values *v, af_pool *pool, af_inspect_stats *out,
                          af_error *err)
{
    sums_pass w = {.a = v};
    int64_t pieces, finite = v->count;
    const af_status st = take_parts(&w, &pieces, err);
    if (st != AF_OK)
        return st;
    af_inspect_stats s = {.min = INFINITY, .max = -INFINITY};
    double sum = 0, sum2 = 0;
    af_pool_run(pool, pieces, first_pass, &w);
    for (int64_t k = 0; k < pieces; k++) {
        const value_sums *p = &w.parts[k];
        sum += p->sum;
        sum2 += p->sum2;
        s.min = AF_MIN(s.min, p->min);
        s.max = AF_MAX(s.max, p->max);
        s.zeros += p->zeros;
        s.nans += p->nans;
        s.infs += p->infs;
    }
    finite -= s.nans + s.infs;
    if (finite == 0)
        s.min = s.max = 0;
    w.mean = s.mean = finite ? sum / (double)finite : 0;
    w.std = s.std = finite ? sqrt(fmax(0, sum2 / (double)finite - s.mean * s.mean)) : 0;
    s.l2 = sqrt(sum2);
    af_pool_run(pool, pieces, second_pass, &w);
    for (int64_t k = 0; k < pieces; k++) {
        s.outliers += w.parts[k].outliers;
        for (int i = 0; i < AF_INSPECT_BINS; i++)
            s.bins[i] += w.parts[k].bins[i];
    }
    free(w.parts);
    *out = s;
    return AF_OK;
}

static void diff_pass(void *arg, int64_t from, int64_t to, int share)
{
    const sums_pass *w = arg;
    float x[AF_VALUES_PIECE], y[AF_VALUES_PIECE];
    (void)share;
    for (int64_t k = from; k < to; k++) {
        const int64_t at = k * AF_VALUES_PIECE, end = AF_MIN(w->a->count, at + AF_VALUES_PIECE);
        value_sums p = {0};
        af_stored_values_read(w->a, at, end, x);
        af_stored_values_read(w->b, at, end, y);
        for (int64_t i = 0; i < end - at; i++) {
            const double a = x[i], b = y[i], d = b - a;
            const bool same = a == b || (isnan(a) && isnan(b));
            p.changed += !same;
            p.sum2 += a * a;
            p.b2 += b * b;
            p.dot += a * b;
            p.diff2 += same ? 0 : d * d;
            p.max_abs = !same && !(fabs(d) <= p.max_abs) ? fabs(d) : p.max_abs;
        }
        w->parts[k] = p;
    }
}

af_status af_values_diff(const af_stored_values *a, const af_stored_values *b, af_pool *pool,
                         af_diff_row *row, af_error *err)
{
    sums_pass w = {.a = a, .b = b};
    int64_t pieces;
    const af_status st = take_parts(&w, &pieces, err);
    if (st != AF_OK)
        return st;
    value_sums all = {0};
    af_pool_run(pool, pieces, diff_pass, &w);
    for (int64_t k = 0; k < pieces; k++) {
        const value_sums *p = &w.parts[k];
        all.changed += p->changed;
        all.sum2 += p->sum2;
        all.b2 += p->b2;
        all.dot += p->dot;
        all.diff2 += p->diff2;
        all.max_abs = !(p->max_abs <= all.max_abs) ? p->max_abs : all.max_abs;
    }
    free(w.parts);
    row->changed = all.changed;
    row->max_abs = all.max_abs;
    row->relative = all.diff2 == 0 ? 0 : sqrt(all.diff2) / sqrt(all.sum2);
    row->cosine = all.sum2 == 0 && all.b2 == 0 ? 1 : all.dot / sqrt(all.sum2 * all.b2);
    row->kind = all.changed ? AF_DIFF_CHANGED : AF_DIFF_SAME;
    return AF_OK;
}
