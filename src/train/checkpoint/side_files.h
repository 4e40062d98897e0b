/* side_files.h - what stands beside the weights of a model folder. */
#ifndef AF_SIDE_FILES_H
#define AF_SIDE_FILES_H

#include "base/base.h"

/* Where the texts of a GGUF file lie for a moment. */
#define AF_SIDE_FILES_TEMP "tokenizer.tmp"

/* Tokenizer of a model (beside a whole model its configs, too), and the template a run was trained
 * with (`given` as af_renderer_init takes it, NULL = the model's own) in every place where readers
 * look for one: they take different ones. The texts of a GGUF file are made from what it knows;
 * where that is too little, `why` says so, and the rest is written. */
AF_CHECKED af_status af_side_files_put(const char *model, const char *given, const char *dir,
                                       bool whole, af_error *why, af_error *err);
#endif
