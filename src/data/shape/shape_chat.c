/* shape_chat.c - turns of a conversation: roles, contents, tool calls, flags, checked and brought
 * to what chat templates expect. */
#define _GNU_SOURCE /* memmem */
#include "data/shape/shape.h"
#include "format/text/json_text.h"
#include "format/text/python_text.h"

#include <strings.h>

const char *af_type_words(const json_t *v)
{
    static const char *const names[] = {"an object", "a list",        "a string",      "a number",
                                        "a number",  "true or false", "true or false", "null"};
    return v ? names[json_typeof(v)] : "nothing";
}

void af_conversation_clear(af_conversation *t)
{
    json_decref(t->messages);
    json_decref(t->tools);
    json_decref(t->variables);
    free(t->train);
    free(t->prompt_text);
    free(t->answer_text);
    *t = (af_conversation){0};
}

bool af_role_trained(const af_data_source *s, const char *role)
{
    if (s->role_count == 0)
        return strcmp(role, "assistant") == 0;
    for (int i = 0; i < s->role_count; i++)
        if (strcmp(s->roles[i], role) == 0 || strcmp(s->roles[i], "all") == 0 ||
            (strcmp(s->roles[i], "gpt") == 0 && strcmp(role, "assistant") == 0) ||
            (strcmp(s->roles[i], "human") == 0 && strcmp(role, "user") == 0))
            return true;
    return false;
}

static const af_role_name known_roles[] = {
    {"system", "system"},      {"user", "user"},           {"assistant", "assistant"},
    {"tool", "tool"},          {"human", "user"},          {"gpt", "assistant"},
    {"observation", "tool"},   {"developer", "developer"}, {"ipython", "ipython"},
    {"function", "tool"},      {"chatgpt", "assistant"},   {"function_response", "tool"},
    {"tool_response", "tool"}, {"environment", "tool"},
};

/* The template's name of a role, or NULL. */
static const char *role_of(const af_data_source *s, const char *name)
{
    for (int i = 0; i < s->role_name_count; i++)
        if (strcmp(s->role_names[i].from, name) == 0)
            return s->role_names[i].to;
    if (s->line_calls && strcmp(name, "environment") == 0)
        return "environment";
    for (size_t i = 0; i < AF_LEN(known_roles); i++)
        if (strcmp(known_roles[i].from, name) == 0)
            return known_roles[i].to;
    return NULL;
}

/* What a role of another spelling may be. */
static const char *likely_role(const char *name)
{
    for (size_t i = 0; i < AF_LEN(known_roles); i++)
        if (strcasecmp(known_roles[i].from, name) == 0)
            return known_roles[i].to;
    return "assistant";
}

/* Takes the message. */
static af_status append(af_conversation *t, json_t *message, bool train, af_error *err)
{
    const size_t n = json_array_size(t->messages);
    bool *flags = af_realloc(t->train, n + 1, sizeof *flags);
    if (flags) {
        t->train = flags;
        flags[n] = train;
    } else {
        json_decref(message);
    }
    if (!flags || !message || json_array_append_new(t->messages, message))
        return af_fail_nomem(err, "a conversation", n);
    return AF_OK;
}

af_status af_turn_add(af_conversation *t, const char *role, const json_t *content, bool train,
                      af_error *err)
{
    json_t *m = json_object();
    if (!m || json_object_set_new(m, "role", json_string(role)) ||
        json_object_set(m, "content", (json_t *)content)) {
        json_decref(m);
        return af_fail_nomem(err, "a conversation", 0);
    }
    return append(t, m, train, err);
}

