/* chat_template.c - what transformers' apply_chat_template does around a template.
 *
 * Not here: the interpreter (jinja_*.c) and finding a model's template (chat_template_open.c). */
#define _GNU_SOURCE /* memmem, localtime_r */
#include "format/chat/chat_template.h"

#include "format/jinja/jinja_ast.h"

#include <time.h>

#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG "

void af_spans_clear(af_spans *s)
{
    if (!s)
        return;
    free(s->item);
    *s = (af_spans){0};
}

void af_template_close(af_template *t)
{
    if (!t)
        return;
    af_template_close(t->with_tools);
    json_decref(t->tokens);
    af_arena_clear(&t->mem);
    free(t->source);
    free(t);
}

const char *af_template_source(const af_template *t, uint64_t *len)
{
    if (len)
        *len = t ? t->source_len : 0;
    return t ? t->source : NULL;
}

const af_template *af_template_for(const af_template *t, bool tools)
{
    return tools && t && t->with_tools ? t->with_tools : t;
}

bool af_template_marks_generation(const af_template *t) { return t && t->marks_generation; }

af_status af_template_set_tokens(af_template *t, const af_tokenizer *k, af_error *err)
{
    const char *const text[] = {af_tokenizer_bos_text(k), af_tokenizer_eos_text(k),
                                af_tokenizer_pad_text(k), af_tokenizer_unk_text(k)};
    static const char *const name[] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    if (json_object_size(t->tokens) > 0)
        return AF_OK;
    json_decref(t->tokens);
    t->tokens = json_object();
    for (size_t i = 0; t->tokens && i < AF_LEN(text); i++)
        if (text[i])
            json_object_set_new(t->tokens, name[i], json_string(text[i]));
    return t->tokens ? AF_OK : af_fail_nomem(err, "the chat template", 0);
}

static bool name_byte(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool af_template_mentions(const af_template *t, const char *name)
{
    if (!t || !name)
        return false;
    const size_t n = strlen(name);
    const char *end = t->source + t->source_len;
    for (const char *p = t->source; n && (size_t)(end - p) >= n; p++)
        if (!memcmp(p, name, n) && (p == t->source || !name_byte(p[-1])) &&
            (p + n == end || !name_byte(p[n])))
            return true;
    return t->with_tools && af_template_mentions(t->with_tools, name);
}

/* --- JSON to values ------------------------------------------------------------------------- */

static af_jval from_json(af_jinja *j, const json_t *v)
{
    af_jval out = af_jnone();
    if (!v || !af_jenter(j))
        return out;
    switch (json_typeof(v)) {
    case JSON_OBJECT: {
        af_jdict *d = af_jdict_new(j, (int64_t)json_object_size(v));
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)v, key, value)
        {
            const af_jval k = af_jstr_new(j, key, strlen(key));
            const af_jval item = from_json(j, value);
            if (!j->failed)
                af_jdict_set(j, d, k, item);
        }
        out = af_jdict_v(d);
        break;
    }
    case JSON_ARRAY: {
        af_jlist *l = af_jlist_new(j, (int64_t)json_array_size(v));
        for (size_t i = 0; i < json_array_size(v) && !j->failed; i++)
            af_jlist_add(j, l, from_json(j, json_array_get(v, i)));
        out = af_jlist_v(l);
        break;
    }
    case JSON_STRING:
        out = af_jstr_new(j, json_string_value(v), json_string_length(v));
        break;
    case JSON_INTEGER:
        out = af_jint(json_integer_value(v));
        break;
    case JSON_REAL:
        out = af_jfloat(json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        out = af_jbool(json_is_true(v));
        break;
    case JSON_NULL:
        break;
    }
    af_jleave(j);
    return out;
}

static void pass_object(af_jinja *j, const json_t *o)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)o, key, value)
    {
        const af_jval k = af_jstr_new(j, key, strlen(key));
        const af_jval v = from_json(j, value);
        if (!j->failed)
            af_jdict_set(j, j->vars, k, v);
    }
}

/* --- messages -------------------------------------------------------------------------------- */

