/* record_reader.h - the state of reading datasets, for the files that share it: dataset_reader.c,
 * text_reader.c (plain text files) and pair_reader.c (preference records). */
#ifndef AF_RECORD_READER_H
#define AF_RECORD_READER_H

#include "base/pool.h"
#include "data/pair/pair_tokens.h"
#include "data/read/records.h"
#include "data/store/dataset_reader.h"
#include "data/store/record_pick.h"
#include "data/store/row_filter.h"

enum { AF_UNPAIR_BLOCK = 1000 }; /* records that TRL takes apart together */

/* One record in flight: any thread may prepare it, one thread emits them in order. */
typedef struct af_record_job {
    json_t *record;
    af_source_loc loc; /* its warnings are the ones below */
    int64_t times;     /* how often it is taken */
    af_record_warnings warnings;
    af_item item;
    af_row row[2];
    af_pair_prompt_end prompt; /* pairs */
    double convert;
    af_status st;
    af_error err;
} af_record_job;

/* The second answer of a pair that KTO takes apart: it comes after the first ones of its block. */
typedef struct af_held_row {
    af_source_loc loc;
    char *file; /* loc's: the list of files ends with its dataset */
    int source, dataset;
    af_row row;
    int64_t prompt;
} af_held_row;

typedef struct af_record_reader {
    af_data_pipeline *pipeline;
    af_read_mode mode;
    af_example_fn *emit;
    void *user;
    af_record_warnings warnings;
    af_read_times times;
    af_data_source *source;
    af_renderer *renderer;
    af_source_loc loc;
    af_record_pick pick;
    af_row_filter filter;
    int64_t index; /* of the next record, over all files of the dataset */
    int file;      /* number over all datasets */
    int dataset;   /* the same of the dataset; parts of a split are one */
    /* for this dataset: */
    bool tools_warned, missing_warned, unshown_warned, departs_warned, split_reported;
    bool ended;
    af_pool *pool;
    af_renderer *thread_renderer; /* [threads]: copies of renderer with their own scratch memory */
    af_record_job *jobs;          /* [BATCH * threads] */
    int64_t waiting;              /* of them */
    af_row text;                  /* plain text: tokens not emitted yet */
    int64_t text_line;
    af_held_row *held;            /* [AF_UNPAIR_BLOCK] */
    int64_t held_count, unpaired; /* of a block; `unpaired` counts dropped ones, too */
    af_error *err;
} af_record_reader;

/* Counts tokens and warns of faults in a row. */
AF_CHECKED af_status af_record_reader_check_ids(af_record_reader *d, const af_row *r);
void af_record_reader_count(af_record_reader *d, const af_example *e);
AF_CHECKED af_status af_record_reader_emit(af_record_reader *d, const af_example *e);

/* text_reader.c: a whole text file, in rows of sequence_len. */
AF_CHECKED af_status af_text_file_read(af_record_reader *d, af_records *r, int64_t *records);

/* pair_reader.c: one preference record; at the end those that were held back. */
AF_CHECKED af_status af_pair_emit(af_record_reader *d, af_record_job *j);
AF_CHECKED af_status af_pair_emit_held(af_record_reader *d);
void af_pair_held_clear(af_record_reader *d);
#endif
