/* fresh_weights.h - a model with the weights that transformers' from_config gives it. */
#ifndef AF_FRESH_WEIGHTS_H
#define AF_FRESH_WEIGHTS_H

#include "model/arch/arch.h"

/* Whether the first values of all trained tensors are known; the error names one that are not. */
AF_CHECKED af_status af_fresh_check(const af_model_spec *s, af_error *err);
/* Rows [from, from + n) of `columns` values of a tensor: a function of the seed, the tensor and the
 * place of a value. `spread` is initializer_range. */
void af_fresh_rows(const af_model_spec *s, int tensor, double spread, uint64_t seed, int64_t from,
                   int64_t n, int64_t columns, float *out);
#endif
