/* builder.h - records a decoder: one builder for training, evaluation and generation.
 *
 * Leaves (weights or params) are declared once per graph; a forward can then be recorded as often
 * as needed over the same leaves (policy and reference of a preference loss, for example). Block i
 * of the graph is layer i, closing norm included. */
#ifndef AF_BUILDER_H
#define AF_BUILDER_H

#include "model/adapter.h"
#include "model/arch/arch.h"
#include "ops/fakequant/fake_float.h"
#include "ops/linear/row_adapter.h"

/* The adapter tensors of one module: A is rows [a_row, a_row + rank) of a [R][in], B is `out x
 * rank` values of b from element b_from. */
typedef struct af_adapter_leaf {
    af_tensor *a, *b;
    af_tensor *magnitude; /* DoRA, [out] */
    af_tensor *bias;      /* lora_bias, [out] */
    af_tensor *triangle;  /* OFT, [triangles][block (block - 1) / 2] */
    int64_t a_row, b_from;
} af_adapter_leaf;

/* Quantisation-aware training as torchao's fake quantizers do it: linears compute with rounded
 * weights (fake_weights.c), and with rounded inputs. */
typedef struct af_qat {
    af_qat_type type; /* of weights; AF_QAT_NONE = no such training */
    int64_t group;    /* int4: values with a scale and a minimum */
    bool inputs;      /* those too: beside int4 to 8 bits by token, else to the same type */
    bool embedding;
    bool switched; /* only while af_model_leaves.qat_on is 1, not 0 */
} af_qat;

typedef struct af_model_leaves {
    const af_model_spec *spec;
    const af_adapter *adapter; /* NULL = none */
    double dropout;            /* on its inputs */
    af_graph *graph;
    af_dtype compute;
    af_tensor **tensor;                 /* by spec tensor; borrowed from the graph */
    af_tensor *tokens[AF_TOKEN_TABLES]; /* trained rows [columns][width], or NULL: their table has
                                           as many columns more (adapter_tokens.c) */
    af_adapter_leaf *module;            /* by spec module; all NULL where there is no adapter */
    /* f32 [rotary_dim/2], weights to be written by af_model_write_rope */
    af_tensor *inv_freq[AF_ROPE_SETS];
    /* ALiBi, NULL = none: f32 [heads] and [heads][..] of alibi.h, written with inv_freq */
    af_tensor *alibi, *alibi_pick;
    af_tensor *decay;     /* f32 [heads], NULL = none: slopes of decay.h, written with inv_freq */
    af_tensor *sinusoids; /* f32 [positions][width], NULL = none: rope_table.h, with inv_freq */
    af_qat qat;
    af_tensor *qat_on;   /* f32 [1], an input where qat.switched, else NULL */
    af_tensor *qat_rows; /* i32 [1], an input where nvfp4 inputs share a scale: how many rows */
    int64_t rope_length; /* length inv_freq was last written for; 0 = never */
    af_arena arena;
} af_model_leaves;

typedef struct af_leaves_opts {
    af_dtype compute;          /* activations: f32 or bf16 */
    bool train_base;           /* every tensor of the model is a param (f32) */
    bool bf16_params;          /* those are bf16 */
    const bool *trained;       /* of those only these, by spec tensor; NULL = all */
    bool train_adapter;        /* adapter tensors and modules_to_save are params, else weights */
    const af_adapter *adapter; /* NULL = none; must outlive the leaves */
    double dropout;            /* on the adapter's inputs, in training */
    const af_dtype *dtype;     /* by spec tensor: the type of frozen ones; NULL = all `compute` */
    af_qat qat;
    const struct af_model_leaves *base; /* NULL, or: frozen tensors are those of these leaves */
    const char *prefix;                 /* put before tensor names (a teacher's, say); NULL = "" */
} af_leaves_opts;

/* Declares the leaves of a model. Nothing is read yet: loader.h fills them. */
AF_CHECKED af_status af_model_leaves_init(af_model_leaves *out, af_graph *g, const af_model_spec *s,
                                          const af_leaves_opts *o, af_error *err);
/* The same leaves in another graph on the host: all weights, adapter included, bound to what `from`
 * has. Its graph need not be prepared as long as this one is only planned. */
AF_CHECKED af_status af_model_leaves_borrow(af_model_leaves *out, af_graph *g,
                                            const af_model_leaves *from, af_error *err);
void af_model_leaves_clear(af_model_leaves *l);

