/* fuzz_schema.c - JSON schemas from anywhere, and a document that is read by them. */
#include "fuzz/fuzz_grammar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_grammar(AF_GRAMMAR_JSON_SCHEMA, data, size);
}
