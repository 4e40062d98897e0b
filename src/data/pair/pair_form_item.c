/* pair_form_item.c - records in the forms of Axolotl's preference types (pair_form.h). */
#include "base/buf.h"
#include "data/pair/pair_item.h"
#include "data/shape/pair_form.h"

typedef struct former {
    af_item *out;
    const af_data_source *s;
    const json_t *record;
    const af_source_loc *p;
    af_error *err;
    bool label; /* KTO: one answer */
    af_buf prompt, answer[2];
} former;

static void add_json(af_buf *b, const json_t *v)
{
    af_buf_add(b, json_string_value(v), json_string_length(v));
}

static void add_turn(former *f, const char *role, const json_t *content)
{
    const af_pair_style *y = f->s->form->style;
    af_buf_printf(&f->prompt, "%s%s%s", y->begin, role, y->middle);
    add_json(&f->prompt, content);
    af_buf_str(&f->prompt, y->end);
}

static void add_answer_turn(former *f)
{
    const af_pair_style *y = f->s->form->style;
    af_buf_printf(&f->prompt, "%s%s%s", y->begin, "assistant", y->middle);
}

static void add_answer(former *f, int side, const json_t *text)
{
    add_json(&f->answer[side], text);
    af_buf_str(&f->answer[side], f->s->form->style->answer_end);
}

/* The first of these fields that the record has; the last when it has none. */
static const char *first_of(const former *f, const char *const *name)
{
    while (name[1] && !json_object_get(f->record, *name))
        name++;
    return *name;
}

static af_status string(const former *f, const json_t **out, const char *field)
{
    return af_field_string(out, f->s, f->record, field, f->p, f->err);
}

/* The content of message i of a list in a field; counts from the end when negative. */
static af_status content(const former *f, const json_t **out, const char *field, int at)
{
    const json_t *list;
    const af_status st = af_field_need(&list, f->s, f->record, field, f->p, f->err);
    if (st != AF_OK)
        return st;
    if (!json_is_array(list))
        return af_field_wrong_type(field, list, "a list of messages", f->p, f->err);
    const int64_t n = (int64_t)json_array_size(list), i = at < 0 ? n + at : at;
    const json_t *m = i >= 0 ? json_array_get(list, (size_t)i) : NULL;
    *out = json_object_get(m, f->s->field.content);
    if (!m)
        return af_source_loc_fail(f->p, f->err,
                                  "field \"%s\" has %" PRId64 " messages, %d are wanted", field, n,
                                  at < 0 ? -at : at + 1);
    if (!json_is_string(*out))
        return af_source_loc_fail(f->p, f->err, "field \"%s\": \"%s\" should be a string, got %s",
                                  field, f->s->field.content, af_type_words(*out));
    return AF_OK;
}

/* --- texts ----------------------------------------------------------------------------------- */

static af_status add_question(former *f, const char *field)
{
    const json_t *system, *question;
    af_status st = AF_OK;
    AF_TRY(af_field_maybe_string(&system, f->record, f->s->field.system, f->p, f->err));
    AF_TRY(string(f, &question, field));
    if (system)
        add_turn(f, "system", system);
    add_turn(f, "user", question);
    add_answer_turn(f);
done:
    return st;
}

static af_status field_texts(former *f, bool any)
{
    static const char *const prompts[] = {"prompt", "input", "question", "instruction", NULL};
    static const char *const good[] = {"chosen", "chosen_response", NULL};
    static const char *const bad[] = {"rejected", "rejected_response", NULL};
    const char *const name[2] = {f->label ? f->s->field.completion
                                 : any    ? first_of(f, good)
                                          : f->s->field.chosen,
                                 any ? first_of(f, bad) : f->s->field.rejected};
    af_status st = AF_OK;
    AF_TRY(add_question(f, any ? first_of(f, prompts) : f->s->form->prompt));
    for (int i = 0; i < (f->label ? 1 : 2); i++) {
        const json_t *answer;
        AF_TRY(string(f, &answer, name[i]));
        add_answer(f, i, answer);
    }
done:
    return st;
}

/* The second message of each side is the answer; the prompt is the first, or a field. */
static af_status turn_texts(former *f)
{
    const char *const name[2] = {f->s->field.chosen, f->s->field.rejected};
    const json_t *text;
    af_status st = AF_OK;
    if (f->s->form->kind == AF_FORM_ANSWERS) {
        AF_TRY(add_question(f, f->s->form->prompt));
    } else {
        AF_TRY(content(f, &text, name[0], 0));
        add_turn(f, "user", text);
        add_answer_turn(f);
    }
    for (int i = 0; i < 2; i++) {
        AF_TRY(content(f, &text, name[i], 1));
        add_answer(f, i, text);
    }
done:
    return st;
}

