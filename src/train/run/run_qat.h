/* run_qat.h - quantisation-aware training, as a run file asks for it. */
#ifndef AF_RUN_QAT_H
#define AF_RUN_QAT_H

#include "model/builder.h"
#include "train/run/run_config.h"

/* Reads the key 'qat' into the fields of the run. */
AF_CHECKED af_status af_run_qat_check(af_run_config *r, af_error *err);
/* The type of weights it trains for, NULL without it. */
const char *af_run_qat_name(const af_run_config *r);
/* Whether the linears of these leaves have whole groups, and weights to round. */
AF_CHECKED af_status af_run_qat_fits(const af_run_config *r, const af_model_leaves *l,
                                     af_error *err);
#endif
