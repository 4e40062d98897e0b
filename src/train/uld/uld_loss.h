/* uld_loss.h - distributions of two tokenizers compared (Universal Logit Distillation, and the
 * variants of TRL's GOLD).
 *
 * Tokens are grouped where both tokenizers end at the same byte. The distribution of a group of
 * several tokens is that of its first (observed) or last (bayesian) token, times the probabilities
 * of its other tokens. The two distributions of a group are sorted, the shorter one is padded with
 * zeros, and their L1 distance is taken; hybrid: tokens that both vocabularies have are compared by
 * a generalised Jensen-Shannon divergence, the others by the sorted distance. A record's loss is
 * the mean over its groups. Nothing is renormalised, and there is no square of the temperature. */
#ifndef AF_ULD_LOSS_H
#define AF_ULD_LOSS_H

#include "base/pool.h"

typedef struct af_uld_opts {
    double student_temperature, teacher_temperature;
    double beta;               /* of the divergence, as kd_beta */
    double matched, unmatched; /* hybrid: weights of the two parts */
    bool bayesian, extended;   /* extended: groups by bytes, else token by token */
    bool hybrid;
    const int32_t *match; /* hybrid: [W], the student's token with the same text, or -1 */
    int64_t V, W;         /* rows of the heads: student, teacher */
} af_uld_opts;

/* The answer tokens of one side: row[k] of the logits is the distribution that goes with id[k], -1
 * where there is none; end[k] is the byte of the text after it. */
typedef struct af_uld_side {
    const float *logits;
    const int32_t *id;
    const int64_t *row, *end;
    int64_t n;
} af_uld_side;

/* Tokens [from, to) of both sides. */
typedef struct af_uld_group {
    int64_t student_from, student_to, teacher_from, teacher_to;
} af_uld_group;

/* Groups of one answer; `out` has space for as many as the student has tokens. Groups without a
 * token or a distribution on one side are left out. Returns their number. */
int64_t af_uld_align(const af_uld_opts *o, const af_uld_side *student, const af_uld_side *teacher,
                     af_uld_group *out);

typedef struct af_uld_work af_uld_work;
AF_CHECKED af_status af_uld_work_new(af_uld_work **out, const af_uld_opts *o, int threads,
                                     af_error *err);
void af_uld_work_free(af_uld_work *w); /* NULL is allowed */
/* The loss of a record with `n` groups, 0 without any. The rows of `grad` (as the student's logits)
 * that go with its tokens are overwritten by `share` times the gradient. parts, unless NULL: the
 * matched and the unmatched loss. Bits do not depend on the number of threads. */
AF_CHECKED af_status af_uld_loss(af_uld_work *w, const af_uld_side *student,
                                 const af_uld_side *teacher, const af_uld_group *group, int64_t n,
                                 double share, float *grad, double *loss, double *parts,
                                 af_error *err);
#endif
