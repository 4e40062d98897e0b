/* arch.h - what a decoder looks like: the table of architectures, and the full description of one
 * model (every tensor with its shape, every layer with its switches) made from a row and a config.
 *
 * A family is a row of switches plus the names that differ from llama's; nothing here allocates
 * weights. Sizes come from a file and are checked before anything is built on them. */
#ifndef AF_ARCH_H
#define AF_ARCH_H

#include "afinar/graph.h"
#include "base/arena.h"
#include "format/config/hf_config.h"
#include "model/arch/rope_table.h"

/* What a tensor is for. Layer slots come first; a new kind of block adds its slots to its part. */
typedef enum af_slot {
    AF_SLOT_ATTN_NORM,      /* before attention or another mixer */
    AF_SLOT_POST_ATTN_NORM, /* on attention's output, before the residual add */
    AF_SLOT_MLP_NORM,
    AF_SLOT_POST_MLP_NORM,
    AF_SLOT_ATTN_NORM_DOWN, /* their gates: [R][D], [D][R] (axk2) */
    AF_SLOT_ATTN_NORM_UP,
    AF_SLOT_MLP_NORM_DOWN,
    AF_SLOT_MLP_NORM_UP,
    AF_SLOT_ATTN_NORM_BIAS, /* LayerNorm */
    AF_SLOT_MLP_NORM_BIAS,
    /* attention */
    AF_SLOT_Q,
    AF_SLOT_K,
    AF_SLOT_V,
    AF_SLOT_QKV, /* fused on disk */
    AF_SLOT_QKV_BIAS,
    AF_SLOT_O,
    AF_SLOT_Q_BIAS,
    AF_SLOT_K_BIAS,
    AF_SLOT_V_BIAS,
    AF_SLOT_O_BIAS,
    AF_SLOT_Q_NORM,
    AF_SLOT_K_NORM,
    AF_SLOT_Q_NORM_BIAS, /* LayerNorm */
    AF_SLOT_K_NORM_BIAS,
    AF_SLOT_SINKS,     /* [heads] */
    AF_SLOT_ATTN_GATE, /* [heads * head_dim][D]: its sigmoid scales the result */
    AF_SLOT_LAMBDA_Q1, /* [head_dim]: what the share of the second half is made from (diffllama) */
    AF_SLOT_LAMBDA_K1,
    AF_SLOT_LAMBDA_Q2,
    AF_SLOT_LAMBDA_K2,
    AF_SLOT_ATTN_SUB_NORM,   /* before the last linear (bitnet) */
    AF_SLOT_ATTN_ROUTER,     /* a mixture of heads (jetmoe): [X][D], as the next ones of experts */
    AF_SLOT_ATTN_EXPERTS_IN, /* [X][K * head_dim][D]: queries */
    AF_SLOT_ATTN_EXPERTS_OUT,
    AF_SLOT_ATTN_EXPERTS_BIAS, /* [D]: of the sum */
    /* latent attention */
    AF_SLOT_Q_A,
    AF_SLOT_Q_A_BIAS,
    AF_SLOT_Q_A_NORM,
    AF_SLOT_Q_B,
    AF_SLOT_KV_A,
    AF_SLOT_KV_A_BIAS,
    AF_SLOT_KV_A_NORM,
    AF_SLOT_KV_B,
    AF_SLOT_INDEX_Q, /* its indexer: kept, and not computed with */
    AF_SLOT_INDEX_K,
    AF_SLOT_INDEX_Q_NORM, /* minimax_m3 */
    AF_SLOT_INDEX_NORM,
    AF_SLOT_INDEX_NORM_BIAS,
    AF_SLOT_INDEX_WEIGHTS,
    /* state layers: delta net, Mamba-2, short convolution */
    AF_SLOT_IN,   /* in_proj, or its first part */
    AF_SLOT_IN_K, /* keys and values, where q is that first part */
    AF_SLOT_IN_V,
    AF_SLOT_IN_Z,   /* the gate, where it is apart */
    AF_SLOT_IN_Z_A, /* its first matrix, where it is low-rank */
    AF_SLOT_IN_A,
    AF_SLOT_IN_B,
    AF_SLOT_IN_BIAS,
    AF_SLOT_CONV, /* [channels][1][K] */
    AF_SLOT_CONV_BIAS,
    AF_SLOT_A_LOG,
    AF_SLOT_DT_BIAS,
    AF_SLOT_D,
    AF_SLOT_STATE_NORM, /* the gated norm */
    AF_SLOT_STEP_IN,    /* Mamba-1: x_proj [R + 2n][I], dt_proj [I][R], norms of what they give */
    AF_SLOT_STEP_OUT,   /* also the last matrix of decays per channel */
    AF_SLOT_STEP_NORM,
    AF_SLOT_STEP_B_NORM,
    AF_SLOT_STEP_C_NORM,
    AF_SLOT_OUT, /* out_proj */
    AF_SLOT_OUT_BIAS,
    /* zamba2: a transformer that layers share, and what each use has of its own */
    AF_SLOT_MIXER_NORM,    /* of the residual with the transformer's output */
    AF_SLOT_SHARED_NORM,   /* [2D]: of residual and embedding */
    AF_SLOT_SHARED_LINEAR, /* [D][D]: on its output */
    AF_SLOT_USE_Q_IN,      /* [R][2D] */
    AF_SLOT_USE_K_IN,
    AF_SLOT_USE_V_IN,
    AF_SLOT_USE_Q, /* [H * head_dim][R] */
    AF_SLOT_USE_K,
    AF_SLOT_USE_V,
    AF_SLOT_USE_GATE_UP_IN, /* [R][D] */
    AF_SLOT_USE_GATE_UP,    /* [2F][R] */
    /* MLP */
    AF_SLOT_GATE,
    AF_SLOT_UP,      /* also the first matrix of an MLP without a gate */
    AF_SLOT_GATE_UP, /* fused on disk */
    AF_SLOT_DOWN,
    AF_SLOT_GATE_BIAS,
    AF_SLOT_UP_BIAS,
    AF_SLOT_DOWN_BIAS,
    AF_SLOT_MLP_SUB_NORM, /* before the last linear (bitnet) */
    AF_SLOT_ACT_P,        /* xIELU: alpha_p, alpha_n, and two constants */
    AF_SLOT_ACT_N,
    AF_SLOT_ACT_BETA,
    AF_SLOT_ACT_EPS,
    /* experts */
    AF_SLOT_ROUTER,
    AF_SLOT_ROUTER_BIAS,     /* of its linear */
    AF_SLOT_ROUTER_CHOICE,   /* e_score_correction_bias: only chooses */
    AF_SLOT_ROUTER_SCALE,    /* [D], gemma4 */
    AF_SLOT_EXPERT_SCALE,    /* [X], gemma4 */
    AF_SLOT_EXPERTS_GATE_UP, /* [X][2F][D]: gate rows, then up rows, of each expert */
    AF_SLOT_EXPERTS_UP,      /* [X][F][D]: experts without a gate */
    AF_SLOT_EXPERTS_DOWN,    /* [X][D][F] */
    AF_SLOT_EXPERTS_GATE_UP_BIAS,
    AF_SLOT_EXPERTS_DOWN_BIAS,
    AF_SLOT_EXPERTS_SUM_BIAS, /* [D] (jetmoe) */
    AF_SLOT_SHARED_GATE,      /* the expert that sees every token */
    AF_SLOT_SHARED_UP,
    AF_SLOT_SHARED_GATE_UP,
    AF_SLOT_SHARED_DOWN,
    AF_SLOT_SHARED_ROUTER, /* [1][D]: its gate */
    AF_SLOT_EXPERTS_IN,    /* [L][D], [D][L]: to the width experts have, and back (nemotron_h) */
    AF_SLOT_EXPERTS_OUT,
    AF_SLOT_EXPERTS_NORM, /* gemma4: norms of the experts next to an MLP */
    AF_SLOT_POST_EXPERTS_NORM,
    AF_SLOT_POST_DENSE_NORM,
    /* inputs per layer, gemma4 */
    AF_SLOT_PER_LAYER_GATE,
    AF_SLOT_PER_LAYER_PROJ,
    AF_SLOT_PER_LAYER_NORM,
    AF_SLOT_LAYER_SCALE,
    AF_SLOT_LAUREL_LEFT, /* gemma3n: [R][D], [D][R] next to attention */
    AF_SLOT_LAUREL_RIGHT,
    AF_SLOT_LAUREL_NORM,
    AF_SLOT_ALTUP_ROUTER, /* [A][D]: what the coefficients of A streams are made from */
    AF_SLOT_ALTUP_NORM,
    AF_SLOT_ALTUP_PREDICT, /* [A * A][A] */
    AF_SLOT_ALTUP_CORRECT, /* [A][A] */
    AF_SLOT_ALTUP_SCALE,   /* [D] */
    /* of the whole model; modules of layer 0, which reads them */
    AF_SLOT_ALTUP_OPEN_1, /* [D][D]: from the embedding to each stream but the first, and back */
    AF_SLOT_ALTUP_OPEN_2,
    AF_SLOT_ALTUP_OPEN_3,
    AF_SLOT_ALTUP_CLOSE_1,
    AF_SLOT_ALTUP_CLOSE_2,
    AF_SLOT_ALTUP_CLOSE_3,
    AF_SLOT_PER_LAYER_MODEL_PROJ,
    AF_SLOT_PROJECT_IN, /* [D][P], [P][D]: from the width of the embedding, and back (opt-350m) */
    AF_SLOT_PROJECT_OUT,
    AF_SLOT_HEAD_DENSE, /* [D][D]: before the head (modernbert-decoder) */
    AF_SLOT_LAYER_COUNT,
    AF_SLOT_EMBED = AF_SLOT_LAYER_COUNT,
    AF_SLOT_EMBED_NORM, /* [D]: on the embedding (bloom) */
    AF_SLOT_EMBED_NORM_BIAS,
    AF_SLOT_POSITIONS, /* [positions][D]: added to the embedding of the token */
    AF_SLOT_PER_LAYER_EMBED,
    AF_SLOT_PER_LAYER_MODEL_NORM,
    AF_SLOT_FINAL_NORM,
    AF_SLOT_FINAL_NORM_BIAS,
    AF_SLOT_HEAD_NORM, /* after that, and its activation */
    AF_SLOT_HEAD,      /* absent when tied */
    AF_SLOT_HEAD_BIAS,
    AF_SLOT_SCORE, /* [labels][D]: in place of the head, in a model that classifies */
    AF_SLOT_COUNT
} af_slot;

