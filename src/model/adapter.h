/* adapter.h - low-rank adapters in PEFT's folders: which module has which rank and scale, the
 * values on the host, reading, creating, mixing and writing them.
 *
 * The graph's side (how parts of a fused projection share tensors) is builder.h. */
#ifndef AF_ADAPTER_H
#define AF_ADAPTER_H

#include "format/weights/weights.h"
#include "model/arch/arch.h"

enum { AF_ADAPTER_RANK_MAX = 1 << 16, AF_ADAPTER_PATTERNS_MAX = 1024, AF_OFT_BLOCK_MAX = 8192 };
#define AF_ADAPTER_CONFIG_MAX (UINT64_C(4) << 20) /* bytes of an adapter_config.json */

typedef struct af_loader af_loader;
typedef struct af_model_leaves af_model_leaves;

typedef struct af_adapter_pattern {
    const char *key; /* matched as (.*\.)?(KEY)$ */
    double value;
} af_adapter_pattern;

/* The tables that can have rows of their own (trainable_token_indices). */
enum { AF_TOKENS_EMBED, AF_TOKENS_HEAD, AF_TOKEN_TABLES, AF_TOKENS_MAX = 1 << 16 };

/* Rows of the embedding or the head that are trained, while the others are frozen. */
typedef struct af_token_rows {
    const int64_t *index; /* in the order of the values, each once */
    int count;            /* 0 = none */
} af_token_rows;

/* Types of PEFT that are read as LoRA (peft/adapter_types.c), that become LoRA where that is needed
 * (peft/adapter_pairs.c), and that can be merged alone (peft/adapter_multiply.c). */
typedef enum af_peft_type {
    AF_PEFT_LORA,
    AF_PEFT_ADALORA,
    AF_PEFT_VERA,
    AF_PEFT_LOHA,
    AF_PEFT_LOKR,
    AF_PEFT_MISS,
    AF_PEFT_BONE,
    AF_PEFT_IA3,
    AF_PEFT_OFT,
    AF_PEFT_TYPES
} af_peft_type;

/* How OFT makes a rotation from what is stored (peft/adapter_multiply.c). */
typedef struct af_oft {
    bool exact, constrained; /* not use_cayley_neumann; coft */
    bool old_series;         /* of PEFT before 0.18 */
    bool share;              /* block_share: one rotation for all blocks */
    int terms;               /* num_cayley_neumann_terms */
    int64_t block, blocks;   /* oft_block_size, r: one of them is 0 */
    double eps;
} af_oft;

/* adapter_config.json, or what a run file asks for. Strings are borrowed by af_adapter_new. */
typedef struct af_adapter_config {
    int r;
    double alpha, dropout;
    bool rslora, dora;
    bool lora_bias;    /* B has a bias */
    bool mlx, gguf;    /* of mlx-lm, of llama.cpp; false once it is read */
    af_peft_type type; /* LoRA once it is read; of one to be merged, see af_adapter_expand */
    af_oft oft;
    const char *bias;          /* "all", "lora_only": trained biases of the base; NULL = none */
    bool ensure_tying;         /* modules_to_save has one of embedding and head, the file both */
    bool fan_in_fan_out;       /* of a model whose matrices lie turned: for PEFT alone */
    const char *target_regex;  /* a full-match regex, or "all-linear"; NULL = the list */
    const char *const *target; /* entries: equal to the path, or its end after a '.' */
    int target_count;
    const char *const *param; /* target_parameters: parameters of experts */
    int param_count;
    const char *exclude_regex;
    const char *const *exclude;
    int exclude_count;
    const char *const *modules_to_save; /* "lm_head", "embed_tokens" */
    int save_count;
    af_token_rows tokens[AF_TOKEN_TABLES];    /* trainable_token_indices */
    const char *table_names[AF_TOKEN_TABLES]; /* of the embedding and the head; NULL = the usual */
    const int64_t *layers;                    /* layers_to_transform; NULL = all */
    int layer_count;
    const char *const *layer_list; /* layers_pattern */
    int layer_lists;
    const af_adapter_pattern *rank_pattern, *alpha_pattern;
    int rank_patterns, alpha_patterns;
    const char *base_model;   /* base_model_name_or_path[@revision], or NULL */
    bool classifies;          /* task_type SEQ_CLS: `score` is among the saved modules */
    const char *labels;       /* afinar_labels as JSON text: names and kind of problem; or NULL */
    const char *init_weights; /* "true" (or NULL), "gaussian", "xavier"; a run's: adapter_start.h */
} af_adapter_config;

