/* train.h - training from a run file: what `afinar train`, `plan` and `init` call. */
#ifndef AFINAR_TRAIN_H
#define AFINAR_TRAIN_H

#include "afinar/device.h"
#include "afinar/graph.h"
#include "afinar/model.h"
#include "afinar/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One logged step. */
typedef struct af_train_step {
    int64_t step, steps; /* completed; total */
    double epoch, loss, grad_norm, learning_rate;
    double tok_s, step_ms, eta_s;
    int64_t tokens, supervised; /* of this step: real tokens, tokens with loss */
    uint64_t memory;            /* bytes in use: the plan on a device, resident on the CPU */
    double eval_loss;           /* NaN unless this is an evaluation row */
    double margin, accuracy;    /* of preferences: chosen above rejected; NaN = none */
} af_train_step;

/* A run that is about to begin. Strings are valid until the run ends. */
typedef struct af_train_start {
    const char *base_model; /* resolved */
    const char *output_dir;
    const char *device;
    int threads;
    af_compute compute;
    bool load_in_4bit;
    bool adapter; /* an adapter is trained, not the model itself */
    int64_t step, steps;
    const char *serve_host; /* of the run file */
    int serve_port;         /* -1: none */
} af_train_start;

/* A moment between two steps: nothing of the run changes until the hook returns. */
typedef struct af_train_moment {
    int64_t step, steps; /* completed; total */
    void *run;           /* of the functions */
    /* Writes the trained weights as they are now into an empty folder. */
    af_status (*write)(void *run, const char *dir, af_error *err);
    /* Writes output_dir/checkpoint-STEP. */
    af_status (*checkpoint)(void *run, af_error *err);
    bool (*stop)(void *run); /* does anybody want the run to stop? */
} af_train_moment;

/* Every function may be NULL. They are called on the thread that trains. */
typedef struct af_train_hooks {
    void *user;
    void (*step)(void *user, const af_train_step *s);
    void (*log)(void *user, const char *line); /* what was chosen, loaded, skipped, written */
    bool (*stop)(void *user); /* true: write a checkpoint and end cleanly; called often */
    void (*evaluating)(void *user, int64_t done, int64_t records); /* before each record */
    /* before the first step, when all is read and planned; an error ends the run */
    af_status (*start)(void *user, const af_train_start *s, af_error *err);
    void (*between)(void *user, const af_train_moment *m); /* before each step and after the last */
    /* Another rank of the run is gone while this one computes: it should print `why` and end the
     * process with status 1. Called by a thread of its own. */
    void (*lost)(void *user, const char *why);
} af_train_hooks;

typedef struct af_train_result {
    int64_t steps;
    double first_loss, last_loss; /* NaN where there is none */
    double best_eval_loss;        /* NaN also when another metric chooses the best evaluation */
    bool stopped, nothing_to_do;
    int rank, ranks; /* of several processes: 0 is the one that reports; 0 and 1 for one process */
    bool ranks_differ; /* they have different run files, data or versions */
    char resume[4096]; /* the command that continues a run that stopped or failed; "" = none */
} af_train_result;

/* Runs a run file with key=value overrides to the end (or to a stop). AF_ESTOPPED when stopped by
 * the user: a checkpoint has been written. hooks and result may be NULL. */
AF_API AF_CHECKED af_status af_train(const char *run_file, const char *const *overrides, int count,
                                     const af_train_hooks *hooks, af_train_result *result,
                                     af_error *err);

/* ---- a run step by step ----
 *
 * The training of af_train without a run file, one step at a time:
 *
 *     af_run *run = NULL;
 *     af_run_new(&run, &err);
 *     af_run_set(run, "base_model", "models/qwen", &err);
 *     af_run_set(run, "adapter", "lora", &err);
 *     af_run_set(run, "datasets", "[{path: train.jsonl}]", &err);
 *     af_run_set(run, "output_dir", "out", &err);
 *     af_run_open(run, NULL, &err);
 *     af_run_step_result r = {0};
 *     while (!r.finished && af_run_step(run, &r, &err) == AF_OK)
 *         printf("%lld %g\n", (long long)r.step, r.loss);
 *     af_run_save(run, NULL, &err);
 *     af_run_close(run);
 *
 * One thread at a time may use a run; different runs are independent. */
typedef struct af_run af_run;

typedef struct af_run_step_result {
    int64_t step, steps; /* completed; total */
    double epoch, loss, grad_norm, learning_rate;
    int64_t tokens, supervised; /* of this step: real tokens, tokens with loss */
    double eval_loss;           /* NaN unless this step was evaluated */
    bool finished;              /* the last step is done, or early stopping ended the run */
} af_run_step_result;

/* A run with the default of every key. On success *out is the caller's, to be closed with
 * af_run_close. */
AF_API AF_CHECKED af_status af_run_new(af_run **out, af_error *err);
/* Sets a key of a run file (afinar train --help lists them) before af_run_open. `value` is YAML
 * text: "3", "true", "[q_proj, v_proj]"; a key of one text (a path, a template) takes it as it
 * stands, unless it is in quotes. "null" restores the default. Both strings are copied.
 * AF_EUSAGE for an unknown key (the message names the nearest one) or a wrong value. */
