/* run_tokens.c - see run_tokens.h. */
#include "train/step/run_tokens.h"

#include "base/file.h"
#include "convert/export.h"
#include "data/render/renderer.h"
#include "format/chat/chat_template.h"
#include "format/config/hf_config.h"
#include "format/hub/hub_name.h"
#include "model/adapter_config.h"
#include "model/adapter_texts.h"
#include "train/run/freeze.h"

enum { EDITS_MAX = 1 << 16, ROWS_STEP = 32 };

/* ---- keys ---- */

typedef struct edit_list {
    af_token_edit *item;
    int count, cap;
} edit_list;

static af_status wrong(const af_run_config *r, const char *key, af_error *err, const char *what)
{
    char at[300];
    return af_fail(err, AF_EUSAGE, "%s: %s", af_run_key_loc(r, key, at, sizeof at), what);
}

static af_status add(edit_list *l, af_token_edit e, const af_run_config *r, const char *key,
                     af_error *err)
{
    if (!e.text || !*e.text)
        return wrong(r, key, err, "a token has no text");
    if (l->count == l->cap)
        return wrong(r, key, err, "there are too many tokens");
    l->item[l->count++] = e;
    return AF_OK;
}

static af_status add_named(edit_list *l, const af_run_config *r, int i, af_error *err)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                        "sep_token", "cls_token", "mask_token"};
    const char *key = r->special_tokens->key[i];
    const af_yaml *v = r->special_tokens->item[i];
    char text[200];
    for (size_t k = 0; k < AF_LEN(names); k++)
        if (strcmp(names[k], key) == 0) {
            if (af_yaml_is_null(v))
                return AF_OK;
            if (v->kind != AF_YAML_SCALAR)
                break;
            return add(l, (af_token_edit){.name = names[k], .text = v->text, .special = true}, r,
                       "special_tokens", err);
        }
    snprintf(text, sizeof text,
             "special_tokens has '%.60s', which is not one of bos_token, eos_token, pad_token, "
             "unk_token, additional_special_tokens with its text",
             key);
    return wrong(r, "special_tokens", err, text);
}

static af_status add_listed(edit_list *l, const af_run_config *r, const af_yaml *list,
                            af_error *err)
{
    af_status st = AF_OK;
    if (!list || af_yaml_is_null(list))
        return AF_OK;
    if (list->kind != AF_YAML_LIST)
        return wrong(r, "special_tokens", err, "additional_special_tokens is not a list");
    for (int i = 0; i < list->count && st == AF_OK; i++)
        st = add(l, (af_token_edit){.text = list->item[i]->text, .special = true, .listed = true},
                 r, "special_tokens", err);
    return st;
}

/* setup_chat_format of TRL, which the alignment handbook calls for a model without a template. */
static const af_token_edit chatml_tokens[] = {
    {.name = "bos_token", .text = "<|im_start|>", .special = true, .listed = true},
    {.name = "eos_token", .text = "<|im_end|>", .special = true, .listed = true},
    {.name = "pad_token", .text = "<|im_end|>", .special = true}};

static bool takes_chatml(const af_run_config *r, const char *model)
{
    af_template *t = NULL;
    if (!r->setup_chat_format || !af_renderer_own_template(r->chat_template))
        return false;
    const bool has = af_template_open(&t, model, NULL) == AF_OK;
    af_template_close(t);
    return !has;
}

/* ---- the tokenizer or the template of another model ---- */

/* The folder of the model that a key names; of one on the hub, its tokenizer alone. */
static af_status find_source(char **path, const char *name, af_error *err)
{
    static const char *const texts[] = {"tokenizer*",  "special_tokens_map.json",
                                        "*.jinja",     "added_tokens.json",
                                        "vocab.json",  "merges.txt",
                                        "tekken.json", "tiktoken.model"};
    return af_path_is_taken(name) || !af_hub_is_name(name)
               ? af_model_resolve(path, name, err)
               : af_hub_snapshot(path, AF_HUB_MODEL, name, NULL, texts, (int)AF_LEN(texts), err);
}

