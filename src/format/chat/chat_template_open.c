/* chat_template_open.c - finding the chat template of a model and its special tokens.
 *
 * As transformers: chat_template.jinja wins over tokenizer_config.json. llama.cpp's converter takes
 * the other one, so a folder where they differ is worth a warning. */
#include "format/chat/chat_template.h"

#include "base/file.h"
#include "base/log.h"
#include "base/word.h"
#include "format/config/hf_config.h"
#include "format/jinja/jinja_ast.h"
#include "format/text/json_text.h"
#include "format/weights/gguf.h"

#define CONFIG_MAX ((uint64_t)64 << 20) /* bytes of a tokenizer_config.json */

static const char *const token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

/* --- tokenizer_config.json ---------------------------------------------------------------------
 */

static af_status read_json(json_t **out, const char *path, af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    json_error_t why;
    af_status st = af_file_read(&text, &size, path, CONFIG_MAX, err);
    if (st != AF_OK)
        return st;
    /* model_max_length is often 10^30: only strings matter here */
    *out = af_json_load(text, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    free(text);
    if (!*out)
        return af_fail(err, AF_EFORMAT, "%s:%d: %s", path, why.line, why.text);
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return af_fail(err, AF_EFORMAT, "%s: not a JSON object", path);
    }
    return AF_OK;
}

/* The template string of a config, or NULL. A list has {name, template} entries. */
static const json_t *config_template(const json_t *config, const char *name)
{
    const json_t *t = json_object_get(config, "chat_template");
    const char *want = name ? name : "default";
    if (json_is_string(t))
        return name && strcmp(name, "default") ? NULL : t;
    if (json_is_object(t))
        return json_object_get(t, want);
    for (size_t i = 0; i < json_array_size(t); i++) {
        const json_t *row = json_array_get(t, i);
        const char *n = json_string_value(json_object_get(row, "name"));
        if (n && !strcmp(n, want))
            return json_object_get(row, "template");
    }
    return NULL;
}

/* Tokens are strings or added-token objects; null ones are not passed. */
static void add_tokens(json_t *out, const json_t *config)
{
    for (size_t i = 0; out && i < AF_LEN(token_names); i++) {
        json_t *v = json_object_get(config, token_names[i]);
        v = json_is_object(v) ? json_object_get(v, "content") : v;
        if (json_is_string(v))
            json_object_set(out, token_names[i], v);
    }
}

static json_t *config_tokens(const json_t *config)
{
    json_t *out = json_object();
    add_tokens(out, config);
    return out;
}

/* Those of a folder: older ones keep them in special_tokens_map.json, and transformers lets it win
 * where the config does not list its added tokens. */
static af_status folder_tokens(json_t **out, const json_t *config, const char *folder,
                               af_error *err)
{
    af_status st = AF_OK;
    json_t *map = NULL, *tokens = config_tokens(config);
    char *path = af_path_join(folder, "special_tokens_map.json");
    if (!path || !tokens) {
        st = af_fail_nomem(err, "the special tokens", strlen(folder));
        goto done;
    }
    if (!json_object_get(config, "added_tokens_decoder") && af_file_exists(path)) {
        AF_TRY(read_json(&map, path, err));
        add_tokens(tokens, map);
    }
    *out = json_incref(tokens);
done:
    json_decref(tokens);
    json_decref(map);
    free(path);
    return st;
}

static af_status parse_config(af_template **out, const json_t *config, const char *path,
                              const char *name, af_error *err)
{
    const json_t *t = config_template(config, name);
    if (!json_is_string(t))
        return af_fail_subject(err, AF_EFORMAT, "chat_template", "%s: no chat template%s%s", path,
                               name ? " named " : "", name ? name : "");
    const af_status st = af_template_parse(out, json_string_value(t), json_string_length(t), err);
    if (st != AF_OK)
        return af_fail_prefix(st, err, "%s: chat_template", path);
    (*out)->tokens = config_tokens(config);
    return AF_OK;
}

static af_status open_config(af_template **out, const char *path, const char *name, af_error *err)
{
    json_t *config = NULL;
    af_status st = read_json(&config, path, err);
    if (st == AF_OK)
        st = parse_config(out, config, path, name, err);
    json_decref(config);
    return st;
}

/* --- .jinja
 * ---------------------------------------------------------------------------------------- */

static af_status open_source(af_template **out, const char *path, af_error *err)
{
    char *text = NULL;
    uint64_t size = 0;
    af_status st = af_file_read(&text, &size, path, AF_TEMPLATE_SOURCE_MAX, err);
    if (st != AF_OK)
        return st;
    st = af_template_parse(out, text, size, err);
    free(text);
    return st == AF_OK ? AF_OK : af_fail_prefix(st, err, "%s", path);
}

/* --- folder
 * ------------------------------------------------------------------------------------------ */

static void warn_when_different(const af_template *t, const json_t *config, const char *folder)
{
    const json_t *other = config_template(config, NULL);
    if (json_is_string(other) && (json_string_length(other) != t->source_len ||
                                  memcmp(json_string_value(other), t->source, t->source_len) != 0))
        af_log_write(
            AF_LOG_WARN,
            "%s: chat_template.jinja and tokenizer_config.json hold different chat templates; "
            "the first is used, as transformers does",
            folder);
}

static char *jinja_path(const char *folder, const char *name)
{
    if (!name || !strcmp(name, "default"))
        return af_path_join(folder, "chat_template.jinja");
    af_buf b = {0};
    af_buf_printf(&b, "%s/additional_chat_templates/%s.jinja", folder, name);
    return af_buf_take(&b);
}

