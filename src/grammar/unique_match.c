/* unique_match.c - a complete value of JSON and another one that may not be complete: both without
 * white space, each number and each character in one spelling, and no key twice in an object. Then
 * only properties may come in another order. */
#include "grammar/unique.h"

enum { DEPTH_MAX = 256 }; /* deeper values are compared as texts */

typedef struct pair {
    const char *t_text, *p_text;
    uint64_t t, p, end;
} pair;

/* The end of the complete value at `at`. */
static uint64_t skip_value(const char *s, uint64_t at)
{
    int depth = 0;
    do {
        if (s[at] == '"') {
            for (at++; s[at] != '"'; at++)
                at += s[at] == '\\';
            at++;
        } else if (memchr("[{", s[at], 2)) {
            depth++;
            at++;
        } else if (memchr("]}", s[at], 2)) {
            depth--;
            at++;
        } else if (memchr(",:", s[at], 2)) {
            at++;
        } else {
            while (!memchr(",:]}", s[at], 4))
                at++;
        }
    } while (depth > 0);
    return at;
}

/* Compares the texts of two values, and moves to their ends. */
static af_unique_match compare_texts(pair *c)
{
    const uint64_t n = skip_value(c->t_text, c->t) - c->t, m = AF_MIN(n, c->end - c->p);
    if (memcmp(c->t_text + c->t, c->p_text + c->p, m) != 0)
        return AF_UNIQUE_OTHER;
    const bool closed = memchr("\"]}", c->t_text[c->t + n - 1], 3);
    c->t += n;
    c->p += m;
    if (m < n)
        return AF_UNIQUE_PART;
    return closed || c->p == c->end || memchr(",:]}", c->p_text[c->p], 4) ? AF_UNIQUE_SAME
                                                                          : AF_UNIQUE_OTHER;
}

static af_unique_match compare(pair *c, int depth);

static af_unique_match compare_lists(pair *c, int depth)
{
    const char *s = c->t_text, *p = c->p_text;
    for (c->t++, c->p++;; c->t++, c->p++) {
        if (c->p == c->end)
            return AF_UNIQUE_PART;
        if (s[c->t] != ']' && p[c->p] != ']') {
            const af_unique_match m = compare(c, depth + 1);
            if (m != AF_UNIQUE_SAME)
                return m;
            if (c->p == c->end)
                return AF_UNIQUE_PART;
        }
        if (s[c->t] != p[c->p])
            return AF_UNIQUE_OTHER;
        if (s[c->t] == ']') {
            c->t++;
            c->p++;
            return AF_UNIQUE_SAME;
        }
    }
}

/* Moves t from a member of an object to the value of the key at p, and p past the key: from the
 * next member on, as properties mostly come in one order, then from the first. */
static af_unique_match find_key(pair *c, uint64_t first)
{
    const char *s = c->t_text;
    const uint64_t next = c->t;
    for (bool again = false;; again = true, c->t = first) {
        while (s[c->t] != '}' && !(again && c->t == next)) {
            pair key = *c;
            const af_unique_match m = compare_texts(&key);
            if (m != AF_UNIQUE_OTHER) {
                *c = key;
                c->t++;
                return m;
            }
            c->t = skip_value(s, skip_value(s, c->t) + 1);
            c->t += s[c->t] == ',';
        }
        if (again)
            return AF_UNIQUE_OTHER;
    }
}

static uint32_t count_members(const char *s, uint64_t at)
{
    uint32_t n = 0;
    for (at++; s[at] != '}'; n++) {
        at = skip_value(s, skip_value(s, at) + 1);
        at += s[at] == ',';
    }
    return n;
}

static af_unique_match compare_objects(pair *c, int depth)
{
    const char *s = c->t_text, *p = c->p_text;
    const uint64_t start = c->t;
    uint32_t n = 0;
    c->t++;
    for (c->p++; c->p < c->end && p[c->p] != '}'; c->p += p[c->p] == ',', n++) {
        af_unique_match m = find_key(c, start + 1);
        if (m == AF_UNIQUE_SAME && c->p++ < c->end) /* the colon */
            m = compare(c, depth + 1);
        if (m != AF_UNIQUE_SAME)
            return m;
        if (c->p >= c->end)
            return AF_UNIQUE_PART;
        c->t += s[c->t] == ',';
    }
    if (c->p == c->end)
        return AF_UNIQUE_PART;
    c->p++;
    c->t = skip_value(s, start);
    return n == count_members(s, start) ? AF_UNIQUE_SAME : AF_UNIQUE_OTHER;
}

static af_unique_match compare(pair *c, int depth)
{
    if (c->p >= c->end)
        return AF_UNIQUE_PART;
    const char first = c->t_text[c->t];
    if (first != c->p_text[c->p] || !memchr("[{", first, 2) || depth == DEPTH_MAX)
        return compare_texts(c);
    return first == '[' ? compare_lists(c, depth) : compare_objects(c, depth);
}

af_unique_match af_unique_compare(const char *t, const char *p, uint64_t n)
{
    return compare(&(pair){.t_text = t, .p_text = p, .end = n}, 0);
}