/* The folder of tokenizer_config. *path: free(). */
static af_status find_tokenizer(char **path, const af_run_config *r, af_error *err)
{
    char at[300];
    af_status st = find_source(path, r->tokenizer_config, err);
    if (st == AF_OK && (!af_dir_exists(*path) || !af_folder_has_tokenizer(*path)))
        st = af_fail(err, AF_EUSAGE, "'%s' has no tokenizer files: a folder or org/name is wanted",
                     r->tokenizer_config);
    return st == AF_OK ? AF_OK
                       : af_fail_prefix(st, err, "%s: tokenizer_config",
                                        af_run_key_loc(r, "tokenizer_config", at, sizeof at));
}

/* The tokens of that model as edits, after those of the run file. *source: free(). */
static af_status clone_tokens(edit_list *l, af_arena *arena, char **source, const af_run_config *r,
                              const char *model, af_error *err)
{
    af_tokenizer *t = NULL, *from = NULL;
    af_template *chat = NULL;
    af_token_edit *more = NULL;
    int n = 0;
    char at[300];
    af_status st = AF_OK;
    AF_TRY(af_tokenizer_open(&t, model, err));
    st = find_source(source, r->chat_template_path, err);
    if (st == AF_OK)
        st = af_tokenizer_open(&from, *source, err);
    if (st == AF_OK)
        st = af_template_open(&chat, *source, err);
    if (st != AF_OK) {
        af_fail_prefix(st, err, "%s", af_run_key_loc(r, "chat_template_path", at, sizeof at));
        goto done;
    }
    AF_TRY(af_token_edits_clone(&more, &n, arena, t, from, err));
    af_token_edit *all = af_arena_take(arena, (uint64_t)(l->count + n + 1) * sizeof *all);
    if (!all)
        AF_TRY(af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *all));
    memcpy(all, l->item, (uint64_t)l->count * sizeof *all);
    memcpy(all + l->count, more, (uint64_t)n * sizeof *all);
    *l = (edit_list){all, l->count + n, l->count + n};
done:
    af_template_close(chat);
    af_tokenizer_close(t);
    af_tokenizer_close(from);
    return st;
}

/* Into a folder: the template of another one, or one of ours. */
static af_status put_template(const char *dir, const char *source, const char *name, af_error *err)
{
    af_template *t = NULL;
    bool bare;
    uint64_t len = 0;
    af_status st = af_renderer_template(&t, &bare, source, name, err);
    if (st != AF_OK)
        return st;
    const char *text = af_template_source(t, &len);
    st = af_template_put(dir, text, len, err);
    af_template_close(t);
    return st;
}

static uint64_t edits_most(const af_run_config *r)
{
    const af_yaml *s = r->special_tokens;
    const af_yaml *list =
        s && s->kind == AF_YAML_MAP ? af_yaml_get(s, "additional_special_tokens") : NULL;
    return 2 + AF_LEN(chatml_tokens) + (uint64_t)(s ? s->count : 0) +
           (uint64_t)(list ? list->count : 0) + (uint64_t)r->tokens.count +
           (uint64_t)r->add_special_tokens.count;
}

/* In the order in which Axolotl gives ids: named ones, plain ones, the list of special ones. */
static af_status read_edits(edit_list *l, const af_run_config *r, bool chatml, af_arena *arena,
                            af_error *err)
{
    af_status st = AF_OK;
    const af_yaml *s = r->special_tokens;
    static const char additional[] = "additional_special_tokens";
    l->cap = (int)AF_MIN(edits_most(r), EDITS_MAX);
    l->item = af_arena_take(arena, (uint64_t)AF_MAX(l->cap, 1) * sizeof *l->item);
    if (!l->item)
        return af_fail_nomem(err, "the new tokens", (uint64_t)l->cap * sizeof *l->item);
    if (s && s->kind != AF_YAML_MAP)
        return wrong(r, "special_tokens", err, "special_tokens is not a map of names and tokens");
    for (size_t i = 0; chatml && i < AF_LEN(chatml_tokens); i++)
        AF_TRY(add(l, chatml_tokens[i], r, "setup_chat_format", err));
    for (int i = 0; s && i < s->count; i++)
        if (strcmp(s->key[i], additional) != 0)
            AF_TRY(add_named(l, r, i, err));
    if (r->eos_token)
        AF_TRY(add(l, (af_token_edit){.name = "eos_token", .text = r->eos_token, .special = true},
                   r, "eos_token", err));
    if (r->pad_token)
        AF_TRY(add(l, (af_token_edit){.name = "pad_token", .text = r->pad_token, .special = true},
                   r, "pad_token", err));
    for (int i = 0; i < r->tokens.count; i++)
        AF_TRY(add(l, (af_token_edit){.text = r->tokens.item[i]}, r, "tokens", err));
    AF_TRY(add_listed(l, r, s ? af_yaml_get(s, additional) : NULL, err));
    for (int i = 0; i < r->add_special_tokens.count; i++)
        AF_TRY(add(
            l,
            (af_token_edit){.text = r->add_special_tokens.item[i], .special = true, .listed = true},
            r, "add_special_tokens", err));
done:
    return st;
}

