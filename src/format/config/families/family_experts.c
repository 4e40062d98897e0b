/* family_experts.c - families with experts and ordinary attention. */
#include "format/config/families/families.h"

const af_family af_families_experts[] = {
    {.model_type = "qwen3_moe",
     .gguf = "qwen3moe",
     .act = "silu",
     .eps = 1e-6,
     .theta = 1e4,
     .sliding = AF_SLIDING_SWITCHED},
    {0},
};
