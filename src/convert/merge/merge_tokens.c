/* merge_tokens.c - one vocabulary for models that differ in theirs.
 *
 * The new tokenizer is the base's, a model's, or the union: the base's with what the others add
 * after (words first, then added tokens). Every row of the new embedding has a token; a model that
 * knows it gives its own row, for the others what the config says, a row of the base, of the only
 * model that has it, or the mean stands in (merge_rows.c). */
#include "convert/merge/merge_run.h"

#include "base/hash.h"

enum { TOKENS_MAX = 1 << 24, PAD_MAX = 1 << 16 };

/* Token texts and ids of one model, for lookups by text. */
typedef struct table {
    const char **text;
    int32_t *id;
    uint64_t mask;
    int64_t count, top; /* highest id + 1 */
} table;

static af_status table_init(table *t, uint64_t want, af_arena *a, af_error *err)
{
    uint64_t size = 64;
    while (size < want * 2)
        size *= 2;
    *t = (table){.mask = size - 1};
    t->text = af_arena_take(a, size * sizeof *t->text);
    t->id = af_arena_take(a, size * sizeof *t->id);
    return t->text && t->id ? AF_OK : af_fail_nomem(err, "a vocabulary", size * 12);
}

static uint64_t place_of(const table *t, const char *s)
{
    uint64_t k = af_fnv1a(AF_FNV_START, s, strlen(s));
    while (t->text[k & t->mask] && strcmp(t->text[k & t->mask], s) != 0)
        k++;
    return k & t->mask;
}

static int32_t table_find(const table *t, const char *s)
{
    const uint64_t k = place_of(t, s);
    return t->text[k] ? t->id[k] : -1;
}

static void table_put(table *t, const char *s, int64_t id)
{
    const uint64_t k = place_of(t, s);
    if (id < 0 || id >= TOKENS_MAX)
        return;
    t->count += !t->text[k];
    t->text[k] = s;
    t->id[k] = (int32_t)id;
    t->top = AF_MAX(t->top, id + 1);
}

static const json_t *vocab_of(const json_t *tokenizer)
{
    return json_object_get(json_object_get(tokenizer, "model"), "vocab");
}

/* The strings live as long as the JSON. */
static af_status table_fill(table *t, const json_t *tokenizer, af_arena *a, af_error *err)
{
    const json_t *vocab = vocab_of(tokenizer), *added = json_object_get(tokenizer, "added_tokens");
    if (!json_is_object(vocab))
        return af_fail(err, AF_EUNSUPPORTED,
                       "a tokenizer.json whose vocabulary is not a map cannot be merged");
    const af_status st =
        table_init(t, json_object_size(vocab) + json_array_size(added) + 1, a, err);
    if (st != AF_OK)
        return st;
    for (void *it = json_object_iter((json_t *)vocab); it;
         it = json_object_iter_next((json_t *)vocab, it))
        table_put(t, json_object_iter_key(it), json_integer_value(json_object_iter_value(it)));
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *x = json_array_get(added, i);
        const char *s = json_string_value(json_object_get(x, "content"));
        if (s)
            table_put(t, s, json_integer_value(json_object_get(x, "id")));
    }
    return AF_OK;
}

/* ---- the union ---- */

/* Merges of a model whose result is new. */
static void add_merges(json_t *to, const json_t *from, const json_t *vocab_before)
{
    json_t *list = json_object_get(json_object_get(to, "model"), "merges");
    const json_t *more = json_object_get(json_object_get(from, "model"), "merges");
    for (size_t i = 0; i < json_array_size(more) && json_is_array(list); i++) {
        const json_t *m = json_array_get(more, i);
        char whole[1024];
        if (json_is_string(m)) {
            const char *s = json_string_value(m), *blank = strchr(s + 1, ' ');
            snprintf(whole, sizeof whole, "%.*s%s", (int)(blank ? blank - s : 0), s,
                     blank ? blank + 1 : "");
        } else {
            const char *a = json_string_value(json_array_get(m, 0));
            const char *b = json_string_value(json_array_get(m, 1));
            snprintf(whole, sizeof whole, "%s%s", a ? a : "", b ? b : "");
        }
        if (!json_object_get(vocab_before, whole))
            json_array_append(list, (json_t *)m);
    }
}

