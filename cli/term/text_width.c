/* text_width.c - see text_width.h. */
#include "term/text_width.h"

unsigned af_text_char(const char *s, size_t n, size_t *len)
{
    const unsigned char c = (unsigned char)s[0];
    const size_t tails = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
    unsigned v = tails ? c & (0x3fu >> tails) : c;
    for (*len = 1; *len <= tails && *len < n && ((unsigned char)s[*len] & 0xc0) == 0x80; ++*len)
        v = v << 6 | ((unsigned char)s[*len] & 0x3f);
    return v;
}

int af_text_width(const char *s, size_t n)
{
    static const struct {
        unsigned from, to;
        int width;
    } odd[] = {{0x300, 0x36f, 0},     {0x1100, 0x115f, 2},   {0x200b, 0x200f, 0},
               {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},
               {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},   {0xff00, 0xff60, 2},
               {0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
               {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2}};
    int w = 0;
    for (size_t i = 0, len; i < n; i += len) {
        const unsigned c = af_text_char(s + i, n - i, &len);
        int one = 1;
        for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++)
            if (c >= odd[k].from && c <= odd[k].to)
                one = odd[k].width;
        w += one;
    }
    return w;
}
