/* fuzz_gguf_split.c - any bytes as the two files of a split GGUF model: the first two bytes are the
 * length of the first file. What opens, by the name of either file, can be read whole. */
#include "format/weights/weights.h"
#include "fuzz_file.h"

static void read_all(const char *path)
{
    af_weights *w = NULL;
    volatile uint8_t sink = 0;
    if (af_weights_open(&w, path, NULL) != AF_OK)
        return;
    for (int i = 0; i < af_weights_count(w); i++) {
        const af_stored *t = af_weights_at(w, i);
        if (t->file >= af_weights_files(w) || af_weights_find(w, t->name) != t)
            abort();
        for (uint64_t k = 0; k < t->bytes; k++)
            sink = (uint8_t)(sink + ((const uint8_t *)t->data)[k]);
    }
    af_weights_close(w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    const size_t n = AF_MIN((size_t)(data[0] | data[1] << 8), size - 2);
    (void)fuzz_put("m-00002-of-00002.gguf", data + 2 + n, size - 2 - n);
    read_all(fuzz_put("m-00001-of-00002.gguf", data + 2, n));
    read_all(fuzz_put("m-00002-of-00002.gguf", data + 2 + n, size - 2 - n));
    return 0;
}
