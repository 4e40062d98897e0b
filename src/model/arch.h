/* arch.h - what a decoder looks like: the table of architectures, and the full description of one
 * model (every tensor with its shape, every layer with its switches) made from a row and a config.
 *
 * A family is a row of switches plus the llama name map; nothing here allocates weights. Sizes come
 * from a file and are checked before anything is built on them. */
#ifndef AF_ARCH_H
#define AF_ARCH_H

#include "afinar/graph.h"
#include "base/arena.h"
#include "format/config/hf_config.h"
#include "model/rope_table.h"

/* What a tensor is for. Layer slots come first. */
typedef enum af_slot {
    AF_SLOT_ATTN_NORM,      /* before attention */
    AF_SLOT_POST_ATTN_NORM, /* on attention's output, before the residual add */
    AF_SLOT_MLP_NORM,
    AF_SLOT_POST_MLP_NORM,
    AF_SLOT_Q,
    AF_SLOT_K,
    AF_SLOT_V,
    AF_SLOT_QKV, /* fused on disk */
    AF_SLOT_O,
    AF_SLOT_Q_BIAS,
    AF_SLOT_K_BIAS,
    AF_SLOT_V_BIAS,
    AF_SLOT_O_BIAS,
    AF_SLOT_Q_NORM,
    AF_SLOT_K_NORM,
    AF_SLOT_GATE,
    AF_SLOT_UP,
    AF_SLOT_GATE_UP, /* fused on disk */
    AF_SLOT_DOWN,
    AF_SLOT_GATE_BIAS,
    AF_SLOT_UP_BIAS,
    AF_SLOT_DOWN_BIAS,
    AF_SLOT_ROUTER,
    AF_SLOT_EXPERTS_GATE_UP, /* [X][2F][D]: gate rows, then up rows, of each expert */
    AF_SLOT_EXPERTS_DOWN,    /* [X][D][F] */
    AF_SLOT_LAYER_COUNT,
    AF_SLOT_EMBED = AF_SLOT_LAYER_COUNT,
    AF_SLOT_FINAL_NORM,
    AF_SLOT_HEAD, /* absent when tied */
    AF_SLOT_COUNT
} af_slot;

/* Which projections of attention have biases. */
typedef enum af_bias_rule {
    AF_BIAS_NEVER,
    AF_BIAS_CONFIG, /* attention_bias: q, k, v and o */
    AF_BIAS_QKV,    /* q, k and v, always */
} af_bias_rule;

/* One row of the table. */
typedef struct af_arch {
    const char *model_type; /* config.json */
    const char *gguf;       /* general.architecture */
    bool pre_norm;          /* input norms (olmo2 has none) */
    bool post_norm;         /* norms on the outputs of attention and mlp */
    bool norm_plus_one;     /* weights are stored as w, used as 1 + w */
    af_bias_rule bias;
    bool fused;           /* qkv_proj and gate_up_proj are single tensors on disk */
    bool qk_norm;         /* on q and k, before the rotation */
    bool qk_norm_row;     /* over the whole row instead of per head */
    bool scale_embedding; /* times sqrt(hidden) */
    bool attn_cap;        /* attn_logit_softcapping is applied */
    bool logit_cap;       /* final_logit_softcapping is applied */
    bool query_scalar;    /* query_pre_attn_scalar sets the scale of the scores */
    bool multipliers;     /* granite's four */
    bool moe;
    bool gguf_permuted; /* q and k rows are interleaved in GGUF */
    bool gguf_norm_one; /* norms are stored as 1 + w in GGUF */
} af_arch;

/* A linear module, as adapters name it. */
typedef enum af_group {
    AF_GROUP_QKV,
    AF_GROUP_O,
    AF_GROUP_GATE_UP,
    AF_GROUP_DOWN,
    AF_GROUP_LAYER_COUNT,
    AF_GROUP_HEAD = AF_GROUP_LAYER_COUNT,
    AF_GROUP_EMBED,
} af_group;

