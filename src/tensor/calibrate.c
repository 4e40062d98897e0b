/* calibrate.c - see afinar/calibrate.h.
 *
 * An observer keeps a pair of numbers a grid; for percentiles it keeps every value, because they
 * are exact here. Codes are rounded as PyTorch's fake quantisation does: times the reciprocal. */
#include "afinar/calibrate.h"

#include "base/base.h"

#include <math.h>

struct af_observer {
    af_grid_opts o;
    int64_t rows, cols, grids;
    int64_t batches;
    float *low, *high;    /* [grids] */
    float *seen;          /* percentile: [batches][rows][cols] */
    int64_t seen_batches; /* capacity in batches */
};

/* The grid of an element. */
static int64_t grid_of(const af_grid_opts *o, int64_t cols, int64_t r, int64_t c)
{
    switch (o->split) {
    case AF_SPLIT_ROW:
        return r;
    case AF_SPLIT_COLUMN:
        return c;
    case AF_SPLIT_GROUP:
        return r * (cols / o->group) + c / o->group;
    default:
        return 0;
    }
}

int64_t af_grid_count(int64_t rows, int64_t cols, const af_grid_opts *o)
{
    if (!o || rows < 1 || cols < 1 || rows > INT64_MAX / cols || o->bits < 2 || o->bits > 8)
        return -1;
    switch (o->split) {
    case AF_SPLIT_TENSOR:
        return 1;
    case AF_SPLIT_ROW:
        return rows;
    case AF_SPLIT_COLUMN:
        return cols;
    case AF_SPLIT_GROUP:
        return o->group >= 1 && cols % o->group == 0 ? rows * (cols / o->group) : -1;
    }
    return -1;
}

static af_status check_opts(const af_grid_opts *o, int64_t rows, int64_t cols, af_error *err)
{
    if (o->bits < 2 || o->bits > 8)
        return af_fail(err, AF_EUSAGE, "a grid has 2 to 8 bits, not %d", o->bits);
    if (rows < 1 || cols < 1 || rows > INT64_MAX / cols)
        return af_fail(err, AF_EUSAGE, "a tensor of %" PRId64 " x %" PRId64 " is not possible",
                       rows, cols);
    if ((unsigned)o->split > AF_SPLIT_GROUP)
        return af_fail(err, AF_EUSAGE, "split %d is not one of 0 to %d", (int)o->split,
                       AF_SPLIT_GROUP);
    if (af_grid_count(rows, cols, o) < 0)
        return af_fail(err, AF_EUSAGE,
                       "groups of %" PRId64 " do not divide rows of %" PRId64 " (%" PRId64 " rows)",
                       o->group, cols, rows);
    if (o->percentile != 0 && !(o->percentile > 50 && o->percentile <= 100))
        return af_fail(err, AF_EUSAGE, "percentile %g is not above 50 and up to 100",
                       o->percentile);
    if (o->momentum != 0 && !(o->momentum > 0 && o->momentum <= 1))
        return af_fail(err, AF_EUSAGE, "momentum %g is not above 0 and up to 1", o->momentum);
    return AF_OK;
}

af_status af_observer_new(af_observer **out, int64_t rows, int64_t cols, const af_grid_opts *o,
                          af_error *err)
{
    AF_NEED(err, out, o);
    const af_status st = check_opts(o, rows, cols, err);
    if (st != AF_OK)
        return st;
    af_observer *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(err, "an observer", sizeof *s);
    *s = (af_observer){.o = *o, .rows = rows, .cols = cols, .grids = af_grid_count(rows, cols, o)};
    s->o.percentile = o->percentile != 0 ? o->percentile : 99.99;
    s->o.momentum = o->momentum != 0 ? o->momentum : 0.01;
    s->low = af_calloc((uint64_t)s->grids, 2 * sizeof *s->low);
    if (!s->low) {
        const uint64_t bytes = (uint64_t)s->grids * 8;
        free(s);
        return af_fail_nomem(err, "an observer", bytes);
    }
    s->high = s->low + s->grids;
    *out = s;
    return AF_OK;
}

