/* adapter_apply.h - low-rank adapters into weights, and several adapters into one. */
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

typedef enum af_combine { AF_COMBINE_LINEAR, AF_COMBINE_CAT, AF_COMBINE_TIES } af_combine;
bool af_combine_by_name(af_combine *out, const char *name);

/* Several adapters of one model as one, as PEFT's add_weighted_adapter does it: linear and ties on
 * A and B apart (each scaled by sqrt |w s|), cat exactly. `density` is for ties. */
AF_CHECKED af_status af_adapter_combine(af_adapter **out, const af_adapter *const *in,
                                        const double *weight, int n, af_combine how, double density,
                                        af_error *err);
#endif
