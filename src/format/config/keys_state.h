/* keys_state.h - sizes of state layers (delta net, Mamba-2, short convolution): part of
 * af_hf_config and of af_model_spec. All zero for families without. */
#ifndef AF_KEYS_STATE_H
#define AF_KEYS_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef struct af_state_keys {
    int64_t conv_kernel; /* K of the causal convolution */
} af_state_keys;
#endif
