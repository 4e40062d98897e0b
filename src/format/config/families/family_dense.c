/* family_dense.c - dense families with other norms, residual order or MLP than llama. */
#include "format/config/families/families.h"

const af_family af_families_dense[] = {
    {.model_type = "phi",
     .act = "gelu_new",
     .eps = 1e-5,
     .theta = 1e4,
     .partial = 0.5,
     .unsupported = true},
    {0},
};
