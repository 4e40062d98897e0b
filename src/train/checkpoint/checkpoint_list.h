/* checkpoint_list.h - the checkpoints of an output folder. */
#ifndef AF_CHECKPOINT_LIST_H
#define AF_CHECKPOINT_LIST_H

#include "base/base.h"

/* Finished ones, newest first; other names are dropped from the list. own: only those of this
 * program. af_names_free. */
AF_CHECKED af_status af_checkpoint_list(char ***names, int *n, const char *output, bool own,
                                        af_error *err);
#endif
