/* arch_list.h - lists the tensors and modules of a model, one function per kind of block. The list
 * function of a new kind goes into a file of its own and into the tables of arch_list.c. */
#ifndef AF_ARCH_LIST_H
#define AF_ARCH_LIST_H

#include "model/arch/arch.h"

typedef struct af_lister {
    af_model_spec *s;
    const af_hf_config *c;
    const char *part; /* what comes before the names of a layer's tensors ("shared_transformer.") */
    int use;     /* above 0: the use of a shared part whose tensors these are, from 1 on, and */
    int first;   /* the layer under whose number they are stored */
    bool again;  /* tensors are those of layer `first`: only modules are new */
    bool failed; /* no memory, or the count of parameters does not fit */
} af_lister;

/* Lists everything. The layers must have their kinds and sizes. */
AF_CHECKED af_status af_list_model(af_model_spec *s, const af_hf_config *c, af_error *err);

/* Whether there is a block of this kind. */
bool af_list_has_mixer(af_mixer m);

/* A tensor of a layer; unused dimensions are 1. Its index. */
int af_list_tensor(af_lister *l, af_slot slot, int layer, int ndim, int64_t a, int64_t b,
                   int64_t c);
/* A vector that is stored and never trained; a = 0: a number without a dimension. */
void af_list_buffer(af_lister *l, af_slot slot, int layer, int64_t a);
/* A parameter of all experts of a layer: its tensor [X][out][in], and its place among modules. */
void af_list_experts(af_lister *l, int layer, af_group group, af_slot slot, int64_t out,
                     int64_t in);
/* A linear of a layer: its weight, its bias (bias_slot -1 = none), its place among the modules. */
void af_list_linear(af_lister *l, int layer, af_group group, af_slot slot, int64_t out, int64_t in,
                    int bias_slot);
/* A linear outside the layers: its group is one of the first layer, its names are of none. */
void af_list_outer_linear(af_lister *l, af_group group, af_slot slot, int64_t out, int64_t in);
/* A norm over the width, with the bias of a LayerNorm where the family has one (-1 = never). */
void af_list_norm(af_lister *l, af_slot slot, int bias_slot, int layer);

/* The names of a slot in the family's folders and in GGUF. */
const char *af_slot_hf_name(const af_arch *a, af_slot slot);
const char *af_slot_gguf_name(const af_arch *a, af_slot slot);

/* Blocks: between the norms before and after them. */
void af_list_attention(af_lister *l, int layer);
void af_list_latent(af_lister *l, int layer);
/* The indexer of a layer with attention to a part of the keys, where there is one. */
void af_list_indexer(af_lister *l, int layer);
/* The gate of the norm before the mixer or the MLP, which is a module then, where there is one. */
void af_list_norm_gate(af_lister *l, int layer, bool mlp);
void af_list_delta_net(af_lister *l, int layer);
void af_list_mamba1(af_lister *l, int layer);
void af_list_mamba2(af_lister *l, int layer);
void af_list_hybrid(af_lister *l, int layer);
void af_list_shared(af_lister *l, int layer);
void af_list_short_conv(af_lister *l, int layer);
void af_list_lightning(af_lister *l, int layer);
void af_list_mlp_gated(af_lister *l, int layer);
void af_list_mlp_plain(af_lister *l, int layer);
void af_list_mlp_experts(af_lister *l, int layer);
void af_list_mlp_and_experts(af_lister *l, int layer);
void af_list_mlp_shortcut(af_lister *l, int layer);

/* Inputs per layer: the tables of the whole model, and what each layer has for them. */
void af_list_layer_inputs(af_lister *l);
void af_list_layer_input(af_lister *l, int layer);
/* Streams of gemma3n: what the whole model has for them, and each layer. */
void af_list_altup_outer(af_lister *l);
void af_list_altup(af_lister *l, int layer);
#endif