/* A tensor that a family calls something else than llama. */
typedef struct af_slot_name {
    af_slot slot;
    const char *hf, *gguf; /* inside a layer, whole names outside; NULL = the usual one */
} af_slot_name;

/* What a layer does with its input before the MLP. */
typedef enum af_mixer {
    AF_MIXER_ATTENTION,
    AF_MIXER_LATENT, /* multi-head latent attention */
    AF_MIXER_DELTA_NET,
    AF_MIXER_MAMBA1,
    AF_MIXER_MAMBA2,
    AF_MIXER_SHORT_CONV,
    AF_MIXER_LIGHTNING, /* linear attention with a fixed decay for each head */
    AF_MIXER_HYBRID,    /* attention and Mamba-2 of the same input, added (falcon_h1) */
    AF_MIXER_SHARED,    /* Mamba-2 after a transformer that several layers share (zamba2) */
    AF_MIXER_NONE,      /* an MLP alone */
    AF_MIXER_COUNT
} af_mixer;

typedef enum af_mlp_kind {
    AF_MLP_GATED, /* down(act(gate) * up) */
    AF_MLP_PLAIN, /* down(act(up)) */
    AF_MLP_EXPERTS,
    AF_MLP_SHORTCUT,    /* gated; even layers have a mixture, added by the next (longcat_flash) */
    AF_MLP_AND_EXPERTS, /* gated, and experts that read the same residual (gemma4) */
    AF_MLP_NONE,        /* a mixer alone */
    AF_MLP_COUNT
} af_mlp_kind;

