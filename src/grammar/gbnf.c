/* gbnf.c - rules in the notation of llama.cpp:
 *   name ::= alternative | alternative          sequences of
 *   "text"  [a-z\x41\u00e9]  [^"]  .  name  ( ... )    each with  *  +  ?  {n}  {n,}  {n,m}
 * A rule ends with its line, except inside parentheses and after "::=" or "|". # begins a comment.
 */
#include "base/hash.h"
#include "format/text/unicode.h"
#include "grammar/compile.h"

#include <stdarg.h>

enum { DEPTH_MAX = 200, BUCKETS = 1024, NAME_MAX_BYTES = 256 };

typedef struct gbnf_rule {
    const char *name;
    uint32_t rule, line; /* where it was first mentioned */
    bool defined;
    struct gbnf_rule *next; /* in its bucket */
    struct gbnf_rule *older;
} gbnf_rule;

typedef struct gbnf {
    af_rtn *r;
    const char *at, *end;
    uint32_t line;
    int depth;
    gbnf_rule *bucket[BUCKETS], *newest;
    af_error *err;
} gbnf;

AF_PRINTF(2, 3) static bool bad(gbnf *p, const char *fmt, ...)
{
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (p->r->st == AF_OK)
        af_rtn_fail(p->r, af_fail(p->err, AF_EFORMAT, "grammar line %u: %s", p->line, why));
    return false;
}

static bool more(const gbnf *p) { return p->at < p->end && p->r->st == AF_OK; }
static char peek(const gbnf *p) { return p->at < p->end ? *p->at : 0; }

