/* adapter_apply.h - low-rank adapters into weights. */
#ifndef AF_ADAPTER_APPLY_H
#define AF_ADAPTER_APPLY_H

#include "model/adapter.h"

/* Rows [from, from + n) of a weight, [n][cols], become those of the merged one: w + s B A, with
 * DoRA times m / |w + s B A|. In f32, as PEFT computes it; the caller rounds once. */
void af_adapter_apply_rows(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                           int64_t cols);

/* The same for an embedding, whose A is [rank][tokens] and B [cols][rank]. */
void af_adapter_apply_embedding(const af_adapter_module *m, float *rows, int64_t from, int64_t n,
                                int64_t cols, int64_t tokens);
#endif