static af_status history_texts(former *f)
{
    const char *field = f->s->field.completion;
    const json_t *text, *list = json_object_get(f->record, field);
    af_status st = AF_OK;
    AF_TRY(content(f, &text, field, -1));
    for (size_t i = 0; i + 1 < json_array_size(list); i++) {
        const json_t *role = json_object_get(json_array_get(list, i), f->s->field.role), *turn;
        if (!json_is_string(role))
            return af_source_loc_fail(f->p, f->err, "message %zu of \"%s\" has no field \"%s\"",
                                      i + 1, field, f->s->field.role);
        AF_TRY(content(f, &turn, field, (int)i));
        add_turn(f, json_string_value(role), turn);
    }
    add_answer_turn(f);
    add_answer(f, 0, text);
done:
    return st;
}

/* The two answers with the highest rank numbers, as Axolotl takes them. Equal ranks keep their
 * order. */
static af_status ranked_texts(former *f)
{
    const json_t *question, *list, *best[2] = {0};
    double rank[2] = {0};
    af_status st = AF_OK;
    AF_TRY(string(f, &question, f->s->form->prompt));
    AF_TRY(af_field_need(&list, f->s, f->record, "answers", f->p, f->err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *a = json_array_get(list, i), *r = json_object_get(a, "rank");
        if (!json_is_string(json_object_get(a, "answer")) || !json_is_number(r))
            return af_source_loc_fail(f->p, f->err,
                                      "field \"answers\": entry %zu has no \"answer\" with a "
                                      "\"rank\"",
                                      i + 1);
        const double value = json_number_value(r);
        const int at = !best[0] || value >= rank[0] ? 0 : !best[1] || value >= rank[1] ? 1 : 2;
        if (at == 0) {
            best[1] = best[0];
            rank[1] = rank[0];
        }
        if (at < 2) {
            best[at] = a;
            rank[at] = value;
        }
    }
    if (!best[1])
        return af_source_loc_fail(f->p, f->err,
                                  "field \"answers\" should be a list of two or more answers");
    af_buf_str(&f->prompt, "<|system|>\n</s>\n<|user|>\n");
    add_json(&f->prompt, question);
    af_buf_str(&f->prompt, "</s>\n<|assistant|>\n");
    for (int i = 0; i < 2; i++)
        add_json(&f->answer[i], json_object_get(best[i], "answer"));
done:
    return st;
}

/* --- formats of the user's own --------------------------------------------------------------- */

static af_status fill(former *f, af_buf *b, const char *format, const char *const *name,
                      const json_t *const *value)
{
    for (const char *at = format; *at; at++) {
        if (*at != '{' && *at != '}') {
            af_buf_char(b, *at);
            continue;
        }
        if (at[1] == *at) {
            af_buf_char(b, *at++);
            continue;
        }
        const size_t n = *at == '{' ? strcspn(at + 1, "{}") : 0;
        int k = 0;
        while (name[k] && (strlen(name[k]) != n || strncmp(name[k], at + 1, n) != 0))
            k++;
        if (!name[k] || at[n + 1] != '}')
            return af_source_loc_fail(f->p, f->err,
                                      "the format of 'type' has '%.20s', which is "
                                      "not one of its fields (a brace that is meant "
                                      "is doubled)",
                                      at);
        if (value[k])
            add_json(b, value[k]);
        at += n + 1;
    }
    return AF_OK;
}

static af_status own_texts(former *f)
{
    const af_fields *n = &f->s->field;
    const af_pair_form *form = f->s->form;
    const char *const answer[2] = {f->label ? n->completion : n->chosen, n->rejected};
    const char *const place[2] = {f->label ? "completion" : "chosen", "rejected"};
    const json_t *system, *value;
    af_status st = AF_OK;
    AF_TRY(af_field_maybe_string(&system, f->record, n->system, f->p, f->err));
    AF_TRY(string(f, &value, n->prompt));
    AF_TRY(fill(f, &f->prompt, form->prompt_format, (const char *[]){"system", "prompt", NULL},
                (const json_t *[]){system, value}));
    for (int i = 0; i < (f->label ? 1 : 2); i++) {
        AF_TRY(string(f, &value, answer[i]));
        AF_TRY(fill(f, &f->answer[i], form->answer_format[i], (const char *[]){place[i], NULL},
                    &value));
    }
done:
    return st;
}

static af_status texts(former *f)
{
    switch (f->s->form->kind) {
    case AF_FORM_TWO_TURNS:
    case AF_FORM_ANSWERS:
        return turn_texts(f);
    case AF_FORM_HISTORY:
        return history_texts(f);
    case AF_FORM_RANKS:
        return ranked_texts(f);
    case AF_FORM_OWN:
        return own_texts(f);
    default:
        return field_texts(f, f->s->form->kind == AF_FORM_ANY_FIELD);
    }
}

/* --- chats ----------------------------------------------------------------------------------- */

/* A message, a list whose last message counts, or a text. */
static json_t *last_message(const former *f, const json_t *v)
{
    if (json_is_string(v))
        return json_pack("[{s:s,s:O}]", f->s->field.role, "assistant", f->s->field.content, v);
    if (json_is_object(v))
        return json_pack("[O]", v);
    const size_t n = json_array_size(v);
    return n ? json_pack("[O]", json_array_get(v, n - 1)) : NULL;
}

static json_t *without_last(const json_t *list)
{
    json_t *out = json_copy((json_t *)list);
    if (json_array_size(out))
        json_array_remove(out, json_array_size(out) - 1);
    return out;
}

static af_status chat_prompt(const former *f, json_t **out)
{
    const af_fields *n = &f->s->field;
    const json_t *v;
    const bool last = f->s->form->kind == AF_FORM_LAST;
    const char *field = last ? n->messages : n->chosen;
    const af_status st = af_field_need(&v, f->s, f->record, field, f->p, f->err);
    if (st != AF_OK)
        return st;
    if (last && json_is_string(v)) {
        *out = json_pack("[{s:s,s:O}]", n->role, "user", n->content, v);
        return AF_OK;
    }
    if (!json_is_array(v))
        return af_field_wrong_type(field, v, "a list of messages", f->p, f->err);
    if (!last && json_array_size(v) < 2)
        return af_source_loc_fail(f->p, f->err, "\"%s\" has no common prompt before its answer",
                                  field);
    *out = last ? json_incref((json_t *)v) : without_last(v);
    return AF_OK;
}

static af_status chats(former *f)
{
    const char *const name[2] = {f->s->field.chosen, f->s->field.rejected};
    const bool system_field = f->s->form->kind == AF_FORM_ORPO;
    json_t *prompt = NULL, *answer = NULL;
    const json_t *system = NULL, *v;
    af_status st = AF_OK;
    AF_TRY(chat_prompt(f, &prompt));
    if (system_field)
        AF_TRY(af_field_maybe_string(&system, f->record, f->s->field.system, f->p, f->err));
    if (prompt && system)
        json_array_insert_new(
            prompt, 0,
            json_pack("{s:s,s:O}", f->s->field.role, "system", f->s->field.content, system));
    for (int i = 0; i < 2; i++) {
        AF_TRY(af_field_need(&v, f->s, f->record, name[i], f->p, f->err));
        answer = last_message(f, v);
        if (!prompt || !answer) {
            st = af_field_wrong_type(name[i], v, "a message or a list of them", f->p, f->err);
            goto done;
        }
        AF_TRY(af_pair_put_chat(f->out, i, f->s, prompt, answer, name[i], f->record, f->p, f->err));
        json_decref(answer);
        answer = NULL;
    }
done:
    json_decref(prompt);
    json_decref(answer);
    return st;
}

/* A system text, a question and two answers as messages. */
static af_status field_chats(former *f)
{
    const char *const name[2] = {f->s->field.chosen, f->s->field.rejected};
    const json_t *system, *question, *answer;
    af_status st = AF_OK;
    AF_TRY(af_field_maybe_string(&system, f->record, f->s->field.system, f->p, f->err));
    AF_TRY(string(f, &question, f->s->form->prompt));
    for (int i = 0; i < 2; i++) {
        af_conversation *t = &f->out->conversation[i];
        AF_TRY(string(f, &answer, name[i]));
        t->kind = AF_CONVERSATION_CHAT;
        t->messages = json_array();
        if (!t->messages)
            return af_fail_nomem(f->err, "a conversation", 0);
        if (system)
            AF_TRY(af_turn_add(t, "system", system, true, f->err));
        AF_TRY(af_turn_add(t, "user", question, true, f->err));
        f->out->prompt_messages = json_array_size(t->messages);
        AF_TRY(af_turn_add(t, "assistant", answer, true, f->err));
    }
done:
    return st;
}

af_status af_pair_form_item(af_item *out, const af_data_source *s, const json_t *record, af_rl rl,
                            const af_source_loc *p, af_error *err)
{
    const af_pair_form_kind kind = s->form->kind;
    former f = {.out = out, .s = s, .record = record, .p = p, .err = err, .label = rl == AF_RL_KTO};
    af_status st = AF_OK;
    if (f.label)
        AF_TRY(af_pair_label(out, s, record, s->field.label, p, err));
    if (kind == AF_FORM_LAST || kind == AF_FORM_WHOLE || kind == AF_FORM_ORPO) {
        AF_TRY(chats(&f));
    } else if (kind == AF_FORM_MESSAGES) {
        AF_TRY(field_chats(&f));
    } else {
        AF_TRY(texts(&f));
        for (int i = 0; i < (f.label ? 1 : 2) && st == AF_OK; i++)
            st = f.prompt.bad || f.answer[i].bad
                     ? af_fail_nomem(err, "a preference pair", f.prompt.len)
                     : af_pair_put_text(out, i, f.prompt.data ? f.prompt.data : "", f.prompt.len,
                                        f.answer[i].data ? f.answer[i].data : "", f.answer[i].len,
                                        err);
    }
    out->conversations = f.label ? 1 : 2;
done:
    af_buf_clear(&f.prompt);
    af_buf_clear(&f.answer[0]);
    af_buf_clear(&f.answer[1]);
    return st;
}
