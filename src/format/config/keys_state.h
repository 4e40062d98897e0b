/* keys_state.h - sizes of state layers (delta net, Mamba-2, short convolution): part of
 * af_hf_config and of af_model_spec. All zero for families without. */
#ifndef AF_KEYS_STATE_H
#define AF_KEYS_STATE_H

#include <stdbool.h>
#include <stdint.h>

enum { AF_STATE_DIM_MAX = 4096, AF_STATE_KERNEL_MAX = 64 };

typedef struct af_state_keys {
    int64_t conv_kernel;        /* K of the causal convolution */
    int64_t heads, head_dim;    /* of values; a state is [key_dim][head_dim] */
    int64_t key_heads, key_dim; /* of queries and keys (Mamba-2: groups, state size) */
    int64_t norm_groups;        /* of the gated norm of Mamba-2, each normed alone; 0 = 1 */
    double step_min, step_max;  /* limits of time steps; step_max 0 = none */
    int64_t inner;              /* Mamba-1: I, its channels; key_dim is the states of one */
    int64_t step_rank;          /* R of dt_proj */
    double step_eps;            /* of norms of time steps, keys and queries; 0 = none */
    bool step_norms;            /* those have weights (jamba) */
    bool no_norm;               /* no norm before out_proj, only the gate (falcon_h1) */
    bool gate_after;            /* the gate of Mamba-2 comes after its norm */
    bool out_bias; /* of out_proj; of families of Mamba-2, proj_bias is of in_proj alone */
    bool conv_bias, proj_bias;
    bool by_key_head; /* qwen3_next: rows of the projections are sorted by key head */
    bool apart;       /* q, k and v have projections of their own (olmo_hybrid) */
    bool fixed_decay; /* decays are numbers of head and layer, not learned (minimax) */
    bool twice_beta;  /* beta is 2 sigmoid: eigenvalues of a step may be negative */
    double norm_eps;  /* of the gated norm; 0 = that of all norms */
    bool channels;    /* Kimi delta attention: a decay per channel of the key, gates are sigmoids */
    double decay_bound; /* these are never below it, by a sigmoid; 0 = none, a softplus */
    int64_t gate_rank;  /* of these decays and gates, low-rank; 0 = one matrix each */
    /* zamba2: hybrid layer n uses transformer n mod shared_blocks, with low-rank parts for each use
     */
    int64_t shared_blocks; /* 0 = none */
    int64_t use_rank;      /* of the parts of its MLP, */
    bool use_qkv;          /* and of q, k and v, where they have such parts */
    bool shared_rope;
} af_state_keys;
#endif
