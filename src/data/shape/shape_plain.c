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

/* A mask of token ids, or NULL where the record has none. */
static af_status mask_of(const json_t **out, const json_t *record, const char *name,
                         const json_t *ids, const af_source_loc *p, af_error *err)
{
    const json_t *mask = json_object_get(record, name);
    *out = NULL;
    if (!mask || json_is_null(mask))
        return AF_OK;
    if (!json_is_array(mask))
        return af_field_wrong_type(name, mask, "a list", p, err);
    if (json_array_size(mask) != json_array_size(ids))
        return af_source_loc_fail(p, err, "\"%s\" has %zu values for %zu input_ids", name,
                                  json_array_size(mask), json_array_size(ids));
    for (size_t i = 0; i < json_array_size(mask); i++) {
        const json_t *bit = json_array_get(mask, i);
        const bool known = json_is_boolean(bit) ||
                           (json_is_integer(bit) && (uint64_t)json_integer_value(bit) <= 1);
        if (!known)
            return af_source_loc_fail(p, err, "%s[%zu] should be 0 or 1, got %s", name, i,
                                      json_is_integer(bit) ? "another number" : af_type_words(bit));
    }
    *out = mask;
    return AF_OK;
}

/* Several sequences in one record would be trained as one. */
static af_status refuse_packed(const json_t *record, const json_t *ids, const af_source_loc *p,
                               af_error *err)
{
    const json_t *at = json_object_get(record, AF_POSITION_IDS);
    const json_t *lengths = json_object_get(record, AF_SEQ_LENGTHS);
    const char *field = json_array_size(lengths) > 1 ? AF_SEQ_LENGTHS : NULL;
    for (size_t i = 1; i < json_array_size(at) && i < json_array_size(ids); i++)
        if (json_integer_value(json_array_get(at, i)) == 0 && /* 0 once more is padding in front */
            json_integer_value(json_array_get(at, i - 1)) != 0)
            field = AF_POSITION_IDS;
    return field ? af_source_loc_fail(p, err,
                                      "\"%s\": the record is packed from several sequences; write "
                                      "each as a record (sample_packing packs them)",
                                      field)
                 : AF_OK;
}

af_status af_tokens_item(af_item *out, const af_data_source *s, const json_t *record,
                         const af_source_loc *p, af_error *err)
{
    const json_t *ids, *labels = json_object_get(record, s->field.labels);
    const char *const names[] = {AF_ANSWER_MASK, AF_COMPLETION_MASK, AF_LOSS_MASK};
    const json_t *mask[AF_LEN(names)] = {NULL}, *seen = NULL;
    af_status st = af_field_need(&ids, s, record, s->field.input_ids, p, err);
    if (st != AF_OK)
        return st;
    if (!json_is_array(ids))
        return af_field_wrong_type(s->field.input_ids, ids, "a list", p, err);
    if (labels && !json_is_array(labels))
        return af_field_wrong_type(s->field.labels, labels, "a list", p, err);
    if (labels && json_array_size(labels) != json_array_size(ids))
        return af_source_loc_fail(p, err, "%zu labels for %zu input_ids", json_array_size(labels),
                                  json_array_size(ids));
    for (size_t i = 0; !labels && i < AF_LEN(names); i++)
        AF_TRY(mask_of(&mask[i], record, names[i], ids, p, err));
    AF_TRY(mask_of(&seen, record, AF_ATTENTION_MASK, ids, p, err));
    AF_TRY(refuse_packed(record, ids, p, err));
    out->conversation[0] = (af_conversation){.kind = AF_CONVERSATION_TOKENS,
                                             .ids = ids,
                                             .labels = labels,
                                             .mask = {mask[0], mask[1], mask[2]},
                                             .seen = seen};
    out->conversations = 1;
done:
    return st;
}
