/* fuzz_merge_config.c - mergekit files: parsing, checking and evaluating parameters. */
#include "convert/merge/merge_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_merge_config c = {0};
    if (af_merge_config_parse(&c, (const char *)data, size, "fuzz", NULL) != AF_OK)
        return 0;
    for (int i = 0; i < c.slices; i++)
        for (int k = 0; k < c.slice[i].sources; k++)
            for (int p = 0; c.method->params[p]; p++) {
                double v;
                bool found;
                if (af_merge_param(&c, c.method->params[p], "model.layers.0.mlp.up_proj.weight",
                                   0.5, &c.slice[i], &c.slice[i].source[k], &v, &found,
                                   NULL) != AF_OK)
                    break;
            }
    af_merge_config_clear(&c);
    return 0;
}
