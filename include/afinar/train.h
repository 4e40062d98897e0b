/* train.h - training from a run file: what `afinar train`, `plan` and `init` call. */
#ifndef AFINAR_TRAIN_H
#define AFINAR_TRAIN_H

#include "afinar/device.h"
#include "afinar/graph.h"
#include "afinar/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One logged step. */
typedef struct af_train_step {
    int64_t step, steps; /* done, of */
    double epoch, loss, grad_norm, learning_rate;
    double tok_s, step_ms, eta_s;
    int64_t tokens, supervised; /* of this step: real tokens, tokens with loss */
    uint64_t memory;            /* bytes in use: the plan on a device, resident on the CPU */
    double eval_loss;           /* NaN unless this is an evaluation row */
} af_train_step;

typedef struct af_train_hooks {
    void *user;
    void (*step)(void *user, const af_train_step *s);
    void (*say)(void *user, const char *line); /* what was chosen, loaded, skipped, written */
    const volatile int *stop; /* non-zero: write a checkpoint and end cleanly; may be NULL */
} af_train_hooks;

typedef struct af_train_result {
    int64_t steps;
    double first_loss, last_loss, best_eval_loss; /* NaN where there is none */
    bool stopped, nothing_to_do;
} af_train_result;

/* Runs a run file with key=value overrides to the end (or to a stop). AF_ESTOPPED when stopped by
 * the user: a checkpoint has been written. */
AF_API AF_CHECKED af_status af_train(const char *run_file, const char *const *overrides, int count,
                                     const af_train_hooks *hooks, af_train_result *result,
                                     af_error *err);

/* The keys of a run file, as help text (malloc'ed). */
AF_API AF_CHECKED af_status af_train_help(char **text, af_error *err);

/* The keys of a run file as one JSON object (malloc'ed, NUL-terminated; free() it), for generated
 * documentation: "keys" [{"name", "type", "default", "help", "aliases", "values", and of numbers
 * "min", "max"}], "lr_scheduler", "dataset_keys", "dataset_types", and "foreign" [{"key",
 * "advice"}] (keys of other trainers that are rejected). AF_ENOMEM. Any thread. */
AF_API AF_CHECKED af_status af_train_keys_json(char **out, af_error *err);

/* What a run needs, from its config and headers alone: text for people, or one JSON object
 * (malloc'ed). `memory`: plan for a machine with so many bytes free; 0 = this one. */
AF_API AF_CHECKED af_status af_train_plan(const char *run_file, const char *const *overrides,
                                          int count, uint64_t memory, bool json, char **out,
                                          af_error *err);

/* A commented run file for a model and a dataset, both looked at (malloc'ed). */
AF_API AF_CHECKED af_status af_train_init(const char *model, const char *dataset, char **text,
                                          af_error *err);

#ifdef __cplusplus
}
#endif
#endif
