/* run_files.h - which files of an output folder belong to the run: those that the manifest
 * (base/written.h) lists in the group AF_OUTPUT_RUN, and checkpoint folders that have a
 * manifest.json. Everything else there is the user's, is never removed and never overwritten. */
#ifndef AF_RUN_FILES_H
#define AF_RUN_FILES_H

#include "base/publish.h"

/* Refuses an output folder that a run must not write to: "/", a file, a link to nothing, and with
 * content that is not from a run, unless `force`. */
AF_CHECKED af_status af_run_files_check(const char *output, bool force, af_error *err);
/* Refuses a folder where files of the run would overwrite something of the user's, also
 * checkpoint-N with from < N <= to. */
AF_CHECKED af_status af_run_files_check_names(const char *output, int64_t from, int64_t to,
                                              af_error *err);
/* Lists names as the run's before they are written for the first time; refuses those that are
 * there and are somebody else's. */
AF_CHECKED af_status af_run_files_claim(const char *output, const char *const *names, int n,
                                        af_error *err);
/* Lists a file that the run has just created. */
AF_CHECKED af_status af_run_files_add(const char *output, const char *name, af_error *err);
/* The names written from the first step on, and at the end of a run. */
AF_CHECKED af_status af_run_files_claim_start(const char *output, af_error *err);
AF_CHECKED af_status af_run_files_claim_result(const char *output, af_error *err);
/* A folder of a version without manifests: what has the name of a run's file is the run's. */
AF_CHECKED af_status af_run_files_adopt(const char *output, af_error *err);
/* Records what the files are now, so that later changes are seen as the user's; names of files
 * that are not there are dropped. `all`: also logs, which the run does not write any more. */
AF_CHECKED af_status af_run_files_seal(const char *output, bool all, af_error *err);
/* Removes temporary folders that killed runs have left. */
AF_CHECKED af_status af_run_files_sweep(const char *output, af_error *err);
/* Removes the files of a run; with `keep` not its checkpoints. */
AF_CHECKED af_status af_run_files_remove(const char *output, bool keep, af_error *err);
/* Whether the manifest lists a run. */
bool af_run_files_any(const char *output);
/* *own: whether a file is not there, or is the run's. */
AF_CHECKED af_status af_run_files_is_own(const char *output, const char *name, bool *own,
                                         af_error *err);

/* checkpoint-STEP or -1. */
int64_t af_checkpoint_step(const char *name);
/* Whether a folder is a checkpoint of this program (also a damaged one). */
bool af_checkpoint_is_own(const char *output, const char *name);
/* Removes the files of a checkpoint, and its folder when nothing else is in it. */
AF_CHECKED af_status af_checkpoint_remove(const char *dir, af_error *err);
/* Removes a temporary folder of the checkpoint `whole`. Files of the user's in it move to `whole`;
 * one with a damaged manifest is renamed to `whole`.damaged. */
AF_CHECKED af_status af_checkpoint_drop(const char *dir, const char *whole, af_error *err);
/* Renames a finished checkpoint to `to`. One of ours that is there is replaced; files of the user's
 * in it move to the new one. Refused when they have the name of a file of the checkpoint. A damaged
 * one is renamed to `to`.damaged. */
AF_CHECKED af_status af_checkpoint_replace(const char *from, const char *to, af_error *err);
#endif
