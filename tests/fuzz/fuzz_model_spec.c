/* fuzz_model_spec.c - any bytes as a config.json, up to the list of tensors. */
#include "model/arch/arch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_hf_config c;
    af_model_spec s;
    if (af_hf_config_parse(&c, (const char *)data, size, "fuzz", NULL) != AF_OK)
        return 0;
    if (af_model_spec_init(&s, &c, NULL) == AF_OK) {
        float f[64];
        if (s.rope[0].rotary_dim / 2 <= 64)
            af_rope_inv_freq(f, &s.rope[0].config, s.rope[0].rotary_dim, s.max_positions, 10);
        af_model_spec_clear(&s);
    }
    af_hf_config_clear(&c);
    return 0;
}