typedef struct af_module_spec {
    const char *path; /* "model.layers.0.self_attn.q_proj" */
    int layer;        /* -1 outside the layers */
    af_group group;
    int piece;             /* which piece of the group's linear */
    int64_t out_from, out; /* its output columns inside the group */
    int64_t in;
    int weight, bias; /* indexes of tensors; bias -1 = none */
} af_module_spec;

typedef struct af_tensor_spec {
    const char *name; /* Hugging Face name; of expert tensors: the fused one */
    const char *gguf;
    af_slot slot;
    int layer; /* -1 outside the layers */
    int ndim;
    int64_t dim[3];
    int module;        /* which module's weight this is, or -1 */
    int64_t row_heads; /* q and k: heads whose rows GGUF interleaves; else 0 */
} af_tensor_spec;

typedef struct af_layer_spec {
    int tensor[AF_SLOT_LAYER_COUNT]; /* indexes, -1 = absent */
    int module[AF_GROUP_LAYER_COUNT][AF_LINEAR_PIECES];
    int pieces[AF_GROUP_LAYER_COUNT];
    int window; /* 0 = none */
    int rope;   /* which rope set, -1 = none */
    bool moe;
} af_layer_spec;

typedef struct af_model_spec {
    const af_arch *arch;
    int64_t vocab, width, ffn, expert_ffn; /* V D F, and F of an expert */
    int layers, heads, kv_heads, head_dim, rotary_dim;
    int rope_dim; /* what the exponents of the frequencies are shares of: rotary_dim, or 1 less */
    int experts, experts_used;
    int64_t padding_row; /* embeddings[this] gets no gradient; -1 = none */
    bool norm_topk, tied;
    af_act act;
    double eps, attn_scale, attn_softcap, logit_softcap;
    double embed_scale, residual_scale, logit_scale; /* 1 = none */
    af_rope_config rope[2];                          /* of full layers, of sliding layers */
    int ropes;
    bool rope_by_length;   /* one of them changes with the length of the batch */
    int64_t max_positions; /* the config's context length; see af_spec_context */
    const char *inner; /* what "model." is called among the modules of the whole model */

    int embed, final_norm, head; /* tensor indexes; head = embed when tied */
    int embed_module, head_module;
    af_layer_spec *layer; /* [layers] */
    af_tensor_spec *tensor;
    int tensors;
    af_module_spec *module;
    int modules;
    int64_t params; /* elements of all tensors */
    af_arena arena; /* owns the lists; rope factors are borrowed from the config */
} af_model_spec;

/* The row for a model_type; NULL when there is none. */
const af_arch *af_arch_find(const char *model_type);

/* Describes the model of a config, which must outlive the result. An unknown model_type whose keys
 * fit llama is taken as llama with a warning. */
AF_CHECKED af_status af_model_spec_init(af_model_spec *out, const af_hf_config *c, af_error *err);
void af_model_spec_clear(af_model_spec *s);
/* Tokens the model was made for, what its ropes were stretched to included; 0 = not known. */
int64_t af_spec_context(const af_model_spec *s);

/* "model.norm.weight" as the whole model calls it, which PEFT does too. */
void af_spec_whole_name(const af_model_spec *s, const char *name, char *out, size_t size);

/* Index by Hugging Face name; -1 when the model has no such tensor. */
int af_model_spec_tensor(const af_model_spec *s, const char *name);

/* How tensor i lies on disk in a Hugging Face folder: `count` tensors (1, or 1 to 2 an expert),
 * piece p being `dim` at element offset `from` of ours. Name goes to a caller's buffer. */
int af_disk_count(const af_model_spec *s, int tensor);
void af_disk_piece(const af_model_spec *s, int tensor, int p, char *name, size_t size,
                   int64_t dim[2], int *ndim, int64_t *from);
#endif