/* Whether the conversation begins with instructions of its own. */
static bool has_system(const af_conversation *t)
{
    const char *role = json_string_value(json_object_get(json_array_get(t->messages, 0), "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

af_status af_item_put_system(af_item *out, const char *text, af_error *err)
{
    const af_conversation *first = &out->conversation[0]; /* a pair has one prompt */
    if (!out->conversations || first->kind != AF_CONVERSATION_CHAT || !first->messages ||
        has_system(first))
        return AF_OK;
    for (int i = 0; i < out->conversations; i++) {
        af_conversation *t = &out->conversation[i];
        json_t *m = json_pack("{s:s, s:s}", "role", "system", "content", text);
        const af_status st = m ? append(t, m, true, err) : af_fail_nomem(err, "a conversation", 0);
        if (st != AF_OK)
            return st;
        const size_t last = json_array_size(t->messages) - 1; /* it goes to the front */
        json_incref(m);
        if (json_array_remove(t->messages, last) || json_array_insert_new(t->messages, 0, m))
            return af_fail_nomem(err, "a conversation", 0);
        memmove(t->train + 1, t->train, last * sizeof *t->train);
        t->train[0] = out->prompt_messages == 0; /* a prompt is never trained on */
    }
    out->prompt_messages++;
    return AF_OK;
}

typedef struct turn {
    const af_data_source *s;
    const af_source_loc *p;
    size_t number; /* from 1 */
    const char *role_key, *content_key;
    const json_t *json;
    const char *role;
    bool train;
    af_error *err;
} turn;

static af_status read_role(turn *t)
{
    const json_t *v = json_object_get(t->json, t->role_key);
    if (!v)
        return af_source_loc_fail(t->p, t->err, "message %zu has no field \"%s\"", t->number,
                                  t->role_key);
    if (!json_is_string(v))
        return af_source_loc_fail(t->p, t->err, "message %zu: \"%s\" should be a string, got %s",
                                  t->number, t->role_key, af_type_words(v));
    t->role = role_of(t->s, json_string_value(v));
    if (!t->role && (strcmp(json_string_value(v), AF_ROLE_CALL) == 0 ||
                     strcmp(json_string_value(v), "function_call") == 0))
        t->role = "function_call";
    if (!t->role)
        return af_source_loc_fail(t->p, t->err,
                                  "message %zu: unknown role \"%.40s\" (known: system, user, "
                                  "assistant, tool; the dataset may map it: roles: {%s: [%.40s]})",
                                  t->number, json_string_value(v),
                                  likely_role(json_string_value(v)), json_string_value(v));
    return AF_OK;
}

static bool is_assistant(const turn *t)
{
    return strcmp(t->role, "assistant") == 0 || strcmp(t->role, "function_call") == 0;
}

/* "loss" of ms-swift and XTuner, "masked" of torchtune; weights of OpenAI, LLaMA-Factory,
 * ms-swift and slime. The name of the first is the run file's. */
static const struct {
    const char *name;
    bool weight, inverse;
} flags[] = {{NULL, false, false},           {"loss", false, false},
             {"masked", false, true},        {"weight", true, false},
             {"loss_weight", true, false},   {"loss_scale", true, false},
             {"step_loss_mask", true, false}};

static const char *flag_name(const turn *t, size_t i)
{
    return flags[i].name ? flags[i].name : t->s->field.train;
}

static af_status wrong_flag(const turn *t, size_t i, const json_t *v)
{
    if (!flags[i].weight)
        return af_source_loc_fail(t->p, t->err,
                                  "message %zu: \"%s\" should be true or false, got %s", t->number,
                                  flag_name(t, i), af_type_words(v));
    char *shown = af_json_dump(v, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    const af_status st =
        af_source_loc_fail(t->p, t->err, "message %zu: \"%s\" must be 0 or 1, got %.40s", t->number,
                           flag_name(t, i), shown ? shown : "");
    free(shown);
    return st;
}

/* Whether the loss of a message is on: flags are true or false, weights 0 or 1. */
static af_status read_flags(turn *t)
{
    const bool mine = is_assistant(t) || af_role_trained(t->s, t->role);
    t->train = true;
    if (json_object_get(t->json, "train_detail") &&
        !json_is_null(json_object_get(t->json, "train_detail")))
        return af_source_loc_fail(t->p, t->err, "message %zu: \"train_detail\" is not supported",
                                  t->number);
    for (size_t i = 0; i < AF_LEN(flags); i++) {
        const json_t *v = json_object_get(t->json, flag_name(t, i));
        const double w = json_number_value(v);
        const bool number = json_is_number(v) && (w == 0 || w == 1) && i > 0;
        if (!v || json_is_null(v))
            continue;
        if (!number && (flags[i].weight || !json_is_boolean(v)))
            return wrong_flag(t, i, v);
        const bool set = number ? w == 1 : json_is_true(v);
        if (!mine && set && !flags[i].inverse)
            return af_source_loc_fail(t->p, t->err,
                                      "message %zu: \"%s\"%s is only allowed on assistant messages "
                                      "(roles_to_train names others)",
                                      t->number, flag_name(t, i), flags[i].weight ? ": 1" : "");
        t->train = t->train && set != flags[i].inverse;
    }
    return AF_OK;
}

static bool some(const json_t *m, const char *key)
{
    const json_t *v = json_object_get(m, key);
    return json_array_size(v) > 0 || json_string_length(v) > 0;
}

static bool has_other_content(const turn *t)
{
    const json_t *m = t->json;
    return some(m, "tool_calls") || some(m, "function_calls") || some(m, "reasoning_content") ||
           some(m, "thinking") || some(m, "reasoning") || some(m, t->s->thinking);
}

/* {"id", "name", "arguments"}: name and arguments go to a "function", where all templates look. */
static bool wrap_function(json_t *call)
{
    static const char *const members[] = {"name", "arguments"};
    if (json_object_get(call, "function") || !json_is_string(json_object_get(call, "name")))
        return true;
    json_t *function = json_object();
    for (size_t i = 0; i < AF_LEN(members); i++) {
        json_t *v = json_object_get(call, members[i]);
        if (v && json_object_set(function, members[i], v))
            return false;
        json_object_del(call, members[i]);
    }
    return !json_object_set_new(call, "type", json_string("function")) &&
           !json_object_set_new(call, "function", function);
}

/* Arguments given as a string of JSON become the object. */
static af_status fix_arguments(const turn *t, json_t *message)
{
    const json_t *old = json_object_get(message, "tool_calls");
    if (!old || json_is_null(old))
        return AF_OK;
    json_t *calls = json_is_array(old) ? json_deep_copy(old) : af_json_text_list(old);
    if (!calls && json_is_string(old) && !json_string_length(old))
        return json_object_del(message, "tool_calls"), AF_OK; /* a column of text */
    if (!calls && !json_is_array(old))
        return af_source_loc_fail(t->p, t->err,
                                  "message %zu: \"tool_calls\" should be a list, got %s", t->number,
                                  af_type_words(old));
    if (!calls || json_object_set_new(message, "tool_calls", calls))
        return af_fail_nomem(t->err, "tool calls", 0);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = json_array_get(calls, i);
        if (!json_is_object(call))
            return af_source_loc_fail(t->p, t->err,
                                      "message %zu: tool_calls[%zu] should be an object, got %s",
                                      t->number, i, af_type_words(call));
        if (!wrap_function(call))
            return af_fail_nomem(t->err, "tool calls", 0);
        json_t *f = json_object_get(call, "function");
        f = json_is_object(f) ? f : call;
        const json_t *a = json_object_get(f, "arguments");
        if (!json_is_string(a))
            continue;
        json_error_t why;
        json_t *parsed = af_json_load(json_string_value(a), json_string_length(a),
                                      JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
        if (!parsed)
            return af_source_loc_fail(
                t->p, t->err, "message %zu: tool_calls[%zu].function.arguments is not valid JSON",
                t->number, i);
        json_object_set_new(f, "arguments", parsed);
    }
    return AF_OK;
}

/* Calls after an answer, or after calls, are of the same turn. */
static bool join_calls(const af_conversation *out, const turn *t, const json_t *m)
{
    const size_t n = json_array_size(out->messages);
    json_t *last = json_array_get(out->messages, n - 1);
    json_t *calls = json_object_get(m, "tool_calls"), *before;
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *name = json_string_value(json_object_get(t->json, t->role_key));
    if (!n || strcmp(role, "assistant") != 0 || strcmp(name, AF_ROLE_CALL) != 0 ||
        out->train[n - 1] != t->train)
        return false;
    before = json_object_get(last, "tool_calls");
    return !(before ? json_array_extend(before, calls)
                    : json_object_set(last, "tool_calls", calls));
}

/* The value of a function_call is the call itself, or a list of calls, maybe as text. */
static af_status add_function_call(af_conversation *out, const turn *t)
{
    json_t *v = json_object_get(t->json, t->content_key);
    json_t *value = json_is_string(v) ? af_json_or_python(v) : json_incref(v);
    const size_t count = json_is_array(value) ? json_array_size(value) : json_is_object(value);
    json_t *m = json_pack("{s:s, s:s, s:[]}", "role", "assistant", "content", "", "tool_calls");
    const char *text = json_string_value(v); /* of what is not a call */
    bool calls = count > 0;
    for (size_t i = 0; i < count && calls; i++) {
        json_t *call = json_is_array(value) ? json_array_get(value, i) : value;
        char id[32]; /* nine letters and digits, as Mistral's templates want */
        snprintf(id, sizeof id, "cal%c%05zu", i ? (char)('a' + (i - 1) % 11) : 'l', t->number - 1);
        calls = json_is_object(call);
        text = json_is_string(call) ? json_string_value(call) : text;
        json_array_append_new(
            json_object_get(m, "tool_calls"),
            json_pack("{s:s, s:s, s:O}", "id", id, "type", "function", "function", call));
    }
    af_status st =
        calls ? m ? fix_arguments(t, m) : AF_OK
              : af_source_loc_fail(
                    t->p, t->err,
                    "message %zu: \"%s\" of a function_call is not a JSON object%s%.60s", t->number,
                    t->content_key, text && *text ? ": " : "", text ? text : "");
    json_decref(value);
    if (st == AF_OK && !join_calls(out, t, m))
        return append(out, m, t->train, t->err);
    json_decref(m);
    return st;
}

static af_status check_content(const turn *t, const json_t *v)
{
    if (!v)
        return af_source_loc_fail(t->p, t->err, "message %zu has no field \"%s\"", t->number,
                                  t->content_key);
    if (json_is_string(v))
        return AF_OK;
    bool parts = json_is_array(v);
    for (size_t i = 0; parts && i < json_array_size(v); i++)
        parts = json_is_object(json_array_get(v, i)) || json_is_string(json_array_get(v, i));
    if (!parts)
        return af_source_loc_fail(t->p, t->err, "message %zu: \"%s\" should be a string, got %s",
                                  t->number, t->content_key, af_type_words(v));
    return AF_OK;
}

static bool only_blanks(const json_t *v)
{
    if (json_is_array(v))
        return json_array_size(v) == 0;
    const char *s = json_string_value(v);
    const size_t n = json_string_length(v);
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", s[i]) || !s[i])
            return false;
    return true;
}

/* Gives a property the name the template knows it by. */
static int rename_property(const turn *t, json_t *m, const char *from, const char *to)
{
    json_t *v = json_object_get(t->json, from);
    if (!v || json_is_null(v) || strcmp(from, to) == 0)
        return 0;
    json_object_del(m, from);
    return json_object_set(m, to, v);
}

static int rename_properties(const turn *t, json_t *m)
{
    const af_data_source *s = t->s;
    int bad = rename_property(t, m, s->thinking, s->thinking_key);
    for (int i = 0; i < s->property_name_count; i++)
        bad |= rename_property(t, m, s->property_names[i].from, s->property_names[i].to);
    return bad;
}

/* A copy without properties that are null, except its content. */
static json_t *without_nulls(const turn *t)
{
    const char *key;
    json_t *v, *out = json_copy((json_t *)t->json);
    json_object_foreach((json_t *)t->json, key, v)
    {
        if (json_is_null(v) && strcmp(key, t->content_key) != 0)
            json_object_del(out, key);
    }
    return out;
}

/* A copy without our flags and under the standard names. */
static json_t *clean_copy(const turn *t, const json_t *content)
{
    json_t *m = json_copy((json_t *)t->json);
    if (!m || rename_properties(t, m)) {
        json_decref(m);
        return NULL;
    }
    json_object_del(m, "train");
    for (size_t i = 0; i < AF_LEN(flags); i++)
        json_object_del(m, flag_name(t, i));
    if (strcmp(t->role_key, "role") != 0)
        json_object_del(m, t->role_key);
    if (strcmp(t->content_key, "content") != 0)
        json_object_del(m, t->content_key);
    const char *role = json_string_value(json_object_get(m, "role"));
    int bad = 0;
    if (!role || strcmp(role, t->role) != 0)
        bad |= json_object_set_new(m, "role", json_string(t->role));
    bad |= content ? json_object_set(m, "content", (json_t *)content)
                   : json_object_set_new(m, "content", json_string(""));
    if (bad) {
        json_decref(m);
        return NULL;
    }
    return m;
}

/* Narrows [*from, *to) of s to what is between the first of each mark; false: one is not there. */
static bool between(const char *s, uint64_t *from, uint64_t *to, const char *const mark[2],
                    uint64_t *rest)
{
    const uint64_t n = *to - *from;
    const char *open = memmem(s + *from, n, mark[0], strlen(mark[0]));
    const char *close = memmem(s + *from, n, mark[1], strlen(mark[1]));
    if (!open || !close)
        return false;
    *to = (uint64_t)(close - s);
    *from = AF_MIN((uint64_t)(open - s) + strlen(mark[0]), *to);
    *rest = *to + strlen(mark[1]);
    return true;
}

/* split_thinking, as Axolotl does it: a thought in the content becomes a property. */
static af_status split_thought(const turn *t, json_t *m)
{
    static const char *const thoughts[][2] = {{"<think>", "</think>"},
                                              {"<reasoning>", "</reasoning>"},
                                              {"<|begin_of_thought|>", "<|end_of_thought|>"}};
    static const char *const solution[2] = {"<|begin_of_solution|>", "<|end_of_solution|>"};
    const json_t *content = json_object_get(m, "content");
    const char *s = json_string_value(content);
    const uint64_t n = json_string_length(content);
    uint64_t from = 0, to = n, begin = 0, end = n, unused;
    bool found = false;
    for (size_t i = 0; s && i < AF_LEN(thoughts) && !found; i++)
        found = between(s, &from, &to, thoughts[i], &begin);
    if (!found)
        return AF_OK;
    af_py_strip(s, &from, &to, NULL, 0, 'b');
    const char side = between(s, &begin, &end, solution, &unused) ? 'b' : 'l';
    af_py_strip(s, &begin, &end, NULL, 0, side);
    json_t *rest = json_stringn(s + begin, end - begin);
    if (json_object_set_new(m, t->s->thinking_key, json_stringn(s + from, to - from)) ||
        json_object_set_new(m, "content", rest))
        return af_fail_nomem(t->err, "a message", n);
    return AF_OK;
}

static af_status take_turn(af_conversation *out, turn *t)
{
    af_status st = AF_OK;
    json_t *m = NULL, *own = NULL;
    if (!json_is_object(t->json))
        return af_source_loc_fail(t->p, t->err, "message %zu should be an object, got %s",
                                  t->number, af_type_words(t->json));
    t->json = own = without_nulls(t);
    if (!own)
        return af_fail_nomem(t->err, "a message", 0);
    af_fields_drop_ignored(t->s, own);
    AF_TRY(af_message_open_call(own, t->number, t->err));
    AF_TRY(read_role(t));
    AF_TRY(read_flags(t));
    if (strcmp(t->role, "function_call") == 0) {
        st = add_function_call(out, t);
        goto done;
    }
    const json_t *content = json_object_get(t->json, t->content_key);
    AF_TRY(af_message_refuse_media(t->s, t->json, content, t->number, t->p, t->err));
    const bool other = is_assistant(t) && has_other_content(t);
    if (other && (!content || json_is_null(content)))
        content = NULL;
    else
        AF_TRY(check_content(t, content));
    if (some(t->json, "function_calls") && !t->s->line_calls) {
        st = af_source_loc_fail(t->p, t->err,
                                "message %zu: \"function_calls\" are not calls as Python has them",
                                t->number);
        goto done;
    }
    if (is_assistant(t) && !other && t->train && only_blanks(content)) {
        t->p->warnings->counts.empty_answers++;
        af_record_warn(t->p, AF_WARNING_EMPTY, "message %zu: empty assistant turn", t->number);
    }
    m = clean_copy(t, content);
    if (!m) {
        st = af_fail_nomem(t->err, "a message", 0);
        goto done;
    }
    if (t->s->split_thinking && is_assistant(t))
        AF_TRY(split_thought(t, m));
    AF_TRY(fix_arguments(t, m));
    st = append(out, m, t->train, t->err);
    m = NULL;
done:
    json_decref(m);
    json_decref(own);
    return st;
}

static bool is_system_turn(const af_data_source *s, const json_t *first, bool sharegpt)
{
    const char *name =
        json_string_value(json_object_get(first, sharegpt ? s->field.from : s->field.role));
    const char *role = name ? role_of(s, name) : NULL;
    return role && strcmp(role, "system") == 0;
}

af_status af_turns_take(af_conversation *out, const af_data_source *s, const json_t *turns,
                        const char *field, bool sharegpt, const af_source_loc *p, af_error *err)
{
    const char *text = json_string_value(turns);
    if (text && strncmp(text, "[{'", 3) == 0)
        return af_source_loc_fail(p, err,
                                  "field \"%s\" is a list as Python prints it, not JSON; write it "
                                  "with json.dumps",
                                  field);
    if (!json_is_array(turns))
        return af_source_loc_fail(p, err, "field \"%s\" should be a list, got %s", field,
                                  af_type_words(turns));
    if (!out->messages && !(out->messages = json_array()))
        return af_fail_nomem(err, "a conversation", 0);
    out->kind = AF_CONVERSATION_CHAT;
    if (json_array_size(turns) == 0)
        return af_source_loc_fail(p, err, "the conversation has no messages (\"%s\" is empty)",
                                  field);
    for (size_t i = 0; i < json_array_size(turns); i++) {
        if (i == 0 && s->drop_system && is_system_turn(s, json_array_get(turns, 0), sharegpt))
            continue;
        turn t = {.s = s,
                  .p = p,
                  .number = i + 1,
                  .role_key = sharegpt ? s->field.from : s->field.role,
                  .content_key = sharegpt ? s->field.value : s->field.content,
                  .json = json_array_get(turns, i),
                  .err = err};
        const af_status st = take_turn(out, &t);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}
