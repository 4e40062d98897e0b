/* merge_run.h - between the files of the model merger: the opened models, the planned tensors. */
#ifndef AF_MERGE_RUN_H
#define AF_MERGE_RUN_H

#include "afinar/convert.h"
#include "convert/merge/merge_config.h"
#include "convert/output/model_out.h"

#include <stdatomic.h>

/* One tensor of the result. */
typedef struct af_merge_item {
    const char *name;
    int slice;
    double t; /* position in the slice */
    int n;    /* inputs, base included */
    const af_merge_source *source[AF_MERGE_INPUTS_MAX];
    const af_model_tensor *tensor[AF_MERGE_INPUTS_MAX];
    int ndim;
    int64_t dim[AF_WEIGHT_NDIM_MAX];
    af_dtype dtype; /* written as */
    bool embed;     /* rows are tokens */
} af_merge_item;

/* Where the row of a token comes from in one model, and what stands in for it; see merge_tokens.c.
 */
typedef struct af_merge_tokens {
    bool active;
    int64_t rows;         /* of the new embedding */
    int64_t used;         /* rows that have a token; padding after them is each model's mean row */
    int32_t *map;         /* [models][rows]: the model's own row, -1 = it has none */
    int32_t *from_model;  /* [rows]: whose row the config asks for; -1 = not set, -2 = zero */
    int32_t *from_row;    /* [rows] */
    uint8_t *force;       /* [rows]: it stands in for all */
    json_t *tokenizer;    /* the new tokenizer.json */
    int text_model;       /* whose other files are copied */
    const char *text_dir; /* instead: a folder that is not a model of the merge; NULL = none */
    af_arena arena;
} af_merge_tokens;

/* What is warned once: a model has values that are not finite; tensors of the result are all zeros
 * although those of the models are not. */
typedef struct af_merge_watch {
    atomic_bool nonfinite;
    bool warned;
    atomic_bool input_nonzero; /* of the tensor being merged */
    bool output_nonzero;
    int zeros;
    const char *first_zero;
} af_merge_watch;

typedef struct af_merge_run {
    const af_merge_config *config;
    const af_merge_opts *o;
    af_model_reader *in[AF_MERGE_MODELS_MAX];
    af_merge_item *item;
    int items;
    int64_t layers; /* of the result */
    bool untied;    /* a model has a head that is not its embedding: so has the result */
    af_merge_tokens tokens;
    af_merge_watch *watch;
    af_pool *pool;
    af_arena arena;
} af_merge_run;

/* merge_run.c: the merge of one document. */
AF_CHECKED af_status af_merge_config_run(const af_merge_config *c, const char *out,
                                         const af_merge_opts *o, af_merge_plan *plan,
                                         af_error *err);
/* Fills item[] from the config and the opened models. */
AF_CHECKED af_status af_merge_plan_items(af_merge_run *r, af_error *err);

/* The inputs of one tensor while it is merged. */
typedef struct af_merge_inputs {
    const af_merge_run *r;
    const af_merge_item *item;
    af_tensor_view view[AF_MERGE_INPUTS_MAX]; /* of all, base included */
    int view_of[AF_MERGE_INPUTS_MAX];         /* method's input -> view */
    int base;                                 /* view, or -1 */
    float *mean;                              /* [n][cols]: rows of padding; NULL = none */
    bool last;                                /* pass over the values: they are looked at */
} af_merge_inputs;

/* For a tensor whose rows are tokens: checks that every row has a source, makes the mean rows. */
AF_CHECKED af_status af_merge_token_rows_prepare(af_merge_inputs *in, af_error *err);
/* Rows of one input in the new vocabulary; spare: [cols]. */
void af_merge_token_rows(const af_merge_inputs *in, int view, int64_t row, int64_t rows, float *out,
                         float *spare);

/* Reads all tokenizers and decides where each row comes from, when the config asks for it. */
AF_CHECKED af_status af_merge_tokens_init(af_merge_tokens *k, const af_merge_run *r, af_error *err);
void af_merge_tokens_clear(af_merge_tokens *k);
/* Writes tokenizer, template and config files. */
AF_CHECKED af_status af_merge_text(const af_merge_run *r, const af_output *f, af_error *err);
#endif
