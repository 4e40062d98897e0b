/* run_hooks.h - what a run reports to its caller, and whether it should stop. */
#ifndef AF_RUN_HOOKS_H
#define AF_RUN_HOOKS_H

#include "afinar/train.h"

/* Formats one line for the caller's log hook. `h` and the hook may be NULL. */
AF_PRINTF(2, 3) void af_run_log(const af_train_hooks *h, const char *fmt, ...);
/* A warning of the log, from the process whose hooks are heard (of several ranks: the first). */
AF_PRINTF(2, 3) void af_run_warn(const af_train_hooks *h, const char *fmt, ...);
/* Whether the caller wants the run to end soon: long work asks between its parts. */
bool af_run_stop_requested(const af_train_hooks *h);
#endif
