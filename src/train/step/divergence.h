/* divergence.h - nodes that compare two distributions of the next token, row by row; see teacher.h
 * for the formula. */
#ifndef AF_DIVERGENCE_H
#define AF_DIVERGENCE_H

#include "afinar/graph.h"
#include "base/base.h"

/* The least logarithm of a share that af_divergence_best takes: exp gives 0 for it. */
#define AF_SHARE_LEAST (-4000.0f)

typedef struct af_divergence {
    af_graph *graph; /* borrowed */
    double beta;
    af_tensor *log_p, *log_q; /* f32 [1]: log(1 - beta), log(beta); NULL for 0 and 1 */
    af_tensor *border;        /* f32 [1]: of rows with some tokens; else NULL */
} af_divergence;

/* log of softmax(z / T), f32 [N][V]. */
af_tensor *af_log_shares(af_graph *g, af_tensor *z, double temperature);
/* The divergence of rows of logarithms, [N]: p of the student, q of the teacher. */
af_tensor *af_divergence_rows(af_divergence *d, af_tensor *p, af_tensor *q);
/* q of its most likely tokens alone: `best` i32 and `shares` f32 [N][k], logarithms. Tokens that
 * are not among them count in neither distribution; normalize: *p sums to 1 over them, too. */
af_tensor *af_divergence_best(af_divergence *d, af_graph *g, af_tensor *best, af_tensor *shares,
                              int64_t V, bool normalize, af_tensor **p);
/* After prepare: its constants. */
AF_CHECKED af_status af_divergence_load(const af_divergence *d, af_error *err);
#endif
