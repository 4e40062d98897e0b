/* label_loss.h - losses of scores by labels, as transformers has them, and what an evaluation of
 * them counts. All on the host, in double. */
#ifndef AF_LABEL_LOSS_H
#define AF_LABEL_LOSS_H

#include "base/label_opts.h"

/* AUTO as what it means for this many labels. */
af_problem af_problem_of(const af_label_opts *o);
/* Values of a target: 1 (its class), or one per label. */
int64_t af_label_targets(const af_label_opts *o);

/* Loss of one text; it and `grad` [count] (d loss / d score, may be NULL) are those of a mean over
 * n texts. score [count], target [af_label_targets]. */
double af_label_loss(const af_label_opts *o, const float *score, const float *target, int64_t n,
                     double *grad);
/* Shares of a text's labels, for people: softmax, sigmoids, or the scores. */
void af_label_probabilities(const af_label_opts *o, const float *score, double *out);

/* The row of tokens [from, to) that has a text's scores: the last one that is not the padding
 * token, whatever a mask says. */
int64_t af_score_row(const int32_t *ids, int64_t from, int64_t to, int32_t pad);

/* What an evaluation counts. */
typedef struct af_label_counts {
    int64_t texts, right;
    int64_t *hit, *wrong, *missed; /* [labels]: of classes */
    double squares;                /* of regression: sum of squared differences */
    int64_t labels, values;
} af_label_counts;
AF_CHECKED af_status af_label_counts_init(af_label_counts *c, int64_t labels, af_error *err);
void af_label_counts_clear(af_label_counts *c);
void af_label_counts_reset(af_label_counts *c);
void af_label_counts_add(af_label_counts *c, const af_label_opts *o, const float *score,
                         const float *target);
/* F1 of a label, 0 where it neither is nor was predicted; and the mean over labels, without such
 * classes (scikit-learn's macro average). */
double af_label_f1(const af_label_counts *c, int64_t label);
double af_label_f1_macro(const af_label_counts *c, const af_label_opts *o);
#endif
