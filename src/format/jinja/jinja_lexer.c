/* jinja_lexer.c - from the text of a template to tokens.
 *
 * White space is decided here, as Jinja does with trim_blocks and lstrip_blocks on: "-" eats all of
 * it, a block or comment eats one newline after it, and blanks before it when they start a line.
 * Brackets are balanced here too, so that "}}" inside a dict literal does not end the output. */
#include "format/jinja/jinja_ast.h"

#define BRACKETS_MAX 256

typedef struct lexer {
    af_jtokens *out;
    af_arena *mem;
    const char *s;
    uint64_t n, at;
    int line;
    bool line_starting;
    af_error *err;
    af_status st;
} lexer;

static void bad(lexer *x, int line, const char *what, const char *detail)
{
    if (x->st == AF_OK)
        x->st = af_fail(x->err, AF_EFORMAT, "line %d: %s%s", line, what, detail);
}

static void no_memory(lexer *x)
{
    if (x->st == AF_OK)
        x->st = af_fail_nomem(x->err, "a template", x->n);
}

static void add(lexer *x, af_jtoken_type type, const char *p, uint64_t n)
{
    af_jtokens *t = x->out;
    if (t->n == t->cap) {
        const uint64_t cap = t->cap ? t->cap * 2 : 256;
        af_jtoken *item = af_realloc(t->item, cap, sizeof *item);
        if (!item) {
            no_memory(x);
            return;
        }
        t->item = item;
        t->cap = cap;
    }
    t->item[t->n++] = (af_jtoken){.type = (uint8_t)type, .line = x->line, .p = p, .n = n};
}

static bool starts_with(const lexer *x, uint64_t at, const char *p, uint64_t n)
{
    return at <= x->n && x->n - at >= n && !memcmp(x->s + at, p, n);
}

static bool starts(const lexer *x, uint64_t at, const char *lit)
{
    return starts_with(x, at, lit, strlen(lit));
}

/* First byte after white space that begins at `at`. */
static uint64_t skip_space(const lexer *x, uint64_t at)
{
    while (at < x->n) {
        const char *p = x->s + at;
        if (!af_juni_space(af_jutf8_next(&p)))
            break;
        at = (uint64_t)(p - x->s);
    }
    return at;
}

static uint64_t strip_right(const lexer *x, uint64_t from, uint64_t to)
{
    while (to > from) {
        const uint64_t k = af_jutf8_back(x->s, to);
        const char *p = x->s + k;
        if (!af_juni_space(af_jutf8_next(&p)))
            break;
        to = k;
    }
    return to;
}

/* Moves on, counting lines and whether a new line has just begun. */
static void advance(lexer *x, uint64_t to)
{
    for (uint64_t i = x->at; i < to; i++)
        x->line += x->s[i] == '\n';
    x->line_starting = to > x->at && x->s[to - 1] == '\n';
    x->at = to;
}

/* Emits the text in [x->at, end) that stands before a tag whose sign is `sign`. */
static void text_before(lexer *x, uint64_t end, char sign, bool is_variable)
{
    uint64_t stop = end;
    if (sign == '-') {
        stop = strip_right(x, x->at, end);
    } else if (sign != '+' && !is_variable) {
        uint64_t line = end;
        while (line > x->at && x->s[line - 1] != '\n')
            line--;
        const bool fresh = line > x->at || x->line_starting;
        if (fresh && line < end && skip_space(x, line) >= end)
            stop = line;
    }
    if (stop > x->at)
        add(x, AF_JTOKEN_TEXT, x->s + x->at, stop - x->at);
    const bool was = x->line_starting;
    const bool moved = end > x->at;
    advance(x, end);
    if (!moved)
        x->line_starting = was;
}

/* The end of a block or comment at `at` ("%}" or "#}" with an optional sign); 0 when none. */
static uint64_t tag_end(const lexer *x, uint64_t at, const char *mark)
{
    const char sign = at < x->n ? x->s[at] : 0;
    const bool has_sign = sign == '-' || sign == '+';
    const uint64_t m = at + has_sign;
    if (m > x->n || !starts(x, m, mark))
        return 0;
    if (sign == '-')
        return skip_space(x, m + 2);
    if (sign == '+')
        return m + 2;
    return m + 2 < x->n && x->s[m + 2] == '\n' ? m + 3 : m + 2;
}

static char sign_at(const lexer *x, uint64_t at)
{
    const char c = at < x->n ? x->s[at] : 0;
    return c == '-' || c == '+' ? c : 0;
}

static void comment(lexer *x)
{
    const int line = x->line;
    uint64_t i = x->at + 2 + (sign_at(x, x->at + 2) != 0);
    if (i >= x->n) { /* as Jinja: nothing after the sign is no error */
        advance(x, x->n);
        return;
    }
    for (; i < x->n; i++) {
        const uint64_t end = tag_end(x, i, "#}");
        if (end) {
            advance(x, end);
            return;
        }
    }
    bad(x, line, "Missing end of comment tag", "");
}

