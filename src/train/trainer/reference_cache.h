/* reference_cache.h - log-probabilities of the reference next to the token stores.
 *
 * A file is found by a hash of everything its values depend on: weights, records, how they are
 * computed. It has one entry for each record of a store; records that no run has needed yet have
 * none. A file that is cut short or changed is ignored. */
#ifndef AF_REFERENCE_CACHE_H
#define AF_REFERENCE_CACHE_H

#include "base/hash.h"
#include "train/preference/pref_batch.h"
#include "train/step/run_data.h"

/* Adds the weights in a folder, or one file of them. */
AF_CHECKED af_status af_weights_hash(af_sha256 *h, const char *path, af_error *err);
/* Where the values of a store are, or will be (malloc'ed); NULL when there is no cache folder.
 * `eval`: of the evaluation's own store. */
AF_CHECKED af_status af_reference_path(char **out, const af_run_model *model,
                                       const af_run_data *data, const af_run_config *run, bool eval,
                                       af_error *err);
/* Fills in what the file has; a missing or damaged one has nothing. Returns the number of known
 * records. */
int64_t af_reference_load(const char *path, af_pair_reference *table, int64_t records);
AF_CHECKED af_status af_reference_save(const char *path, const af_pair_reference *table,
                                       int64_t records, af_error *err);
#endif
