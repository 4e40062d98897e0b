/* fp8_error.h - how far the FP8 products of a graph are from exact ones. */
#ifndef AF_FP8_ERROR_H
#define AF_FP8_ERROR_H

#include "graph/graph_access.h"

/* One product: its first weight, the pass, and sqrt(mean over rows of |y - exact|^2 / |exact|^2).
 */
typedef void af_fp8_error_fn(void *user, const af_tensor *weight, bool backward, double error);

/* Runs both passes once and shows every product that is in FP8, compared with sums in double of the
 * operands that were not rounded, adapters and biases included: some of its rows and columns,
 * spread evenly. Gradients are added to as by any run. */
AF_CHECKED af_status af_fp8_measure(af_graph *g, af_fp8_error_fn *show, void *user, af_error *err);
#endif
