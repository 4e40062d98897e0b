/* buf.c - growing byte string. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char *af_buf_reserve(af_buf *b, uint64_t n)
{
    uint64_t need;
    if (b->bad || !af_add_ok(b->len, n, &need) || !af_add_ok(need, 1, &need) ||
        (b->limit && need > b->limit + 1)) {
        b->bad = true;
        return NULL;
    }
    if (need > b->cap) {
        const uint64_t cap = AF_MAX(need, AF_MAX(b->cap * 2, 64));
        char *p = af_realloc(b->data, cap, 1);
        if (!p) {
            b->bad = true;
            return NULL;
        }
        b->data = p;
        b->cap = cap;
    }
    return b->data + b->len;
}

void af_buf_add(af_buf *b, const void *bytes, uint64_t n)
{
    char *p = af_buf_reserve(b, n);
    if (!p)
        return;
    if (n)
        memcpy(p, bytes, n);
    b->len += n;
    b->data[b->len] = '\0';
}

void af_buf_str(af_buf *b, const char *s) { af_buf_add(b, s, strlen(s)); }
void af_buf_char(af_buf *b, char c) { af_buf_add(b, &c, 1); }

void af_buf_printf(af_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0) /* the only reason there is */
        af_memory_note();
    char *p = n < 0 ? NULL : af_buf_reserve(b, (uint64_t)n);
    if (!p) {
        b->bad = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (uint64_t)n;
}

void af_buf_utf8(af_buf *b, uint32_t cp)
{
    char u[4];
    int n;
    if (cp < 0x80) {
        u[0] = (char)cp;
        n = 1;
    } else if (cp < 0x800) {
        u[0] = (char)(0xC0 | cp >> 6);
        u[1] = (char)(0x80 | (cp & 63));
        n = 2;
    } else if (cp < 0x10000) {
        u[0] = (char)(0xE0 | cp >> 12);
        u[1] = (char)(0x80 | (cp >> 6 & 63));
        u[2] = (char)(0x80 | (cp & 63));
        n = 3;
    } else {
        u[0] = (char)(0xF0 | (cp >> 18 & 7));
        u[1] = (char)(0x80 | (cp >> 12 & 63));
        u[2] = (char)(0x80 | (cp >> 6 & 63));
        u[3] = (char)(0x80 | (cp & 63));
        n = 4;
    }
    af_buf_add(b, u, (uint64_t)n);
}

char *af_buf_take(af_buf *b)
{
    if (!b->data)
        af_buf_add(b, "", 0);
    char *p = b->bad ? NULL : b->data;
    if (!p)
        free(b->data);
    *b = (af_buf){.limit = b->limit};
    return p;
}

void af_buf_clear(af_buf *b)
{
    free(b->data);
    *b = (af_buf){.limit = b->limit};
}

void af_buf_base64(af_buf *b, const void *bytes, uint64_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = bytes;
    for (uint64_t i = 0; i < n; i += 3) {
        const uint64_t left = n - i;
        const uint32_t v = (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                           (left > 2 ? p[i + 2] : 0);
        const char four[] = {digits[v >> 18], digits[v >> 12 & 63],
                             left > 1 ? digits[v >> 6 & 63] : '=', left > 2 ? digits[v & 63] : '='};
        af_buf_add(b, four, 4);
    }
}
