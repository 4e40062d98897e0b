/* side_files.h - what stands beside the weights of a model folder. */
#ifndef AF_SIDE_FILES_H
#define AF_SIDE_FILES_H

#include "base/base.h"

/* Copies tokenizer and template of a model folder, and its configs where the other is to be a whole
 * model. */
AF_CHECKED af_status af_side_files_copy(const char *model, const char *dir, bool whole,
                                        af_error *err);
/* The template a run was trained with (`given` as in its run file, NULL = the model's own), in
 * every place where readers look for one: they take different ones. */
AF_CHECKED af_status af_side_files_template(const char *model, const char *given, const char *dir,
                                            af_error *err);
#endif