/* The activation of an MLP, where it is not one of af_act. */
typedef enum af_plain_act { AF_PLAIN_ACT, AF_PLAIN_RELU2, AF_PLAIN_XIELU } af_plain_act;

/* Which projections of attention have biases. */
typedef enum af_bias_rule {
    AF_BIAS_NEVER,
    AF_BIAS_CONFIG, /* attention_bias: q, k, v and o */
    AF_BIAS_QKV,    /* q, k and v, always */
    AF_BIAS_APART,  /* attention_bias: q, k and v; attention_out_bias: o */
} af_bias_rule;

struct af_model_spec;

/* One row of the table. */
typedef struct af_arch {
    const char *model_type; /* config.json */
    const char *gguf;       /* general.architecture */
    bool pre_norm;          /* input norms (olmo2 has none) */
    bool post_norm;         /* norms on the outputs of attention and mlp */
    bool post_experts_norm; /* on the outputs of mixtures alone; other layers may store theirs */
    bool norm_by_mixer;     /* both: after attention and its MLP, before what is not attention */
    bool norm_plus_one;     /* weights are stored as w, used as 1 + w */
    bool final_norm_whole;  /* but for the last norm's, which is used as it is */
    bool layer_norm;        /* LayerNorm instead of RMSNorm */
    bool norm_bias;         /* LayerNorms have biases */
    bool norm_bare;         /* norms have no weights */
    bool half_norms;        /* an MLP alone has the norm that it has elsewhere (nemotron-nas) */
    bool no_first_norm;     /* the first layer has none before attention */
    bool embed_norm;        /* a norm on the embedding */
    bool embed_norm_inside; /* without weights, as a part of the embedding itself */
    bool sub_norms;         /* norms of what the last linears of attention and MLP read */
    bool parallel;          /* attention and MLP read the same norm and are added together */
    bool plain_mlp;         /* no gate, of experts neither */
    bool mlp_bias;          /* always; otherwise by mlp_bias of the config */
    bool head_bias;
    bool head_dense; /* the head reads a linear, an activation and a norm of the last norm */
    bool rope_pairs; /* dimension 2i is rotated with 2i+1, not i with i + d/2 */
    af_bias_rule bias;
    bool fused_qkv, fused_gate_up; /* qkv_proj, gate_up_proj are single tensors on disk */
    bool gate_up_halves;           /* fused_gate_up, but gate_proj and up_proj on disk */
    bool qkv_grouped;     /* its rows: of each kv head its queries, then its key, then its value */
    int qkv_groups;       /* grouped: so many groups instead, and values before keys (codegen) */
    bool linears_turned;  /* weights of linears are [in][out] on disk (Conv1D of gpt2) */
    bool positions;       /* learned vectors of positions instead of a rotation */
    int positions_from;   /* the row of the first position */
    bool sinusoids;       /* positions: the vectors are computed (rope_table.h), none are stored */
    bool qk_norm;         /* on q and k, before the rotation */
    bool qk_norm_bare;    /* the same without weights */
    bool qk_norm_config;  /* by use_qk_norm of the config */
    bool qk_norm_row;     /* over the whole row instead of per head */
    bool qk_norm_heads;   /* LayerNorms with weights [heads][head_dim] (cohere) */
    bool qk_norm_apart;   /* of those, each head's is a tensor of its own on disk */
    bool qk_norm_layer;   /* LayerNorms with a weight and a bias that all heads share */
    bool qk_norm_after;   /* after the rotation instead of before */
    bool attn_gate;       /* q_proj has a gate after every head: its sigmoid scales the result */
    bool attn_gate_apart; /* the gate is a projection of its own */
    bool attn_gate_soft;  /* softplus instead of a sigmoid */
    bool attn_experts;    /* queries and outputs are of experts, sums of all experts have biases */
    bool differential;    /* attention is one half of the heads minus a share of the other */
    bool value_norm;      /* on v, per head and without a weight */
    bool sinks;           /* a logit per head that takes a share of every softmax */
    bool sinks_sliding;   /* in layers with a window alone */
    bool layer_scale;     /* the residual is multiplied by a stored number per layer */
    bool scale_embedding; /* times sqrt(hidden) */
    bool attn_cap;        /* attn_logit_softcapping is applied */
    bool logit_cap;       /* final_logit_softcapping is applied */
    bool query_scalar;    /* query_pre_attn_scalar sets the scale of the scores */
    bool multipliers;     /* granite's four */
    bool moe;
    bool moe_or_dense;       /* no experts where their number is 0 */
    bool gguf_permuted;      /* q and k rows are interleaved in GGUF */
    bool gguf_norm_one;      /* norms are stored as 1 + w in GGUF */
    bool gguf_fused_experts; /* gate and up of experts are one tensor in GGUF, too, shared or not */
    bool gguf_kv_whole;      /* kv_b_proj is one tensor in GGUF, too */
    bool gguf_cut_mlp;       /* fused gate and up are two tensors in GGUF */
    bool gguf_cut_qkv;       /* fused queries, keys and values are three tensors in GGUF */
    bool gguf_tiled;         /* value heads of delta nets as gguf_order.h says */
    bool two_in_one;         /* two layers are one in the folder; * in names is 0 or 1, which */
    /* what "model." and "layers" are called; NULL = so */
    const char *stem, *layers;
    const char *memory_stem; /* in memory, where the file calls it otherwise (nemotron_h) */
    const char *head_module; /* in memory, where the file calls it otherwise (gpt_neox) */
    /* other parts of names that differ: what a folder has, what modules have; the first that fits,
     * ends with NULL */
    const char *const (*in_memory)[2];
    const af_slot_name *names; /* what differs from llama; ends with .hf = NULL, .gguf = NULL */
    /* experts one by one on disk: "mlp.experts" and the names of gate, up, down; NULL = qwen's */
    const char *experts, *expert_part[3];
    bool a_log_axes;    /* A_log is [1][1][heads][1] on disk (kimi_linear) */
    const char *router; /* what the router is called there, where that is not its name in memory */
    bool experts_whole; /* usually all experts are one tensor on disk, too */
    /* gates, ups and downs of all experts are one matrix [X * F][D] each on disk (dbrx): gates
     * under the name of the slot, ups under this one; downs are turned. NULL = not so */
    const char *experts_flat_up;
    /* the module of the experts in memory, where their tensors are called something else on disk */
    const char *experts_module;
    bool choice_row; /* e_score_correction_bias is [1][X] (ernie4_5_moe) */
    /* images have X more experts in folders, a router and a second row of that (ernie4_5_vl_moe);
     * routers are turned there */
    bool image_experts;
    bool choice_or_none; /* a folder may lack it */
    bool no_router_loss; /* transformers has no auxiliary loss for its routers */
    bool router_linear;  /* in memory the router is a linear module, not a parameter of its own */
    /* PEFT takes the names that parts of an expert and the router had as modules (gate_proj, gate)
     * for the parameters they are now */
    bool peft_converts;
    bool peft_no_out;    /* PEFT refuses adapters on out_proj */
    bool peft_no_router; /* transformers reads the weight of the router past its adapter */
    bool peft_no_step;   /* transformers reads the weight of dt_proj past its adapter */
    bool experts_turned; /* those are [X][in][out] */
    /* gate and up of gate_up_proj alternate there (gpt_oss); rows of PEFT's B do so, too */
    bool experts_alternate;
    bool experts_swapped;   /* PEFT takes their inputs for outputs (llama4) */
    bool query_scale_still; /* queries of layers without a rotation alone grow with the position */
    /* Sets what keys of the config decide beyond the switches: kinds of layers, their sizes,
     * scales. Called before tensors are listed; NULL = nothing. */
    af_status (*fill)(struct af_model_spec *s, const af_hf_config *c, af_error *err);
} af_arch;

