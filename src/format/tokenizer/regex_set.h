/* regex_set.h - sets of code points for the regex translator: parsing of character classes and
 * properties in Oniguruma's Ruby syntax, evaluated with our own Unicode tables. */
#ifndef AF_REGEX_SET_H
#define AF_REGEX_SET_H

#include "base/buf.h"
#include "format/text/unicode.h"

typedef struct af_regex_set {
    uint64_t bits[AF_CP_COUNT / 64];
} af_regex_set;

typedef struct af_regex_reader { /* what is being read */
    const char *at, *end;
    af_error *err;
    int depth;
} af_regex_reader;

/* Adds the class of \d \w \s \h (or the capital: its complement). False when c is none of them. */
bool af_regex_set_shorthand(af_regex_set *s, char c);
/* What \w has outside of brackets only. */
void af_regex_set_bare_word(af_regex_set *s);
void af_regex_set_invert(af_regex_set *s);
/* Reads {Name} or {^Name} after \p or \P and adds it. */
AF_CHECKED af_status af_regex_set_property(af_regex_set *s, af_regex_reader *p, bool negated);
/* Reads a class after its '[' up to and with its ']'. */
AF_CHECKED af_status af_regex_set_class(af_regex_set *s, af_regex_reader *p);
/* Reads the number of \xHH, \x{H...}, \uHHHH, \u{H...}, \0oo after the letter. */
AF_CHECKED af_status af_regex_reader_number(af_regex_reader *p, char kind, uint32_t *cp);
/* Appends the set as a PCRE2 class. */
void af_regex_set_write(const af_regex_set *s, af_buf *out);
#endif
