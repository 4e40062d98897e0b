/* shape_item.c - which shape a record has, and the conversion of each shape.
 *
 * The shape is chosen by the one field that tells it apart, so that a record with a field missing
 * gets an error about that field, not "unknown shape". */
#include "data/shape/shape.h"

#include "base/buf.h"
#include "base/log.h"

void af_item_clear(af_item *i)
{
    af_conversation_clear(&i->conversation[0]);
    af_conversation_clear(&i->conversation[1]);
    json_decref(i->prompt);
    free(i->target);
    *i = (af_item){0};
}

static bool has(const json_t *record, const char *field)
{
    return json_object_get(record, field) != NULL;
}

bool af_turns_sharegpt(const af_data_source *s, const json_t *turns)
{
    const json_t *first = json_array_get(turns, 0);
    if (!json_is_object(first))
        return strcmp(s->field.messages, s->field.conversations) != 0;
    if (has(first, s->field.role) && has(first, s->field.content)) /* as a run file may call them */
        return strcmp(s->field.role, "from") == 0 && strcmp(s->field.content, "value") == 0;
    return has(first, s->field.from) || has(first, s->field.value);
}

static bool has_turns(const af_data_source *s, const json_t *record)
{
    return has(record, s->field.messages) || has(record, s->field.conversations);
}

static af_shape shape_of(af_data_source *s, const json_t *r)
{
    const af_fields *f = &s->field;
    if (has(r, f->input_ids))
        return AF_SHAPE_TOKENS;
    /* both named by the run file: `prompt` and `completion`, too, can be turns of a conversation */
    if (strcmp(f->instruction, "instruction") != 0 && strcmp(f->output, "output") != 0 &&
        has(r, f->instruction) && has(r, f->output))
        return AF_SHAPE_ALPACA;
    if (has(r, AF_KTO_TAG) && has_turns(s, r))
        return AF_SHAPE_KTO;
    if (s->pairs && has_turns(s, r) && (has(r, AF_REJECTED_TEXT) || has(r, AF_REJECTED_TURNS)))
        return AF_SHAPE_PREFERENCE;
    if (s->pairs && has_turns(s, r) && has(r, f->label))
        return AF_SHAPE_KTO;
    if (s->pairs && has(r, f->chosen) && has(r, f->rejected))
        return AF_SHAPE_PREFERENCE; /* the turns are their prompt */
    if (has(r, f->messages))
        return af_turns_sharegpt(s, json_object_get(r, f->messages)) &&
                       strcmp(f->messages, f->conversations) == 0
                   ? AF_SHAPE_SHAREGPT
                   : AF_SHAPE_MESSAGES;
    if (has(r, f->conversations))
        return AF_SHAPE_SHAREGPT;
    if (has(r, f->segments))
        return AF_SHAPE_SEGMENTS;
    if (has(r, f->chosen) || has(r, f->rejected))
        return AF_SHAPE_PREFERENCE;
    if (has(r, f->completion) && has(r, f->label))
        return AF_SHAPE_KTO;
    if (has(r, f->completion) || (has(r, f->prompt) && !has(r, f->output)))
        return AF_SHAPE_PROMPT;
    if (has(r, f->instruction) || has(r, f->output))
        return AF_SHAPE_ALPACA;
    if (has(r, f->text))
        return AF_SHAPE_TEXT;
    return AF_SHAPE_AUTO;
}

/* True when the shape is that of one of two fields, and the other is not there. */
static bool is_half(const af_data_source *s, const json_t *r)
{
    const af_fields *f = &s->field;
    if (s->shape_given || s->prompt || s->form || s->listed)
        return false;
    return (s->shape == AF_SHAPE_ALPACA && !(has(r, f->instruction) && has(r, f->output))) ||
           (s->shape == AF_SHAPE_PROMPT && !(has(r, f->prompt) && has(r, f->completion)));
}