/* A linear module, as adapters name it. */
typedef enum af_group {
    AF_GROUP_QKV,
    AF_GROUP_O,
    AF_GROUP_ATTN_GATE,
    AF_GROUP_GATE_UP,
    AF_GROUP_DOWN,
    AF_GROUP_Q_A, /* latent attention */
    AF_GROUP_Q_B,
    AF_GROUP_KV_A,
    AF_GROUP_KV_B,
    AF_GROUP_ATTN_NORM_DOWN, /* gates of norms; UP comes after DOWN */
    AF_GROUP_ATTN_NORM_UP,
    AF_GROUP_MLP_NORM_DOWN,
    AF_GROUP_MLP_NORM_UP,
    AF_GROUP_IN, /* state layers */
    AF_GROUP_IN_Z,
    AF_GROUP_IN_GATES,
    AF_GROUP_OUT,
    AF_GROUP_STEP_IN,        /* Mamba-1 */
    AF_GROUP_STEP_OUT,       /* also decays per channel */
    AF_GROUP_SHARED_GATE_UP, /* shared expert */
    AF_GROUP_SHARED_DOWN,
    AF_GROUP_SHARED_ROUTER,
    AF_GROUP_PER_LAYER_GATE, /* gemma4 */
    AF_GROUP_PER_LAYER_PROJ,
    AF_GROUP_PER_LAYER_MODEL, /* per_layer_model_projection */
    AF_GROUP_PROJECT_IN,      /* opt-350m */
    AF_GROUP_PROJECT_OUT,
    AF_GROUP_HEAD_DENSE,
    AF_GROUP_LAUREL_LEFT, /* gemma3n */
    AF_GROUP_LAUREL_RIGHT,
    AF_GROUP_ALTUP_ROUTER,
    AF_GROUP_ALTUP_PREDICT,
    AF_GROUP_ALTUP_CORRECT,
    AF_GROUP_ALTUP_OPEN, /* of all streams */
    AF_GROUP_ALTUP_CLOSE_1,
    AF_GROUP_ALTUP_CLOSE_2,
    AF_GROUP_ALTUP_CLOSE_3,
    AF_GROUP_EXPERTS_IN, /* nemotron_h */
    AF_GROUP_EXPERTS_OUT,
    AF_GROUP_EXPERTS_GATE_UP, /* parameters of experts: PEFT's target_parameters; also up alone */
    AF_GROUP_EXPERTS_DOWN,
    AF_GROUP_ATTN_EXPERTS_IN,
    AF_GROUP_ATTN_EXPERTS_OUT,
    AF_GROUP_ROUTER,
    AF_GROUP_ATTN_ROUTER,
    AF_GROUP_SHARED_LINEAR, /* zamba2 */
    AF_GROUP_USE_QKV_IN,
    AF_GROUP_USE_Q,
    AF_GROUP_USE_K,
    AF_GROUP_USE_V,
    AF_GROUP_USE_GATE_UP_IN,
    AF_GROUP_USE_GATE_UP,
    AF_GROUP_LAYER_COUNT,
    AF_GROUP_HEAD = AF_GROUP_LAYER_COUNT,
    AF_GROUP_EMBED,
} af_group;

