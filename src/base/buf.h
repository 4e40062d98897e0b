/* buf.h - a growing byte string. Always NUL-terminated at `len`, so `data` is also a C string.
 *
 * Appends latch failure: after running out of memory (or past `limit`, 0 = none) `bad` is true and
 * later appends do nothing, so that callers check once at the end. All zero is an empty buffer. */
#ifndef AF_BUF_H
#define AF_BUF_H

#include "base/base.h"

typedef struct af_buf {
    char *data;
    uint64_t len, cap, limit;
    bool bad;
} af_buf;

void af_buf_add(af_buf *b, const void *bytes, uint64_t n);
void af_buf_str(af_buf *b, const char *s);
void af_buf_char(af_buf *b, char c);
AF_PRINTF(2, 3) void af_buf_printf(af_buf *b, const char *fmt, ...);
/* Appends one code point as UTF-8. */
void af_buf_utf8(af_buf *b, uint32_t cp);
void af_buf_base64(af_buf *b, const void *bytes, uint64_t n);
/* Room for n more bytes, uninitialised and not counted in len; NULL when bad. */
char *af_buf_reserve(af_buf *b, uint64_t n);
/* Hands the string over to the caller (free()); the buffer is empty again. NULL when bad. */
char *af_buf_take(af_buf *b);
void af_buf_clear(af_buf *b);
#endif
