/* fuzz_gbnf.c - rules in GBNF from anywhere, and a text that is read by them. */
#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(AF_GRAMMAR_GBNF, data, size);
}
