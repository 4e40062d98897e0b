/* optim_targets.h - the matrices that APOLLO and GaLore project: optim_target_modules. */
#ifndef AF_OPTIM_TARGETS_H
#define AF_OPTIM_TARGETS_H

#include "train/step/step_graph.h"

/* Marks the parameters that are updated with AdamW; before af_graph_optimizer. As transformers: a
 * linear is a target when its path has one of the texts in it, or matches it from end to end. */
AF_CHECKED af_status af_optim_targets_mark(const af_step_graph *s, af_error *err);
#endif
