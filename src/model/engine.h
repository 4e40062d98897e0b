/* engine.h - a model's graph ready to run: for logits, for losses, or for generation. */
#ifndef AF_ENGINE_H
#define AF_ENGINE_H

#include "model/loader.h"

typedef enum af_engine_kind {
    AF_ENGINE_LOGITS,   /* logits of every row */
    AF_ENGINE_LOSS,     /* loss and arg-max hit of every row */
    AF_ENGINE_GENERATE, /* logits of one row per sequence, with caches */
} af_engine_kind;

typedef struct af_engine {
    af_engine_kind kind;
    af_graph *graph; /* NULL = none */
    af_model_leaves leaves;
    af_batch_inputs in;
    af_tensor *labels, *last; /* last: i32 [picks], the rows whose logits are wanted */
    af_tensor *out;           /* logits, or rows [N][2] */
    int64_t N, S, L, picks;
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
    int64_t picks; /* generation: rows whose logits a run may want; 0 = one per sequence */
} af_engine_from;

/* Builds, prepares and fills a graph of N rows and S sequences (caches of L positions). */
AF_CHECKED af_status af_engine_open(af_engine *out, af_engine_kind kind, af_device *d,
                                    const af_engine_from *from, int64_t N, int64_t S, int64_t L,
                                    af_error *err);
/* What that would take, weights that are read where they lie left out, and with leaves of another
 * graph the workspace of both. Nothing is read: that graph needs no memory yet. */
AF_CHECKED af_status af_engine_plan(uint64_t *bytes, af_engine_kind kind, af_device *d,
                                    const af_engine_from *from, int64_t N, int64_t S, int64_t L,
                                    af_error *err);
void af_engine_close(af_engine *e); /* all zero is allowed */

/* Sequence s of a run: n tokens at positions from, from + 1, ... (n = 0: not in this run). */
typedef struct af_feed {
    const int32_t *ids, *labels; /* labels shifted, loss only */
    int64_t n, from;
    int64_t picks;  /* generation: the logits of so many of its last rows are wanted */
    int64_t length; /* of the whole sequence, for ropes that depend on it; 0 = from + n */
} af_feed;
/* Runs S slices (fewer: the rest is empty), N tokens at most together. Row r of *out (floats, the
 * engine's until the next run) is the r-th token (logits, loss) or wanted row (generation).
 * `out` may be NULL. */
AF_CHECKED af_status af_engine_run(af_engine *e, const af_feed *s, int64_t n, const float **out,
                                   af_error *err);
#endif
