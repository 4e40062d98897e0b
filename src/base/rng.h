/* rng.h - Philox4x32-10, a counter-based generator (Salmon et al., SC 2011).
 *
 * The numbers are a pure function of (seed, stream, index): any thread, any device, any order gives
 * the same ones, and a resumed run needs no saved state beyond its counters. */
#ifndef AF_RNG_H
#define AF_RNG_H

#include "base/base.h"

/* The raw block function: four words from a 128-bit counter and a 64-bit key. */
void af_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* The 4 * n words of blocks first, first + 1, ... of a stream: af_rng_u32 many at a time. */
void af_rng_words(uint32_t *out, uint64_t seed, uint64_t stream, uint64_t first, uint64_t n);

/* Word `index` of stream `stream` under `seed`: block index/4, lane index%4. */
uint32_t af_rng_u32(uint64_t seed, uint64_t stream, uint64_t index);
/* [0, 1) with 24 bits. */
float af_rng_f32(uint64_t seed, uint64_t stream, uint64_t index);
/* [0, 1) with 53 bits: uses words 2*index and 2*index+1. */
double af_rng_f64(uint64_t seed, uint64_t stream, uint64_t index);
/* n of them from an even index on; n is even, at most 256. */
void af_rng_f64_row(double *out, uint64_t seed, uint64_t stream, uint64_t first, int n);
/* Standard normal by Box-Muller from words 2*index and 2*index+1. */
double af_rng_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform integer in [0, n), n > 0, without bias worth measuring (64-bit multiply). */
uint64_t af_rng_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
#endif