/* The reasoning under its standard name, and under `thinking` for templates that read that. */
static af_jval alias_reasoning(af_jinja *j, af_jval message)
{
    static const char *const fields[] = {"reasoning_content", "thinking", "reasoning"};
    const af_jval *reasoning = NULL;
    for (size_t i = 0; i < AF_LEN(fields) && !reasoning; i++) {
        reasoning = af_jdict_find(j, message.d, fields[i]);
        reasoning = reasoning && reasoning->kind != AF_JKIND_NONE ? reasoning : NULL;
    }
    if (!reasoning)
        return message;
    const af_jval r = *reasoning;
    af_jdict *d = af_jdict_new(j, message.d->n + 2);
    af_jdict_set(j, d, af_jstr_lit(j, "thinking"), r);
    for (int64_t i = 0; i < message.d->n && !j->failed; i++)
        af_jdict_set(j, d, message.d->pair[i].key, message.d->pair[i].val);
    af_jdict_set(j, d, af_jstr_lit(j, "reasoning_content"), r);
    return af_jdict_v(d);
}

/* Passes the calls of a message, whose value is ours, as the template reads them. */
static void set_calls(af_jinja *j, af_jdict *message, unsigned form)
{
    const af_jval *calls = af_jdict_find(j, message, "tool_calls");
    if (!calls || calls->kind != AF_JKIND_LIST || calls->l->n == 0)
        return;
    const af_jlist *l = calls->l;
    af_jval *content = af_jdict_find(j, message, "content");
    if (form & AF_FORM_CALL_NULL && content && content->kind == AF_JKIND_STR && content->s->n == 0)
        *content = af_jnone();
    for (int64_t i = 0; form & AF_FORM_CALL_TEXT && i < l->n && !j->failed; i++) {
        const af_jval call = l->item[i];
        const af_jval *f = call.kind == AF_JKIND_DICT ? af_jdict_find(j, call.d, "function") : NULL;
        af_jval *arguments = f && f->kind == AF_JKIND_DICT ? af_jdict_find(j, f->d, "arguments")
                             : call.kind == AF_JKIND_DICT  ? af_jdict_find(j, call.d, "arguments")
                                                           : NULL;
        if (arguments && arguments->kind != AF_JKIND_STR)
            *arguments = af_jdumps(j, *arguments);
    }
}

/* The text of a part; NULL: it is something else. */
static const af_jstr *part_text(af_jinja *j, af_jval part)
{
    const af_jval *text = part.kind == AF_JKIND_DICT ? af_jdict_find(j, part.d, "text") : &part;
    return text && text->kind == AF_JKIND_STR ? text->s : NULL;
}

/* Parts of text become one. */
static void join_content(af_jinja *j, af_jval *content, size_t number)
{
    af_buf b = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    if (content->kind != AF_JKIND_LIST)
        return;
    for (int64_t i = 0; i < content->l->n && !j->failed; i++) {
        const af_jstr *text = part_text(j, content->l->item[i]);
        if (!text)
            af_jfail(j, "a part of message %zu is not text, and the template shows only that",
                     number);
        if (i)
            af_buf_char(&b, '\n');
        if (text)
            af_buf_add(&b, text->p, text->n);
    }
    *content = af_jstr_take(j, &b);
}

/* A text becomes a list of one part. */
static void split_content(af_jinja *j, af_jval *content)
{
    if (content->kind != AF_JKIND_STR)
        return;
    af_jdict *part = af_jdict_new(j, 2);
    af_jlist *l = af_jlist_new(j, 1);
    af_jdict_set(j, part, af_jstr_lit(j, "type"), af_jstr_lit(j, "text"));
    af_jdict_set(j, part, af_jstr_lit(j, "text"), *content);
    af_jlist_add(j, l, af_jdict_v(part));
    *content = af_jlist_v(l);
}

/* Passes a message, whose value is ours, as the template reads it. */
static void set_form(af_jinja *j, af_jdict *message, unsigned form, size_t number)
{
    af_jval *content = af_jdict_find(j, message, "content");
    if (content && form & AF_FORM_CONTENT_TEXT)
        join_content(j, content, number);
    if (content && form & AF_FORM_CONTENT_PARTS)
        split_content(j, content);
    if (!j->failed)
        set_calls(j, message, form);
}

