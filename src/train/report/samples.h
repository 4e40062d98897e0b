/* samples.h - answers to the prompts of generate_samples before, during and after a run.
 *
 * Answers are greedy, so that a run with samples trains the same bytes. Every answer is a row of
 * samples.jsonl; the report shows the first and the last, which comes from what the run has
 * written. */
#ifndef AF_SAMPLES_H
#define AF_SAMPLES_H

#include "train/run/run_hooks.h"
#include "train/step/run_progress.h"
#include "train/step/step_graph.h"

/* What answers are made from. step->prompts NULL: every call does nothing. */
typedef struct af_samples {
    const af_step_graph *step;
    const af_run_progress *progress;
    const af_train_hooks *hooks;
} af_samples;

/* Drops rows of steps the (resumed) run has not done. */
AF_CHECKED af_status af_samples_open(const af_samples *s, af_error *err);
/* Answers every prompt. `dir`: the finished adapter or model; NULL = the weights as they are now.
 * No checkpoint may be in writing. Too little memory for a second graph is logged, not an error.
 * *whole is false, and no answer kept, when a stop was requested. */
AF_CHECKED af_status af_samples_ask(const af_samples *s, const char *dir, bool *whole,
                                    af_error *err);
/* The before/after table from samples.jsonl, as HTML (malloc'ed); *html NULL without prompts. */
AF_CHECKED af_status af_samples_table(const af_samples *s, char **html, af_error *err);
#endif
