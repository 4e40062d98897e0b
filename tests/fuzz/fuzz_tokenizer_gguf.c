/* fuzz_tokenizer_gguf.c - any bytes as a GGUF file with a tokenizer. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_text(fuzz_put("model.gguf", data, size));
}
