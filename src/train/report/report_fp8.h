/* report_fp8.h - what the gate of FP8 found, for report.html. */
#ifndef AF_REPORT_FP8_H
#define AF_REPORT_FP8_H

#include "train/step/fp8_plan.h"

/* Nothing for a run without FP8. */
void af_report_put_fp8(af_buf *b, const af_fp8_plan *p);
#endif
