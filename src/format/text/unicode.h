/* unicode.h - what the tokenizers need to know about characters, for one fixed Unicode version.
 *
 * The tables follow the `tokenizers` package (Unicode 16 in its regex engine), not the libraries of
 * the machine, so that the same text gives the same ids everywhere. */
#ifndef AF_UNICODE_H
#define AF_UNICODE_H

#include "base/base.h"

typedef enum af_gc {
    AF_GC_LU,
    AF_GC_LL,
    AF_GC_LT,
    AF_GC_LM,
    AF_GC_LO,
    AF_GC_MN,
    AF_GC_MC,
    AF_GC_ME,
    AF_GC_ND,
    AF_GC_NL,
    AF_GC_NO,
    AF_GC_PC,
    AF_GC_PD,
    AF_GC_PS,
    AF_GC_PE,
    AF_GC_PI,
    AF_GC_PF,
    AF_GC_PO,
    AF_GC_SM,
    AF_GC_SC,
    AF_GC_SK,
    AF_GC_SO,
    AF_GC_ZS,
    AF_GC_ZL,
    AF_GC_ZP,
    AF_GC_CC,
    AF_GC_CF,
    AF_GC_CO,
    AF_GC_CN,
    AF_GC_CS,
    AF_GC_COUNT
} af_gc;

enum {
    AF_CP_COUNT = 0x110000,
    AF_CLASS_SPACE = 0x20, /* White_Space: not the same as category Z */
    AF_CLASS_ALPHA = 0x40, /* Alphabetic */
};

/* One byte per code point: category | AF_CLASS_* bits. */
typedef struct af_unicode {
    uint8_t cls[AF_CP_COUNT];
} af_unicode;

void af_unicode_init(af_unicode *u);

extern const uint32_t af_gc_runs[];
extern const int af_gc_runs_count;
extern const uint32_t af_set_space[][2]; /* White_Space */
extern const int af_set_space_count;
extern const uint32_t af_set_alphabetic[][2], af_set_punct_only[][2], af_set_punct_not[][2],
    af_set_mark_not[][2], af_set_inert[][2], af_set_bert_mark_not[][2], af_set_lower_more[][2],
    af_set_upper_more[][2], af_set_han[][2], af_set_hiragana[][2], af_set_katakana[][2],
    af_set_hangul[][2], af_set_latin[][2], af_set_cyrillic[][2], af_set_greek[][2],
    af_set_arabic[][2], af_set_hebrew[][2], af_set_thai[][2], af_set_devanagari[][2];
extern const int af_set_alphabetic_count, af_set_punct_only_count, af_set_punct_not_count,
    af_set_mark_not_count, af_set_inert_count, af_set_bert_mark_not_count, af_set_lower_more_count,
    af_set_upper_more_count, af_set_han_count, af_set_hiragana_count, af_set_katakana_count,
    af_set_hangul_count, af_set_latin_count, af_set_cyrillic_count, af_set_greek_count,
    af_set_arabic_count, af_set_hebrew_count, af_set_thai_count, af_set_devanagari_count;

/* Is cp in a sorted table of ranges? */
bool af_set_has(const uint32_t (*set)[2], int count, uint32_t cp);

static inline af_gc af_unicode_gc(const af_unicode *u, uint32_t cp)
{
    return (af_gc)(u->cls[cp] & 31);
}
static inline bool af_unicode_space(const af_unicode *u, uint32_t cp)
{
    return (u->cls[cp] & AF_CLASS_SPACE) != 0;
}
static inline bool af_unicode_number(const af_unicode *u, uint32_t cp)
{
    const af_gc g = af_unicode_gc(u, cp);
    return g >= AF_GC_ND && g <= AF_GC_NO;
}
/* \w of the plain regex engine (added tokens, Whitespace): Alphabetic, M, Nd, Pc, joiners. */
bool af_unicode_word(const af_unicode *u, uint32_t cp);
/* What the Punctuation and Bert pre-tokenizers isolate. */
bool af_unicode_punct(const af_unicode *u, uint32_t cp);
/* Writes the lower case of cp (one or two code points); returns how many. */
int af_unicode_lower(uint32_t out[2], uint32_t cp);

/* Decodes one character of valid UTF-8; returns its length. */
static inline uint32_t af_utf8_get(const char *s, uint32_t *cp)
{
    const uint8_t *p = (const uint8_t *)s;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xe0) {
        *cp = (uint32_t)(p[0] & 0x1f) << 6 | (p[1] & 0x3f);
        return 2;
    }
    if (p[0] < 0xf0) {
        *cp = (uint32_t)(p[0] & 0xf) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
        return 3;
    }
    *cp = (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 0x3f) << 12 |
          (uint32_t)(p[2] & 0x3f) << 6 | (p[3] & 0x3f);
    return 4;
}
static inline uint32_t af_utf8_len(char lead)
{
    const uint8_t b = (uint8_t)lead;
    return b < 0x80 ? 1 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : 4;
}
static inline bool af_utf8_is_tail(char c) { return ((uint8_t)c & 0xc0) == 0x80; }
/* The character that ends just before `s`; returns its length. */
static inline uint32_t af_utf8_back(const char *s, uint32_t *cp)
{
    uint32_t n = 1;
    while (af_utf8_is_tail(s[-(int)n]))
        n++;
    return af_utf8_get(s - n, cp);
}
/* Decodes one character and moves *p past it. */
static inline uint32_t af_utf8_next(const char **p)
{
    uint32_t cp;
    *p += af_utf8_get(*p, &cp);
    return cp;
}
/* Where the character that ends before byte `at` (> 0) begins. */
static inline uint64_t af_utf8_before(const char *s, uint64_t at)
{
    do
        at--;
    while (at > 0 && af_utf8_is_tail(s[at]));
    return at;
}
/* Characters in n bytes. */
static inline uint64_t af_utf8_count(const char *s, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += !af_utf8_is_tail(s[i]);
    return count;
}
/* Writes cp as UTF-8; returns the length. */
uint32_t af_utf8_put(char out[4], uint32_t cp);
/* How many leading bytes are valid UTF-8 (surrogates and overlong forms are not). */
uint64_t af_utf8_valid(const char *s, uint64_t n);
/* Length of the maximal ill-formed part at s (n > 0 bytes left), or 0 when a character starts
 * there: what one U+FFFD stands for. */
uint32_t af_utf8_bad(const char *s, uint64_t n);
#endif
