/* jinja_unicode.c - UTF-8, and the character classes and case mapping of Python's str, on top of
 * utf8proc. */
#include "format/jinja/jinja.h"

#include <utf8proc.h>

uint32_t af_jutf8_next(const char **p)
{
    const unsigned char *s = (const unsigned char *)*p;
    const uint32_t c = s[0];
    const int n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t cp = n == 1 ? c : n == 2 ? c & 0x1f : n == 3 ? c & 0x0f : c & 0x07;
    for (int i = 1; i < n; i++)
        cp = cp << 6 | (s[i] & 0x3fu);
    *p += n;
    return cp;
}

uint64_t af_jutf8_back(const char *p, uint64_t at)
{
    do
        at--;
    while (at > 0 && ((unsigned char)p[at] & 0xc0) == 0x80);
    return at;
}

uint64_t af_jutf8_count(const char *p, uint64_t n)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < n; i++)
        count += ((unsigned char)p[i] & 0xc0) != 0x80;
    return count;
}

bool af_jutf8_valid(const char *p, uint64_t n)
{
    for (uint64_t i = 0; i < n;) {
        if ((unsigned char)p[i] < 0x80) {
            i++;
            continue;
        }
        utf8proc_int32_t cp;
        const utf8proc_ssize_t k = utf8proc_iterate((const utf8proc_uint8_t *)p + i,
                                                    (utf8proc_ssize_t)AF_MIN(n - i, 4), &cp);
        if (k <= 0)
            return false;
        i += (uint64_t)k;
    }
    return true;
}

bool af_juni_space(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool af_juni_printable(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return cp == ' ' || (c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS);
}

typedef struct range {
    uint32_t from, to;
} range;

static bool within(const range *r, size_t n, uint32_t cp)
{
    for (size_t i = 0; i < n; i++)
        if (cp >= r[i].from && cp <= r[i].to)
            return true;
    return false;
}

/* Other_Lowercase and Other_Uppercase of Unicode: cased without being Ll or Lu. */
static const range other_lower[] = {
    {0xaa, 0xaa},     {0xba, 0xba},     {0x2b0, 0x2b8},   {0x2c0, 0x2c1},   {0x2e0, 0x2e4},
    {0x345, 0x345},   {0x37a, 0x37a},   {0x1d2c, 0x1d6a}, {0x1d78, 0x1d78}, {0x1d9b, 0x1dbf},
    {0x2071, 0x2071}, {0x207f, 0x207f}, {0x2090, 0x209c}, {0x2170, 0x217f}, {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d}, {0xa69c, 0xa69d}, {0xa770, 0xa770}, {0xa7f8, 0xa7f9}, {0xab5c, 0xab5f},
};
static const range other_upper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189},
};
/* Numeric_Type=Digit that is not a decimal digit. */
static const range other_digit[] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

bool af_juni_is(uint32_t cp, char what)
{
    const utf8proc_category_t c = category(cp);
    switch (what) {
    case 'a':
        return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
    case 'c':
        return c == UTF8PROC_CATEGORY_ND;
    case 'd':
        return c == UTF8PROC_CATEGORY_ND || within(other_digit, AF_LEN(other_digit), cp);
    case 'n':
        return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
    case 'u':
        return c == UTF8PROC_CATEGORY_LU || within(other_upper, AF_LEN(other_upper), cp);
    case 'l':
        return c == UTF8PROC_CATEGORY_LL || within(other_lower, AF_LEN(other_lower), cp);
    default:
        return c == UTF8PROC_CATEGORY_LT;
    }
}

/* --- case mapping ------------------------------------------------------------------------------
 */

static bool cased(uint32_t cp)
{
    return af_juni_is(cp, 'u') || af_juni_is(cp, 'l') || af_juni_is(cp, 't');
}

static bool case_ignorable(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' ||
           cp == ':' || cp == 0xb7 || cp == 0x2018 || cp == 0x2019 || cp == 0x2024 || cp == 0x2027;
}

/* Greek capital sigma at byte `at` ends a word: a cased letter before it and none after. */
static bool final_sigma(const af_jstr *s, uint64_t at)
{
    bool before = false;
    for (uint64_t i = at; i > 0;) {
        i = af_jutf8_back(s->p, i);
        const char *q = s->p + i;
        const uint32_t cp = af_jutf8_next(&q);
        if (!case_ignorable(cp)) {
            before = cased(cp);
            break;
        }
    }
    const char *p = s->p + at;
    af_jutf8_next(&p);
    while (p < s->p + s->n) {
        const uint32_t cp = af_jutf8_next(&p);
        if (!case_ignorable(cp))
            return before && !cased(cp);
    }
    return before;
}

static void lower_one(af_buf *b, const af_jstr *s, uint64_t at, uint32_t cp)
{
    if (cp == 0x130)
        af_buf_str(b, "i\xcc\x87");
    else if (cp == 0x3a3)
        af_buf_utf8(b, final_sigma(s, at) ? 0x3c2 : 0x3c3);
    else
        af_buf_utf8(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

/* The case folding of a code point: how many it becomes, at most 8. */
static int fold(uint32_t cp, utf8proc_int32_t to[8])
{
    int last = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char((utf8proc_int32_t)cp, to, 8, UTF8PROC_CASEFOLD, &last);
    return n < 0 || n > 8 ? 0 : (int)n;
}

/* Upper or title case. Where one code point becomes several (ß -> SS), utf8proc only knows its
 * case folding (ss); each of those mapped again gives Unicode's SpecialCasing. In title case only
 * the first is mapped, and a folded iota is written below (U+0345) again. */
static void upper_one(af_buf *b, uint32_t cp, bool title)
{
    const utf8proc_int32_t p = (utf8proc_int32_t)cp;
    const utf8proc_int32_t simple = title ? utf8proc_totitle(p) : utf8proc_toupper(p);
    utf8proc_int32_t to[8];
    const int n = cp < 0xdf || af_juni_is(cp, 'u') || (title && simple != p) ? 1 : fold(cp, to);
    if (n < 2 || (title && af_juni_is(cp, 't'))) {
        af_buf_utf8(b, (uint32_t)simple);
        return;
    }
    for (int i = 0; i < n; i++)
        af_buf_utf8(b, !title           ? (uint32_t)utf8proc_toupper(to[i])
                       : i == 0         ? (uint32_t)utf8proc_totitle(to[i])
                       : to[i] == 0x3b9 ? 0x345
                                        : (uint32_t)to[i]);
}

void af_juni_case(af_buf *b, const af_jstr *s, char how)
{
    bool in_word = false;
    for (const char *p = s->p, *end = s->p + s->n; p < end;) {
        const uint64_t at = (uint64_t)(p - s->p);
        const uint32_t cp = af_jutf8_next(&p);
        utf8proc_int32_t to[8];
        if (how == 'f')
            for (int i = 0, n = fold(cp, to); i < n; i++)
                af_buf_utf8(b, (uint32_t)to[i]);
        else if (how == 'u' || (how == 's' && af_juni_is(cp, 'l')))
            upper_one(b, cp, false);
        else if ((how == 'c' && at == 0) || (how == 't' && !in_word))
            upper_one(b, cp, true);
        else if (how == 's' && !af_juni_is(cp, 'u'))
            af_buf_utf8(b, cp);
        else
            lower_one(b, s, at, cp);
        in_word = how == 't' && cased(cp);
    }
}