/* Where the tokens of a forward come from. All i32. */
typedef struct af_batch_inputs {
    af_tensor *ids, *positions; /* [N] */
    af_tensor *bounds;          /* [S+1] */
    af_tensor *start, *pages;   /* [S], [S][M]: cached generation only */
    /* Answers that share a prompt: attention has rows of its own, `attention_rows` of them, which
     * bounds count. spread [that][2] says which row each one copies, gather [N][2] where the copies
     * of a row are; taken [N][2] and given [that][2] are the first copies alone. NULL = none. */
    af_tensor *spread, *gather, *taken, *given;
} af_batch_inputs;
/* Declares ids, positions and bounds for N rows and at most S sequences. Bounds may be longer than
 * S+1 (never exactly N long, which would tie it to the live rows): unused entries repeat the last
 * bound. */
af_batch_inputs af_batch_inputs_new(af_graph *g, int64_t rows, int64_t seqs);
/* Adds spread, gather, taken and given; attention_rows is not N. */
void af_batch_inputs_share(af_batch_inputs *in, af_graph *g, int64_t rows, int64_t attention_rows);

/* What a layer keeps between the runs of a generation; each mixer declares its own. */
typedef struct af_layer_cache {
    af_tensor *kv;    /* attention: [pages][page][2*K*E] */
    af_tensor *conv;  /* state layers: the last inputs of the convolution */
    af_tensor *state; /* the recurrent state */
} af_layer_cache;

/* Sequences with a state each; pages of so many positions for keys and values
 * (af_attention_cached).
 */
typedef struct af_cache_sizes {
    int64_t seqs, pages, page;
} af_cache_sizes;

/* Adapters chosen per row: of every layer and group, layer * AF_GROUP_LAYER_COUNT + group; a NULL
 * where no adapter has any. */
typedef struct af_layer_adapters {
    af_row_choice rows;
    af_tensor *column; /* i32 [N], which + 1 or 0; NULL where no group has columns */
    const af_row_adapter *group;
} af_layer_adapters;

/* Receives the input x [N][I] of each group of linears while it is recorded, except of experts. */
typedef void af_forward_tap(void *user, int layer, af_group group, af_tensor *x);

/* Dropout on what attention and MLP add to the residual (resid_pdrop of Phi-3); 0 = none. */
typedef struct af_branch_dropout {
    double attention, mlp;
    bool sum; /* of layers that add both at once, one mask for the sum */
} af_branch_dropout;

typedef struct af_forward_opts {
    bool no_adapter; /* as if there were none (a reference policy) */
    af_branch_dropout residual_dropout;
    double embed_dropout;        /* on the embeddings (embd_pdrop of gpt2) */
    double neftune;              /* alpha of the noise on embeddings; 0 = none */
    const af_layer_cache *cache; /* [layers] (af_model_caches): cached generation; NULL = none */
    af_forward_tap *tap;         /* NULL = none */
    void *tap_user;
    const af_layer_adapters *adapters; /* besides the leaves' own; NULL = none */
    const bool
        *fp8; /* by layer * AF_GROUP_LAYER_COUNT + group: frozen weights in FP8; NULL = none */
    struct af_router_loss *router; /* ops/moe/router_loss.h; NULL = no auxiliary loss */
} af_forward_opts;
/* Records the layers: hidden states after the final norm, [N][D]. `o` may be NULL. */
af_tensor *af_model_forward(af_model_leaves *l, const af_batch_inputs *in,
                            const af_forward_opts *o);
/* [rows of h][V], in the compute type, scaled and capped. */
af_tensor *af_model_logits(af_model_leaves *l, af_tensor *h, const af_forward_opts *o);
/* Cross-entropy without holding the logits. labels i32 [N]; scale f32 [1] or NULL; rows may be
 * NULL (see af_head_opts). */
af_tensor *af_model_loss(af_model_leaves *l, af_tensor *h, af_tensor *labels, af_tensor *scale,
                         double smoothing, af_tensor **rows);
/* The same for a loss that is a function of the rows: AF_HEAD_STATS values per row, and gradients
 * by row_weight f32 [N], which is written between the two passes. */
af_tensor *af_model_row_losses(af_model_leaves *l, af_tensor *h, af_tensor *labels,
                               af_tensor *row_weight, af_tensor **rows);
/* Scores of a model that classifies, of every row: *scores f32 [N][labels]. Returns the sum of
 * `weight` [N][labels] times the scores, f32 [1]: what is written there after the forward pass is
 * the gradient by the scores. */
af_tensor *af_model_scores(af_model_leaves *l, af_tensor *h, af_tensor *weight, af_tensor **scores);
/* The states of all layers. */
AF_CHECKED af_status af_model_caches(af_model_leaves *l, af_layer_cache *cache,
                                     const af_cache_sizes *z, af_error *err);
/* Writes the rotary tables for batches of up to `length` positions, if they differ from the last
 * ones. After prepare, before the first run, and before every batch of a model whose rope depends
 * on the length. */
AF_CHECKED af_status af_model_write_rope(af_model_leaves *l, int64_t length, af_error *err);
#endif
