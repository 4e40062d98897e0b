/* pair_item.c - records in TRL's formats, and those that LLaMA-Factory's dataset_info.json lists.
 */
#include "data/pair/pair_item.h"

#include "base/buf.h"
#include "data/shape/pair_form.h"

#include <math.h>
#include <strings.h>

/* --- one side -------------------------------------------------------------------------------- */

af_status af_pair_put_text(af_item *out, int side, const char *prompt, uint64_t prompt_len,
                           const char *answer, uint64_t answer_len, af_error *err)
{
    af_conversation *t = &out->conversation[side];
    *t = (af_conversation){.kind = AF_CONVERSATION_PROMPT,
                           .prompt_text = af_calloc(prompt_len + 1, 1),
                           .answer_text = af_calloc(answer_len + 1, 1),
                           .prompt_len = prompt_len,
                           .answer_len = answer_len};
    if (!t->prompt_text || !t->answer_text)
        return af_fail_nomem(err, "a preference pair", prompt_len + answer_len);
    memcpy(t->prompt_text, prompt, prompt_len);
    memcpy(t->answer_text, answer, answer_len);
    t->prompt_text[prompt_len] = t->answer_text[answer_len] = 0;
    return AF_OK;
}

static af_status put_strings(af_item *out, int side, const json_t *prompt, const json_t *answer,
                             af_error *err)
{
    return af_pair_put_text(out, side, json_string_value(prompt), json_string_length(prompt),
                            json_string_value(answer), json_string_length(answer), err);
}

af_status af_pair_put_chat(af_item *out, int side, const af_data_source *s, const json_t *prompt,
                           const json_t *answer, const char *answer_field, const json_t *record,
                           const af_source_loc *p, af_error *err)
{
    af_conversation *t = &out->conversation[side];
    const bool sharegpt = af_turns_sharegpt(s, prompt ? prompt : answer);
    af_status st = AF_OK;
    if (prompt)
        AF_TRY(af_turns_take(t, s, prompt, s->field.prompt, sharegpt, p, err));
    out->prompt_messages = json_array_size(t->messages);
    for (size_t i = 0; i < out->prompt_messages; i++)
        t->train[i] = false;
    AF_TRY(af_turns_take(t, s, answer, answer_field, af_turns_sharegpt(s, answer), p, err));
    AF_TRY(af_template_fields_take(t, s, record, p, err));
done:
    return st;
}

/* Columns of tables have 1 and 0, those of CSV files words. */
static bool read_truth(bool *out, const json_t *v)
{
    const char *word = json_is_string(v) ? json_string_value(v) : "";
    const json_int_t number = json_is_integer(v) ? json_integer_value(v) : -1;
    *out =
        json_is_true(v) || number == 1 || strcasecmp(word, "true") == 0 || strcmp(word, "1") == 0;
    return *out || json_is_false(v) || number == 0 || strcasecmp(word, "false") == 0 ||
           strcmp(word, "0") == 0;
}

af_status af_pair_label(af_item *out, const af_data_source *s, const json_t *record,
                        const char *field, const af_source_loc *p, af_error *err)
{
    const json_t *label;
    const af_status st = af_field_need(&label, s, record, field, p, err);
    if (st != AF_OK)
        return st;
    if (!read_truth(&out->label, label))
        return af_field_wrong_type(field, label, "true or false", p, err);
    out->has_label = true;
    return AF_OK;
}

/* --- the prompt of a pair without one -------------------------------------------------------- */

/* Where both begin to differ; the last message when they never do, as TRL has it. */
static size_t first_difference(const json_t *good, const json_t *bad)
{
    const size_t n = AF_MIN(json_array_size(good), json_array_size(bad));
    for (size_t i = 0; i < n; i++)
        if (!json_equal(json_array_get(good, i), json_array_get(bad, i)))
            return i;
    return n ? n - 1 : 0;
}

