/* self_cognition.c - ms-swift's records about the model itself: {"query", "response", "tag"}, where
 * {{NAME}} and {{AUTHOR}} stand for what `model_name` and `model_author` say in the language of the
 * tag. */
#include "data/shape/data_entry.h"
#include "data/shape/shape.h"

#include "base/buf.h"

bool af_self_cognition_set(af_data_source *s, const char *type)
{
    static const char *const forms[] = {[AF_COGNITION_PLAIN] = "self_cognition",
                                        [AF_COGNITION_QWEN3] = "self_cognition:qwen3",
                                        [AF_COGNITION_EMPTY_THINK] = "self_cognition:empty_think"};
    for (int i = AF_COGNITION_PLAIN; i < (int)AF_LEN(forms); i++)
        if (strcmp(forms[i], type) == 0)
            s->cognition = (af_cognition)i;
    s->field.instruction = "query";
    s->field.output = "response";
    return s->cognition != AF_COGNITION_NONE;
}

af_status af_self_cognition_who(const af_data_entry *p, const char *key, const char **who,
                                const af_yaml *n)
{
    char at[300];
    const bool list = n->kind == AF_YAML_LIST && (n->count == 1 || n->count == 2);
    for (int i = 0; i < 2 && (list || n->kind == AF_YAML_SCALAR); i++) {
        const af_yaml *v = list ? n->item[i < n->count ? i : 0] : n;
        who[i] = v->kind == AF_YAML_SCALAR ? v->text : NULL;
    }
    return who[0] && who[1] ? AF_OK
                            : af_fail(p->err, AF_EUSAGE,
                                      "%s: %s of a dataset must be a name, or a list of two: in "
                                      "Chinese and in English",
                                      af_data_source_loc(at, p->o->run_path, n->line), key);
}

/* The text with `name` for each `mark`; *lacks: it has the mark, but no name is given. */
static void replace(af_buf *b, const char *text, const char *mark, const char *name, bool *lacks)
{
    const size_t n = strlen(mark);
    for (const char *at; (at = strstr(text, mark)); text = at + n) {
        af_buf_printf(b, "%.*s%s", (int)(at - text), text, name ? name : "");
        *lacks |= !name;
    }
    af_buf_printf(b, "%s", text);
}

static af_status fill(json_t *record, const af_data_source *s, bool chinese, const char *field,
                      const char *before, const char *after, const af_source_loc *p, af_error *err)
{
    const char *const names[] = {s->model_name[!chinese], s->model_author[!chinese]};
    static const char *const marks[] = {"{{NAME}}", "{{AUTHOR}}"}, *const keys[] = {"model_name",
                                                                                    "model_author"};
    const json_t *old;
    af_buf b = {0}, next = {0};
    af_status st = af_field_string(&old, s, record, field, p, err);
    if (st == AF_OK && strlen(json_string_value(old)) != json_string_length(old))
        st = af_source_loc_fail(p, err, "field \"%s\" has a zero byte", field);
    if (st != AF_OK)
        return st;
    af_buf_printf(&b, "%s%s%s", before, json_string_value(old), after);
    for (size_t i = 0; i < AF_LEN(marks) && st == AF_OK && !b.bad; i++) {
        bool lacks = false;
        replace(&next, b.data, marks[i], names[i], &lacks);
        if (lacks)
            st = af_source_loc_fail(p, err, "the record has %s, but '%s' is not set", marks[i],
                                    keys[i]);
        af_buf_clear(&b);
        b = next;
        next = (af_buf){0};
    }
    if (st == AF_OK && (b.bad || json_object_set_new(record, field, json_string(b.data))))
        st = af_fail_nomem(err, "a record", 0);
    af_buf_clear(&b);
    return st;
}

af_status af_self_cognition_fill(json_t **out, const af_data_source *s, const json_t *record,
                                 const af_source_loc *p, af_error *err)
{
    static const char thought[] = "<think>\n\n</think>\n\n";
    af_status st = AF_OK;
    const json_t *tag;
    json_t *r = json_copy((json_t *)record);
    if (!r)
        return af_fail_nomem(err, "a record", 0);
    AF_TRY(af_field_string(&tag, s, record, AF_COGNITION_TAG, p, err));
    const bool chinese = strcmp(json_string_value(tag), "zh") == 0;
    AF_TRY(fill(r, s, chinese, s->field.instruction, "",
                s->cognition == AF_COGNITION_QWEN3 ? " /no_think" : "", p, err));
    AF_TRY(fill(r, s, chinese, s->field.output, s->cognition == AF_COGNITION_PLAIN ? "" : thought,
                "", p, err));
    *out = r;
    r = NULL;
done:
    json_decref(r);
    return st;
}
