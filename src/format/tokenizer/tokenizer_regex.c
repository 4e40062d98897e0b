/* tokenizer_regex.c - patterns written for Oniguruma (Ruby syntax), matched by PCRE2 with JIT.
 *
 * The translator copies what both engines read alike and rewrites the rest: classes and properties
 * become explicit ranges (so the Unicode version is ours, not the library's), \b \h \v \u, flags,
 * {,n}, quantified quantifiers ({1,3}+ is not possessive in Ruby), and (?i) in the middle. */
#include "format/tokenizer/regex_set.h"
#include "format/tokenizer/tokenizer.h"

#include <pcre2.h>

enum { PATTERN_MAX = 1 << 16, GROUPS_MAX = 200 };

struct af_regex {
    pcre2_code *code;
};

struct af_regex_work {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

typedef struct translator {
    af_regex_reader p;
    af_buf out;
    uint64_t atom;   /* where the last atom begins in out; UINT64_MAX = none to repeat */
    bool quantified; /* ... and it has a quantifier already */
    uint64_t open[GROUPS_MAX];
    int extra[GROUPS_MAX]; /* closing parentheses pending for (?i) in the middle */
    int depth;
} translator;

static void begin_atom(translator *t)
{
    t->atom = t->out.len;
    t->quantified = false;
}

static af_status write_class(translator *t, af_status (*read)(af_regex_set *, translator *, char),
                             char c)
{
    af_regex_set *s = af_calloc(1, sizeof *s);
    if (!s)
        return af_fail_nomem(t->p.err, "a character class", sizeof *s);
    const af_status st = read(s, t, c);
    if (st == AF_OK)
        af_regex_set_write(s, &t->out);
    free(s);
    return st;
}

static af_status read_bracket(af_regex_set *s, translator *t, char c)
{
    (void)c;
    return af_regex_set_class(s, &t->p);
}
static af_status read_property(af_regex_set *s, translator *t, char c)
{
    return af_regex_set_property(s, &t->p, c == 'P');
}
static af_status read_shorthand(af_regex_set *s, translator *t, char c)
{
    if (!af_regex_set_shorthand(s, c == 'W' ? 'w' : c))
        return af_fail_nomem(t->p.err, "a character class", sizeof *s);
    if (c == 'w' || c == 'W')
        af_regex_set_bare_word(s);
    if (c == 'W')
        af_regex_set_invert(s);
    return AF_OK;
}

static af_status boundary(translator *t, bool negated)
{
    static const char *const parts[2][4] = {{"(?:(?<=", ")(?!", ")|(?<!", ")(?="},
                                            {"(?:(?<=", ")(?=", ")|(?<!", ")(?!"}};
    af_status st = AF_OK;
    for (int i = 0; i < 4; i++) {
        af_buf_str(&t->out, parts[negated][i]);
        AF_TRY(write_class(t, read_shorthand, 'w'));
    }
    af_buf_str(&t->out, "))");
done:
    return st;
}

static af_status escape(translator *t)
{
    uint32_t cp;
    if (++t->p.at >= t->p.end)
        return af_fail(t->p.err, AF_EFORMAT, "regex ends with a backslash");
    const char *from = t->p.at;
    t->p.at += af_utf8_get(t->p.at, &cp);
    const char c = cp < 0x80 ? (char)cp : 0;
    begin_atom(t);
    if (c == 'b' || c == 'B')
        return boundary(t, c == 'B');
    if (c && strchr("dDwWsShH", c))
        return write_class(t, read_shorthand, c);
    if (c == 'p' || c == 'P')
        return write_class(t, read_property, c);
    if (c == 'x' || c == 'u' || c == '0') {
        const af_status st = af_regex_reader_number(&t->p, c, &cp);
        if (st == AF_OK)
            af_buf_printf(&t->out, "\\x{%x}", (unsigned)cp);
        return st;
    }
    if (c == 'v') {
        af_buf_str(&t->out, "\\x{b}");
        return AF_OK;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool digit = c >= '1' && c <= '9';
    if (c && strchr("AzZG", c))
        t->atom = UINT64_MAX;
    if (letter && !strchr("AzZGKRXntrfaek", c))
        return af_fail(t->p.err, AF_EUNSUPPORTED, "unknown regex escape \\%c", c);
    if (letter || digit || cp < 0x80)
        af_buf_char(&t->out, '\\');
    af_buf_add(&t->out, from, (uint64_t)(t->p.at - from));
    return AF_OK;
}

/* (?imx-imx) or (?imx-imx: with the letters changed to PCRE2's. */
static af_status flags(translator *t)
{
    af_buf_str(&t->out, "(?");
    t->p.at += 2;
    for (; t->p.at < t->p.end && *t->p.at != ')' && *t->p.at != ':'; t->p.at++) {
        const char c = *t->p.at;
        if (!c || !strchr("imx-", c))
            return af_fail(t->p.err, AF_EUNSUPPORTED, "unknown regex group (?%c", c);
        af_buf_char(&t->out, c == 'm' ? 's' : c);
    }
    if (t->p.at >= t->p.end)
        return af_fail(t->p.err, AF_EFORMAT, "unclosed group in regex");
    af_buf_char(&t->out, ':');
    if (*t->p.at++ == ')') { /* Ruby: to the end of the enclosing group, alternatives included */
        t->extra[t->depth]++;
        t->atom = UINT64_MAX;
        return AF_OK;
    }
    return AF_OK;
}

static af_status open_group(translator *t)
{
    static const char *const heads[] = {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"};
    const uint64_t left = (uint64_t)(t->p.end - t->p.at), start = t->out.len;
    bool isolated = false;
    if (t->depth + 1 >= GROUPS_MAX)
        return af_fail(t->p.err, AF_EUNSUPPORTED, "regex groups are nested deeper than %d",
                       GROUPS_MAX);
    size_t n = 0;
    for (size_t i = 0; i < AF_LEN(heads); i++)
        if (left >= strlen(heads[i]) && memcmp(t->p.at, heads[i], strlen(heads[i])) == 0)
            n = strlen(heads[i]);
    if (n == 0 && left >= 2 && t->p.at[1] == '?') {
        if (left >= 3 && t->p.at[2] == '<') {
            n = 3; /* a name follows, copied as plain characters */
        } else {
            const int pending = t->extra[t->depth];
            const af_status st = flags(t);
            if (st != AF_OK)
                return st;
            isolated = t->extra[t->depth] != pending;
        }
    } else if (n == 0) {
        n = 1;
    }
    af_buf_add(&t->out, t->p.at, n);
    t->p.at += n;
    if (isolated)
        return AF_OK;
    t->open[++t->depth] = start;
    t->extra[t->depth] = 0;
    t->atom = UINT64_MAX;
    return AF_OK;
}

static af_status close_group(translator *t)
{
    if (t->depth == 0)
        return af_fail(t->p.err, AF_EFORMAT, "unmatched ')' in regex");
    for (; t->extra[t->depth] > 0; t->extra[t->depth]--)
        af_buf_char(&t->out, ')');
    af_buf_char(&t->out, ')');
    t->atom = t->open[t->depth--];
    t->quantified = false;
    t->p.at++;
    return AF_OK;
}

/* {n} {n,} {,n} {n,m}: true and its end; anything else is a plain brace. */
static bool interval(const char *at, const char *end, const char **after, bool *exact)
{
    const char *p = at + 1;
    int digits = 0, commas = 0;
    for (; p < end && ((*p >= '0' && *p <= '9') || *p == ','); p++) {
        commas += *p == ',';
        digits += *p != ',';
    }
    *after = p + 1;
    *exact = commas == 0;
    return p < end && *p == '}' && digits > 0 && commas <= 1;
}

static void wrap_atom(translator *t)
{
    if (!af_buf_reserve(&t->out, 4))
        return;
    memmove(t->out.data + t->atom + 3, t->out.data + t->atom, t->out.len - t->atom);
    memcpy(t->out.data + t->atom, "(?:", 3);
    t->out.len += 3;
    af_buf_char(&t->out, ')');
}

static af_status quantifier(translator *t, const char *after, bool exact)
{
    if (t->atom == UINT64_MAX)
        return af_fail(t->p.err, AF_EFORMAT, "nothing to repeat in regex");
    if (t->quantified)
        wrap_atom(t);
    const bool braces = *t->p.at == '{';
    if (braces && t->p.at[1] == ',') {
        af_buf_str(&t->out, "{0");
        t->p.at++;
    }
    af_buf_add(&t->out, t->p.at, (uint64_t)(after - t->p.at));
    t->p.at = after;
    t->quantified = true;
    if (t->p.at < t->p.end &&
        ((*t->p.at == '?' && !(braces && exact)) || (*t->p.at == '+' && !braces)))
        af_buf_char(&t->out, *t->p.at++);
    return AF_OK;
}

static af_status step(translator *t)
{
    const char c = *t->p.at, *after = t->p.at + 1;
    bool exact = false;
    switch (c) {
    case '\\':
        return escape(t);
    case '[':
        begin_atom(t);
        t->p.at++;
        return write_class(t, read_bracket, c);
    case '(':
        return open_group(t);
    case ')':
        return close_group(t);
    case '*':
    case '+':
    case '?':
        return quantifier(t, after, false);
    case '{':
        if (interval(t->p.at, t->p.end, &after, &exact))
            return quantifier(t, after, exact);
        begin_atom(t);
        af_buf_str(&t->out, "\\{");
        t->p.at++;
        return AF_OK;
    case '|':
    case '^':
    case '$':
        af_buf_char(&t->out, c);
        t->p.at++;
        t->atom = UINT64_MAX;
        return AF_OK;
    default:
        begin_atom(t);
        if (c == ']' || c == '}' || c == '#')
            af_buf_char(&t->out, '\\');
        af_buf_add(&t->out, t->p.at, af_utf8_len(c));
        t->p.at += af_utf8_len(c);
        return AF_OK;
    }
}

static af_status translate(af_buf *out, const char *pattern, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    translator *t = af_calloc(1, sizeof *t);
    if (!t)
        return af_fail_nomem(err, "a regex", sizeof *t);
    t->p = (af_regex_reader){.at = pattern, .end = pattern + len, .err = err};
    t->atom = UINT64_MAX;
    while (t->p.at < t->p.end)
        AF_TRY(step(t));
    if (t->depth) {
        st = af_fail(err, AF_EFORMAT, "%d unclosed groups in regex", t->depth);
        goto done;
    }
    for (; t->extra[0] > 0; t->extra[0]--)
        af_buf_char(&t->out, ')');
    if (t->out.bad) {
        st = af_fail_nomem(err, "a regex", t->out.len);
        goto done;
    }
    *out = t->out;
    t->out = (af_buf){0};
done:
    af_buf_clear(&t->out);
    free(t);
    return st;
}

af_status af_regex_new(af_regex **out, const char *pattern, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    af_buf text = {0};
    pcre2_compile_context *context = NULL;
    af_regex *r = NULL;
    int code;
    PCRE2_SIZE at;
    PCRE2_UCHAR why[200];

    if (len > PATTERN_MAX)
        return af_fail(err, AF_EUNSUPPORTED, "a regex of %" PRIu64 " bytes is longer than %d", len,
                       PATTERN_MAX);
    AF_TRY(translate(&text, pattern, len, err));
    context = pcre2_compile_context_create(NULL);
    r = af_calloc(1, sizeof *r);
    if (!context || !r) {
        st = af_fail_nomem(err, "a regex", sizeof *r);
        goto done;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
                            PCRE2_UTF | PCRE2_MULTILINE, &code, &at, context);
    if (!r->code) {
        pcre2_get_error_message(code, why, sizeof why);
        st = af_fail(err, AF_EUNSUPPORTED, "the regex \"%.*s\" does not compile: %s",
                     (int)AF_MIN(len, 200), pattern, (const char *)why);
        goto done;
    }
    (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without it matching is only slower */
    *out = r;
    r = NULL;
done:
    af_regex_free(r);
    pcre2_compile_context_free(context);
    af_buf_clear(&text);
    return st;
}

void af_regex_free(af_regex *r)
{
    if (r)
        pcre2_code_free(r->code);
    free(r);
}

void af_regex_work_free(af_regex_work *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->data);
    pcre2_match_context_free(w->context);
    pcre2_jit_stack_free(w->stack);
    free(w);
}

static af_status work_new(af_regex_work **out, af_error *err)
{
    af_regex_work *w = af_calloc(1, sizeof *w);
    if (w) {
        w->data = pcre2_match_data_create(1, NULL);
        w->context = pcre2_match_context_create(NULL);
        w->stack = pcre2_jit_stack_create(32 << 10, 8 << 20, NULL);
    }
    if (!w || !w->data || !w->context) {
        af_regex_work_free(w);
        return af_fail_nomem(err, "matching a regex", sizeof *w);
    }
    if (w->stack)
        pcre2_jit_stack_assign(w->context, NULL, w->stack);
    *out = w;
    return AF_OK;
}

af_status af_regex_next(const af_regex *r, af_regex_work **w, const char *text, uint32_t len,
                        uint32_t from, uint32_t *start, uint32_t *end, af_error *err)
{
    af_status st = AF_OK;
    if (!*w)
        AF_TRY(work_new(w, err));
    const int n = pcre2_match(r->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, (*w)->data,
                              (*w)->context);
    *start = UINT32_MAX;
    if (n == PCRE2_ERROR_NOMATCH)
        return AF_OK;
    if (n < 0) {
        PCRE2_UCHAR why[200];
        pcre2_get_error_message(n, why, sizeof why);
        return af_fail(err, AF_EUNSUPPORTED, "regex match limit exceeded: %s", (const char *)why);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer((*w)->data);
    *start = (uint32_t)v[0];
    *end = (uint32_t)AF_MAX(v[1], v[0]);
done:
    return st;
}
