/* choice_text.h - the text of one answer as its tokens come: characters that are not complete and
 * what may be the beginning of a stop string are held back. */
#ifndef AF_CHOICE_TEXT_H
#define AF_CHOICE_TEXT_H

#include "afinar/text.h"
#include "base/buf.h"

typedef struct af_choice_text {
    af_decode_stream stream;
    const char *const *stop; /* borrowed */
    int stops;
    af_buf text;   /* all of it, without the stop string */
    uint64_t safe; /* bytes of it that later tokens cannot take back */
    int32_t *ids;
    int64_t count, cap;
    bool stopped; /* by a stop string */
} af_choice_text;

void af_choice_text_init(af_choice_text *c, const af_tokenizer *t, bool skip_special,
                         const char *const *stop, int stops);
void af_choice_text_clear(af_choice_text *c);
/* One more token; an end token counts but has no text. */
AF_CHECKED af_status af_choice_text_add(af_choice_text *c, int32_t id, bool is_end, af_error *err);
/* The answer is complete: nothing is held back any more. */
AF_CHECKED af_status af_choice_text_finish(af_choice_text *c, af_error *err);
#endif
