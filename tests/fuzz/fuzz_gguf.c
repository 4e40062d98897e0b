/* Any bytes are a GGUF file or a clean error; what opens can be read whole, and its metadata can be
 * turned into a config or a clean error. */
#include "format/config/hf_config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_error err;
    af_gguf *g = NULL;
    af_hf_config c = {0};
    if (af_gguf_parse(&g, data, size, "fuzz", &err) != AF_OK)
        return 0;
    volatile uint8_t sink = 0;
    for (int i = 0; i < af_gguf_count(g); i++) {
        const af_stored *w = af_gguf_at(g, i);
        if (w->bytes)
            sink = (uint8_t)(sink + ((const uint8_t *)w->data)[0] +
                             ((const uint8_t *)w->data)[w->bytes - 1]);
    }
    for (int i = 0; i < af_gguf_kv_count(g); i++) {
        const af_gguf_kv *kv = af_gguf_kv_at(g, i);
        for (uint64_t k = 0; k < kv->count && k < 64; k++) {
            sink = (uint8_t)(sink + (uint8_t)af_gguf_item_int(kv, k));
            if (kv->str && kv->str[k].len)
                sink = (uint8_t)(sink + (uint8_t)kv->str[k].at[kv->str[k].len - 1]);
        }
    }
    if (af_hf_config_from_gguf(&c, g, &err) == AF_OK)
        af_hf_config_clear(&c);
    af_gguf_close(g);
    return 0;
}
