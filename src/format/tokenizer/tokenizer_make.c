/* tokenizer_make.c - see tokenizer_make.h. */
#include "format/tokenizer/tokenizer_make.h"

#include "afinar/text.h"
#include "base/file.h"
#include "format/tokenizer/tokenizer_pre.h"

#define MERGES_MAX (UINT64_C(256) << 20) /* bytes */

typedef enum maker_kind { KIND_GPT2, KIND_QWEN, KIND_TEKKEN, KIND_KIMI, KIND_GLM4 } maker_kind;

/* What the kinds call their tokens when no file says it. */
static const struct {
    const char *bos, *eos, *unk, *pad;
} kind_names[] = {
    [KIND_GPT2] = {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL},
    [KIND_QWEN] = {NULL, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
    [KIND_TEKKEN] = {"<s>", "</s>", "<unk>", "<pad>"},
    [KIND_KIMI] = {"[BOS]", "[EOS]", "[UNK]", "[PAD]"},
    [KIND_GLM4] = {NULL, "<|endoftext|>", NULL, "<|endoftext|>"},
};

enum { KIMI_RESERVED = 256 }; /* ids after the vocabulary: special tokens, named or not */

typedef struct token_maker {
    const char *folder;
    maker_kind kind;
    char *pattern;                /* of KIND_TEKKEN */
    json_t *default_names;        /* those of kind_names that no file replaces */
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

static bool is_id(json_int_t id) { return id >= 0 && id < AF_TOKENIZER_ID_MAX; }

static af_status read_vocab(token_maker *m, af_error *err)
{
    const char *text;
    json_t *id;
    const af_status st = read_json(&m->vocab, m->folder, "vocab.json", err);
    if (st != AF_OK)
        return st;
    json_object_foreach(m->vocab, text, id)
    {
        if (!is_id(json_is_integer(id) ? json_integer_value(id) : -1))
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
static af_status add_listed(token_maker *m, af_error *err)
{
    const char *key;
    char *end;
    json_t *v;
    json_object_foreach(json_object_get(m->config, "added_tokens_decoder"), key, v)
    {
        const long long id = strtoll(key, &end, 10);
        if (*end || end == key || !is_id(id) || !json_is_string(json_object_get(v, "content")))
            return af_fail(err, AF_EFORMAT,
                           "%s: added_tokens_decoder has the invalid entry \"%.60s\"", m->folder,
                           key);
        add_token(m, v, id, false);
    }
    json_object_foreach(m->added, key, v)
    {
        json_t *text = json_string(key);
        const json_int_t id = json_is_integer(v) ? json_integer_value(v) : -1;
        if (is_id(id))
            add_token(m, text, id, false);
        json_decref(text);
        if (!is_id(id))
            return af_fail(err, AF_EFORMAT, "%s/added_tokens.json has no valid id for \"%.60s\"",
                           m->folder, key);
    }
    return AF_OK;
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

static const json_t *name_of(const token_maker *m, const char *name)
{
    const json_t *v = json_object_get(m->map, name);
    v = v ? v : json_object_get(m->config, name);
    return v ? v : json_object_get(m->default_names, name);
}

static void set_default(token_maker *m, const char *name, const char *text)
{
    if (text && !name_of(m, name))
        json_object_set_new(m->default_names, name, json_string(text));
}

static void set_defaults(token_maker *m)
{
    set_default(m, "bos_token", kind_names[m->kind].bos);
    set_default(m, "eos_token", kind_names[m->kind].eos);
    set_default(m, "unk_token", kind_names[m->kind].unk);
    set_default(m, "pad_token", kind_names[m->kind].pad);
}

static void add_reserved(token_maker *m)
{
    for (json_int_t id = m->next, end = id + KIMI_RESERVED; id < end; id++) {
        char key[24], text[48];
        snprintf(key, sizeof key, "%lld", (long long)id);
        snprintf(text, sizeof text, "<|reserved_token_%lld|>", (long long)id);
        if (json_object_get(json_object_get(m->config, "added_tokens_decoder"), key))
            continue;
        json_t *v = json_string(text);
        add_token(m, v, id, true);
        json_decref(v);
    }
}

static af_status add_tokens(token_maker *m, af_error *err)
{
    if (m->kind == KIND_KIMI)
        add_reserved(m);
    const af_status st = add_listed(m, err);
    if (st != AF_OK)
        return st;
    add_named(m, m->map);
    add_named(m, m->config);
    if (m->kind <= KIND_QWEN) /* the others have them, or none */
        add_named(m, m->default_names);
    return AF_OK;
}

/* ---- parts ---- */

/* The class of transformers: by its name, or as that of the model_type. */
static af_status find_class(token_maker *m, af_error *err)
{
    static const char *const known[] = {"GPT2Tokenizer", "CodeGenTokenizer", "Qwen2Tokenizer"};
    const char *name = json_string_value(json_object_get(m->config, "tokenizer_class"));
    json_t *model = NULL;
    const af_status st = read_json(&model, m->folder, "config.json", err);
    const char *type = json_string_value(json_object_get(model, "model_type"));
    m->kind = type && strncmp(type, "qwen", 4) == 0 ? KIND_QWEN : KIND_GPT2;
    json_decref(model);
    if (st != AF_OK || !name)
        return st;
    for (size_t i = 0; i < AF_LEN(known); i++) {
        const size_t n = strlen(known[i]);
        if (strncmp(name, known[i], n) == 0 && (!name[n] || strcmp(name + n, "Fast") == 0)) {
            m->kind = i == 2 ? KIND_QWEN : KIND_GPT2;
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
static json_t *parts_of(const token_maker *m)
{
    const bool prefix = json_is_true(json_object_get(m->config, "add_prefix_space"));
    const char *pattern = m->kind == KIND_KIMI ? af_pre_kimi : m->pattern;
    const af_pre_name *pre =
        m->kind == KIND_GLM4 ? af_pre_name_find("chatglm-bpe", 11) : af_pre_name_find("qwen2", 5);
    if (m->kind == KIND_GPT2)
        return json_pack("{s:{s:s,s:b,s:b,s:b},s:{s:s}}", "pre_tokenizer", "type", "ByteLevel",
                         "add_prefix_space", prefix, "trim_offsets", 1, "use_regex", 1, "decoder",
                         "type", "ByteLevel");
    json_t *parts = af_pre_name_parts(pre);
    json_t *list = json_object_get(json_object_get(parts, "pre_tokenizer"), "pretokenizers");
    json_object_set_new(json_array_get(list, 1), "add_prefix_space", json_boolean(prefix));
    if (m->kind == KIND_QWEN || m->kind == KIND_GLM4)
        return parts;
    json_object_set_new(json_object_get(json_array_get(list, 0), "pattern"), "Regex",
                        json_string(pattern));
    json_object_del(parts, "normalizer");
    return parts;
}

static void put_around(json_t *single, json_t *tokens, const token_maker *m, const char *s)
{
    const json_t *e = s ? json_object_get(m->by_text, s) : NULL;
    if (!e)
        return;
    json_array_append_new(single,
                          json_pack("{s:{s:s,s:i}}", "SpecialToken", "id", s, "type_id", 0));
    json_object_set_new(tokens, s,
                        json_pack("{s:s,s:[I],s:[s]}", "id", s, "ids",
                                  json_integer_value(json_object_get(e, "id")), "tokens", s));
}

static const char *text_of(const token_maker *m, const char *name)
{
    const json_t *v = name_of(m, name);
    return json_string_value(json_is_object(v) ? json_object_get(v, "content") : v);
}

/* add_bos_token, add_eos_token; null when there is neither */
static json_t *around_of(const token_maker *m)
{
    const json_t *first = json_object_get(m->config, "add_bos_token");
    const bool bos = first ? json_is_true(first) : m->kind == KIND_TEKKEN;
    const bool eos = json_is_true(json_object_get(m->config, "add_eos_token"));
    if (!bos && !eos && m->kind != KIND_GLM4)
        return json_null();
    json_t *single = json_array(), *tokens = json_object();
    if (bos)
        put_around(single, tokens, m, text_of(m, "bos_token"));
    if (m->kind == KIND_GLM4) {
        put_around(single, tokens, m, "[gMASK]");
        put_around(single, tokens, m, "<sop>");
    }
    json_array_append_new(single, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "A", "type_id", 0));
    if (eos)
        put_around(single, tokens, m, text_of(m, "eos_token"));
    json_t *pair = json_deep_copy(single);
    json_array_append_new(pair, json_pack("{s:{s:s,s:i}}", "Sequence", "id", "B", "type_id", 1));
    return json_pack("{s:s,s:o,s:o,s:o}", "type", "TemplateProcessing", "single", single, "pair",
                     pair, "special_tokens", tokens);
}

/* Other readers require every field. */
static json_t *file_of(const token_maker *m)
{
    json_t *o = json_pack("{s:s,s:n,s:n,s:O,s:n,s:n,s:o,s:n}", "version", "1.0", "truncation",
                          "padding", "added_tokens", m->list, "normalizer", "pre_tokenizer",
                          "post_processor", around_of(m), "decoder");
    json_t *parts = parts_of(m);
    json_object_update_missing_new(
        json_object_get(parts, "decoder"),
        json_pack("{s:b,s:b,s:b}", "add_prefix_space", 1, "trim_offsets", 1, "use_regex", 1));
    json_object_update_new(o, parts);
    json_object_set_new(o, "model",
                        json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:b,s:O,s:O}", "type", "BPE",
                                  "dropout", "unk_token", "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", 0, "byte_fallback", 0,
                                  "ignore_merges", m->kind >= KIND_TEKKEN, "vocab", m->vocab,
                                  "merges", m->merges));
    return o;
}

/* Its special tokens have the first ids. */
static af_status read_tekken(token_maker *m, const char *path, af_error *err)
{
    size_t i;
    json_t *text, *specials = json_array();
    m->vocab = json_object();
    const af_status st = af_tekken_read(m->vocab, m->merges, specials, &m->pattern, path, err);
    json_array_foreach(specials, i, text) add_token(m, text, (json_int_t)i, true);
    m->next = (json_int_t)(json_array_size(specials) + json_object_size(m->vocab));
    json_decref(specials);
    return st;
}

static af_status read_tiktoken(token_maker *m, const char *path, af_error *err)
{
    const char *name = json_string_value(json_object_get(m->config, "tokenizer_class"));
    m->kind = name && strcmp(name, "ChatGLM4Tokenizer") == 0 ? KIND_GLM4 : KIND_KIMI;
    if (m->kind == KIND_KIMI && (!name || strcmp(name, "TikTokenTokenizer") != 0))
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s is of tiktoken, and of its classes Moonshot's TikTokenTokenizer and "
                       "ChatGLM4Tokenizer are known, not '%.60s': save_pretrained of a fast "
                       "tokenizer of transformers writes tokenizer.json",
                       path, name ? name : "");
    m->vocab = json_object();
    const af_status st = af_tiktoken_read(m->vocab, m->merges, path, err);
    m->next = (json_int_t)json_object_size(m->vocab);
    return st;
}

/* The file that the folder has of those that have ranks; NULL: it has merges. */
static const char *ranks_file(const char *folder)
{
    static const char *const names[] = {"tekken.json", "tiktoken.model"};
    if (af_file_in(folder, "tokenizer.model"))
        return "tokenizer.model";
    if (af_file_in(folder, "merges.txt") && af_file_in(folder, "vocab.json"))
        return NULL;
    return names[!af_file_in(folder, names[0])];
}

static af_status read_model(token_maker *m, af_error *err)
{
    af_status st = AF_OK;
    const char *name = ranks_file(m->folder);
    char *path = name ? af_path_join(m->folder, name) : NULL;
    if (name) {
        const bool tekken = strcmp(name, "tekken.json") == 0;
        m->kind = tekken ? KIND_TEKKEN : KIND_KIMI;
        st = !path    ? af_fail_nomem(err, "a path", strlen(m->folder))
             : tekken ? read_tekken(m, path, err)
                      : read_tiktoken(m, path, err);
        goto done;
    }
    AF_TRY(find_class(m, err));
    AF_TRY(read_vocab(m, err));
    AF_TRY(read_merges(m, err));
done:
    free(path);
    return st;
}

static void maker_clear(token_maker *m)
{
    json_t *const all[] = {m->config, m->map,  m->added,   m->vocab,
                           m->merges, m->list, m->by_text, m->default_names};
    for (size_t i = 0; i < AF_LEN(all); i++)
        json_decref(all[i]);
    free(m->pattern);
}

af_status af_tokenizer_make(json_t **out, json_t **names, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    token_maker m = {.folder = folder,
                     .merges = json_array(),
                     .list = json_array(),
                     .by_text = json_object(),
                     .default_names = json_object()};
    AF_TRY(read_json(&m.config, folder, "tokenizer_config.json", err));
    if (!json_object_get(m.config, "added_tokens_decoder")) { /* older folders */
        AF_TRY(read_json(&m.map, folder, "special_tokens_map.json", err));
        AF_TRY(read_json(&m.added, folder, "added_tokens.json", err));
    }
    AF_TRY(read_model(&m, err));
    set_defaults(&m);
    AF_TRY(add_tokens(&m, err));
    json_t *made = file_of(&m);
    if (af_memory_failed()) {
        json_decref(made);
        AF_TRY(af_fail_nomem(err, "a tokenizer", 0));
    }
    *out = made;
    if (names)
        *names = json_incref(m.default_names);
done:
    maker_clear(&m);
    return st;
}
