/* dataset.h - from dataset files to tokens with labels.
 *
 * A dataset is read record by record (json, jsonl, csv, text; plain, gz or zst), its shape detected
 * from the first record and verified on all, rendered through the model's chat template, tokenised,
 * masked, cut to length, and kept in a token store in the user's cache folder, keyed by the content
 * of everything that went into it. */
#ifndef AF_DATASET_H
#define AF_DATASET_H

#include "data/store/token_store.h"
#include "format/text/yaml_tree.h"

typedef enum af_excess { AF_EXCESS_DROP, AF_EXCESS_TRUNCATE, AF_EXCESS_ERROR } af_excess;
typedef enum af_train_eos {
    AF_TRAIN_EOS_TURN, /* the end-of-turn token of trained turns */
    AF_TRAIN_EOS_ALL,  /* of every turn */
    AF_TRAIN_EOS_LAST, /* only the last one */
    AF_TRAIN_EOS_NONE
} af_train_eos;

typedef struct af_data_opts {
    const af_yaml *datasets; /* the run file's list of {path, type, field names} */
    const char *run_path;    /* for messages: "run.yaml" */
    const char *model;       /* resolved folder or .gguf: the tokenizer and the template */
    const char
        *chat_template; /* NULL = the model's; a .jinja file, a name, or the template itself */
    bool train_on_inputs;
    const char *const *roles; /* roles_to_train; none = assistant */
    int role_count;
    af_train_eos train_on_eos;
    af_excess excess;
    int64_t sequence_len;
    int64_t vocab; /* ids must be below this; 0 = not checked */
} af_data_opts;

typedef struct af_data_counts {
    int64_t records, tokens, supervised; /* what is in the store */
    int64_t truncated, dropped;          /* by sequence_len */
    int64_t lost_eot;                    /* truncated records whose end-of-turn token is gone */
    int64_t empty_answers, double_bos, missing_eot, nothing_to_learn;
    int64_t of_text, of_tokens, of_segments; /* records without turns, by shape */
    int64_t warnings;
    int64_t errors; /* data check alone goes on behind one */
} af_data_counts;

/* Opens the cached store of these datasets, or makes it. Warnings go to the log, errors are
 * "file:line: reason". */
AF_CHECKED af_status af_dataset_open(af_token_store *out, af_data_counts *counts,
                                     const af_data_opts *o, af_error *err);
/* The file a record came from (index entry's source), for messages. Borrowed from the store. */
const char *af_dataset_file(const af_token_store *s, int source);
#endif
