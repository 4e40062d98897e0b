/* moment_block.h - which values of a tensor share a second moment of Adam-mini. */
#ifndef AF_MOMENT_BLOCK_H
#define AF_MOMENT_BLOCK_H

#include "model/arch/arch.h"

/* So many neighbours of tensor i: af_param_moment_block. */
int64_t af_moment_block(const af_model_spec *s, int tensor);
#endif
