/* fuzz_tokenizer_ranks.c - any bytes as tekken.json, or as a file of tiktoken. */
#include "fuzz_file.h"

#include "format/tokenizer/tokenizer_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *vocab = json_object(), *merges = json_array(), *specials = json_array();
    const char *path = fuzz_put("ranks", data, size);
    char *pattern = NULL;
    af_error err;
    if (size > 0 && data[0] == '{')
        (void)!af_tekken_read(vocab, merges, specials, &pattern, path, &err);
    else
        (void)!af_tiktoken_read(vocab, merges, path, &err);
    json_decref(vocab);
    json_decref(merges);
    json_decref(specials);
    free(pattern);
    return 0;
}
