/* metrics.h - what a run writes while it trains: metrics.jsonl, TensorBoard events,
 * trainer_state.json. */
#ifndef AF_METRICS_H
#define AF_METRICS_H

#include "train/run/run_hooks.h"
#include "train/step/fp8_plan.h"
#include "train/step/run_progress.h"
#include "train/track/track.h"

typedef struct af_metrics {
    const af_run_config *run;  /* borrowed, as the next one */
    af_run_progress *progress; /* metrics_bytes is kept up to date */
    double flops;              /* of one micro-batch */
    char *rows_path, *events_path;
    af_trackers *trackers; /* NULL = none */
} af_metrics;

/* Opens the files in the output folder. After a resume from `checkpoint` (else NULL) metrics.jsonl
 * is cut to the rows the checkpoint counted. Close after a failure too. */
AF_CHECKED af_status af_metrics_open(af_metrics *m, const af_run_config *run,
                                     af_run_progress *progress, double flops,
                                     const char *checkpoint, const af_train_hooks *hooks,
                                     af_error *err);
void af_metrics_failed(af_metrics *m); /* an error ends the run */
void af_metrics_close(af_metrics *m);  /* an empty one is allowed */
/* Bytes of each rank; n 0 = one process. */
typedef struct af_rank_memory {
    const uint64_t *bytes;
    int n;
} af_rank_memory;
/* `more`: of a preference run, or an empty list; as the next one. */
AF_CHECKED af_status af_metrics_step(af_metrics *m, const af_train_step *s, int64_t padded,
                                     const af_rank_memory *ranks, const af_metric_list *more,
                                     af_error *err);
/* `items`: evaluated records. */
AF_CHECKED af_status af_metrics_eval(af_metrics *m, double loss, double accuracy, double seconds,
                                     int64_t items, const af_metric_list *more, af_error *err);
/* What the gate of FP8 found, as a row of step 0. */
AF_CHECKED af_status af_metrics_fp8(af_metrics *m, const af_fp8_plan *p, af_error *err);
/* trainer_state.json as text (malloc'ed); `final` adds the record HF's trainer ends a run with. */
AF_CHECKED af_status af_metrics_state_text(const af_metrics *m, bool final, char **out,
                                           af_error *err);
/* train_results.json, eval_results.json and all_results.json, at the end of a run. */
AF_CHECKED af_status af_metrics_results(const af_metrics *m, af_error *err);
#endif
