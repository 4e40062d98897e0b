/* python_text.h - text as Python has it: character classes and case of str, the text of a float,
 * and the fields of "..." % values and str.format. Strings are valid UTF-8. */
#ifndef AF_PYTHON_TEXT_H
#define AF_PYTHON_TEXT_H

#include "base/base.h"
#include "base/buf.h"

#define AF_PY_FIELD_MAX 100000000 /* widest field, in characters */

bool af_py_space(uint32_t cp); /* str.isspace() */
bool af_py_printable(uint32_t cp);
/* 'a'lpha 'd'igit 'c' decimal 'n'umeric 'u'pper 'l'ower 't'itle */
bool af_py_is(uint32_t cp, char what);
/* 'u'pper 'l'ower 't'itle 'c'apitalize 's'wapcase 'f' casefold */
void af_py_case(af_buf *b, const char *s, uint64_t n, char how);

/* repr() of a float: the shortest text that reads back as the same value. */
void af_py_float(af_buf *b, double f);

/* How a value stands in its field: the text after the colon in "{:>10.2f}". */
typedef struct af_py_spec {
    uint32_t fill;
    char align, sign, group, type; /* 0 = not given */
    bool alt;
    int64_t width, precision; /* precision -1 = not given */
} af_py_spec;

/* False when the text is not a specification. */
bool af_py_spec_parse(af_py_spec *s, const char *p, const char *end);
/* A decimal number, at most AF_PY_FIELD_MAX; *p moves past it. */
int64_t af_py_digits(const char **p, const char *end);
void af_py_int_field(af_buf *b, const af_py_spec *s, int64_t v, int64_t min_digits);
bool af_py_float_field(af_buf *b, const af_py_spec *s, double v); /* false: absurd precision */
void af_py_str_field(af_buf *b, const af_py_spec *s, const char *p, uint64_t n);
#endif