static af_jval messages_value(af_jinja *j, const json_t *messages, unsigned form)
{
    if (!json_is_array(messages))
        return af_jfail(j, "messages is not a list");
    af_jlist *out = af_jlist_new(j, (int64_t)json_array_size(messages));
    for (size_t i = 0; i < json_array_size(messages) && !j->failed; i++) {
        const json_t *m = json_array_get(messages, i);
        if (!json_is_object(m)) {
            af_jfail(j, "message %zu is not an object", i);
            break;
        }
        const af_jval v = from_json(j, m);
        if (form && !j->failed)
            set_form(j, v.d, form, i + 1);
        if (!j->failed)
            af_jlist_add(j, out, alias_reasoning(j, v));
    }
    return af_jlist_v(out);
}

static af_jval objects_value(af_jinja *j, const json_t *list, const char *what)
{
    if (!list || json_is_null(list))
        return af_jnone();
    if (!json_is_array(list))
        return af_jfail(j, "%s is not a list", what);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_object(json_array_get(list, i)))
            return af_jfail(j, "item %zu of %s is not an object", i, what);
    return from_json(j, list);
}

/* --- continuing the last message ---------------------------------------------------------------
 */

static af_jval tagged(af_jinja *j, af_jval text)
{
    return af_jbinary(j, '+', text, af_jstr_lit(j, CONTINUE_TAG));
}

/* Puts the tag after the text to continue; that text is returned in *text. */
static void tag_last(af_jinja *j, af_jlist *messages, af_jval *text)
{
    if (messages->n == 0) {
        af_jfail(j, "continue_final_message is set but there is no message");
        return;
    }
    const af_jdict *last = messages->item[messages->n - 1].d;
    af_jval *content = af_jdict_find(j, last, "content");
    if (!content || content->kind == AF_JKIND_NONE)
        af_jfail(j, "continue_final_message is set but the final message has no \"content\" to "
                    "continue!");
    else if (!memmem(j->t->source, j->t->source_len, "content", 7))
        af_jfail(j, "continue_final_message is set to \"content\" but this is not an accepted "
                    "field in the chat_template");
    if (j->failed)
        return;
    if (content->kind != AF_JKIND_LIST) {
        *text = *content;
        *content = tagged(j, *content);
        return;
    }
    for (int64_t i = content->l->n; i-- > 0;) {
        const af_jval block = content->l->item[i];
        af_jval *part = block.kind == AF_JKIND_DICT ? af_jdict_find(j, block.d, "text") : NULL;
        if (part) {
            *text = *part;
            *part = tagged(j, *part);
            return;
        }
    }
    af_jfail(j, "continue_final_message is set but we could not find any text to continue in the "
                "final message!");
}

/* Cuts the rendering at the last tag. */
static void cut_at_tag(af_jinja *j, af_jval text)
{
    const uint64_t n = strlen(CONTINUE_TAG) - 1; /* without its blank */
    const af_jstr *wanted = af_jstrip(j, text, NULL, 'b').s;
    af_buf *b = j->root;
    const char *data = b->len ? b->data : "";
    const char *tag = NULL;
    for (const char *p = data; (p = memmem(p, b->len - (uint64_t)(p - data), CONTINUE_TAG, n)); p++)
        tag = p;
    if (!tag || (wanted->n && !memmem(data, b->len, wanted->p, wanted->n))) {
        af_jfail(j, "continue_final_message is set but the final message does not appear in the "
                    "chat after applying the chat template");
        return;
    }
    uint64_t len = (uint64_t)(tag - data);
    if (tag[n] != ' ') { /* the template trimmed the message */
        const af_jval head = af_jstr_new(j, data, len);
        len = j->failed ? len : af_jstrip(j, head, NULL, 'r').s->n;
    }
    b->len = len;
    b->data[len] = 0;
}

/* --- rendering
 * ------------------------------------------------------------------------------------ */