static af_status open_folder(af_template **out, const char *folder, const char *name, af_error *err)
{
    af_status st = AF_OK;
    af_template *t = NULL;
    json_t *config = NULL;
    char *source = jinja_path(folder, name);
    char *config_path = af_path_join(folder, "tokenizer_config.json");
    char *legacy = af_path_join(folder, "chat_template.json");

    if (!source || !config_path || !legacy) {
        st = af_fail_nomem(err, "a path", strlen(folder));
        goto done;
    }
    if (name && !af_path_is_inner(name)) {
        st = af_fail(err, AF_EUSAGE, "invalid chat template name '%s'", name);
        goto done;
    }
    if (af_file_exists(config_path))
        AF_TRY(read_json(&config, config_path, err));
    if (af_file_exists(source)) {
        AF_TRY(open_source(&t, source, err));
        if (!name)
            warn_when_different(t, config, folder);
    } else if (json_is_string(config_template(config, name))) {
        AF_TRY(parse_config(&t, config, config_path, name, err));
    } else if (af_file_exists(legacy)) {
        AF_TRY(open_config(&t, legacy, name, err));
    } else {
        st = af_fail_subject(
            err, AF_EFORMAT, "chat_template",
            "%s: no chat template%s%s (neither chat_template.jinja nor chat_template in "
            "tokenizer_config.json)",
            folder, name ? " named " : "", name ? name : "");
        goto done;
    }
    json_t *tokens = NULL;
    AF_TRY(folder_tokens(&tokens, config, folder, err));
    json_decref(t->tokens);
    t->tokens = tokens;
    *out = t;
    t = NULL;
done:
    af_template_close(t);
    json_decref(config);
    free(source);
    free(config_path);
    free(legacy);
    return st;
}

/* --- GGUF
 * ------------------------------------------------------------------------------------------------
 */

static json_t *gguf_tokens(const af_gguf *g)
{
    static const struct {
        const char *key, *name;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.seperator_token_id", "sep_token"}, /* spelt so in the format */
        {"tokenizer.ggml.padding_token_id", "pad_token"},
        {"tokenizer.ggml.cls_token_id", "cls_token"},
        {"tokenizer.ggml.mask_token_id", "mask_token"},
    };
    const af_gguf_kv *tokens = af_gguf_find_kv(g, "tokenizer.ggml.tokens");
    json_t *out = json_object();
    for (size_t i = 0; out && tokens && tokens->str && i < AF_LEN(ids); i++) {
        const int64_t id = af_gguf_int(g, ids[i].key, -1);
        if (id < 0 || (uint64_t)id >= tokens->count)
            continue;
        json_t *v = json_stringn(tokens->str[id].at, tokens->str[id].len);
        if (v)
            json_object_set_new(out, ids[i].name, v);
    }
    return out;
}

static af_status open_gguf(af_template **out, const char *path, const char *name, af_error *err)
{
    af_gguf *g = NULL;
    af_template *t = NULL;
    char key[160];
    af_status st = af_gguf_open(&g, path, err);
    if (st != AF_OK)
        return st;
    const bool named = name && strcmp(name, "default") != 0;
    snprintf(key, sizeof key, "tokenizer.chat_template%s%.100s", named ? "." : "",
             named ? name : "");
    const af_gguf_str s = af_gguf_string(g, key);
    if (!s.at) {
        st = af_fail_subject(err, AF_EFORMAT, "chat_template",
                             "%s: no chat template (the key %s is absent)", path, key);
        goto done;
    }
    st = af_template_parse(&t, s.at, s.len, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s: %s", path, key);
        goto done;
    }
    t->tokens = gguf_tokens(g);
    *out = t;
done:
    af_gguf_close(g);
    return st;
}

static af_status open_found(af_template **out, const char *path, const char *name, af_error *err)
{
    if (af_ends_with(path, ".json") && af_file_exists(path))
        return open_config(out, path, name, err);
    return af_dir_exists(path) ? open_folder(out, path, name, err)
                               : open_gguf(out, path, name, err);
}

/* Whether a folder has its templates in files: then transformers reads no list in a config. */
static bool has_file_alone(const char *path)
{
    return af_file_in(path, "chat_template.jinja") &&
           !af_file_in(path, "additional_chat_templates/tool_use.jinja");
}

/* As transformers: a template called tool_use is the one for messages with tools. */
static af_status add_tools(af_template *t, const char *path, af_error *err)
{
    af_error why = {0};
    if (has_file_alone(path) || open_found(&t->with_tools, path, "tool_use", &why) == AF_OK)
        return AF_OK;
    if (strcmp(why.subject, "chat_template") == 0) /* there is none */
        return AF_OK;
    return af_fail(err, why.code, "%s", why.msg);
}

af_status af_template_open_named(af_template **out, const char *path, const char *name,
                                 af_error *err)
{
    AF_NEED(err, out, path);
    if (af_ends_with(path, ".jinja") || af_ends_with(path, ".j2"))
        return open_source(out, path, err);
    char *found = NULL;
    af_template *t = NULL;
    af_status st = AF_OK;
    if (af_ends_with(path, ".json") && af_file_exists(path))
        found = af_strdup(path);
    else
        AF_TRY(af_model_resolve(&found, path, err));
    if (!found)
        AF_TRY(af_fail_nomem(err, "a path", strlen(path)));
    AF_TRY(open_found(&t, found, name, err));
    if (!name)
        AF_TRY(add_tools(t, found, err));
    *out = t;
    t = NULL;
done:
    af_template_close(t);
    free(found);
    return st;
}

af_status af_template_open(af_template **out, const char *path, af_error *err)
{
    return af_template_open_named(out, path, NULL, err);
}
