/* decode_graph.h - the graph of a decoder: rows of many sequences, pages of keys and values, states
 * of other layers, and adapters chosen per row. */
#ifndef AF_DECODE_GRAPH_H
#define AF_DECODE_GRAPH_H

#include "model/engine.h"
#include "ops/head/token_draw.h"

typedef struct af_decode_sizes {
    int64_t rows;               /* tokens of a run */
    int64_t seqs;               /* sequences */
    int64_t picks;              /* rows of a run whose logits may be wanted */
    int64_t pages, page, table; /* pages, their positions, and pages of one sequence at most */
    int64_t least;              /* see af_graph_set_one_token */
    bool hidden;                /* hidden states can be read */
    bool rounded;               /* see af_graph_set_round_activations */
    bool draws;                 /* the device chooses tokens (token_draw.h) */
    /* adapters at most, the largest rank, and which modules of the spec have one (NULL = none) */
    int adapters, rank;
    bool columns; /* some have factors and shifts of columns */
    const bool *module;
} af_decode_sizes;

/* What an adapter does to the columns of a module's output, [out] each; NULL: nothing. */
typedef struct af_adapter_columns {
    float *factor, *shift;
} af_adapter_columns;

/* An adapter with its columns [modules] (NULL: it has none). */
typedef struct af_decode_values {
    const af_adapter *adapter; /* NULL: none there */
    const af_adapter_columns *columns;
} af_decode_values;

typedef struct af_decode_graph {
    af_graph *graph; /* NULL = none */
    af_model_leaves leaves;
    af_batch_inputs in;
    af_tensor *last;            /* i32 [picks] */
    af_row_choice adapters;     /* of the rows */
    af_tensor *column;          /* i32 [rows]: the adapter plus 1, or 0 */
    af_tensor *hidden, *logits; /* [rows][D], [picks][V] */
    af_tensor *want;            /* f64 [picks][AF_DRAW_WANTS]; NULL = the device draws nothing, */
    af_tensor *choice, *top;    /* else f64 [picks][2] and [picks][2 AF_DRAW_TOPS_MAX] */
    af_layer_cache *cache;      /* [layers], of the leaves' arena */
    af_row_adapter *group;      /* [layers * AF_GROUP_LAYER_COUNT], likewise; NULL = none */
    af_decode_sizes z;          /* module: not valid after opening */
    int64_t live;               /* rows of the last run */
    int32_t *host;              /* images of the inputs */
    void *raw;                  /* logits or hidden states as they come */
    double *drawn;              /* images of want, choice and top */
} af_decode_graph;

AF_CHECKED af_status af_decode_graph_open(af_decode_graph *out, af_device *d,
                                          const af_engine_from *from, const af_decode_sizes *z,
                                          af_error *err);
/* What that would take, weights that are read where they lie left out, and with leaves of another
 * graph the workspace of both. Nothing is read: that graph needs no memory yet. */
AF_CHECKED af_status af_decode_graph_plan(uint64_t *bytes, af_device *d, const af_engine_from *from,
                                          const af_decode_sizes *z, af_error *err);
void af_decode_graph_close(af_decode_graph *e); /* all zero is allowed */

/* Sequence s of a run: n tokens at positions from, from + 1, ... (n = 0: not in this run). */
typedef struct af_decode_feed {
    const int32_t *ids;
    int64_t n, from;
    int64_t picks;  /* the logits of so many of its last rows are wanted */
    int64_t length; /* of the whole sequence, for ropes that depend on it */
    int adapter;    /* its place among the adapters; -1 = none */
    bool draws;     /* the device chooses the token after the last of them, by */
    double want[AF_DRAW_WANTS];
} af_decode_feed;
/* Runs seqs feeds; `one`: no sequence has more than one row, and none of its prompt
 * (af_graph_set_one_token). pages [seqs][table]. */
AF_CHECKED af_status af_decode_graph_run(af_decode_graph *e, const af_decode_feed *f,
                                         const int32_t *pages, bool one, af_error *err);
/* Of the last run, until the next one: logits of `count` wanted rows from the from-th on (floats,
 * the graph's until the next call), */
AF_CHECKED af_status af_decode_graph_logits(af_decode_graph *e, int64_t from, int64_t count,
                                            const float **logits, af_error *err);
/* and what was drawn after the row-th: token and log-probability, and pairs of both. */
const double *af_decode_graph_choice(const af_decode_graph *e, int64_t row);
const double *af_decode_graph_top(const af_decode_graph *e, int64_t row);
/* The hidden states of the rows of the last run, until the next one. */
AF_CHECKED af_status af_decode_graph_hidden(af_decode_graph *e, const float **rows, af_error *err);
/* The caches of `from` into those of a graph with the same sizes. */
AF_CHECKED af_status af_decode_graph_move(af_decode_graph *to, af_decode_graph *from,
                                          af_error *err);
/* The values of n adapters into the graph. */
AF_CHECKED af_status af_decode_graph_adapters(af_decode_graph *e, const af_decode_values *v, int n,
                                              af_error *err);
#endif