af_status af_shape_detect(af_data_source *s, const json_t *record, const af_source_loc *p,
                          af_error *err)
{
    char keys[400];
    af_question q;
    if (!s->shape_given)
        s->shape = shape_of(s, record);
    if (!s->shape_given && s->shape == AF_SHAPE_TEXT && has(record, "parent_id") &&
        has(record, "role"))
        return af_source_loc_fail(p, err,
                                  "the record is one message of a tree (its keys: [%s]); write "
                                  "conversations as records, or 'type: text' to train on messages",
                                  af_record_keys(record, keys, sizeof keys));
    if ((s->shape == AF_SHAPE_AUTO || is_half(s, record)) && af_question_fields(record, &q))
        return af_shape_unknown(record, &q, p, err);
    if (s->shape == AF_SHAPE_AUTO)
        return af_shape_unknown(record, NULL, p, err);
    if (s->completion_apart && s->shape == AF_SHAPE_PROMPT)
        s->train_on_inputs = false;
    const char *idle = af_data_source_idle_key(s, s->shape);
    if (idle && s->prompt) /* Axolotl's prompts leave these keys to its other types */
        af_log_write(AF_LOG_WARN, "%s: %s has no effect on the prompt '%s'", p->file, idle,
                     s->prompt->type);
    else if (idle)
        return af_source_loc_fail(
            p, err,
            "%s has no effect: the record (its keys: [%s]) is of shape %s; state "
            "what is meant with type, or leave it out",
            idle, af_record_keys(record, keys, sizeof keys), af_shape_name(s->shape));
    if (s->shape == AF_SHAPE_SHAREGPT) {
        /* "conversations" whose turns have role and content are messages under another name */
        const json_t *turns = json_object_get(record, s->field.conversations);
        if (!s->shape_given && json_array_size(turns) > 0 && !af_turns_sharegpt(s, turns) &&
            has(json_array_get(turns, 0), s->field.role)) {
            s->shape = AF_SHAPE_MESSAGES;
            s->field.messages = s->field.conversations;
        } else if (!turns && has(record, s->field.messages)) {
            s->field.conversations = s->field.messages;
        }
    }
    return AF_OK;
}

static af_status missing(const af_data_source *s, const json_t *record, const char *field,
                         const af_source_loc *p, af_error *err)
{
    char keys[400];
    af_record_keys(record, keys, sizeof keys);
    if (p->csv) {
        af_source_loc header = *p;
        header.line = 1;
        return af_source_loc_fail(&header, err, "no column \"%s\" (columns: %s)", field, keys);
    }
    return af_source_loc_fail(
        p, err, "record %" PRId64 " has no field \"%s\" (its keys: [%s]); %s shape %s", p->number,
        field, keys, s->shape_given ? "its 'type' says" : "the first record is of",
        af_shape_name(s->shape));
}

/* A field that must be there. */
af_status af_field_need(const json_t **out, const af_data_source *s, const json_t *record,
                        const char *field, const af_source_loc *p, af_error *err)
{
    *out = json_object_get(record, field);
    return *out ? AF_OK : missing(s, record, field, p, err);
}

af_status af_field_wrong_type(const char *field, const json_t *v, const char *want,
                              const af_source_loc *p, af_error *err)
{
    return af_source_loc_fail(p, err, "field \"%s\" should be %s, got %s", field, want,
                              af_type_words(v));
}

af_status af_field_string(const json_t **out, const af_data_source *s, const json_t *record,
                          const char *field, const af_source_loc *p, af_error *err)
{
    const af_status st = af_field_need(out, s, record, field, p, err);
    if (st == AF_OK && !json_is_string(*out))
        return af_field_wrong_type(field, *out, "a string", p, err);
    return st;
}

/* A string that may be missing or null: then *out is NULL. So is an empty one. */
af_status af_field_maybe_string(const json_t **out, const json_t *record, const char *field,
                                const af_source_loc *p, af_error *err)
{
    const json_t *v = json_object_get(record, field);
    *out = NULL;
    if (!v || json_is_null(v))
        return AF_OK;
    if (!json_is_string(v))
        return af_field_wrong_type(field, v, "a string", p, err);
    *out = json_string_length(v) ? v : NULL;
    return AF_OK;
}

/* --- conversations --------------------------------------------------------------------------- */

