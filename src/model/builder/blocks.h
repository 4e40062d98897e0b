/* blocks.h - between the files of the builder: the context of a forward pass, linears, norms, and
 * one function per kind of block. A new kind goes into a file of its own and into the tables of
 * builder.c. */
#ifndef AF_BLOCKS_H
#define AF_BLOCKS_H

#include "model/builder.h"

/* The context of one forward pass. */
typedef struct af_forward {
    af_model_leaves *l;
    const af_model_spec *s;
    af_graph *g;
    const af_batch_inputs *in;
    af_forward_opts o;
    const af_adapter *adapter; /* NULL when this forward has none */
    af_tensor **kv; /* [layers] what a later layer may use of one: see kv_from, AF_MLP_SHORTCUT */
    af_tensor *embedding;       /* what the first layer reads */
    af_tensor *const *residual; /* the residual stream as it is now */
    af_tensor *per_layer;       /* [N][layers*P], or NULL: the inputs of all layers */
    af_tensor *alibi;           /* [N][H+2K][columns], or NULL: what heads have more of */
    af_tensor *chunks;          /* the bounds of layers that see a chunk alone */
} af_forward;

/* A tensor of a layer, or NULL. */
af_tensor *af_layer_leaf(const af_forward *f, int layer, af_slot slot);
/* A tensor outside the layers, or NULL. */
af_tensor *af_outer_leaf(const af_model_leaves *l, af_slot slot);
af_tensor *af_as_type(af_graph *g, af_tensor *t, af_dtype type);
/* A weight of BitNet as it is trained. */
af_tensor *af_ternary_weight(const af_model_leaves *l, af_tensor *w);
/* A weight [O][I], or rows of one, as quantisation-aware training computes with it, in type `out`;
 * an input [N][I] of linears. Without such training: what was given. */
af_tensor *af_qat_weight(const af_model_leaves *l, af_tensor *w, af_dtype out);
af_tensor *af_qat_input(const af_model_leaves *l, af_tensor *x);
/* x [N][I] -> [N][O]: the pieces of a group side by side, adapters included. */
af_tensor *af_project(const af_forward *f, int layer, af_group group, af_tensor *x);
/* Attention's o [N][H*E] times sigmoid(gate) or softplus(gate), of each value or of each head. */
af_tensor *af_attn_gate(const af_forward *f, int layer, af_tensor *o, af_tensor *gate);
/* Values [N][K][V] of heads with zeros up to the size E of keys; and what attention gives then,
 * [N][H*E], without the columns of zeros. Exact, and every kernel of attention serves. */
af_tensor *af_pad_values(const af_forward *f, af_tensor *v, int64_t E);
af_tensor *af_cut_values(const af_forward *f, int layer, af_tensor *o);
/* Sequences cut where chunks end, for layers that see a chunk alone; else the bounds themselves. */
af_tensor *af_chunk_bounds(const af_forward *f);
/* The weight of a norm of n values that has none. */
af_tensor *af_bare_norm(const af_forward *f, int64_t n);
/* ids [N] -> [N][D] */
af_tensor *af_embed(const af_forward *f);

/* ALiBi: the columns of all heads for this forward, NULL where the model has none; q|k|v with them;
 * and attention's output without. */
af_tensor *af_alibi_record(const af_forward *f);
af_tensor *af_alibi_add(const af_forward *f, af_tensor *qkv);
af_tensor *af_alibi_cut(const af_forward *f, af_tensor *o);

/* Differential attention: q|k|v of two passes over the same queries and keys, one for each half of
 * the values; and what the output of both becomes. */
af_tensor *af_differential_add(const af_forward *f, int layer, af_tensor *qkv);
af_tensor *af_differential_cut(const af_forward *f, int layer, af_tensor *o);
static inline int af_attention_passes(const af_model_spec *s)
{
    return s->arch->differential ? 2 : 1;
}

