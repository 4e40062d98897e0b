/* keys_mup.h - the multipliers of falcon_h1: part of af_hf_config and of af_model_spec. `given` is
 * false for families without. */
#ifndef AF_KEYS_MUP_H
#define AF_KEYS_MUP_H

#include <stdbool.h>

enum { AF_MUP_PARTS = 5, AF_MUP_COUNT = 14 };

/* In the metadata of a GGUF file, whose weights are multiplied with them: AF_MUP_COUNT numbers, in
 * the order of af_mup_keys, and embedding_multiplier. */
#define AF_MUP_KEY "afinar.multipliers"

typedef struct af_mup_keys {
    bool given;
    double attn_in, attn_out, key; /* before and after attention, on keys */
    double ssm_in, ssm_out;        /* before and after Mamba layers */
    double ssm[AF_MUP_PARTS];      /* what in_proj gives: gate, values, keys, queries, steps */
    double gate, down, head;       /* of the MLP, of the logits */
} af_mup_keys;
#endif
