/* grammar.h - output held to a grammar: a JSON schema, GBNF rules, a regular expression or the
 * calls of tools become masks over token ids.
 *
 * A grammar is compiled once to a byte-level automaton with a stack; which tokens may follow in a
 * state of it is computed when it is first asked for, and kept. What is allowed depends on the
 * grammar and the tokens so far alone. A text that ends where the grammar lets it end always fits.
 * Size and time are bounded for any input: what is too large or too ambiguous is an error.
 *
 * A vocabulary is constant and may be shared by threads. Calls with states of one grammar may come
 * from several threads: a lock in the grammar orders them. */
#ifndef AFINAR_GRAMMAR_H
#define AFINAR_GRAMMAR_H

#include "afinar/status.h"
#include "afinar/text.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AF_GRAMMAR_SOURCE_MAX = 4 << 20 }; /* bytes of a schema or of GBNF rules */

/* The tokens of a tokenizer by their bytes, made once for all grammars. */
typedef struct af_grammar_vocab af_grammar_vocab;
/* A compiled grammar. */
typedef struct af_grammar af_grammar;
/* How far one answer has come in it. */
typedef struct af_grammar_state af_grammar_state;

typedef enum af_grammar_kind {
    AF_GRAMMAR_JSON_OBJECT, /* any JSON object; there is no text */
    AF_GRAMMAR_JSON_SCHEMA, /* JSON text of a schema */
    AF_GRAMMAR_GBNF,        /* rules in llama.cpp's notation, beginning with `root` */
    /* calls of tools and nothing else. JSON text: {"format": "tags" (Hermes, Qwen), "llama",
     * "mistral", "args" (Mistral since 2025) or "channels" (gpt-oss), "tools": as in a request,
     * "tool_choice": "required" or {"type": "function", "function": {"name"}},
     * "parallel_tool_calls": bool}; with "answer", a schema, in place of "tool_choice": a text that
     * fits it, or calls */
    AF_GRAMMAR_TOOLS,
    AF_GRAMMAR_REGEX, /* a regular expression for the whole text, as in "pattern" of a schema */
} af_grammar_kind;

/* The tokenizer is read during this call alone. On success *out belongs to the
 * caller; close it with af_grammar_vocab_close after the grammars that use it. */
AF_API AF_CHECKED af_status af_grammar_vocab_open(af_grammar_vocab **out, const af_tokenizer *t,
                                                  af_error *err);
/* One more id that ends an answer (those of af_tokenizer_stops are known): an adapter's. */
AF_API AF_CHECKED af_status af_grammar_vocab_add_stop(af_grammar_vocab *v, int32_t id,
                                                      af_error *err);
/* NULL is allowed. */
AF_API void af_grammar_vocab_close(af_grammar_vocab *v);

/* Compiles `len` bytes of `text`. AF_EFORMAT for text that is not a schema or grammar (with the
 * place), AF_EUNSUPPORTED for a keyword that restricts and is not kept (err->subject names it),
 * AF_EUSAGE when no text can fit or limits are exceeded. On success *out is the caller's. `v` may
 * be NULL for a grammar that is only asked with af_grammar_matches. */
AF_API AF_CHECKED af_status af_grammar_open(af_grammar **out, af_grammar_kind kind,
                                            const char *text, uint64_t len,
                                            const af_grammar_vocab *v, af_error *err);
/* NULL is allowed. All states must be freed before. */
AF_API void af_grammar_close(af_grammar *g);

/* Does the whole text fit? */
AF_API AF_CHECKED af_status af_grammar_matches(af_grammar *g, const char *text, uint64_t len,
                                               bool *fits, af_error *err);

/* A state at the beginning of an answer. On success *out is the caller's. */
AF_API AF_CHECKED af_status af_grammar_state_new(af_grammar_state **out, af_grammar *g,
                                                 af_error *err);
/* NULL is allowed. */
AF_API void af_grammar_state_free(af_grammar_state *s);
/* Moves over one token. AF_EUSAGE when the grammar does not allow it; the state stays as it was. */
AF_API AF_CHECKED af_status af_grammar_state_accept(af_grammar_state *s, int32_t id, af_error *err);
/* Sets bit id % 32 of allowed[id / 32] for every id that may follow and clears all others, for ids
 * below `ids` (a multiple of 32 is not needed; the bits up to the next one are cleared). Ids that
 * end an answer are allowed where it may end, and alone after its end. AF_EUSAGE when no token can
 * follow: the vocabulary lacks the bytes the grammar wants, or it has no id that ends. */
AF_API AF_CHECKED af_status af_grammar_state_mask(af_grammar_state *s, uint32_t *allowed,
                                                  int64_t ids, af_error *err);
/* May the answer end here? */
AF_API bool af_grammar_state_can_end(const af_grammar_state *s);
/* Must it end here, because nothing can follow? */
AF_API bool af_grammar_state_must_end(const af_grammar_state *s);

#ifdef __cplusplus
}
#endif
#endif
