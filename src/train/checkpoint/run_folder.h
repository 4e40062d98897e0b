/* run_folder.h - the output folder of a run. */
#ifndef AF_RUN_FOLDER_H
#define AF_RUN_FOLDER_H

#include "train/run/run_hooks.h"
#include "train/step/run_model.h"

/* Its presence marks a finished run. */
#define AF_RUN_FINISHED "run_state.json"

/* Whether a run that resumes automatically has nothing left to do. */
bool af_run_folder_finished(const af_run_config *r);
/* Refuses an output folder that the run must not write to, before anything heavy is loaded: one
 * with content, unless the run resumes there or overwrites what an earlier one wrote. */
AF_CHECKED af_status af_run_folder_check(const af_run_config *r, af_error *err);
/* What to do with a folder that holds an earlier run: resume, start over, or refuse. *checkpoint:
 * where to start from (malloc'ed), or NULL; *own: it is one of this folder's. */
AF_CHECKED af_status af_run_folder_choose(const af_run_config *r, const af_train_hooks *hooks,
                                          char **checkpoint, bool *own, af_error *err);
/* Removes the files of an earlier run (`keep`: not its checkpoints), and nothing else; with
 * `resumes` only the mark that it has finished. */
AF_CHECKED af_status af_run_folder_clear(const char *output, bool resumes, bool keep,
                                         af_error *err);
/* A run that resumes from a checkpoint the user named abandons the later ones: an automatic resume
 * must not take them. They get another name (AF_CHECKPOINT_LEFT) and can still be named. */
#define AF_CHECKPOINT_LEFT ".left"
AF_CHECKED af_status af_run_folder_rename_later(const af_run_config *r, int64_t step,
                                                const af_train_hooks *hooks, af_error *err);
/* Writes dir/name. */
AF_CHECKED af_status af_run_folder_write(const char *dir, const char *name, const char *text,
                                         af_error *err);
/* Tokenizer and template next to the weights in `dir`, so that the folder is complete. */
AF_CHECKED af_status af_run_folder_texts(const af_run_model *m, const char *chat_template,
                                         const char *dir, const af_train_hooks *hooks,
                                         af_error *err);

/* The lock on an output folder: two runs never write to one folder. */
typedef struct af_run_lock {
    bool held;
    int fd;
} af_run_lock;
/* Fails when another run holds it. Does nothing while the folder does not exist or is locked here
 * already. The lock ends with the process, too. */
AF_CHECKED af_status af_run_lock_take(af_run_lock *l, const char *output, af_error *err);
void af_run_lock_release(af_run_lock *l);
#endif