static bool set_now(struct tm *out, const char *now)
{
    struct tm t = {0};
    if (!now) {
        const time_t seconds = time(NULL);
        return localtime_r(&seconds, out) != NULL;
    }
    const int got = sscanf(now, "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d", &t.tm_year, &t.tm_mon, &t.tm_mday,
                           &t.tm_hour, &t.tm_min, &t.tm_sec);
    if ((got != 3 && got != 5 && got != 6) || t.tm_year < 1 || t.tm_mon < 1 || t.tm_mon > 12 ||
        t.tm_mday < 1 || t.tm_mday > 31 || t.tm_hour < 0 || t.tm_hour > 23 || t.tm_min < 0 ||
        t.tm_min > 59 || t.tm_sec < 0 || t.tm_sec > 59)
        return false;
    t.tm_year -= 1900;
    t.tm_mon--;
    *out = t;
    return true;
}

static void render(af_jinja *j, const af_render_opts *o)
{
    af_jval text = af_jnone();
    j->vars = af_jdict_new(j, 16);
    if (j->t->tokens && !o->raw)
        pass_object(j, j->t->tokens);
    if (!o->raw) {
        const af_jval messages = messages_value(j, o->messages, o->form);
        if (o->continue_final_message && !j->failed)
            tag_last(j, messages.l, &text);
        const af_jval tools = objects_value(j, o->tools, "tools");
        const af_jval documents = objects_value(j, o->documents, "documents");
        if (j->failed)
            return;
        af_jdict_set(j, j->vars, af_jstr_lit(j, "messages"), messages);
        af_jdict_set(j, j->vars, af_jstr_lit(j, "tools"), tools);
        af_jdict_set(j, j->vars, af_jstr_lit(j, "documents"), documents);
        af_jdict_set(j, j->vars, af_jstr_lit(j, "add_generation_prompt"),
                     af_jbool(o->add_generation_prompt));
    }
    if (o->extra)
        pass_object(j, o->extra);
    if (!j->failed)
        af_jrun(j);
    if (!j->failed && o->continue_final_message && !o->raw)
        cut_at_tag(j, text);
}

static af_status take_spans(af_spans *out, af_buf *spans, uint64_t len, af_error *err)
{
    af_spans s = {.count = spans->len / sizeof(af_span)};
    if (spans->bad || (s.count && !(s.item = af_calloc(s.count, sizeof *s.item))))
        return af_fail_nomem(err, "the spans of a rendering", spans->len);
    if (s.count)
        memcpy(s.item, spans->data, s.count * sizeof *s.item);
    for (uint64_t i = 0; i < s.count; i++) { /* what was cut off has no span */
        s.item[i].begin = AF_MIN(s.item[i].begin, len);
        s.item[i].end = AF_MIN(s.item[i].end, len);
    }
    *out = s;
    return AF_OK;
}

af_status af_template_render(const af_template *t, char **text, uint64_t *len,
                             const af_render_opts *o, af_spans *generation, af_error *err)
{
    af_status st = AF_OK;
    af_error local = {0};
    af_buf out = {.limit = AF_TEMPLATE_OUTPUT_MAX};
    af_jinja j = {
        .t = af_template_for(t, o->tools && !o->raw), .err = &local, .root = &out, .line = 1};
    j.mem.limit = AF_TEMPLATE_MEMORY_MAX;
    j.no_str = (af_jstr){.p = "", .hash = 1};

    if (!set_now(&j.now, o->now)) {
        st = af_fail(err, AF_EUSAGE, "'%s' is not a time like 2025-03-14T09:26:53",
                     o->now ? o->now : "now");
        goto done;
    }
    render(&j, o);
    if (o->steps)
        *o->steps += j.steps;
    if (j.failed) {
        st = af_fail(err, local.code, "%s", local.msg);
        goto done;
    }
    if (generation)
        AF_TRY(take_spans(generation, &j.spans, out.len, err));
    af_buf_str(&out, ""); /* an empty rendering is a string too */
    *len = out.len;
    *text = af_buf_take(&out);
    if (!*text)
        st = af_fail_nomem(err, "a rendering", out.len);
done:
    af_buf_clear(&j.spans);
    af_buf_clear(&out);
    af_arena_clear(&j.mem);
    return st;
}

