/* rows_dense.c - dense families with other norms, residual order or MLP than llama. */
#include "model/arch/arch_rows.h"

const af_arch af_rows_dense[] = {
    {0},
};
