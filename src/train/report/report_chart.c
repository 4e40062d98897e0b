/* report_chart.c - see report_chart.h. */
#include "train/report/report_chart.h"

#include <math.h>

enum {
    W = 560,
    H = 220,
    LEFT = 64,
    RIGHT = 12,
    TOP = 20,
    BOTTOM = 30,
    EDGE = 20,
    POINTS = 2000, /* drawn per line */
    HOVERS = 240,  /* places of a chart that show their values */
    DOTS = 40      /* points marked one by one */
};

const char af_chart_style[] =
    "figure{margin:0}figcaption{color:var(--dim)}svg{width:100%}"
    "svg text{font-size:11px;fill:var(--dim)}"
    "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}polyline.a{stroke:var(--a)}"
    "polyline.b{stroke:var(--b)}polyline.faint{opacity:.3;stroke-width:1}circle.a{fill:var(--a)}"
    "circle.b{fill:var(--b)}b.a{color:var(--a)}b.b{color:var(--b)}line.grid{stroke:var(--line);"
    "stroke-width:1}\n"
    "g.v rect{fill:transparent}g.v text,g.v circle{visibility:hidden}g.v text{fill:var(--ink)}"
    "g.v:hover text,g.v:hover circle{visibility:visible}g.v:hover rect{fill:var(--line)}\n";

void af_series_add(af_series *s, double x, double y)
{
    if (s->count == s->cap) {
        const int cap = s->cap ? s->cap * 2 : 256;
        double *px = af_realloc(s->x, (uint64_t)cap, sizeof *px);
        s->x = px ? px : s->x;
        double *py = af_realloc(s->y, (uint64_t)cap, sizeof *py);
        s->y = py ? py : s->y;
        if (!px || !py)
            return;
        s->cap = cap;
    }
    s->x[s->count] = x;
    s->y[s->count++] = y;
}

void af_series_clear(af_series *s)
{
    free(s->x);
    free(s->y);
    *s = (af_series){0};
}

/* The values at the edges of the plot. */
typedef struct chart_range {
    double x0, x1, y0, y1;
} chart_range;

static double at_x(const chart_range *r, double x)
{
    return LEFT + (x - r->x0) / (r->x1 - r->x0) * (W - LEFT - RIGHT);
}

static double at_y(const chart_range *r, double y)
{
    return TOP + (1 - (y - r->y0) / (r->y1 - r->y0)) * (H - TOP - BOTTOM);
}

static void widen(chart_range *r, const af_series *s)
{
    for (int i = 0; s && i < s->count; i++) {
        r->x0 = AF_MIN(r->x0, s->x[i]);
        r->x1 = AF_MAX(r->x1, s->x[i]);
        r->y0 = AF_MIN(r->y0, s->y[i]);
        r->y1 = AF_MAX(r->y1, s->y[i]);
    }
}

static void put_line(af_buf *b, const af_series *s, const char *class, const chart_range *r)
{
    if (!s || s->count == 0)
        return;
    af_buf_printf(b, "<polyline class=\"%s\" points=\"", class);
    const int skip = AF_MAX(1, s->count / POINTS);
    for (int i = 0; i < s->count; i += skip)
        af_buf_printf(b, "%.1f,%.1f ", at_x(r, s->x[i]), at_y(r, s->y[i]));
    af_buf_str(b, "\"/>");
    for (int i = 0; s->count <= DOTS && i < s->count; i++)
        af_buf_printf(b, "<circle class=\"%s\" r=\"2\" cx=\"%.1f\" cy=\"%.1f\"/>", class,
                      at_x(r, s->x[i]), at_y(r, s->y[i]));
}

/* An exponential mean over about a thirtieth of the curve, corrected for its start. */
static void smooth(af_series *out, const af_series *s)
{
    const double keep = 1.0 - 1.0 / AF_MAX(1.0, (double)s->count / 30);
    double sum = 0, weight = 0;
    for (int i = 0; i < s->count; i++) {
        sum = keep * sum + (1 - keep) * s->y[i];
        weight = keep * weight + (1 - keep);
        af_series_add(out, s->x[i], sum / weight);
    }
}

/* A step of 1, 2 or 5 times a power of ten that cuts the range in about four. */
static double tick(double range)
{
    const double p = pow(10, floor(log10(range / 4)));
    const double q = range / 4 / p;
    return p * (q < 1.5 ? 1 : q < 3.5 ? 2 : q < 7.5 ? 5 : 10);
}

/* 12000 as 12k: axis labels stay short, with the digits in which neighbours differ. */
static void put_label(af_buf *b, double v, double step)
{
    const double unit = fabs(v) >= 1e9 ? 1e9 : fabs(v) >= 1e6 ? 1e6 : fabs(v) >= 1e4 ? 1e3 : 1;
    const double digits = v == 0 ? 0 : ceil(log10(fabs(v) / step)) + 1;
    af_buf_printf(b, "%.*g%s", (int)AF_MIN(AF_MAX(digits, 4), 12), v / unit,
                  unit == 1e9   ? "G"
                  : unit == 1e6 ? "M"
                  : unit == 1e3 ? "k"
                                : "");
}

/* Labels of an axis: multiples of a step. They are counted: a step that is added to a large value
 * may be less than its last bit. */
typedef struct chart_ticks {
    double step, first;
    int count;
} chart_ticks;