/* The same by the characters of texts; a blank before the difference belongs to the answers. */
static uint64_t first_byte(const char *good, uint64_t good_len, const char *bad, uint64_t bad_len)
{
    const uint64_t n = AF_MIN(good_len, bad_len);
    uint64_t at = 0;
    while (at < n && good[at] == bad[at])
        at++;
    const bool differs = at < n;
    if (!differs && at)
        at--;
    while (at && ((unsigned char)good[at] & 0xc0) == 0x80) /* the begin of the character */
        at--;
    return differs && at && good[at - 1] == ' ' ? at - 1 : at;
}

static json_t *slice(const json_t *list, size_t from, size_t to)
{
    json_t *out = json_array();
    for (size_t i = from; out && i < to; i++)
        if (json_array_append(out, json_array_get(list, i))) {
            json_decref(out);
            return NULL;
        }
    return out;
}

static af_status split_chats(af_item *out, const af_data_source *s, const json_t *good,
                             const json_t *bad, const json_t *record, const af_source_loc *p,
                             af_error *err)
{
    const json_t *const side[2] = {good, bad};
    const char *const name[2] = {s->field.chosen, s->field.rejected};
    const size_t n = first_difference(good, bad);
    af_status st = AF_OK;
    if (n == 0)
        return af_source_loc_fail(p, err, "no common prompt in \"%s\" and \"%s\"", name[0],
                                  name[1]);
    for (int i = 0; i < 2 && st == AF_OK; i++) {
        json_t *prompt = slice(good, 0, n), *answer = slice(side[i], n, json_array_size(side[i]));
        st = prompt && answer ? af_pair_put_chat(out, i, s, prompt, answer, name[i], record, p, err)
                              : af_fail_nomem(err, "a preference pair", 0);
        json_decref(prompt);
        json_decref(answer);
    }
    return st;
}

static af_status split_texts(af_item *out, const af_data_source *s, const json_t *good,
                             const json_t *bad, const af_source_loc *p, af_error *err)
{
    const json_t *const side[2] = {good, bad};
    const char *const text = json_string_value(good);
    af_status st = AF_OK;
    if (json_string_length(good) == 0 || json_string_length(bad) == 0)
        return af_source_loc_fail(p, err, "field \"%s\" is empty",
                                  json_string_length(good) ? s->field.rejected : s->field.chosen);
    const uint64_t n =
        first_byte(text, json_string_length(good), json_string_value(bad), json_string_length(bad));
    for (int i = 0; i < 2; i++)
        AF_TRY(af_pair_put_text(out, i, text, n, json_string_value(side[i]) + n,
                                json_string_length(side[i]) - n, err));
done:
    return st;
}

/* --- pairs ----------------------------------------------------------------------------------- */

static af_status read_margin(af_item *out, const json_t *record, const af_source_loc *p,
                             af_error *err)
{
    const json_t *v = json_object_get(record, "margin");
    if (!v || json_is_null(v))
        return AF_OK;
    if (!json_is_number(v))
        return af_field_wrong_type("margin", v, "a number", p, err);
    out->margin = (float)json_number_value(v);
    if (!isfinite(out->margin))
        return af_source_loc_fail(p, err, "field \"margin\" is %g", json_number_value(v));
    return AF_OK;
}

/* Both answers have the type of the first. */
static af_status same_type(const af_data_source *s, const json_t *good, const json_t *bad,
                           const af_source_loc *p, af_error *err)
{
    if (!json_is_string(good) && !json_is_array(good) && !json_is_object(good))
        return af_field_wrong_type(s->field.chosen, good, "a string or a list of messages", p, err);
    for (int i = 0; i < 2; i++) {
        const json_t *first = json_array_get(i ? bad : good, 0);
        if (first && !json_is_object(first))
            return af_source_loc_fail(p, err,
                                      "field \"%s\" should be a list of messages, and its "
                                      "first item is %s",
                                      i ? s->field.rejected : s->field.chosen,
                                      json_is_string(first) ? "a string" : "no object");
    }
    if (json_typeof(good) == json_typeof(bad))
        return AF_OK;
    return af_field_wrong_type(s->field.rejected, bad,
                               json_is_string(good)  ? "a string (as the other answer is)"
                               : json_is_array(good) ? "a list (as the other answer is)"
                                                     : "a message (as the other answer is)",
                               p, err);
}

