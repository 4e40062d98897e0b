/* chat_template_put.c - writing the chat template of a folder, where every reader finds the same.
 */
#include "format/chat/chat_template.h"

#include "base/buf.h"
#include "base/file.h"
#include "format/text/json_text.h"

#define CONFIG_MAX ((uint64_t)64 << 20) /* bytes of a tokenizer_config.json */

static af_status read_config(json_t **out, const char *path, af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    af_status st = af_file_read(&text, &size, path, CONFIG_MAX, err);
    if (st == AF_OK)
        st = af_json_parse(out, text, size, path, err);
    free(text);
    return st;
}

/* The place of the default template in a config, or NULL: a string, or one of a list. */
static json_t *default_entry(json_t *config, const char **key)
{
    json_t *t = json_object_get(config, "chat_template");
    *key = "chat_template";
    if (json_is_string(t))
        return config;
    for (size_t i = 0; i < json_array_size(t); i++) {
        json_t *row = json_array_get(t, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (name && strcmp(name, "default") == 0) {
            *key = "template";
            return row;
        }
    }
    return NULL;
}

static af_status write_config(const json_t *config, const char *path, af_error *err)
{
    af_buf b = {0};
    char *text = af_json_dump(config, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        return af_fail_nomem(err, "tokenizer_config.json", 0);
    af_buf_printf(&b, "%s\n", text);
    free(text);
    const af_status st =
        b.bad ? af_fail_nomem(err, path, b.len) : af_file_write(path, b.data, b.len, err);
    af_buf_clear(&b);
    return st;
}

af_status af_template_put(const char *dir, const char *text, uint64_t len, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    const char *key;
    char *jinja = af_path_join(dir, "chat_template.jinja");
    char *path = af_path_join(dir, "tokenizer_config.json");
    if (!jinja || !path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(af_file_write(jinja, text, len, err));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(read_config(&config, path, err));
    json_t *entry = default_entry(config, &key);
    const json_t *old = json_object_get(entry, key);
    if (!entry || (json_string_length(old) == len && !memcmp(json_string_value(old), text, len)))
        goto done;
    if (json_object_set_new(entry, key, json_stringn(text, len)) != 0)
        AF_TRY(af_fail(err, AF_EFORMAT, "the chat template is not UTF-8"));
    AF_TRY(write_config(config, path, err));
done:
    json_decref(config);
    free(jinja);
    free(path);
    return st;
}
