/* step_graph.h - the graph of one training step: its inputs, its memory mode and its plan. */
#ifndef AF_STEP_GRAPH_H
#define AF_STEP_GRAPH_H

#include "data/store/batch_stream.h"
#include "ops/moe/router_loss.h"
#include "train/step/fp8_plan.h"
#include "train/step/prompts.h"
#include "train/step/run_model.h"
#include "train/step/teacher.h"

/* How a step trades time for memory: what is recomputed, and whether 4-bit weights stay packed
 * (else a dense copy is kept). */
typedef struct af_memory_mode {
    af_recompute mode;
    bool packed;
    int blocks; /* WIDE to BLOCK: apply to the first `blocks`, the next faster mode to the rest;
                   OFFLOAD: CHEAP to the rest; 0 = all */
} af_memory_mode;

typedef struct af_planned_mode {
    af_memory_mode memory_mode;
    af_plan_info plan;
} af_planned_mode;

enum { AF_PLANNED_MAX = 24 };

typedef struct af_step_graph {
    const af_run_config *run;        /* borrowed, as the next two */
    af_run_model *model;             /* is open longer than the graph */
    const af_prompts *prompts;       /* to be answered next to the graph; NULL = none */
    af_fp8_plan fp8;                 /* empty without the key */
    int64_t rows_max, sequences_max; /* of one micro-batch; set before recording */
    int64_t attention_max;           /* rows of attention; 0 = the same rows */
    af_graph *graph;
    af_model_leaves leaves;
    af_batch_inputs in;
    af_tensor *labels, *scale, *loss, *rows;
    /* preferences: rows of AF_HEAD_STATS values; their weights come after the forward pass, and
     * take the place of `scale` */
    af_tensor *row_weight;
    af_tensor *likely_want, *likely; /* EAFT: f64, what af_token_draw reads and gives; else NULL */
    double router_coef;              /* share of the auxiliary loss of routers; 0 = none */
    af_router_loss router;           /* when that is above 0 */
    af_tensor *router_loss;          /* [1], before the share is taken; NULL = none */
    af_tensor *router_scale; /* f32 [1]: of preference runs, the micro-batch's share of the step */
    /* kd_uld: cross-entropy f32 [1], the student's logits f32 [N][V], the gradient by them */
    af_tensor *uld_ce, *uld_logits, *uld_grad;
    af_teacher teacher; /* of distillation, else empty */
    int64_t block; /* micro-batches whose gradients are added one after another, as one block */
    int64_t bounds_len;
    af_memory_mode memory_mode;
    af_plan_info plan;
    af_planned_mode planned[AF_PLANNED_MAX]; /* since the last choice began */
    int planned_count;
    uint64_t host_limit;    /* pinned bytes of all ranks of this machine; 0 = by the system */
    uint64_t sent;          /* through the host to other ranks: gradients and parameters */
    bool seeks, sums_bad;   /* looks at split gradients; found one that is not finite */
    uint64_t prompts_bytes; /* to answer the prompts, in addition to the plan */
    uint64_t program_bytes; /* resident before the graph's memory is taken */
    /* staging buffers on the host */
    int32_t *bounds, *rows_i32;
    int32_t *spread; /* [attention_max][2] and [rows_max][2], or NULL */
    float *row_stats, *row_share, *row_weights;
    double *likely_rows; /* [rows_max][2 AF_DRAW_TOPS_MAX]: what is read, and before it written */
    float *losses, *router_losses; /* of the step's micro-batches */
    float *reference; /* sync_ref_model: all trained values of the reference, or NULL; borrowed */
    int64_t reference_count;
} af_step_graph;

/* An empty one for this run and model. Counts the code of the program: call it first. */
void af_step_graph_init(af_step_graph *s, const af_run_config *run, af_run_model *model);
/* Records the step. Weight types come from the model's loader, or are guessed from its config. */
AF_CHECKED af_status af_step_graph_record(af_step_graph *s, af_memory_mode mode, af_error *err);
/* After a choice (memory_fit.h): takes the memory and fills in weights, adapter and ropes. */
AF_CHECKED af_status af_step_graph_load(af_step_graph *s, af_error *err);
/* Before the micro-batches of the step after `done` steps: what changes over the run. */
AF_CHECKED af_status af_step_graph_begin(af_step_graph *s, int64_t done, af_error *err);
/* Copies a micro-batch into the inputs; `scale` multiplies the loss. */
AF_CHECKED af_status af_step_graph_upload(af_step_graph *s, const af_batch *b, float scale,
                                          af_error *err);
/* Row weights of a micro-batch, from s->row_weights. */
AF_CHECKED af_status af_step_graph_upload_weights(af_step_graph *s, int64_t rows, af_error *err);
/* ---- ranks: step_ranks.c. One process has all micro-batches, and nothing to share ---- */

/* Lets the nodes of a prepared graph reach the other ranks. */
void af_step_ranks_connect(af_step_graph *s);
/* The number in the step of this rank's micro-batch j, 0 .. accumulation - 1. */
int64_t af_step_graph_micro(const af_step_graph *s, int64_t j);
/* Every rank has computed the items (of `size` bytes) of its micro-batches: now all have all. */
AF_CHECKED af_status af_step_graph_share(const af_step_graph *s, void *items, uint64_t size,
                                         af_error *err);
/* After the gradients of this rank's micro-batch j of a step: adds them to those before. */
AF_CHECKED af_status af_step_graph_carry(af_step_graph *s, int64_t j, af_error *err);
/* Where no nodes do it: after the last of them, the gradients become the sum over all ranks. */
AF_CHECKED af_status af_step_graph_reduce(af_step_graph *s, af_error *err);
/* Bytes that this rank has sent to others: gradients and parameters. */
uint64_t af_step_graph_sent(const af_step_graph *s);
/* Likewise, after an update: the parameters of all shards on every rank,
 * unless they are split. */
AF_CHECKED af_status af_step_graph_gather(af_step_graph *s, af_error *err);
/* The losses of all micro-batches of a step on every rank. */
AF_CHECKED af_status af_step_graph_share_losses(af_step_graph *s, af_error *err);
/* Frees the graph and its memory; plan and counters stay. */
void af_step_graph_drop(af_step_graph *s);
void af_step_graph_close(af_step_graph *s); /* an empty one is allowed */
#endif