typedef struct af_module_spec {
    const char *path; /* "model.layers.0.self_attn.q_proj", "...mlp.experts.down_proj" */
    bool parameter;   /* the path is that of a parameter: PEFT's target_parameters name it */
    int layer;        /* -1 outside the layers */
    af_group group;
    int piece;             /* which piece of the group's linear */
    int64_t out_from, out; /* its output columns inside the group */
    int64_t in;
    int64_t copies;   /* matrices of out x in: 1, or the experts */
    int weight, bias; /* indexes of tensors; bias -1 = none */
} af_module_spec;

/* Of xIELU: GGUF has it among the metadata. */
static inline bool af_slot_is_xielu(af_slot s)
{
    return s >= AF_SLOT_ACT_P && s <= AF_SLOT_ACT_EPS;
}
/* "xielu.alpha_p": an array there, a number for each layer. */
const char *af_slot_xielu_key(af_slot s);

/* A tensor of all experts, which may be one by one on disk. */
static inline bool af_slot_is_experts(af_slot s)
{
    return s >= AF_SLOT_EXPERTS_GATE_UP && s <= AF_SLOT_EXPERTS_DOWN;
}

static inline bool af_group_is_experts(af_group g)
{
    return g >= AF_GROUP_EXPERTS_GATE_UP && g <= AF_GROUP_ATTN_EXPERTS_OUT;
}
static inline bool af_module_is_experts(const af_module_spec *m)
{
    return af_group_is_experts(m->group);
}

