/* tokenizer_load.c - opening and closing a tokenizer; settings from the config files. */
#include "format/config/hf_config.h"
#include "format/tokenizer/sentencepiece.h"
#include "format/tokenizer/tokenizer.h"
#include "format/tokenizer/tokenizer_make.h"
#include "format/weights/gguf.h"

#include "base/file.h"

enum { CONFIG_MAX = 64 << 20, STOPS_MAX = 64 };

af_status af_tokenizer_new(af_tokenizer **out, af_error *err)
{
    af_tokenizer *t = af_calloc(1, sizeof *t);
    if (t)
        t->unicode = af_calloc(1, sizeof *t->unicode);
    if (!t || !t->unicode) {
        free(t);
        return af_fail_nomem(err, "a tokenizer", sizeof *t);
    }
    if (pthread_mutex_init(&t->lock, NULL) != 0) {
        free(t->unicode);
        free(t);
        return af_fail(err, AF_ENOMEM, "cannot create a lock");
    }
    af_unicode_init(t->unicode);
    t->bos = t->eos = t->pad = t->unk = -1;
    *out = t;
    return AF_OK;
}

static void work_free(af_work *w)
{
    free(w->norm[0].text);
    free(w->norm[0].align);
    free(w->norm[1].text);
    free(w->norm[1].align);
    for (int i = 0; i < AF_PARTS_MAX; i++) {
        free(w->pre[i].text);
        free(w->pre[i].align);
    }
    free(w->segment);
    af_regex_work_free(w->regex);
    free(w->symbol);
    free(w->heap);
    free(w->best);
    af_buf_clear(&w->word);
    free(w->cps);
    free(w->slot);
    free(w->words);
    free(w);
}

