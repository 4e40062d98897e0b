/* prompts.h - the prompts of generate_samples as tokens, and the memory their answers need.
 *
 * Answers come from a second graph over the same weights (on the CPU: the same memory): the run's
 * own graph, its counters and its random numbers are not touched. */
#ifndef AF_PROMPTS_H
#define AF_PROMPTS_H

#include "model/model_state.h"
#include "train/step/run_model.h"

typedef struct af_prompts {
    af_tokenizer *tokenizer;
    int count;
    const char *const *text; /* borrowed from the run file */
    int32_t **ids;           /* [count] */
    int64_t *len;
    int64_t max_new; /* tokens per answer */
} af_prompts;

/* Renders and encodes the run's prompts; *out stays NULL when it has none. `chat_template`: as
 * af_renderer_init takes it. */
AF_CHECKED af_status af_prompts_new(af_prompts **out, const af_run_config *run, const char *model,
                                    const char *chat_template, af_error *err);
/* Without a tokenizer, for a plan only: prompts as long as their bytes. */
AF_CHECKED af_status af_prompts_outline(af_prompts **out, const af_run_config *run, af_error *err);
void af_prompts_free(af_prompts *p); /* NULL is allowed */

/* A model that answers from `loader` and `adapter`, or, with `live`, from the weights as they are
 * being trained. Everything is borrowed but its engine. */
af_model af_prompts_model(const af_prompts *p, const af_run_model *m, af_loader *loader,
                          af_adapter *adapter, const af_model_leaves *live);
af_generate_opts af_prompts_opts(const af_prompts *p);
/* Bytes the second graph needs in addition to the recorded one; 0 without prompts. */
AF_CHECKED af_status af_prompts_plan(const af_prompts *p, const af_run_model *m,
                                     const af_model_leaves *leaves, uint64_t *bytes, af_error *err);
#endif
