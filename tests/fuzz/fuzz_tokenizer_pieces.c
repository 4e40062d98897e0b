/* fuzz_tokenizer_pieces.c - any bytes as tokenizer.model. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_text(fuzz_put("tokenizer.model", data, size));
}
