/* keys_router.h - what routers and shared experts have beyond num_experts: part of af_hf_config and
 * of af_model_spec. All zero for families without. */
#ifndef AF_KEYS_ROUTER_H
#define AF_KEYS_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

typedef struct af_router_keys {
    int64_t latent; /* width experts read and write, below the model's (moe_latent_size); 0 = it */
    int64_t shared_ffn; /* width of the expert that every token sees; 0 = none */
    int64_t identity;   /* identity experts, which come after the others (longcat_flash) */
    bool shared_gate;   /* its output is scaled by a sigmoid of its own */
    bool shared_mean;   /* what is added up is halved (cohere2_moe) */
    bool scale_input;   /* weights multiply what goes into an expert, not what comes out (llama4) */
    bool sigmoid;       /* scores are sigmoids of the logits, not a softmax */
    bool near;         /* a sparse mixer: shares among logits near the largest; eps says how near */
    bool bias;         /* the router's linear has a bias */
    bool by_logit;     /* experts are chosen by their logits, sigmoids are weights alone */
    bool choice_bias;  /* e_score_correction_bias is added for the choice only */
    bool expert_scale; /* the weight of each expert has a factor of its own */
    bool expert_bias;  /* gate_up and down of the experts have biases */
    double eps;        /* added to the sum that weights are divided by */
    double scale;      /* routed_scaling_factor; 0 = 1 */
    double softcap;    /* of the logits; 0 = none */
    double clamp;      /* limit of the clamped gated unit; 0 = the activation of the MLP */
    /* above 1: only experts of the best `groups_used` groups are chosen, whose score is the sum of
     * their `group_best` best experts */
    int64_t groups, groups_used, group_best;
} af_router_keys;
#endif
