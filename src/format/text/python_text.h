/* python_text.h - text as Python has it: character classes and case of str, the text of a float,
 * and the fields of "..." % values and str.format. Strings are valid UTF-8. */
#ifndef AF_PYTHON_TEXT_H
#define AF_PYTHON_TEXT_H

#include "base/base.h"
#include "base/buf.h"

#include <time.h>

#define AF_PY_FIELD_MAX 100000000 /* widest field, in characters */

bool af_py_space(uint32_t cp); /* str.isspace() */
bool af_py_printable(uint32_t cp);
/* 'u'pper 'l'ower 't'itle 'c'apitalize 's'wapcase 'f' casefold */
void af_py_case(af_buf *b, const char *s, uint64_t n, char how);

/* str.isupper() and relatives: 'a'lpha 'd'igit 'c' decimal 'n'umeric 'u'pper 'l'ower 't'itle,
 * 'w' isalnum, 's' isspace, 'p' isprintable, 'i' isascii, '_' isidentifier. */
bool af_py_is_all(const char *s, uint64_t n, char what);

/* str.strip(): narrows s[from, to) by the characters of a set (NULL: white space) on the 'l'eft,
 * the 'r'ight or 'b'oth sides. */
void af_py_strip(const char *s, uint64_t *from, uint64_t *to, const char *set, uint64_t n,
                 char sides);
uint64_t af_py_word(const char *s, uint64_t n); /* bytes before white space or the end */
/* Bytes of the first line with its line break, whose bytes go to *line_break when there is one. */
uint64_t af_py_line(const char *s, uint64_t n, uint64_t *line_break);
void af_py_replace(af_buf *b, const char *s, uint64_t n, const char *old, uint64_t old_n,
                   const char *new, uint64_t new_n, int64_t max); /* max -1 = all */
void af_py_expandtabs(af_buf *b, const char *s, uint64_t n, int64_t size);
/* str.center(), ljust() ('l'), rjust() ('r') with `pad` more characters. */
void af_py_pad(af_buf *b, const char *s, uint64_t n, int64_t pad, const char *fill, uint64_t fill_n,
               char side);
/* Jinja's filters title, wordcount, striptags and filesizeformat. */
void af_py_title_words(af_buf *b, const char *s, uint64_t n);
int64_t af_py_count_words(const char *s, uint64_t n);
void af_py_striptags(af_buf *b, const char *s, uint64_t n);
void af_py_filesize(af_buf *b, double bytes, bool binary);
void af_py_html(af_buf *b, const char *s, uint64_t n);                  /* markupsafe.escape() */
void af_py_quote_url(af_buf *b, const char *s, uint64_t n, bool query); /* urllib's quote() */

/* int(text, base) and float(text): false when Python would raise ValueError, or beyond 64 bits. */
bool af_py_parse_int(const char *s, uint64_t n, int64_t base, int64_t *out);
bool af_py_parse_float(const char *s, uint64_t n, double *out);
/* round(x, digits): correctly rounded decimal, ties to even. */
double af_py_round(double x, int64_t digits);
/* repr() of a string. */
void af_py_quote(af_buf *b, const char *s, uint64_t n);
/* Decodes the escape after a backslash in a string literal (NUL-terminated). Returns the bytes it
 * took, 0 when it is wrong or named (\N{...}), -1 when it is not an escape: the backslash is
 * literal.
 */
int af_py_unescape(af_buf *b, const char *s);
/* datetime.strftime in the C locale; of `when` only year to second count. */
void af_py_strftime(af_buf *b, const struct tm *when, const char *fmt, uint64_t n);
/* repr() of a float: the shortest text that reads back as the same value. */
void af_py_float(af_buf *b, double f);

/* How a value is written in its field: the text after the colon in "{:>10.2f}". */
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
