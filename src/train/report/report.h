/* report.h - report.html: one self-contained page about a run. */
#ifndef AF_REPORT_H
#define AF_REPORT_H

#include "base/buf.h"
#include "train/trainer/trainer.h"

/* Curves from metrics.jsonl, the run file, data counts, the plan against what was measured. */
AF_CHECKED af_status af_report_write(af_trainer *t, af_error *err);
/* Text with the characters that mean something in HTML written as entities; NULL = "". */
void af_html_put(af_buf *b, const char *text);
#endif
