/* report.h - report.html: one self-contained page about a run. */
#ifndef AF_REPORT_H
#define AF_REPORT_H

#include "base/buf.h"
#include "train/step/run_data.h"
#include "train/step/run_progress.h"
#include "train/step/step_graph.h"

typedef enum af_report_state {
    AF_REPORT_RUNNING,
    AF_REPORT_DONE,
    AF_REPORT_STOPPED,
    AF_REPORT_FAILED
} af_report_state;

typedef struct af_report_source {
    const af_run_config *run;
    const af_run_data *data;
    const af_step_graph *step; /* its plan; the graph itself may be dropped */
    const af_run_progress *progress;
    const char *metrics_path; /* curves come from metrics.jsonl */
    const char *samples_html; /* NULL = none */
    af_report_state state;
    const char *message;        /* why it stopped or failed; NULL = nothing to say */
    const char *resume_command; /* NULL = not known */
    bool chat;                  /* trained on conversations: prompts get the template, too */
    int64_t began;              /* of this session, as time() gives it */
} af_report_source;

/* Writes report.html into the output folder: a new file takes the place of the old one at once. */
AF_CHECKED af_status af_report_write(const af_report_source *from, af_error *err);
/* Text with the characters that mean something in HTML written as entities; NULL = "". */
void af_html_put(af_buf *b, const char *text);
#endif
