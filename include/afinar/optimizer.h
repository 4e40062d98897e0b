/* optimizer.h - the kinds of optimizers and their options, for af_graph_optimizer (graph.h). */
#ifndef AFINAR_OPTIMIZER_H
#define AFINAR_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum af_optimizer_kind {
    AF_OPTIMIZER_SGD,
    AF_OPTIMIZER_ADAM, /* weight decay is added to the gradient */
    AF_OPTIMIZER_ADAMW,
    AF_OPTIMIZER_ADAMW_8BIT, /* moments in blocks of 256, as bitsandbytes; small tensors f32 */
    AF_OPTIMIZER_LION,
    AF_OPTIMIZER_ADAFACTOR,
    AF_OPTIMIZER_ADAMW_TORCH_8BIT, /* as torchao: matrices of 4096 values or more, whole blocks */
    AF_OPTIMIZER_ADAMW_4BIT,       /* 4-bit moments in blocks of 128, as torchao */
    AF_OPTIMIZER_RMSPROP,          /* weight decay is added to the gradient; beta2 is its decay */
    AF_OPTIMIZER_ADEMAMIX,
    AF_OPTIMIZER_MUON,      /* Newton-Schulz for matrices inside the model, AdamW for all others */
    AF_OPTIMIZER_ADAM_MINI, /* AdamW with one second moment per parameter; in a run of the trainer:
                               per row or head of a matrix, as the package adam-mini has it */
    AF_OPTIMIZER_ADAGRAD,   /* torch.optim's: weight decay is added to the gradient */
    AF_OPTIMIZER_NADAM,     /* torch.optim's: likewise */
    AF_OPTIMIZER_RADAM,     /* torch.optim's: likewise */
    AF_OPTIMIZER_ADOPT,     /* Taniguchi et al. 2024, with weight decay as AdamW */
    AF_OPTIMIZER_STABLE_ADAMW, /* Wortsman et al. 2023, as the package optimi has it */
    AF_OPTIMIZER_FREE_ADAMW,   /* schedule-free (Defazio et al. 2024): see af_graph_average */
    AF_OPTIMIZER_FREE_RADAM,
    AF_OPTIMIZER_FREE_SGD,  /* momentum: of the average, 0 = 0.9 */
    AF_OPTIMIZER_LION_8BIT, /* moments as ADAMW_8BIT has them */
    AF_OPTIMIZER_RMSPROP_8BIT,
    AF_OPTIMIZER_ADEMAMIX_8BIT,
    AF_OPTIMIZER_APOLLO, /* Zhu et al. 2024, for the matrices that MUON would have; else AdamW */
    AF_OPTIMIZER_GALORE, /* Zhao et al. 2024, likewise */
} af_optimizer_kind;

/* How an updated value becomes a bf16 parameter; f32 parameters do not care. */
typedef enum af_rounding {
    AF_ROUNDING_NEAREST,    /* an update below half a step of bf16 (2^-9 of the value) is lost */
    AF_ROUNDING_STOCHASTIC, /* up or down, more likely to the nearer one: right on average */
    AF_ROUNDING_KAHAN,      /* a second bf16 state per value keeps what rounding cut off */
} af_rounding;

/* GALORE: which sides of a matrix its singular vectors shorten: columns (RIGHT), rows (LEFT), both,
 * the shorter side (STD: RIGHT where rows >= columns), the other one. */
typedef enum af_projection {
    AF_PROJECTION_STD,
    AF_PROJECTION_REVERSE_STD,
    AF_PROJECTION_RIGHT,
    AF_PROJECTION_LEFT,
    AF_PROJECTION_FULL,
} af_projection;

typedef struct af_optimizer_opts {
    af_optimizer_kind kind;
    double beta1, beta2, eps; /* 0 = the usual value of the kind */
    double momentum;          /* SGD */
    bool nesterov;
    double weight_decay, max_grad_norm; /* max_grad_norm: 0 = no clipping */
    af_rounding rounding; /* bf16 parameters: ADAM, ADAMW and those with 8-bit moments */
    uint64_t seed;        /* of stochastic rounding and projections: by seed, update, parameter */
    bool uncorrected;     /* moments are not divided by 1 - beta^step */
    bool bf16;            /* muon: iterate in bf16 on a GPU, not in f32 */
    double lr_decay;      /* ADAGRAD: the rate of step t is divided by 1 + (t - 1) times this */
    /* FREE_*: rates grow over so many steps; step t weighs t^count_power * (top rate)^lr_power */
    double warmup_steps, count_power, lr_power; /* the authors' powers: 0 and 2 */
    double slow_beta, slow_share;               /* ADEMAMIX: of the slow moment; 0 = 0.9999 and 5 */
    /* APOLLO, GALORE: rank of projections, updates with each (0 = 128, 200); times the update: the
     * root of scale (0 = 1), or scale (0 = 0.25). APOLLO: a factor per matrix, not per row or
     * column; growth limited after scaling */
    int64_t rank, gap;
    double scale;
    bool per_tensor, scale_front;
    af_projection projection;
} af_optimizer_opts;

#ifdef __cplusplus
}
#endif
#endif