/* A mixer: h [N][D] -> [N][D] before the residual, and what it keeps between runs. */
typedef struct af_mixer_block {
    af_tensor *(*record)(const af_forward *f, int layer, af_tensor *h);
    void (*caches)(const af_model_leaves *l, int layer, const af_cache_sizes *z,
                   af_layer_cache *out);
} af_mixer_block;

extern const af_mixer_block af_block_latent;
extern const af_mixer_block af_block_attention, af_block_delta_net, af_block_mamba1,
    af_block_mamba2, af_block_short_conv, af_block_hybrid, af_block_lightning;

/* zamba2: a Mamba-2 layer after a shared transformer, which reads the residual itself; and what a
 * use of that transformer adds to q|k|v of h [N][2D]. */
extern const af_mixer_block af_block_shared;
af_tensor *af_use_qkv(const af_forward *f, int layer, af_tensor *h, af_tensor *qkv);

/* MLPs: h [N][D] -> [N][D] */
af_tensor *af_block_mlp_gated(const af_forward *f, int layer, af_tensor *h);
af_tensor *af_block_mlp_plain(const af_forward *f, int layer, af_tensor *h);
af_tensor *af_block_experts(const af_forward *f, int layer, af_tensor *h);
af_tensor *af_block_mlp_and_experts(const af_forward *f, int layer, af_tensor *h);
af_tensor *af_block_shortcut(const af_forward *f, int layer, af_tensor *h);

/* gemma4: the inputs of all layers from the embedding x, NULL where the model has none; and what a
 * layer does to the residual x at its end. */
af_tensor *af_layer_inputs(const af_forward *f, af_tensor *x);
af_tensor *af_layer_end(const af_forward *f, int layer, af_tensor *x);
/* gemma3n, whose residual is several streams: from the embedding x, through a layer (`mixer`,
 * `mlp`: what it computes between its norms), and to one. */
typedef struct af_streams {
    af_tensor *x[AF_ALTUP_STREAMS_MAX];
} af_streams;
typedef af_tensor *af_block_record(const af_forward *f, int layer, af_tensor *h);
af_streams af_streams_open(const af_forward *f, af_tensor *x);
void af_streams_layer(const af_forward *f, int layer, af_block_record *mixer, af_block_record *mlp,
                      af_streams *s);
af_tensor *af_streams_close(const af_forward *f, const af_streams *s);
/* x times a factor; itself where that is 1. */
af_tensor *af_times(const af_forward *f, af_tensor *x, double factor);
/* x [N][..] times factor[i] in each of the next width[i] columns. */
af_tensor *af_mul_parts(const af_forward *f, af_tensor *x, const double *factor,
                        const int64_t *width, int parts);
/* act(gate) * up, or the clamped unit of the family. */
af_tensor *af_gated_unit(const af_forward *f, af_tensor *gate_up);
/* The activation of an MLP without a gate. */
af_tensor *af_activate(const af_forward *f, int layer, af_tensor *x);
/* x [N][D] -> the weights [N][k] of the experts a router takes, and which they are. */
af_tensor *af_route_tokens(const af_forward *f, int layer, af_group group, af_tensor *x,
                           af_tensor **index);
/* The parameter of a group of experts with its bias (-1 = none) and its adapter. */
af_expert_linear af_expert_linear_of(const af_forward *f, int layer, af_group group, int bias);
/* y [N][D] plus a vector [D] of any type. */
af_tensor *af_add_vector(const af_forward *f, af_tensor *y, af_tensor *vector);
/* A mixture of heads: q|k|v with the queries of each token's experts, and the sum of their outputs.
 */
typedef struct af_head_choice {
    af_tensor *weights, *index; /* [N][k] */
} af_head_choice;
af_tensor *af_expert_queries(const af_forward *f, int layer, af_tensor *h, af_head_choice *c);
af_tensor *af_expert_outputs(const af_forward *f, int layer, af_tensor *o, const af_head_choice *c);
/* The experts alone: the router reads router_x [N][D], they read x [N][D]. */
af_tensor *af_routed_experts(const af_forward *f, int layer, af_tensor *router_x, af_tensor *x);
#endif