static inline bool af_slot_is_router(af_slot s)
{
    return s == AF_SLOT_ROUTER || s == AF_SLOT_ATTN_ROUTER;
}

typedef struct af_tensor_spec {
    const char *name; /* Hugging Face name; of expert tensors: the fused one */
    const char *gguf;
    af_slot slot;
    int layer; /* -1 outside the layers */
    int ndim;
    int64_t dim[3];
    int module;        /* which module's weight this is, or -1 */
    int64_t row_heads; /* q and k: heads whose rows GGUF interleaves; else 0 */
    bool flat;         /* experts whose gates and ups are apart on disk, each in a row */
    bool alternates;   /* of the outputs of experts on disk, gates and ups take turns */
    bool buffer;       /* a constant of the model: stored, never trained */
    bool scalar;       /* [1], and without a dimension on disk */
} af_tensor_spec;

/* The weight of a linear, which can be quantised; routers are left as they are. */
static inline bool af_tensor_is_linear(const af_tensor_spec *t)
{
    return t->module >= 0 && t->layer >= 0 && !af_slot_is_router(t->slot) &&
           !(t->slot >= AF_SLOT_ALTUP_ROUTER && t->slot <= AF_SLOT_ALTUP_CORRECT);
}

/* [1][N] here, and a vector in GGUF. */
static inline bool af_slot_is_row(const af_tensor_spec *t)
{
    return t->slot == AF_SLOT_SHARED_ROUTER || (t->slot == AF_SLOT_ROUTER_CHOICE && t->ndim == 2);
}

