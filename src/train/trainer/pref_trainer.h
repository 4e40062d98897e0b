/* pref_trainer.h - steps and evaluations that compare answers: the forward pass gives the
 * log-probabilities of their tokens, the host the loss and the weights of rows, the backward pass
 * the gradients.
 *
 * The reference is the model that the run begins with: the base under a new adapter, the adapter
 * that is continued, or the weights before full fine-tuning. Its values are computed once, before
 * the first step; with sync_ref_model again after each change. */
#ifndef AF_PREF_TRAINER_H
#define AF_PREF_TRAINER_H

#include "train/preference/pref_batch.h"
#include "train/step/run_data.h"
#include "train/step/run_progress.h"

struct af_trainer;

typedef struct af_pref_trainer {
    af_pref_opts opts;
    af_pair_reference *ref, *eval_ref; /* by record of the store; the first value NaN = not known */
    af_pref_scratch scratch;
    int64_t most;            /* pairs of a micro-batch */
    af_pair_sums *sums;      /* of a step's micro-batches, `most` each */
    af_pair_reference *refs; /* of one, as the next */
    af_pair_grads *grads;
    af_pair_sums *eval_sums;
    af_pref_metrics eval_metrics; /* of the last evaluation */
    float *reference;             /* sync_ref_model: its values, in the order of the graph */
} af_pref_trainer;

/* micro: micro-batches of a step. */
AF_CHECKED af_status af_pref_trainer_open(af_pref_trainer *p, const af_run_data *data,
                                          const af_run_config *run, int64_t micro, af_error *err);
void af_pref_trainer_close(af_pref_trainer *p); /* an empty one is allowed */

/* The reference's values of every record that the run will use (or of the evaluation alone); before
 * a checkpoint is loaded. Does nothing where there is no reference. */
AF_CHECKED af_status af_trainer_reference(struct af_trainer *t, bool eval_only, af_error *err);
/* sync_ref_model: begins with the weights as they are, or with those of the checkpoint that was
 * loaded; after a step, mixes the weights into the reference when that is due. */
AF_CHECKED af_status af_trainer_sync_open(struct af_trainer *t, af_error *err);
AF_CHECKED af_status af_trainer_sync_resume(struct af_trainer *t, af_error *err);
AF_CHECKED af_status af_trainer_sync(struct af_trainer *t, af_error *err);
/* The gradients of one step. */

AF_CHECKED af_status af_trainer_pref_gradients(struct af_trainer *t, const af_step_result *r,
                                               af_error *err);
AF_CHECKED af_status af_trainer_pref_evaluate(struct af_trainer *t, double *loss, double *accuracy,
                                              bool *whole, af_error *err);
#endif
