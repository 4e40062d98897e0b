/* families.h - the groups of families, one file each; every list ends with an empty row. */
#ifndef AF_FAMILIES_H
#define AF_FAMILIES_H

#include "format/config/config_source.h"
#include "format/config/hf_config_check.h"

/* "ARCH.suffix" of GGUF metadata as a number. */
double af_family_gguf_num(const af_gguf *g, const char *arch, const char *suffix, double absent);

extern const af_family af_families_llama[]; /* llama itself comes first */
extern const af_family af_families_gemma[];
extern const af_family af_families_dense[];
extern const af_family af_families_experts[];
extern const af_family af_families_minimax[];
extern const af_family af_families_state[];
extern const af_family af_families_mamba[];
extern const af_family af_families_latent[];
extern const af_family af_families_routed[];
extern const af_family af_families_older[];
extern const af_family af_families_remote[];
extern const af_family af_families_inside[]; /* blocks of the others, in multimodal models */

/* exaone: only layers with a window have a rope, where there are any. */
void af_config_exaone_windows(af_config_source *s, af_hf_config *c);
/* hidden_size for sums and products; one out of range counts as the limit, and is refused later. */
int64_t af_config_width(const af_hf_config *c);
/* *in: the object of this key, which has keys of its own; false when it is absent or wrong. */
bool af_config_part(af_config_source *in, af_config_source *s, const char *key);
/* clip_qkv: queries, keys and values stay between -this and this; 0 = no such key. */
double af_config_clip(af_config_source *s);
/* Queries grow with the position: 1 + beta ln(1 + floor(position / original length)). */
void af_config_query_scaling(af_config_source *s, af_hf_config *c);
/* hunyuan: "dynamic" with a fixed alpha stretches the base once, whatever the length. */
void af_config_hunyuan_rope(af_config_source *s, af_hf_config *c);
/* layer_rope_theta: a base for each layer, 0 = no rope there; at most two different ones. */
void af_config_layer_thetas(af_config_source *s, af_hf_config *c);

/* No layer has a rotation. */
void af_config_no_ropes(af_config_source *s, af_hf_config *c);
/* scale_emb, scale_depth and dim_model_base of minicpm in granite's words; numbers: what is assumed
 * when a key is absent. */
void af_config_minicpm_scales(af_config_source *s, af_hf_config *c, double embed, double depth,
                              int base);

/* An empty list of kinds, one per layer, or NULL with the error latched. */
af_layer_type *af_config_take_types(af_config_source *s, af_hf_config *c);
/* Mamba-2: sizes in the words of mamba_n_heads, whose heads are `width` values in all; that width
 * by a factor of the hidden size; limits of the time steps. */
void af_config_mamba(af_config_source *s, af_hf_config *c, int64_t width);
int64_t af_config_mamba_width(af_config_source *s, const af_hf_config *c, const char *expand);
void af_config_time_steps(af_config_source *s, af_hf_config *c);
/* The object with the keys of the rotation: rope_scaling where it has any, or rope_parameters. */
const struct json_t *af_config_ropes(af_config_source *s);
/* llama3's scaling from 8192 tokens if config.json has no such object. */
void af_config_llama3(af_config_source *s, af_hf_config *c, double theta, double factor);
/* Groups of the gated norm of mamba2, bamba and granitemoehybrid: those of the keys. Versions of
 * transformers before 5.23 normed the whole row, and folders they wrote say so. */
int64_t af_config_norm_groups(const af_hf_config *c);

/* The activation of these layers, under `key`, is silu and no other. */
void af_config_only_silu(af_config_source *s, af_hf_config *c, const char *key, const char *layers);

/* The number of experts by this key, how many of them a token has, the loss of routers. */
void af_config_mixture(af_config_source *s, af_hf_config *c, const char *key, int64_t count,
                       int64_t used);
/* Of families with a mixture in DeepSeek's words; numbers: what is assumed when a key is absent. */
void af_config_deepseek_experts(af_config_source *s, af_hf_config *c, int experts, int used,
                                int ffn, int dense);
/* The same of DeepSeek V2: shares of a softmax, scaled. */
void af_config_deepseek_v2_experts(af_config_source *s, af_hf_config *c);
/* routed_scaling_factor. */
void af_config_router_scale(af_config_source *s, af_hf_config *c, double absent);
/* Groups and scale where their keys are absent: those of DeepSeek V3 and of families after it. */
void af_config_deepseek_defaults(af_config_source *s, af_hf_config *c);
#endif
