/* track.h - the stores of experiment trackers (report_to): each gets the settings of the run and
 * every row of metrics.jsonl, in the format its own viewer opens. Local files only.
 *
 * A tracker that cannot be written is a warning, and is left alone from then on: it never ends a
 * run. */
#ifndef AF_TRACK_H
#define AF_TRACK_H

#include "train/run/run_config.h"

/* Under the names HF's trainer logs: "loss", "eval_loss". */
typedef struct af_track_row {
    int64_t step;
    double time; /* seconds since 1970 */
    const char *const *name;
    const double *value;
    int count;
} af_track_row;

typedef struct af_trackers af_trackers;
/* Opens what report_to asks for. `step`: done before; with `resumes` rows of later steps are
 * removed and the runs of output_dir/trackers.json go on. *out is NULL when there is none. */
AF_CHECKED af_status af_trackers_open(af_trackers **out, const af_run_config *run, int64_t step,
                                      bool resumes, double time, af_error *err);
void af_trackers_row(af_trackers *t, const af_track_row *row); /* t may be NULL */
/* How a run ended; the first call counts. */
typedef enum af_track_end { AF_TRACK_DONE, AF_TRACK_STOPPED, AF_TRACK_FAILED } af_track_end;
void af_trackers_end(af_trackers *t, af_track_end how, double time); /* t may be NULL */
/* A run that has not ended is marked as stopped. NULL is allowed. */
void af_trackers_close(af_trackers *t, double time);
#endif
