/* data.h - the datasets of a run file as training sees them: rendered, tokenized, with the loss
 * mask.
 *
 * base_model may be a folder with tokenizer files alone. Warnings ("file:line: ...") go to the log
 * hook (log.h). */
#ifndef AFINAR_DATA_H
#define AFINAR_DATA_H

#include "afinar/status.h"
#include "afinar/text.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One tokenized text. labels[i] is ids[i], or -100 where the token has no loss; not shifted. */
typedef struct af_data_row {
    const char *text;
    uint64_t len;
    const int32_t *ids, *labels;
    int64_t count;
} af_data_row;

typedef struct af_data_example {
    const char *file;
    int64_t line, record; /* in that file, from 1 */
    bool several_files;
    const char *shape; /* "messages", "alpaca", ... */
    int rows;          /* 2: chosen and rejected */
    af_data_row row[2];
    const char *prompt; /* preference: the prompt as text; NULL for other shapes */
    uint64_t prompt_len;
    bool has_label, label; /* kto */
    const float *target;   /* labels of a text: its class, or a value for each label */
    int targets;           /* 0: another shape */
    int64_t sequence_len;  /* of the run: longer rows are cut or dropped in training */
    const af_tokenizer *tokenizer;
} af_data_example;

/* Gets one record, valid during the call; false stops. */
typedef bool af_data_hook(void *user, const af_data_example *e);

/* Passes the records of `datasets` to `hook` in file order, at most `limit` of them (0 = all), of
 * any shape. overrides [count] are "key=value". AF_EIO, AF_EFORMAT, AF_EUSAGE. */
AF_API AF_CHECKED af_status af_data_preview(const char *run_file, const char *const *overrides,
                                            int count, int64_t limit, af_data_hook *hook,
                                            void *user, af_error *err);
/* One line of JSON without newline: {"record", "line", "text", "ids", "labels"}; preference:
 * {"record", "line", "prompt_text", "chosen", "rejected"}; kto and texts with labels add "label".
 * free() it. NULL when out of memory. */
AF_API char *af_data_example_json(const af_data_example *e);

/* Gets one record as a JSON object without a newline, valid during the call; false stops. */
typedef bool af_data_line_hook(void *user, const char *json, uint64_t len);

/* Passes the records of a file or folder (json, jsonl, csv, tsv, text, parquet, Arrow, a folder of
 * save_to_disk, a dataset repository) to `hook` in file order, before any shape is applied: at
 * most `limit` of them (0 = all). `config` and `split` choose in a folder; NULL = the usual ones.
 * AF_EIO, AF_EFORMAT, AF_EUSAGE. */
AF_API AF_CHECKED af_status af_data_records(const char *path, const char *config, const char *split,
                                            int64_t limit, af_data_line_hook *hook, void *user,
                                            af_error *err);

typedef struct af_data_report {
    int64_t records, tokens, supervised;
    int64_t truncated, dropped, lost_eot; /* by sequence_len; lost_eot: end-of-turn token cut off */
    int64_t left_out;   /* shorter than min_sample_len, or there before (deduplication) */
    int64_t split_rows; /* rows of conversations that the template needs several for, but the first
                           of each; `records` counts them, too */
    int64_t empty_answers, double_bos, missing_eot, nothing_to_learn;
    int64_t test_records; /* of test_datasets; -1 = the run has none */
    int64_t warnings, errors;
    /* seconds: parsing files, checking and converting records, templates, tokenizer, writing the
     * token store, packing; and all of it */
    double read_s, convert_s, render_s, encode_s, write_s, pack_s, all_s;
    int64_t packs;    /* with stats: rows of sequence_len, and how full they are */
    double pack_fill; /* 0 .. 1 */
} af_data_report;

/* Reads and counts all records; of test_datasets only records, warnings and errors. The first
 * record of each kind of fault is reported to `fault` ("file:line: reason"), the number of the
 * others at the end; the call then fails at the end, with *out filled. `fault` may be NULL. stats:
 * also writes and packs a token store as training does, for the times. */
AF_API AF_CHECKED af_status af_data_check(const char *run_file, const char *const *overrides,
                                          int count, bool stats,
                                          void (*fault)(void *user, const char *message),
                                          void *user, af_data_report *out, af_error *err);

#ifdef __cplusplus
}
#endif
#endif