void af_tokenizer_close(af_tokenizer *t)
{
    if (!t)
        return;
    while (t->idle) {
        af_work *w = t->idle;
        t->idle = w->next;
        work_free(w);
    }
    for (int i = 0; i < AF_PARTS_MAX; i++) {
        af_regex_free(t->norm[i].regex);
        af_regex_free(t->pre[i].regex);
        af_regex_free(t->dec[i].regex);
    }
    af_vocab_clear(&t->vocab);
    af_vocab_clear(&t->added_vocab);
    free(t->model.merge);
    free(t->model.score);
    af_trie_clear(&t->model.trie);
    af_trie_clear(&t->model.user);
    af_trie_clear(&t->raw.trie);
    af_trie_clear(&t->normalized.trie);
    free(t->added);
    free(t->added_at);
    free(t->stops);
    free(t->unicode);
    af_arena_clear(&t->arena);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

int32_t af_token_id_of(const af_json_value *v)
{
    const bool valid = v->type == AF_JSON_NUMBER && v->number >= 0 &&
                       v->number < AF_TOKENIZER_ID_MAX && v->number == (double)(int32_t)v->number;
    return valid ? (int32_t)v->number : -1;
}

af_added af_added_of(const af_json_value *v, bool special)
{
    special = af_json_bool(v, "special", special);
    return (af_added){.content = af_str_of(af_json_get(v, "content")),
                      .single_word = af_json_bool(v, "single_word", false),
                      .lstrip = af_json_bool(v, "lstrip", false),
                      .rstrip = af_json_bool(v, "rstrip", false),
                      .normalized = af_json_bool(v, "normalized", !special),
                      .special = special};
}

static af_status read_added(af_tokenizer *t, const af_json_value *list, af_error *err)
{
    af_status st = AF_OK;
    if (list->type == AF_JSON_NONE || list->type == AF_JSON_NULL)
        return AF_OK;
    if (list->type != AF_JSON_ARRAY)
        return af_fail(err, AF_EFORMAT, "added_tokens is not a list");
    for (const af_json_value *v = list->item; v; v = v->next) {
        const int32_t id = af_token_id_of(af_json_get(v, "id"));
        if (id < 0 || af_json_get(v, "content")->type != AF_JSON_STRING)
            return af_fail(err, AF_EFORMAT, "an added token has no content or no valid id");
        AF_TRY(af_added_insert(t, af_added_of(v, false), id, err));
    }
done:
    return st;
}

/* All but af_added_build. */
static af_status parse_json(af_tokenizer *t, const char *json, uint64_t len, af_error *err)
{
    static const char *const keys[] = {"vocab", "merges", NULL};
    af_status st = AF_OK;
    af_json_value root;
    const af_json_raw raw = {keys, af_merges_read_early, t};
    AF_TRY(af_json_tree_parse(&root, &t->arena, json, len, &raw, err));
    if (root.type != AF_JSON_OBJECT)
        return af_fail(err, AF_EFORMAT, "tokenizer.json is not an object");
    AF_TRY(af_parts_parse(t, &root, err));
    AF_TRY(af_model_parse(t, af_json_get(&root, "model"), err));
    AF_TRY(af_model_finish(t, err));
    AF_TRY(read_added(t, af_json_get(&root, "added_tokens"), err));
done:
    return st;
}

af_status af_tokenizer_from_json(af_tokenizer **out, const char *json, uint64_t len, af_error *err)
{
    AF_NEED(err, out, json || !len);
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    AF_TRY(af_tokenizer_new(&t, err));
    AF_TRY(parse_json(t, json, len, err));
    AF_TRY(af_added_build(t, err));
    *out = t;
    t = NULL;
done:
    af_tokenizer_close(t);
    return st;
}

/* "bos_token": "..." or {"content": "..."}. */
static void read_named(af_tokenizer *t, const af_json_value *config, const char *key, af_str *text,
                       int32_t *id)
{
    const af_json_value *v = af_json_get(config, key);
    if (v->type == AF_JSON_OBJECT)
        v = af_json_get(v, "content");
    if (v->type != AF_JSON_STRING)
        return;
    char *copy = af_arena_strndup(&t->arena, v->text, v->len);
    if (!copy)
        return;
    *text = (af_str){copy, (uint32_t)v->len};
    *id = af_tokenizer_id(t, copy, v->len);
}

af_status af_tokenizer_add_stop(af_tokenizer *t, double id, af_error *err)
{
    if (!(id >= 0 && id < AF_TOKENIZER_ID_MAX) || t->stop_count >= STOPS_MAX)
        return AF_OK;
    for (int i = 0; i < t->stop_count; i++)
        if (t->stops[i] == (int32_t)id)
            return AF_OK;
    int32_t *grown = af_realloc(t->stops, (uint64_t)t->stop_count + 1, sizeof *grown);
    if (!grown)
        return af_fail_nomem(err, "the stop tokens", sizeof *grown);
    t->stops = grown;
    t->stops[t->stop_count++] = (int32_t)id;
    return AF_OK;
}

static af_status read_stops(af_tokenizer *t, const af_json_value *config, af_error *err)
{
    af_status st = AF_OK;
    const af_json_value *v = af_json_get(config, "eos_token_id");
    if (v->type == AF_JSON_NUMBER)
        return af_tokenizer_add_stop(t, v->number, err);
    for (const af_json_value *i = v->type == AF_JSON_ARRAY ? v->item : NULL; i; i = i->next)
        if (i->type == AF_JSON_NUMBER)
            AF_TRY(af_tokenizer_add_stop(t, i->number, err));
done:
    return st;
}

af_status af_tokenizer_surround(af_tokenizer *t, bool bos, bool eos, af_error *err)
{
    if (!bos && !eos)
        return AF_OK;
    int32_t *ids = af_arena_take(&t->arena, 3 * sizeof *ids);
    if (!ids)
        return af_fail_nomem(err, "a template", 3 * sizeof *ids);
    af_post *p = &t->post[t->posts++];
    *p = (af_post){.kind = AF_POST_TEMPLATE, .ids = ids};
    if (bos)
        ids[p->count++] = t->bos;
    ids[p->count++] = AF_POST_TEXT;
    if (eos)
        ids[p->count++] = t->eos;
    return AF_OK;
}

af_status af_tokenizer_config(af_tokenizer *t, af_json_value *v, const char *folder,
                              const char *name, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL, *path = af_path_join(folder, name);
    uint64_t len;
    *v = (af_json_value){0};
    if (!path)
        return af_fail_nomem(err, "a path", strlen(folder));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(af_file_read(&text, &len, path, CONFIG_MAX, err));
    st = af_json_tree_parse(v, &t->arena, text, len, NULL, err);
    if (st == AF_OK && v->type != AF_JSON_OBJECT)
        st = af_fail(err, AF_EFORMAT, "not an object");
    if (st != AF_OK)
        af_fail_prefix(st, err, "%s", path);
done:
    free(text);
    free(path);
    return st;
}

static void read_names(af_tokenizer *t, const af_json_value *v)
{
    read_named(t, v, "bos_token", &t->bos_text, &t->bos);
    read_named(t, v, "eos_token", &t->eos_text, &t->eos);
    read_named(t, v, "pad_token", &t->pad_text, &t->pad);
    read_named(t, v, "unk_token", &t->unk_text, &t->unk);
}

af_status af_tokenizer_read_configs(af_tokenizer *t, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    af_json_value v, map;
    AF_TRY(af_tokenizer_config(t, &v, folder, "tokenizer_config.json", err));
    read_names(t, &v);
    /* older folders keep the names here, and transformers lets them win */
    if (af_json_get(&v, "added_tokens_decoder")->type == AF_JSON_NONE) {
        AF_TRY(af_tokenizer_config(t, &map, folder, "special_tokens_map.json", err));
        read_names(t, &map);
    }
    if (t->eos >= 0)
        AF_TRY(af_tokenizer_add_stop(t, t->eos, err));
    AF_TRY(af_tokenizer_config(t, &v, folder, "generation_config.json", err));
    AF_TRY(read_stops(t, &v, err));
    AF_TRY(af_tokenizer_config(t, &v, folder, "config.json", err));
    AF_TRY(read_stops(t, &v, err));
done:
    return st;
}

/* What the files next to tokenizer.json add to it. */
static af_status read_files(af_tokenizer *t, const char *folder, af_error *err)
{
    af_json_value config;
    af_status st = af_tokenizer_config(t, &config, folder, "tokenizer_config.json", err);
    if (st == AF_OK) {
        st = af_added_read_files(t, &config, folder, false, err);
        if (st != AF_OK)
            af_fail_prefix(st, err, "%s", folder);
    }
    return st;
}

static af_status open_json(af_tokenizer **out, const char *path, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    af_map map = {0};
    af_tokenizer *t = NULL;
    AF_TRY(af_map_open(&map, path, err));
    AF_TRY(af_tokenizer_new(&t, err));
    st = parse_json(t, (const char *)map.data, map.size, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", path);
        goto done;
    }
    if (folder)
        AF_TRY(read_files(t, folder, err));
    AF_TRY(af_added_build(t, err));
    if (folder)
        AF_TRY(af_tokenizer_read_configs(t, folder, err));
    *out = t;
    t = NULL;
done:
    af_tokenizer_close(t);
    af_map_close(&map);
    return st;
}

static void name_default(af_tokenizer *t, const json_t *names, const char *key, af_str *text,
                         int32_t *id)
{
    const char *s = json_string_value(json_object_get(names, key));
    const int32_t found = s ? af_tokenizer_id(t, s, strlen(s)) : -1;
    if (found < 0)
        return;
    *id = found;
    text->s = af_tokenizer_token(t, found, NULL);
    text->n = (uint32_t)strlen(s);
}

/* Of a folder that has neither tokenizer.json nor tokenizer.model. */
static af_status open_made(af_tokenizer **out, const char *folder, af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    json_t *made = NULL, *names = NULL;
    char *text = NULL;
    AF_TRY(af_tokenizer_make(&made, &names, folder, err));
    text = af_json_dump(made, JSON_COMPACT);
    if (!text)
        AF_TRY(af_fail_nomem(err, "a tokenizer", 0));
    st = af_tokenizer_from_json(&t, text, strlen(text), err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", folder);
        goto done;
    }
    AF_TRY(af_tokenizer_read_configs(t, folder, err));
    name_default(t, names, "bos_token", &t->bos_text, &t->bos);
    name_default(t, names, "eos_token", &t->eos_text, &t->eos);
    name_default(t, names, "unk_token", &t->unk_text, &t->unk);
    name_default(t, names, "pad_token", &t->pad_text, &t->pad);
    if (t->eos >= 0)
        AF_TRY(af_tokenizer_add_stop(t, t->eos, err));
    *out = t;
    t = NULL;
done:
    af_tokenizer_close(t);
    json_decref(made);
    json_decref(names);
    free(text);
    return st;
}

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n > m && strcmp(s + n - m, end) == 0;
}

