/* optimizer.h - constants of the optimizer ops that host and device share. */
#ifndef AF_OPTIMIZER_H
#define AF_OPTIMIZER_H

#include <stdint.h>

/* What GRAD_NORM leaves in the stats tensor. */
enum { AF_STATS_NORM, AF_STATS_CLIP, AF_STATS_FINITE, AF_STATS_SUM, AF_STATS_COUNT = 4 };

/* ADAM_8BIT: elements that share one scale, and the size below which moments stay f32. */
enum { AF_ADAM_8BIT_BLOCK = 256, AF_ADAM_8BIT_MIN = 4096 };

struct af_graph;
struct af_tensor;
/* 8-bit Adam keeps the moments of this parameter in f32. For embeddings: a row that is not in the
 * batch has no gradient, a small second moment in 8 bits becomes 0, and the first one divided by
 * its root is a jump. */
void af_param_whole_moments(struct af_tensor *param);
/* A trained tensor that is really n matrices of these sizes, one after another (adapters share
 * memory): what an optimizer does per tensor is done per matrix. The sizes are
 * copied. */
void af_param_parts(struct af_graph *g, struct af_tensor *param, int n, const int64_t (*dim)[2]);

#define AF_CLIP_EPS            1e-6 /* clip factor = min(1, max_norm / (norm + this)) */
#define AF_ADAFACTOR_THRESHOLD 1.0  /* the update's root mean square is cut down to this */
#endif