/* The entry of an added token, NULL when `text` is a plain word. */
static const json_t *find_added(const json_t *tokenizer, const char *text)
{
    const json_t *list = json_object_get(tokenizer, "added_tokens");
    for (size_t k = 0; k < json_array_size(list); k++) {
        const json_t *x = json_array_get(list, k);
        const char *s = json_string_value(json_object_get(x, "content"));
        if (s && strcmp(s, text) == 0)
            return x;
    }
    return NULL;
}

/* Added tokens, or words, that `from` has and `to` lacks, after what is there, in the order of
 * their ids. */
static af_status add_tokens(json_t *to, table *known, const json_t *from, bool added, af_arena *a,
                            af_error *err)
{
    af_status st = AF_OK;
    table theirs;
    json_t *vocab = (json_t *)vocab_of(to), *list = json_object_get(to, "added_tokens");
    json_t *before = json_copy(vocab);
    const char **by_id = NULL;
    bool new_words = false;
    AF_TRY(table_fill(&theirs, from, a, err));
    by_id = af_calloc((uint64_t)AF_MAX(theirs.top, 1), sizeof *by_id);
    if (!by_id || !before)
        AF_TRY(af_fail_nomem(err, "a vocabulary", (uint64_t)theirs.top * 8));
    for (uint64_t k = 0; k <= theirs.mask; k++)
        if (theirs.text[k] && table_find(known, theirs.text[k]) < 0)
            by_id[theirs.id[k]] = theirs.text[k];
    for (int64_t i = 0; i < theirs.top; i++) {
        const json_t *entry = by_id[i] ? find_added(from, by_id[i]) : NULL;
        if (!by_id[i] || !entry == added)
            continue;
        const int64_t id = known->top;
        if (entry) {
            json_t *copy = json_deep_copy(entry);
            json_object_set_new(copy, "id", json_integer(id));
            json_array_append_new(list, copy);
        } else {
            json_object_set_new(vocab, by_id[i], json_integer(id));
        }
        new_words |= !entry;
        table_put(known, by_id[i], id);
    }
    if (new_words)
        add_merges(to, from, before);
done:
    free(by_id);
    json_decref(before);
    return st;
}

/* Readers number added tokens after the words, unless they are among them: with words added after
 * them, they must be. */
static void pin_added(json_t *tokenizer)
{
    json_t *vocab = (json_t *)vocab_of(tokenizer);
    const json_t *added = json_object_get(tokenizer, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *x = json_array_get(added, i);
        const char *s = json_string_value(json_object_get(x, "content"));
        if (s && !json_object_get(vocab, s))
            json_object_set(vocab, s, json_object_get(x, "id"));
    }
}

/* Tokens that the config names and no tokenizer has. */
static af_status add_named(af_merge_tokens *k, table *known, const af_yaml *list, af_error *err)
{
    json_t *added = json_object_get(k->tokenizer, "added_tokens");
    for (int i = 0; list && list->kind == AF_YAML_MAP && i < list->count; i++) {
        if (table_find(known, list->key[i]) >= 0)
            continue;
        const char *text = af_arena_strdup(&k->arena, list->key[i]);
        if (!text)
            return af_fail_nomem(err, "a token", strlen(list->key[i]));
        json_array_append_new(added,
                              json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id",
                                        (json_int_t)known->top, "content", text, "single_word", 0,
                                        "lstrip", 0, "rstrip", 0, "normalized", 1, "special", 0));
        table_put(known, text, known->top);
    }
    return AF_OK;
}

/* ---- rows ---- */

static af_status wrong(const af_merge_run *r, const af_yaml *n, const char *what, af_error *err)
{
    return af_fail(err, AF_EUSAGE, "%s:%d: %s", r->config->file, n->line, what);
}

