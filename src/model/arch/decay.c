/* decay.c - see decay.h. */
#include "model/arch/decay.h"

#include <math.h>

double af_decay_slope(const af_model_spec *s, int head)
{
    return exp2(-8.0 * (head + 1) / s->heads);
}

double af_decay_factor(const af_model_spec *s, int layer)
{
    return 1 - layer / (s->layers - 1 + 1e-5) + 1e-5;
}