static void blank(gbnf *p, bool newline)
{
    for (; more(p); p->at++) {
        if (*p->at == '#') {
            while (p->at < p->end && *p->at != '\n' && *p->at != '\r')
                p->at++;
            if (p->at == p->end)
                return;
        }
        const bool line_end = *p->at == '\n' || *p->at == '\r';
        if (line_end && !newline)
            return;
        if (!line_end && *p->at != ' ' && *p->at != '\t')
            return;
        p->line += *p->at == '\n';
    }
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static gbnf_rule *rule_of(gbnf *p, const char *s, uint64_t n)
{
    gbnf_rule **head = &p->bucket[af_fnv1a(AF_FNV_START, s, n) % BUCKETS];
    for (gbnf_rule *g = *head; g; g = g->next)
        if (strlen(g->name) == n && memcmp(g->name, s, n) == 0)
            return g;
    gbnf_rule *g = af_arena_take(&p->r->arena, sizeof *g);
    char *name = af_arena_strndup(&p->r->arena, s, n);
    if (!g || !name) {
        af_rtn_fail(p->r, af_fail_nomem(p->err, "a grammar", n));
        return NULL;
    }
    *g = (gbnf_rule){.name = name, .line = p->line, .next = *head, .older = p->newest};
    g->rule = af_rtn_rule_new(p->r, name);
    *head = p->newest = g;
    return p->r->st == AF_OK ? g : NULL;
}

/* The name at the cursor; NULL and a failure when there is none. */
static gbnf_rule *read_name(gbnf *p)
{
    const char *s = p->at;
    while (p->at < p->end && is_name(*p->at))
        p->at++;
    const uint64_t n = (uint64_t)(p->at - s);
    if (n == 0 || n > NAME_MAX_BYTES) {
        bad(p, n ? "a rule name is longer than %d bytes" : "a rule name is expected",
            NAME_MAX_BYTES);
        return NULL;
    }
    return rule_of(p, s, n);
}

static bool read_hex(gbnf *p, int digits, uint32_t *cp)
{
    *cp = 0;
    for (int i = 0; i < digits; i++, p->at++) {
        const char c = peek(p);
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            return bad(p, "%d hexadecimal digits are expected", digits);
        *cp = *cp << 4 | (uint32_t)d;
    }
    if (*cp > 0x10ffff || (*cp >= 0xd800 && *cp <= 0xdfff))
        return bad(p, "U+%X is not a character", *cp);
    return true;
}

/* One character of a text or class, escapes included. */
static bool read_char(gbnf *p, uint32_t *cp)
{
    if (!more(p))
        return bad(p, "the grammar ends inside a text");
    if (*p->at != '\\') {
        p->line += *p->at == '\n';
        p->at += af_utf8_get(p->at, cp);
        return true;
    }
    p->at++;
    const char c = peek(p);
    p->at += p->at < p->end;
    switch (c) {
    case 'x':
        return read_hex(p, 2, cp);
    case 'u':
        return read_hex(p, 4, cp);
    case 'U':
        return read_hex(p, 8, cp);
    case 't':
        *cp = '\t';
        return true;
    case 'r':
        *cp = '\r';
        return true;
    case 'n':
        *cp = '\n';
        return true;
    case '\\':
    case '"':
    case '[':
    case ']':
    case '-':
    case '^':
    case '.':
    case '/':
    case '\'':
        *cp = (uint8_t)c;
        return true;
    default:
        return bad(p, "unknown escape '\\%c'", c > ' ' && c < 127 ? c : '?');
    }
}

static uint32_t read_text(gbnf *p, uint32_t from)
{
    uint32_t cp;
    p->at++;
    while (more(p) && *p->at != '"') {
        if (!read_char(p, &cp))
            return from;
        const uint32_t to = af_rtn_state(p->r);
        af_rtn_utf8(p->r, from, cp, cp, to);
        from = to;
    }
    if (p->at == p->end)
        bad(p, "a text has no closing '\"'");
    p->at += p->at < p->end;
    return from;
}

static uint32_t read_class(gbnf *p, uint32_t from)
{
    af_cpset set = {0};
    const uint32_t to = af_rtn_state(p->r);
    p->at++;
    const bool negated = peek(p) == '^';
    p->at += negated;
    while (more(p) && *p->at != ']') {
        uint32_t lo, hi;
        if (!read_char(p, &lo))
            break;
        hi = lo;
        if (peek(p) == '-' && p->end - p->at > 1 && p->at[1] != ']') {
            p->at++;
            if (!read_char(p, &hi))
                break;
        }
        if (hi < lo) {
            bad(p, "a range of characters ends before it begins");
            break;
        }
        af_cpset_add(&set, lo, hi);
    }
    if (p->at == p->end)
        bad(p, "a class of characters has no closing ']'");
    p->at += p->at < p->end;
    if (negated)
        af_cpset_negate(&set);
    af_cpset_tidy(&set);
    af_rtn_chars(p->r, from, &set, false, to);
    af_cpset_clear(&set);
    return to;
}

static bool read_count(gbnf *p, uint64_t *n)
{
    if (peek(p) < '0' || peek(p) > '9')
        return bad(p, "a number is expected after '{' or ','");
    for (*n = 0; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        *n = *n * 10 + (uint64_t)(*p->at - '0');
        if (*n > AF_RTN_STATES_MAX)
            return bad(p, "a repetition of more than %d times is too large", AF_RTN_STATES_MAX);
    }
    blank(p, false);
    return true;
}

static bool read_counts(gbnf *p, uint64_t *min, uint64_t *max)
{
    p->at++;
    blank(p, false);
    if (peek(p) == ',') /* {,m} */
        *min = 0;
    else if (!read_count(p, min))
        return false;
    *max = *min;
    if (peek(p) == ',') {
        p->at++;
        blank(p, false);
        *max = UINT64_MAX;
        if (peek(p) != '}' && !read_count(p, max))
            return false;
    }
    if (peek(p) != '}')
        return bad(p, "'}' is expected after a repetition");
    p->at++;
    if (*max < *min)
        return bad(p, "a repetition of at least %" PRIu64 " and at most %" PRIu64 " times", *min,
                   *max);
    return true;
}

/* The repetition after an element between `start` and `last`, which nothing else enters. */
static uint32_t read_suffix(gbnf *p, uint32_t from, uint32_t start, uint32_t last)
{
    const uint32_t to = af_rtn_state(p->r);
    uint64_t min, max;
    switch (peek(p)) {
    case '*':
        min = 0, max = UINT64_MAX, p->at++;
        break;
    case '+':
        min = 1, max = UINT64_MAX, p->at++;
        break;
    case '?':
        min = 0, max = 1, p->at++;
        break;
    case '{':
        if (!read_counts(p, &min, &max))
            return to;
        break;
    default:
        min = max = 1;
    }
    if (max == 1 || (max == UINT64_MAX && min <= 1)) { /* in place */
        af_rtn_free_edge(p->r, from, start);
        af_rtn_free_edge(p->r, last, to);
        if (max > 1)
            af_rtn_free_edge(p->r, last, start);
        if (min == 0)
            af_rtn_free_edge(p->r, from, to);
        return to;
    }
    af_rtn_repeat(p->r, from, af_rtn_rule_of(p->r, start, last), min, max, to);
    return to;
}

static void read_alternatives(gbnf *p, uint32_t from, uint32_t to, bool nested);

/* One element from `start`; the state after it. */
static uint32_t read_element(gbnf *p, uint32_t start)
{
    const char c = peek(p);
    uint32_t last = af_rtn_state(p->r);
    if (c == '"')
        return read_text(p, start);
    if (c == '[')
        return read_class(p, start);
    if (c == '.') {
        af_cpset any = {0};
        p->at++;
        af_cpset_add(&any, 0, 0x10ffff);
        af_rtn_chars(p->r, start, &any, false, last);
        af_cpset_clear(&any);
    } else if (c == '(') {
        p->at++;
        blank(p, true);
        if (++p->depth > DEPTH_MAX)
            bad(p, "parentheses are nested more than %d deep", DEPTH_MAX);
        else
            read_alternatives(p, start, last, true);
        p->depth--;
        if (peek(p) != ')')
            bad(p, "')' is expected");
        p->at += p->at < p->end;
    } else {
        const gbnf_rule *g = read_name(p);
        if (g)
            af_rtn_call(p->r, start, g->rule, last);
    }
    return last;
}

static bool begins_element(gbnf *p)
{
    const char c = peek(p);
    return more(p) && (c == '"' || c == '[' || c == '.' || c == '(' || is_name(c));
}

static void read_alternatives(gbnf *p, uint32_t from, uint32_t to, bool nested)
{
    for (;;) {
        uint32_t at = af_rtn_state(p->r);
        af_rtn_free_edge(p->r, from, at);
        while (begins_element(p)) {
            const uint32_t start = af_rtn_state(p->r);
            const uint32_t last = read_element(p, start);
            if (p->r->st != AF_OK)
                return;
            at = read_suffix(p, at, start, last);
            blank(p, nested);
        }
        af_rtn_free_edge(p->r, at, to);
        if (!nested) { /* a line may begin with '|' */
            const char *line_end = p->at;
            const uint32_t line = p->line;
            blank(p, true);
            if (peek(p) != '|') {
                p->at = line_end;
                p->line = line;
            }
        }
        if (p->r->st != AF_OK || peek(p) != '|')
            return;
        p->at++;
        blank(p, true);
    }
}

static void read_rule(gbnf *p)
{
    gbnf_rule *g = read_name(p);
    if (!g)
        return;
    blank(p, false);
    if (p->end - p->at < 3 || memcmp(p->at, "::=", 3) != 0) {
        bad(p, "'::=' is expected after rule name '%s'", g->name);
        return;
    }
    if (g->defined) {
        bad(p, "rule '%s' is defined twice", g->name);
        return;
    }
    p->at += 3;
    g->defined = true;
    blank(p, true);
    const af_rtn_rule body = p->r->rule[g->rule];
    read_alternatives(p, body.start, body.accept, false);
    if (more(p) && *p->at != '\n' && *p->at != '\r')
        bad(p, "unexpected '%c' after rule '%s'", *p->at > ' ' && *p->at < 127 ? *p->at : '?',
            g->name);
}

af_status af_gbnf_compile(af_rtn *r, const char *text, uint64_t len, af_error *err)
{
    gbnf p = {.r = r, .at = text, .end = text + len, .line = 1, .err = err};
    const uint64_t good = af_utf8_valid(text, len);
    if (good != len)
        return af_fail(err, AF_EFORMAT, "the grammar is not UTF-8 at byte %" PRIu64, good);
    for (blank(&p, true); more(&p); blank(&p, true))
        read_rule(&p);
    for (const gbnf_rule *g = p.newest; g && r->st == AF_OK; g = g->older) {
        p.line = g->line;
        if (!g->defined)
            bad(&p, "rule '%s' is not defined", g->name);
    }
    const gbnf_rule *root = r->st == AF_OK ? rule_of(&p, "root", 4) : NULL;
    if (r->st == AF_OK && !root->defined)
        af_rtn_fail(r, af_fail(err, AF_EFORMAT, "the grammar has no rule 'root'"));
    if (r->st == AF_OK)
        r->root = root->rule;
    return r->st;
}