static af_status open_found(af_tokenizer **out, const char *path, af_error *err)
{
    if (!af_dir_exists(path)) {
        if (af_gguf_is_file(path))
            return af_tokenizer_from_gguf(out, path, err);
        return ends_with(path, ".model") ? af_tokenizer_from_pieces(out, path, NULL, err)
                                         : open_json(out, path, NULL, err);
    }
    af_status st = AF_OK;
    char *json = af_path_join(path, "tokenizer.json"),
         *pieces = af_path_join(path, "tokenizer.model");
    if (!json || !pieces)
        st = af_fail_nomem(err, "a path", strlen(path));
    else if (af_file_exists(json))
        st = open_json(out, json, path, err);
    else if (af_tokenizer_can_make(path))
        st = open_made(out, path, err);
    else if (af_file_exists(pieces))
        st = af_tokenizer_from_pieces(out, pieces, path, err);
    else
        st = af_fail(err, AF_EIO,
                     "%s has neither tokenizer.json nor tokenizer.model nor vocab.json with "
                     "merges.txt nor tekken.json: save_pretrained of a fast tokenizer of "
                     "transformers writes the "
                     "first",
                     path);
    free(json);
    free(pieces);
    return st;
}

af_status af_tokenizer_open(af_tokenizer **out, const char *path, af_error *err)
{
    AF_NEED(err, out, path);
    char *found = NULL;
    af_status st = af_model_resolve(&found, path, err);
    if (st == AF_OK)
        st = open_found(out, found, err);
    free(found);
    return st;
}