static af_status add_history(af_conversation *t, const af_data_source *s, const json_t *record,
                             const af_source_loc *p, af_error *err)
{
    const json_t *history = json_object_get(record, s->field.history);
    af_status st = AF_OK;
    if (!history || json_is_null(history))
        return AF_OK;
    if (!json_is_array(history))
        return af_field_wrong_type(s->field.history, history, "a list of pairs", p, err);
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *pair = json_array_get(history, i);
        if (json_array_size(pair) != 2 || !json_is_string(json_array_get(pair, 0)) ||
            !json_is_string(json_array_get(pair, 1)))
            return af_source_loc_fail(p, err, "field \"%s\": entry %zu is not a pair of strings",
                                      s->field.history, i + 1);
        AF_TRY(af_turn_add(t, "user", json_array_get(pair, 0), true, err));
        AF_TRY(af_turn_add(t, "assistant", json_array_get(pair, 1), true, err));
    }
done:
    return st;
}

af_status af_alpaca_question(af_conversation *t, const af_data_source *s, const json_t *record,
                             const af_source_loc *p, af_error *err)
{
    af_status st = AF_OK;
    const json_t *instruction, *input, *system;
    json_t *user = NULL;
    AF_TRY(af_field_string(&instruction, s, record, s->field.instruction, p, err));
    AF_TRY(af_field_maybe_string(&input, record, s->field.input, p, err));
    AF_TRY(af_field_maybe_string(&system, record, s->field.system, p, err));
    if (strcmp(s->field.input, s->field.instruction) == 0)
        input = NULL; /* field_instruction: input */
    t->kind = AF_CONVERSATION_CHAT;
    t->messages = json_array();
    if (!t->messages)
        return af_fail_nomem(err, "a conversation", 0);
    if (system)
        AF_TRY(af_turn_add(t, "system", system, true, err));
    AF_TRY(add_history(t, s, record, p, err));
    if (input) {
        af_buf b = {0};
        af_buf_add(&b, json_string_value(instruction), json_string_length(instruction));
        af_buf_char(&b, '\n');
        af_buf_add(&b, json_string_value(input), json_string_length(input));
        user = b.bad ? NULL : json_stringn_nocheck(b.data, b.len);
        af_buf_clear(&b);
        if (!user)
            return af_fail_nomem(err, "a conversation", 0);
    }
    AF_TRY(af_turn_add(t, "user", user ? user : instruction, true, err));
done:
    json_decref(user);
    return st;
}

static af_status alpaca(af_item *out, const af_data_source *s, const json_t *record,
                        const af_source_loc *p, af_error *err)
{
    af_status st = AF_OK;
    const json_t *instruction, *output;
    af_conversation *t = &out->conversation[0];
    AF_TRY(af_field_string(&instruction, s, record, s->field.instruction, p, err));
    AF_TRY(af_field_string(&output, s, record, s->field.output, p, err));
    AF_TRY(af_alpaca_question(t, s, record, p, err));
    AF_TRY(af_turn_add(t, "assistant", output, true, err));
    AF_TRY(af_template_fields_take(t, s, record, p, err));
    if (json_string_length(output) == 0) {
        p->warnings->counts.empty_answers++;
        af_record_warn(p, AF_WARNING_EMPTY, "field \"%s\" is empty", s->field.output);
    }
    out->conversations = 1;
done:
    return st;
}

static bool has_trained_role(const af_data_source *s, const af_conversation *t)
{
    for (size_t i = 0; i < json_array_size(t->messages); i++) {
        const json_t *m = json_array_get(t->messages, i);
        if (af_role_trained(s, json_string_value(json_object_get(m, "role"))) && t->train[i])
            return true;
    }
    return s->train_on_inputs;
}

