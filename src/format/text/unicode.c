/* unicode.c - lookups in the generated tables, and UTF-8. */
#include "format/text/unicode.h"

#include <utf8proc.h>

static void mark(af_unicode *u, const uint32_t (*set)[2], int count, uint8_t bit)
{
    for (int i = 0; i < count; i++)
        for (uint32_t c = set[i][0]; c <= set[i][1]; c++)
            u->cls[c] |= bit;
}

const uint32_t af_set_space[][2] = {
    {0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},     {0x1680, 0x1680},
    {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}};
const int af_set_space_count = (int)AF_LEN(af_set_space);

void af_unicode_init(af_unicode *u)
{
    for (int i = 0; i < af_gc_runs_count; i++) {
        const uint32_t from = af_gc_runs[i] >> 5, kind = af_gc_runs[i] & 31;
        const uint32_t to = i + 1 < af_gc_runs_count ? af_gc_runs[i + 1] >> 5 : AF_CP_COUNT;
        const bool alpha = kind <= AF_GC_LO || kind == AF_GC_NL || kind == 30;
        if (kind == 30)
            for (uint32_t c = from; c < to; c++)
                u->cls[c] = (uint8_t)(((c - from) & 1) | AF_CLASS_ALPHA);
        else
            memset(u->cls + from, (int)(kind | (alpha ? AF_CLASS_ALPHA : 0)), to - from);
    }
    mark(u, af_set_space, af_set_space_count, AF_CLASS_SPACE);
    mark(u, af_set_alphabetic, af_set_alphabetic_count, AF_CLASS_ALPHA);
}

bool af_set_has(const uint32_t (*set)[2], int count, uint32_t cp)
{
    int lo = 0, hi = count;
    while (lo < hi) {
        const int mid = (lo + hi) / 2;
        if (cp > set[mid][1])
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < count && cp >= set[lo][0];
}

bool af_unicode_word(const af_unicode *u, uint32_t cp)
{
    const af_gc g = af_unicode_gc(u, cp);
    return (u->cls[cp] & AF_CLASS_ALPHA) || (g >= AF_GC_MN && g <= AF_GC_ND) || g == AF_GC_PC ||
           cp == 0x200c || cp == 0x200d;
}

bool af_unicode_punct(const af_unicode *u, uint32_t cp)
{
    const af_gc g = af_unicode_gc(u, cp);
    if (g >= AF_GC_PC && g <= AF_GC_PO)
        return !af_set_has(af_set_punct_not, af_set_punct_not_count, cp);
    return af_set_has(af_set_punct_only, af_set_punct_only_count, cp);
}

int af_unicode_lower(uint32_t out[2], uint32_t cp)
{
    /* Mappings newer than the oldest utf8proc we build with. */
    static const uint32_t more[][2] = {{0x1c89, 0x1c8a}, {0xa7cb, 0x264},  {0xa7cc, 0xa7cd},
                                       {0xa7ce, 0xa7cf}, {0xa7d2, 0xa7d3}, {0xa7d4, 0xa7d5},
                                       {0xa7da, 0xa7db}, {0xa7dc, 0x19b}};
    out[0] = cp;
    if (cp < 0x80) {
        if (cp >= 'A' && cp <= 'Z')
            out[0] = cp + 32;
        return 1;
    }
    if (cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    if (cp >= 0x10d50 && cp <= 0x10d65)
        out[0] = cp + 0x20;
    else if (cp >= 0x16ea0 && cp <= 0x16eb8)
        out[0] = cp + 0x1b;
    else
        out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
    for (size_t i = 0; i < AF_LEN(more); i++)
        if (more[i][0] == cp)
            out[0] = more[i][1];
    return 1;
}

uint32_t af_utf8_put(char out[4], uint32_t cp)
{
    return (uint32_t)utf8proc_encode_char((utf8proc_int32_t)cp, (utf8proc_uint8_t *)out);
}

uint32_t af_utf8_bad(const char *s, uint64_t n)
{
    const uint8_t *p = (const uint8_t *)s;
    if (p[0] < 0x80)
        return 0;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 1;
    const uint32_t want = af_utf8_len(s[0]);
    /* The second byte has the narrower ranges: no overlong forms, no surrogates, <= 10FFFF. */
    const uint8_t lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    const uint8_t hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
    for (uint32_t i = 1; i < want; i++)
        if (i >= n || p[i] < (i == 1 ? lo : 0x80) || p[i] > (i == 1 ? hi : 0xbf))
            return i;
    return 0;
}

static inline bool continues(char c) { return ((uint8_t)c & 0xc0) == 0x80; }

uint64_t af_utf8_valid(const char *s, uint64_t n)
{
    uint64_t i = 0, w;
    while (i < n) {
        if (n - i >= 8 && (memcpy(&w, s + i, 8), (w & UINT64_C(0x8080808080808080)) == 0)) {
            i += 8;
            continue;
        }
        const uint8_t c = (uint8_t)s[i];
        if (c < 0x80) {
            i++;
        } else if (c > 0xe0 && c < 0xed && n - i >= 3 && continues(s[i + 1]) &&
                   continues(s[i + 2])) { /* most characters of three bytes, in place */
            i += 3;
        } else {
            if (af_utf8_bad(s + i, n - i))
                return i;
            i += af_utf8_len(s[i]);
        }
    }
    return n;
}