void af_observer_free(af_observer *o)
{
    if (!o)
        return;
    free(o->low);
    free(o->seen);
    free(o);
}

/* ---- what is seen ---- */

static af_status keep_batch(af_observer *s, const float *x, af_error *err)
{
    const int64_t n = s->rows * s->cols;
    if (s->batches == s->seen_batches) {
        const int64_t capacity = AF_MAX(2 * s->seen_batches, 1);
        float *more = af_realloc(s->seen, (uint64_t)(capacity * n), sizeof *more);
        if (!more)
            return af_fail_nomem(err, "the values of an observer", (uint64_t)(capacity * n) * 4);
        s->seen = more;
        s->seen_batches = capacity;
    }
    memcpy(s->seen + s->batches * n, x, (size_t)n * sizeof *x);
    return AF_OK;
}

static void range_of_batch(const af_observer *s, const float *x, float *low, float *high)
{
    for (int64_t g = 0; g < s->grids; g++) {
        low[g] = INFINITY;
        high[g] = -INFINITY;
    }
    for (int64_t r = 0; r < s->rows; r++)
        for (int64_t c = 0; c < s->cols; c++) {
            const int64_t g = grid_of(&s->o, s->cols, r, c);
            const float v = x[r * s->cols + c];
            low[g] = v < low[g] ? v : low[g];
            high[g] = v > high[g] ? v : high[g];
        }
}

static void take_ranges(af_observer *s, const float *low, const float *high)
{
    const float m = (float)s->o.momentum;
    for (int64_t g = 0; g < s->grids; g++) {
        if (s->batches == 0) {
            s->low[g] = low[g];
            s->high[g] = high[g];
        } else if (s->o.rule == AF_RANGE_MOVING) {
            s->low[g] += m * (low[g] - s->low[g]);
            s->high[g] += m * (high[g] - s->high[g]);
        } else {
            s->low[g] = AF_MIN(s->low[g], low[g]);
            s->high[g] = AF_MAX(s->high[g], high[g]);
        }
    }
}

af_status af_observer_add(af_observer *o, const float *x, af_error *err)
{
    AF_NEED(err, o, x);
    af_status st = AF_OK;
    float *low = NULL;
    for (int64_t i = 0; i < o->rows * o->cols; i++)
        if (!isfinite(x[i]))
            return af_fail(err, AF_EUSAGE, "value [%" PRId64 "][%" PRId64 "] is %g", i / o->cols,
                           i % o->cols, (double)x[i]);
    if (o->o.rule == AF_RANGE_PERCENTILE)
        AF_TRY(keep_batch(o, x, err));
    low = af_calloc((uint64_t)o->grids, 2 * sizeof *low);
    if (!low)
        AF_TRY(af_fail_nomem(err, "an observer", (uint64_t)o->grids * 8));
    range_of_batch(o, x, low, low + o->grids);
    take_ranges(o, low, low + o->grids);
    o->batches++;
done:
    free(low);
    return st;
}

/* ---- ranges ---- */

