/* parquet_runs.h - the small encodings of parquet: runs and packed bits (levels, dictionary
 * indexes, truth values), and differences of whole numbers.
 *
 * Both are streams: a few values at a time, so that memory does not depend on what a page says. */
#ifndef AF_PARQUET_RUNS_H
#define AF_PARQUET_RUNS_H

#include "base/base.h"

/* RLE / bit-packed hybrid, or the deprecated BIT_PACKED (most significant bit first). */
typedef struct af_runs {
    const uint8_t *at, *end;
    int width; /* bits of a value, 0 .. 32 */
    bool bit_packed;
    uint64_t repeats, packed; /* left of the run */
    uint32_t value;           /* that repeats */
    uint64_t bit;             /* of the packed run, from `at` on */
} af_runs;

/* Gives n values; false when the data has no more. */
bool af_runs_next(af_runs *r, uint32_t *out, uint64_t n);

/* DELTA_BINARY_PACKED. */
typedef struct af_delta {
    const uint8_t *at, *end;
    uint64_t per_mini, minis; /* values of a miniblock, miniblocks of a block */
    uint64_t total, left;     /* values */
    uint64_t last, least;     /* the value before; the smallest difference of the block */
    const uint8_t *widths;    /* of the block */
    uint64_t mini;            /* the next miniblock of the block */
    uint64_t mini_left, bit;
    int width;
} af_delta;

/* Reads the header. False when it is damaged or declares more than `most` values. */
bool af_delta_open(af_delta *d, const uint8_t *p, const uint8_t *end, uint64_t most);
/* The next value; false when there is none. */
bool af_delta_next(af_delta *d, int64_t *out);
/* Where the numbers end, without reading them; NULL when they are cut. */
const uint8_t *af_delta_end(const af_delta *d);
#endif
