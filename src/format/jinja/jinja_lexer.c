/* jinja_lexer.c - from the text of a template to tokens.
 *
 * White space is decided here, as Jinja does with trim_blocks and lstrip_blocks on: "-" eats all of
 * it, a block or comment eats one newline after it, and blanks before it when they start a line.
 * Brackets are balanced here too, so that "}}" inside a dict literal does not end the output.
 *
 * The source ends with a NUL, which no look-ahead matches: only loops check for the end. */
#include "format/jinja/jinja_ast.h"

#include "format/text/python_text.h"

#include <errno.h>

#define BRACKETS_MAX 256

typedef struct lexer {
    af_jparser *p;
    const char *at, *end;
    int line;
    bool line_starting; /* `at` is at the start of a line */
    uint64_t n;         /* tokens so far */
    int cap;
} lexer;

static void add(lexer *x, af_jtoken_type type, const char *p, uint64_t n)
{
    af_jtoken *item = af_jgrow(x->p, x->p->tokens, (int)x->n, &x->cap, sizeof *item);
    if (!item)
        return;
    x->p->tokens = item;
    item[x->n++] = (af_jtoken){.type = (uint8_t)type, .line = x->line, .p = p, .n = n};
}

static bool starts(const char *at, const char *lit) { return !strncmp(at, lit, strlen(lit)); }
static char sign_at(const char *at) { return (char)(*at == '-' || *at == '+' ? *at : 0); }

static const char *skip_space(const lexer *x, const char *at)
{
    for (const char *p = at; at < x->end && af_py_space(af_utf8_next(&p)); at = p)
        continue;
    return at;
}

/* Moves on, counting lines. */
static void advance(lexer *x, const char *to)
{
    for (const char *p = x->at; p < to; p++)
        x->line += *p == '\n';
    if (to > x->at)
        x->line_starting = to[-1] == '\n';
    x->at = to;
}

/* Adds the text up to `end`, where a tag with that sign stands. */
static void text_before(lexer *x, const char *end, char sign, bool is_variable)
{
    const char *stop = end;
    if (sign == '-') {
        for (const char *p; stop > x->at; stop = p) {
            p = x->at + af_utf8_before(x->at, (uint64_t)(stop - x->at));
            const char *q = p;
            if (!af_py_space(af_utf8_next(&q)))
                break;
        }
    } else if (sign != '+' && !is_variable) {
        const char *line = end;
        while (line > x->at && line[-1] != '\n')
            line--;
        if ((line > x->at || x->line_starting) && skip_space(x, line) >= end)
            stop = line;
    }
    if (stop > x->at)
        add(x, AF_JTOKEN_TEXT, x->at, (uint64_t)(stop - x->at));
    advance(x, end);
}

/* What follows the end of a block or comment at `at` ("%}" or "#}", with its sign); or NULL. */
static const char *tag_end(const lexer *x, const char *at, const char *mark)
{
    const char sign = sign_at(at);
    at += sign != 0;
    if (!starts(at, mark))
        return NULL;
    return sign == '-' ? skip_space(x, at + 2) : at + 2 + (!sign && at[2] == '\n');
}

static void comment(lexer *x)
{
    const char *at = x->at + 2, *end = NULL;
    at += sign_at(at) != 0;
    if (at >= x->end)
        end = at; /* as Jinja: nothing after the sign is not an error */
    for (; at < x->end && !end; at++)
        end = tag_end(x, at, "#}");
    if (!end)
        af_jsyntax(x->p, x->line, "Missing end of comment tag");
    advance(x, end ? end : x->end);
}

/* What follows "{% raw %}" at `at`, or NULL. */
static const char *raw_begin(const lexer *x, const char *at)
{
    at = skip_space(x, at + 2 + (sign_at(at + 2) != 0));
    if (!starts(at, "raw"))
        return NULL;
    at = skip_space(x, at + 3);
    return starts(at, "-%}") ? skip_space(x, at + 3) : starts(at, "%}") ? at + 2 : NULL;
}

static void raw_block(lexer *x, const char *from)
{
    advance(x, from);
    for (const char *at = from; at < x->end; at++) {
        if (!starts(at, "{%"))
            continue;
        const char sign = sign_at(at + 2);
        const char *tag = skip_space(x, at + 2 + (sign != 0));
        const char *end = starts(tag, "endraw") ? tag_end(x, skip_space(x, tag + 6), "%}") : NULL;
        if (end) {
            text_before(x, at, sign, false);
            advance(x, end);
            return;
        }
    }
    if (from < x->end) /* as Jinja: nothing after the tag is not an error */
        af_jsyntax(x->p, x->line, "Missing end of raw directive");
}

