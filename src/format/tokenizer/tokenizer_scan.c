/* tokenizer_scan.c - the split patterns of well-known families, written out by hand.
 *
 * Recognised by the exact text of the pattern; a test holds each of them against the regex engine.
 * All of them cover the whole text: every character begins a match. */
#include "format/tokenizer/tokenizer.h"

typedef enum kind { LETTER, NUMBER, SPACE, MARK, OTHER, END } kind;

typedef struct text_cursor {
    const af_unicode *u;
    const char *s;
    uint32_t n;
    bool marks; /* marks count as letters */
} text_cursor;

static inline kind kind_at(const text_cursor *c, uint32_t i, uint32_t *len)
{
    uint32_t cp;
    if (i >= c->n)
        return END;
    *len = af_utf8_get(c->s + i, &cp);
    const uint8_t cls = c->u->cls[cp];
    if ((cls & 31) <= AF_GC_LO)
        return LETTER;
    if (cls & AF_CLASS_SPACE)
        return SPACE;
    const uint8_t g = cls & 31;
    if (g >= AF_GC_ND && g <= AF_GC_NO)
        return NUMBER;
    return c->marks && g >= AF_GC_MN && g <= AF_GC_ME ? LETTER : OTHER;
}

static inline uint32_t run(const text_cursor *c, uint32_t i, kind k)
{
    uint32_t len = 0;
    while (kind_at(c, i, &len) == k)
        i += len;
    return i;
}

static inline bool is_newline(char c) { return c == '\n' || c == '\r'; }

/* 's 't 're 've 'm 'll 'd; 0 when it is none of them. */
static uint32_t contraction(const text_cursor *c, uint32_t i, bool any_case)
{
    const uint8_t fold = any_case ? 0x20 : 0;
    if (c->n - i < 2)
        return 0;
    const uint8_t a = (uint8_t)c->s[i + 1] | fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    if (c->n - i < 3)
        return 0;
    const uint8_t b = (uint8_t)c->s[i + 2] | fold;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l'))
        return 3;
    /* the long s folds to s */
    return any_case && (uint8_t)c->s[i + 1] == 0xc5 && (uint8_t)c->s[i + 2] == 0xbf ? 3 : 0;
}

/* \s+(?!\S)|\s+ where a blank begins: a run keeps its last character for the word after it. */
static uint32_t blanks(const text_cursor *c, uint32_t i, uint32_t first_len)
{
    uint32_t cp;
    const uint32_t end = run(c, i, SPACE);
    if (end == c->n || end == i + first_len)
        return end - i;
    return end - i - af_utf8_back(c->s + end, &cp);
}

static uint32_t gpt2(const af_unicode *u, const char *s, uint32_t n, uint32_t i)
{
    const text_cursor c = {u, s, n, false};
    uint32_t len = 1, next_len = 1, from = i;
    if (s[i] == '\'') {
        const uint32_t k = contraction(&c, i, false);
        if (k)
            return k;
    }
    kind k = kind_at(&c, i, &len);
    if (s[i] == ' ') {
        const kind next = kind_at(&c, i + 1, &next_len);
        if (next != SPACE && next != END) {
            k = next;
            from = i + 1;
        }
    }
    if (k == SPACE)
        return blanks(&c, i, len);
    return run(&c, from, k) - i;
}

static uint32_t cl100k(const text_cursor *c, uint32_t i, uint32_t digits)
{
    const char *s = c->s;
    uint32_t len = 1, next_len = 1;
    if (s[i] == '\'') {
        const uint32_t k = contraction(c, i, true);
        if (k)
            return k;
    }
    const kind k = kind_at(c, i, &len);
    if (k == LETTER)
        return run(c, i + len, LETTER) - i;
    if (k == NUMBER) {
        uint32_t end = i + len;
        for (uint32_t d = 1; d < digits && kind_at(c, end, &len) == NUMBER; d++)
            end += len;
        return end - i;
    }
    const kind next = kind_at(c, i + len, &next_len);
    if (next == LETTER && !is_newline(s[i]))
        return run(c, i + len + next_len, LETTER) - i;
    if (k == OTHER || (s[i] == ' ' && next == OTHER)) {
        uint32_t end = run(c, i + len, OTHER);
        while (end < c->n && is_newline(s[end]))
            end++;
        return end - i;
    }
    const uint32_t end = run(c, i, SPACE);
    for (uint32_t e = end; e > i; e--)
        if (is_newline(s[e - 1]))
            return e - i;
    return blanks(c, i, len);
}

static uint32_t llama3(const af_unicode *u, const char *s, uint32_t n, uint32_t i)
{
    const text_cursor c = {u, s, n, false};
    return cl100k(&c, i, 3);
}

static uint32_t qwen2(const af_unicode *u, const char *s, uint32_t n, uint32_t i)
{
    const text_cursor c = {u, s, n, false};
    return cl100k(&c, i, 1);
}

static uint32_t qwen35(const af_unicode *u, const char *s, uint32_t n, uint32_t i)
{
    const text_cursor c = {u, s, n, true};
    return cl100k(&c, i, 1);
}

const char af_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static const struct known {
    const char *pattern;
    af_scanner *scan;
} known[] = {
    {af_gpt2_pattern, gpt2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
     "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     llama3},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
     "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     qwen2},
    {"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
     "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"
     "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
     qwen35},
};

af_scanner *af_scanner_find(const char *pattern, uint64_t len)
{
    for (size_t i = 0; i < AF_LEN(known); i++)
        if (strlen(known[i].pattern) == len && memcmp(known[i].pattern, pattern, len) == 0)
            return known[i].scan;
    return NULL;
}
