/* rows_latent.c - families with latent attention. */
#include "model/arch/arch_rows.h"

const af_arch af_rows_latent[] = {
    {0},
};
