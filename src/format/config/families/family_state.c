/* family_state.c - families with state layers. */
#include "format/config/families/families.h"

const af_family af_families_state[] = {
    {0},
};
