/* rows_experts.c - families with experts and ordinary attention. */
#include "model/arch/arch_rows.h"

const af_arch af_rows_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .pre_norm = true,
     .bias = AF_BIAS_CONFIG,
     .qk_norm = true,
     .peft_converts = true,
     .moe = true},
    {.model_type = "qwen2_moe",
     .gguf = "qwen2moe",
     .pre_norm = true,
     .bias = AF_BIAS_APART,
     .moe = true},
    {.model_type = "mixtral",
     .gguf = "llama",
     .pre_norm = true,
     .peft_converts = true,
     .moe = true,
     .gguf_permuted = true,
     .experts = "block_sparse_moe.experts",
     .expert_part = {"w1", "w3", "w2"},
     .router = "block_sparse_moe.gate.weight"},
    {0},
};
