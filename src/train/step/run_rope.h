/* run_rope.h - rope_scaling of a run file: the model is trained with other rotary positions. */
#ifndef AF_RUN_ROPE_H
#define AF_RUN_ROPE_H

#include "format/config/config_rope.h"
#include "train/run/run_config.h"

/* What the key asks for; `scaling` stays NULL where it asks for nothing. `model` is resolved. Close
 * after a failure too. */
AF_CHECKED af_status af_run_rope_open(af_rope_change *out, const af_run_config *r,
                                      const char *model, af_error *err);
void af_run_rope_close(af_rope_change *r);
#endif
