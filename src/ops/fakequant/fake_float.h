/* fake_float.h - rounding to small float types and back: records fake_float.c. */
#ifndef AF_FAKE_FLOAT_H
#define AF_FAKE_FLOAT_H

#include "graph/graph_access.h"

/* What quantisation-aware training rounds weights to. */
typedef enum af_qat_type {
    AF_QAT_NONE,
    AF_QAT_INT4, /* not a float: fake_weights.c */
    AF_QAT_NVFP4,
    AF_QAT_MXFP4,
    AF_QAT_FP8,
} af_qat_type;

/* x [..][D] rounded to `type` and back, in type `out`; D is a multiple of 16 (nvfp4) or 32 (mxfp4).
 * The gradient is dy. rows: NULL, or i32 [1], how many rows of x the scale of the whole tensor
 * counts (nvfp4). */
af_tensor *af_fake_float(af_graph *g, af_tensor *x, af_qat_type type, af_tensor *rows,
                         af_dtype out);
#endif
