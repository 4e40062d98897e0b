/* Any bytes are a file of torch.save or a clean error. */
#include "format/weights/torch_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_error err;
    af_torch_file *f = NULL;
    if (af_torch_file_parse(&f, data, size, "fuzz", &err) != AF_OK)
        return 0;
    volatile uint8_t sink = 0;
    for (int i = 0; i < af_torch_file_count(f); i++) {
        const af_stored *w = af_torch_file_at(f, i);
        if (w->bytes)
            sink = (uint8_t)(sink + ((const uint8_t *)w->data)[0] +
                             ((const uint8_t *)w->data)[w->bytes - 1]);
    }
    af_torch_file_close(f);
    return 0;
}
