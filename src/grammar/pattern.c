/* pattern.c - regular expressions to automata with free edges.
 *
 * The text becomes a tree first, because a repetition writes its body several times. Engines
 * disagree on \d \w \s beyond ASCII, so each of them has two sets: what every engine takes and what
 * some engine takes. A negation takes the complement of the larger one, and what is excluded is
 * read with the larger ones, so that what is made fits for all of them. */
#include "grammar/pattern.h"
#include "format/text/unicode.h"

typedef enum regex_kind {
    REGEX_EMPTY,
    REGEX_SET,
    REGEX_BEGIN,
    REGEX_END,
    REGEX_CAT,
    REGEX_OR,
    REGEX_REPEAT,
} regex_kind;

typedef struct regex_node {
    regex_kind kind;
    const af_cpset *set;
    struct regex_node *a, *b;
    uint64_t min, max;
} regex_node;

typedef struct regex {
    af_pattern *p;
    const char *at, *end, *text;
    int depth;
    bool wide; /* classes take what some engine takes */
    af_status st;
    af_error *err;
} regex;

static void fail_at(regex *x, af_status st, const char *why)
{
    if (x->st == AF_OK)
        x->st = af_fail_subject(x->err, st, "pattern", "pattern '%.*s': %s at byte %d",
                                (int)AF_MIN(x->end - x->text, 80), x->text, why,
                                (int)(x->at - x->text));
}

static void no_memory(regex *x)
{
    if (x->st == AF_OK)
        x->st = af_fail_nomem(x->err, "a pattern", sizeof(regex_node));
}

static regex_node *node(regex *x, regex_kind kind, regex_node *a, regex_node *b)
{
    regex_node *n = x->st == AF_OK ? af_arena_take(&x->p->arena, sizeof *n) : NULL;
    if (!n) {
        no_memory(x);
        return NULL;
    }
    *n = (regex_node){.kind = kind, .a = a, .b = b};
    return n;
}

static regex_node *set_node(regex *x, const af_cpset *set)
{
    regex_node *n = node(x, REGEX_SET, NULL, NULL);
    if (n)
        n->set = set;
    return n;
}

/* A set that the pattern owns. */
static af_cpset *set_new(regex *x)
{
    af_pattern *p = x->p;
    if (p->sets == p->sets_cap) {
        af_cpset **grown = af_realloc(p->set, (uint64_t)p->sets_cap * 2 + 16, sizeof(af_cpset *));
        if (!grown) {
            no_memory(x);
            return NULL;
        }
        p->set = grown;
        p->sets_cap = p->sets_cap * 2 + 16;
    }
    af_cpset *s = af_calloc(1, sizeof *s);
    if (!s) {
        no_memory(x);
        return NULL;
    }
    p->set[p->sets++] = s;
    return s;
}

/* ---- classes ---- */

/* A class after a backslash. */
static bool is_class(const regex *x)
{
    return x->end - x->at > 1 && *x->at == '\\' && x->at[1] && strchr("dwsDWSpP", x->at[1]);
}

/* The same for what is between brackets that negate. */
static void add_class(regex *x, af_cpset *to, bool negated)
{
    const char *text = x->at + 1;
    const uint64_t n =
        af_class_add(to, text, (uint64_t)(x->end - text), x->wide != negated, &x->p->work);
    if (x->p->work > AF_PATTERN_WORK_MAX)
        fail_at(x, AF_EUSAGE, "too many ranges of characters");
    if (n == 0)
        fail_at(x, AF_EUNSUPPORTED, "a class of characters that is not supported");
    x->at = text + n;
}

static bool hex_number(regex *x, int digits, uint32_t *out)
{
    uint32_t v = 0;
    int n = 0;
    for (; n < digits && x->at < x->end; n++, x->at++) {
        const char c = *x->at;
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
        if (d < 0)
            break;
        v = v << 4 | (uint32_t)d;
    }
    *out = v;
    return n == digits;
}

