/* report_chart.h - curves as SVG. Under the pointer a curve shows its values, by style alone: a
 * page needs no script. */
#ifndef AF_REPORT_CHART_H
#define AF_REPORT_CHART_H

#include "base/buf.h"

typedef struct af_series {
    const char *name; /* in the values shown under the pointer */
    double *x, *y;
    int count, cap;
} af_series;

/* A point that memory does not suffice for is left out: a shorter curve, not a failed run. */
void af_series_add(af_series *s, double x, double y);
void af_series_clear(af_series *s);

/* One figure. `second` may be NULL. `noisy`: the raw curve is drawn faintly under its running mean.
 * A chart without points is left out. */
void af_chart_put(af_buf *b, const char *title, const af_series *a, const af_series *second,
                  bool noisy);
/* The rules of a style sheet that charts need. */
extern const char af_chart_style[];
#endif
