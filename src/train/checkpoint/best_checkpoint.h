/* best_checkpoint.h - the best checkpoint so far of a run that resumes in another folder: it comes
 * along, so that load_best_model_at_end and early stopping go on as if the folder were the same. */
#ifndef AF_BEST_CHECKPOINT_H
#define AF_BEST_CHECKPOINT_H

#include "train/step/run_progress.h"

/* Looks for the checkpoint of p->best_step next to `checkpoint`, whose counters *p are, and checks
 * all of it. *dir: malloc'ed; NULL when it is not there or is not what *p counted, and `why` says
 * so. */
AF_CHECKED af_status af_best_checkpoint_find(char **dir, const af_run_progress *p,
                                             const char *checkpoint, af_error *why, af_error *err);
/* Copies it to output/checkpoint-STEP, which is whole or not there. */
AF_CHECKED af_status af_best_checkpoint_copy(const char *dir, const char *output, int64_t step,
                                             af_error *err);
#endif
