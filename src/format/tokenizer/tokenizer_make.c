/* tokenizer_make.c - see tokenizer_make.h. */
#include "format/tokenizer/tokenizer_make.h"

#include "base/file.h"
#include "format/tokenizer/tokenizer_pre.h"

#define MERGES_MAX (UINT64_C(256) << 20) /* bytes */

typedef struct token_maker {
    const char *folder;
    json_t *config, *map, *added; /* the files next to it; or NULL */
    json_t *vocab, *merges;
    json_t *list, *by_text; /* added_tokens, and its entries by their text */
    json_int_t next;        /* the first id that no token has */
} token_maker;

/* ---- files ---- */

static af_status read_json(json_t **out, const char *folder, const char *name, af_error *err)
{
    char *path = af_path_join(folder, name);
    af_status st = path ? AF_OK : af_fail_nomem(err, "a path", strlen(folder));
    if (path && af_file_exists(path))
        st = af_json_read_file(out, path, err);
    if (st == AF_OK && *out && !json_is_object(*out))
        st = af_fail(err, AF_EFORMAT, "%s is not an object", path);
    free(path);
    return st;
}

/* Lines "left right"; "#version: 0.2" is the first of most files. */
static af_status read_merges(token_maker *m, af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(m->folder, "merges.txt"), *text = NULL, *line = NULL;
    uint64_t n = 0;
    if (!path)
        return af_fail_nomem(err, "a path", strlen(m->folder));
    AF_TRY(af_file_read(&text, &n, path, MERGES_MAX, err));
    int no = 0;
    for (line = text; line && *line; no++) {
        char *end = strchr(line, '\n'), *next = end ? end + 1 : NULL;
        end = end ? end : line + strlen(line);
        *end = 0;
        if (end > line && end[-1] == '\r')
            end[-1] = 0;
        const char *blank = strchr(line, ' ');
        const bool skip = !*line || strncmp(line, "#version", 8) == 0;
        if (!skip && (!blank || blank == line || !blank[1] || strchr(blank + 1, ' ')))
            AF_TRY(
                af_fail(err, AF_EFORMAT, "%s:%d: '%.60s' is not two tokens", path, no + 1, line));
        if (!skip && json_array_append_new(m->merges, json_string(line)) != 0)
            AF_TRY(af_fail(err, AF_EFORMAT, "%s:%d: not UTF-8", path, no + 1));
        line = next;
    }
done:
    free(path);
    free(text);
    return st;
}

static af_status read_vocab(token_maker *m, af_error *err)
{
    const char *text;
    json_t *id;
    const af_status st = read_json(&m->vocab, m->folder, "vocab.json", err);
    if (st != AF_OK)
        return st;
    json_object_foreach(m->vocab, text, id)
    {
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return af_fail(err, AF_EFORMAT, "%s/vocab.json has no valid id for \"%.60s\"",
                           m->folder, text);
        m->next = AF_MAX(m->next, json_integer_value(id) + 1);
    }
    return AF_OK;
}

/* ---- added tokens ---- */

/* `v` is the text, or an object with "content". id < 0: that of the vocabulary, or the next. */
static void add_token(token_maker *m, const json_t *v, json_int_t id, bool special)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    const json_t *text = json_is_object(v) ? json_object_get(v, "content") : v;
    const char *s = json_string_value(text);
    if (!s || !*s)
        return;
    special |= json_is_true(json_object_get(v, "special"));
    json_t *e = json_object_get(m->by_text, s);
    if (e) {
        if (special)
            json_object_set_new(e, "special", json_true());
        return;
    }
    if (id < 0)
        id = json_is_integer(json_object_get(m->vocab, s))
                 ? json_integer_value(json_object_get(m->vocab, s))
                 : m->next;
    m->next = AF_MAX(m->next, id + 1);
    e = json_pack("{s:I,s:s}", "id", id, "content", s);
    for (size_t i = 0; i < AF_LEN(flags); i++)
        json_object_set_new(e, flags[i], json_boolean(json_is_true(json_object_get(v, flags[i]))));
    const json_t *normalized = json_object_get(v, "normalized");
    json_object_set_new(e, "normalized",
                        json_boolean(normalized ? json_is_true(normalized) : !special));
    json_object_set_new(e, "special", json_boolean(special));
    json_object_set(m->by_text, s, e);
    json_array_append_new(m->list, e);
}

/* added_tokens_decoder: {"ID": {"content": ...}}, or added_tokens.json: {"TEXT": ID} */
static void add_listed(token_maker *m)
{
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(m->config, "added_tokens_decoder"), key, v)
    {
        add_token(m, v, strtoll(key, NULL, 10), false);
    }
    json_object_foreach(m->added, key, v)
    {
        json_t *text = json_string(key);
        add_token(m, text, json_is_integer(v) ? json_integer_value(v) : -1, false);
        json_decref(text);
    }
}