typedef struct af_adapter_pair af_adapter_pair;

/* One module's adapter; rank 0 = it has none. One that multiplies has no A and B, nor has one with
 * `pair`, whose rank is that of the config. */
typedef struct af_adapter_module {
    int rank;
    double alpha;
    float scale;
    float *a;         /* [rank][in], of experts [copies][rank][in] */
    float *b;         /* [out][rank], of experts [copies][out][rank] */
    float *magnitude; /* [out], DoRA */
    float *bias;      /* [out], lora_bias */
    float *factor;    /* [out], IA3 */
    float *rotation;  /* [in / block][block][block]: OFT, and IA3 of inputs */
    float *triangle;  /* [triangles][block (block - 1) / 2]: OFT that is trained; rank is 1 */
    int64_t block, triangles;
    af_adapter_pair *pair; /* LoHa, LoKr until af_adapter_expand */
    float *a0, *b0; /* as a and b: the start by which the base is reduced (PiSSA), else NULL */
} af_adapter_module;

/* Of a module outside the text model. */
typedef struct af_adapter_other {
    const char *path; /* as PEFT names it; in the text model: as the text model alone has it */
    int64_t out, in;
    af_adapter_module low;
} af_adapter_other;

/* Where embedding and head come from. */
typedef enum af_adapter_tables {
    AF_TABLES_OF_BASE,
    AF_TABLES_OWN,        /* the folder: the spec has its vocabulary, not the base's */
    AF_TABLES_OWN_UNTIED, /* likewise; the base ties them, so that one may stand for both */
} af_adapter_tables;

typedef struct af_adapter {
    af_adapter_config config; /* strings owned by the arena */
    const af_model_spec *spec;
    af_adapter_module *module;             /* by spec module */
    float **saved;                         /* by spec tensor: modules_to_save, else NULL */
    af_token_rows tokens[AF_TOKEN_TABLES]; /* one of a tied model: the embedding's is the head's */
    float *token_values[AF_TOKEN_TABLES];  /* [af_adapter_token_columns][width] */
    af_loader *grown; /* borrowed: the vocabulary is not the stored one, and written from here */
    af_adapter_tables tables;
    bool one_by_one;  /* read from a folder with a module for every expert */
    bool as_stored;   /* OFT that is trained: modules have triangles, not what becomes of them */
    bool other_forms; /* it changes modules outside the text model in other ways than `other` */
    af_adapter_other *other;
    int others;
    af_arena arena;
} af_adapter;

/* Values of A and B of a module with this rank. */
static inline int64_t af_adapter_a_count(const af_module_spec *m, int rank)
{
    return m->copies * rank * m->in;
}
static inline int64_t af_adapter_b_count(const af_module_spec *m, int rank)
{
    return m->copies * m->out * rank;
}

/* Ranks and scales only, no values: what a plan needs. */
AF_CHECKED af_status af_adapter_outline(af_adapter **out, const af_adapter_config *c,
                                        const af_model_spec *s, af_error *err);
/* A fresh adapter for training: A kaiming-uniform (a = sqrt 5) from Philox, B zeros. DoRA
 * magnitudes and modules_to_save come from the base. A target that matches no module is an error.
 */
AF_CHECKED af_status af_adapter_new(af_adapter **out, const af_adapter_config *c,
                                    const af_model_spec *s, af_loader *base, uint64_t seed,
                                    af_error *err);
/* The values of af_adapter_new, for modules that are laid out; the same with any number of threads.
 */
AF_CHECKED af_status af_adapter_fill(af_adapter *a, af_loader *base, uint64_t seed, af_error *err);
/* From a folder of PEFT or mlx-lm, or a GGUF file of llama.cpp. */
AF_CHECKED af_status af_adapter_read(af_adapter **out, const af_model_spec *s, const char *dir,
                                     af_error *err);
