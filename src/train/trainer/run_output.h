/* run_output.h - what a run writes: its locked folder, metrics, checkpoints. */
#ifndef AF_RUN_OUTPUT_H
#define AF_RUN_OUTPUT_H

#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"
#include "train/report/metrics.h"

typedef struct af_run_output {
    const char *dir; /* borrowed from the run file */
    af_run_lock lock;
    af_metrics metrics;
    af_saver *saver; /* writes checkpoints in the background; NULL until the run has started */
    bool created;    /* the folder is new: af_run_output_discard removes it */
} af_run_output;

/* Where the run begins: *checkpoint to load (malloc'ed) or NULL; *own: it is in this folder. Locks
 * the folder if it exists. Close after a failure too. */
AF_CHECKED af_status af_run_output_open(af_run_output *o, const af_run_config *run,
                                        const af_train_hooks *hooks, char **checkpoint, bool *own,
                                        af_error *err);
/* Creates the folder, removes what an earlier run left there, opens the metrics, writes run.yaml.
 */
AF_CHECKED af_status af_run_output_create(af_run_output *o, const af_run_config *run,
                                          af_run_progress *progress, double flops,
                                          const af_train_hooks *hooks, const char *checkpoint,
                                          bool own, af_error *err);
/* Refuses a disk without room for a checkpoint and the result (`best`: and for the best checkpoint
 * of the folder that the run comes from); and warns of one without room for
 * all checkpoints that the run keeps. */
AF_CHECKED af_status af_run_output_check_room(const af_run_output *o, const af_step_graph *g,
                                              bool best, af_error *err);
void af_run_output_warn_room(const af_run_output *o, const af_step_graph *g,
                             const af_run_progress *p, const af_train_hooks *hooks);
/* Removes a folder that was created for a run that does not start. */
void af_run_output_discard(af_run_output *o);
void af_run_output_close(af_run_output *o); /* waits for a checkpoint in writing */
#endif