static int by_value(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* The value at p percent of n sorted ones, between two neighbours by their distance. */
static float percentile_of(const float *sorted, int64_t n, double p)
{
    const double at = p / 100 * (double)(n - 1);
    const int64_t i = (int64_t)at;
    const double rest = at - (double)i;
    return i + 1 < n ? (float)(sorted[i] + rest * ((double)sorted[i + 1] - sorted[i])) : sorted[i];
}

/* The values of grid g in a batch: `n` of them from `first`, `step` apart. */
typedef struct value_range {
    int64_t first, n, step;
} value_range;

static value_range span_of(const af_observer *s, int64_t g)
{
    const int64_t rows = s->rows, cols = s->cols;
    switch (s->o.split) {
    case AF_SPLIT_ROW:
        return (value_range){g * cols, cols, 1};
    case AF_SPLIT_COLUMN:
        return (value_range){g, rows, cols};
    case AF_SPLIT_GROUP:
        return (value_range){g * s->o.group, s->o.group, 1};
    default:
        return (value_range){0, rows * cols, 1};
    }
}

static af_status percentile_range(const af_observer *s, int64_t grid, float *low, float *high,
                                  af_error *err)
{
    const value_range p = span_of(s, grid);
    const int64_t n = s->batches * p.n;
    float *v = af_calloc((uint64_t)n, sizeof *v);
    if (!v)
        return af_fail_nomem(err, "a percentile", (uint64_t)n * 4);
    for (int64_t i = 0; i < n; i++) {
        const float x = s->seen[i / p.n * s->rows * s->cols + p.first + i % p.n * p.step];
        v[i] = s->o.asymmetric ? x : fabsf(x);
    }
    qsort(v, (size_t)n, sizeof *v, by_value);
    *high = percentile_of(v, n, s->o.percentile);
    *low = s->o.asymmetric ? percentile_of(v, n, 100 - s->o.percentile) : -*high;
    free(v);
    return AF_OK;
}

af_status af_observer_range(const af_observer *o, int64_t g, float *low, float *high, af_error *err)
{
    AF_NEED(err, o, low, high);
    if (g < 0 || g >= o->grids)
        return af_fail(err, AF_EUSAGE, "grid %" PRId64 " of %" PRId64, g, o->grids);
    if (o->batches == 0)
        return af_fail(err, AF_EUSAGE, "the observer has seen no batch yet");
    if (o->o.rule == AF_RANGE_PERCENTILE)
        return percentile_range(o, g, low, high, err);
    *low = o->low[g];
    *high = o->high[g];
    return AF_OK;
}

af_status af_observer_finish(const af_observer *o, float *scale, int32_t *zero, af_error *err)
{
    AF_NEED(err, o, scale, zero);
    af_status st = AF_OK;
    const float levels = (float)((1 << o->o.bits) - 1), half = (float)((1 << (o->o.bits - 1)) - 1);
    for (int64_t g = 0; g < o->grids; g++) {
        float low, high;
        AF_TRY(af_observer_range(o, g, &low, &high, err));
        low = AF_MIN(low, 0.0f);
        high = AF_MAX(high, 0.0f);
        const float width = o->o.asymmetric ? (high - low) / levels : AF_MAX(high, -low) / half;
        scale[g] = width > 0 ? width : 1;
        zero[g] = o->o.asymmetric ? (int32_t)lrintf(-low / scale[g]) : 0;
    }
done:
    return st;
}

/* ---- codes ---- */

void af_grid_encode(int64_t rows, int64_t cols, const af_grid_opts *o, const float *scale,
                    const int32_t *zero, const float *x, int8_t *code)
{
    if (af_grid_count(rows, cols, o) < 0 || !scale || !zero || !x || !code)
        return;
    const float low = o->asymmetric ? 0 : -(float)(1 << (o->bits - 1));
    const float high = low + (float)((1 << o->bits) - 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t i = r * cols + c, g = grid_of(o, cols, r, c);
            const float q = rintf(x[i] * (1 / scale[g])) + (float)zero[g];
            const int whole = (int)(q > high ? high : q >= low ? q : low); /* NaN to low */
            code[i] = o->asymmetric ? (int8_t)(uint8_t)whole : (int8_t)whole;
        }
}

void af_grid_decode(int64_t rows, int64_t cols, const af_grid_opts *o, const float *scale,
                    const int32_t *zero, const int8_t *code, float *y)
{
    if (af_grid_count(rows, cols, o) < 0 || !scale || !zero || !code || !y)
        return;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const int64_t i = r * cols + c, g = grid_of(o, cols, r, c);
            const int q = o->asymmetric ? (int)(uint8_t)code[i] : code[i];
            y[i] = (float)(q - zero[g]) * scale[g];
        }
}

af_grid_error af_grid_measure(const float *was, const float *is, int64_t count)
{
    af_grid_error e = {0};
    double signal = 0, noise = 0;
    if (!was || !is)
        return e;
    for (int64_t i = 0; i < count; i++) {
        const double d = (double)was[i] - is[i];
        signal += (double)was[i] * was[i];
        noise += d * d;
        e.max_abs = AF_MAX(e.max_abs, fabs(d));
    }
    e.mse = count ? noise / (double)count : 0;
    e.snr_db = noise > 0 ? 10 * log10(signal / noise) : INFINITY;
    return e;
}
