/* shape_prompt.c - a record in a fixed prompt: the formats of af_prompt filled with its fields. */
#include "base/buf.h"
#include "data/shape/shape.h"

typedef struct filler {
    const af_data_source *s;
    const json_t *record;
    const af_source_loc *p;
    const json_t *input, *system; /* NULL: there is none */
    const char *choices;          /* a list as text, over `input` */
    af_error *err;
} filler;

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
static af_status put_turns(af_conversation *t, const char *said, const af_buf *asked,
                           const af_buf *answer, af_error *err)
{
    json_t *system = said ? json_string(said) : NULL;
    json_t *user = json_stringn_nocheck(asked->data, asked->len);
    json_t *assistant = json_stringn_nocheck(answer->data, answer->len);
    af_status st = AF_OK;
    t->kind = AF_CONVERSATION_CHAT;
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
    t->kind = AF_CONVERSATION_PROMPT;
    t->prompt_len = asked->len;
    t->answer_len = answer->len;
    t->prompt_text = af_buf_take(asked);
    t->answer_text = af_buf_take(answer);
    return t->prompt_text && t->answer_text
               ? AF_OK
               : af_fail_nomem(err, "a prompt", t->prompt_len + t->answer_len);
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
        st = prompt->chat
                 ? put_turns(t, input ? prompt->said : prompt->said_no_input, &asked, &answer, err)
                 : put_texts(t, &asked, &answer, err);
    out->conversations = st == AF_OK;
done:
    json_decref(system_text);
    af_buf_clear(&asked);
    af_buf_clear(&answer);
    af_buf_clear(&choices);
    return st;
}
