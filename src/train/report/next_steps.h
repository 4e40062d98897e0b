/* next_steps.h - the commands a user continues with, ready to paste into a shell. */
#ifndef AF_NEXT_STEPS_H
#define AF_NEXT_STEPS_H

#include "base/buf.h"
#include "train/run/run_config.h"
#include "train/step/run_model.h"

/* The command that continues a run from its last checkpoint: the run file and the overrides as they
 * were given. A run file that cannot be read again (stdin, a pipe) is replaced by the one in the
 * output folder. malloc'ed; NULL when out of memory. */
char *af_resume_command(const char *run_file, const char *const *overrides, int count,
                        const af_run_config *run);
/* What to do with the result of a run: generate, merge (of an adapter) and export, one per line.
 * chat: the model was trained on conversations. What GGUF cannot hold is not exported. */
void af_next_commands(af_buf *b, const af_run_config *run, const af_run_model *m, bool chat);
#endif
