#define _GNU_SOURCE /* memmem */
/* call_text.c - see call_text.h. */
#include "format/text/json_text.h"
#include "grammar/call_literal.h"

enum { NAME_MAX_BYTES = 256 };

void af_call_text_clear(af_call_text *c)
{
    af_buf_clear(&c->name);
    af_buf_clear(&c->arguments);
    af_buf_clear(&c->id);
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

uint64_t af_skip_blank(const char *s, uint64_t n, uint64_t at)
{
    while (at < n && is_blank(s[at]))
        at++;
    return at;
}

uint64_t af_json_value_end(const char *s, uint64_t n, uint64_t at)
{
    int depth = 0;
    bool text = false;
    for (; at < n; at++) {
        const char c = s[at];
        if (text) {
            at += c == '\\';
            text = c != '"';
            if (!text && depth == 0)
                return at + 1;
        } else if (c == '"') {
            text = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return at;
            if (--depth == 0)
                return at + 1;
        } else if (depth == 0 && (c == ',' || is_blank(c))) {
            return at;
        }
    }
    return 0;
}

const json_t *af_tool_parameters(const json_t *tools, const char *name, bool *found)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        const char *tool = json_string_value(json_object_get(f, "name"));
        *found = tool && strcmp(tool, name) == 0;
        if (*found)
            return json_object_get(f, "parameters");
    }
    *found = false;
    return NULL;
}

/* ---- marks ---- */

typedef struct call_reader {
    const char *s;
    uint64_t n, at;
    const json_t *tools;
    af_call_text *out;
} call_reader;

/* Passes a mark that is next. */
static af_call_found pass(call_reader *r, const char *mark)
{
    const uint64_t len = strlen(mark), n = AF_MIN(len, r->n - r->at);
    if (memcmp(r->s + r->at, mark, n) != 0)
        return AF_CALL_NONE;
    if (n < len)
        return AF_CALL_MORE;
    r->at += len;
    return AF_CALL_READ;
}

/* Passes the first of the marks that is next; *which says it. */
static af_call_found pass_one(call_reader *r, const char *const *marks, int count, int *which)
{
    af_call_found best = AF_CALL_NONE;
    for (*which = 0; *which < count; ++*which) {
        const af_call_found f = pass(r, marks[*which]);
        if (f == AF_CALL_READ)
            return f;
        best = f == AF_CALL_MORE ? f : best;
    }
    return best;
}

/* The text up to a mark, which is passed. */
static bool up_to(call_reader *r, const char *mark, const char **text, uint64_t *n)
{
    *text = r->s + r->at;
    const char *hit = memmem(*text, r->n - r->at, mark, strlen(mark));
    if (!hit)
        return false;
    *n = (uint64_t)(hit - *text);
    r->at += *n + strlen(mark);
    return true;
}

/* A name of a tool, as long as its letters go. */
static af_call_found read_name(call_reader *r, af_buf *name)
{
    const uint64_t from = r->at;
    while (r->at < r->n && r->at - from <= NAME_MAX_BYTES &&
           ((r->s[r->at] & 0x80) || strchr("_-.:/", r->s[r->at]) ||
            (r->s[r->at] >= '0' && r->s[r->at] <= '9') ||
            ((r->s[r->at] | 32) >= 'a' && (r->s[r->at] | 32) <= 'z')) &&
           r->s[r->at])
        r->at++;
    const uint64_t n = r->at - from;
    if (n > NAME_MAX_BYTES || (n == 0 && r->at < r->n))
        return AF_CALL_NONE;
    if (r->at == r->n)
        return AF_CALL_MORE;
    af_buf_add(name, r->s + from, n);
    return AF_CALL_READ;
}

static bool is_tool(const call_reader *r)
{
    bool found = false;
    (void)af_tool_parameters(r->tools, r->out->name.data, &found);
    return found;
}