/* To be trained: also OFT. */
AF_CHECKED af_status af_adapter_read_to_train(af_adapter **out, const af_model_spec *s,
                                              const char *dir, af_error *err);
/* The tensors of a PEFT folder. */
AF_CHECKED af_status af_adapter_open_values(af_weights **out, const char *dir, af_error *err);
/* Rows of the folder's `score` head, 0 when it has none. */
AF_CHECKED af_status af_adapter_labels(int64_t *out, const char *dir, af_error *err);
/* Rows of the embedding or head that the folder has whole, 0 when it has neither. PEFT writes them
 * when the vocabulary was changed before training. */
AF_CHECKED af_status af_adapter_vocab(int64_t *out, const char *dir, af_error *err);
/* As af_adapter_read, for merging alone: also types that multiply a weight, and LoHa and LoKr as
 * they are stored. Embedding and head of the folder are read also where low-rank parts lie over
 * them. */
AF_CHECKED af_status af_adapter_read_to_merge(af_adapter **out, const af_model_spec *s,
                                              const char *dir, af_adapter_tables tables,
                                              af_error *err);
/* Makes LoHa and LoKr LoRA, and leaves others as they are. An error where A and B would take more
 * than `most` bytes, or with 0 than the free memory. `dir` is for messages. */
AF_CHECKED af_status af_adapter_expand(af_adapter *a, const char *dir, uint64_t most,
                                       af_error *err);
/* The table of trained rows that tensor i of the spec has, or -1. */
int af_adapter_token_table(const af_adapter *a, int tensor);
/* Columns that mark trained rows in a table of the graph, their number rounded up; 0 = none. */
int64_t af_adapter_token_columns(const af_adapter *a, int tensor);
/* An adapter's whole embedding or head among its tensors: NULL when it has none. */
const af_stored *af_adapter_find_vocab(const af_weights *w, const af_model_spec *s,
                                       const af_tensor_spec *t);
/* sum of weight[i] * adapter i, as one adapter of the summed ranks (no DoRA). */
AF_CHECKED af_status af_adapter_mix(af_adapter **out, const af_adapter *const *in,
                                    const double *weight, int n, af_error *err);
/* Whether the folder's modules_to_save has embeddings or a head: a tied model must then be opened
 * with af_loader_opts.untie, as PEFT unties them. */
AF_CHECKED af_status af_adapter_unties(bool *out, const char *dir, af_error *err);
bool af_adapter_config_unties(const af_adapter_config *c);
/* Names both in modules_to_save where PEFT's ensure_weight_tying stored both. */
AF_CHECKED af_status af_adapter_save_tied(af_adapter_config *c, af_arena *arena,
                                          const af_weights *w, af_error *err);
/* Whether it has low-rank matrices for one of them. PEFT adds them to that one alone, also where
 * both are one tensor, so what they are merged into is no longer tied. */
AF_CHECKED af_status af_adapter_adapts_vocab(bool *out, const char *dir, af_error *err);
/* Whether it is one of mlx-lm on the embedding and not the head: of a tied model it is of both. */
AF_CHECKED af_status af_adapter_ties_vocab(bool *out, const char *dir, af_error *err);
void af_adapter_free(af_adapter *a); /* NULL is allowed */

/* Writes adapter_config.json and adapter_model.safetensors into a folder (made when absent). */
AF_CHECKED af_status af_adapter_write(const af_adapter *a, const char *dir, af_error *err);

/* Host values into the graph's tensors, and back. After prepare. */
AF_CHECKED af_status af_adapter_upload(const af_adapter *a, af_model_leaves *l, af_error *err);
AF_CHECKED af_status af_adapter_download(af_adapter *a, const af_model_leaves *l, af_error *err);
/* True where module m of the spec is a target of the config; no target at all is an error. */
AF_CHECKED af_status af_adapter_targets(const af_adapter_config *c, const af_model_spec *s,
                                        bool *target, af_error *err);
#endif
