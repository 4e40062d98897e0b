/* fuzz_text.h - a text through a tokenizer that was made of any bytes. */
#ifndef AF_FUZZ_TEXT_H
#define AF_FUZZ_TEXT_H
#include "fuzz_file.h"

#include "format/tokenizer/tokenizer.h"

/* What opens encodes and decodes a text, which lies in memory of its exact size. */
static inline int fuzz_text(const char *path)
{
    static const char all[] =
        " Hello,  <s> <|im_end|> 12 \xc3\xa9\n  x\xe4\xb8\xad \xef\xac\x81\xc3\xa9";
    const uint64_t n = sizeof all - 1;
    af_tokenizer *t = NULL;
    af_encoding e = {0};
    char *text = malloc(n), *out = NULL;
    uint64_t len = 0;
    if (!text)
        abort();
    memcpy(text, all, n);
    if (af_tokenizer_open(&t, path, NULL) == AF_OK &&
        af_tokenizer_encode(t, &e, text, n, true, NULL) == AF_OK)
        (void)!af_tokenizer_decode(t, &out, &len, e.ids, e.count, false, NULL);
    free(out);
    free(text);
    af_encoding_clear(&e);
    af_tokenizer_close(t);
    return 0;
}
#endif