/* tokens: {"<tok>": {source: MODEL | {kind, model, token, token_id}, force}} */
static af_status read_choice(af_merge_tokens *k, const af_merge_run *r, const af_yaml *n,
                             int64_t row, const char *token, const table *tables, af_error *err)
{
    const af_yaml *source = af_yaml_get(n, "source"), *force = af_yaml_get(n, "force");
    const char *name = source && source->kind == AF_YAML_SCALAR ? source->text : NULL;
    const char *other = token;
    int64_t id = -1;
    bool yes = false;
    if (force && !af_yaml_bool(force, &yes))
        return wrong(r, force, "'force' is not true or false", err);
    k->force[row] = yes;
    if (source && source->kind == AF_YAML_MAP) {
        const af_yaml *kind = af_yaml_get(source, "kind"), *model = af_yaml_get(source, "model");
        const af_yaml *text = af_yaml_get(source, "token"), *num = af_yaml_get(source, "token_id");
        if (kind && kind->text && strcmp(kind->text, "zero") == 0) {
            k->from_model[row] = -2;
            return AF_OK;
        }
        name = model ? model->text : NULL;
        other = text && text->text ? text->text : token;
        if (num && !af_yaml_i64(num, &id))
            return wrong(r, num, "'token_id' is not a number", err);
    }
    const int m = name ? af_merge_config_model(r->config, name) : -1;
    if (!source)
        return AF_OK;
    if (m < 0)
        return wrong(r, source, "the token's source is not a model of this merge", err);
    id = id >= 0 ? id : table_find(&tables[m], other);
    if (id < 0 || id >= r->in[m]->config.vocab_size)
        return wrong(r, source, "the token's source model does not have it", err);
    k->from_model[row] = m;
    k->from_row[row] = (int32_t)id;
    return AF_OK;
}

static const af_yaml *named_tokens(const af_merge_run *r)
{
    return r->config->tokenizer ? af_yaml_get(r->config->tokenizer, "tokens") : NULL;
}

static af_status fill_rows(af_merge_tokens *k, const af_merge_run *r, const table *all,
                           const table *tables, af_error *err)
{
    af_status st = AF_OK;
    const uint64_t n = (uint64_t)k->rows, models = (uint64_t)r->config->models;
    k->map = af_arena_take(&k->arena, n * models * sizeof *k->map);
    k->from_model = af_arena_take(&k->arena, n * sizeof *k->from_model);
    k->from_row = af_arena_take(&k->arena, n * sizeof *k->from_row);
    k->force = af_arena_take(&k->arena, n);
    if (!k->map || !k->from_model || !k->from_row || !k->force)
        return af_fail_nomem(err, "the tokens of a merge", n * models * 4);
    memset(k->map, 0xff, n * models * sizeof *k->map);
    for (uint64_t p = 0; p <= all->mask; p++)
        for (int m = 0; all->text[p] && m < r->config->models; m++)
            if (all->id[p] < k->rows)
                k->map[m * k->rows + all->id[p]] = table_find(&tables[m], all->text[p]);
    memset(k->from_model, 0xff, n * sizeof *k->from_model);
    const af_yaml *list = named_tokens(r);
    if (list && !af_yaml_is_null(list) && list->kind != AF_YAML_MAP)
        return wrong(r, list, "'tokens' is not a map", err);
    for (int i = 0; list && i < list->count; i++) {
        const int32_t row = table_find(all, list->key[i]);
        if (row < 0 || list->item[i]->kind != AF_YAML_MAP)
            return wrong(r, list->item[i], "a token must be a map", err);
        AF_TRY(read_choice(k, r, list->item[i], row, list->key[i], tables, err));
    }
done:
    return st;
}

static af_status load_tokenizer(json_t **out, const af_model_reader *in, af_error *err)
{
    if (af_model_reader_is_gguf(in))
        return af_fail(err, AF_EUNSUPPORTED,
                       "'%s' is a GGUF file: merging tokenizers needs model folders", in->path);
    const af_status st = af_tokenizer_json_read(out, in->path, err);
    if (st == AF_OK && !*out)
        return af_fail(err, AF_EFORMAT, "'%s' has no tokenizer.json", in->path);
    return st;
}

/* A tokenizer of a model that is not merged itself. */
static af_status open_outside(af_merge_tokens *k, const af_merge_run *r, af_error *err)
{
    const char *source = r->config->tokenizer_source;
    af_error why = {0};
    char *found = NULL;
    if (af_model_resolve(&found, source, &why) == AF_OK && af_dir_exists(found))
        k->text_dir = af_arena_strdup(&k->arena, found);
    free(found);
    if (why.code == AF_ENOMEM || af_memory_failed())
        return af_fail(err, AF_ENOMEM, "%s", *why.msg ? why.msg : "not enough memory");
    const af_status st =
        k->text_dir ? af_tokenizer_json_read(&k->tokenizer, k->text_dir, err) : AF_OK;
    if (st != AF_OK)
        return st;
    if (!k->tokenizer)
        return af_fail(err, AF_EUSAGE,
                       "%s: tokenizer source '%.100s' is not union, base, a model of this merge, "
                       "or a folder with a tokenizer.json",
                       r->config->file, source);
    k->text_model = r->config->base >= 0 ? r->config->base : 0;
    return AF_OK;
}

