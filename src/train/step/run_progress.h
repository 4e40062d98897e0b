/* run_progress.h - how far a run is: its length, its learning rates, and the counters of what is
 * done.
 *
 * The counters are in every checkpoint; length and rates follow from run file and data. */
#ifndef AF_RUN_PROGRESS_H
#define AF_RUN_PROGRESS_H

#include "afinar/schedule.h"
#include "train/preference/pref_metrics.h"
#include "train/run/run_config.h"

#include <jansson.h>

/* reduce_lr_on_plateau and greedy, as the classes of torch and transformers count. */
typedef struct af_plateau {
    double best;           /* NaN = none yet */
    int64_t bad, cooldown; /* evaluations in a row without a better one; that are not counted */
    double factor;         /* of the rates of coming steps */
    /* of greedy alone: */
    int64_t good, rise_cooldown;          /* the same of better ones, after a higher rate */
    int64_t at_floor;                     /* reductions that left the rate at its floor */
    double sum, recent[AF_LR_WINDOW_MAX]; /* lr_smooth: the last values, the newest last */
    int64_t recent_count;
} af_plateau;

/* plateau.c: counts an evaluation; `more`: larger values are better. */
void af_plateau_judge(af_plateau *b, const af_run_config *run, bool more, double value);
void af_greedy_judge(af_plateau *b, const af_run_config *run, bool more, double value);
/* Its part of a checkpoint; false when it is not there, or not what was written. */
void af_plateau_put(json_t *o, const af_plateau *b, bool greedy);
bool af_plateau_get(const json_t *o, af_plateau *b, bool greedy);

/* One optimizer step: k micro-batches, then the update. */
typedef struct af_step_result {
    double loss, grad_norm;
    double router_loss; /* mean over the micro-batches; NAN = none */
    bool finite;
    int64_t tokens, supervised, padded, pairs;
    double epoch;
} af_step_result;

/* What the current step still has to do before the next one: its evaluation and then its samples,
 * or only these. A run may be asked to stop before that. */
typedef enum af_pending { AF_PENDING_NOTHING, AF_PENDING_EVAL, AF_PENDING_SAMPLES } af_pending;

typedef struct af_run_progress {
    /* from the run file and the data */
    int64_t steps;
    int64_t items_per_epoch, items_per_micro;
    int64_t micro_per_step; /* of all ranks */
    af_schedule schedule;
    /* stored in checkpoints */
    int64_t step;                       /* optimizer steps done */
    int64_t micro;                      /* micro-batches used */
    int64_t tokens, supervised, padded; /* seen so far */
    uint64_t metrics_bytes;             /* length of metrics.jsonl */
    double best_eval;                   /* NaN = none yet */
    int64_t best_step, evals_without_gain;
    af_plateau plateau;
    double rate_factor;   /* plateau.factor when the last step was made */
    int64_t losses_above; /* steps in a row above loss_watchdog_threshold */
    double seconds;       /* of training, over all sessions of the run */
    double first_loss, last_loss;
    int64_t data_records, data_tokens; /* of the datasets; of a checkpoint -1 = not known */
    double loss_sum;                   /* since the last log line, and of how many steps */
    int64_t loss_count;
    af_pref_metrics pref;          /* likewise */
    int64_t stored_micro_per_step; /* when the checkpoint was made; 0 = not known */
    int64_t pending;               /* af_pending */
    af_step_result last;           /* the last step, which may be logged after its evaluation */
    double last_seconds;
} af_run_progress;

/* A run at its beginning. items: of one epoch; micro: micro-batches of a step, of all ranks. */
AF_CHECKED af_status af_run_progress_init(af_run_progress *p, const af_run_config *run,
                                          int64_t items, int64_t micro, af_error *err);
/* The metric that chooses the best evaluation, without "eval_". */
const char *af_run_progress_metric(const af_run_config *run);
/* Counts an evaluation whose metric has this value; whether it is the best so far. */
bool af_run_progress_judge(af_run_progress *p, const af_run_config *run, double value);
/* The learning rate of step `step`, from 0: the last one, or the next after a step. */
double af_run_progress_lr(const af_run_progress *p, int64_t step);
/* A number of steps, or below 1 a share of all of them, in steps. */
int64_t af_run_progress_every(const af_run_progress *p, double n);
/* Whether the last step completed one of so many parts of an epoch, which need not be whole steps;
 * also before the first step. */
bool af_run_progress_part(const af_run_progress *p, int64_t per_epoch);
/* Epochs done so far, as a fraction. */
double af_run_progress_epoch(const af_run_progress *p);
/* The counters as JSON text (malloc'ed), and back: length and rates of *p stay. `clock`: of the
 * random numbers. */
AF_CHECKED af_status af_run_progress_text(const af_run_progress *p, uint64_t clock, char **out,
                                          af_error *err);
AF_CHECKED af_status af_run_progress_read(af_run_progress *p, uint64_t *clock, const char *path,
                                          af_error *err);
#endif
