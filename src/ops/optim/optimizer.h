/* optimizer.h - constants of the optimizer ops that host and device share. */
#ifndef AF_OPTIMIZER_H
#define AF_OPTIMIZER_H

#include <stdint.h>

/* What GRAD_NORM leaves in the stats tensor. */
enum { AF_STATS_NORM, AF_STATS_CLIP, AF_STATS_FINITE, AF_STATS_SUM, AF_STATS_COUNT = 4 };

/* ADAM_8BIT: elements that share one scale, and the size below which moments stay f32. */
enum { AF_ADAM_8BIT_BLOCK = 256, AF_ADAM_8BIT_MIN = 4096 };

/* ADAM_4BIT, as torchao: elements that share one scale, and the least value of a scale. */
enum { AF_ADAM_4BIT_BLOCK = 128 };
#define AF_ADAM_4BIT_SCALE_MIN 1e-12f

/* ADEMAMIX (Pagliardini et al. 2024): decay of the slow moment and its share. */
#define AF_ADEMAMIX_BETA3 0.9999
#define AF_ADEMAMIX_ALPHA 5.0

/* MUON: the quintic that pushes singular values towards 1 (Jordan et al. 2024), its iterations,
 * and the factor that gives the update the root mean square of Adam's (Liu et al. 2025). */
enum { AF_MUON_STEPS = 5 };
#define AF_MUON_A    3.4445
#define AF_MUON_B    -4.7750
#define AF_MUON_C    2.0315
#define AF_MUON_EPS  1e-7
#define AF_MUON_RMS  0.2
#define AF_MUON_BETA 0.95

/* APOLLO and GALORE, as transformers: the rank of projections, and the updates with one of them. */
enum { AF_LOWRANK_RANK = 128, AF_LOWRANK_GAP = 200 };
#define AF_GALORE_SCALE 0.25

/* What FREE_WEIGHT gives: the rate of the step, its weight in the average, 1 = the first. */
enum { AF_FREE_RATE, AF_FREE_SHARE, AF_FREE_FIRST, AF_FREE_COUNT };

struct af_graph;
struct af_tensor;
/* Only rows [from, to) of this parameter are trained: the gradient of the others is zero. Several
 * calls, in ascending order, add up. */
void af_param_rows(struct af_graph *g, struct af_tensor *param, int64_t from, int64_t to);
/* MUON updates this matrix with AdamW: embeddings, heads, what is trained in full next to an
 * adapter. */
void af_param_outside(struct af_tensor *param);
/* ADAM_MINI: so many neighbours of this parameter share a second moment (they divide its count);
 * 0 = all of them, 1 = each value has its own. */
void af_param_moment_block(struct af_tensor *param, int64_t block);
/* 8-bit Adam keeps the moments of this parameter in f32. For embeddings: a row that is not in the
 * batch has no gradient, a small second moment in 8 bits becomes 0, and the first one divided by
 * its root is a jump. */
void af_param_whole_moments(struct af_tensor *param);
/* A trained tensor that is really n matrices of these sizes, one after another (adapters share
 * memory): what an optimizer does per tensor is done per matrix. The sizes are
 * copied. */
void af_param_parts(struct af_graph *g, struct af_tensor *param, int n, const int64_t (*dim)[2]);

/* Stochastic rounding: the stream of update t is this + t. */
#define AF_ROUNDING_STREAM (UINT64_C(0xb7) << 56)

#define AF_CLIP_EPS            1e-6 /* clip factor = min(1, max_norm / (norm + this)) */
#define AF_ADAFACTOR_THRESHOLD 1.0  /* the update's root mean square is cut down to this */
#endif
