/* hf_config_check.h - between the two readers of af_hf_config (JSON, GGUF): families and the last
 * checks. */
#ifndef AF_HF_CONFIG_CHECK_H
#define AF_HF_CONFIG_CHECK_H

#include "format/config/hf_config.h"

/* How a family decides which layers slide when layer_types is absent. */
typedef enum af_sliding_rule {
    AF_SLIDING_NEVER,
    AF_SLIDING_ALL,      /* wherever sliding_window is set (mistral, phi3) */
    AF_SLIDING_SWITCHED, /* all, but only with use_sliding_window (qwen3_moe) */
    /* from here on layer_types counts where it is there; the others never look at it */
    AF_SLIDING_UPPER,     /* from max_window_layers on, with use_sliding_window (qwen2, qwen3) */
    AF_SLIDING_ABOVE,     /* from max_window_layers on, wherever sliding_window is set (dots1) */
    AF_SLIDING_BUT_FIRST, /* every pattern-th layer is full, beginning with the first (cwm) */
    AF_SLIDING_PATTERN,   /* every pattern-th layer is full (gemma2, gemma3) */
    AF_SLIDING_LISTED,    /* only by layer_types */
    AF_SLIDING_ROPELESS,  /* the layers without rope, with use_sliding_window (smollm3) */
    AF_SLIDING_TURNING,   /* the layers with rope, and they see chunks (llama4) */
} af_sliding_rule;

struct af_config_source;

/* hidden_size, num_hidden_layers and so on: older files say what is not the default. */
typedef struct af_family_sizes {
    int hidden, layers, heads, kv_heads, ffn, vocab;
} af_family_sizes;

/* What transformers assumes when a key is absent. 0 = the key is needed, or off. */
typedef struct af_family {
    const char *model_type, *gguf; /* gguf: general.architecture, or NULL */
    const char *same;              /* the family whose blocks it has; NULL = its own */
    bool whole;                    /* a multimodal model whose text keys are those of the config */
    const af_family_sizes *inside; /* where a text_config leaves them out; NULL = needed */
    const char *act;
    double eps, theta, local_theta;
    int heads, kv_heads, head_dim, vocab, window, pattern;
    int ffn;         /* intermediate_size, of families without a dense MLP */
    bool ffn_listed; /* which may be one for each layer */
    /* what hidden_size, num_hidden_layers, num_attention_heads, max_position_embeddings and
     * intermediate_size are called; NULL = so */
    const char *words[5];
    const char *const (*alias)[2]; /* other keys with other names: see af_config_source */
    /* a list or a string with an entry per layer, whose length is their number; NULL = none */
    const char *kinds[2];
    int pad; /* pad_token_id + 1: the embedding of that token is not trained */
    af_sliding_rule sliding;
    bool tied;
    bool unsupported; /* its config can be read, and that is all */
    double query_scalar, attn_softcap, final_softcap, partial;
    bool own_experts;  /* its keys of experts have other names or defaults: .keys reads them all */
    bool state_layers; /* layer_types may name kinds with a state */
    /* Reads the keys only this family has, after all others; NULL = none. What is wrong is latched
     * in the source. */
    void (*keys)(struct af_config_source *s, af_hf_config *c);
    /* The same from GGUF metadata, whose keys start with `arch`. */
    void (*gguf_keys)(const af_gguf *g, const char *arch, af_hf_config *c);
} af_family;

/* The row of a model_type; an unknown one gets the row of llama. Static storage. */
const af_family *af_family_find(const char *model_type);
const af_family *af_family_by_gguf(const char *architecture); /* NULL when unknown */
bool af_family_known(const char *model_type);
/* "; did you mean 'qwen2'? Supported: llama, mistral, ..." for an unknown one. Returns buf. */
enum { AF_FAMILY_NAMES = 640 };
const char *af_family_names(const char *model_type, bool gguf, char buf[AF_FAMILY_NAMES]);

/* Fills layer_types unless `explicit_types`, and judges the whole. `name` is for messages. */
AF_CHECKED af_status af_hf_config_finish(af_hf_config *c, const af_family *f, bool explicit_types,
                                         const char *name, af_error *err);
#endif
