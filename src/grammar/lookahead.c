/* lookahead.c - assertions at the beginning of a pattern, as zod writes them for addresses and
 * Pydantic for decimals: "^(?!A)(?=B)REST" fits where "^(?:B)" and "^REST" fit and "^(?:A)" does
 * not. Automata of several patterns keep that; assertions in other places are not supported. */
#include "base/buf.h"
#include "grammar/pattern.h"

/* The byte after the escape, set or other character at `i`. */
static uint64_t skip_one(const char *s, uint64_t n, uint64_t i)
{
    if (s[i] == '[')
        for (i++; i < n && s[i] != ']';)
            i += s[i] == '\\' ? 2 : 1;
    return AF_MIN(i + (i < n && s[i] == '\\' ? 2 : 1), n);
}

/* The end of the group whose inside begins at `i`; 0: none. */
static uint64_t group_end(const char *s, uint64_t n, uint64_t i)
{
    for (int depth = 1; i < n;) {
        if (s[i] == '(' && n - i > 2 && s[i + 1] == '?' && s[i + 2] != ':')
            return 0;
        depth += (s[i] == '(') - (s[i] == ')');
        if (depth == 0)
            return i + 1;
        i = skip_one(s, n, i);
    }
    return 0;
}

/* An alternative would not be held by the assertion before it. */
static bool has_alternatives(const char *s, uint64_t n, uint64_t i)
{
    for (int depth = 0; i < n; i = skip_one(s, n, i)) {
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
    const uint64_t end = group_end(s, n, 4);
    return end && !has_alternatives(s, n, end) ? end : 0;
}

af_status af_lookahead_parse(af_pattern *out, const char *s, uint64_t n, af_error *err)
{
    af_buf b = {0};
    af_buf_str(&b, "^(?:");
    af_buf_add(&b, s + 4, n - 4);
    const af_status st =
        b.bad ? af_fail_nomem(err, "a pattern", n)
              : af_pattern_parse(out, b.data, b.len,
                                 s[3] == '!' ? AF_PATTERN_EXCLUDE : AF_PATTERN_FIND, err);
    af_buf_clear(&b);
    return st;
}
