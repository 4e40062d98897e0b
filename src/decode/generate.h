/* generate.h - what af_model_generate needs; the rest is in afinar/model.h. */
#ifndef AF_GENERATE_H
#define AF_GENERATE_H

#include "model/model_state.h"

/* The most that af_model_generate takes for these prompts (their tokens are not looked at), besides
 * the weights: the graph and a row of logits. Without a loader, from m->live. */
AF_CHECKED af_status af_model_generate_plan(const af_model *m, const af_generate_opts *o,
                                            uint64_t *bytes, af_error *err);
#endif
