/* samples.h - generate_samples: prompts answered before, during and after a run.
 *
 * Answers are greedy, from a second graph over the same weights: the run's own graph, its counters
 * and its random numbers are not touched, so a run with samples trains the same bytes. Every answer
 * is a row of samples.jsonl; the report shows the first beside the last. */
#ifndef AF_SAMPLES_H
#define AF_SAMPLES_H

#include "train/trainer.h"

typedef struct af_samples af_samples;

/* Renders and encodes the run's prompts; *out stays NULL when it has none. Writes nothing. */
AF_CHECKED af_status af_samples_new(af_samples **out, const af_trainer *t, af_error *err);
void af_samples_free(af_samples *s); /* NULL is allowed */

/* Drops rows of steps the (resumed) run has not done. */
AF_CHECKED af_status af_samples_open(const af_trainer *t, af_error *err);
/* Answers every prompt. `dir`: the finished adapter or model; NULL = the weights as they are now.
 * No checkpoint may be in writing. Too little memory for a second graph is said, not an error. */
AF_CHECKED af_status af_samples_ask(af_trainer *t, const char *dir, af_error *err);
/* The before/after table, as HTML, from samples.jsonl: t->samples_html. */
AF_CHECKED af_status af_samples_table(af_trainer *t, af_error *err);
#endif
