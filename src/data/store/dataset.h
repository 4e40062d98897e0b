/* dataset.h - from dataset files to tokens with labels.
 *
 * A dataset is read record by record (json, jsonl, csv, text; plain, gz or zst), its shape detected
 * from the first record and verified on all, rendered through the model's chat template, tokenised,
 * masked, truncated, and kept in a token store in the user's cache folder, keyed by the content
 * of everything that went into it. */
#ifndef AF_DATASET_H
#define AF_DATASET_H

#include "data/read/data_opts.h"
#include "data/store/token_store.h"

/* Opens the cached store of these datasets, or makes it. Warnings go to the log, errors are
 * "file:line: reason". */
AF_CHECKED af_status af_dataset_open(af_token_store *out, af_data_counts *counts,
                                     const af_data_opts *o, af_error *err);
/* The file a record came from (index entry's source), for messages. Borrowed from the store. */
const char *af_dataset_file(const af_token_store *s, int source);
int af_dataset_file_count(const af_token_store *s);
#endif
