/* fuzz_regex.c - regular expressions as grammars. */
#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(AF_GRAMMAR_REGEX, data, size);
}
