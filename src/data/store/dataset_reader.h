/* dataset_reader.h - every record of the datasets of a run, tokenised, one after another.
 *
 * The one loop for training data, `data preview` and `data check`. Memory does not grow with the
 * files. */
#ifndef AF_READ_H
#define AF_READ_H

#include "data/render/renderer.h"
#include "data/store/pair_row.h"

typedef struct af_example {
    const char *file; /* borrowed for the call */
    int source;       /* number of the file over all datasets */
    int dataset;
    int64_t line, record;
    af_shape shape;
    int rows; /* 2: chosen, rejected */
    const af_row *row;
    const char *prompt; /* preference: the prompt as text */
    uint64_t prompt_len;
    bool label;          /* kto */
    const float *target; /* labels of a text */
    int targets;
    const af_pair_row *pair; /* with `rl`: the record as token rows, whole; else NULL */
} af_example;

/* Called for each record that is not skipped. AF_ESTOPPED ends reading without an error. */
typedef af_status af_example_fn(void *user, const af_example *e, af_error *err);

typedef enum af_read_mode {
    AF_READ_TRAIN,   /* cut to length; shapes that cannot be trained are refused */
    AF_READ_CHECK,   /* cut to length; every shape */
    AF_READ_PREVIEW, /* as it is */
} af_read_mode;

typedef struct af_read_times { /* seconds */
    double read, convert, render, encode, emit, all;
} af_read_times;

/* What the datasets are read with; made once. */
typedef struct af_data_pipeline {
    const af_data_opts *o;
    af_arena mem;
    af_data_source *source;
    int sources;
    af_tokenizer *tokenizer; /* NULL: there is none; `why` has the reason */
    af_error why;
    af_renderer *renderer; /* [sources] */
    int datasets;
    const double *mix_probs; /* [datasets], or NULL */
    /* AF_READ_CHECK: called for each faulty record, then reading continues; NULL = it ends there.
     */
    void (*fault)(void *user, const char *message);
    void *fault_user;
} af_data_pipeline;
AF_CHECKED af_status af_data_pipeline_open(af_data_pipeline *k, const af_data_opts *o,
                                           af_error *err);
void af_data_pipeline_close(af_data_pipeline *k);

AF_CHECKED af_status af_dataset_read(af_data_pipeline *k, af_read_mode mode, af_example_fn *emit,
                                     void *user, af_data_counts *counts, af_read_times *times,
                                     af_error *err);
#endif
