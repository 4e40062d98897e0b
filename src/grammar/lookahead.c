/* lookahead.c - assertions at the beginning of a pattern, as zod writes them for addresses and
 * Pydantic for decimals: "^(?!A)(?=B)REST" fits where "^(?:B)" and "^REST" fit and "^(?:A)" does
 * not. Automata of several patterns keep that; assertions in other places are not supported.
 *
 * What a negative one excludes must be excluded for every engine: it has no classes that engines
 * read differently, and its dot takes all but the end of a line. */
#include "base/buf.h"
#include "grammar/pattern.h"

/* The byte after the escape, set or other character at `i`; 0: a negative assertion may not have
 * it. */
static uint64_t skip_one(const char *s, uint64_t n, uint64_t i, bool negative)
{
    if (s[i] == '\\') {
        if (negative && i + 1 < n && strchr("dDwWsSbBpPkAZzG123456789", s[i + 1]))
            return 0;
        return AF_MIN(i + 2, n);
    }
    if (s[i] != '[')
        return i + 1;
    if (negative && i + 1 < n && s[i + 1] == '^')
        return 0;
    for (i++; i < n && s[i] != ']';) {
        i = s[i] == '\\' ? skip_one(s, n, i, negative) : i + 1;
        if (i == 0)
            return 0;
    }
    return AF_MIN(i + 1, n);
}

/* The end of the group whose inside begins at `i`; 0: none. */
static uint64_t group_end(const char *s, uint64_t n, uint64_t i, bool negative)
{
    for (int depth = 1; i < n;) {
        if (s[i] == '(' && n - i > 2 && s[i + 1] == '?' && s[i + 2] != ':')
            return 0;
        depth += (s[i] == '(') - (s[i] == ')');
        if (depth == 0)
            return i + 1;
        i = skip_one(s, n, i, negative);
        if (i == 0)
            return 0;
    }
    return 0;
}

/* An alternative would not be held by the assertion before it. */
static bool has_alternatives(const char *s, uint64_t n, uint64_t i)
{
    for (int depth = 0; i < n; i = skip_one(s, n, i, false)) {
        depth += (s[i] == '(') - (s[i] == ')');
        if (s[i] == '|' && depth == 0)
            return true;
    }
    return false;
}

uint64_t af_lookahead(const char *s, uint64_t n)
{
    if (n < 5 || memcmp(s, "^(?", 3) != 0 || (s[3] != '=' && s[3] != '!'))
        return 0;
    const uint64_t end = group_end(s, n, 4, s[3] == '!');
    return end && !has_alternatives(s, n, end) ? end : 0;
}

af_status af_lookahead_parse(af_pattern *out, const char *s, uint64_t n, af_error *err)
{
    const bool negative = s[3] == '!';
    af_buf b = {0};
    af_buf_str(&b, "^(?:");
    for (uint64_t i = 4; i + 1 < n;) {
        const uint64_t next = skip_one(s, n - 1, i, false);
        if (negative && s[i] == '.')
            af_buf_str(&b, "[^\\n]");
        else
            af_buf_add(&b, s + i, next - i);
        i = next;
    }
    af_buf_char(&b, ')');
    const af_status st = b.bad ? af_fail_nomem(err, "a pattern", n)
                               : af_pattern_parse(out, b.data, b.len, false, err);
    af_buf_clear(&b);
    if (st == AF_OK)
        out->negative = negative;
    return st;
}
