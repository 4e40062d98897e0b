/* fuzz_bnb_state.c - any bytes as a safetensors file: which tensors are bitsandbytes weights, and
 * are their parts whole? */
#include "format/weights/bnb_state.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    af_weights *w = NULL;
    volatile uint8_t sink = 0;
    if (af_weights_open(&w, fuzz_put("model.safetensors", data, size), NULL) != AF_OK)
        return 0;
    for (int i = 0; i < af_weights_count(w); i++) {
        af_bnb_state s;
        bool found = false;
        const char *name = af_weights_at(w, i)->name;
        (void)af_bnb_is_part(w, name);
        if (af_bnb_state_find(&s, &found, w, name, NULL) != AF_OK || !found || s.count == 0)
            continue;
        const int64_t codes = s.type == AF_DTYPE_I8 ? s.count : (s.count + 1) / 2;
        sink = (uint8_t)(sink + s.codes[0] + s.codes[codes - 1]);
        if (s.nested)
            sink = (uint8_t)(sink + s.nested[(s.count + s.block - 1) / s.block - 1]);
        else if (s.absmax && s.block > 0)
            sink = (uint8_t)(sink + (s.absmax[(s.count + s.block - 1) / s.block - 1] > 0));
    }
    af_weights_close(w);
    return 0;
}
