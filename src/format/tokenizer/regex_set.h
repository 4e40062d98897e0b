/* regex_set.h - sets of code points for the regex translator: parsing of character classes and
 * properties in Oniguruma's Ruby syntax, evaluated with our own Unicode tables. */
#ifndef AF_REGEX_SET_H
#define AF_REGEX_SET_H

#include "base/buf.h"
#include "format/text/unicode.h"

typedef struct af_cpset {
    uint64_t bits[AF_CP_COUNT / 64];
} af_cpset;

typedef struct af_pattern { /* what is being read */
    const char *at, *end;
    af_error *err;
    int depth;
} af_pattern;

/* Adds the class of \d \w \s \h (or the capital: its complement). False when c is none of them. */
bool af_cpset_shorthand(af_cpset *s, char c);
/* What \w has outside of brackets only. */
void af_cpset_bare_word(af_cpset *s);
void af_cpset_invert(af_cpset *s);
/* Reads {Name} or {^Name} after \p or \P and adds it. */
AF_CHECKED af_status af_cpset_property(af_cpset *s, af_pattern *p, bool negated);
/* Reads a class after its '[' up to and with its ']'. */
AF_CHECKED af_status af_cpset_class(af_cpset *s, af_pattern *p);
/* Reads the number of \xHH, \x{H...}, \uHHHH, \u{H...}, \0oo after the letter. */
AF_CHECKED af_status af_pattern_number(af_pattern *p, char kind, uint32_t *cp);
/* Appends the set as a PCRE2 class. */
void af_cpset_write(const af_cpset *s, af_buf *out);
#endif