static void add_named(token_maker *m, const json_t *names)
{
    static const char *const one[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
    static const char *const many[] = {"additional_special_tokens", "extra_special_tokens"};
    const char *key;
    json_t *v;
    size_t k;
    for (size_t i = 0; i < AF_LEN(one); i++)
        add_token(m, json_object_get(names, one[i]), -1, true);
    for (size_t i = 0; i < AF_LEN(many); i++) {
        json_t *list = json_object_get(names, many[i]);
        json_array_foreach(list, k, v) add_token(m, v, -1, true);
        json_object_foreach(list, key, v) { add_token(m, v, -1, true); }
    }
}

/* What these classes call their tokens when no file says it. */
static const char class_token[] = "<|endoftext|>";

static const json_t *name_of(const token_maker *m, const char *name)
{
    const json_t *v = json_object_get(m->map, name);
    return v ? v : json_object_get(m->config, name);
}

static void add_tokens(token_maker *m, bool qwen)
{
    add_listed(m);
    add_named(m, m->map);
    add_named(m, m->config);
    json_t *text = json_string(class_token);
    if (!name_of(m, "eos_token") || !name_of(m, "unk_token") ||
        !name_of(m, qwen ? "pad_token" : "bos_token"))
        add_token(m, text, -1, true);
    json_decref(text);
}

/* ---- parts ---- */

/* The class of transformers: by its name, or as that of the model_type. */
static af_status is_qwen(bool *qwen, const token_maker *m, af_error *err)
{
    static const char *const known[] = {"GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer"};
    const char *name = json_string_value(json_object_get(m->config, "tokenizer_class"));
    json_t *model = NULL;
    const af_status st = read_json(&model, m->folder, "config.json", err);
    const char *type = json_string_value(json_object_get(model, "model_type"));
    *qwen = type && strncmp(type, "qwen", 4) == 0;
    json_decref(model);
    if (st != AF_OK || !name)
        return st;
    for (size_t i = 0; i < AF_LEN(known); i++) {
        const size_t n = strlen(known[i]);
        if (strncmp(name, known[i], n) == 0 && (!name[n] || strcmp(name + n, "Fast") == 0)) {
            *qwen = i == 2;
            return AF_OK;
        }
    }
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s has vocab.json and no tokenizer.json, and how %.60s reads that is not "
                   "known: save_pretrained of a fast tokenizer of transformers writes "
                   "tokenizer.json",
                   m->folder, name);
}

/* The last part is ByteLevel. */
static json_t *parts_of(bool qwen, bool prefix)
{
    const af_pre_name *pre = af_pre_name_find("qwen2", 5);
    if (!qwen)
        return json_pack("{s:{s:s,s:b,s:b,s:b},s:{s:s}}", "pre_tokenizer", "type", "ByteLevel",
                         "add_prefix_space", prefix, "trim_offsets", 1, "use_regex", 1, "decoder",
                         "type", "ByteLevel");
    json_t *parts = af_json_load(pre->parts, strlen(pre->parts), 0, NULL);
    json_t *list = json_object_get(json_object_get(parts, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_array_get(list, json_array_size(list) - 1), "add_prefix_space",
                        json_boolean(prefix));
    return parts;
}

static void put_around(json_t *single, json_t *tokens, const token_maker *m, const char *name)
{
    const json_t *v = name_of(m, name);
    const char *s = json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
    const json_t *e = json_object_get(m->by_text, s ? s : class_token);
    if (!e)
        return;
    s = json_string_value(json_object_get(e, "content"));
    json_array_append_new(single,
                          json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", s, "type_id", 0));
    json_object_set_new(tokens, s,
                        json_pack("{s:s,s:[I],s:[s]}", "id", s, "ids",
                                  json_integer_value(json_object_get(e, "id")), "tokens", s));
}

/* add_bos_token, add_eos_token; null when there is neither */
static json_t *around_of(const token_maker *m)
{
    const bool bos = json_is_true(json_object_get(m->config, "add_bos_token"));
    const bool eos = json_is_true(json_object_get(m->config, "add_eos_token"));
    if (!bos && !eos)
        return json_null();
    json_t *single = json_array(), *tokens = json_object();
    if (bos)
        put_around(single, tokens, m, "bos_token");
    json_array_append_new(single, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "A", "type_id", 0));
    if (eos)
        put_around(single, tokens, m, "eos_token");
    json_t *pair = json_deep_copy(single);
    json_array_append_new(pair, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "B", "type_id", 1));
    return json_pack("{s:s,s:o,s:o,s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", tokens);
}

/* Other readers require every field. */
static json_t *file_of(const token_maker *m, bool qwen)
{
    json_t *o = json_pack("{s:s,s:n,s:n,s:O,s:n,s:n,s:o,s:n}", "version", "1.0", "truncation",
                          "padding", "added_tokens", m->list, "normalizer", "pre_tokenizer",
                          "post_processor", around_of(m), "decoder");
    json_t *parts = parts_of(qwen, json_is_true(json_object_get(m->config, "add_prefix_space")));
    json_object_update_missing_new(
        json_object_get(parts, "decoder"),
        json_pack("{s:b,s:b,s:b}", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1));
    json_object_update_new(o, parts);
    json_object_set_new(o, "model",
                        json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:O,s:O}", "type", "BPE",
                                  "dropout", "unk_token", "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                                  "ignore_merges", 0, "vocab", m->vocab, "merges", m->merges));
    return o;
}

af_status af_tokenizer_make(json_t **out, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    bool qwen = false;
    token_maker m = {
        .folder = folder, .merges = json_array(), .list = json_array(), .by_text = json_object()};
    AF_TRY(read_json(&m.config, folder, "tokenizer_config.json", err));
    if (!json_object_get(m.config, "added_tokens_decoder")) { /* older folders */
        AF_TRY(read_json(&m.map, folder, "special_tokens_map.json", err));
        AF_TRY(read_json(&m.added, folder, "added_tokens.json", err));
    }
    AF_TRY(is_qwen(&qwen, &m, err));
    AF_TRY(read_vocab(&m, err));
    AF_TRY(read_merges(&m, err));
    add_tokens(&m, qwen);
    json_t *made = file_of(&m, qwen);
    if (af_memory_failed()) {
        json_decref(made);
        AF_TRY(af_fail_nomem(err, "a tokenizer", 0));
    }
    *out = made;
done:
    json_decref(m.config);
    json_decref(m.map);
    json_decref(m.added);
    json_decref(m.vocab);
    json_decref(m.merges);
    json_decref(m.list);
    json_decref(m.by_text);
    return st;
}
