/* tracker.h - what one tracker implements, and what they share. */
#ifndef AF_TRACKER_H
#define AF_TRACKER_H

#include "base/buf.h"
#include "train/track/track.h"

#include <jansson.h>

typedef struct af_track_start {
    const af_run_config *run;
    const char *name;   /* of the run, for people */
    const json_t *keys; /* effective run file: key -> value */
    const char *id;     /* of the run to continue; NULL = a new one */
    int64_t step;       /* steps done: later rows are removed */
    double time;
} af_track_start;

typedef struct af_tracker_kind {
    af_tracker which;
    const char *name;
    /* *id (malloc'ed): what finds this run again. On failure *state is NULL. */
    af_status (*open)(void **state, char **id, const af_track_start *start, af_error *err);
    af_status (*row)(void *state, const af_track_row *row, af_error *err);
    /* Called once, in every case. */
    af_status (*end)(void *state, af_track_end how, double time, af_error *err);
    void (*free)(void *state);
} af_tracker_kind;

extern const af_tracker_kind af_track_mlflow, af_track_wandb, af_track_trackio;

/* n random hex digits and a NUL: the name of a new run. */
void af_track_new_id(char *out, int n, const char *seed);
/* A name as HF's callbacks for W&B and trackio write it: "loss" is "train/loss", "eval_loss" is
 * "eval/loss". */
void af_track_name(char *out, size_t size, const char *name);
/* A setting as plain text: strings without quotes. free(); NULL when out of memory. */
char *af_track_text(const json_t *value);
#endif