/* Arguments that are a JSON object. */
static af_call_found read_object(call_reader *r)
{
    r->at = af_skip_blank(r->s, r->n, r->at);
    if (r->at == r->n)
        return AF_CALL_MORE;
    const uint64_t from = r->at, end = af_json_value_end(r->s, r->n, from);
    if (r->s[from] != '{')
        return AF_CALL_NONE;
    if (!end)
        return AF_CALL_MORE;
    json_t *tree = af_json_load(r->s + from, end - from, 0, NULL);
    const bool good = json_is_object(tree);
    json_decref(tree);
    af_buf_add(&r->out->arguments, r->s + from, end - from);
    r->at = end;
    return good ? AF_CALL_READ : AF_CALL_NONE;
}

/* ---- values between tags ---- */

static bool type_fits(const char *type, const json_t *v)
{
    return strcmp(type, "object") == 0    ? json_is_object(v)
           : strcmp(type, "array") == 0   ? json_is_array(v)
           : strcmp(type, "boolean") == 0 ? json_is_boolean(v)
           : strcmp(type, "null") == 0    ? json_is_null(v)
           : strcmp(type, "integer") == 0 ? json_is_integer(v)
           : strcmp(type, "number") == 0  ? json_is_number(v)
                                          : false; /* a text is one as it stands */
}

/* May the value be an argument? `says`: the schema has a word on it. */
static bool fits(const json_t *schema, const json_t *v, bool *says, int depth)
{
    static const char *const kinds[] = {"anyOf", "oneOf", "allOf"};
    const json_t *type = json_object_get(schema, "type"), *list = json_object_get(schema, "enum");
    bool good = false;
    if (json_is_string(type))
        good = type_fits(json_string_value(type), v);
    for (size_t i = 0; i < json_array_size(type); i++) {
        const char *one = json_string_value(json_array_get(type, i));
        good |= one && type_fits(one, v);
    }
    *says |= type != NULL || list != NULL;
    for (size_t i = 0; !type && i < json_array_size(list); i++)
        good |= json_equal(json_array_get(list, i), v);
    for (size_t k = 0; depth < 8 && k < AF_LEN(kinds); k++) {
        const json_t *of = json_object_get(schema, kinds[k]);
        for (size_t i = 0; i < json_array_size(of); i++)
            good |= fits(json_array_get(of, i), v, says, depth + 1);
    }
    return good;
}

/* Appends "key": value. */
static bool add_argument(call_reader *r, const char *key, uint64_t key_len, const char *text,
                         uint64_t n)
{
    af_buf *out = &r->out->arguments, value = {0}, ended = {0}; /* a literal needs an end */
    bool known, says = false;
    const json_t *parameters = af_tool_parameters(r->tools, r->out->name.data, &known);
    const json_t *properties = json_object_get(parameters, "properties");
    uint64_t at = 0;
    af_buf_str(out, out->len > 1 ? ", " : "");
    af_buf_add(&ended, text, n);
    af_buf_char(&ended, ',');
    if (ended.bad || !af_call_string(out, key, key_len)) {
        af_buf_clear(&ended);
        return false;
    }
    af_buf_str(out, ": ");
    const bool whole = af_call_literal(ended.data, n + 1, &at, &value) == AF_CALL_READ &&
                       af_skip_blank(ended.data, n, at) == n && value.len;
    json_t *v = whole ? af_json_load(value.data, value.len, JSON_DECODE_ANY, NULL) : NULL;
    const bool fit = v && (fits(json_object_getn(properties, key, key_len), v, &says, 0) || !says);
    /* a word without quotes is a text as it stands */
    const bool read =
        fit && !(json_is_string(v) && ended.data[af_skip_blank(ended.data, n, 0)] != '"');
    if (read)
        af_buf_add(out, value.data, value.len);
    const bool written = read || af_call_string(out, text, n);
    json_decref(v);
    af_buf_clear(&ended);
    af_buf_clear(&value);
    return written;
}

/* ---- tags ---- */

typedef struct tag_words {
    const char *open, *open_end, *key, *key_end, *value_end, *close;
} tag_words;

static const tag_words functions = {"<function=",   ">",          "<parameter=", ">",
                                    "</parameter>", "</function>"};
