/* metrics.h - what a run writes down while it goes: metrics.jsonl, TensorBoard events,
 * trainer_state.json. */
#ifndef AF_METRICS_H
#define AF_METRICS_H

#include "train/trainer/trainer.h"

/* Opens the files in the output folder; after a resume (from `checkpoint`, else NULL) metrics.jsonl
 * has the rows that the progress knows of. */
AF_CHECKED af_status af_metrics_open(af_trainer *t, const char *checkpoint, af_error *err);
AF_CHECKED af_status af_metrics_step(af_trainer *t, const af_train_step *s, const af_step_result *r,
                                     af_error *err);
AF_CHECKED af_status af_metrics_eval(af_trainer *t, double loss, double accuracy, double seconds,
                                     af_error *err);
/* train_results.json, eval_results.json and all_results.json, at the end of a run. */
AF_CHECKED af_status af_metrics_results(const af_trainer *t, af_error *err);
/* Resident memory of this process in bytes: now, and the most it ever had. */
uint64_t af_resident_bytes(void);
uint64_t af_resident_own(void); /* without what is mapped from files */
uint64_t af_resident_peak(void);
/* What quantising weights took and malloc keeps for the next one: there is none. */
void af_resident_give_back(void);
#endif
