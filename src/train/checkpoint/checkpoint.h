/* checkpoint.h - a run's whole state on disk, written in the background, never half there.
 *
 * OUTPUT/checkpoint-STEP/ holds the adapter as a PEFT folder (or the model's safetensors),
 * optimizer.safetensors, progress.json and manifest.json (size and SHA-256 of each file). It is
 * written as checkpoint-STEP.tmp, synced, and renamed at the end: what has the final name is
 * complete, and a manifest that does not match tells of later damage. */
#ifndef AF_CHECKPOINT_H
#define AF_CHECKPOINT_H

#include "train/trainer/trainer.h"

typedef struct af_saver af_saver;

AF_CHECKED af_status af_saver_new(af_saver **out, af_error *err);
/* Starts writing the state, or a copy of it; waits first for the one before. Its failure comes with
 * the next call. */
AF_CHECKED af_status af_saver_save(af_saver *s, af_trainer *t, af_error *err);
/* Before anything changes the trained values or the optimizer state: waits until they are read. */
void af_saver_let_go(af_saver *s);
/* Waits until the last one is on disk. */
AF_CHECKED af_status af_saver_wait(af_saver *s, af_error *err);
void af_saver_free(af_saver *s);

/* Loads a checkpoint into a prepared trainer. */
AF_CHECKED af_status af_checkpoint_load(af_trainer *t, const char *dir, af_error *err);
/* The newest checkpoint of an output folder that is whole; *dir NULL when there is none. Broken
 * ones are named. */
AF_CHECKED af_status af_checkpoint_newest(const af_trainer *t, const char *output, char **dir,
                                          af_error *err);
/* Before loading: names the keys that the checkpoint's run file has otherwise; fails where its
 * state would be misread. After loading: whether the data is still the same. */
AF_CHECKED af_status af_resume_check(const af_trainer *t, const char *checkpoint, af_error *err);
void af_resume_check_data(const af_trainer *t);
/* Checks every file of a checkpoint against its manifest. */
AF_CHECKED af_status af_checkpoint_verify(const char *dir, af_error *err);

/* Writes the trained weights: a PEFT folder, or a Hugging Face model folder. */
AF_CHECKED af_status af_trainer_write_model(af_trainer *t, const char *dir, af_error *err);
/* The same from a checkpoint already on disk (the best one). */
AF_CHECKED af_status af_checkpoint_copy_model(const char *checkpoint, const char *dir,
                                              af_error *err);

/* The progress as JSON text (malloc'ed), and back. */
AF_CHECKED af_status af_progress_text(const af_progress *p, uint64_t clock, char **out,
                                      af_error *err);
AF_CHECKED af_status af_progress_read(af_progress *p, uint64_t *clock, const char *path,
                                      af_error *err);
#endif
