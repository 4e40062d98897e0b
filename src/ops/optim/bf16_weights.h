/* bf16_weights.h - parameters in bf16 around an update that computes in f32.
 *
 * A value is read as f32, updated as an f32 parameter is, and rounded back:
 *   nearest     w = bf16(x)
 *   stochastic  w = the 16 high bits of (bits of x + r), r the 16-bit number of (seed, update,
 *               element): up with the probability of what is cut off. The element is counted in
 *               the flat buffer of all parameters, so threads and ranks do not matter.
 *   Kahan       w = bf16(x), rest = bf16(x - w); the next update reads w + rest
 * The number of an element: half i % 2 of word i / 2 of Philox(seed, stream of the update). */
#ifndef AF_BF16_WEIGHTS_H
#define AF_BF16_WEIGHTS_H

#include "graph/node.h"

/* Values i, i + 1, ... of the node's parameters as its update sees them. */
void af_bf16_weights_load(const af_node *n, int64_t i, int64_t count, float *out);
/* Their new values. `i` is a multiple of AF_BF16_RUN, `count` at most that. */
void af_bf16_weights_store(const af_node *n, int64_t i, int64_t count, const float *x);
/* Elements a caller handles at a time. */
enum { AF_BF16_RUN = 256 };

/* One element, for twins. */
double af_bf16_weight(const af_node *n, int64_t i);
void af_bf16_weight_set(const af_node *n, int64_t i, double x);
#endif