/* After "\u": four digits, two surrogates, or {digits}. */
static uint32_t unicode_escape(regex *x)
{
    uint32_t cp = 0, low;
    if (x->at < x->end && *x->at == '{') {
        const char *close = memchr(x->at, '}', (size_t)(x->end - x->at));
        x->at++;
        if (!close || close == x->at || close - x->at > 6 ||
            !hex_number(x, (int)(close - x->at), &cp))
            fail_at(x, AF_EFORMAT, "bad \\u escape");
        else
            x->at++;
    } else if (!hex_number(x, 4, &cp)) {
        fail_at(x, AF_EFORMAT, "bad \\u escape");
    } else if (cp >= 0xd800 && cp < 0xdc00 && x->end - x->at >= 6 && memcmp(x->at, "\\u", 2) == 0) {
        x->at += 2;
        if (hex_number(x, 4, &low) && low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    }
    if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        fail_at(x, AF_EFORMAT, "an escape that is not a character");
    return cp;
}

/* The character after a backslash; classes and assertions are handled before. */
static uint32_t escaped(regex *x)
{
    uint32_t cp = 0;
    const char c = x->at < x->end ? *x->at++ : 0;
    switch (c) {
    case 't':
        return '\t';
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 'f':
        return '\f';
    case 'v':
        return '\v';
    case '0':
        return 0;
    case 'u':
        return unicode_escape(x);
    case 'x':
        if (!hex_number(x, 2, &cp))
            fail_at(x, AF_EFORMAT, "bad \\x escape");
        return cp;
    case 'c':
        if (x->at < x->end)
            return (uint8_t)*x->at++ & 31;
        break;
    default:
        if ((uint8_t)c > ' ' && (uint8_t)c < 0x80 && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z') &&
            !(c >= '1' && c <= '9'))
            return (uint8_t)c;
        if (c == ' ')
            return ' ';
    }
    fail_at(x, AF_EUNSUPPORTED, "an escape that is not supported");
    return 0;
}

static uint32_t next_char(regex *x)
{
    uint32_t cp;
    x->at += af_utf8_get(x->at, &cp);
    return cp;
}

/* A bound of a range inside brackets; true and nothing read when it is a class (\d ...). */
static bool class_bound(regex *x, uint32_t *cp)
{
    if (*x->at != '\\') {
        *cp = next_char(x);
        return false;
    }
    if (is_class(x))
        return true;
    x->at++;
    if (x->at < x->end && *x->at == 'b') {
        x->at++;
        *cp = '\b';
    } else {
        *cp = escaped(x);
    }
    return false;
}

static regex_node *brackets(regex *x)
{
    af_cpset *set = set_new(x);
    if (!set)
        return NULL;
    x->at++;
    uint32_t tidy = 0; /* ranges when they were last put in order */
    const bool negated = x->at < x->end && *x->at == '^';
    x->at += negated;
    while (x->st == AF_OK && x->at < x->end && *x->at != ']') {
        uint32_t lo, hi;
        if (class_bound(x, &lo)) {
            add_class(x, set, negated);
            if (set->count > 2 * tidy + 64) {
                af_cpset_tidy(set);
                tidy = set->count;
            }
            continue;
        }
        hi = lo;
        if (x->end - x->at > 1 && *x->at == '-' && x->at[1] != ']') {
            x->at++;
            if (class_bound(x, &hi)) { /* a-\d: three things */
                af_cpset_add(set, '-', '-');
                hi = lo;
            }
        }
        if (hi < lo)
            fail_at(x, AF_EFORMAT, "a range that ends before it begins");
        af_cpset_add(set, lo, hi);
    }
    if (x->at == x->end)
        fail_at(x, AF_EFORMAT, "no closing ']'");
    else
        x->at++;
    if (negated)
        af_cpset_negate(set);
    af_cpset_tidy(set);
    if (set->bad)
        no_memory(x);
    return set_node(x, set);
}

/* ---- the tree ---- */

static regex_node *alternatives(regex *x);

static regex_node *group(regex *x)
{
    x->at++;
    if (x->at < x->end && *x->at == '?') {
        const char *p = x->at + 1;
        p += x->end - p > 1 && *p == 'P'; /* as Python writes names */
        const bool named = x->end - p > 1 && p[0] == '<' && p[1] != '=' && p[1] != '!';
        if (named) {
            while (x->at < x->end && *x->at != '>')
                x->at++;
            x->at += x->at < x->end;
        } else if (x->end - x->at > 1 && x->at[1] == ':') {
            x->at += 2;
        } else {
            fail_at(x, AF_EUNSUPPORTED, "an assertion or flag that is not supported");
        }
    }
    if (++x->depth > AF_PATTERN_DEPTH_MAX)
        fail_at(x, AF_EUSAGE, "groups nested too deep");
    regex_node *n = x->st == AF_OK ? alternatives(x) : NULL;
    x->depth--;
    if (x->at == x->end || *x->at != ')')
        fail_at(x, AF_EFORMAT, "no closing ')'");
    else
        x->at++;
    return n;
}

static regex_node *one_char(regex *x, uint32_t cp)
{
    af_cpset *s = set_new(x);
    if (!s)
        return NULL;
    af_cpset_add(s, cp, cp);
    if (s->bad)
        no_memory(x);
    return set_node(x, s);
}

static regex_node *dot(regex *x)
{
    af_cpset *s = set_new(x);
    if (!s)
        return NULL;
    af_cpset_add(s, '\n', '\n');
    if (!x->wide) {
        af_cpset_add(s, '\r', '\r');
        af_cpset_add(s, 0x2028, 0x2029);
    }
    af_cpset_negate(s);
    if (s->bad)
        no_memory(x);
    x->at++;
    return set_node(x, s);
}

static regex_node *backslash(regex *x)
{
    const char c = x->end - x->at > 1 ? x->at[1] : 0;
    if (is_class(x)) {
        af_cpset *s = set_new(x);
        if (!s)
            return NULL;
        add_class(x, s, false);
        af_cpset_tidy(s);
        if (s->bad)
            no_memory(x);
        return set_node(x, s);
    }
    if (c && strchr("bBkAZzG", c))
        fail_at(x, AF_EUNSUPPORTED, "an escape that is not supported");
    x->at++;
    return one_char(x, escaped(x));
}

static regex_node *atom(regex *x)
{
    switch (*x->at) {
    case '(':
        return group(x);
    case '[':
        return brackets(x);
    case '.':
        return dot(x);
    case '\\':
        return backslash(x);
    case '^':
    case '$':
        return node(x, *x->at++ == '^' ? REGEX_BEGIN : REGEX_END, NULL, NULL);
    case '*':
    case '+':
    case '?':
        fail_at(x, AF_EFORMAT, "nothing to repeat");
        return NULL;
    default:
        return one_char(x, next_char(x));
    }
}

static bool number(const char **at, const char *end, uint64_t *n)
{
    const char *s = *at;
    for (*n = 0; *at < end && **at >= '0' && **at <= '9'; (*at)++)
        *n = AF_MIN(*n * 10 + (uint64_t)(**at - '0'), (uint64_t)1 << 32);
    return *at > s;
}

/* {n}, {n,} or {n,m} at the cursor; false when it is none of them and stands for itself. */
static bool counts(regex *x, uint64_t *min, uint64_t *max)
{
    const char *at = x->at + 1;
    if (!number(&at, x->end, min)) {
        if (x->end - at > 2 && at[0] == ',' && at[1] >= '0' && at[1] <= '9')
            fail_at(x, AF_EUNSUPPORTED, "{,n}, which engines read differently (write {0,n}),");
        return false;
    }
    *max = *min;
    if (at < x->end && *at == ',') {
        at++;
        if (!number(&at, x->end, max))
            *max = UINT64_MAX;
    }
    if (at == x->end || *at != '}')
        return false;
    x->at = at + 1;
    return true;
}

static regex_node *repeated(regex *x)
{
    regex_node *n = atom(x);
    while (x->st == AF_OK && x->at < x->end) {
        uint64_t min, max;
        const char c = *x->at;
        if (c == '*' || c == '+' || c == '?') {
            min = c == '+';
            max = c == '?' ? 1 : UINT64_MAX;
            x->at++;
        } else if (c != '{' || !counts(x, &min, &max)) {
            break;
        }
        if (x->at < x->end && *x->at == '?') /* lazy: the same strings */
            x->at++;
        if (max < min)
            fail_at(x, AF_EFORMAT, "a repetition with its bounds in the wrong order");
        if (++x->depth > AF_PATTERN_DEPTH_MAX)
            fail_at(x, AF_EUSAGE, "repetitions nested too deep");
        n = node(x, REGEX_REPEAT, n, NULL);
        if (n) {
            n->min = min;
            n->max = max;
        }
    }
    return n;
}

/* Sequences and alternatives are lists over `b`, so that a long pattern is not a deep tree. */
static regex_node *sequence(regex *x)
{
    regex_node *first = NULL, **last = &first;
    while (x->st == AF_OK && x->at < x->end && *x->at != '|' && *x->at != ')') {
        const int depth = x->depth;
        *last = node(x, REGEX_CAT, repeated(x), NULL);
        x->depth = depth;
        if (*last)
            last = &(*last)->b;
    }
    return first;
}

static regex_node *alternatives(regex *x)
{
    regex_node *first = node(x, REGEX_OR, sequence(x), NULL), *last = first;
    while (x->st == AF_OK && x->at < x->end && *x->at == '|') {
        x->at++;
        last->b = node(x, REGEX_OR, sequence(x), NULL);
        last = last->b ? last->b : last;
    }
    return first;
}

/* ---- the automaton ---- */

static uint32_t state(regex *x)
{
    af_pattern *p = x->p;
    if (x->st == AF_OK && p->states >= AF_PATTERN_STATES_MAX)
        fail_at(x, AF_EUSAGE, "too many states");
    if (x->st != AF_OK)
        return 0;
    if (p->states == p->states_cap) {
        uint32_t *grown = af_realloc(p->first, (uint64_t)p->states_cap * 2 + 64, sizeof *grown);
        if (!grown) {
            no_memory(x);
            return 0;
        }
        p->first = grown;
        p->states_cap = p->states_cap * 2 + 64;
    }
    p->first[p->states] = 0;
    return p->states++;
}

static void edge(regex *x, uint32_t from, af_pattern_edge_kind kind, const af_cpset *set,
                 uint32_t to)
{
    af_pattern *p = x->p;
    if (x->st != AF_OK)
        return;
    if (p->edges >= p->edges_cap) {
        af_pattern_edge *grown =
            af_realloc(p->edge, (uint64_t)p->edges_cap * 2 + 64, sizeof *grown);
        if (!grown) {
            no_memory(x);
            return;
        }
        p->edge = grown;
        p->edges_cap = p->edges_cap * 2 + 64;
    }
    p->edge[p->edges] = (af_pattern_edge){to, p->first[from], kind, set};
    p->first[from] = p->edges++;
}

static uint32_t emit(regex *x, const regex_node *n, uint32_t from);

static uint32_t emit_repeat(regex *x, const regex_node *n, uint32_t from)
{
    const bool open = n->max == UINT64_MAX;
    const uint32_t to = state(x);
    for (uint64_t i = 0; i < (open ? n->min : n->max) && x->st == AF_OK; i++) {
        const uint32_t before = x->p->states;
        if (i >= n->min)
            edge(x, from, AF_PATTERN_FREE, NULL, to);
        from = emit(x, n->a, from);
        if (x->p->states == before) /* the body is empty: more of it is the same */
            break;
    }
    if (open) {
        const uint32_t loop = state(x);
        edge(x, from, AF_PATTERN_FREE, NULL, loop);
        edge(x, emit(x, n->a, loop), AF_PATTERN_FREE, NULL, loop);
        from = loop;
    }
    edge(x, from, AF_PATTERN_FREE, NULL, to);
    return to;
}

static uint32_t emit(regex *x, const regex_node *n, uint32_t from)
{
    if (x->st != AF_OK || !n)
        return from;
    const uint32_t to = n->kind == REGEX_CAT || n->kind == REGEX_REPEAT ? 0 : state(x);
    switch (n->kind) {
    case REGEX_SET:
        edge(x, from, AF_PATTERN_SET, n->set, to);
        return to;
    case REGEX_BEGIN:
        edge(x, from, AF_PATTERN_BEGIN, NULL, to);
        return to;
    case REGEX_END:
        edge(x, from, AF_PATTERN_END, NULL, to);
        return to;
    case REGEX_REPEAT:
        return emit_repeat(x, n, from);
    case REGEX_CAT:
        for (; n; n = n->b)
            from = emit(x, n->a, from);
        return from;
    case REGEX_OR:
        for (; n; n = n->b)
            edge(x, emit(x, n->a, from), AF_PATTERN_FREE, NULL, to);
        return to;
    default:
        edge(x, from, AF_PATTERN_FREE, NULL, to);
        return to;
    }
}

af_status af_pattern_parse(af_pattern *out, const char *text, uint64_t len, af_pattern_use use,
                           af_error *err)
{
    af_pattern p = {.edges = 1, .negative = use == AF_PATTERN_EXCLUDE};
    regex x = {
        .p = &p, .at = text, .end = text + len, .text = text, .wide = p.negative, .err = err};
    if (af_utf8_valid(text, len) != len)
        return af_fail(err, AF_EFORMAT, "a pattern is not UTF-8");
    const regex_node *root = alternatives(&x);
    if (x.st == AF_OK && x.at < x.end)
        fail_at(&x, AF_EFORMAT, "unexpected ')'");
    af_cpset *any = set_new(&x);
    if (x.st == AF_OK) {
        af_cpset_add(any, 0, 0x10ffff);
        p.start = state(&x);
        p.accept = emit(&x, root, p.start);
    }
    if (x.st == AF_OK && use != AF_PATTERN_WHOLE) { /* anything before and after */
        edge(&x, p.start, AF_PATTERN_SET, any, p.start);
        edge(&x, p.accept, AF_PATTERN_SET, any, p.accept);
    }
    if (x.st != AF_OK)
        af_pattern_clear(&p);
    else
        *out = p;
    return x.st;
}

void af_pattern_clear(af_pattern *p)
{
    for (uint32_t i = 0; i < p->sets; i++) {
        af_cpset_clear(p->set[i]);
        free(p->set[i]);
    }
    free(p->set);
    free(p->first);
    free(p->edge);
    af_arena_clear(&p->arena);
    *p = (af_pattern){0};
}