#define PROBE "afinarprobe"

/* *text is NULL where the template refuses the messages. */
static af_status probe_text(const af_template *t, json_t *messages, unsigned form, char **text,
                            uint64_t *len, af_error *err)
{
    const af_render_opts o = {.messages = messages, .form = form, .now = "2025-03-14T09:26:53"};
    af_error why = {0};
    *text = NULL;
    if (!messages)
        return af_fail_nomem(err, "a probe of the chat template", 0);
    const af_status st = af_template_render(t, text, len, &o, NULL, &why);
    return st == AF_ENOMEM ? af_fail(err, st, "%s", why.msg) : AF_OK;
}

static bool has_probe(const char *text, uint64_t len)
{
    return text && memmem(text, len, PROBE, strlen(PROBE));
}

static af_status call_form(const af_template *t, unsigned *out, af_error *err)
{
    static const unsigned forms[] = {0, AF_FORM_CALL_NULL, AF_FORM_CALL_TEXT,
                                     AF_FORM_CALL_TEXT | AF_FORM_CALL_NULL};
    json_t *m =
        json_pack("[{s:s,s:s},{s:s,s:s,s:[{s:s,s:s,s:{s:s,s:{s:s}}}]}]", "role", "user", "content",
                  "a", "role", "assistant", "content", "", "tool_calls", "id", "probe0001", "type",
                  "function", "function", "name", "probe", "arguments", "a", PROBE);
    af_status st = AF_OK;
    bool shown = !af_template_mentions(t, "tool_calls");
    for (size_t i = 0; i < AF_LEN(forms) && !shown && st == AF_OK; i++) {
        char *text = NULL;
        uint64_t len = 0;
        st = probe_text(t, m, forms[i], &text, &len, err);
        shown = has_probe(text, len);
        *out |= shown ? forms[i] : 0;
        free(text);
    }
    json_decref(m);
    return st;
}

/* Whether two texts are the same without their blanks: templates trim parts. */
static bool same_words(const char *a, const char *b)
{
    static const char blanks[] = " \t\r\n";
    for (;; a++, b++) {
        a += strspn(a, blanks);
        b += strspn(b, blanks);
        if (*a != *b || !*a)
            return *a == *b;
    }
}

/* Contents are shown as texts and parts alike (0), or as one of them alone. */
static af_status content_form(const af_template *t, bool system, unsigned *out, af_error *err)
{
    json_t *m =
        json_pack("[{s:s,s:[{s:s,s:s}]},{s:s,s:[{s:s,s:s}]},{s:s,s:[{s:s,s:s}]}]", "role", "system",
                  "content", "type", "text", "text", "s", "role", "user", "content", "type", "text",
                  "text", PROBE, "role", "assistant", "content", "type", "text", "text", "b");
    af_status st = AF_OK;
    char *text = NULL, *parts = NULL;
    uint64_t text_len = 0, parts_len = 0;
    if (!system)
        json_array_remove(m, 0);
    AF_TRY(probe_text(t, m, AF_FORM_CONTENT_TEXT, &text, &text_len, err));
    AF_TRY(probe_text(t, m, 0, &parts, &parts_len, err));
    if (has_probe(text, text_len) && !(parts && same_words(text, parts)))
        *out |= AF_FORM_CONTENT_TEXT;
    else if (has_probe(parts, parts_len) && !has_probe(text, text_len))
        *out |= AF_FORM_CONTENT_PARTS;
done:
    free(text);
    free(parts);
    json_decref(m);
    return st;
}

af_status af_template_form(const af_template *t, unsigned *form, af_error *err)
{
    unsigned f = 0;
    af_status st = AF_OK;
    AF_TRY(content_form(t, true, &f, err));
    if (!f) /* a template may refuse the role system */
        AF_TRY(content_form(t, false, &f, err));
    AF_TRY(call_form(af_template_for(t, true), &f, err));
    *form = f;
done:
    return st;
}
