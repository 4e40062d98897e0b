/* shape_prompt.c - a record in a fixed prompt: the formats of af_prompt filled with its fields. */
#include "base/buf.h"
#include "data/shape/shape.h"

#include <ctype.h>

typedef struct filler {
    const af_data_source *s;
    const json_t *record;
    const af_source_loc *p;
    const json_t *input, *system; /* NULL: there is none */
    const char *choices;          /* a list as text, over `input` */
    af_error *err;
} filler;

/* The answer where it is not simply a text. */
static af_status picked_answer(const filler *f, af_buf *b)
{
    const char *field = f->s->field.output;
    const bool listed = f->s->prompt->pick == AF_ANSWER_LISTED;
    const json_t *v = json_object_get(f->record, field);
    const json_t *list = listed ? json_object_get(v, "text") : v;
    const json_t *label = json_object_get(f->record, "label");
    const char *digits = json_string_value(label);
    const int64_t at = listed                   ? 0
                       : json_is_integer(label) ? json_integer_value(label)
                       : digits && *digits && !digits[strspn(digits, "0123456789")]
                           ? strtoll(digits, NULL, 10)
                           : -1;
    if (!json_is_array(list))
        return af_field_wrong_type(field, v, listed ? "an object with a list \"text\"" : "a list",
                                   f->p, f->err);
    if (listed && json_array_size(list) == 0) /* a question that has none */
        return AF_OK;
    const json_t *text = at >= 0 ? json_array_get(list, (size_t)at) : NULL;
    if (!json_is_string(text))
        return af_source_loc_fail(
            f->p, f->err, listed ? "field \"%s\" has no text" : "\"label\" names none of \"%s\"",
            field);
    const char *from = json_string_value(text);
    uint64_t n = json_string_length(text);
    for (; listed && n && isspace((unsigned char)*from); n--)
        from++;
    while (listed && n && isspace((unsigned char)from[n - 1]))
        n--;
    af_buf_add(b, from, n);
    return AF_OK;
}

/* The text of a place in a format. */
static af_status fill_place(const filler *f, af_buf *b, const char *name)
{
    const af_fields *field = &f->s->field;
    const json_t *v = NULL;
    af_status st = AF_OK;
    if (strcmp(name, "input") == 0 && f->choices) {
        af_buf_str(b, f->choices);
        return AF_OK;
    }
    if (strcmp(name, "output") == 0 && f->s->prompt->pick != AF_ANSWER_TEXT)
        return picked_answer(f, b);
    if (strcmp(name, "input") == 0)
        v = f->input;
    else if (strcmp(name, "system") == 0)
        v = f->system;
    else if (strcmp(name, "output") == 0 && f->s->prompt->maybe_output)
        st = af_field_maybe_string(&v, f->record, field->output, f->p, f->err);
    else
        st = af_field_string(&v, f->s, f->record,
                             strcmp(name, "instruction") == 0 ? field->instruction
                             : strcmp(name, "output") == 0    ? field->output
                                                              : name,
                             f->p, f->err);
    if (st == AF_OK && v)
        af_buf_add(b, json_string_value(v), json_string_length(v));
    return st;
}

/* As Python's str.format with names. */
static af_status fill(const filler *f, af_buf *b, const char *format)
{
    char name[128];
    while (*format) {
        const size_t n = strcspn(format, "{}");
        af_buf_add(b, format, n);
        format += n;
        if (!*format)
            break;
        if (format[1] == format[0]) {
            af_buf_char(b, *format);
            format += 2;
            continue;
        }
        const size_t len = *format == '{' ? strcspn(format + 1, "{}") : 0;
        if (len == 0 || len >= sizeof name || format[len + 1] != '}')
            return af_source_loc_fail(f->p, f->err,
                                      "the prompt's format has a single brace (a brace that is "
                                      "meant is doubled): \"%.40s\"",
                                      format);
        snprintf(name, sizeof name, "%.*s", (int)len, format + 1);
        const af_status st = fill_place(f, b, name);
        if (st != AF_OK)
            return st;
        format += len + 2;
    }
    return AF_OK;
}

/* A list of choices as lines. */
static af_status list_choices(const filler *f, af_buf *b)
{
    const json_t *list = json_object_get(f->record, f->s->field.input);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_string(v))
            return af_source_loc_fail(f->p, f->err,
                                      "field \"%s\": entry %zu should be a string, "
                                      "got %s",
                                      f->s->field.input, i + 1, af_type_words(v));
        af_buf_printf(b, "%s- \"%s\"", i ? "\n" : "", json_string_value(v));
    }
    if (!json_is_array(list))
        return af_source_loc_fail(f->p, f->err, "field \"%s\" should be a list, got %s",
                                  f->s->field.input, af_type_words(list));
    return AF_OK;
}

