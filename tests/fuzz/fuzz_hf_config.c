/* Any bytes are a config.json and a generation_config.json or clean errors. */
#include "format/config/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_error err;
    af_hf_config c = {0};
    af_generation_config g;
    if (af_hf_config_parse(&c, (const char *)data, size, "fuzz", &err) == AF_OK) {
        int64_t sliding = 0;
        for (int64_t i = 0; i < c.num_hidden_layers; i++)
            sliding += c.layer_types[i] == AF_LAYER_SLIDING;
        if (sliding && !c.sliding_window)
            abort();
        af_hf_config_clear(&c);
    }
    if (af_generation_config_parse(&g, (const char *)data, size, "fuzz", &err) == AF_OK &&
        g.eos_count > AF_CONFIG_EOS_MAX)
        abort();
    return 0;
}
