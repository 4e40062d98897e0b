/* layer_names.c - see layer_names.h. */
#include "convert/input/layer_names.h"

#include <string.h>

const char *const af_layer_mark[AF_LAYER_MARKS] = {"layers.", ".h.", "transformer.blocks."};

bool af_name_in_layer(const char *name)
{
    for (int i = 0; i < AF_LAYER_MARKS; i++)
        if (strstr(name, af_layer_mark[i]))
            return true;
    return false;
}

/* DBRX has its attention inside a module that is named after the norms. */
bool af_name_of_norm(const char *name)
{
    return strstr(name, "norm") && !strstr(name, ".norm_attn_norm.attn.");
}