/* ---- the folder ---- */

/* Of a folder: its tokenizer, and with `configs` the two that name its special tokens, too. */
static af_status copy_texts(const char *from, const char *to, bool configs, af_error *err)
{
    static const char *const names[] = {"config.json",       "generation_config.json",
                                        "tokenizer.json",    "tokenizer_config.json",
                                        "tokenizer.model",   "special_tokens_map.json",
                                        "added_tokens.json", "chat_template.jinja",
                                        "vocab.json",        "merges.txt",
                                        "tekken.json",       "tiktoken.model"};
    af_status st = AF_OK;
    for (size_t i = configs ? 0 : 2; i < AF_LEN(names) && st == AF_OK; i++) {
        char *old = af_path_join(to, names[i]);
        if (!configs && old && af_file_exists(old)) /* one tokenizer, not files of two */
            st = af_path_remove(old, err);
        free(old);
        if (st == AF_OK)
            st = af_file_copy_into(from, to, names[i], err);
    }
    return st;
}

static char *temp_name(void)
{
    const char *where = getenv("TMPDIR");
    char *base = af_path_join(where && *where ? where : "/tmp", "afinar-tokens");
    char *name = base ? af_path_temp(base, "tmp") : NULL;
    if (base)
        af_path_sweep(base);
    free(base);
    return name;
}

/* The texts of the model, and over them those of an adapter, or another tokenizer. */
static af_status make_dir(af_run_tokens *t, const char *model, const char *own, const char *other,
                          af_error *err)
{
    af_status st = AF_OK;
    const char *name = af_path_name(model);
    const bool plain = af_dir_exists(model) && *name && *name != '.';
    t->root = temp_name();
    t->dir = t->root ? af_path_join(t->root, plain ? name : "model") : NULL;
    if (!t->dir)
        return af_fail_nomem(err, "a path", strlen(model));
    AF_TRY(af_dir_make(t->root, err));
    if (af_dir_exists(model)) {
        AF_TRY(af_dir_make(t->dir, err));
        AF_TRY(copy_texts(model, t->dir, true, err));
    } else {
        AF_TRY(af_export_texts(model, t->dir, err));
    }
    if (own)
        AF_TRY(copy_texts(own, t->dir, true, err));
    if (other)
        AF_TRY(copy_texts(other, t->dir, false, err));
    if (other)
        AF_TRY(af_token_ids_align(t->dir, err));
done:
    return st;
}

static int by_id(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool has_id(const int64_t *ids, int64_t n, int64_t id)
{
    while (n > 0 && ids[n - 1] != id)
        n--;
    return n > 0;
}

/* More rows that are trained as those of new tokens. */
static af_status add_used(af_run_tokens *t, const int64_t *ids, int64_t n, af_error *err)
{
    af_token_edits *e = &t->edits;
    int64_t *used = af_arena_take(&t->arena, (uint64_t)(n + e->used_count + 1) * sizeof *used);
    if (!used)
        return af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *used);
    for (int i = 0; i < e->used_count; i++)
        used[i] = e->used[i];
    for (int64_t i = 0; i < n; i++)
        if (!has_id(used, e->used_count, ids[i]))
            used[e->used_count++] = ids[i];
    qsort(used, (size_t)e->used_count, sizeof *used, by_id);
    e->used = used;
    return AF_OK;
}

/* Rows that the model does not have for ids of another tokenizer are new ones. */
static af_status count_rows(af_run_tokens *t, const char *model, af_error *err)
{
    af_status st = AF_OK;
    af_hf_config c = {0};
    const af_token_edits *e = &t->edits;
    if (af_dir_exists(model) && !af_file_in(model, "config.json"))
        return AF_OK; /* a folder of texts alone */
    AF_TRY(af_model_config(&c, model, err));
    const int64_t missing = AF_MAX(e->size - e->added - c.vocab_size, 0);
    int64_t *ids = af_arena_take(&t->arena, (uint64_t)(missing + 1) * sizeof *ids);
    if (!ids)
        AF_TRY(af_fail_nomem(err, "the new tokens", (uint64_t)missing * sizeof *ids));
    for (int64_t i = 0; i < missing; i++)
        ids[i] = c.vocab_size + i;
    AF_TRY(add_used(t, ids, missing, err));
    if (e->size > c.vocab_size)
        t->vocab = e->size;
done:
    af_hf_config_clear(&c);
    return st;
}

