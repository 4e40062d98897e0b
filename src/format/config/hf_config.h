/* hf_config.h - what a model declares about itself: config.json in its v4 and v5 spellings, or the
 * metadata of a GGUF file, in one struct; and where a MODEL name leads.
 *
 * Reading checks bounds (one clear error each) but does not judge whether this build can run the
 * model: that is the architecture table's business. */
#ifndef AF_HF_CONFIG_H
#define AF_HF_CONFIG_H

#include "base/arena.h"
#include "format/config/keys_latent.h"
#include "format/config/keys_layers.h"
#include "format/config/keys_mup.h"
#include "format/config/keys_router.h"
#include "format/config/keys_state.h"
#include "format/weights/gguf.h"

enum {
    AF_CONFIG_LAYERS_MAX = 4096,
    AF_CONFIG_HEADS_MAX = 1 << 16,
    AF_CONFIG_WIDTH_MAX = 1 << 24, /* hidden, ffn and head sizes */
    AF_CONFIG_VOCAB_MAX = 1 << 26,
    AF_CONFIG_EXPERTS_MAX = 1 << 14,
    AF_CONFIG_EOS_MAX = 64,
    AF_CONFIG_ROPE_FACTORS_MAX = 1 << 16,
};
/* Layers of the two sizes of Baichuan that llama.cpp has: with a rotation, with ALiBi. */
enum { AF_BAICHUAN_ROPE_LAYERS = 32, AF_BAICHUAN_ALIBI_LAYERS = 40 };
#define AF_CONFIG_BYTES_MAX (UINT64_C(16) << 20) /* of a config.json */

typedef enum af_rope_type {
    AF_ROPE_DEFAULT,
    AF_ROPE_LINEAR,
    AF_ROPE_DYNAMIC,
    AF_ROPE_YARN,
    AF_ROPE_LONGROPE,
    AF_ROPE_LLAMA3,
    AF_ROPE_PROPORTIONAL,
} af_rope_type;

/* Absent numbers are 0 unless noted otherwise. */
typedef struct af_rope_config {
    af_rope_type type;
    double theta;
    double factor; /* 1 when absent */
    double low_freq_factor, high_freq_factor;
    int64_t original_max_position_embeddings; /* 0 = absent */
    double attention_factor;                  /* 0 = absent: computed from factor */
    double beta_fast, beta_slow;              /* 32 and 1 when absent */
    double mscale, mscale_all_dim;            /* 0 = absent */
    bool truncate;                            /* true when absent */
    bool reverse;                             /* turns the other way (nanochat) */
    double partial_rotary_factor;             /* 1 when absent */
    const double *short_factor, *long_factor; /* longrope, and rope_freqs.weight as `freq_factor` */
    int short_count, long_count;
    const double *freq_factor; /* GGUF rope_freqs.weight: frequencies are divided by it; or NULL */
    int freq_count;
} af_rope_config;

/* The kinds from AF_LAYER_LINEAR on have a state instead of keys and values. */
typedef enum af_layer_type {
    AF_LAYER_FULL,
    AF_LAYER_SLIDING,
    AF_LAYER_LINEAR, /* linear_attention: gated delta net */
    AF_LAYER_CONV,
    AF_LAYER_MAMBA,
    AF_LAYER_MLP, /* layers of one half alone: nemotron_h */
    AF_LAYER_EXPERTS
} af_layer_type;

typedef enum af_quant_method {
    AF_QUANT_NONE,
    AF_QUANT_BNB_4BIT,
    AF_QUANT_BNB_8BIT,
    AF_QUANT_FP8, /* from here on: model/coded/coded_weight.h */
    AF_QUANT_MXFP4,
    AF_QUANT_COMPRESSED, /* compressed-tensors */
    AF_QUANT_MODELOPT,
    AF_QUANT_GPTQ,
    AF_QUANT_AWQ,
    AF_QUANT_BITNET, /* weights of -1, 0 and 1 times a scale, inputs of linears in 8 bits */
    AF_QUANT_MLX,
} af_quant_method;

static inline bool af_quant_is_coded(af_quant_method m) { return m >= AF_QUANT_FP8; }
static inline bool af_quant_is_bnb(af_quant_method m)
{
    return m == AF_QUANT_BNB_4BIT || m == AF_QUANT_BNB_8BIT;
}

