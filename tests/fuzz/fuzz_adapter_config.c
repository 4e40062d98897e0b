/* fuzz_adapter_config.c - any bytes as an adapter_config.json, matched against module paths. */
#include "model/adapter_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_adapter_config c;
    af_arena arena = {.limit = 1 << 24};
    double v;
    if (af_adapter_config_parse(&c, &arena, (const char *)data, size, "fuzz", NULL) == AF_OK) {
        const af_status st = af_adapter_pattern_value(&v, c.rank_pattern, c.rank_patterns,
                                                      "model.layers.0.self_attn.q_proj", 1, NULL);
        (void)st;
        free(af_adapter_config_text(&c));
    }
    af_arena_clear(&arena);
    return 0;
}