static af_status conversation(af_item *out, const af_data_source *s, const json_t *record,
                              const af_source_loc *p, af_error *err)
{
    af_status st = AF_OK;
    const bool sharegpt = s->shape == AF_SHAPE_SHAREGPT;
    const char *field = sharegpt ? s->field.conversations : s->field.messages;
    const json_t *turns, *system = NULL;
    af_conversation *t = &out->conversation[0];
    AF_TRY(af_field_need(&turns, s, record, field, p, err));
    AF_TRY(af_field_maybe_string(&system, record, s->field.system, p, err));
    const char *first = json_string_value(
        json_object_get(json_array_get(turns, 0), sharegpt ? s->field.from : s->field.role));
    if (system && first && strcmp(first, "system") != 0) { /* a column next to the turns */
        t->messages = json_array();
        if (!t->messages)
            return af_fail_nomem(err, "a conversation", 0);
        AF_TRY(af_turn_add(t, "system", system, true, err));
    }
    AF_TRY(af_turns_take(t, s, turns, field, sharegpt, p, err));
    AF_TRY(af_template_fields_take(t, s, record, p, err));
    if (!has_trained_role(s, t)) {
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_NOTHING, "no %s message%s, nothing to learn; record skipped",
                       s->role_count ? s->roles[0] : "assistant",
                       s->role_count ? "" : " with loss");
        return AF_OK;
    }
    out->conversations = 1;
done:
    return st;
}

/* --- prompt and completion ----------------------------------------------------------------------
 */

/* Two message lists as one conversation; loss only in the second, unless prompts have it, too. */
static af_status join_messages(af_conversation *t, const af_data_source *s, const json_t *prompt,
                               const json_t *completion, const char *completion_field,
                               const json_t *record, const af_source_loc *p, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_turns_take(t, s, prompt, s->field.prompt, false, p, err));
    const size_t n = json_array_size(t->messages);
    for (size_t i = 0; i < n && !s->train_on_inputs; i++)
        t->train[i] = false;
    AF_TRY(af_turns_take(t, s, completion, completion_field, false, p, err));
    AF_TRY(af_template_fields_take(t, s, record, p, err));
done:
    return st;
}

static af_status pair_messages(af_conversation *t, const af_data_source *s, const json_t *prompt,
                               const char *completion_field, const json_t *record,
                               const af_source_loc *p, af_error *err)
{
    const json_t *completion;
    af_status st = af_field_need(&completion, s, record, completion_field, p, err);
    if (st != AF_OK)
        return st;
    if (json_is_array(prompt)) {
        if (!json_is_array(completion))
            return af_field_wrong_type(completion_field, completion, "a list (as the prompt is)", p,
                                       err);
        return join_messages(t, s, prompt, completion, completion_field, record, p, err);
    }
    if (!json_is_string(prompt))
        return af_field_wrong_type(s->field.prompt, prompt, "a string or a list of messages", p,
                                   err);
    if (!json_is_string(completion))
        return af_field_wrong_type(completion_field, completion, "a string", p, err);
    if (json_string_length(completion) == 0) {
        p->warnings->counts.empty_answers++;
        af_record_warn(p, AF_WARNING_EMPTY, "field \"%s\" is empty", completion_field);
    }
    *t = (af_conversation){
        .kind = AF_CONVERSATION_PLAIN, .prompt = prompt, .completion = completion};
    return AF_OK;
}

/* Turns with a label: loss on the last one alone. */
static af_status tagged_turns(af_item *out, const af_data_source *s, const json_t *record,
                              const af_source_loc *p, af_error *err)
{
    af_data_source as = *s;
    const char *name = has(record, AF_KTO_TAG) ? AF_KTO_TAG : s->field.label;
    const json_t *tag = json_object_get(record, name);
    const json_t *turns = json_object_get(record, s->field.messages);
    if (!json_is_boolean(tag))
        return af_field_wrong_type(name, tag, "true or false", p, err);
    as.shape = turns ? AF_SHAPE_MESSAGES : AF_SHAPE_SHAREGPT;
    if (turns && af_turns_sharegpt(s, turns)) {
        as.shape = AF_SHAPE_SHAREGPT;
        as.field.conversations = s->field.messages;
    }
    const af_status st = conversation(out, &as, record, p, err);
    if (st != AF_OK || !out->conversations)
        return st;
    for (size_t i = 0; i + 1 < json_array_size(out->conversation[0].messages); i++)
        out->conversation[0].train[i] = false;
    out->has_label = true;
    out->label = json_is_true(tag);
    return AF_OK;
}

