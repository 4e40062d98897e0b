/* fuzz_tokenizer.c - tokenizer.json from anywhere, then a text through what it describes.
 *
 * The input is the file, a NUL byte, and the text; without a NUL the text is the file itself. */
#include "afinar/text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    const size_t n = nul ? (size_t)(nul - data) : size;
    const char *text = nul ? (const char *)nul + 1 : (const char *)data;
    const size_t len = nul ? size - n - 1 : size;
    af_error err = {0};
    af_tokenizer *t = NULL;
    af_encoding e = {0};
    char *back = NULL;
    if (af_tokenizer_from_json(&t, (const char *)data, n, &err) != AF_OK)
        return 0;
    if (af_tokenizer_encode(t, &e, text, len, true, &err) == AF_OK &&
        af_tokenizer_decode(t, &back, NULL, e.ids, e.count, false, &err) == AF_OK)
        free(back);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    return 0;
}
