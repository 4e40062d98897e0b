/* request_format.c - constrained output: what a body says of it, in the words of OpenAI, of
 * llama-server and of vLLM. */
#include "serve/api/generation.h"

#include "format/text/json_text.h"

static af_status take_schema(af_generation *g, const json_t *schema, const char *field,
                             af_error *err)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no schema", field);
    char *text = af_json_dump(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return af_fail_nomem(err, "the schema", 0);
    const af_status st =
        af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_JSON_SCHEMA, text, strlen(text), err);
    g->schema = text;
    if (st != AF_OK && err) /* the field of the request; the message names the keyword */
        snprintf(err->subject, sizeof err->subject, "%s", field);
    return st;
}

static af_status take_any_object(af_generation *g, af_error *err)
{
    g->schema = af_strdup("{\"type\":\"object\"}");
    if (!g->schema)
        return af_fail_nomem(err, "the schema", 0);
    return af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_JSON_OBJECT, "", 0, err);
}

static af_status take_text(af_generation *g, af_grammar_kind kind, const char *text, uint64_t n,
                           const char *field, af_error *err)
{
    const af_status st = af_api_grammar(g->api, &g->grammar, kind, text, n, err);
    if (st != AF_OK && err)
        snprintf(err->subject, sizeof err->subject, "%s", field);
    return st;
}

static af_status take_rules(af_generation *g, const json_t *rules, const char *field, af_error *err)
{
    if (!json_is_string(rules))
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no grammar text", field);
    return take_text(g, AF_GRAMMAR_GBNF, json_string_value(rules), json_string_length(rules), field,
                     err);
}

static af_status take_regex(af_generation *g, const json_t *regex, const char *field, af_error *err)
{
    if (!json_is_string(regex))
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no regular expression", field);
    return take_text(g, AF_GRAMMAR_REGEX, json_string_value(regex), json_string_length(regex),
                     field, err);
}

static void put_literal(af_buf *b, const char *text, uint64_t n)
{
    af_buf_char(b, '"');
    for (uint64_t i = 0; i < n; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == '"' || text[i] == '\\')
            af_buf_printf(b, "\\x%02x", (unsigned)text[i]);
        else
            af_buf_char(b, text[i]);
    af_buf_char(b, '"');
}

/* One of the texts, and nothing else. */
static af_status take_choices(af_generation *g, const json_t *list, const char *field,
                              af_error *err)
{
    af_buf b = {0};
    bool texts = json_array_size(list) > 0;
    af_buf_str(&b, "root ::= ");
    for (size_t i = 0; texts && i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        texts = json_is_string(text);
        af_buf_str(&b, i ? " | " : "");
        if (texts)
            put_literal(&b, json_string_value(text), json_string_length(text));
    }
    const af_status st =
        !texts  ? af_fail_subject(err, AF_EUSAGE, field, "'%s' is not a list of texts", field)
        : b.bad ? af_fail_nomem(err, "the choices", b.len)
                : take_text(g, AF_GRAMMAR_GBNF, b.data, b.len, field, err);
    af_buf_clear(&b);
    return st;
}

/* vLLM's: a schema, as an object or as its text. */
static af_status take_schema_text(af_generation *g, const json_t *v, const char *field,
                                  af_error *err)
{
    if (!json_is_string(v))
        return take_schema(g, v, field, err);
    json_t *schema = af_json_load(json_string_value(v), json_string_length(v), 0, NULL);
    const af_status st = take_schema(g, schema, field, err);
    json_decref(schema);
    return st;
}

static af_status fail_two(const char *field, af_error *err)
{
    return af_fail_subject(err, AF_EUSAGE, field,
                           "'%s' is not the only one that says what the answer may be: one of "
                           "response_format, json_schema, grammar and structured_outputs can",
                           field);
}

/* vLLM's "structured_outputs": {NAME: ...}, or its older "guided_NAME". `found`: there was one. */
static af_status take_structured(af_generation *g, const json_t *body, bool *found, af_error *err)
{
    typedef af_status taker(af_generation * g, const json_t *v, const char *field, af_error *err);
    static const struct {
        const char *name, *old;
        taker *take;
    } kinds[] = {{"json", "guided_json", take_schema_text},
                 {"choice", "guided_choice", take_choices},
                 {"grammar", "guided_grammar", take_rules},
                 {"regex", "guided_regex", take_regex},
                 {"structural_tag", "structural_tag", NULL}};
    static const char field[] = "structured_outputs";
    json_t *inside = NULL;
    bool any_object = false;
    af_status st = AF_OK;
    AF_TRY(af_value_type(body, field, JSON_OBJECT, &inside, err));
    AF_TRY(af_value_bool(inside, "json_object", &any_object, err));
    int count = any_object;
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        const json_t *own = af_value(inside, kinds[i].name), *old = af_value(body, kinds[i].old);
        const char *name = own ? field : kinds[i].old;
        if (!own && !old)
            continue;
        if (!kinds[i].take)
            AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, name, "'%s' is not supported",
                                   own ? kinds[i].name : kinds[i].old));
        count += (own != NULL) + (old != NULL);
        if (count > 1)
            AF_TRY(fail_two(name, err));
        AF_TRY(kinds[i].take(g, own ? own : old, name, err));
    }
    if (inside && count == 0)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, field,
                               "'%s' has none of json, choice, regex, grammar and json_object: "
                               "true",
                               field));
    if (any_object)
        AF_TRY(take_any_object(g, err));
    *found = count > 0;
done:
    return st;
}

/* "response_format", of another type than text. */
static af_status take_format(af_generation *g, const json_t *format, const char *type,
                             af_error *err)
{
    static const char name[] = "response_format";
    af_status st = AF_OK;
    json_t *inner = NULL;
    if (strcmp(type, "json_object") == 0 && af_value(format, "schema"))
        return take_schema(g, af_value(format, "schema"), name, err);
    if (strcmp(type, "json_object") == 0)
        return take_any_object(g, err);
    if (strcmp(type, "grammar") == 0)
        return take_rules(g, af_value(format, "grammar"), name, err);
    if (strcmp(type, "json_schema") == 0) {
        AF_TRY(af_value_type(format, "json_schema", JSON_OBJECT, &inner, err));
        return take_schema(g, inner ? af_value(inner, "schema") : af_value(format, "schema"), name,
                           err);
    }
    st = af_fail_subject(err, AF_EUSAGE, name, "'response_format' is of the unknown type '%.40s'",
                         type);
done:
    return st;
}

af_status af_generation_format(af_generation *g, const json_t *body, af_api_fault *f)
{
    static const char name[] = "response_format";
    af_status st = AF_OK;
    json_t *format = NULL, *rules = af_value(body, "grammar"),
           *schema = af_value(body, "json_schema");
    af_error *err = &f->err;
    bool found = false;
    AF_TRY(af_value_type(body, name, JSON_OBJECT, &format, err));
    const char *type = format ? json_string_value(af_value(format, "type")) : "text";
    if (!type)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, name, "'response_format' has no type"));
    const bool formatted = strcmp(type, "text") != 0;
    if (json_is_string(rules) && !json_string_length(rules)) /* llama-server's value for none */
        rules = NULL;
    AF_TRY(take_structured(g, body, &found, err));
    if (found + (rules != NULL) + (schema != NULL) + formatted > 1)
        AF_TRY(fail_two(formatted ? name : rules ? "grammar" : "json_schema", err));
    if (rules)
        return take_rules(g, rules, "grammar", err);
    if (schema)
        return take_schema(g, schema, "json_schema", err);
    if (formatted)
        return take_format(g, format, type, err);
done:
    return st;
}