int32_t af_tokenizer_id(const af_tokenizer *t, const char *token, uint64_t len)
{
    if (!t || !token)
        return -1;
    const int32_t id = af_vocab_find(&t->added_vocab, token, len);
    return id >= 0 ? id : af_vocab_find(&t->vocab, token, len);
}

static const af_added *added_of(const af_tokenizer *t, int32_t id)
{
    const bool added = t && id >= 0 && id < t->added_at_count && t->added_at[id] >= 0;
    return added ? &t->added[t->added_at[id]] : NULL;
}

const char *af_tokenizer_token(const af_tokenizer *t, int32_t id, uint64_t *len)
{
    af_str s = {0};
    const af_added *a = added_of(t, id);
    if (a)
        s = a->shown;
    if (!s.s && t && id >= 0 && id < t->vocab.count)
        s = t->vocab.token[id];
    if (len)
        *len = s.n;
    return s.s;
}

int32_t af_tokenizer_vocab_size(const af_tokenizer *t)
{
    return t ? AF_MAX(t->vocab.count, t->added_vocab.count) : 0;
}

bool af_tokenizer_is_special(const af_tokenizer *t, int32_t id)
{
    const af_added *a = added_of(t, id);
    return a && a->special;
}

bool af_token_skipped(const af_tokenizer *t, int32_t id)
{
    const af_added *a = added_of(t, id);
    return a && a->skipped;
}

bool af_tokenizer_is_added(const af_tokenizer *t, int32_t id) { return added_of(t, id) != NULL; }

int32_t af_tokenizer_bos(const af_tokenizer *t) { return t ? t->bos : -1; }
int32_t af_tokenizer_eos(const af_tokenizer *t) { return t ? t->eos : -1; }
int32_t af_tokenizer_pad(const af_tokenizer *t) { return t ? t->pad : -1; }
int32_t af_tokenizer_unk(const af_tokenizer *t) { return t ? t->unk : -1; }
const char *af_tokenizer_bos_text(const af_tokenizer *t) { return t ? t->bos_text.s : NULL; }
const char *af_tokenizer_eos_text(const af_tokenizer *t) { return t ? t->eos_text.s : NULL; }
const char *af_tokenizer_pad_text(const af_tokenizer *t) { return t ? t->pad_text.s : NULL; }
const char *af_tokenizer_unk_text(const af_tokenizer *t) { return t ? t->unk_text.s : NULL; }

const int32_t *af_tokenizer_stops(const af_tokenizer *t, int *count)
{
    if (count)
        *count = t ? t->stop_count : 0;
    return t ? t->stops : NULL;
}