AF_API AF_CHECKED af_status af_run_set(af_run *run, const char *key, const char *value,
                                       af_error *err);
/* Checks the keys, reads model and data, plans the memory, creates output_dir, and resumes where
 * resume_from_checkpoint asks for it. base_model and datasets are required. `hooks` may
 * be NULL and is copied; `start` and the first `between` are called here, the others by
 * af_run_step. After a failure the run can only be closed. */
AF_API AF_CHECKED af_status af_run_open(af_run *run, const af_train_hooks *hooks, af_error *err);
/* One optimizer step, and what the keys ask for after it: log row, evaluation, samples, checkpoint.
 * On a finished run it does nothing. AF_ESTOPPED when the stop hook interrupted an evaluation or
 * samples: the step counts, and the next call continues there. *out may be NULL. */
AF_API AF_CHECKED af_status af_run_step(af_run *run, af_run_step_result *out, af_error *err);
/* Mean loss and accuracy over the evaluation records, now; nothing is logged. AF_EUSAGE without
 * val_set_size or test_datasets; AF_ESTOPPED by the stop hook. Either output may be NULL. */
AF_API AF_CHECKED af_status af_run_evaluate(af_run *run, double *loss, double *accuracy,
                                            af_error *err);
/* Writes the trained adapter (full fine-tuning: the model) and its tokenizer into `dir`, which is
 * created; NULL = output_dir. What a run saved there before is replaced, and other files are kept;
 * AF_EUSAGE when one of them would be overwritten. Training may continue afterwards. */
AF_API AF_CHECKED af_status af_run_save(af_run *run, const char *dir, af_error *err);
/* Writes output_dir/checkpoint-STEP, from which a run with the same keys resumes bit-exactly. */
AF_API AF_CHECKED af_status af_run_checkpoint(af_run *run, af_error *err);
/* Frees the run; what was not saved is lost. NULL is allowed. */
AF_API void af_run_close(af_run *run);

/* ---- tools ---- */

/* The keys of a run file, as help text (malloc'ed; free() it). */
AF_API AF_CHECKED af_status af_train_help(char **text, af_error *err);

/* The keys of a run file as one JSON object (malloc'ed, NUL-terminated; free() it), for generated
 * documentation: "keys" [{"name", "type", "default", "help", "aliases", "values", and of numbers
 * "min", "max"}], "lr_scheduler", "dataset_keys", "dataset_types", and "foreign" [{"keys",
 * "accepted", "reason"}] (keys of other trainers: accepted without effect, or not supported).
 * AF_ENOMEM. Any thread. */
AF_API AF_CHECKED af_status af_train_keys_json(char **out, af_error *err);

typedef struct af_capture_result {
    int64_t records, positions, k; /* of the file; tokens of a position */
    int64_t resumed;               /* records that an earlier call had finished */
} af_capture_result;

/* Runs the teacher of a run file over its data and writes the `kd_topk` (0: 64) most likely tokens
 * at every label to `out`, for 'kd_logits'. Finished records are in `out`.part: the same call
 * continues after them. An existing file is refused, or with `force` replaced when this program
 * wrote it. `hooks` and `result` may be NULL. AF_ESTOPPED when stopped by the user. */
AF_API AF_CHECKED af_status af_distill_capture(const char *run_file, const char *const *overrides,
                                               int count, const char *out, bool force,
                                               const af_train_hooks *hooks,
                                               af_capture_result *result, af_error *err);

/* What a run needs, from its config and headers alone: text for people, or one JSON object
 * (malloc'ed; free() it). `memory`: plan for a machine with this many bytes free; 0 = this one. */
AF_API AF_CHECKED af_status af_train_plan(const char *run_file, const char *const *overrides,
                                          int count, uint64_t memory, bool json, char **out,
                                          af_error *err);

/* The same for a run of several processes ("ranks"): also the memory of a rank, the bytes it sends
 * in a step and the estimated time, for every stage of ZeRO. `ranks` may be NULL: one process. */
typedef struct af_plan_ranks {
    int ranks;                       /* a power of two, or as the run's order allows */
    int ranks_per_node;              /* of them on one machine; 0 = all */
    double bandwidth, bandwidth_far; /* bytes/s of a rank inside a machine, between machines; 0 =
                                        10 GB/s, as the first */
} af_plan_ranks;
AF_API AF_CHECKED af_status af_train_plan_ranks(const char *run_file, const char *const *overrides,
                                                int count, uint64_t memory,
                                                const af_plan_ranks *ranks, bool json, char **out,
                                                af_error *err);

/* Evaluates what a run has made (its result, else its newest checkpoint) on the run's evaluation
 * data: test_datasets, or the records that val_set_size holds out. Writes nothing. AF_EUSAGE
 * without such data or without a result. */
AF_API AF_CHECKED af_status af_train_eval(const char *run_file, const char *const *overrides,
                                          int count, af_eval_result *out, af_error *err);

/* A commented run file for a model and a dataset, both looked at (malloc'ed; free() it). */
AF_API AF_CHECKED af_status af_train_init(const char *model, const char *dataset, char **text,
                                          af_error *err);

#ifdef __cplusplus
}
#endif
#endif
