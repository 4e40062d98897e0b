/* folder_text.c - see folder_text.h. */
#include "convert/input/folder_text.h"

#include "base/buf.h"
#include "base/log.h"
#include "format/text/json_text.h"
#include "format/tokenizer/tokenizer_make.h"

#define TEMPLATE_BYTES_MAX (UINT64_C(4) << 20)

af_status af_json_read(json_t **out, const char *dir, const char *name, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, name);
    *out = NULL;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(name));
    if (af_file_exists(path))
        st = af_json_read_file(out, path, err);
    free(path);
    return st;
}

af_status af_tokenizer_json_read(json_t **out, const char *dir, af_error *err)
{
    const af_status st = af_json_read(out, dir, "tokenizer.json", err);
    return st == AF_OK && !*out && af_tokenizer_can_make(dir)
               ? af_tokenizer_make(out, NULL, dir, err)
               : st;
}

af_status af_text_write(const char *dir, const char *name, const char *text, uint64_t n,
                        af_error *err)
{
    char *path = af_path_join(dir, name);
    if (!path)
        return af_fail_nomem(err, "a path", strlen(name));
    const af_status st = af_file_write(path, text, n, err);
    free(path);
    return st;
}

af_status af_json_write(const char *dir, const char *name, const json_t *j, af_error *err)
{
    char *text = af_json_dump(j, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
    af_buf b = {0};
    if (!text)
        return af_fail_nomem(err, name, 0);
    af_buf_str(&b, text);
    af_buf_char(&b, '\n');
    free(text);
    const af_status st =
        b.bad ? af_fail_nomem(err, name, b.len) : af_text_write(dir, name, b.data, b.len, err);
    af_buf_clear(&b);
    return st;
}

/* The template inside tokenizer_config.json: a string, or the "default" of a list. */
static const char *inner_template(const json_t *config)
{
    const json_t *t = json_object_get(config, "chat_template");
    if (json_is_string(t))
        return json_string_value(t);
    for (size_t i = 0; i < json_array_size(t); i++) {
        const json_t *one = json_array_get(t, i);
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(one, "template"));
    }
    return NULL;
}

af_status af_folder_template(char **text, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    json_t *config = NULL;
    uint64_t n;
    char *path = af_path_join(dir, "chat_template.jinja");
    *text = NULL;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    AF_TRY(af_json_read(&config, dir, "tokenizer_config.json", err));
    const char *inner = inner_template(config);
    if (af_file_exists(path)) {
        AF_TRY(af_file_read(text, &n, path, TEMPLATE_BYTES_MAX, err));
        if (inner && strcmp(inner, *text) != 0)
            af_log_write(
                AF_LOG_WARN,
                "%s: chat_template.jinja and the template in tokenizer_config.json differ; the "
                "former is used, as transformers does",
                dir);
    } else if (inner) {
        *text = af_strdup(inner);
        if (!*text)
            AF_TRY(af_fail_nomem(err, "a template", strlen(inner)));
    }
done:
    json_decref(config);
    free(path);
    return st;
}
