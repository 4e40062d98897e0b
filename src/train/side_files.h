/* side_files.h - what stands beside the weights of a model folder. */
#ifndef AF_SIDE_FILES_H
#define AF_SIDE_FILES_H

#include "base/base.h"

/* Copies tokenizer and template of a model folder, and its configs where the other is to be a whole
 * model. */
AF_CHECKED af_status af_side_files_copy(const char *model, const char *dir, bool whole,
                                        af_error *err);
#endif
