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

static json_t *entry(const char *name, const af_template *t)
{
    uint64_t len;
    const char *text = af_template_source(t, &len);
    return json_pack("{s:s, s:s%}", "name", name, "template", text, (size_t)len);
}

/* Into a list of the config, as older versions of transformers wrote it and every version reads it:
 * files there would hide the list. */
static af_status put_list(const char *dir, const af_template *t, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    char *jinja = af_path_join(dir, "chat_template.jinja");
    char *path = af_path_join(dir, "tokenizer_config.json");
    if (!jinja || !path)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    AF_TRY(read_config(&config, path, err));
    json_t *list =
        json_pack("[o, o]", entry("default", t), entry("tool_use", af_template_for(t, true)));
    if (json_object_set_new(config, "chat_template", list) != 0)
        AF_TRY(af_fail(err, AF_EFORMAT, "the chat template is not UTF-8"));
    AF_TRY(write_config(config, path, err));
    AF_TRY(af_path_remove(jinja, err));
done:
    json_decref(config);
    free(jinja);
    free(path);
    return st;
}

static af_status put_both(const char *dir, const af_template *t, af_error *err)
{
    af_status st = AF_OK;
    uint64_t len;
    char *sub = af_path_join(dir, "additional_chat_templates");
    char *file = af_path_join(dir, "additional_chat_templates/tool_use.jinja");
    if (!sub || !file)
        AF_TRY(af_fail_nomem(err, "a path", strlen(dir)));
    if (!af_dir_exists(sub)) {
        AF_TRY(put_list(dir, t, err));
        goto done;
    }
    const char *text = af_template_source(af_template_for(t, true), &len);
    AF_TRY(af_file_write(file, text, len, err));
    text = af_template_source(t, &len);
    AF_TRY(af_template_put(dir, text, len, err));
done:
    free(sub);
    free(file);
    return st;
}

af_status af_template_put_own(const char *dir, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_template *t = NULL;
    char *text = NULL, *jinja = af_path_join(dir, "chat_template.jinja");
    uint64_t len = 0;
    if (!jinja)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (!af_file_exists(jinja))
        goto done; /* the config has it, or there is none */
    if (af_template_open(&t, model, NULL) == AF_OK && af_template_for(t, true) != t &&
        af_file_in(dir, "tokenizer_config.json")) {
        st = put_both(dir, t, err);
        goto done;
    }
    AF_TRY(af_file_read(&text, &len, jinja, AF_TEMPLATE_SOURCE_MAX, err));
    AF_TRY(af_template_put(dir, text, len, err));
done:
    af_template_close(t);
    free(text);
    free(jinja);
    return st;
}
