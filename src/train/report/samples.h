/* samples.h - generate_samples: prompts answered before, during and after a run.
 *
 * Answers are greedy, from a second graph over the same weights (on the CPU: the same memory): the
 * run's own graph, its counters and its random numbers are not touched, so a run with samples
 * trains the same bytes. Every answer is a row of samples.jsonl; the report shows the first beside
 * the last, which comes from what the run has written. */
#ifndef AF_SAMPLES_H
#define AF_SAMPLES_H

#include "train/trainer/trainer.h"

typedef struct af_samples af_samples;

/* Renders and encodes the run's prompts; *out stays NULL when it has none. Writes nothing. */
AF_CHECKED af_status af_samples_new(af_samples **out, const af_trainer *t, af_error *err);
/* Without a tokenizer, for a plan only: prompts as long as their bytes. */
AF_CHECKED af_status af_samples_outline(af_samples **out, const af_trainer *t, af_error *err);
void af_samples_free(af_samples *s); /* NULL is allowed */

/* What the second graph needs beside the recorded one; 0 without prompts. */
AF_CHECKED af_status af_samples_plan(const af_trainer *t, uint64_t *bytes, af_error *err);

/* Drops rows of steps the (resumed) run has not done. */
AF_CHECKED af_status af_samples_open(const af_trainer *t, af_error *err);
/* Answers every prompt. `dir`: the finished adapter or model; NULL = the weights as they are now.
 * No checkpoint may be in writing. Too little memory for a second graph is said, not an error.
 * *whole is false, and no answer kept, when a stop was asked for. */
AF_CHECKED af_status af_samples_ask(af_trainer *t, const char *dir, bool *whole, af_error *err);
/* The before/after table, as HTML, from samples.jsonl: t->samples_html. */
AF_CHECKED af_status af_samples_table(af_trainer *t, af_error *err);
#endif