/* The new tokenizer: `source` is union, base, or a model. */
static af_status build(af_merge_tokens *k, const af_merge_run *r, json_t *const *json, table *all,
                       af_error *err)
{
    af_status st = AF_OK;
    const char *source = r->config->tokenizer_source;
    const bool is_union = strcmp(source, "union") == 0;
    const int base = r->config->base >= 0 ? r->config->base : 0;
    k->text_model =
        is_union || strcmp(source, "base") == 0 ? base : af_merge_config_model(r->config, source);
    if (k->text_model < 0)
        AF_TRY(open_outside(k, r, err));
    else
        k->tokenizer = json_deep_copy(json[k->text_model]);
    if (!k->tokenizer)
        return af_fail_nomem(err, "a tokenizer", 0);
    const af_yaml *named = named_tokens(r);
    uint64_t most = 1 + (uint64_t)(named ? named->count : 0) +
                    json_object_size(vocab_of(k->tokenizer)) +
                    json_array_size(json_object_get(k->tokenizer, "added_tokens"));
    for (int m = 0; m < r->config->models; m++)
        most += json_object_size(vocab_of(json[m])) +
                json_array_size(json_object_get(json[m], "added_tokens"));
    AF_TRY(table_init(all, most, &k->arena, err));
    table own;
    AF_TRY(table_fill(&own, k->tokenizer, &k->arena, err));
    for (uint64_t p = 0; p <= own.mask; p++)
        if (own.text[p])
            table_put(all, own.text[p], own.id[p]);
    const size_t words = json_object_size(vocab_of(k->tokenizer));
    for (int added = 0; is_union && added < 2; added++)
        for (int m = 0; m < r->config->models; m++)
            if (m != k->text_model)
                AF_TRY(add_tokens(k->tokenizer, all, json[m], added, &k->arena, err));
    if (json_object_size(vocab_of(k->tokenizer)) > words)
        pin_added(k->tokenizer);
    AF_TRY(add_named(k, all, named, err));
    k->used = k->rows = all->top;
    const af_yaml *pad =
        r->config->tokenizer ? af_yaml_get(r->config->tokenizer, "pad_to_multiple_of") : NULL;
    int64_t multiple = 1;
    if (pad && !af_yaml_is_null(pad) &&
        (!af_yaml_i64(pad, &multiple) || multiple < 1 || multiple > PAD_MAX))
        return wrong(r, pad, "'pad_to_multiple_of' is not a number from 1 to 65536", err);
    k->rows = (k->rows + multiple - 1) / multiple * multiple;
done:
    return st;
}

af_status af_merge_tokens_init(af_merge_tokens *k, const af_merge_run *r, af_error *err)
{
    af_status st = AF_OK;
    json_t *json[AF_MERGE_MODELS_MAX] = {0};
    table tables[AF_MERGE_MODELS_MAX], all;
    k->text_model = r->config->base >= 0 ? r->config->base : r->config->slice[0].source[0].model;
    if (!r->config->tokenizer_source)
        return AF_OK;
    for (int m = 0; m < r->config->models; m++) {
        AF_TRY(load_tokenizer(&json[m], r->in[m], err));
        AF_TRY(table_fill(&tables[m], json[m], &k->arena, err));
    }
    AF_TRY(build(k, r, json, &all, err));
    AF_TRY(fill_rows(k, r, &all, tables, err));
    k->active = true;
done:
    for (int m = 0; m < AF_MERGE_MODELS_MAX; m++)
        json_decref(json[m]);
    return st;
}

void af_merge_tokens_clear(af_merge_tokens *k)
{
    json_decref(k->tokenizer);
    af_arena_clear(&k->arena);
    *k = (af_merge_tokens){0};
}