/* "{% raw %}" with its signs at `at`: the first byte after it, or 0. */
static uint64_t raw_begin(const lexer *x, uint64_t at)
{
    uint64_t i = skip_space(x, at + 2 + (sign_at(x, at + 2) != 0));
    if (!starts(x, i, "raw"))
        return 0;
    i = skip_space(x, i + 3);
    if (starts(x, i, "-%}"))
        return skip_space(x, i + 3);
    return starts(x, i, "%}") ? i + 2 : 0;
}

static void raw_block(lexer *x, uint64_t from)
{
    const int line = x->line;
    advance(x, from);
    for (uint64_t i = from; i + 1 < x->n; i++) {
        if (!starts(x, i, "{%"))
            continue;
        const char sign = sign_at(x, i + 2);
        uint64_t k = skip_space(x, i + 2 + (sign != 0));
        if (!starts(x, k, "endraw"))
            continue;
        const uint64_t end = tag_end(x, skip_space(x, k + 6), "%}");
        if (!end)
            continue;
        text_before(x, i, sign, false);
        advance(x, end);
        return;
    }
    if (from < x->n) /* as Jinja: nothing after the tag is no error */
        bad(x, line, "Missing end of raw directive", "");
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* The code point of \xHH, \uHHHH or \UHHHHHHHH whose digits begin at i; UINT32_MAX when broken. */
static uint32_t hex_escape(const char *s, uint64_t n, uint64_t i, int digits)
{
    uint32_t cp = 0;
    for (int k = 0; k < digits; k++) {
        const int h = i + (uint64_t)k < n ? hex_value(s[i + (uint64_t)k]) : -1;
        if (h < 0 || cp > 0x10ffff)
            return UINT32_MAX;
        cp = cp * 16 + (uint32_t)h;
    }
    return cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000) ? UINT32_MAX : cp;
}

/* Decodes the escape after a backslash at s[i - 1]; returns how many bytes it took. */
static uint64_t escape(lexer *x, af_buf *b, const char *s, uint64_t n, uint64_t i)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    const char c = s[i];
    for (size_t k = 0; k + 1 < sizeof plain; k += 2)
        if (plain[k] == c) {
            af_buf_char(b, plain[k + 1]);
            return 1;
        }
    if (c == '\n')
        return 1;
    if (c >= '0' && c <= '7') {
        uint32_t v = 0;
        uint64_t k = 0;
        while (k < 3 && i + k < n && s[i + k] >= '0' && s[i + k] <= '7')
            v = v * 8 + (uint32_t)(s[i + k++] - '0');
        af_buf_utf8(b, v);
        return k;
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits) {
        const uint32_t cp = hex_escape(s, n, i + 1, digits);
        if (cp == UINT32_MAX)
            bad(x, x->line, "a string has a broken or lone-surrogate escape", "");
        else
            af_buf_utf8(b, cp);
        return 1 + (uint64_t)digits;
    }
    if (c == 'N')
        bad(x, x->line, "a string has a \\N{...} escape, which is not supported", "");
    af_buf_char(b, '\\');
    af_buf_char(b, c);
    return 1;
}

static void string(lexer *x)
{
    const char quote = x->s[x->at];
    uint64_t end = x->at + 1;
    while (end < x->n && x->s[end] != quote)
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n) {
        bad(x, x->line, "a string is not closed: unexpected char ", quote == '"' ? "\"" : "'");
        return;
    }
    const char *s = x->s + x->at + 1;
    const uint64_t n = end - x->at - 1;
    af_buf b = {0};
    for (uint64_t i = 0; i < n && x->st == AF_OK;) {
        if (s[i] == '\\' && i + 1 < n) {
            i += 1 + escape(x, &b, s, n, i + 1);
            continue;
        }
        af_buf_char(&b, s[i++]);
    }
    char *text = b.bad ? NULL : af_arena_strndup(x->mem, b.len ? b.data : "", b.len);
    if (!text)
        no_memory(x);
    add(x, AF_JTOKEN_STRING, text, b.len);
    af_buf_clear(&b);
    advance(x, end + 1);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* Digits with single underscores between them, from i. */
static uint64_t digits(const lexer *x, uint64_t i)
{
    while (i < x->n && (is_digit(x->s[i]) || (x->s[i] == '_' && i + 1 < x->n && i > 0 &&
                                              is_digit(x->s[i - 1]) && is_digit(x->s[i + 1]))))
        i++;
    return i;
}

static uint64_t radix_number(const lexer *x, uint64_t i)
{
    const char r = i + 1 < x->n ? (char)(x->s[i + 1] | 32) : 0;
    const int base = r == 'x' ? 16 : r == 'o' ? 8 : r == 'b' ? 2 : 0;
    if (x->s[i] != '0' || !base)
        return 0;
    uint64_t k = i + 2;
    while (k < x->n && (x->s[k] == '_' || (hex_value(x->s[k]) >= 0 && hex_value(x->s[k]) < base)))
        k++;
    return k > i + 2 ? k : 0;
}