static af_status prompt_completion(af_item *out, const af_data_source *s, const json_t *record,
                                   const af_source_loc *p, af_error *err)
{
    const json_t *prompt, *label = NULL;
    af_status st = AF_OK;
    if (s->shape == AF_SHAPE_KTO && has_turns(s, record))
        return tagged_turns(out, s, record, p, err);
    AF_TRY(af_field_need(&prompt, s, record, s->field.prompt, p, err));
    if (s->shape == AF_SHAPE_KTO) {
        AF_TRY(af_field_need(&label, s, record, s->field.label, p, err));
        if (!json_is_boolean(label))
            return af_field_wrong_type(s->field.label, label, "true or false", p, err);
        out->has_label = true;
        out->label = json_is_true(label);
    }
    AF_TRY(pair_messages(&out->conversation[0], s, prompt, s->field.completion, record, p, err));
    if (out->conversation[0].kind == AF_CONVERSATION_CHAT &&
        !has_trained_role(s, &out->conversation[0])) {
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_NOTHING,
                       "no assistant message in \"%s\", nothing to learn; record skipped",
                       s->field.completion);
        return AF_OK;
    }
    out->conversations = 1;
done:
    return st;
}

/* --- preference ------------------------------------------------------------------------------ */

static json_t *slice(const json_t *list, size_t from, size_t to)
{
    json_t *out = json_array();
    for (size_t i = from; out && i < to; i++)
        json_array_append(out, json_array_get(list, i));
    return out;
}

static af_status common_prompt(size_t *out, const af_data_source *s, const json_t *good,
                               const json_t *bad, const af_source_loc *p, af_error *err)
{
    const size_t a = json_array_size(good), b = json_array_size(bad);
    size_t n = 0;
    while (n < a && n < b && json_equal(json_array_get(good, n), json_array_get(bad, n)))
        n++;
    if (n == 0)
        return af_source_loc_fail(p, err, "no common prompt in \"%s\" and \"%s\"", s->field.chosen,
                                  s->field.rejected);
    if (n == a || n == b)
        return af_source_loc_fail(p, err, "\"%s\" has nothing after the common prompt",
                                  n == a ? s->field.chosen : s->field.rejected);
    *out = n;
    return AF_OK;
}

static af_status implicit_pair(af_item *out, const af_data_source *s, const json_t *good,
                               const json_t *bad, const json_t *record, const af_source_loc *p,
                               af_error *err)
{
    size_t n = 0;
    af_status st = AF_OK;
    json_t *rest[2] = {0};
    if (!json_is_array(good))
        return json_is_string(good) ? missing(s, record, s->field.prompt, p, err)
                                    : af_field_wrong_type(s->field.chosen, good, "a list", p, err);
    if (!json_is_array(bad))
        return af_field_wrong_type(s->field.rejected, bad, "a list", p, err);
    AF_TRY(common_prompt(&n, s, good, bad, p, err));
    out->prompt = slice(good, 0, n);
    rest[0] = slice(good, n, json_array_size(good));
    rest[1] = slice(bad, n, json_array_size(bad));
    if (!out->prompt || !rest[0] || !rest[1]) {
        st = af_fail_nomem(err, "a preference pair", 0);
        goto done;
    }
    AF_TRY(join_messages(&out->conversation[0], s, out->prompt, rest[0], s->field.chosen, record, p,
                         err));
    AF_TRY(join_messages(&out->conversation[1], s, out->prompt, rest[1], s->field.rejected, record,
                         p, err));
done:
    json_decref(rest[0]);
    json_decref(rest[1]);
    return st;
}