static const tag_words invokes = {"<invoke name=\"", "\">",      "<parameter name=\"", "\">",
                                  "</parameter>",    "</invoke>"};

/* Parameters up to the closing tag; a line of their own is not part of values. */
static af_call_found read_parameters(call_reader *r, const tag_words *w)
{
    const char *const next[] = {w->key, w->close};
    const char *key, *text;
    uint64_t key_len, n;
    int which;
    af_buf_char(&r->out->arguments, '{');
    for (;;) {
        r->at = af_skip_blank(r->s, r->n, r->at);
        const af_call_found f = pass_one(r, next, 2, &which);
        if (f != AF_CALL_READ)
            return f;
        if (which == 1)
            break;
        if (!up_to(r, w->key_end, &key, &key_len) || !up_to(r, w->value_end, &text, &n))
            return AF_CALL_MORE;
        const uint64_t from = n && text[0] == '\n';
        n -= n > from && text[n - 1] == '\n';
        if (!add_argument(r, key, key_len, text + from, n - from))
            return AF_CALL_NONE;
    }
    af_buf_char(&r->out->arguments, '}');
    return AF_CALL_READ;
}

/* <function=f>...</function>, also Llama's with a JSON object inside. */
static af_call_found read_tags(call_reader *r, const tag_words *w)
{
    const char *name;
    uint64_t n;
    if (!up_to(r, w->open_end, &name, &n))
        return r->n - r->at > NAME_MAX_BYTES ? AF_CALL_NONE : AF_CALL_MORE;
    if (n == 0 || n > NAME_MAX_BYTES)
        return AF_CALL_NONE;
    af_buf_add(&r->out->name, name, n);
    const uint64_t at = af_skip_blank(r->s, r->n, r->at);
    if (at == r->n || r->s[at] != '{')
        return read_parameters(r, w);
    const af_call_found f = read_object(r);
    if (f != AF_CALL_READ)
        return f;
    r->at = af_skip_blank(r->s, r->n, r->at);
    return pass(r, w->close);
}

/* <arg_key>k</arg_key><arg_value>v</arg_value>... up to </tool_call>, which is passed. */
static af_call_found read_pairs(call_reader *r)
{
    static const char *const next[] = {"<arg_key>", "</tool_call>"};
    const char *key, *text;
    uint64_t key_len, n;
    int which;
    af_buf_char(&r->out->arguments, '{');
    for (;;) {
        r->at = af_skip_blank(r->s, r->n, r->at);
        af_call_found f = pass_one(r, next, 2, &which);
        if (f != AF_CALL_READ)
            return f;
        if (which == 1)
            break;
        if (!up_to(r, "</arg_key>", &key, &key_len))
            return AF_CALL_MORE;
        r->at = af_skip_blank(r->s, r->n, r->at);
        f = pass(r, "<arg_value>");
        if (f != AF_CALL_READ)
            return f;
        if (!up_to(r, "</arg_value>", &text, &n))
            return AF_CALL_MORE;
        if (!add_argument(r, key, key_len, text, n))
            return AF_CALL_NONE;
    }
    af_buf_char(&r->out->arguments, '}');
    return r->out->arguments.len > 2 || is_tool(r) ? AF_CALL_READ : AF_CALL_NONE;
}

/* ---- a name first ---- */

/* (k=v, ...) */
static af_call_found read_keywords(call_reader *r)
{
    af_buf *out = &r->out->arguments;
    af_buf_char(out, '{');
    for (;;) {
        r->at = af_skip_blank(r->s, r->n, r->at);
        if (pass(r, ")") == AF_CALL_READ)
            break;
        const uint64_t from = r->at;
        while (r->at < r->n && r->s[r->at] && !strchr("=(){}[],'\"", r->s[r->at]))
            r->at++;
        if (r->at == r->n)
            return AF_CALL_MORE;
        if (r->s[r->at] != '=' || r->at == from)
            return AF_CALL_NONE;
        af_buf_str(out, out->len > 1 ? ", " : "");
        if (!af_call_string(out, r->s + from, r->at++ - from))
            return AF_CALL_NONE;
        af_buf_str(out, ": ");
        const af_call_found f = af_call_literal(r->s, r->n, &r->at, out);
        if (f != AF_CALL_READ)
            return f;
        r->at = af_skip_blank(r->s, r->n, r->at);
        if (r->at < r->n && r->s[r->at] != ')' && pass(r, ",") != AF_CALL_READ)
            return AF_CALL_NONE;
    }
    af_buf_char(out, '}');
    return AF_CALL_READ;
}