static void number(lexer *x)
{
    uint64_t end = radix_number(x, x->at);
    af_jtoken_type type = AF_JTOKEN_INT;
    if (!end) {
        end = digits(x, x->at);
        uint64_t k = end;
        const bool after_dot = x->at > 0 && x->s[x->at - 1] == '.';
        if (!after_dot && k + 1 < x->n && x->s[k] == '.' && is_digit(x->s[k + 1])) {
            end = k = digits(x, k + 1);
            type = AF_JTOKEN_FLOAT;
        }
        if (!after_dot && k < x->n && (x->s[k] | 32) == 'e') {
            k++;
            k += k < x->n && (x->s[k] == '+' || x->s[k] == '-');
            if (k < x->n && is_digit(x->s[k])) {
                end = digits(x, k);
                type = AF_JTOKEN_FLOAT;
            }
        }
    }
    add(x, type, x->s + x->at, end - x->at);
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
    const char c = x->s[x->at];
    uint64_t n = c && strchr(one, c) ? 1 : 0;
    for (size_t i = 0; i + 1 < sizeof two; i += 2)
        n = starts_with(x, x->at, two + i, 2) ? 2 : n;
    const char shown[2] = {c, 0};
    if (n == 0)
        bad(x, x->line, "unexpected character ", shown);
    else if (strchr("([{", c) && *depth == BRACKETS_MAX)
        bad(x, x->line, "brackets are nested too deeply", "");
    else if (strchr("([{", c))
        stack[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    else if (strchr(")]}", c) && (*depth == 0 || stack[--*depth] != c))
        bad(x, x->line, "unexpected bracket ", shown);
    add(x, AF_JTOKEN_OP, x->s + x->at, n);
    advance(x, x->at + n);
}

/* The inside of {{ }} or {% %}, up to and with its end. */
static void tag(lexer *x, bool is_variable)
{
    char stack[BRACKETS_MAX];
    int depth = 0;
    while (x->st == AF_OK && x->at < x->n) {
        uint64_t end = 0;
        if (depth == 0 && is_variable)
            end = starts(x, x->at, "-}}")  ? skip_space(x, x->at + 3)
                  : starts(x, x->at, "}}") ? x->at + 2
                                           : 0;
        else if (depth == 0)
            end = tag_end(x, x->at, "%}");
        if (end) {
            add(x, is_variable ? AF_JTOKEN_VAR_END : AF_JTOKEN_BLOCK_END, NULL, 0);
            advance(x, end);
            return;
        }
        const char c = x->s[x->at];
        const uint64_t space = skip_space(x, x->at);
        if (space > x->at) {
            advance(x, space);
        } else if (is_digit(c)) {
            number(x);
        } else if (name_char(c)) {
            uint64_t k = x->at;
            while (k < x->n && name_char(x->s[k]))
                k++;
            add(x, AF_JTOKEN_NAME, x->s + x->at, k - x->at);
            advance(x, k);
        } else if (c == '"' || c == '\'') {
            string(x);
        } else {
            operator_token(x, stack, &depth);
        }
    }
    /* the parser meets the end of the template and says what it was looking for */
}

static void lex(lexer *x)
{
    while (x->st == AF_OK && x->at < x->n) {
        uint64_t i = x->at;
        while (i + 1 < x->n && !(x->s[i] == '{' && strchr("{%#", x->s[i + 1]) && x->s[i + 1]))
            i++;
        if (i + 1 >= x->n) {
            add(x, AF_JTOKEN_TEXT, x->s + x->at, x->n - x->at);
            advance(x, x->n);
            return;
        }
        const char kind = x->s[i + 1];
        const char sign = sign_at(x, i + 2);
        text_before(x, i, sign, kind == '{');
        const uint64_t raw = kind == '%' ? raw_begin(x, i) : 0;
        if (kind == '#') {
            comment(x);
        } else if (raw) {
            raw_block(x, raw);
        } else {
            add(x, kind == '{' ? AF_JTOKEN_VAR_BEGIN : AF_JTOKEN_BLOCK_BEGIN, NULL, 0);
            advance(x, i + 2 + (sign != 0));
            tag(x, kind == '{');
        }
    }
}

af_status af_jlex(af_jtokens *out, af_arena *mem, const char *source, uint64_t len, af_error *err)
{
    char *s = af_arena_take(mem, len + 1);
    if (!s)
        return af_fail_nomem(err, "a template", len);
    uint64_t n = 0;
    for (uint64_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        s[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    n -= n > 0 && s[n - 1] == '\n'; /* keep_trailing_newline is off */
    lexer x = {
        .out = out, .mem = mem, .s = s, .n = n, .line = 1, .line_starting = true, .err = err};
    lex(&x);
    add(&x, AF_JTOKEN_EOF, NULL, 0);
    return x.st;
}
