/* fuzz_tokenizer_pieces.c - any bytes as tokenizer.model; what opens encodes and decodes a text. */
#include "format/tokenizer/tokenizer.h"
#include "fuzz_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = " Hello,  <s> <|im_end|> 12 \xc3\xa9\n  x\xe4\xb8\xad \xef\xac\x81 ";
    af_tokenizer *t = NULL;
    af_encoding e = {0};
    char *out = NULL;
    uint64_t len = 0;
    if (af_tokenizer_open(&t, fuzz_put("tokenizer.model", data, size), NULL) != AF_OK)
        return 0;
    if (af_tokenizer_encode(t, &e, text, sizeof text - 1, true, NULL) == AF_OK)
        (void)!af_tokenizer_decode(t, &out, &len, e.ids, e.count, false, NULL);
    free(out);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    return 0;
}
