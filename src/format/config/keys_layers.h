/* keys_layers.h - what differs from layer to layer (gemma4, granite_swa): part of af_hf_config. All
 * zero for families without. */
#ifndef AF_KEYS_LAYERS_H
#define AF_KEYS_LAYERS_H

#include <stdbool.h>
#include <stdint.h>

/* gemma3n: the residual is several streams, of which layers read one. */
typedef struct af_altup_keys {
    int64_t streams; /* 0 = one residual, as everywhere else */
    int64_t active;  /* which one layers read */
    int64_t laurel;  /* rank of what is added next to attention */
    bool scaled;     /* what per-layer inputs are mixed with has a scale */
} af_altup_keys;

/* Layers of gemma3n that have keys and values of their own in llama.cpp. */
enum { AF_ALTUP_STREAMS_MAX = 4, AF_GEMMA3N_OWN_KV = 20 };

typedef struct af_layer_keys {
    const int64_t *head_dim, *kv_heads;   /* [layers], 0 = the usual one; NULL = by kind: */
    int64_t full_head_dim, full_kv_heads; /* of full layers; 0 = the usual one */
    const double *rope_theta;             /* [layers], 0 = no rope; NULL = by kind */
    const int64_t *ffn;                   /* [layers]; NULL = the usual one */
    const double *sparsity;               /* [layers]: share of gates that are 0; NULL = none */
    int64_t kv_shared;                    /* the last ones use keys and values of earlier layers */
    int64_t input; /* width of the input each layer has of its own; 0 = none */
    int64_t input_vocab;
    bool k_is_v;      /* full layers have no v_proj */
    bool double_wide; /* layers with shared keys have an MLP of twice the width */
    bool experts;     /* a mixture next to each MLP */
} af_layer_keys;
#endif
