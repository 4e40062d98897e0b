/* trainer.h - one training run in memory: model, data, graph, counters. */
#ifndef AF_TRAINER_H
#define AF_TRAINER_H

#include "afinar/schedule.h"
#include "afinar/train.h"
#include "data/store/batch_stream.h"
#include "data/store/dataset.h"
#include "model/loader.h"
#include "train/run/run_config.h"

/* One optimizer step: k micro-batches, then the update. */
typedef struct af_step_result {
    double loss, grad_norm;
    bool finite;
    int64_t tokens, supervised, padded;
    double epoch;
} af_step_result;

/* What the step a run stands at has still to do: its evaluation and then its samples, or these. A
 * run may be asked to stop before that. */
typedef enum af_pending { AF_PENDING_NOTHING, AF_PENDING_EVAL, AF_PENDING_SAMPLES } af_pending;

/* What a run has done so far: all of it is in every checkpoint. */
typedef struct af_progress {
    int64_t step;                       /* optimizer steps done */
    int64_t micro;                      /* micro-batches used */
    int64_t tokens, supervised, padded; /* seen so far */
    uint64_t metrics_bytes;             /* length of metrics.jsonl */
    double best_eval;                   /* NaN = none yet */
    int64_t best_step, evals_without_gain;
    double seconds; /* of training, over all sessions of the run */
    double first_loss, last_loss;
    int64_t data_records, data_tokens; /* of the datasets when the run began; -1 = not known */
    double loss_sum;                   /* since the last log line, and of how many steps */
    int64_t loss_count;
    int64_t pending;     /* af_pending */
    af_step_result last; /* the last step, which may be logged when it has been evaluated */
    double last_seconds;
} af_progress;

/* A way to run a step: how much is recomputed, and whether 4-bit weights stay as they are (else a
 * dense copy is kept). */
typedef struct af_memory_mode {
    af_recompute mode;
    bool packed;
    int blocks; /* WIDE, BLOCK: of so many of the first blocks, one mode less of the others; 0 = all
                 */
} af_memory_mode;

enum { AF_TRIED_MAX = 24 };
typedef struct af_tried {
    af_memory_mode memory_mode;
    af_plan_info plan;
} af_tried;

enum { AF_FROZEN_ALIGN = 64 };

typedef struct af_trainer {
    const af_run_config *run;
    const af_train_hooks *hooks;
    char *model_path;    /* resolved */
    char *chat_template; /* as af_renderer_init takes it: that of a file was read, once */
    int output_held;     /* 1 + the number under which the output folder is held, or 0 */
    af_device *device;
    af_dtype compute;
    af_loader *source;
    const af_model_spec *spec;
    af_adapter *adapter; /* NULL in full fine-tuning */
    double dropout;      /* before the adapter: the run's, or that of the one it starts from */
    af_dtype plain;      /* without a source: the type of weights that are not in 4 bits, */
    af_dtype *dtype;     /* and of each, by spec tensor; */
    af_map frozen;       /* the map of a file with frozen matrices, AF_FROZEN_ALIGN, or nothing */
    /* data */
    af_token_store store, eval_store;
    af_data_counts counts, eval_counts;
    bool eval_own_store;                 /* test_datasets */
    int64_t *train_subset, *eval_subset; /* val_set_size: which records */
    af_stream *stream, *eval_stream;
    int64_t eval_items;
    /* graph */
    af_graph *graph;
    af_model_leaves leaves;
    af_batch_inputs in;
    af_tensor *labels, *scale, *loss, *rows;
    int64_t rows_max, sequences_max, bounds_len;
    af_memory_mode memory_mode;
    af_plan_info plan;
    af_tried tried[AF_TRIED_MAX]; /* plans made since the choice began */
    int tries;
    uint64_t program_bytes; /* resident before the graph's memory was taken */
    /* loop */
    int64_t steps, steps_per_epoch;
    af_schedule schedule;
    af_progress progress;
    char *metrics_path, *events_path;
    struct af_saver *saver;    /* the thread that writes checkpoints */
    int32_t *bounds, *staging; /* of bounds_len and rows_max */
    float *row_stats;
    float *losses;              /* of the step's micro-batches */
    struct af_samples *samples; /* prompts of generate_samples, or NULL */
    uint64_t samples_bytes;     /* what answering them needs beside the plan */
    char *samples_html;         /* answers before and after, for the report */
} af_trainer;

