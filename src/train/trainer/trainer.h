/* trainer.h - one training run, from its parts: model, data, step graph, progress, output.
 *
 *     af_trainer_open -> af_trainer_start -> af_trainer_advance ... -> af_trainer_finish -> close
 *
 * Each part has its own header with open and close; this one only runs them together. */
#ifndef AF_TRAINER_H
#define AF_TRAINER_H

#include "train/report/report.h"
#include "train/step/run_data.h"
#include "train/step/run_progress.h"
#include "train/step/step_graph.h"
#include "train/trainer/pref_trainer.h"
#include "train/trainer/run_output.h"
#include "train/trainer/score_trainer.h"
#include "train/uld/uld_teacher.h"

/* When report.html was written, and how long that took: writing it stays a small share of a run. */
typedef struct af_report_times {
    int64_t began; /* of this session, as time() gives it */
    double written, cost;
    bool failed; /* and that was logged */
} af_report_times;

typedef struct af_trainer {
    const af_run_config *run;    /* borrowed, as the next one */
    const af_train_hooks *hooks; /* of several ranks: own_hooks */
    af_comm *comm;               /* the other ranks, or NULL; borrowed, as the next one */
    const af_train_hooks *asked; /* the caller's, whose `stop` counts where ranks agree on it */
    af_train_hooks own_hooks;
    uint64_t clock;        /* of the random numbers, at the beginning of the step */
    int64_t sent_steps;    /* in which step.sent bytes went to other ranks */
    bool differs;          /* ranks have read different files; stays after a close */
    bool stop;             /* a rank was asked to stop */
    af_error unmet;        /* rank 0 began what needs all ranks, and failed */
    uint64_t *rank_memory; /* of the last logged step, by rank; NULL = one process */
    af_run_model model;
    af_run_data data;
    af_prompts *prompts; /* of generate_samples, or NULL */
    af_step_graph step;
    af_pref_trainer pref;    /* of a run that compares answers, else empty */
    af_score_trainer scores; /* of a model that gives scores, else empty */
    af_uld_teacher uld;      /* of kd_uld, else empty */
    af_run_progress progress;
    af_run_output output;
    double eval_loss;           /* of the current step; NaN = not evaluated */
    const char *resume_command; /* for the report; NULL = the caller has none */
    af_report_times report;
} af_trainer;

/* Everything up to the first step: reads, checks, plans, prepares, loads. Creates nothing on disk.
 */
AF_CHECKED af_status af_trainer_open(af_trainer *t, const af_run_config *run, af_comm *comm,
                                     const af_train_hooks *hooks, af_error *err);
/* Rank 0 writes files and prints; the others compute. */
static inline bool af_trainer_writes(const af_trainer *t) { return af_comm_rank(t->comm) == 0; }
/* Whether the run was asked to stop: of several ranks, when they agreed the last time. */
bool af_trainer_stops(const af_trainer *t);
AF_CHECKED af_status af_trainer_agree_stop(af_trainer *t, af_error *err);
/* Creates or reopens the output folder, loads the checkpoint to resume from, and runs what is due
 * before the first step. */
AF_CHECKED af_status af_trainer_start(af_trainer *t, af_error *err);
/* The value of metric_for_best_model; `metrics`: of an evaluation, next to loss and accuracy. */
AF_CHECKED af_status af_trainer_best_metric(const af_run_config *run, double loss, double accuracy,
                                            const af_pref_metrics *metrics, double *value,
                                            af_error *err);
/* A metric that no evaluation of the run has is an error before its first step. Of the model, the
 * labels are known. */
AF_CHECKED af_status af_trainer_check_best_metric(const af_run_config *run,
                                                  const af_run_model *model, af_error *err);
/* Of a run that resumes in another folder: *best, to be copied there (malloc'ed), on the rank that
 * writes. Where it is lost, the best of the evaluations to come counts, and a warning says so. */
AF_CHECKED af_status af_trainer_find_best(af_trainer *t, char **best, const char *checkpoint,
                                          af_error *err);
/* The hooks `start`, before the first step, and `between`, before each step and after the last. */
AF_CHECKED af_status af_trainer_tell_start(const af_trainer *t, af_error *err);
AF_CHECKED af_status af_trainer_between(af_trainer *t, af_error *err);
/* One optimizer step, and what is due after it: log line, evaluation, samples, checkpoint. */
AF_CHECKED af_status af_trainer_advance(af_trainer *t, af_error *err);
/* What is left of the current step: all of it was done unless a stop was requested. */
AF_CHECKED af_status af_trainer_run_due(af_trainer *t, af_error *err);
/* Mean loss over the evaluation records. *whole is false, and nothing else set, when a stop was
 * requested in between. */
AF_CHECKED af_status af_trainer_evaluate(af_trainer *t, double *loss, double *accuracy, bool *whole,
                                         af_error *err);
/* Starts writing a checkpoint of the current step in the background (af_saver_wait). */
AF_CHECKED af_status af_trainer_save(af_trainer *t, af_error *err);
/* Writes the trained weights of the current step to a folder, ready to be used. */
AF_CHECKED af_status af_trainer_write_weights(const af_trainer *t, const char *dir, af_error *err);
/* The end of a run: final model, results, last samples, report. Frees the graph. *whole is false
 * when a stop was requested before the samples. */
AF_CHECKED af_status af_trainer_finish(af_trainer *t, bool *whole, af_error *err);
void af_trainer_close(af_trainer *t); /* an empty one is allowed */

/* Whether the last step is done, or early stopping has ended the run. */
bool af_trainer_done(const af_trainer *t);
bool af_trainer_out_of_patience(const af_trainer *t);
/* The loss watchdog has ended the run. */
bool af_trainer_loss_too_high(const af_trainer *t);

/* The step alone: k micro-batches and the update. Progress is not advanced. */
AF_CHECKED af_status af_trainer_step(af_trainer *t, af_step_result *r, af_error *err);
/* Gradients with a teacher of another tokenizer. */
AF_CHECKED af_status af_trainer_uld_gradients(af_trainer *t, const af_step_result *r,
                                              af_error *err);
/* Fails with the step, the first tensor that is not finite and the records of the batch; writes
 * replay-STEP.json and replay-STEP.yaml. */
AF_CHECKED af_status af_trainer_explain_nonfinite(af_trainer *t, const af_step_result *r,
                                                  af_error *err);
/* The same for a record of the evaluation that has just run. */
AF_CHECKED af_status af_trainer_explain_eval(af_trainer *t, const af_batch *b, af_error *err);
/* Writes report.html in a given state. `message`: why the run stopped or failed, or NULL. */
AF_CHECKED af_status af_trainer_report(af_trainer *t, af_report_state state, const char *message,
                                       af_error *err);
/* The same during the run: now (event), or when the last one is old enough. A report that
 * cannot be written is logged once and does not stop the run. */
void af_trainer_report_due(af_trainer *t, bool event);
/* Whether records are conversations and the model has a template for them. */
bool af_trainer_is_chat(const af_trainer *t);
/* Logs device, data, memory and doubtful settings, before the first step; and the totals. */
void af_trainer_log_start(const af_trainer *t);
void af_trainer_log_end(const af_trainer *t);
#endif