/* One string, or several side by side. */
static void string(lexer *x)
{
    af_buf b = {0};
    const char *at = x->at;
    while ((*at == '"' || *at == '\'') && !x->p->failed) {
        const char quote = *at++;
        while (at < x->end && *at != quote) {
            const int taken = *at == '\\' && at + 1 < x->end ? af_py_unescape(&b, at + 1) : -1;
            if (taken < 0)
                af_buf_char(&b, *at);
            else if (taken == 0)
                af_jsyntax(x->p, x->line, "not supported: the escape \\%c of a string", at[1]);
            at += 1 + AF_MAX(taken, 0);
        }
        if (at++ >= x->end)
            af_jsyntax(x->p, x->line, "a string is not closed: unexpected char %c", quote);
        at = skip_space(x, at);
    }
    char *text = af_jparser_take(x->p, b.len + 1);
    if (text && b.len)
        memcpy(text, b.data, b.len);
    add(x, AF_JTOKEN_STRING, text, b.len);
    af_buf_clear(&b);
    if (!x->p->failed)
        advance(x, at);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Past the digits of a base, with single underscores between them. */
static const char *digits(const char *at, int base)
{
    for (;; at++) {
        const char c = *at == '_' ? at[1] : *at;
        const int value = is_digit(c) ? c - '0' : (c | 32) >= 'a' ? (c | 32) - 'a' + 10 : 99;
        if (value >= base)
            return at;
    }
}

static void number(lexer *x)
{
    char text[64] = {0};
    const char *at = x->at, r = (char)(at[0] == '0' ? at[1] | 32 : 0);
    const int base = r == 'x' ? 16 : r == 'o' ? 8 : r == 'b' ? 2 : 10;
    const bool whole = base != 10 || at[-1] == '.'; /* a.1.2 is two subscripts */
    const char *end = digits(base == 10 ? at : at + 2, base), *const point = end;
    if (!whole && *end == '.' && is_digit(end[1]))
        end = digits(end + 1, 10);
    if (!whole && (*end | 32) == 'e' && is_digit(end[1 + (sign_at(end + 1) != 0)]))
        end = digits(end + 1 + (sign_at(end + 1) != 0), 10);
    size_t n = 0;
    for (at = base == 10 ? at : at + 2; at < end && n + 1 < sizeof text; at++)
        if (*at != '_')
            text[n++] = *at;
    errno = 0;
    const bool real = end > point;
    const af_jval v = real ? af_jfloat(strtod(text, NULL)) : af_jint(strtoll(text, NULL, base));
    if (at < end || (!real && errno))
        af_jsyntax(x->p, x->line, "the number %s does not fit in 64 bits", text);
    if (!real && base == 10 && text[0] == '0' && strspn(text, "0") < n)
        af_jsyntax(x->p, x->line, "the integer %s begins with a zero", text);
    add(x, AF_JTOKEN_NUMBER, x->at, (uint64_t)(end - x->at));
    if (!x->p->failed)
        x->p->tokens[x->n - 1].value = v;
    advance(x, end);
}

static bool name_char(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

static void operator_token(lexer *x, char *stack, int *depth)
{
    static const char two[] = "//**==!=>=<=", one[] = "+-/*%~[](){}><=.:|,;";
    const char c = *x->at;
    uint64_t n = c && strchr(one, c) ? 1 : 0;
    for (size_t i = 0; i + 1 < sizeof two; i += 2)
        n = c == two[i] && x->at[1] == two[i + 1] ? 2 : n;
    if (n == 0 || (strchr(")]}", c) && (*depth == 0 || stack[--*depth] != c)))
        af_jsyntax(x->p, x->line, "unexpected character '%c'", c);
    else if (strchr("([{", c) && *depth == BRACKETS_MAX)
        af_jsyntax(x->p, x->line, "brackets are nested too deeply");
    else if (strchr("([{", c))
        stack[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    add(x, AF_JTOKEN_OP, x->at, n);
    advance(x, x->at + n);
}

/* The inside of {{ }} or {% %}, up to and with its end. */
static void tag(lexer *x, bool is_variable)
{
    char stack[BRACKETS_MAX];
    int depth = 0;
    while (!x->p->failed && x->at < x->end) {
        const char *at = x->at, *end = NULL;
        if (depth == 0 && is_variable)
            end = starts(at, "-}}") ? skip_space(x, at + 3) : starts(at, "}}") ? at + 2 : NULL;
        else if (depth == 0)
            end = tag_end(x, at, "%}");
        if (end) {
            add(x, is_variable ? AF_JTOKEN_VAR_END : AF_JTOKEN_BLOCK_END, NULL, 0);
            advance(x, end);
            return;
        }
        if (skip_space(x, at) > at) {
            advance(x, skip_space(x, at));
        } else if (is_digit(*at)) {
            number(x);
        } else if (name_char(*at)) {
            while (name_char(*at))
                at++;
            add(x, AF_JTOKEN_NAME, x->at, (uint64_t)(at - x->at));
            advance(x, at);
        } else if (*at == '"' || *at == '\'') {
            string(x);
        } else {
            operator_token(x, stack, &depth);
        }
    }
    /* at the end of the template the parser reports what it was looking for */
}

static void lex(lexer *x)
{
    while (!x->p->failed && x->at < x->end) {
        const char *at = x->at;
        while (at < x->end && !(*at == '{' && at[1] && strchr("{%#", at[1])))
            at++;
        if (at >= x->end) {
            add(x, AF_JTOKEN_TEXT, x->at, (uint64_t)(at - x->at));
            return;
        }
        const char kind = at[1], sign = sign_at(at + 2);
        text_before(x, at, sign, kind == '{');
        const char *raw = kind == '%' ? raw_begin(x, at) : NULL;
        if (kind == '#') {
            comment(x);
        } else if (raw) {
            raw_block(x, raw);
        } else {
            add(x, kind == '{' ? AF_JTOKEN_VAR_BEGIN : AF_JTOKEN_BLOCK_BEGIN, NULL, 0);
            advance(x, at + 2 + (sign != 0));
            tag(x, kind == '{');
        }
    }
}

void af_jlex(af_jparser *p, const char *source, uint64_t len)
{
    char *s = af_jparser_take(p, len + 2), *end = s;
    if (!s)
        return;
    for (uint64_t i = 0; i < len; i++)
        if (source[i] != '\r' || i + 1 == len || source[i + 1] != '\n')
            *end++ = (char)(source[i] == '\r' ? '\n' : source[i]);
    if (end > s && end[-1] == '\n') /* keep_trailing_newline is off */
        *--end = 0;
    lexer x = {.p = p, .at = s, .end = end, .line = 1, .line_starting = true};
    lex(&x);
    add(&x, AF_JTOKEN_EOF, NULL, 0);
}
