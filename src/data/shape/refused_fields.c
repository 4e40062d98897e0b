/* refused_fields.c - fields that change what a record means and that are not trained on: images and
 * sound, weights, labels, and what a shape has no place for. Empty ones ask for nothing, and a
 * dataset may ignore them by name. */
#include "data/shape/shape.h"

#include "format/text/json_text.h"

#define WITHOUT_IMAGES                                                                             \
    "images, sound and video are not trained on; leave such records out, or train on their text "  \
    "alone with 'ignore_fields: [%.40s]'"

#define LABEL "label"

static const char *const media[] = {"images", "image", "videos",       "video",
                                    "audios", "audio", "pixel_values", NULL};
static const char *const weights[] = {"weight", "loss_weight", NULL};
static const char *const turns_of_record[] = {"system", "history", "tools", NULL};

static bool is_in(const char *const *list, const char *name)
{
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list != NULL;
}

/* Whether the dataset reads a field of this name as something of its shape. */
static bool is_named(const af_data_source *s, const char *name)
{
    const char *const *field = (const char *const *)&s->field;
    for (size_t i = 0; i < sizeof s->field / sizeof *field; i++)
        if (strcmp(field[i], name) == 0)
            return true;
    return false;
}

bool af_field_ignored(const af_data_source *s, const char *name)
{
    for (int i = 0; i < s->ignored_count; i++)
        if (strcmp(s->ignored[i], name) == 0)
            return true;
    return false;
}

void af_fields_drop_ignored(const af_data_source *s, json_t *object)
{
    for (int i = 0; i < s->ignored_count; i++)
        json_object_del(object, s->ignored[i]);
}

bool af_field_refusable(const af_data_source *s, const char *name)
{
    return is_in(media, name) || is_in(weights, name) || is_in(turns_of_record, name) ||
           strcmp(name, LABEL) == 0 || (s->listed && is_in(s->media, name));
}

/* Nothing, or lists and objects of nothing, as tables have them in rows without a value. */
static bool is_empty(const json_t *v)
{
    const char *key;
    json_t *member;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!is_empty(json_array_get(v, i)))
            return false;
    json_object_foreach((json_t *)v, key, member)
    {
        if (!is_empty(member))
            return false;
    }
    return !v || json_is_null(v) || json_is_false(v) || json_is_array(v) || json_is_object(v) ||
           (json_is_string(v) && json_string_length(v) == 0);
}

/* --- images and sound ------------------------------------------------------------------------ */

static af_status refuse_media(const af_data_source *s, const json_t *record, const af_source_loc *p,
                              af_error *err)
{
    const char *const *name = s->listed ? s->media : media;
    for (; *name; name++)
        if (!is_empty(json_object_get(record, *name)) && (s->listed || !is_named(s, *name)))
            return af_source_loc_fail(p, err, "field \"%.40s\": " WITHOUT_IMAGES, *name, *name);
    return AF_OK;
}

/* What a part of a content shows that is not text, or NULL. */
static const char *media_of(const json_t *part)
{
    static const char *const types[] = {"image",      "image_url",   "input_image", "video",
                                        "video_url",  "audio",       "audio_url",   "input_audio",
                                        "inlineData", "inline_data", "fileData",    "file",
                                        "input_file"};
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; i < AF_LEN(types); i++)
        if (type ? strcmp(type, types[i]) == 0 : !is_empty(json_object_get(part, types[i])))
            return types[i];
    return NULL;
}

af_status af_message_refuse_media(const af_data_source *s, const json_t *m, const json_t *content,
                                  size_t number, const af_source_loc *p, af_error *err)
{
    for (const char *const *name = media; *name; name++)
        if (!is_empty(json_object_get(m, *name)) && !is_named(s, *name))
            return af_source_loc_fail(p, err, "message %zu: \"%s\": " WITHOUT_IMAGES, number, *name,
                                      *name);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const char *type = media_of(json_array_get(content, i));
        if (type)
            return af_source_loc_fail(
                p, err,
                "message %zu: a part of type \"%s\": images, sound, video and "
                "files are not trained on; leave such records out",
                number, type);
    }
    return AF_OK;
}

/* --- weights and labels ---------------------------------------------------------------------- */

static bool is_text(const af_data_source *s)
{
    return s->shape == AF_SHAPE_TEXT || s->shape == AF_SHAPE_SEGMENTS;
}

