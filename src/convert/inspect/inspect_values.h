/* inspect_values.h - reading any stored tensor as f32 in pieces, and statistics over it. */
#ifndef AF_INSPECT_VALUES_H
#define AF_INSPECT_VALUES_H

#include "afinar/inspect.h"
#include "base/pool.h"
#include "format/weights/bnb_state.h"

/* A tensor whose values can be read: plain, GGUF block, or packed by bitsandbytes. */
typedef struct af_tensor_values {
    const af_stored *t;
    bool packed;
    af_bnb_state state;
    float *absmax; /* of a packed one; owned */
    int64_t count; /* elements it unpacks to */
} af_tensor_values;

enum { AF_VALUES_PIECE = 1 << 14 }; /* elements read at a time, a multiple of every block */

/* *readable is false for a type we cannot decode. */
AF_CHECKED af_status af_tensor_values_open(af_tensor_values *out, bool *readable,
                                           const af_weights *w, const af_stored *t, af_error *err);
void af_tensor_values_close(af_tensor_values *v);
/* Elements [from, to), from a multiple of AF_VALUES_PIECE, at most one piece. */
void af_tensor_values_read(const af_tensor_values *v, int64_t from, int64_t to, float *dst);

/* Over all pieces, in parallel, combined in order: the same for any number of threads. */
AF_CHECKED af_status af_tensor_values_stats(const af_tensor_values *v, af_pool *pool,
                                            af_inspect_stats *out, af_error *err);
/* How b differs from a (same count). */
AF_CHECKED af_status af_tensor_values_diff(const af_tensor_values *a, const af_tensor_values *b,
                                           af_pool *pool, af_diff_row *row, af_error *err);
#endif