/* added_tokens_overrides, in the folder. *ids: their rows, of the arena. */
static af_status rename_tokens(af_run_tokens *t, int64_t **ids, const af_run_config *r,
                               af_error *err)
{
    static const char key[] = "added_tokens_overrides";
    const af_yaml *map = r->token_overrides;
    char at[300];
    if (map->kind != AF_YAML_MAP || map->count > EDITS_MAX)
        return wrong(r, key, err, "added_tokens_overrides is not a map of ids and their texts");
    if (!(*ids = af_arena_take(&t->arena, (uint64_t)(map->count + 1) * sizeof **ids)))
        return af_fail_nomem(err, "the new tokens", (uint64_t)map->count * sizeof **ids);
    for (int i = 0; i < map->count; i++) {
        const af_yaml id = {.kind = AF_YAML_SCALAR, .text = map->key[i]}, *text = map->item[i];
        if (!af_yaml_i64(&id, &(*ids)[i]) || text->kind != AF_YAML_SCALAR || !*text->text)
            return wrong(r, key, err, "added_tokens_overrides is not a map of ids and their texts");
        const af_status st = af_token_rename(t->dir, (*ids)[i], text->text, err);
        if (st != AF_OK)
            return af_fail_prefix(st, err, "%s: %s", af_run_key_loc(r, key, at, sizeof at), key);
    }
    return AF_OK;
}

af_status af_run_tokens_open(af_run_tokens *t, const af_run_config *run, const char *model,
                             af_error *err)
{
    af_status st = AF_OK;
    edit_list l = {0};
    char *source = NULL, *other = NULL;
    int64_t *renamed = NULL;
    const char *from = af_method_trains_base(run) ? NULL : run->lora_model_dir, *texts = model;
    *t = (af_run_tokens){0};
    if (run->tokenizer_config)
        AF_TRY(find_tokenizer(&other, run, err));
    const bool own = !other && from && af_adapter_own_tokenizer(from, model, INT64_MAX);
    texts = other ? other : own ? from : model;
    if (run->token_overrides) {
        AF_TRY(make_dir(t, model, own ? from : NULL, other, err));
        AF_TRY(rename_tokens(t, &renamed, run, err));
        texts = t->dir;
    }
    const bool chatml = takes_chatml(run, other ? other : model);
    AF_TRY(read_edits(&l, run, chatml, &t->arena, err));
    if (run->chat_template_path)
        AF_TRY(clone_tokens(&l, &t->arena, &source, run, texts, err));
    if (l.count || other || own || renamed || run->resize_to_32x)
        AF_TRY(af_token_edits_plan(&t->edits, &t->arena, texts, l.item, l.count, err));
    if (t->edits.added || run->resize_to_32x)
        t->vocab = t->edits.size;
    if (other)
        AF_TRY(count_rows(t, model, err));
    if (renamed)
        AF_TRY(add_used(t, renamed, run->token_overrides->count, err));
    if (run->resize_to_32x)
        t->vocab = (t->vocab + ROWS_STEP - 1) / ROWS_STEP * ROWS_STEP;
    if (!t->edits.changed && !other && !own && !renamed && !chatml && !source)
        goto done;
    if (!t->dir)
        AF_TRY(make_dir(t, model, own ? from : NULL, other, err));
    AF_TRY(af_token_edits_write(t->dir, l.item, l.count, 0, err));
    if (chatml || source)
        AF_TRY(put_template(t->dir, source ? source : t->dir, source ? NULL : "chatml", err));
done:
    free(source);
    free(other);
    return st;
}

af_status af_run_tokens_fit(af_run_tokens *t, const char *model, int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    if (!t->dir)
        AF_TRY(make_dir(t, model, NULL, NULL, err));
    AF_TRY(af_token_edits_write(t->dir, NULL, 0, rows, err));
done:
    return st;
}

