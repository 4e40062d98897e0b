/* start_labels.h - the labels of a run: what its keys say, and for what they leave out those of the
 * model that it begins with. */
#ifndef AF_START_LABELS_H
#define AF_START_LABELS_H

#include "train/run/run_config.h"

/* `model`: the resolved base. Names lie in the arena or in the run. Count 0: no model of labels. */
AF_CHECKED af_status af_start_labels(af_label_opts *out, const af_run_config *r, const char *model,
                                     af_arena *mem, af_error *err);
#endif
