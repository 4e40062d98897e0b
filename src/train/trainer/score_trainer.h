/* score_trainer.h - steps and evaluations of a model that gives scores: texts with labels, and
 * reward models. The forward pass gives the scores, the host loss and gradients, as in
 * pref_trainer.h.
 *
 * A text's scores are those of its last token that is not the padding token, whatever follows. */
#ifndef AF_SCORE_TRAINER_H
#define AF_SCORE_TRAINER_H

#include "model/labels/label_loss.h"
#include "train/step/run_data.h"
#include "train/step/run_progress.h"

struct af_trainer;

typedef struct af_score_trainer {
    af_label_opts labels;
    af_pref_opts reward;     /* of 'rl: reward' */
    int32_t pad;             /* -1 = none */
    int64_t most, pair_most; /* scores of a micro-batch; of an evaluated record */
    float *score;            /* of a step, or of an evaluation: what ranks exchange */
    af_pref_pair *pair;      /* of a micro-batch, as the next ones */
    double *grad;            /* [labels] */
    float *target;           /* [targets] */
    af_label_counts counts;  /* of the last evaluation */
} af_score_trainer;

/* micro: micro-batches of a step. */
AF_CHECKED af_status af_score_trainer_open(af_score_trainer *s, const af_run_model *model,
                                           const af_run_data *data, const af_run_config *run,
                                           int64_t micro, af_error *err);
void af_score_trainer_close(af_score_trainer *s); /* an empty one is allowed */

AF_CHECKED af_status af_trainer_score_gradients(struct af_trainer *t, const af_step_result *r,
                                                af_error *err);
AF_CHECKED af_status af_trainer_score_evaluate(struct af_trainer *t, double *loss, double *accuracy,
                                               bool *whole, af_error *err);
#endif
