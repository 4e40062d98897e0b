/* jinja_spec.h - formatting one number or string in a field. */
#ifndef AF_JINJA_SPEC_H
#define AF_JINJA_SPEC_H

#include "format/jinja/jinja.h"

typedef struct af_jspec {
    uint32_t fill;
    char align, sign, group, type; /* 0 = not given */
    bool alt, zero;
    int64_t width, precision; /* precision -1 = not given */
} af_jspec;

/* False when the text is no specification. */
bool af_jspec_parse(af_jspec *s, const char *p, uint64_t n);
void af_jspec_int(af_buf *b, const af_jspec *s, int64_t v, int64_t min_digits);
/* False when the precision is absurd. */
bool af_jspec_float(af_buf *b, const af_jspec *s, double v);
void af_jspec_str(af_buf *b, const af_jspec *s, const af_jstr *v);
#endif
