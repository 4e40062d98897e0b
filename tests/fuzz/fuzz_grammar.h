/* fuzz_grammar.h - a grammar and a document in one input: "grammar" NUL "document". */
#ifndef AF_FUZZ_GRAMMAR_H
#define AF_FUZZ_GRAMMAR_H

#include "afinar/grammar.h"

#include <stddef.h>
#include <string.h>

static int fuzz_grammar(af_grammar_kind kind, const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    const size_t n = nul ? (size_t)(nul - data) : size;
    const char *text = nul ? (const char *)nul + 1 : (const char *)data;
    const size_t len = nul ? size - n - 1 : size;
    af_error err = {0};
    af_grammar *g = NULL;
    bool fits = false;
    if (af_grammar_open(&g, kind, (const char *)data, n, NULL, &err) != AF_OK)
        return 0;
    if (af_grammar_matches(g, text, len, &fits, &err) != AF_OK)
        fits = false;
    af_grammar_close(g);
    return 0;
}
#endif
