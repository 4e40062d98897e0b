/* shape_plain.c - records without turns: text, segments, token ids. */
#include "data/shape/shape.h"

af_status af_segments_item(af_item *out, const af_data_source *s, const json_t *record,
                           const af_source_loc *p, af_error *err)
{
    const json_t *list;
    bool any = false;
    const af_status st = af_field_need(&list, s, record, s->field.segments, p, err);
    if (st != AF_OK)
        return st;
    if (!json_is_array(list))
        return af_field_wrong_type(s->field.segments, list, "a list", p, err);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *g = json_array_get(list, i);
        const json_t *label = json_object_get(g, "label"), *text = json_object_get(g, "text");
        if (!json_is_object(g))
            return af_source_loc_fail(p, err, "segment %zu should be an object, got %s", i + 1,
                                      af_type_words(g));
        if (!json_is_boolean(label))
            return af_source_loc_fail(p, err,
                                      "segment %zu: \"label\" should be true or false, got %s",
                                      i + 1, af_type_words(label));
        if (!json_is_string(text))
            return af_source_loc_fail(p, err, "segment %zu: \"text\" should be a string, got %s",
                                      i + 1, af_type_words(text));
        any = any || json_is_true(label);
    }
    if (!any) {
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_NOTHING,
                       "no segment has \"label\": true, nothing to learn; record skipped");
        return AF_OK;
    }
    out->conversation[0] = (af_conversation){.kind = AF_CONVERSATION_SEGMENTS, .segments = list};
    out->conversations = 1;
    return AF_OK;
}

af_status af_plain_text_item(af_item *out, const af_data_source *s, const json_t *record,
                             const af_source_loc *p, af_error *err)
{
    const json_t *text;
    const af_status st = af_field_string(&text, s, record, s->field.text, p, err);
    if (st != AF_OK)
        return st;
    if (json_string_length(text) == 0) {
        p->warnings->counts.empty_answers++;
        p->warnings->counts.nothing_to_learn++;
        af_record_warn(p, AF_WARNING_NOTHING, "field \"%s\" is empty; record skipped",
                       s->field.text);
        return AF_OK;
    }
    out->conversation[0] = (af_conversation){.kind = AF_CONVERSATION_PLAIN, .completion = text};
    out->conversations = 1;
    return AF_OK;
}

af_status af_tokens_item(af_item *out, const af_data_source *s, const json_t *record,
                         const af_source_loc *p, af_error *err)
{
    const json_t *ids, *labels = json_object_get(record, s->field.labels);
    const af_status st = af_field_need(&ids, s, record, s->field.input_ids, p, err);
    if (st != AF_OK)
        return st;
    if (!json_is_array(ids))
        return af_field_wrong_type(s->field.input_ids, ids, "a list", p, err);
    if (labels && !json_is_array(labels))
        return af_field_wrong_type(s->field.labels, labels, "a list", p, err);
    if (labels && json_array_size(labels) != json_array_size(ids))
        return af_source_loc_fail(p, err, "%zu labels for %zu input_ids", json_array_size(labels),
                                  json_array_size(ids));
    out->conversation[0] =
        (af_conversation){.kind = AF_CONVERSATION_TOKENS, .ids = ids, .labels = labels};
    out->conversations = 1;
    return AF_OK;
}
