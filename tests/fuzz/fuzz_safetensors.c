/* Any bytes are a safetensors file or a clean error. */
#include "format/weights/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_error err;
    af_safetensors *s = NULL;
    if (af_safetensors_parse(&s, data, size, "fuzz", &err) != AF_OK)
        return 0;
    volatile uint8_t sink = 0;
    for (int i = 0; i < af_safetensors_count(s); i++) {
        const af_stored *w = af_safetensors_at(s, i);
        if (w->bytes)
            sink = (uint8_t)(sink + ((const uint8_t *)w->data)[0] +
                             ((const uint8_t *)w->data)[w->bytes - 1]);
        if (af_safetensors_find(s, w->name) != w)
            abort();
    }
    af_safetensors_close(s);
    return 0;
}