static af_status text_pair(af_item *out, const af_data_source *s, const json_t *prompt,
                           const json_t *good, const json_t *bad, af_rl rl, const af_source_loc *p,
                           af_error *err)
{
    json_t *none = NULL;
    af_status st = AF_OK;
    if (!prompt && rl != AF_RL_REWARD)
        return split_texts(out, s, good, bad, p, err);
    if (prompt && !json_is_string(prompt))
        return af_field_wrong_type(s->field.prompt, prompt, "a string (as the answers are)", p,
                                   err);
    if (!prompt)
        prompt = none = json_string("");
    if (!prompt)
        return af_fail_nomem(err, "a preference pair", 0);
    AF_TRY(put_strings(out, 0, prompt, good, err));
    AF_TRY(put_strings(out, 1, prompt, bad, err));
done:
    json_decref(none);
    return st;
}

/* A question as text goes with answers that are messages, unless those begin with it. */
static json_t *question_turn(const af_data_source *s, const json_t *prompt, const json_t *good,
                             const json_t *bad)
{
    const bool split = json_is_array(good) && first_difference(good, bad) > 0;
    if (!json_is_string(prompt) || split || af_turns_sharegpt(s, good))
        return NULL;
    return json_pack("[{s:s, s:O}]", "role", "user", "content", prompt);
}

static af_status chat_pair(af_item *out, const af_data_source *s, const json_t *prompt,
                           const json_t *good, const json_t *bad, const json_t *record,
                           const af_source_loc *p, af_error *err)
{
    const json_t *const side[2] = {good, bad};
    const char *const name[2] = {s->field.chosen, s->field.rejected};
    af_status st = AF_OK;
    json_t *turn = question_turn(s, prompt, good, bad);
    if (turn)
        prompt = turn;
    if (!json_is_array(prompt)) /* missing, or the question once more as a text */
        return json_is_array(good)
                   ? split_chats(out, s, good, bad, record, p, err)
                   : af_source_loc_fail(p, err,
                                        "\"%s\" is one message, and there is no list of "
                                        "messages before it (\"%s\", \"%s\")",
                                        name[0], s->field.prompt, s->field.messages);
    for (int i = 0; i < 2 && st == AF_OK; i++) {
        json_t *one =
            json_is_object(side[i]) ? json_pack("[O]", side[i]) : json_incref((json_t *)side[i]);
        st = one ? af_pair_put_chat(out, i, s, prompt, one, name[i], record, p, err)
                 : af_fail_nomem(err, "a preference pair", 0);
        json_decref(one);
    }
    json_decref(turn);
    return st;
}

/* --- LLaMA-Factory's alpaca ------------------------------------------------------------------ */

static af_status put_answer(af_item *out, int side, const af_data_source *s, const json_t *record,
                            const char *field, const af_source_loc *p, af_error *err)
{
    af_conversation *t = &out->conversation[side];
    const json_t *answer;
    af_status st = AF_OK;
    AF_TRY(af_field_string(&answer, s, record, field, p, err));
    AF_TRY(af_alpaca_question(t, s, record, p, err));
    out->prompt_messages = json_array_size(t->messages);
    AF_TRY(af_turn_add(t, "assistant", answer, true, err));
    AF_TRY(af_template_fields_take(t, s, record, p, err));
done:
    return st;
}

/* Instructions; a list of turns is the other formatting. */
static bool is_alpaca(const af_data_source *s, const json_t *record)
{
    return s->listed && !json_object_get(record, s->field.messages);
}

/* --- ms-swift -------------------------------------------------------------------------------- */

static bool has_rejected(const json_t *record)
{
    return json_object_get(record, AF_REJECTED_TEXT) || json_object_get(record, AF_REJECTED_TURNS);
}

