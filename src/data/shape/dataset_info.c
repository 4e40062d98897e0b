/* dataset_info.c - a dataset by its name in LLaMA-Factory's dataset_info.json. */
#include "base/file.h"
#include "base/word.h"
#include "data/shape/data_source.h"
#include "format/text/json_text.h"

#define INFO "dataset_info.json"

typedef struct info_entry {
    const char *file, *name; /* of the info file, of the dataset */
    const json_t *json;
    af_arena *mem;
    af_error *err;
} info_entry;

static af_status wrong(const info_entry *e, const char *why)
{
    return af_fail(e->err, AF_EUSAGE, "%s: dataset '%s' %s", e->file, e->name, why);
}

/* A string of an object that outlives it; NULL when it has none. *bad: no memory. */
static const char *text_of(const info_entry *e, const json_t *o, const char *key, bool *bad)
{
    const char *v = json_string_value(json_object_get(o, key));
    const char *copy = v ? af_arena_strdup(e->mem, v) : NULL;
    *bad |= v && !copy;
    return copy;
}

/* Every name of an object that has a value is known. */
static af_status check_names(const info_entry *e, const json_t *o, const char *what,
                             const char *known)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        if (!json_is_null(v) && !af_word_listed(key, known))
            return af_fail(e->err, AF_EUSAGE,
                           "%s: dataset '%s' has %s '%.40s', which is not one of: %s", e->file,
                           e->name, what, key, known);
    }
    return AF_OK;
}

/* What is not listed in `columns` is absent: a field without a name. */
static af_status read_columns(const info_entry *e, af_data_source *s)
{
    const json_t *c = json_object_get(e->json, "columns");
    bool bad = false;
    const struct {
        const char *key;
        const char **field;
    } columns[] = {
        {"prompt", &s->field.instruction}, {"query", &s->field.input},
        {"response", &s->field.output},    {"history", &s->field.history},
        {"system", &s->field.system},      {"tools", &s->field.tools},
        {"messages", &s->field.messages},  {"chosen", &s->field.chosen},
        {"rejected", &s->field.rejected},  {"kto_tag", &s->field.label},
        {"images", &s->media[0]},          {"videos", &s->media[1]},
        {"audios", &s->media[2]},
    };
    if (!c) { /* those of the formatting; other columns only when they are named */
        s->field.history = s->field.system = s->field.tools = "";
        s->field.messages = "conversations";
    }
    for (size_t i = 0; c && i < AF_LEN(columns); i++) {
        const char *name = text_of(e, c, columns[i].key, &bad);
        *columns[i].field = name ? name : "";
    }
    s->field.conversations = s->field.messages;
    return bad ? af_fail_nomem(e->err, e->name, 0)
               : check_names(e, c, "a column",
                             "prompt query response history system tools messages chosen rejected "
                             "kto_tag images videos audios");
}

/* Names of role and content, and of the roles. */
static af_status read_tags(const info_entry *e, af_data_source *s)
{
    static const char *const tags[][3] = {{"function_tag", "function_call", "function_call"},
                                          {"user_tag", "human", "user"},
                                          {"assistant_tag", "gpt", "assistant"},
                                          {"observation_tag", "observation", "tool"},
                                          {"system_tag", "system", "system"}};
    const json_t *t = json_object_get(e->json, "tags");
    bool bad = false;
    const char *role = text_of(e, t, "role_tag", &bad);
    const char *content = text_of(e, t, "content_tag", &bad);
    s->field.from = s->field.role = role ? role : "from";
    s->field.value = s->field.content = content ? content : "value";
    s->role_names = af_arena_take(e->mem, AF_LEN(tags) * sizeof *s->role_names);
    if (!s->role_names)
        return af_fail_nomem(e->err, e->name, 0);
    for (size_t i = 0; i < AF_LEN(tags); i++) {
        const char *name = text_of(e, t, tags[i][0], &bad);
        if (name || !t)
            s->role_names[s->role_name_count++] =
                (af_role_name){name ? name : tags[i][1], tags[i][2]};
    }
    return bad ? af_fail_nomem(e->err, e->name, 0)
               : check_names(e, t, "a tag",
                             "role_tag content_tag user_tag assistant_tag observation_tag "
                             "function_tag system_tag");
}