static af_status refuse_weights(const af_data_source *s, const json_t *record,
                                const af_source_loc *p, af_error *err)
{
    for (const char *const *name = weights; *name; name++) {
        const json_t *v = json_object_get(record, *name);
        const bool other = is_text(s) && name == weights; /* of what a text is about */
        if (!json_is_number(v) || json_number_value(v) == 1 || other || is_named(s, *name))
            continue;
        return af_source_loc_fail(p, err,
                                  "field \"%s\" is %g: weights of records are not supported; leave "
                                  "records out or repeat them, or 'ignore_fields: [%s]'",
                                  *name, json_number_value(v), *name);
    }
    return AF_OK;
}

/* An answer that KTO would train to avoid. */
static af_status refuse_label(const af_data_source *s, const json_t *record, const af_source_loc *p,
                              af_error *err)
{
    const bool turns = s->shape == AF_SHAPE_MESSAGES || s->shape == AF_SHAPE_SHAREGPT;
    if (!turns || !json_is_false(json_object_get(record, LABEL)))
        return AF_OK;
    return af_source_loc_fail(
        p, err,
        "field \"" LABEL "\": false marks an answer to be avoided; train on "
        "such records with 'rl: kto', leave them out, or 'ignore_fields: [" LABEL "]'");
}

static bool is_preference(const af_data_source *s)
{
    return (s->shape == AF_SHAPE_PREFERENCE || s->shape == AF_SHAPE_KTO) && !s->form;
}

/* --- what a shape has no place for ------------------------------------------------------------ */

static bool begins_with_system(const json_t *turns)
{
    const char *role = json_string_value(json_object_get(json_array_get(turns, 0), "role"));
    return role && (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0);
}

/* Whether a fixed prompt shows a system text. */
static bool shows_system(const af_prompt *prompt)
{
    const char *const formats[] = {prompt->system, prompt->turn, prompt->said};
    for (size_t i = 0; i < AF_LEN(formats); i++)
        if (formats[i] && strstr(formats[i], "{system}"))
            return true;
    return false;
}

/* Whether records of the shape leave out a field of this kind. */
static bool has_no_place(const af_data_source *s, const json_t *record, const char *kind)
{
    const json_t *prompt = json_object_get(record, s->field.prompt);
    const json_t *chosen = json_object_get(record, s->field.chosen);
    const bool chat = json_is_array(prompt) || json_object_get(record, s->field.messages) ||
                      json_object_get(record, s->field.conversations) ||
                      (chosen && !json_is_string(chosen));
    const bool system = strcmp(kind, "system") == 0, tools = strcmp(kind, "tools") == 0;
    if (s->prompt)
        return system ? !shows_system(s->prompt) : !tools;
    if (s->shape == AF_SHAPE_PROMPT)
        return system ? !begins_with_system(prompt) : !tools || !json_is_array(prompt);
    if (is_preference(s)) /* a system text there is a warning */
        return !system && (!tools || !chat);
    return false;
}

static af_status refuse_turns(const af_data_source *s, const json_t *record, const af_source_loc *p,
                              af_error *err)
{
    const char *const names[] = {s->field.system, s->field.history, s->field.tools};
    const char *advice = s->prompt ? "'type: alpaca_w_system' shows a system text"
                                   : "'field_instruction: prompt, field_output: completion' reads "
                                     "such records as a chat";
    for (size_t i = 0; i < AF_LEN(names); i++) {
        const json_t *v = json_object_get(record, names[i]);
        const bool turns = i == 1 ? json_array_size(v) > 0 : i == 2 || json_is_string(v);
        if (is_empty(v) || !turns || !has_no_place(s, record, turns_of_record[i]))
            continue;
        if (is_preference(s))
            advice = "write the prompt and the answers as lists of messages";
        return af_source_loc_fail(p, err,
                                  "field \"%.40s\" has no place in a %s record of texts: %s; "
                                  "'ignore_fields: [%.40s]' leaves it out",
                                  names[i], af_shape_name(s->shape), advice, names[i]);
    }
    return AF_OK;
}

af_status af_record_refuse(const af_data_source *s, const json_t *record, const af_source_loc *p,
                           af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(refuse_media(s, record, p, err));
    if (s->listed) /* what dataset_info.json does not list is absent */
        return AF_OK;
    AF_TRY(refuse_weights(s, record, p, err));
    AF_TRY(refuse_label(s, record, p, err));
    AF_TRY(refuse_turns(s, record, p, err));
done:
    return st;
}