/* DeepSeek, after function<sep>: the name, and arguments in a fence. */
static af_call_found read_fenced(call_reader *r)
{
    r->out->name.len = 0;
    af_call_found f = read_name(r, &r->out->name);
    if (f == AF_CALL_READ)
        f = pass(r, "\n```json\n");
    if (f == AF_CALL_READ)
        f = read_object(r);
    if (f == AF_CALL_READ)
        f = pass(r, "\n```");
    return f;
}

/* Kimi's functions.f:0 is the id, too: its template takes it back. */
static void split_id(af_call_text *c)
{
    static const char prefix[] = "functions.";
    const uint64_t n = sizeof prefix - 1;
    const char *colon = strrchr(c->name.data, ':');
    af_buf_add(&c->id, c->name.data, c->name.len);
    if (colon)
        c->name.len = (uint64_t)(colon - c->name.data);
    if (c->name.len > n && memcmp(c->name.data, prefix, n) == 0) {
        memmove(c->name.data, c->name.data + n, c->name.len - n);
        c->name.len -= n;
    }
    c->name.data[c->name.len] = '\0';
}

static af_call_found read_named(call_reader *r)
{
    enum { ARGS, CALL_ID, SEP, KIMI, TOOL_SEP, KEYWORDS, OBJECT, KINDS };
    static const char *const marks[] = {
        "[ARGS]", "[CALL_ID]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>", "<tool_sep>",
        "(",      "{"};
    int which;
    const char *skipped;
    uint64_t n;
    af_call_found f = read_name(r, &r->out->name);
    if (f != AF_CALL_READ)
        return f;
    r->at = af_skip_blank(r->s, r->n, r->at);
    f = pass_one(r, marks, KINDS, &which);
    if (f == AF_CALL_MORE)
        return f;
    if (f == AF_CALL_NONE || which == TOOL_SEP)
        return read_pairs(r);
    if (which == KEYWORDS)
        return is_tool(r) ? read_keywords(r) : AF_CALL_NONE;
    if (which == KIMI)
        split_id(r->out);
    if (which == OBJECT)
        r->at--;
    if (which == CALL_ID && !up_to(r, "[ARGS]", &skipped, &n))
        return AF_CALL_MORE;
    if (which == SEP && strcmp(r->out->name.data, "function") == 0)
        return read_fenced(r);
    return read_object(r);
}

/* call:f{...} */
static af_call_found read_gemma(call_reader *r)
{
    af_call_found f = read_name(r, &r->out->name);
    if (f == AF_CALL_READ && r->s[r->at] != '{')
        return AF_CALL_NONE;
    if (f == AF_CALL_READ)
        f = af_call_literal(r->s, r->n, &r->at, &r->out->arguments);
    return f;
}

af_call_found af_call_text_read(const char *s, uint64_t n, uint64_t *at, const json_t *tools,
                                af_call_text *out)
{
    enum { FUNCTION, INVOKE, GEMMA, KINDS };
    const char *const marks[] = {functions.open, invokes.open, "call:"};
    call_reader r = {.s = s, .n = n, .at = *at, .tools = tools, .out = out};
    int which;
    out->name.len = out->arguments.len = out->id.len = 0;
    af_call_found f = pass_one(&r, marks, KINDS, &which);
    if (f == AF_CALL_READ)
        f = which == GEMMA ? read_gemma(&r)
                           : read_tags(&r, which == INVOKE ? &invokes : &functions);
    else if (f == AF_CALL_NONE)
        f = read_named(&r);
    if (f == AF_CALL_READ)
        *at = r.at;
    return f;
}