/* A conversation whose last answer is the chosen one. */
static af_status other_answer(af_item *out, const af_data_source *s, const json_t *record,
                              const af_source_loc *p, af_error *err)
{
    const json_t *whole = json_object_get(record, s->field.messages),
                 *other = json_object_get(record, AF_REJECTED_TURNS);
    const char *field = whole ? s->field.messages : s->field.conversations;
    const json_t *turns = whole ? whole : json_object_get(record, field), *text;
    const size_t n = json_array_size(turns);
    af_status st = AF_OK;
    if (n < 2)
        return af_source_loc_fail(
            p, err, "\"%s\" has %zu messages: a prompt and an answer are wanted", field, n);
    if (json_array_size(other))
        return chat_pair(out, s, NULL, turns, other, record, p, err);
    json_t *prompt = slice(turns, 0, n - 1), *good = slice(turns, n - 1, n),
           *turn = json_copy(json_array_get(turns, n - 1)), *bad = NULL;
    AF_TRY(af_field_string(&text, s, record, AF_REJECTED_TEXT, p, err));
    if (turn &&
        !json_object_set(turn, af_turns_sharegpt(s, turns) ? s->field.value : s->field.content,
                         (json_t *)text))
        bad = json_pack("[O]", turn);
    AF_TRY(prompt && good && bad ? chat_pair(out, s, prompt, good, bad, record, p, err)
                                 : af_fail_nomem(err, "a preference pair", 0));
done:
    json_decref(prompt);
    json_decref(good);
    json_decref(turn);
    json_decref(bad);
    return st;
}

/* --- all ------------------------------------------------------------------------------------- */

static af_status pair(af_item *out, const af_data_source *s, const json_t *record, af_rl rl,
                      const af_source_loc *p, af_error *err)
{
    const json_t *good, *bad;
    af_status st = AF_OK;
    if (has_rejected(record) && !json_object_get(record, s->field.chosen)) {
        out->conversations = 2;
        return other_answer(out, s, record, p, err);
    }
    AF_TRY(af_field_need(&good, s, record, s->field.chosen, p, err));
    AF_TRY(af_field_need(&bad, s, record, s->field.rejected, p, err));
    if (json_is_null(good) && json_is_null(bad)) {
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_NOTHING, "no answer is preferred; record skipped");
        return AF_OK;
    }
    AF_TRY(same_type(s, good, bad, p, err));
    if (is_alpaca(s, record)) {
        AF_TRY(put_answer(out, 0, s, record, s->field.chosen, p, err));
        AF_TRY(put_answer(out, 1, s, record, s->field.rejected, p, err));
    } else {
        const json_t *prompt = af_pair_prompt(s, record, json_is_string(good));
        if (json_is_string(good))
            AF_TRY(text_pair(out, s, prompt, good, bad, rl, p, err));
        else
            AF_TRY(chat_pair(out, s, prompt, good, bad, record, p, err));
    }
    out->conversations = 2;
done:
    return st;
}

/* A list of turns whose last one is the answer. */
static af_status tagged_turns(af_item *out, const af_data_source *s, const json_t *record,
                              const json_t *turns, const char *field, const af_source_loc *p,
                              af_error *err)
{
    const size_t n = json_array_size(turns);
    if (n < 2)
        return af_source_loc_fail(p, err,
                                  "\"%s\" has %zu messages: a prompt and an answer are "
                                  "wanted",
                                  field, n);
    json_t *prompt = slice(turns, 0, n - 1), *answer = slice(turns, n - 1, n);
    const af_status st = prompt && answer
                             ? af_pair_put_chat(out, 0, s, prompt, answer, field, record, p, err)
                             : af_fail_nomem(err, "a record", 0);
    json_decref(prompt);
    json_decref(answer);
    return st;
}

