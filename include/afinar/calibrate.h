/* calibrate.h - integer quantization grids: ranges from data, codes, and their error.
 *
 *     af_observer *o;
 *     af_observer_new(&o, rows, cols, &(af_grid_opts){.bits = 8, .split = AF_SPLIT_ROW}, &err);
 *     af_observer_add(o, x, &err);                   // any number of batches [rows][cols]
 *     af_observer_finish(o, scale, zero, &err);      // one pair per grid
 *     af_grid_encode(..., x, code); af_grid_decode(..., code, y);
 *     af_grid_error e = af_grid_measure(x, y, count);
 *
 * A grid maps code q to scale * (q - zero). For quantisation-aware training the same rounding is a
 * graph op with a straight-through gradient: af_fake_quant in graph.h. */
#ifndef AFINAR_CALIBRATE_H
#define AFINAR_CALIBRATE_H

#include "afinar/status.h"
#include "afinar/types.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which values share a grid. */
typedef enum af_split {
    AF_SPLIT_TENSOR,
    AF_SPLIT_ROW,    /* per row: the output channels of a linear layer */
    AF_SPLIT_COLUMN, /* per column: input channels */
    AF_SPLIT_GROUP,  /* per `group` columns of a row */
} af_split;

/* How a range is derived from the data. */
typedef enum af_range_rule {
    AF_RANGE_MINMAX,     /* over all batches */
    AF_RANGE_PERCENTILE, /* of all values seen, interpolated between neighbours: (100 - p, p), of
                            |x| when symmetric */
    AF_RANGE_MOVING,     /* of the batches' minima and maxima: v += momentum * (batch - v) */
} af_range_rule;

typedef struct af_grid_opts {
    int bits;        /* 2 to 8 */
    bool asymmetric; /* codes 0 .. 2^bits-1 and a zero point; else -2^(bits-1) .. 2^(bits-1)-1 */
    af_split split;
    int64_t group; /* AF_SPLIT_GROUP: divides the columns */
    af_range_rule rule;
    double percentile; /* 50 < p <= 100; 0 = 99.99 */
    double momentum;   /* 0 < m <= 1; 0 = 0.01 */
} af_grid_opts;

/* Collects ranges over batches. */
typedef struct af_observer af_observer;

/* The number of grids of a [rows][cols] tensor; -1 when the options do not fit it. */
AF_API int64_t af_grid_count(int64_t rows, int64_t cols, const af_grid_opts *o);

/* Creates an observer of [rows][cols] batches. On success *out belongs to the caller; free it with
 * af_observer_free. *o is copied. AF_EUSAGE when the options do not fit the shape. */
AF_API AF_CHECKED af_status af_observer_new(af_observer **out, int64_t rows, int64_t cols,
                                            const af_grid_opts *o, af_error *err);
/* NULL is allowed. */
AF_API void af_observer_free(af_observer *o);
/* Adds one batch [rows][cols]. AF_EUSAGE names the first value that is not finite. */
AF_API AF_CHECKED af_status af_observer_add(af_observer *o, const float *x, af_error *err);
/* The range of grid g so far. AF_EUSAGE before the first batch or for a grid out of range. */
AF_API AF_CHECKED af_status af_observer_range(const af_observer *o, int64_t g, float *low,
                                              float *high, af_error *err);
/* The grids: scale [grids], zero [grids]. symmetric: scale = max|range| / (2^(bits-1) - 1), zero 0;
 * asymmetric: 0 is made part of the range, scale = (high - low) / (2^bits - 1),
 * zero = round(-low / scale). An empty range gives scale 1. AF_EUSAGE
 * before the first batch. */
AF_API AF_CHECKED af_status af_observer_finish(const af_observer *o, float *scale, int32_t *zero,
                                               af_error *err);

/* Encodes to clamp(round(x / scale) + zero), ties to even, and decodes. x, y, code [rows][cols];
 * codes are int8 for symmetric grids, else the bits of uint8. Pure functions; any thread. */
AF_API void af_grid_encode(int64_t rows, int64_t cols, const af_grid_opts *o, const float *scale,
                           const int32_t *zero, const float *x, int8_t *code);
AF_API void af_grid_decode(int64_t rows, int64_t cols, const af_grid_opts *o, const float *scale,
                           const int32_t *zero, const int8_t *code, float *y);

typedef struct af_grid_error {
    double mse;     /* mean square of the difference */
    double snr_db;  /* 10 log10 of signal over noise; infinite without noise */
    double max_abs; /* largest difference */
} af_grid_error;
/* The error of `decoded` against `original`, both [count]. A pure function; any thread. */
AF_API af_grid_error af_grid_measure(const float *original, const float *decoded, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
