/* decay.h - the decays of layers whose heads forget at a fixed rate (minimax): slope(head) times
 * factor(layer) is subtracted from the logarithm of a state with every token. */
#ifndef AF_DECAY_H
#define AF_DECAY_H

#include "model/arch/arch.h"

/* 2^-(8 / heads), its square, ... */
double af_decay_slope(const af_model_spec *s, int head);
/* From 1 down to almost 0 in the last layer. */
double af_decay_factor(const af_model_spec *s, int layer);
#endif
