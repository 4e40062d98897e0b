/* decay.h - the decays of layers whose heads forget at a fixed rate (minimax): slope(head) times
 * factor(layer) is subtracted from the logarithm of a state with every token. */
#ifndef AF_DECAY_H
#define AF_DECAY_H

#include "model/arch/arch.h"

#include <math.h>

/* 2^-(8 / heads), its square, ... */
static inline double af_decay_slope(const af_model_spec *s, int head)
{
    return exp2(-8.0 * (head + 1) / s->heads);
}

/* From 1 down to almost 0 in the last layer. */
static inline double af_decay_factor(const af_model_spec *s, int layer)
{
    return 1 - layer / (s->layers - 1 + 1e-5) + 1e-5;
}
#endif
