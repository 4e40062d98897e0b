/* tfevents.h - TensorBoard event files: TFRecord frames around hand-encoded Event messages. */
#ifndef AF_TFEVENTS_H
#define AF_TFEVENTS_H

#include "base/base.h"

/* Writes the opening frame ("brain.Event:2") of a new file. */
AF_CHECKED af_status af_tfevents_start(const char *path, double wall_time, af_error *err);
/* Records that the run resumes at `step`: events of earlier files from that step on are void. */
AF_CHECKED af_status af_tfevents_resume(const char *path, double wall_time, int64_t step,
                                        af_error *err);
/* Appends one scalar per tag at a step; flushed with the call. */
AF_CHECKED af_status af_tfevents_scalars(const char *path, double wall_time, int64_t step,
                                         const char *const *tag, const double *value, int n,
                                         af_error *err);
#endif
