/* answer_text.h - the text of an answer while its tokens come: complete characters only, ended by
 * stop strings, and what could be the beginning of one held back. */
#ifndef AF_ANSWER_TEXT_H
#define AF_ANSWER_TEXT_H

#include "afinar/text.h"
#include "base/buf.h"

typedef struct af_answer_text {
    const af_tokenizer *tokenizer; /* NULL: no text */
    const char *const *stop;       /* [stops], borrowed */
    int stops;
    af_decode_stream stream;
    af_buf text;      /* all of it, without the stop string */
    uint64_t emitted; /* bytes of it that the caller has */
    bool stopped;     /* by a stop string */
} af_answer_text;

void af_answer_text_init(af_answer_text *t, const af_tokenizer *tokenizer, const char *const *stop,
                         int stops, bool skip_special);
void af_answer_text_clear(af_answer_text *t); /* all zero is allowed */
/* Adds a token. *text, *len: what may be shown now (borrowed until the next call), perhaps nothing.
 */
AF_CHECKED af_status af_answer_text_add(af_answer_text *t, int32_t id, const char **text,
                                        uint64_t *len, af_error *err);
/* After the last token: what was held back. */
void af_answer_text_end(af_answer_text *t, const char **text, uint64_t *len);
#endif
