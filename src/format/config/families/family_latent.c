/* family_latent.c - families with latent attention. */
#include "format/config/families/families.h"

const af_family af_families_latent[] = {
    {0},
};
