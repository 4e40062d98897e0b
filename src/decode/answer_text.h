/* answer_text.h - an answer while its tokens come: the ids, and the text of complete characters,
 * ended by stop strings, of which a part may still be taken back (it could begin a stop string). */
#ifndef AF_ANSWER_TEXT_H
#define AF_ANSWER_TEXT_H

#include "afinar/text.h"
#include "base/buf.h"

typedef struct af_answer_text {
    const af_tokenizer *tokenizer; /* NULL: ids alone */
    const char *const *stop;       /* [stops], borrowed */
    int stops;
    af_decode_stream stream;
    af_buf text;         /* all of it, without the stop string */
    uint64_t safe;       /* bytes of it that later tokens cannot take back */
    const char *stopped; /* the stop string that ended it, or NULL */
    int32_t *ids;        /* [count] */
    int64_t count, cap;
    int64_t min_tokens; /* stop strings are looked for in the text after so many */
    uint64_t from;      /* where that begins */
} af_answer_text;

void af_answer_text_init(af_answer_text *t, const af_tokenizer *tokenizer, const char *const *stop,
                         int stops, bool skip_special);
void af_answer_text_clear(af_answer_text *t); /* all zero is allowed */
/* Adds a token; one that is not `shown` (an end token) has no text. */
AF_CHECKED af_status af_answer_text_add(af_answer_text *t, int32_t id, bool shown, af_error *err);
/* After the last token: all of the text is safe. With `rest` the bytes of the last tokens that are
 * not a whole character are added as U+FFFD. */
AF_CHECKED af_status af_answer_text_end(af_answer_text *t, bool rest, af_error *err);
#endif
