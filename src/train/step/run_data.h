/* run_data.h - the tokens of a run: training and evaluation records, and the streams over them. */
#ifndef AF_RUN_DATA_H
#define AF_RUN_DATA_H

#include "data/store/batch_stream.h"
#include "data/store/dataset.h"
#include "train/step/run_model.h"

typedef struct af_run_data {
    char *chat_template; /* as af_renderer_init takes it; a template file was read once */
    af_token_store store, eval_store;
    af_data_counts counts, eval_counts;
    bool eval_own_store;                 /* evaluated on test_datasets, not on held-out records */
    int64_t *train_subset, *eval_subset; /* records by number; NULL = all of the store */
    af_stream *stream, *eval_stream;
    int64_t eval_items;
    int64_t rows_max, sequences_max; /* of one micro-batch, evaluation included */
    int64_t attention_max;           /* rows of attention where pairs share prompts, else 0 */
} af_run_data;

/* Tokenises (or finds in the cache) the run's datasets and opens the streams. Close after a failure
 * too. */
AF_CHECKED af_status af_run_data_open(af_run_data *d, const af_run_config *run,
                                      const af_run_model *model, af_error *err);
/* Keys about turns that have no effect, where every dataset declares its type. */
AF_CHECKED af_status af_run_data_check_types(const af_run_config *run, af_error *err);
/* The checks of opening that need no more than the first record of each dataset. */
AF_CHECKED af_status af_run_data_peek(const af_run_config *run, const af_run_model *model,
                                      af_error *err);
/* How many of n records val_set_size holds out; some must be left. */
AF_CHECKED af_status af_run_data_hold_out(const af_run_config *run, int64_t n, int64_t *out,
                                          af_error *err);
void af_run_data_close(af_run_data *d); /* an empty one is allowed */
/* Whether the prompt of a pair is computed once for both answers. */
bool af_run_data_shares(const af_run_config *run, const af_model_spec *spec);
/* The tokens of the records in `store`; a prompt of two answers counts once. */
uint64_t af_run_data_tokens(const af_run_data *d, const af_run_config *run);
/* The store that holds the evaluation records. */
const af_token_store *af_run_data_eval_store(const af_run_data *d);
#endif
