#define _GNU_SOURCE /* memmem */
/* call_literal.c - see call_literal.h. */
#include "grammar/call_literal.h"
#include "format/text/json_text.h"

enum { DEPTH_MAX = 64 };

typedef struct literal {
    const char *s;
    uint64_t n, at;
    af_buf *out;
    int depth;
    bool more; /* it failed at the end of the text */
} literal;

static bool read_value(literal *l);

bool af_call_string(af_buf *out, const char *text, uint64_t n)
{
    json_t *v = json_stringn(text, n);
    char *quoted = v ? af_json_dump(v, JSON_ENCODE_ANY) : NULL;
    if (quoted)
        af_buf_str(out, quoted);
    free(quoted);
    json_decref(v);
    return quoted != NULL;
}

static char peek(literal *l)
{
    l->at = af_skip_blank(l->s, l->n, l->at);
    l->more |= l->at == l->n;
    return l->at < l->n ? l->s[l->at] : 0;
}

/* Is this mark next? `more` where the text ends inside of it. */
static bool next_is(literal *l, const char *mark)
{
    const uint64_t len = strlen(mark), n = AF_MIN(len, l->n - l->at);
    if (memcmp(l->s + l->at, mark, n) != 0)
        return false;
    l->more |= n < len;
    return n == len;
}

/* The text up to the same mark, as it stands. */
static bool raw_text(literal *l, const char *mark)
{
    const char *from = l->s + l->at + strlen(mark);
    const char *end = memmem(from, l->n - (uint64_t)(from - l->s), mark, strlen(mark));
    if (!end) {
        l->more = true;
        return false;
    }
    l->at = (uint64_t)(end - l->s) + strlen(mark);
    return af_call_string(l->out, from, (uint64_t)(end - from));
}

/* \uXXXX or \xXX at `at`, after the backslash; 0 when it is neither. */
static uint64_t hex_escape(const literal *l, uint64_t at, uint32_t *code)
{
    const uint64_t digits = l->s[at] == 'u' ? 4 : l->s[at] == 'x' ? 2 : 0;
    char text[5] = {0};
    if (!digits || at + 1 + digits >= l->n)
        return 0;
    memcpy(text, l->s + at + 1, digits);
    if (strspn(text, "0123456789abcdefABCDEF") != digits)
        return 0;
    *code = (uint32_t)strtoul(text, NULL, 16);
    return 1 + digits;
}

/* One escape at l->at, after the backslash; one that is unknown stays, as in Python. */
static void read_escape(literal *l, af_buf *text)
{
    static const char names[] = "nrtbf\\'\"/", bytes[] = "\n\r\t\b\f\\'\"/";
    const char *known = strchr(names, l->s[l->at]);
    uint32_t code = 0, low = 0;
    uint64_t n = hex_escape(l, l->at, &code);
    if (n && code >= 0xd800 && code < 0xdc00 && l->at + n + 1 < l->n && l->s[l->at + n] == '\\') {
        const uint64_t second = hex_escape(l, l->at + n + 1, &low);
        if (second && low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            n += 1 + second;
        }
    }
    if (n) {
        af_buf_utf8(text, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
        l->at += n;
        return;
    }
    if (!known)
        af_buf_char(text, '\\');
    af_buf_char(text, known ? bytes[known - names] : l->s[l->at]);
    l->at++;
}

static bool quoted_text(literal *l, char quote)
{
    af_buf text = {0};
    bool good = false;
    for (l->at++; l->at < l->n && l->s[l->at] != quote;) {
        if (l->s[l->at] != '\\')
            af_buf_char(&text, l->s[l->at++]);
        else if (++l->at < l->n && l->s[l->at])
            read_escape(l, &text);
    }
    if (l->at < l->n) {
        l->at++;
        good = af_call_string(l->out, text.data ? text.data : "", text.len);
    } else {
        l->more = true;
    }
    l->out->bad |= text.bad;
    af_buf_clear(&text);
    return good;
}

/* A text in quotes; *is_text false: the value is something else. */
static bool read_text(literal *l, bool *is_text)
{
    static const char *const raw[] = {"<|\"|>", "<escape>"};
    const char c = peek(l);
    *is_text = true;
    if (c == '"' || c == '\'')
        return quoted_text(l, c);
    for (size_t i = 0; i < AF_LEN(raw); i++)
        if (c && next_is(l, raw[i]))
            return raw_text(l, raw[i]);
    *is_text = false;
    return false;
}

/* A number, true, false, null, or a word: up to what cannot be part of one. */
static bool read_word(literal *l)
{
    static const char *const words[][2] = {{"True", "true"},   {"true", "true"}, {"False", "false"},
                                           {"false", "false"}, {"None", "null"}, {"null", "null"}};
    const char *from = l->s + l->at;
    while (l->at < l->n && !strchr(",:{}[]()=\"'<", l->s[l->at]))
        l->at++;
    uint64_t n = (uint64_t)(l->s + l->at - from);
    l->more |= l->at == l->n;
    while (n && strchr(" \t\r\n", from[n - 1]))
        n--;
    if (!n || l->at == l->n)
        return false;
    for (size_t i = 0; i < AF_LEN(words); i++)
        if (strlen(words[i][0]) == n && memcmp(words[i][0], from, n) == 0) {
            af_buf_str(l->out, words[i][1]);
            return true;
        }
    json_t *number = af_json_load(from, n, JSON_DECODE_ANY, NULL);
    const bool is_number = json_is_number(number);
    json_decref(number);
    if (!is_number)
        return af_call_string(l->out, from, n);
    af_buf_add(l->out, from, n);
    return true;
}

static bool read_key(literal *l)
{
    bool is_text;
    const bool good = read_text(l, &is_text);
    if (is_text)
        return good;
    const char *from = l->s + l->at;
    while (l->at < l->n && !strchr(",:{}[]\"'<", l->s[l->at]))
        l->at++;
    l->more |= l->at == l->n;
    const uint64_t n = (uint64_t)(l->s + l->at - from);
    return n && l->at < l->n && af_call_string(l->out, from, n);
}

/* Members or items up to `close`. */
static bool read_list(literal *l, char close)
{
    const bool object = close == '}';
    af_buf_char(l->out, object ? '{' : '[');
    l->at++;
    for (int i = 0; peek(l) && l->s[l->at] != close; i++) {
        af_buf_str(l->out, i ? ", " : "");
        if (object) {
            if (!read_key(l) || peek(l) != ':')
                return false;
            l->at++;
            af_buf_str(l->out, ": ");
        }
        if (!read_value(l))
            return false;
        if (peek(l) == ',')
            l->at++;
        else if (l->at == l->n || l->s[l->at] != close)
            return false;
    }
    if (l->at == l->n)
        return false;
    l->at++;
    af_buf_char(l->out, object ? '}' : ']');
    return true;
}

static bool read_value(literal *l)
{
    bool is_text;
    const bool good = read_text(l, &is_text);
    if (is_text || l->more || l->at == l->n)
        return good;
    const char c = l->s[l->at];
    if (c != '{' && c != '[' && c != '(')
        return read_word(l);
    if (l->depth == DEPTH_MAX)
        return false;
    l->depth++;
    const bool list = read_list(l, c == '{' ? '}' : c == '[' ? ']' : ')');
    l->depth--;
    return list;
}

af_call_found af_call_literal(const char *s, uint64_t n, uint64_t *at, af_buf *out)
{
    literal l = {.s = s, .n = n, .at = *at, .out = out};
    if (!read_value(&l))
        return l.more ? AF_CALL_MORE : AF_CALL_NONE;
    *at = l.at;
    return AF_CALL_READ;
}
