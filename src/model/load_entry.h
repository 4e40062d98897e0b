/* load_entry.h - between the files of the loader: where the values of one tensor come from. */
#ifndef AF_LOAD_ENTRY_H
#define AF_LOAD_ENTRY_H

#include "model/bnb_weight.h"
#include "model/load.h"

typedef enum af_entry_kind {
    AF_ENTRY_ROWS, /* stored rows, in our order or permuted, from one or more tensors */
    AF_ENTRY_BNB,  /* bitsandbytes codes, read from the file or made at load */
} af_entry_kind;

typedef struct af_entry {
    af_entry_kind kind;
    int64_t rows, cols;      /* of our tensor; a vector is one row (rows of 1 when permuted) */
    const af_stored **piece; /* [pieces], equal rows and type each */
    int pieces;
    int64_t piece_rows; /* rows of ours that come from one piece */
    int64_t heads;      /* > 0: rows are interleaved per head as llama.cpp has them */
    bool gate_up_split; /* GGUF experts: piece 0 has all gates, piece 1 all ups */
    float add;          /* added to every value (gemma norms: -1) */
    af_bnb_weight bnb;
    bool quantise; /* made at load from the rows */
} af_entry;

struct af_source {
    char *path;
    af_source_opts o;
    af_hf_config config;
    bool has_config;
    bool untied;    /* the head's values are those of the embedding */
    bool head_only; /* the tied embedding is stored under the head's name */
    af_model_spec spec;
    af_weights *weights;
    const char *prefix; /* what "model." is called in this folder */
    af_entry *entry;    /* by spec tensor */
    af_dtype *dtype;
    af_arena arena;
};

/* Row r of ours, as it is stored. */
const void *af_entry_row(const af_source *s, const af_entry *e, int64_t r);
/* The type the rows are stored in. */
af_dtype af_entry_type(const af_entry *e);
/* Makes the codes of an entry that is quantised at load. */
AF_CHECKED af_status af_entry_quantise(af_source *s, int tensor, af_error *err);
#endif
