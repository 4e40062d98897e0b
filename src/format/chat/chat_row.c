/* chat_row.c - one JSON object in, one rendering out: what `afinar template` does with a line. */
#include "format/chat/chat_template.h"

#include "format/text/json_text.h"
#include "format/text/unicode.h"

static af_status row_options(af_render_opts *o, const json_t *row, af_error *err)
{
    static const struct {
        const char *key;
        json_type type, other;
    } kinds[] = {
        {"messages", JSON_ARRAY, JSON_ARRAY}, {"tools", JSON_ARRAY, JSON_NULL},
        {"documents", JSON_ARRAY, JSON_NULL}, {"extra", JSON_OBJECT, JSON_NULL},
        {"now", JSON_STRING, JSON_NULL},      {"add_generation_prompt", JSON_TRUE, JSON_FALSE},
        {"raw", JSON_TRUE, JSON_FALSE},       {"continue_final_message", JSON_TRUE, JSON_FALSE},
    };
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        const json_t *v = json_object_get(row, kinds[i].key);
        if (v && json_typeof(v) != kinds[i].type && json_typeof(v) != kinds[i].other)
            return af_fail(err, AF_EFORMAT, "'%s' of the row has the wrong type", kinds[i].key);
    }
    json_t *tools = json_object_get(row, "tools"), *docs = json_object_get(row, "documents");
    json_t *extra = json_object_get(row, "extra");
    *o = (af_render_opts){
        .messages = json_object_get(row, "messages"),
        .tools = json_is_null(tools) ? NULL : tools,
        .documents = json_is_null(docs) ? NULL : docs,
        .extra = json_is_null(extra) ? NULL : extra,
        .now = json_string_value(json_object_get(row, "now")),
        .add_generation_prompt = json_is_true(json_object_get(row, "add_generation_prompt")),
        .continue_final_message = json_is_true(json_object_get(row, "continue_final_message")),
        .raw = json_is_true(json_object_get(row, "raw")),
    };
    if (!o->raw && !o->messages)
        return af_fail(err, AF_EFORMAT, "the row has no 'messages'");
    if (!o->raw && o->continue_final_message && o->add_generation_prompt) /* as transformers says */
        return af_fail(err, AF_EUSAGE,
                       "continue_final_message and add_generation_prompt are not compatible. Use "
                       "continue_final_message when you want the model to continue the final "
                       "message, and add_generation_prompt when you want to add a header that will "
                       "prompt it to start a new assistant message instead.");
    return AF_OK;
}

af_status af_template_render_row(const af_template *t, const char *row, uint64_t row_len,
                                 char **text, uint64_t *len, af_spans *generation, af_error *err)
{
    AF_NEED(err, row || !row_len, text, len);
    af_status st = AF_OK;
    af_template *own = NULL;
    af_render_opts o;
    json_error_t why;
    json_t *json = af_json_load(row, row_len, JSON_ALLOW_NUL, &why);

    if (!json_is_object(json)) {
        st = json ? af_fail(err, AF_EFORMAT, "the row is not a JSON object")
                  : af_fail(err, AF_EFORMAT, "the row is not JSON: %s", why.text);
        goto done;
    }
    AF_TRY(row_options(&o, json, err));
    if (!t) {
        const json_t *source = json_object_get(json, "template");
        if (!json_is_string(source)) {
            st = af_fail(err, AF_EFORMAT, "the row has no 'template'");
            goto done;
        }
        AF_TRY(af_template_parse(&own, json_string_value(source), json_string_length(source), err));
    }
    AF_TRY(af_template_render(t ? t : own, text, len, &o, generation, err));
done:
    af_template_close(own);
    json_decref(json);
    return st;
}

af_status af_template_answer_row(const af_template *t, const char *row, uint64_t row_len,
                                 char **json, af_error *err)
{
    AF_NEED(err, row || !row_len, json);
    af_error why = {0};
    char *text = NULL;
    uint64_t len = 0;
    const af_status st = af_template_render_row(t, row, row_len, &text, &len, NULL, &why);
    if (st == AF_ENOMEM) /* not the row's fault */
        return af_fail(err, st, "%s", why.msg);
    const bool ok = st == AF_OK;
    if (!ok) { /* a long message may have been cut inside a character */
        len = strlen(why.msg);
        while (len && af_utf8_valid(why.msg, len) != len)
            len--;
    }
    json_t *value = json_stringn(ok ? text : why.msg, len);
    json_t *answer = json_pack("{s:o}", ok ? "text" : "error", value);
    *json = answer ? af_json_dump(answer, 0) : NULL;
    json_decref(answer);
    free(text);
    return *json ? AF_OK : af_fail_nomem(err, "a rendering", len);
}
