/* keys_latent.h - sizes of latent attention, and of values in ordinary attention: part of
 * af_hf_config and of af_model_spec. All zero for families without. */
#ifndef AF_KEYS_LATENT_H
#define AF_KEYS_LATENT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct af_latent_keys {
    int64_t q_lora_rank; /* 0 = one projection */
    int64_t kv_lora_rank, qk_nope_dim, qk_rope_dim;
    int64_t v_dim; /* values of a head; without latents: 0 = head_dim */
    /* an indexer picks so many keys of each query (deepseek_v32, glm_moe_dsa, minimax_m3); 0 = it
     * sees all */
    int64_t index_topk;
    int64_t index_heads, index_dim;
    const bool *index_shared; /* layers without an indexer; NULL = no such */
    /* the last rows of each head of q_b_proj are a gate of the result, and it reads the latent also
     * as it is before its norm (axk2) */
    bool out_gate;
    int64_t norm_gate; /* norms before mixers and mixtures have gates of this rank; 0 = none */
    double kv_scale;   /* factor of the latents of keys and values; 0 = 1 */
    bool rope_halves;  /* dimension i is rotated with i + d/2, not 2i with 2i+1 */
} af_latent_keys;
#endif