static af_status prompt_and_answer(af_item *out, const af_data_source *s, const json_t *record,
                                   const af_source_loc *p, af_error *err)
{
    const json_t *prompt, *answer;
    af_status st = AF_OK;
    AF_TRY(af_field_need(&prompt, s, record, s->field.prompt, p, err));
    AF_TRY(af_field_need(&answer, s, record, s->field.completion, p, err));
    if (!json_is_string(prompt) && !json_is_array(prompt))
        return af_field_wrong_type(s->field.prompt, prompt, "a string or a list of messages", p,
                                   err);
    if (json_typeof(prompt) != json_typeof(answer))
        return af_field_wrong_type(s->field.completion, answer,
                                   json_is_string(prompt) ? "a string (as the prompt is)"
                                                          : "a list (as the prompt is)",
                                   p, err);
    if (json_is_string(prompt))
        AF_TRY(put_strings(out, 0, prompt, answer, err));
    else
        AF_TRY(af_pair_put_chat(out, 0, s, prompt, answer, s->field.completion, record, p, err));
done:
    return st;
}

static af_status labelled(af_item *out, const af_data_source *s, const json_t *record,
                          const af_source_loc *p, af_error *err)
{
    const json_t *turns = json_object_get(record, s->field.messages);
    const char *field = turns ? s->field.messages : s->field.conversations;
    const bool tagged = json_object_get(record, AF_KTO_TAG) && !s->listed;
    af_status st = AF_OK;
    turns = turns ? turns : json_object_get(record, field);
    AF_TRY(af_pair_label(out, s, record, tagged ? AF_KTO_TAG : s->field.label, p, err));
    if (is_alpaca(s, record))
        AF_TRY(put_answer(out, 0, s, record, s->field.output, p, err));
    else if (turns)
        AF_TRY(tagged_turns(out, s, record, turns, field, p, err));
    else
        AF_TRY(prompt_and_answer(out, s, record, p, err));
    if (s->listed) { /* LLaMA-Factory takes an empty answer for an undesirable one */
        const json_t *last = json_array_get(out->conversation[0].messages, out->prompt_messages);
        out->label = out->label && json_string_length(json_object_get(last, "content")) > 0;
    }
    out->conversations = 1;
done:
    return st;
}

/* What a reader of the data would miss in the rows: columns that only a `type` reads, and texts
 * without a word. */
static void warn_pair(const af_item *i, const af_data_source *s, const json_t *record,
                      const af_source_loc *p)
{
    static const char *const system[] = {"system", "system_prompt"};
    for (size_t k = 0; k < AF_LEN(system) && !s->form && !s->listed; k++)
        if (json_string_length(json_object_get(record, system[k])))
            af_record_warn(p, AF_WARNING_PROMPT,
                           "\"%s\" is not part of the prompt: 'type: chatml.intel' reads such "
                           "records, and messages have a turn for it",
                           system[k]);
    for (int k = 0; k < i->conversations; k++)
        if (i->conversation[k].kind == AF_CONVERSATION_PROMPT && !i->conversation[k].answer_len) {
            p->warnings->counts.empty_answers++;
            af_record_warn(p, AF_WARNING_EMPTY, "an answer is empty");
        }
}

/* Whether two answers are the same text or messages. */
static bool equal_answers(const af_item *i)
{
    const af_conversation *a = &i->conversation[0], *b = &i->conversation[1];
    if (a->kind != AF_CONVERSATION_CHAT)
        return a->answer_len == b->answer_len &&
               memcmp(a->answer_text, b->answer_text, a->answer_len) == 0;
    return json_equal(a->messages, b->messages);
}

af_status af_pair_item(af_item *out, const af_data_source *s, const json_t *record, af_rl rl,
                       const af_source_loc *p, af_error *err)
{
    af_status st = AF_OK;
    *out = (af_item){0};
    if (s->form && s->form->kind != AF_FORM_AS_IS)
        AF_TRY(af_pair_form_item(out, s, record, rl, p, err));
    else if (s->shape == AF_SHAPE_KTO)
        AF_TRY(labelled(out, s, record, p, err));
    else
        AF_TRY(pair(out, s, record, rl, p, err));
    if (rl == AF_RL_REWARD)
        AF_TRY(read_margin(out, record, p, err));
    out->equal = out->conversations == 2 && equal_answers(out);
    warn_pair(out, s, record, p);
done:
    return st;
}