const json_t *af_pair_prompt(const af_data_source *s, const json_t *record, bool texts)
{
    const char *const turns[] = {s->field.prompt, s->field.messages, s->field.conversations};
    const char *const words[] = {s->field.prompt, s->field.instruction, "question", "input"};
    const char *const *names = texts ? words : turns;
    for (size_t i = 0; i < (texts ? AF_LEN(words) : AF_LEN(turns)); i++) {
        const json_t *v = json_object_get(record, names[i]);
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

/* Turns, and one message on each side. */
static af_status answer_pair(af_item *out, const af_data_source *s, const json_t *prompt,
                             const json_t *good, const json_t *bad, const json_t *record,
                             const af_source_loc *p, af_error *err)
{
    const json_t *const answer[2] = {good, bad};
    const char *const name[2] = {s->field.chosen, s->field.rejected};
    const bool sharegpt = af_turns_sharegpt(s, prompt);
    af_status st = AF_OK;
    for (int i = 0; i < 2; i++) {
        json_t *one = json_pack("[O]", answer[i]);
        af_conversation *t = &out->conversation[i];
        st = one ? af_turns_take(t, s, prompt, s->field.prompt, sharegpt, p, err)
                 : af_fail_nomem(err, "a preference pair", 0);
        for (size_t k = 0; st == AF_OK && k < json_array_size(t->messages); k++)
            t->train[k] = false;
        if (st == AF_OK)
            st = af_turns_take(t, s, one, name[i], sharegpt, p, err);
        json_decref(one);
        if (st == AF_OK)
            st = af_template_fields_take(t, s, record, p, err);
        if (st != AF_OK)
            return st;
    }
    out->prompt = json_incref((json_t *)prompt);
    return AF_OK;
}

static af_status preference(af_item *out, const af_data_source *s, const json_t *record,
                            const af_source_loc *p, af_error *err)
{
    const json_t *good, *bad;
    af_status st = AF_OK;
    AF_TRY(af_field_need(&good, s, record, s->field.chosen, p, err));
    AF_TRY(af_field_need(&bad, s, record, s->field.rejected, p, err));
    const json_t *prompt = af_pair_prompt(s, record, json_is_string(good));
    if (json_equal(good, bad)) {
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_SAME_PAIR, "\"%s\" and \"%s\" are equal; record skipped",
                       s->field.chosen, s->field.rejected);
        return AF_OK;
    }
    /* the whole conversation on both sides, where a prompt may be repeated as text */
    if (!prompt || (json_is_array(good) && json_is_string(prompt))) {
        AF_TRY(implicit_pair(out, s, good, bad, record, p, err));
    } else if (json_is_object(good) && json_is_array(prompt)) {
        AF_TRY(answer_pair(out, s, prompt, good, bad, record, p, err));
    } else {
        AF_TRY(pair_messages(&out->conversation[0], s, prompt, s->field.chosen, record, p, err));
        AF_TRY(pair_messages(&out->conversation[1], s, prompt, s->field.rejected, record, p, err));
        if (json_is_array(prompt))
            out->prompt = json_incref((json_t *)prompt);
        else
            out->prompt_text = prompt;
    }
    out->conversations = 2;
done:
    return st;
}

af_status af_shape_item(af_item *out, const af_data_source *s, const json_t *record,
                        const af_source_loc *p, af_error *err)
{
    af_status (*const convert[])(af_item *, const af_data_source *, const json_t *,
                                 const af_source_loc *, af_error *) = {
        [AF_SHAPE_ALPACA] = alpaca,           [AF_SHAPE_SHAREGPT] = conversation,
        [AF_SHAPE_MESSAGES] = conversation,   [AF_SHAPE_PROMPT] = prompt_completion,
        [AF_SHAPE_TEXT] = af_plain_text_item, [AF_SHAPE_PREFERENCE] = preference,
        [AF_SHAPE_KTO] = prompt_completion,   [AF_SHAPE_SEGMENTS] = af_segments_item,
        [AF_SHAPE_TOKENS] = af_tokens_item,
    };
    assert(s->shape != AF_SHAPE_AUTO);
    *out = (af_item){0};
    if (s->prompt)
        return af_prompt_item(out, s, record, p, err);
    if (s->cognition) {
        json_t *filled = NULL;
        af_status st = af_self_cognition_fill(&filled, s, record, p, err);
        if (st == AF_OK)
            st = alpaca(out, s, filled, p, err);
        json_decref(filled);
        return st;
    }
    return convert[s->shape](out, s, record, p, err);
}
