/* fp8_linear.h - projections whose frozen weights and activations count as e4m3 (attr.linear.fp8).
 *
 * LINEAR     y[n][o] = sx[n] sw[o] sum_i qx[n][i] qw[o][i] + bias[o] + xa B', a scale for each row
 *            of x and for each output row of the weights
 * LINEAR_DX  dx[n][i] = sy[n] st[i] sum_o qy[n][o] qt[o][i] + g a, a scale for each row of dy and
 *            for each input column of all pieces together
 * Codes and scales are those of tensor/fp8_round.h; sums, biases and adapters are as without FP8.
 * The other ops of the family never see the codes: gradients of an adapter are those of the x and
 * dy that were not rounded. */
#ifndef AF_FP8_LINEAR_H
#define AF_FP8_LINEAR_H

#include "backend/cpu/cpu.h"

/* Bytes of workspace for the rounded operands of a node; 0 = it is not in FP8. */
uint64_t af_fp8_cpu_bytes(const af_node *n);
/* Runs the node on copies of its operands that are rounded as above. */
void af_fp8_cpu_run(const af_node *n, af_cpu *cpu, af_cpu_kernel *plain);
#endif