typedef struct af_quant_config {
    af_quant_method method;
    af_dtype type; /* AF_DTYPE_NF4 or AF_DTYPE_FP4 for 4 bit */
    bool double_quant;
    const char *const *skip_modules; /* module names that stay as they are */
    int skip_count;
    int bits;           /* GPTQ, AWQ */
    int64_t block[2];   /* FP8: rows and columns of a block; 0 = by the number of scales. MLX: 1
                         * and a group of columns (af_quant_group) */
    bool zeros_as_used; /* GPTQ: the zeros are stored as they are (gptq_v2) */
    bool online;        /* BitNet: plain weights are stored, and rounded when they are used */
    bool trained;       /* such weights are wanted as they are stored */
} af_quant_config;

typedef struct af_hf_config {
    const char *model_type;   /* "llama", "qwen2", ... never NULL */
    const char *architecture; /* architectures[0], or "" */
    int64_t labels;           /* of a ...ForSequenceClassification; 0 = a language model */
    int64_t vocab_size, hidden_size, intermediate_size, num_hidden_layers;
    int64_t num_attention_heads, num_key_value_heads, head_dim;
    const char *hidden_act; /* "silu", "gelu_pytorch_tanh", ... */
    int64_t max_position_embeddings;
    double rms_norm_eps;  /* also layer_norm_eps / layer_norm_epsilon */
    double post_norm_eps; /* of norms on the outputs of blocks; 0 = the same (muse_glimmer) */
    double initializer_range;
    bool tie_word_embeddings, attention_bias, mlp_bias;
    bool attention_out_bias; /* attention_bias when absent */
    bool qk_norm;            /* glm4_moe, cohere: q and k are normed */

    int64_t bos_token_id, pad_token_id; /* -1 = none */
    int64_t padding_row; /* pad_token_id of config.json itself: its embedding learns nothing */
    int64_t eos_token_id[AF_CONFIG_EOS_MAX];
    int eos_count;

    bool has_dtype;
    af_dtype dtype; /* of the stored weights; f32 when absent */

    af_rope_config rope; /* full-attention layers, and all layers where there is one set */
    bool has_local_rope; /* a second set for sliding layers (gemma3) */
    af_rope_config local_rope;

    int64_t sliding_window; /* 0 = off */
    bool use_sliding_window;
    int64_t max_window_layers, sliding_window_pattern;
    const af_layer_type *layer_types; /* [num_hidden_layers], always filled */
    const bool *no_rope;              /* [num_hidden_layers] true = no rotary (smollm3), or NULL */

    double query_pre_attn_scalar;                           /* 0 = absent: head_dim */
    double attn_logit_softcapping, final_logit_softcapping; /* 0 = off */

    int64_t num_experts, num_experts_per_tok, moe_intermediate_size, decoder_sparse_step;
    bool norm_topk_prob, output_router_logits;
    double router_aux_loss_coef;
    const int64_t *mlp_only_layers;
    int mlp_only_count;

    /* granite; all 1 when absent (attention_multiplier: 0 = absent, 1/sqrt(head_dim)) */
    double embedding_multiplier, attention_multiplier, residual_multiplier, logits_scaling;

    af_state_keys state; /* keys of some families only: see families/ */
    af_latent_keys latent;
    af_layer_keys per_layer;
    af_altup_keys altup;
    af_router_keys router;
    af_mup_keys mup;
    double logit_scale; /* cohere; 0 = absent */
    double qkv_clip;    /* clip_qkv; 0 = none */
    double value_scale; /* attention_value_scale; of families with latent.v_dim */
    double alibi;       /* ALiBi: the exponent its slopes go down to; 0 = none */
    int64_t dense_ffn;  /* of layers without experts, where it is not intermediate_size */
    /* minimax: factors of the residual and of what is added, after full attention, after layers
     * with a state, after MLPs; 0 = 1 */
    double residual_keep[3], residual_add[3];
    bool rms_norm;        /* RMSNorms instead of LayerNorms (cohere2_moe) */
    bool rope_dense;      /* layers without experts have rope in any case (cohere2_moe) */
    bool no_post_norm;    /* use_post_norm (hyperclovax), use_sandwich_norm (lfm3) is false */
    bool head_normed;     /* rows of the head have length 1 (Baichuan 2) */
    bool residual_normed; /* apply_residual_connection_post_layernorm (bloom) */
    bool norm_after;      /* do_layer_norm_before is false (opt) */
    bool no_final_norm;
    bool norm_bare;               /* layer_norm_elementwise_affine is false (opt) */
    int64_t embed_width;          /* word_embed_proj_dim (opt); 0 = hidden_size */
    bool attn_gate_heads;         /* gates of attention are one per head (laguna, lfm3) */
    const int64_t *layer_heads;   /* num_attention_heads_per_layer (laguna), or NULL */
    bool head_bias;               /* lm_head_bias (phimoe) */
    bool two_norms;               /* attention and MLP have a norm each (falcon) */
    double query_scaling_beta;    /* llama_4_scaling_beta; 0 = none */
    int64_t query_scaling_length; /* floor_scale (llama4) */
    bool use_parallel_residual;
    bool rope_sliding_only; /* full layers have no rotary embedding */

    /* The numbers that layers have in the folder, where layers between them see images only, and
     * the rows of the embedding beyond vocab_size (mllama); NULL, 0 */
    const int64_t *folder_layers;
    int embed_more;

    af_quant_config quant;
    const char *transformers_version; /* "" when absent */
    bool from_gguf;
    bool nested;        /* this is the text part of a multimodal model */
    const char *whole;  /* the model_type of that; "" when it is not nested */
    const char *gguf;   /* its architecture in GGUF; NULL = that of the text model alone */
    bool tie_open;      /* its config does not say whether the head is tied: by what is stored */
    struct json_t *raw; /* the whole config.json, for carrying through; NULL from GGUF */
    af_arena arena;     /* owns everything above */
} af_hf_config;

