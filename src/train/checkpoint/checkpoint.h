/* checkpoint.h - a run's whole state on disk, written in the background, never incomplete.
 *
 * OUTPUT/checkpoint-STEP/ holds the adapter as a PEFT folder (or the model's safetensors),
 * optimizer.safetensors, progress.json and manifest.json (size and SHA-256 of each file). It is
 * written as checkpoint-STEP.tmp, synced, and renamed at the end: what has the final name is
 * complete, and a manifest that does not match shows later damage. */
#ifndef AF_CHECKPOINT_H
#define AF_CHECKPOINT_H

#include "train/run/run_hooks.h"
#include "train/step/run_data.h"
#include "train/step/run_progress.h"
#include "train/step/step_graph.h"

typedef struct af_saver af_saver;

AF_CHECKED af_status af_saver_new(af_saver **out, af_error *err);
/* What a checkpoint is written from. */
typedef struct af_checkpoint_source {
    const af_step_graph *step;
    const af_run_progress *progress;
    const char *chat_template; /* of the run's data */
    const char *trainer_state; /* text of trainer_state.json */
} af_checkpoint_source;

#define AF_CHECKPOINT_REFERENCE "reference" /* among the optimizer's states */
#define AF_CHECKPOINT_TAKEN     "taken"     /* schedule-free: the weights are the average */

/* Starts writing checkpoint-STEP; waits first for the previous one. The step graph, its model and
 * the template must live until it is written. A failure is reported by the next call. */
AF_CHECKED af_status af_saver_save(af_saver *s, const af_checkpoint_source *from, af_error *err);
/* Whether each rank has a part of the optimizer's state: checkpoints hold the whole. */
static inline bool af_checkpoint_is_split(const af_step_graph *g)
{
    return g->model->comm && g->model->zero_stage >= 1;
}
/* Bytes of the values that a checkpoint holds, and of the trained weights alone. */
uint64_t af_checkpoint_bytes(const af_step_graph *g);
uint64_t af_trained_bytes(const af_step_graph *g);
/* What a rank other than 0 does then: sends its part of the state, and of weights. */
AF_CHECKED af_status af_checkpoint_send(const af_step_graph *g, af_error *err);
/* Waits until trained values and optimizer state have been read: call it before they change. */
void af_saver_wait_read(af_saver *s);
/* Whether the last checkpoint could not be written, without waiting: af_saver_wait says why. */
bool af_saver_failed(af_saver *s);
/* Waits until the last checkpoint is on disk. */
AF_CHECKED af_status af_saver_wait(af_saver *s, af_error *err);
void af_saver_free(af_saver *s);

/* Loads a checkpoint into a prepared graph and the counters. */
AF_CHECKED af_status af_checkpoint_load(af_step_graph *step, af_run_progress *p, const char *dir,
                                        af_error *err);
/* The newest complete checkpoint of an output folder (malloc'ed); *dir NULL when there is none.
 * Damaged ones are logged. */
AF_CHECKED af_status af_checkpoint_newest(const char *output, const af_train_hooks *hooks,
                                          char **dir, af_error *err);
/* Before loading: logs keys whose value differs from the checkpoint's run file; fails where its
 * state would be misread. After loading: warns when the data has changed. */
AF_CHECKED af_status af_resume_check(const af_run_model *m, const af_run_data *d,
                                     const af_train_hooks *hooks, const char *checkpoint,
                                     af_error *err);
/* The same with the run file of a complete run in output_dir: what it would do otherwise. */
AF_CHECKED af_status af_resume_check_complete(const af_run_config *run, const af_train_hooks *hooks,
                                              af_error *err);
void af_resume_check_data(const af_run_progress *p, const af_run_data *d,
                          const af_train_hooks *hooks);
/* Checks every file of a checkpoint against its manifest. */
AF_CHECKED af_status af_checkpoint_verify(const char *dir, af_error *err);

/* Writes the trained weights: a PEFT folder, or a Hugging Face model folder. */
AF_CHECKED af_status af_trained_write(const af_step_graph *step, const char *dir, af_error *err);
/* What a rank other than 0 does then: sends its part of weights that are split. */
AF_CHECKED af_status af_trained_send(const af_step_graph *step, af_error *err);
/* The same from a checkpoint already on disk (the best one). */
AF_CHECKED af_status af_checkpoint_copy_model(const char *checkpoint, const char *dir,
                                              af_error *err);
#endif
