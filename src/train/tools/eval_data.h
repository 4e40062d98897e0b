/* eval_data.h - the dataset of an evaluation, as the tokens of its records. */
#ifndef AF_EVAL_DATA_H
#define AF_EVAL_DATA_H

#include "data/read/data_opts.h"
#include "data/store/token_store.h"
#include "model/model_state.h"

/* Opens the store of a dataset for this model. `labels`: records are texts with labels. `excess`:
 * what becomes of records that are too long. Memory of names is taken from `mem`. */
AF_CHECKED af_status af_eval_data_open(af_token_store *store, af_data_counts *counts, af_model *m,
                                       const char *path, const af_eval_data_opts *o, bool labels,
                                       af_excess excess, af_arena *mem, af_error *err);
#endif
