/* side_files.h - the files next to the weights of a model folder. */
#ifndef AF_SIDE_FILES_H
#define AF_SIDE_FILES_H

#include "base/base.h"

/* Writes the tokenizer of a model (with `whole` its configs, too), and the template a run was
 * trained with (`chat_template` as af_renderer_init takes it, NULL = the model's own) into every
 * file where readers look for one. The texts of a GGUF file are made from its metadata; where that
 * is not enough, `why` is set and the rest is written. `labels`: of a whole model that classifies,
 * what its config.json gets (af_run_label_text); else NULL. */
AF_CHECKED af_status af_side_files_put(const char *model, const char *chat_template,
                                       const char *labels, const char *dir, bool whole,
                                       af_error *why, af_error *err);
#endif
