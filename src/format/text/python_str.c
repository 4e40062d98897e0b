/* python_str.c - what Python's str does with text: character classes and case mapping (on top of
 * utf8proc), stripping, cutting, replacing. */
#define _GNU_SOURCE /* memmem */
#include "format/text/python_text.h"

#include "format/text/unicode.h"

#include <utf8proc.h>

bool af_py_space(uint32_t cp)
{
    if (cp < 0x80)
        return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
           cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }

bool af_py_printable(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return cp == ' ' || (c != UTF8PROC_CATEGORY_CN && c < UTF8PROC_CATEGORY_ZS);
}

/* Numeric_Type=Digit that is not a decimal digit. */
static const uint32_t other_digit[][2] = {
    {0xb2, 0xb3},       {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},
    {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
    {0x2474, 0x247c},   {0x2488, 0x2490},   {0x24ea, 0x24ea},   {0x24f5, 0x24fd},
    {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},   {0x278a, 0x2792},
    {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a},
};

static bool is_class(uint32_t cp, char what)
{
    const utf8proc_category_t c = category(cp);
    switch (what) {
    case 'a':
        return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
    case 'c':
        return c == UTF8PROC_CATEGORY_ND;
    case 'd':
        return c == UTF8PROC_CATEGORY_ND || af_set_has(other_digit, (int)AF_LEN(other_digit), cp);
    case 'n':
        return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
    case 'u':
        return c == UTF8PROC_CATEGORY_LU ||
               af_set_has(af_set_upper_more, af_set_upper_more_count, cp);
    case 'l':
        return c == UTF8PROC_CATEGORY_LL ||
               af_set_has(af_set_lower_more, af_set_lower_more_count, cp);
    default:
        return c == UTF8PROC_CATEGORY_LT;
    }
}

/* --- case mapping ------------------------------------------------------------------------------
 */

static bool cased(uint32_t cp)
{
    return is_class(cp, 'u') || is_class(cp, 'l') || is_class(cp, 't');
}

static bool case_ignorable(uint32_t cp)
{
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_ME || c == UTF8PROC_CATEGORY_CF ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_SK || cp == '\'' || cp == '.' ||
           cp == ':' || cp == 0xb7 || cp == 0x2018 || cp == 0x2019 || cp == 0x2024 || cp == 0x2027;
}

/* Greek capital sigma at byte `at` ends a word: a cased letter before it and none after. */
static bool final_sigma(const char *s, uint64_t n, uint64_t at)
{
    bool before = false;
    for (uint64_t i = at; i > 0;) {
        i = af_utf8_before(s, i);
        const char *q = s + i;
        const uint32_t cp = af_utf8_next(&q);
        if (!case_ignorable(cp)) {
            before = cased(cp);
            break;
        }
    }
    const char *p = s + at;
    af_utf8_next(&p);
    while (p < s + n) {
        const uint32_t cp = af_utf8_next(&p);
        if (!case_ignorable(cp))
            return before && !cased(cp);
    }
    return before;
}

static void lower_one(af_buf *b, const char *s, uint64_t n, uint64_t at, uint32_t cp)
{
    if (cp == 0x130)
        af_buf_str(b, "i\xcc\x87");
    else if (cp == 0x3a3)
        af_buf_utf8(b, final_sigma(s, n, at) ? 0x3c2 : 0x3c3);
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
 * the first that changes is mapped, and a folded iota is written below (U+0345) again. */
static void upper_one(af_buf *b, uint32_t cp, bool title)
{
    const utf8proc_int32_t p = (utf8proc_int32_t)cp;
    const utf8proc_int32_t simple = title ? utf8proc_totitle(p) : utf8proc_toupper(p);
    utf8proc_int32_t to[8];
    const bool one = cp < 0xdf || is_class(cp, 'u') || (title && is_class(cp, 't')) ||
                     (title && simple != p && cp != 0xdf);
    const int n = one ? 1 : fold(cp, to);
    if (n < 2) {
        af_buf_utf8(b, (uint32_t)simple);
        return;
    }
    for (int i = 0, mapped = 0; i < n; i++) {
        const utf8proc_int32_t c = title ? utf8proc_totitle(to[i]) : utf8proc_toupper(to[i]);
        const utf8proc_int32_t rest = to[i] == 0x3b9 ? 0x345 : to[i];
        af_buf_utf8(b, (uint32_t)(title && mapped ? rest : c));
        mapped += c != to[i];
    }
}

void af_py_case(af_buf *b, const char *s, uint64_t n, char how)
{
    bool in_word = false;
    for (const char *p = s, *end = s + n; p < end;) {
        const uint64_t at = (uint64_t)(p - s);
        const uint32_t cp = af_utf8_next(&p);
        utf8proc_int32_t to[8];
        if (how == 'f')
            for (int i = 0, count = fold(cp, to); i < count; i++)
                af_buf_utf8(b, (uint32_t)to[i]);
        else if (how == 'u' || (how == 's' && is_class(cp, 'l')))
            upper_one(b, cp, false);
        else if ((how == 'c' && at == 0) || (how == 't' && !in_word))
            upper_one(b, cp, true);
        else if (how == 's' && !is_class(cp, 'u'))
            af_buf_utf8(b, cp);
        else
            lower_one(b, s, n, at, cp);
        in_word = how == 't' && cased(cp);
    }
}

/* isupper, islower, istitle: at least one cased character, and none of the wrong case. */
static bool has_case(const char *s, uint64_t n, char what)
{
    bool any = false, in_word = false;
    for (const char *p = s, *end = s + n; p < end;) {
        const uint32_t cp = af_utf8_next(&p);
        const bool title = is_class(cp, 't'), lower = is_class(cp, 'l');
        const bool upper = is_class(cp, 'u') || (title && what == 't');
        if (what == 't' ? (upper && in_word) || (lower && !in_word)
                        : title || (what == 'u' ? lower : upper))
            return false;
        in_word = upper || lower;
        any = any || in_word;
    }
    return any;
}

bool af_py_is_all(const char *s, uint64_t n, char what)
{
    if (what == 'u' || what == 'l' || what == 't')
        return has_case(s, n, what);
    for (const char *p = s, *end = s + n; p < end;) {
        const bool first = p == s;
        const uint32_t cp = af_utf8_next(&p);
        const bool is = what == 's'   ? af_py_space(cp)
                        : what == 'p' ? af_py_printable(cp)
                        : what == 'i' ? cp < 0x80
                        : what == 'w' ? is_class(cp, 'a') || is_class(cp, 'd') || is_class(cp, 'n')
                        : what == '_'
                            ? cp == '_' || is_class(cp, 'a') || (!first && is_class(cp, 'c'))
                            : is_class(cp, what);
        if (!is)
            return false;
    }
    return n > 0 || what == 'p' || what == 'i';
}

/* Whether the character at *p is in the set (NULL: white space); moves *p past it. */
static bool in_set(const char *set, uint64_t n, const char **p)
{
    const uint32_t cp = af_utf8_next(p);
    if (!set)
        return af_py_space(cp);
    for (const char *q = set, *end = set + n; q < end;)
        if (af_utf8_next(&q) == cp)
            return true;
    return false;
}

void af_py_strip(const char *s, uint64_t *from, uint64_t *to, const char *set, uint64_t n,
                 char sides)
{
    const char *p = s + *from;
    while (*from < *to && sides != 'r' && in_set(set, n, &p))
        *from = (uint64_t)(p - s);
    while (*to > *from && sides != 'l') {
        const uint64_t k = af_utf8_before(s, *to);
        p = s + k;
        if (!in_set(set, n, &p))
            break;
        *to = k;
    }
}

uint64_t af_py_word(const char *s, uint64_t n)
{
    uint64_t end = 0;
    for (const char *p = s; end < n && !in_set(NULL, 0, &p);)
        end = (uint64_t)(p - s);
    return end;
}

uint64_t af_py_line(const char *s, uint64_t n, uint64_t *line_break)
{
    const char *p = s, *end = s + n;
    while (p < end) {
        const char *at = p;
        const uint32_t cp = af_utf8_next(&p);
        if ((cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
            cp == 0x2029) {
            p += cp == '\r' && p < end && *p == '\n';
            *line_break = (uint64_t)(p - at);
            break;
        }
    }
    return (uint64_t)(p - s);
}

void af_py_replace(af_buf *b, const char *s, uint64_t n, const char *old, uint64_t old_n,
                   const char *new, uint64_t new_n, int64_t max)
{
    const char *at = s, *end = s + n;
    for (int64_t done = 0; (max < 0 || done < max) && !b->bad; done++) {
        /* an empty one is found between all characters, and at both ends */
        const char *hit = at;
        if (old_n)
            hit = memmem(at, (size_t)(end - at), old, old_n);
        else if (done > 0 && at < end)
            af_utf8_next(&hit);
        else if (done > 0)
            hit = NULL;
        if (!hit)
            break;
        af_buf_add(b, at, (uint64_t)(hit - at));
        af_buf_add(b, new, new_n);
        at = hit + old_n;
    }
    af_buf_add(b, at, (uint64_t)(end - at));
}

void af_py_expandtabs(af_buf *b, const char *s, uint64_t n, int64_t size)
{
    int64_t column = 0;
    size = AF_MIN(size, AF_PY_FIELD_MAX);
    for (const char *p = s, *end = s + n; p < end && !b->bad;) {
        const uint32_t cp = af_utf8_next(&p);
        if (cp == '\t') {
            for (int64_t k = size > 0 ? size - column % size : 0; k > 0 && !b->bad; k--, column++)
                af_buf_char(b, ' ');
            continue;
        }
        af_buf_utf8(b, cp);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
}

void af_py_html(af_buf *b, const char *s, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        const char c = s[i];
        const char *as = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '"'  ? "&#34;"
                         : c == '\'' ? "&#39;"
                                     : NULL;
        if (as)
            af_buf_str(b, as);
        else
            af_buf_char(b, c);
    }
}

void af_py_quote_url(af_buf *b, const char *s, uint64_t n, bool query)
{
    for (uint64_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)s[i];
        const bool literal = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                             (c >= 'A' && c <= 'Z') || (c && strchr("_.-~", c)) ||
                             (c == '/' && !query);
        if (literal)
            af_buf_char(b, (char)c);
        else if (c == ' ' && query)
            af_buf_char(b, '+');
        else
            af_buf_printf(b, "%%%02X", c);
    }
}

void af_py_pad(af_buf *b, const char *s, uint64_t n, int64_t pad, const char *fill, uint64_t fill_n,
               char side)
{
    const int64_t width = pad + (int64_t)af_utf8_count(s, n);
    /* CPython's center puts the odd one left when the width is odd */
    const int64_t left = side == 'r' ? pad : side == 'l' ? 0 : pad / 2 + (pad & width & 1);
    for (int64_t i = 0; i < left && !b->bad; i++)
        af_buf_add(b, fill, fill_n);
    af_buf_add(b, s, n);
    for (int64_t i = left; i < pad && !b->bad; i++)
        af_buf_add(b, fill, fill_n);
}

static bool begins_word(uint32_t cp)
{
    return af_py_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
}

void af_py_title_words(af_buf *b, const char *s, uint64_t n)
{
    for (const char *p = s, *end = s + n; p < end && !b->bad;) {
        const char *from = p;
        const bool breaks = begins_word(af_utf8_next(&p));
        const char *tail = p;
        for (const char *q = p; q < end; p = q)
            if (begins_word(af_utf8_next(&q)) != breaks)
                break;
        af_py_case(b, from, (uint64_t)(tail - from), 'u');
        af_py_case(b, tail, (uint64_t)(p - tail), 'l');
    }
}

int64_t af_py_count_words(const char *s, uint64_t n)
{
    int64_t words = 0;
    bool in_word = false;
    for (const char *p = s, *end = s + n; p < end;) {
        const uint32_t cp = af_utf8_next(&p);
        const bool word = cp == '_' || is_class(cp, 'a') || is_class(cp, 'n');
        words += word && !in_word;
        in_word = word;
    }
    return words;
}

void af_py_striptags(af_buf *b, const char *s, uint64_t n)
{
    static const char *const entity[][2] = {{"&lt;", "<"},    {"&gt;", ">"},  {"&#34;", "\""},
                                            {"&quot;", "\""}, {"&#39;", "'"}, {"&amp;", "&"}};
    bool blank = false;
    for (const char *p = s, *end = s + n; p < end && !b->bad;) {
        const char *close = *p == '<' ? memchr(p, '>', (size_t)(end - p)) : NULL;
        const char *q = p;
        const char *as = NULL;
        for (size_t i = 0; *p == '&' && i < AF_LEN(entity) && !as; i++)
            if ((size_t)(end - p) >= strlen(entity[i][0]) &&
                !memcmp(p, entity[i][0], strlen(entity[i][0]))) {
                as = entity[i][1];
                q = p + strlen(entity[i][0]);
            }
        if (close) {
            p = close + 1;
        } else if (!as && af_py_space(af_utf8_next(&q))) {
            blank = true;
            p = q;
        } else {
            af_buf_str(b, blank && b->len ? " " : "");
            af_buf_add(b, as ? as : p, as ? 1 : (uint64_t)(q - p));
            blank = false;
            p = q;
        }
    }
}
