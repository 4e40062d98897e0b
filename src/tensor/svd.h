/* svd.h - the largest singular values and vectors of a matrix, and orthonormal rows, in double,
 * without LAPACK. */
#ifndef AF_SVD_H
#define AF_SVD_H

#include "base/pool.h"

/* x [rows][cols] (f32) ~ sum over k of s[k] u[k] v[k]^T with k < rank: u [rank][rows], v
 * [rank][cols], s descending. Small or nearly full ranks are exact (one-sided Jacobi); others by a
 * random projection with `steps` (at least 6) power steps, same result for any number of threads.
 * rank <= min(rows, cols). */
AF_CHECKED af_status af_svd(const float *x, int64_t rows, int64_t cols, int64_t rank, int steps,
                            uint64_t seed, af_pool *pool, double *s, double *u, double *v,
                            af_error *err);

/* Rows of q [k][n] become orthonormal; zero where one depends on those before. */
void af_orthonormal(double *q, int64_t k, int64_t n);
#endif
