/* rows_state.c - families with state layers: delta net, Mamba-2, short convolution. */
#include "model/arch/arch_rows.h"

const af_arch af_rows_state[] = {
    {0},
};