static af_status read_shape(const info_entry *e, af_data_source *s)
{
    const char *form = json_string_value(json_object_get(e->json, "formatting"));
    const json_t *c = json_object_get(e->json, "columns");
    const bool alpaca = !form || strcmp(form, "alpaca") == 0;
    if (!alpaca && strcmp(form, "sharegpt") != 0 && strcmp(form, "openai") != 0)
        return wrong(e, "has a formatting other than alpaca, sharegpt and openai");
    if (json_is_true(json_object_get(e->json, "ranking")))
        s->shape = AF_SHAPE_PREFERENCE;
    else if (json_object_get(c, "kto_tag"))
        s->shape = AF_SHAPE_KTO;
    else if (!alpaca)
        s->shape = AF_SHAPE_SHAREGPT;
    else
        s->shape = c && !json_object_get(c, "response") ? AF_SHAPE_TEXT : AF_SHAPE_ALPACA;
    if (s->shape == AF_SHAPE_TEXT) { /* to be pre-trained on */
        s->field.text = s->field.instruction;
        s->cut = true;
    }
    if (s->shape == AF_SHAPE_PREFERENCE && alpaca)
        s->field.prompt = s->field.instruction;
    if (s->shape == AF_SHAPE_PREFERENCE && !*s->field.chosen && !*s->field.rejected) {
        s->field.chosen = "chosen"; /* older files: a list of answers, the best one first */
        s->field.rejected = "rejected";
    }
    s->shape_given = true;
    s->listed = true;
    return AF_OK;
}

/* A file next to dataset_info.json, else a dataset of the hub, or a folder of one. */
static af_status read_place(const info_entry *e, af_data_source *s, const char *dir, bool *bad)
{
    const char *file = text_of(e, e->json, "file_name", bad);
    const char *hub = text_of(e, e->json, "hf_hub_url", bad);
    const char *folder = json_string_value(json_object_get(e->json, "folder"));
    if (*bad)
        return AF_OK;
    if (!file && !hub)
        return wrong(e, json_object_get(e->json, "script_url")
                            ? "has a script_url, a program that loads it, which is not supported: "
                              "write its records into a file and name that ('file_name')"
                        : json_object_get(e->json, "ms_hub_url") ||
                                json_object_get(e->json, "om_hub_url")
                            ? "is of a hub that is not supported: give 'hf_hub_url' or 'file_name'"
                            : "has neither file_name nor hf_hub_url");
    s->path = !file ? hub : file[0] == '/' ? file : af_arena_printf(e->mem, "%s/%s", dir, file);
    if (!file && folder && *folder) {
        const char **files = af_arena_take(e->mem, sizeof *files);
        const char *inside = af_arena_printf(e->mem, "%s/**", folder);
        *bad |= !files || !inside;
        if (files)
            *files = inside;
        s->data_files = files;
        s->data_file_count = 1;
    }
    *bad |= !s->path;
    return AF_OK;
}

static af_status read_listed(const info_entry *e, af_data_source *s, const char *dir)
{
    bool bad = false;
    const char *split = text_of(e, e->json, "split", &bad);
    const json_t *samples = json_object_get(e->json, "num_samples");
    af_status st = AF_OK;
    if (!json_is_object(e->json))
        return wrong(e, "is not an object");
    AF_TRY(read_place(e, s, dir, &bad));
    s->name = text_of(e, e->json, "subset", &bad);
    if (split && !af_data_slice_read(&s->split, &s->slice, split, e->mem))
        return wrong(e, "has a split that is not supported");
    if (json_is_integer(samples) && json_integer_value(samples) > 0)
        s->num_samples = json_integer_value(samples);
    AF_TRY(read_columns(e, s));
    if (bad)
        return af_fail_nomem(e->err, e->name, 0);
    AF_TRY(read_tags(e, s));
    AF_TRY(read_shape(e, s));
done:
    return st;
}

bool af_dataset_info_exists(const char *dir)
{
    char *path = dir ? af_path_join(dir, INFO) : NULL;
    const bool there = path && af_file_exists(path);
    free(path);
    return there;
}

af_status af_dataset_info_read(af_data_source *s, const char *dir, const char *name, af_arena *mem,
                               af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, INFO);
    json_t *info = NULL;
    if (!path)
        return af_fail_nomem(err, dir, 0);
    AF_TRY(af_json_read_file(&info, path, err));
    const json_t *entry = json_object_get(info, name);
    if (!entry) {
        st = af_fail(err, AF_EUSAGE, "dataset '%s' is neither a file here nor in %s", name, path);
        goto done;
    }
    AF_TRY(read_listed(&(info_entry){path, name, entry, mem, err}, s, dir));
done:
    json_decref(info);
    free(path);
    return st;
}