typedef struct af_layer_spec {
    int tensor[AF_SLOT_LAYER_COUNT]; /* indexes, -1 = absent */
    int module[AF_GROUP_LAYER_COUNT][AF_LINEAR_PIECES];
    int pieces[AF_GROUP_LAYER_COUNT];
    af_mixer mixer;
    af_mlp_kind mlp;
    int heads, kv_heads, head_dim;
    int64_t ffn; /* of its dense MLP */
    int window;  /* 0 = none */
    int chunk;   /* keys of its own chunk of so many positions are all a query sees; 0 = none */
    int rope;    /* which rope set, -1 = none */
    int kv_from; /* the layer whose keys and values it uses: itself, or an earlier one */
    bool k_is_v; /* no v_proj: values are the raw keys */
    bool sparse; /* gates below so many standard deviations above their mean are 0 */
    double sparsity;
    double keep[2], add[2]; /* mixer, MLP: factors of the residual, of what is added; 0 = 1 */
} af_layer_spec;

/* One set of rotary frequencies. */
typedef struct af_rope_set {
    af_rope_config config;
    int rotary_dim; /* dimensions of a head that are rotated */
    int dim;        /* what the exponents of the frequencies are shares of: rotary_dim, or 1 less */
} af_rope_set;

enum { AF_ROPE_SETS = 2 };

enum { AF_CONV_PIECES = 3, AF_DISK_DIMS = 4 };

typedef struct af_model_spec {
    const af_arch *arch;
    const char *gguf;                      /* its architecture in GGUF; NULL = it has none */
    int64_t vocab, width, ffn, expert_ffn; /* V D F, and F of an expert */
    int64_t embed_width;                   /* of the embedding and what the head reads: D, or P */
    int64_t expert_width;                  /* what goes into an expert: D, or less */
    int layers, heads, kv_heads, head_dim; /* of full attention; a layer may have its own */
    int64_t embed_rows;                    /* those of tokens, and sometimes more (mllama) */
    const int64_t *folder_layers;          /* of af_hf_config; NULL = 0, 1, 2, ... */
    int experts, experts_used;
    bool experts_whole; /* of the folder at hand: all experts are one tensor */
    /* olmo_hybrid, kimi_linear: the channels of q_conv1d, k_conv1d and v_conv1d in the folder at
     * hand, which are one tensor here; all 0: it is one there, too */
    int64_t conv_rows[AF_CONV_PIECES];
    int64_t labels;      /* of a model that classifies: its head is `score`; 0 = predicts tokens */
    int64_t padding_row; /* embeddings[this] gets no gradient; -1 = none */
    bool norm_topk, tied;
    af_act act;
    af_plain_act plain_act;
    bool rope_pairs, parallel;
    bool head_normed;     /* rows of the head are divided by their lengths (Baichuan 2) */
    bool residual_normed; /* blocks are added to what they read, which is normed (bloom) */
    bool norm_after;      /* norms are of the sums, which they replace (opt-350m) */
    bool no_final_norm;
    bool round_inputs;   /* of linears in layers, to 8 bits with a scale for each token (BitNet) */
    bool round_weights;  /* of those, to -1, 0 or 1 times their mean, as they are trained */
    bool parallel_norms; /* attention and MLP have a norm each of the same residual */
    double final_eps;    /* of the last norm */
    double post_eps;     /* of norms on outputs; 0 = eps */
    double eps, attn_scale, attn_softcap, logit_softcap;
    double alibi;       /* ALiBi: the exponent slopes go down to; 0 = none */
    int alibi_kind;     /* af_alibi_kind */
    double qkv_clip;    /* queries, keys and values stay between -this and this; 0 = none */
    double value_scale; /* of values that have a size of their own */
    double embed_scale, residual_scale, logit_scale; /* 1 = none */
    bool embed_scales; /* transformers' embedding scales by itself: noise on it is not scaled */
    int64_t per_layer_input; /* width of the input each layer has of its own; 0 = none */
    int64_t per_layer_vocab;
    af_altup_keys altup;
    double query_scale; /* beta of ministral3's scaling by position; 0 = none */
    int64_t query_scale_from;
    int query_scale_offset; /* added to the position */
    bool attn_gate_heads;   /* gates of attention are one for each head, not for each value */
    bool qk_norm_still;     /* q and k of layers with rope are normed without weights */
    af_rope_set rope[AF_ROPE_SETS]; /* of full layers, of sliding layers */
    int ropes;
    bool recurrent;        /* a layer has a state that cannot go back to an earlier token */
    bool rope_by_length;   /* one of them changes with the length of the batch */
    int64_t max_positions; /* the config's context length; see af_spec_context */
    af_state_keys state;   /* sizes of state layers, latent attention, routers */
    af_latent_keys latent;
    af_router_keys router;
    af_mup_keys mup;
    /* Among the modules of the whole model, as PEFT names them: what `af_arch_stem` is called, what
     * the head's name begins with, and a pattern of the modules that are not of the text model
     * (NULL: there are none). */
    const char *inner, *head_before, *outside;

    int embed, head;          /* tensor indexes; head = embed when tied */
    int outer[AF_SLOT_COUNT]; /* tensor indexes by slot, of those outside layers; -1 = absent */
    int embed_module, head_module;
    af_layer_spec *layer; /* [layers] */
    af_tensor_spec *tensor;
    int tensors;
    af_module_spec *module;
    int modules;
    int64_t params; /* elements of all tensors */
    af_arena arena; /* owns the lists; rope factors are borrowed from the config */
} af_model_spec;