/* From a config.json's bytes. `name` is for messages. On success *out is to be cleared with
 * af_hf_config_clear. A multimodal config gives its text_config. */
AF_CHECKED af_status af_hf_config_parse(af_hf_config *out, const char *text, uint64_t size,
                                        const char *name, af_error *err);
/* From DIR/config.json, and the ids of DIR/generation_config.json where it has them. */
AF_CHECKED af_status af_hf_config_read(af_hf_config *out, const char *dir, af_error *err);
/* From the metadata of a GGUF file. */
AF_CHECKED af_status af_hf_config_from_gguf(af_hf_config *out, const af_gguf *g, af_error *err);
void af_hf_config_clear(af_hf_config *c);
/* Keys of a multimodal config.json that may have the keys of its text model under them; in the
 * first they are under one of the others. Ends with NULL. */
extern const char *const af_config_parts[];
/* The object of a multimodal config.json that has the keys of its text model, or NULL. Borrowed. */
struct json_t *af_config_text(const struct json_t *root);
/* The same, or the config itself where those keys are its own. */
struct json_t *af_config_own(struct json_t *root);
const char *af_rope_type_name(af_rope_type t); /* "llama3" */
double af_yarn_scale(double factor);           /* 1 + ln(factor)/10: of cos and sin, by the paper */

typedef struct af_generation_config {
    int64_t bos_token_id, pad_token_id; /* -1 = absent */
    int64_t eos_token_id[AF_CONFIG_EOS_MAX];
    int eos_count; /* 0 = absent */
    bool do_sample;
    double temperature, top_p, repetition_penalty; /* 1 when absent */
    double min_p;                                  /* 0 when absent */
    int64_t top_k;                                 /* 0 when absent */
} af_generation_config;

AF_CHECKED af_status af_generation_config_parse(af_generation_config *out, const char *text,
                                                uint64_t size, const char *name, af_error *err);
/* DIR/generation_config.json; *found says whether it is there. */
AF_CHECKED af_status af_generation_config_read(af_generation_config *out, bool *found,
                                               const char *dir, af_error *err);

/* MLX: columns that share a scale in this module; some may have sizes of their own. */
int64_t af_quant_group(const af_hf_config *c, const char *module);

/* Where MODEL leads: a folder, a .gguf file, or org/name[@revision] in the local Hugging Face cache
 * (HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub); what is not there is downloaded in a
 * program that asked for it (af_hub_fetch_set). free() the result. */
AF_CHECKED af_status af_model_resolve(char **path, const char *model, af_error *err);
/* The same for who needs all of a model: refuses a single file of a folder. */
AF_CHECKED af_status af_model_resolve_whole(char **path, const char *model, af_error *err);
/* Of a folder without this file: an error that names a folder inside that has one (of a run that
 * left checkpoints alone), AF_OK when there is none. */
AF_CHECKED af_status af_folder_inside(const char *dir, const char *file, af_error *err);
/* In one of the forms that are read: tokenizer.json, tokenizer.model, or files of tokenizer_make.h.
 */
bool af_folder_has_tokenizer(const char *dir);
/* The files that a tokenizer can be made of, ended by NULL; next to them, tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json count. */
extern const char *const af_tokenizer_sources[];
/* Whether the folder has what it takes, and neither tokenizer.json nor a tokenizer.model of
 * SentencePiece. */
bool af_tokenizer_can_make(const char *dir);
/* A resolved path's config: config.json of a folder, metadata of a .gguf file. */
AF_CHECKED af_status af_model_config(af_hf_config *out, const char *path, af_error *err);
#endif
