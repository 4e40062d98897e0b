/* interleave.h - the records of several datasets in turn, by the rules of interleave_datasets of
 * Hugging Face's datasets, which LLaMA-Factory uses. */
#ifndef AF_INTERLEAVE_H
#define AF_INTERLEAVE_H

#include "base/arena.h"
#include "data/read/data_opts.h"

typedef struct af_interleave_opts {
    af_mix_strategy mix;    /* not AF_MIX_CONCAT */
    const int64_t *records; /* [datasets] */
    int datasets;
    const double *probs; /* [datasets]; NULL = one after another */
    uint64_t seed;       /* of the draws by probs: the same for any number of threads */
} af_interleave_opts;

/* The run's probabilities as numbers, one for each dataset; NULL when it has none or does not
 * interleave. Memory comes from `mem`. */
AF_CHECKED af_status af_interleave_probs(const double **out, const af_data_opts *o, int datasets,
                                         af_arena *mem, af_error *err);
/* Numbers of records, as if the datasets were one after another. Free with free. */
AF_CHECKED af_status af_interleave(int64_t **order, int64_t *count, const af_interleave_opts *o,
                                   af_error *err);
#endif