af_status af_run_tokens_rope(af_run_tokens *t, const char *model, const af_rope_change *r,
                             af_error *err)
{
    const af_status st = t->dir ? AF_OK : make_dir(t, model, NULL, NULL, err);
    return st == AF_OK ? af_rope_change_file(t->dir, r, err) : st;
}

void af_run_tokens_close(af_run_tokens *t)
{
    if (t->root)
        (void)!af_path_remove(t->root, NULL);
    free(t->root);
    free(t->dir);
    af_arena_clear(&t->arena);
    *t = (af_run_tokens){0};
}

/* ---- what trains the new rows ---- */

static af_status read_rows(af_token_rows *out, af_arena *arena, const af_run_config *r,
                           const af_yaml *list, af_error *err)
{
    static const char what[] = "trainable_token_indices is not a list of token numbers, or one for "
                               "embed_tokens and one for lm_head";
    const int n = list->kind == AF_YAML_LIST ? list->count : -1;
    int64_t *index = n >= 0 && n <= AF_TOKENS_MAX
                         ? af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *index)
                         : NULL;
    if (!index)
        return wrong(r, "trainable_token_indices", err, what);
    for (int i = 0; i < n; i++)
        if (!af_yaml_i64(list->item[i], &index[i]))
            return wrong(r, "trainable_token_indices", err, what);
    *out = (af_token_rows){index, n};
    return AF_OK;
}

static af_status read_tables(af_run_tokens *t, af_adapter_config *c, const af_run_config *r,
                             af_error *err)
{
    const af_yaml *v = r->trainable_tokens;
    if (v->kind != AF_YAML_MAP)
        return read_rows(&c->tokens[AF_TOKENS_EMBED], &t->arena, r, v, err);
    for (int i = 0; i < v->count; i++) {
        int k = 0;
        while (k < AF_TOKEN_TABLES && !af_path_is_table(v->key[i], k == AF_TOKENS_HEAD))
            k++;
        if (k == AF_TOKEN_TABLES)
            return wrong(r, "trainable_token_indices", err,
                         "trainable_token_indices goes with embed_tokens and lm_head");
        const af_status st = read_rows(&c->tokens[k], &t->arena, r, v->item[i], err);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* Whether something else of the adapter trains the new rows of the embedding or the head. */
static af_status is_trained(bool *out, const af_adapter_config *c, const af_model_spec *s,
                            int module, af_error *err)
{
    af_status st = AF_OK;
    bool *target = af_calloc((uint64_t)s->modules, sizeof *target);
    if (!target)
        return af_fail_nomem(err, "the targets", (uint64_t)s->modules);
    AF_TRY(af_adapter_targets(c, s, target, err));
    *out = target[module] ||
           af_path_ends_in(s->module[module].path, c->modules_to_save, c->save_count);
done:
    free(target);
    return st;
}

/* All of the head, as TRL has it next to the tokens of another model. */
static af_status save_head(af_run_tokens *t, af_adapter_config *c, const char *path, af_error *err)
{
    const char *dot = strrchr(path, '.');
    const char **names = af_arena_take(&t->arena, (uint64_t)(c->save_count + 1) * sizeof *names);
    if (!names)
        return af_fail_nomem(err, "the modules", (uint64_t)c->save_count * sizeof *names);
    for (int i = 0; i < c->save_count; i++)
        names[i] = c->modules_to_save[i];
    names[c->save_count++] = dot ? dot + 1 : path;
    c->modules_to_save = names;
    return AF_OK;
}

af_status af_run_tokens_train(af_run_tokens *t, af_adapter_config *c, const af_run_config *run,
                              const af_model_spec *spec, af_error *err)
{
    af_status st = AF_OK;
    const int module[AF_TOKEN_TABLES] = {spec->embed_module, spec->head_module};
    if (run->trainable_tokens)
        return read_tables(t, c, run, err);
    for (int k = 0; k < AF_TOKEN_TABLES && t->edits.used_count; k++) {
        bool trained = false;
        if (k == AF_TOKENS_HEAD && spec->tied)
            continue;
        AF_TRY(is_trained(&trained, c, spec, module[k], err));
        if (!trained && k == AF_TOKENS_HEAD && run->chat_template_path && !spec->labels)
            AF_TRY(save_head(t, c, spec->module[module[k]].path, err));
        else if (!trained)
            c->tokens[k] = (af_token_rows){t->edits.used, t->edits.used_count};
    }
done:
    return st;
}
