/* rows_experts.c - families with experts and ordinary attention. */
#include "model/arch/arch_rows.h"

const af_arch af_rows_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .moe = true},
    {0},
};
