/* arch_rows.h - the groups of rows of the architecture table, one file each (rows_GROUP.c); every
 * list ends with an empty row. */
#ifndef AF_ARCH_ROWS_H
#define AF_ARCH_ROWS_H

#include "model/arch/arch.h"

extern const af_arch af_rows_llama[]; /* llama itself comes first */
extern const af_arch af_rows_gemma[];
extern const af_arch af_rows_dense[];
extern const af_arch af_rows_experts[];
extern const af_arch af_rows_state[];
extern const af_arch af_rows_mamba[];
extern const af_arch af_rows_latent[];
extern const af_arch af_rows_routed[];
extern const af_arch af_rows_older[];
extern const af_arch af_rows_remote[];
/* Layers that see everything keep no positions, where the config says so. */
af_status af_fill_rope_sliding(af_model_spec *s, const af_hf_config *c, af_error *err);
/* layer_rope_theta: which of the rope sets each layer has. */
af_status af_fill_layer_thetas(af_model_spec *s, const af_hf_config *c, af_error *err);
/* Queries grow with the position. */
af_status af_fill_query_scale(af_model_spec *s, const af_hf_config *c, af_error *err);
extern const af_slot_name af_deepseek_names[]; /* shared_experts */
/* Linears of the experts that every token sees. */
#define AF_SHARED_NAMES(module)                                                                    \
    {AF_SLOT_SHARED_GATE, module ".gate_proj.weight", NULL},                                       \
        {AF_SLOT_SHARED_UP, module ".up_proj.weight", NULL},                                       \
    {                                                                                              \
        AF_SLOT_SHARED_DOWN, module ".down_proj.weight", NULL                                      \
    }
#endif