/* The norm that a layer begins with. */
static inline af_slot af_first_norm_slot(const af_model_spec *s, int layer)
{
    return s->arch->half_norms && s->layer[layer].mixer == AF_MIXER_NONE ? AF_SLOT_MLP_NORM
                                                                         : AF_SLOT_ATTN_NORM;
}
/* Whether other layers have a module of the same weight. */
bool af_module_is_shared(const af_model_spec *s, int module);

/* The row for a model_type; NULL when there is none. */
const af_arch *af_arch_find(const char *model_type);
/* Whether the last part of a module's path is what an architecture calls its embedding, or head. */
bool af_path_is_table(const char *path, bool head);
/* The i-th row over all groups, NULL after the last. */
const af_arch *af_arch_at(int i);

/* Describes the model of a config, which must outlive the result. An unknown model_type whose keys
 * fit llama is taken as llama with a warning. */
AF_CHECKED af_status af_model_spec_init(af_model_spec *out, const af_hf_config *c, af_error *err);
void af_model_spec_clear(af_model_spec *s);
/* Layers as folders, PEFT and users count them. */
static inline int af_spec_folder_layer(const af_model_spec *s, int layer)
{
    if (s->folder_layers && layer >= 0)
        return (int)s->folder_layers[layer];
    return s->arch->two_in_one && layer > 0 ? layer / 2 : layer;
}
/* What comes before the number of a layer on disk: "model.layers.". */
void af_spec_layers_prefix(const af_model_spec *s, char *out, size_t size);
/* Tokens the model was made for, what its ropes were stretched to included; 0 = not known. */
int64_t af_spec_context(const af_model_spec *s);
/* What no sequence may be longer than; INT64_MAX = no limit. Above it the check says why. `what`:
 * "sequences", "a context". */
int64_t af_spec_longest(const af_model_spec *s);
AF_CHECKED af_status af_spec_check_length(const af_model_spec *s, const char *what, int64_t length,
                                          af_error *err);

/* "model.norm.weight" as the whole model calls it, which PEFT does too. */
void af_spec_whole_name(const af_model_spec *s, const char *name, char *out, size_t size);

/* Whether a name without its stem is of a part that the text model has: layers, a norm. */
bool af_spec_has_part(const af_model_spec *s, const char *rest);

/* Sets how much of a head of this size a rope set rotates. */
AF_CHECKED af_status af_spec_rope_dims(af_rope_set *r, int head_dim, af_error *err);

/* Index by Hugging Face name; -1 when the model has no such tensor. */
int af_model_spec_tensor(const af_model_spec *s, const char *name);
#endif
