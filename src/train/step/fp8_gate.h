/* fp8_gate.h - the quality gate of FP8: every product of the first micro-batch is compared with
 * sums in double before the first step; groups beyond AF_FP8_ERROR_MAX are computed without FP8. */
#ifndef AF_FP8_GATE_H
#define AF_FP8_GATE_H

#include "train/step/step_graph.h"

/* After af_step_graph_load. Records and loads the graph again when a group broke the bound. Every
 * start of a run sees the same batch and the same adapter, so a resumed one decides the same.
 * Nothing without FP8. */
AF_CHECKED af_status af_fp8_gate(af_step_graph *s, af_stream *stream, af_error *err);
#endif
