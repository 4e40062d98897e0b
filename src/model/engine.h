/* engine.h - a model's graph ready to run, for logits or for losses. Generation: src/decode. */
#ifndef AF_ENGINE_H
#define AF_ENGINE_H

#include "model/loader.h"

typedef enum af_engine_kind {
    AF_ENGINE_LOGITS, /* logits of every row */
    AF_ENGINE_LOSS,   /* loss and arg-max hit of every row */
} af_engine_kind;

typedef struct af_engine {
    af_engine_kind kind;
    af_graph *graph; /* NULL = none */
    af_model_leaves leaves;
    af_batch_inputs in;
    af_tensor *labels;
    af_tensor *out; /* logits, or rows [N][2] */
    int64_t N, S;
    int32_t *host; /* images of the inputs */
    void *raw;     /* the output as it comes */
} af_engine;

/* Where its weights come from: a loader and an adapter (or NULL); or, on the CPU, the leaves of
 * another graph, read where they lie there with the values they have by then. */
typedef struct af_engine_from {
    af_loader *loader;
    const af_adapter *adapter;
    af_dtype compute;
    const af_model_leaves *live; /* NULL, or instead of all the others */
} af_engine_from;

/* Builds, prepares and fills a graph of N rows and S sequences. */
AF_CHECKED af_status af_engine_open(af_engine *out, af_engine_kind kind, af_device *d,
                                    const af_engine_from *from, int64_t N, int64_t S,
                                    af_error *err);
/* Of any graph: its leaves, on device d; and their values, after prepare. */
AF_CHECKED af_status af_engine_leaves(af_model_leaves *out, af_graph *g, const af_engine_from *from,
                                      af_device *d, af_error *err);
AF_CHECKED af_status af_engine_fill(af_model_leaves *l, const af_engine_from *from, af_error *err);
void af_engine_close(af_engine *e); /* all zero is allowed */

/* Sequence s of a run: n tokens (0: not in this run). */
typedef struct af_feed {
    const int32_t *ids, *labels; /* labels shifted, loss only */
    int64_t n;
    int64_t length; /* what ropes may depend on; 0 = n */
} af_feed;
/* Runs S slices (fewer: the rest is empty), N tokens at most together. Row r of *out (floats, the
 * engine's until the next run) is the r-th token. `out` may be NULL. */
AF_CHECKED af_status af_engine_run(af_engine *e, const af_feed *s, int64_t n, const float **out,
                                   af_error *err);
#endif