static chart_ticks find_ticks(double from, double to, double step)
{
    enum { TICKS_MAX = 20 };
    const double first = ceil(from / step), n = floor(to / step + 1e-9) - first + 1;
    return (chart_ticks){step, first, n >= 1 ? (int)AF_MIN(n, TICKS_MAX) : 0}; /* NaN: none */
}

static double tick_at(const chart_ticks *t, int i) { return (t->first + i) * t->step; }

static void put_axes(af_buf *b, const chart_range *r)
{
    const chart_ticks ty = find_ticks(r->y0, r->y1, tick(r->y1 - r->y0));
    const chart_ticks tx = find_ticks(r->x0, r->x1, AF_MAX(1.0, tick(r->x1 - r->x0)));
    for (int i = 0; i < ty.count; i++) {
        const double y = tick_at(&ty, i), at = at_y(r, y);
        af_buf_printf(b,
                      "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text "
                      "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                      LEFT, W - RIGHT, at, at, LEFT - 6, at + 4);
        put_label(b, y, ty.step);
        af_buf_str(b, "</text>");
    }
    for (int i = 0; i < tx.count; i++) {
        const double x = tick_at(&tx, i), at = at_x(r, x);
        af_buf_printf(b, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", at, H - 10,
                      at > W - EDGE ? "end" : "middle"); /* a long number would be cut off */
        put_label(b, x, tx.step);
        af_buf_str(b, "</text>");
    }
}

/* ---- values under the pointer ---- */

/* The point of a series at this x, or -1. *from: where to begin; x does not decrease. */
static int point_at(const af_series *s, double x, int *from)
{
    while (s && *from < s->count && s->x[*from] < x)
        (*from)++;
    return s && *from < s->count && s->x[*from] == x ? *from : -1;
}

static void put_value(af_buf *b, const af_series *s, int i)
{
    if (i >= 0)
        af_buf_printf(b, ", %s %.5g", s->name, s->y[i]);
}

static void put_mark(af_buf *b, const af_series *s, int i, const char *class, const chart_range *r)
{
    if (i >= 0)
        af_buf_printf(b, "<circle class=\"%s\" r=\"3\" cx=\"%.1f\" cy=\"%.1f\"/>", class,
                      at_x(r, s->x[i]), at_y(r, s->y[i]));
}

/* The steps of both series in order; the next one after `x`. False at the end. */
static bool next_step(const af_series *a, const af_series *b, int *ia, int *ib, double *x)
{
    const bool has_a = *ia < a->count, has_b = b && *ib < b->count;
    if (!has_a && !has_b)
        return false;
    *x = has_a ? a->x[*ia] : b->x[*ib];
    if (has_b)
        *x = AF_MIN(*x, b->x[*ib]);
    while (*ia < a->count && a->x[*ia] <= *x)
        (*ia)++;
    while (b && *ib < b->count && b->x[*ib] <= *x)
        (*ib)++;
    return true;
}

/* Bands over the plot, one for a step; of a long run some steps, rather those with both values. */
static void put_hovers(af_buf *b, const af_series *a, const af_series *second, const chart_range *r)
{
    const double least = (double)(W - LEFT - RIGHT) / HOVERS;
    double x, last = -INFINITY;
    bool last_second = false;
    int ia = 0, ib = 0, pa = 0, pb = 0;
    while (next_step(a, second, &ia, &ib, &x)) {
        const int i = point_at(a, x, &pa), k = point_at(second, x, &pb);
        if (at_x(r, x) - last < least && (k < 0 || last_second))
            continue;
        const double width = AF_MAX((at_x(r, r->x1) - LEFT) / AF_MAX(r->x1 - r->x0, 1), least);
        last = at_x(r, x);
        last_second = k >= 0;
        af_buf_printf(b, "<g class=\"v\"><rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>",
                      last - width / 2, TOP, width, H - TOP - BOTTOM);
        put_mark(b, a, i, "a", r);
        put_mark(b, second, k, "b", r);
        af_buf_printf(b, "<text x=\"%d\" y=\"12\" text-anchor=\"end\">step %.0f", W - RIGHT, x);
        put_value(b, a, i);
        put_value(b, second, k);
        af_buf_str(b, "</text></g>");
    }
}

/* Some room above and below; rounding errors of a flat curve do not fill the plot. */
static void pad_y(chart_range *r)
{
    const double range = r->y1 - r->y0, size = AF_MAX(fabs(r->y0), fabs(r->y1));
    const double pad = range > size * 1e-7 ? range * 0.05 : AF_MAX(size * 0.05, 1e-12);
    r->y0 -= pad;
    r->y1 += pad;
}

void af_chart_put(af_buf *b, const char *title, const af_series *a, const af_series *second,
                  bool noisy)
{
    af_series mean = {0};
    chart_range r = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    widen(&r, a);
    widen(&r, second);
    if (!(r.x1 >= r.x0))
        return;
    if (r.x1 == r.x0)
        r.x1 = r.x0 + 1;
    pad_y(&r);
    af_buf_printf(b, "<figure><figcaption>%s</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\">",
                  title, W, H);
    put_axes(b, &r);
    const bool both = noisy && a->count > DOTS;
    put_line(b, a, both ? "a faint" : "a", &r);
    if (both)
        smooth(&mean, a);
    put_line(b, &mean, "a", &r);
    put_line(b, second, "b", &r);
    put_hovers(b, a, second, &r);
    af_buf_str(b, "</svg></figure>\n");
    af_series_clear(&mean);
}
