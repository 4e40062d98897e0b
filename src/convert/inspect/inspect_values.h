/* inspect_values.h - statistics over the values of stored tensors. */
#ifndef AF_INSPECT_VALUES_H
#define AF_INSPECT_VALUES_H

#include "afinar/inspect.h"
#include "base/arena_owner.h"
#include "base/pool.h"
#include "model/model_reader.h"

enum { AF_VALUES_PIECE = 1 << 14 }; /* elements read at a time, a multiple of every block */

/* "BF16", as safetensors spells it. */
const char *af_stored_type_name(af_arena *a, const af_stored *t);
/* Over all pieces, in parallel, combined in order: the same for any number of threads. */
AF_CHECKED af_status af_values_stats(const af_stored_values *v, af_pool *pool,
                                     af_inspect_stats *out, af_error *err);
/* How b differs from a (same count). */
AF_CHECKED af_status af_values_diff(const af_stored_values *a, const af_stored_values *b,
                                    af_pool *pool, af_diff_row *row, af_error *err);
#endif
