/* schedule.h - the learning rate of a step: pure functions of the step number.
 *
 * Step 0 is the first one. With warm-up the rate climbs linearly, peak * step / warmup, so that the
 * first step has rate 0; the meaning of every name is that of transformers.get_scheduler, or of
 * torch.optim.lr_scheduler for step, exponential and one_cycle, of Axolotl for rex, or of MLX for
 * cosine_decay, linear_schedule, step_decay and exponential_decay.
 *
 *     const af_schedule_opts o = {.name = "cosine", .peak = 1e-3, .steps = 100};
 *     af_schedule s;
 *     af_schedule_init(&s, &o, &err);
 *     af_graph_set_learning_rate(g, af_schedule_lr(&s, step));
 */
#ifndef AFINAR_SCHEDULE_H
#define AFINAR_SCHEDULE_H

#include "afinar/status.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_schedule_kind {
    AF_SCHEDULE_CONSTANT,
    AF_SCHEDULE_LINEAR,
    AF_SCHEDULE_COSINE,
    AF_SCHEDULE_COSINE_RESTARTS,
    AF_SCHEDULE_POLYNOMIAL,
    AF_SCHEDULE_INVERSE_SQRT,
    AF_SCHEDULE_STEP,
    AF_SCHEDULE_EXPONENTIAL,
    AF_SCHEDULE_ONE_CYCLE,
    AF_SCHEDULE_WSD,             /* warm-up, stable, decay */
    AF_SCHEDULE_CONSTANT_WARMUP, /* constant_with_warmup: "constant" has no warm-up */
    AF_SCHEDULE_REX,             /* reflected exponential (Chen et al. 2021) */
    AF_SCHEDULE_COSINE_AHEAD,    /* cosine_warmup_with_min_lr: a cosine one step ahead */
    AF_SCHEDULE_MLX_COSINE,      /* cosine_decay: over decay_steps, whatever the run has */
    AF_SCHEDULE_MLX_LINEAR,      /* linear_schedule: likewise */
    AF_SCHEDULE_MLX_STEP,        /* step_decay */
    AF_SCHEDULE_MLX_EXPONENTIAL, /* exponential_decay */
    AF_SCHEDULE_PLATEAU,         /* reduce_lr_on_plateau: the peak; evaluations lower it in a run */
    AF_SCHEDULE_GREEDY,          /* greedy: likewise; evaluations lower and raise it */
} af_schedule_kind;

typedef enum af_schedule_decay {
    AF_SCHEDULE_DECAY_COSINE,
    AF_SCHEDULE_DECAY_LINEAR,
    AF_SCHEDULE_DECAY_SQRT, /* 1 - sqrt(progress) */
} af_schedule_decay;

typedef enum af_schedule_rise {
    AF_SCHEDULE_RISE_LINEAR,
    AF_SCHEDULE_RISE_COSINE,
    AF_SCHEDULE_RISE_SQRT, /* 1 - sqrt(1 - progress) */
} af_schedule_rise;

typedef struct af_schedule_opts {
    const char *name;      /* see af_schedule_names */
    double peak;           /* the learning rate */
    int64_t steps, warmup; /* of the whole run; of the warm-up, which is part of it */
    double min_ratio;      /* cosines, polynomial, rex and warmup_stable_decay end at peak * this */
    double power;          /* polynomial; 0 = 1 */
    double cycles;         /* cosine_with_restarts; 0 = 1. Waves of the other cosines and of the
                              decay of warmup_stable_decay; 0 = 0.5 */
    int64_t decay_steps;   /* warmup_stable_decay; 0 = a tenth of the run. cosine_decay and
                              linear_schedule; 0 = the run after the warm-up */
    af_schedule_decay decay; /* its shape */
    double gamma;            /* step: 0 = 0.1; exponential, per step: 0 = 1 % at the end */
    int64_t step_size;       /* step: 0 = a third of the run after the warm-up */
    double start_ratio;      /* the warm-up begins at peak * this; not of one_cycle, rex,
                                warmup_stable_decay and cosine_warmup_with_min_lr */
    double constant_ratio;   /* cosine with min_ratio above 0: the floor is reached after this share
                                of the run and stays; 0 = at its end */
    bool quadratic_warmup;   /* cosine: the rate climbs as (step / warmup)^2 */
    /* Axolotl's jagged restarts of any schedule but step, exponential, reduce_lr_on_plateau and
     * greedy; 0 = none: every so many steps the rate falls to restart_floor (0 = 0.001) of what the
     * schedule has, over restart_anneal (0 = 1) steps, and climbs again over restart_warmup (0 =
     * 10) */
    int64_t restart_steps, restart_warmup, restart_anneal;
    double restart_floor;
    int64_t timescale;     /* inverse_sqrt; 0 = as the warm-up, or 10000 without one */
    af_schedule_rise rise; /* warmup_stable_decay: shape of the warm-up */
    int64_t stable_steps;  /* warmup_stable_decay, where has_stable_steps: the decay begins after so
                            * many steps at the peak, not decay_steps before the end of the run */
    double first_ratio; /* cosine_warmup_with_min_lr, where has_first_ratio: the warm-up goes from
                         * peak * this to the peak in its last step, not from peak / warmup */
    bool has_stable_steps, has_first_ratio;
} af_schedule_opts;

typedef struct af_schedule {
    af_schedule_kind kind;
    af_schedule_opts o; /* defaults filled in; name is not kept */
} af_schedule;

/* Checks the options and fills in their defaults. *o is copied except for its name. AF_EUSAGE for
 * an unknown name (the message lists the known ones) or numbers out of range. */
AF_API AF_CHECKED af_status af_schedule_init(af_schedule *out, const af_schedule_opts *o,
                                             af_error *err);
/* The learning rate of step `step`, from 0. A pure function; any thread. */
AF_API double af_schedule_lr(const af_schedule *s, int64_t step);
/* All names, separated by ", ". Static storage. */
AF_API const char *af_schedule_names(void);

#ifdef __cplusplus
}
#endif
#endif