static af_status read_parts(filler *f, af_buf *choices, json_t **system_text)
{
    const af_prompt *prompt = f->s->prompt;
    const af_fields *field = &f->s->field;
    af_status st = AF_OK;
    if (prompt->choices) {
        AF_TRY(list_choices(f, choices));
        f->choices = choices->data ? choices->data : "";
    } else {
        AF_TRY(af_field_maybe_string(&f->input, f->record, field->input, f->p, f->err));
    }
    AF_TRY(af_field_maybe_string(&f->system, f->record, field->system, f->p, f->err));
    if (!json_object_get(f->record, field->system) && prompt->system_text && *prompt->system_text) {
        f->system = *system_text = json_string(prompt->system_text);
        if (!f->system)
            st = af_fail_nomem(f->err, "a system text", 0);
    }
done:
    return st;
}

/* The answer of a question with choices has one of two names. */
static const char *answer_format(const filler *f)
{
    const af_prompt *prompt = f->s->prompt;
    if (prompt->choices && !json_object_get(f->record, f->s->field.output))
        return "{explanation}";
    return prompt->answer ? prompt->answer : "{output}";
}

/* The prompt as what the user says, the answer as what the assistant says. */
static af_status put_turns(af_conversation *t, const af_buf *said, const af_buf *asked,
                           const af_buf *answer, af_error *err)
{
    json_t *system = said ? json_stringn_nocheck(said->data, said->len) : NULL;
    json_t *user = json_stringn_nocheck(asked->data, asked->len);
    json_t *assistant = json_stringn_nocheck(answer->data, answer->len);
    af_status st = AF_OK;
    t->messages = json_array();
    if (!user || !assistant || !t->messages || (said && !system))
        st = af_fail_nomem(err, "a conversation", asked->len + answer->len);
    if (st == AF_OK && system)
        st = af_turn_add(t, "system", system, true, err);
    if (st == AF_OK)
        st = af_turn_add(t, "user", user, true, err);
    if (st == AF_OK)
        st = af_turn_add(t, "assistant", assistant, true, err);
    json_decref(system);
    json_decref(user);
    json_decref(assistant);
    return st;
}

static af_status put_texts(af_conversation *t, af_buf *asked, af_buf *answer, af_error *err)
{
    t->prompt_len = asked->len;
    t->answer_len = answer->len;
    t->prompt_text = af_buf_take(asked);
    t->answer_text = af_buf_take(answer);
    return t->prompt_text && t->answer_text
               ? AF_OK
               : af_fail_nomem(err, "a prompt", t->prompt_len + t->answer_len);
}

/* Turns for the chat template, texts, or both: the renderer knows whether there is a template. */
static af_status put_both(const filler *f, af_conversation *t, bool input, af_buf *asked,
                          af_buf *answer)
{
    const af_prompt *prompt = f->s->prompt;
    const char *format = input ? prompt->said : prompt->said_no_input;
    af_buf said = {0}, asks = {0};
    af_status st = AF_OK;
    t->kind = prompt->chat ? AF_CONVERSATION_CHAT : AF_CONVERSATION_PROMPT;
    if (prompt->chat || prompt->either) {
        if (format)
            AF_TRY(fill(f, &said, format));
        if (prompt->asks)
            AF_TRY(fill(f, &asks, prompt->asks));
        af_buf_str(&said, "");
        af_buf_str(&asks, "");
        if (said.bad || asks.bad)
            AF_TRY(af_fail_nomem(f->err, "a prompt", said.len + asks.len));
        AF_TRY(put_turns(t, format ? &said : NULL, prompt->asks ? &asks : asked, answer, f->err));
    }
    if (!prompt->chat)
        AF_TRY(put_texts(t, asked, answer, f->err));
done:
    af_buf_clear(&said);
    af_buf_clear(&asks);
    return st;
}

af_status af_prompt_item(af_item *out, const af_data_source *s, const json_t *record,
                         const af_source_loc *p, af_error *err)
{
    filler f = {.s = s, .record = record, .p = p, .err = err};
    const af_prompt *prompt = s->prompt;
    af_conversation *t = &out->conversation[0];
    af_buf asked = {0}, answer = {0}, choices = {0};
    json_t *system_text = NULL;
    af_status st = AF_OK;
    AF_TRY(read_parts(&f, &choices, &system_text));
    if (prompt->system && f.system)
        AF_TRY(fill(&f, &asked, prompt->system));
    const bool input = f.input || (f.choices && *f.choices);
    AF_TRY(fill(&f, &asked, input ? prompt->turn : prompt->turn_no_input));
    AF_TRY(fill(&f, &answer, answer_format(&f)));
    if (answer.len == 0) {
        p->warnings->counts.empty_answers++;
        af_record_warn(p, AF_WARNING_EMPTY, "field \"%s\" is empty", s->field.output);
    }
    af_buf_str(&asked, "");
    af_buf_str(&answer, "");
    if (asked.bad || answer.bad || choices.bad)
        st = af_fail_nomem(err, "a prompt", asked.len + answer.len);
    else
        st = put_both(&f, t, input, &asked, &answer);
    out->conversations = st == AF_OK;
done:
    json_decref(system_text);
    af_buf_clear(&asked);
    af_buf_clear(&answer);
    af_buf_clear(&choices);
    return st;
}