/* The graph and its memory, when the last step is done. */
void af_trainer_drop_graph(af_trainer *t);
/* Everything up to the first step: reads, checks, plans, prepares, loads. Creates nothing on disk.
 */
AF_CHECKED af_status af_trainer_open(af_trainer *t, const af_run_config *run,
                                     const af_train_hooks *hooks, af_error *err);
void af_trainer_close(af_trainer *t);

/* Records the graph for a run: shared with the plan command. `source` gives types; NULL = the
 * config's. */
AF_CHECKED af_status af_trainer_record(af_trainer *t, af_memory_mode r, af_error *err);
/* The ways to run from the fastest to the smallest, whatever the run file says of them; those for
 * some of the blocks are between them. */
enum { AF_MEMORY_MODES_MAX = 10, AF_MEMORY_MODE_NAME = 48 };
int af_trainer_memory_modes(const af_trainer *t, af_memory_mode out[AF_MEMORY_MODES_MAX]);
/* "block", "block+4bit", "wide, 15 of 30 blocks". */
const char *af_memory_mode_name(const af_trainer *t, af_memory_mode r,
                                char buf[AF_MEMORY_MODE_NAME]);
bool af_memory_mode_same(af_memory_mode a, af_memory_mode b);
/* Records and plans one. */
AF_CHECKED af_status af_trainer_try(af_trainer *t, af_memory_mode r, af_error *err);
/* Tries those the run allows in order until the plan fits `free_bytes`: t->memory_mode and t->plan
 * are the first that does, else the smallest. */
AF_CHECKED af_status af_trainer_choose(af_trainer *t, uint64_t free_bytes, bool *fits,
                                       af_error *err);
/* The same for a run: what does not fit is an error that says what would. */
AF_CHECKED af_status af_trainer_fit(af_trainer *t, uint64_t free_bytes, af_error *err);

/* On the CPU, memory beside the plan: an adapter's values once more, and what answers the samples.
 * Checkpoints are written from the graph's own memory. */
uint64_t af_trainer_copies(const af_trainer *t);
/* Weights that stay resident where they lie: those that are given back once packed do not. */
uint64_t af_plan_in_place(const af_plan_info *p);
/* What the process holds beside the plan: the program and its libraries, at the start; data, graph
 * and the like, when all is read but the plan's memory is not taken. `adapter`: the host's copy of
 * one among that, which is counted by itself (af_trainer_copies). */
void af_trainer_count_code(af_trainer *t);
void af_trainer_count_program(af_trainer *t, uint64_t adapter);
/* What the whole process is expected to hold on the CPU with this plan: its total, weights read in
 * place, those copies, and what was counted. */
uint64_t af_trainer_resident(const af_trainer *t, const af_plan_info *p);

AF_CHECKED af_status af_trainer_step(af_trainer *t, af_step_result *r, af_error *err);
/* A micro-batch into the inputs of the graph; `scale` multiplies the loss. */
AF_CHECKED af_status af_trainer_upload(af_trainer *t, const af_batch *b, float scale,
                                       af_error *err);
/* Mean loss over the held-out data. *whole is false, and nothing else set, when a stop was asked
 * for in between. */
AF_CHECKED af_status af_trainer_eval(af_trainer *t, double *loss, double *accuracy, bool *whole,
                                     af_error *err);
/* Stops with names: step, first bad tensor, records of the batch; writes replay-STEP.json and
 * replay-STEP.yaml. Always fails. */
AF_CHECKED af_status af_trainer_explain_nonfinite(af_trainer *t, const af_step_result *r,
                                                  af_error *err);

/* The same for a record of the evaluation, which has just run. */
AF_CHECKED af_status af_trainer_explain_eval(af_trainer *t, const af_batch *b, af_error *err);

/* trainer_state.json as text (malloc'ed); `final` adds the record HF's trainer ends a run with. */
AF_CHECKED af_status af_trainer_state_text(const af_trainer *t, bool final, char **out,
                                           af_error *err);

/* The caller wants the run to end soon: long work looks here. */
bool af_trainer_stop_asked(const af_trainer *t);
void af_trainer_log(const af_trainer *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#endif
