/* galore.h - GaLore (galore_cpu.c): how its projections are found. */
#ifndef AF_GALORE_H
#define AF_GALORE_H

#include "ops/optim/lowrank/lowrank.h"

/* Relative to the largest one: squares of lengths that are rounding, and products that are 0. */
#define AF_GALORE_TINY  1e-14
#define AF_GALORE_SMALL 1e-16

/* Where vectors point that had no predecessor: along these signs. */
static inline double af_galore_sign(int64_t i)
{
    return ((uint32_t)i * 2654435761u) >> 31 ? -1 : 1;
}

/* ---- k x k matrices in double: small.c ---- */

/* t [k][k] = Z^T Z (used up): Z m has orthonormal columns, or 0 where one depends on those before.
 */
void af_galore_orthonormal(double *t, double *m, int64_t k);

/* t [k][k] = Y^T Y (used up), Y = A Q with orthonormal Q: the first `rank` singular vectors of A
 * are about Q small and Y large, both [k][rank]. w: [k][k]. */
void af_galore_ritz(double *t, double *w, double *small, double *large, int64_t k, int64_t rank);
#endif
