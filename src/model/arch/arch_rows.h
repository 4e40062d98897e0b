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
extern const af_arch af_rows_latent[];
extern const af_arch af_rows_routed[];
extern const af_slot_name af_deepseek_names[]; /* shared_experts */
#endif
