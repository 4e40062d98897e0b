/* keys_router.h - what routers and shared experts have beyond num_experts: part of af_hf_config and
 * of af_model_spec. All zero for families without. */
#ifndef AF_KEYS_ROUTER_H
#define AF_KEYS_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct af_router_keys {
    int64_t shared_ffn; /* width of the expert that every token sees; 0 = none */
    bool shared_gate;   /* its output is scaled by a sigmoid of its own */
} af_router_keys;
#endif
