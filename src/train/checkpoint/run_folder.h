/* run_folder.h - the output folder of a run. */
#ifndef AF_RUN_FOLDER_H
#define AF_RUN_FOLDER_H

#include "train/trainer/trainer.h"

/* The file that says that a run has ended. */
#define AF_RUN_FINISHED "run_state.json"

/* A finished run asked to resume by itself has nothing to do. */
bool af_run_folder_finished(const af_run_config *r);
/* What to do with a folder that has seen a run: go on, start over, or refuse. *checkpoint: where to
 * start from, or NULL; *own: it is one of this folder's. */
AF_CHECKED af_status af_run_folder_choose(af_trainer *t, char **checkpoint, bool *own,
                                          af_error *err);
/* Removes what an earlier run left (`keep`: not its checkpoints); of one that goes on, only the
 * word that it has ended. */
AF_CHECKED af_status af_run_folder_clear(const char *output, bool goes_on, bool keep,
                                         af_error *err);
/* A run that goes on from a checkpoint the user named leaves the later ones: from here on they are
 * not those of the run, and one that resumes by itself must not take them. They get another name
 * (AF_CHECKPOINT_LEFT), and can still be named. */
#define AF_CHECKPOINT_LEFT ".left"
AF_CHECKED af_status af_run_folder_set_aside(const af_trainer *t, af_error *err);
AF_CHECKED af_status af_run_folder_write(const char *dir, const char *name, const char *text,
                                         af_error *err);
/* Tokenizer and template beside the weights, so that the folder is complete. */
AF_CHECKED af_status af_run_folder_texts(const af_trainer *t, af_error *err);
/* Nobody else writes to the output folder until it is let go (or the process ends): two runs in one
 * folder would be neither. Does nothing while the folder is not there, or is held already. */
AF_CHECKED af_status af_run_folder_hold(af_trainer *t, af_error *err);
void af_run_folder_let_go(af_trainer *t);
#endif
