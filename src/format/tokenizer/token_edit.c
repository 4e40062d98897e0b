/* token_edit.c - see token_edit.h. tokenizer.json is changed in its list of added tokens, and where
 * a token gets another text, in its vocabulary: the rest of its bytes stays as it is. */
#include "format/tokenizer/token_edit.h"

#include "base/buf.h"
#include "base/file.h"
#include "format/config/hf_config.h"
#include "format/text/json_edit.h"
#include "format/text/json_text.h"
#include "format/tokenizer/tokenizer.h"
#include "format/tokenizer/tokenizer_make.h"

#include <jansson.h>

enum { FILE_MAX_BYTES = 256 << 20 };

/* ---- plan ---- */

static bool is_named(const af_tokenizer *t, const af_token_edit *e)
{
    const struct {
        const char *name, *text;
    } known[] = {{"bos_token", af_tokenizer_bos_text(t)},
                 {"eos_token", af_tokenizer_eos_text(t)},
                 {"pad_token", af_tokenizer_pad_text(t)},
                 {"unk_token", af_tokenizer_unk_text(t)}};
    for (size_t i = 0; i < AF_LEN(known); i++)
        if (strcmp(known[i].name, e->name) == 0)
            return known[i].text && strcmp(known[i].text, e->text) == 0;
    return false;
}

static bool seen_before(const af_token_edit *edit, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(edit[k].text, edit[i].text) == 0)
            return true;
    return false;
}

static bool only_pads(const af_token_edit *edit, int n, int i)
{
    bool pads = true;
    for (int k = 0; k < n; k++)
        if (strcmp(edit[k].text, edit[i].text) == 0)
            pads = pads && edit[k].name && strcmp(edit[k].name, "pad_token") == 0;
    return pads;
}

static af_status plan(af_token_edits *out, af_arena *arena, const af_tokenizer *t,
                      const af_token_edit *edit, int n, af_error *err)
{
    int64_t *ids = af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *ids);
    int64_t *used = af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *used);
    const char **text = af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *text);
    if (!ids || !used || !text)
        return af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *ids);
    *out = (af_token_edits){
        .size = af_tokenizer_vocab_size(t), .ids = ids, .used = used, .text = text};
    for (int i = 0; i < n; i++) {
        const char *s = edit[i].text;
        const int32_t id = af_tokenizer_id(t, s, strlen(s));
        out->changed |= id < 0 || !af_tokenizer_is_added(t, id) ||
                        (edit[i].special && !af_tokenizer_is_special(t, id)) ||
                        (edit[i].name && !is_named(t, &edit[i]));
        if (id >= 0 || seen_before(edit, i))
            continue;
        if (!only_pads(edit, n, i))
            used[out->used_count++] = out->size;
        text[out->added] = s;
        ids[out->added++] = out->size++;
    }
    return AF_OK;
}

af_status af_token_edits_plan(af_token_edits *out, af_arena *arena, const char *model,
                              const af_token_edit *edit, int n, af_error *err)
{
    af_tokenizer *t = NULL;
    af_status st = af_tokenizer_open(&t, model, err);
    if (st == AF_OK)
        st = plan(out, arena, t, edit, n, err);
    af_tokenizer_close(t);
    return st;
}

/* ---- the tokens of another tokenizer ---- */

enum { ROWS_MULTIPLE = 64 }; /* TRL's resize_to_multiple_of */

static bool is_known(const af_tokenizer *t, const af_token_edit *edit, int n, const char *text)
{
    bool known = af_tokenizer_id(t, text, strlen(text)) >= 0;
    for (int i = 0; i < n && !known; i++)
        known = strcmp(edit[i].text, text) == 0;
    return known;
}

/* Tokens without a use, up to a multiple of rows. */
static af_status fill_rows(af_token_edit *edit, int *n, af_arena *arena, const af_tokenizer *t,
                           int64_t rows, af_error *err)
{
    char text[32];
    for (int i = 0; rows % ROWS_MULTIPLE; i++) {
        snprintf(text, sizeof text, "<extra_id_%d>", i);
        if (is_known(t, edit, *n, text))
            continue;
        edit[*n] = (af_token_edit){.text = af_arena_strdup(arena, text), .normalized = true};
        if (!edit[(*n)++].text)
            return af_fail_nomem(err, "the new tokens", sizeof text);
        rows++;
    }
    return AF_OK;
}

af_status af_token_edits_clone(af_token_edit **out, int *n, af_arena *arena, const af_tokenizer *t,
                               const af_tokenizer *from, af_error *err)
{
    const int64_t most = (int64_t)from->added_count + 1 + ROWS_MULTIPLE;
    const char *eos = af_tokenizer_eos_text(from);
    af_token_edit *edit = af_arena_take(arena, (uint64_t)most * sizeof *edit);
    if (!edit)
        return af_fail_nomem(err, "the new tokens", (uint64_t)most * sizeof *edit);
    *n = 0;
    for (int32_t id = 0; id < from->added_at_count; id++) {
        const af_added *a = from->added_at[id] >= 0 ? &from->added[from->added_at[id]] : NULL;
        char *text = a ? af_arena_strndup(arena, a->content.s, a->content.n) : NULL;
        if (a && !text)
            return af_fail_nomem(err, "the new tokens", a->content.n);
        if (a && !is_known(t, edit, *n, text))
            edit[(*n)++] = (af_token_edit){.text = text,
                                           .special = a->special,
                                           .single_word = a->single_word,
                                           .lstrip = a->lstrip,
                                           .rstrip = a->rstrip,
                                           .normalized = a->normalized};
    }
    int64_t rows = af_tokenizer_vocab_size(t) + *n;
    if (eos && *eos) {
        rows += !is_known(t, edit, *n, eos);
        edit[(*n)++] = (af_token_edit){
            .name = "eos_token", .text = af_arena_strdup(arena, eos), .special = true};
    }
    *out = edit;
    return !eos || !*eos || edit[*n - 1].text ? fill_rows(edit, n, arena, t, rows, err)
                                              : af_fail_nomem(err, "the new tokens", strlen(eos));
}

/* An entry of added_tokens, or of added_tokens_decoder when it has no id. */
static json_t *entry_json(const af_token_edit *e, int64_t id)
{
    json_t *o = json_object();
    if (id >= 0)
        json_object_set_new(o, "id", json_integer(id));
    json_object_set_new(o, "content", json_string(e->text));
    json_object_set_new(o, "single_word", json_boolean(e->single_word));
    json_object_set_new(o, "lstrip", json_boolean(e->lstrip));
    json_object_set_new(o, "rstrip", json_boolean(e->rstrip));
    json_object_set_new(o, "normalized", json_boolean(e->normalized));
    json_object_set_new(o, "special", json_boolean(e->special));
    return o;
}

typedef struct editor {
    const char *dir;
    const af_token_edit *edit;
    int n;
    const int64_t *id; /* by edit */
    int64_t vocab;
    af_error *err;
    const char *old; /* of a token that gets another text: what it was */
} editor;

/* ---- tokenizer.json ---- */

/* HF's rule: a token that is there in the same form stays, one in another form is replaced. */
static json_t *added_list(const editor *ed, json_t *list)
{
    for (int i = 0; i < ed->n && list; i++) {
        size_t k = 0;
        json_t *old;
        while ((old = json_array_get(list, k)) &&
               json_integer_value(json_object_get(old, "id")) != ed->id[i])
            k++;
        json_t *e = entry_json(&ed->edit[i], ed->id[i]);
        if (old && json_is_true(json_object_get(old, "special")))
            json_object_set_new(e, "special", json_true()); /* once special, always */
        if (old)
            json_array_set_new(list, k, e);
        else
            json_array_append_new(list, e);
    }
    return list;
}

static void edit_tokenizer(const editor *ed, af_json_text *d, const char *file)
{
    json_t *list = af_json_text_get(d, "added_tokens");
    (void)file;
    af_json_text_set(d, "added_tokens", added_list(ed, list ? list : json_array()));
}

/* ---- the other files ---- */

/* tokenizer_config.json and special_tokens_map.json */
static void edit_names(const editor *ed, af_json_text *d, const char *file)
{
    json_t *decoder = af_json_text_get(d, "added_tokens_decoder"), *listed = json_array();
    (void)file;
    for (int i = 0; i < ed->n; i++) {
        const af_token_edit *e = &ed->edit[i];
        char key[24];
        snprintf(key, sizeof key, "%" PRId64, ed->id[i]);
        if (e->name)
            af_json_text_set(d, e->name, json_string(e->text));
        if (e->listed)
            json_array_append_new(listed, json_string(e->text));
        json_t *entry = entry_json(e, -1);
        if (json_is_true(json_object_get(json_object_get(decoder, key), "special")))
            json_object_set_new(entry, "special", json_true());
        json_object_set_new(decoder, key, entry);
    }
    if (json_is_object(decoder))
        af_json_text_set(d, "added_tokens_decoder", json_incref(decoder));
    if (json_array_size(listed)) {
        json_t *extra =
            af_json_text_get(d, "extra_special_tokens"); /* what transformers 5 calls them */
        af_json_text_set(
            d, json_is_array(extra) ? "extra_special_tokens" : "additional_special_tokens",
            json_incref(listed));
        json_decref(extra);
    }
    json_decref(decoder);
    json_decref(listed);
}

/* Tokens are keys here. */
static void edit_added(const editor *ed, af_json_text *d, const char *file)
{
    json_t *o = af_json_load(d->text, d->len, JSON_ALLOW_NUL, NULL);
    (void)file;
    if (ed->old)
        json_object_del(o, ed->old);
    for (int i = 0; i < ed->n; i++)
        json_object_set_new(o, ed->edit[i].text, json_integer(ed->id[i]));
    char *text = json_is_object(o) ? af_json_dump(o, JSON_INDENT(2)) : NULL;
    d->bad |= !text;
    if (text) {
        free(d->text);
        d->text = text;
        d->len = strlen(text);
    }
    json_decref(o);
}

/* A new eos comes before the others that end an answer, as transformers' Trainer has it. */
static json_t *ends(int64_t id, const json_t *old)
{
    json_t *list = json_pack("[I]", (json_int_t)id);
    const size_t n = json_is_array(old) ? json_array_size(old) : json_is_integer(old);
    for (size_t i = 0; i < n; i++) {
        json_t *v = json_is_array(old) ? json_array_get(old, i) : (json_t *)old;
        if (json_integer_value(v) != id)
            json_array_append(list, v);
    }
    return list;
}

static void edit_ids(const editor *ed, af_json_text *d, const char *file)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    const bool model = strcmp(file, "config.json") == 0;
    const char *part = NULL;
    json_t *inner = NULL; /* what the config of a multimodal model has for its text part */
    for (const char *const *key = af_config_parts; *key && model && !inner; key++)
        inner = af_json_text_get(d, part = *key);
    json_t *text = inner ? af_config_own(inner) : NULL;
    for (int i = 0; i < ed->n; i++)
        for (size_t k = 0; k < AF_LEN(names) && ed->edit[i].name; k++) {
            char key[32];
            if (strcmp(names[k], ed->edit[i].name) != 0)
                continue;
            snprintf(key, sizeof key, "%s_id", names[k]);
            json_t *old = af_json_text_get(d, key);
            af_json_text_set(d, key,
                             k == 1 && !model ? ends(ed->id[i], old) : json_integer(ed->id[i]));
            if (json_object_get(text, key))
                json_object_set_new(text, key, json_integer(ed->id[i]));
            json_decref(old);
        }
    if (model && ed->vocab && text)
        json_object_set_new(text, "vocab_size", json_integer(ed->vocab));
    else if (model && ed->vocab)
        af_json_text_set(d, "vocab_size", json_integer(ed->vocab));
    if (inner)
        af_json_text_set(d, part, inner);
}

static af_status edit_file(const editor *ed, const char *file, bool create,
                           void (*change)(const editor *ed, af_json_text *d, const char *file))
{
    af_status st = AF_OK;
    af_json_text d = {0};
    char *path = af_path_join(ed->dir, file);
    if (!path)
        return af_fail_nomem(ed->err, "a path", strlen(ed->dir));
    const bool there = af_file_exists(path);
    if (!there && !create)
        goto done;
    if (there)
        AF_TRY(af_file_read(&d.text, &d.len, path, FILE_MAX_BYTES, ed->err));
    else if ((d.text = af_strdup("{\n}\n")))
        d.len = strlen(d.text);
    d.bad = !d.text;
    if (!d.bad)
        change(ed, &d, file);
    st = d.bad ? af_fail(ed->err, AF_EFORMAT, "%s is not an object, or memory is used up", path)
               : af_file_write(path, d.text, d.len, ed->err);
done:
    free(d.text);
    free(path);
    return st;
}

static af_status find_ids(int64_t *id, const char *dir, const af_token_edit *edit, int n,
                          af_error *err)
{
    af_tokenizer *t = NULL;
    const af_status st = af_tokenizer_open(&t, dir, err);
    int64_t next = st == AF_OK ? af_tokenizer_vocab_size(t) : 0;
    for (int i = 0; i < n && st == AF_OK; i++) {
        int k = 0;
        while (strcmp(edit[k].text, edit[i].text) != 0)
            k++;
        id[i] = af_tokenizer_id(t, edit[i].text, strlen(edit[i].text));
        if (id[i] < 0)
            id[i] = k < i ? id[k] : next++;
    }
    af_tokenizer_close(t);
    return st;
}

/* A tokenizer.json takes the place of files that have no place for new tokens. */
static af_status write_made(const char *dir, af_error *err)
{
    json_t *made = NULL;
    af_status st = af_tokenizer_make(&made, NULL, dir, err);
    char *path = af_path_join(dir, "tokenizer.json"),
         *text = made ? af_json_dump(made, JSON_INDENT(2)) : NULL;
    if (st == AF_OK)
        st = path && text ? af_file_write(path, text, strlen(text), err)
                          : af_fail_nomem(err, "a tokenizer", 0);
    json_decref(made);
    free(path);
    free(text);
    return st;
}

af_status af_token_edits_write(const char *dir, const af_token_edit *edit, int n, int64_t vocab,
                               af_error *err)
{
    af_status st = AF_OK;
    int64_t *id = af_calloc((uint64_t)AF_MAX(n, 1), sizeof *id);
    const editor ed = {dir, edit, n, id, vocab, err, NULL};
    if (!id)
        AF_TRY(af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *id));
    AF_TRY(find_ids(id, dir, edit, n, err));
    if (n > 0 && af_tokenizer_can_make(dir))
        AF_TRY(write_made(dir, err));
    AF_TRY(edit_file(&ed, "tokenizer.json", false, edit_tokenizer));
    AF_TRY(edit_file(&ed, "tokenizer_config.json", true, edit_names));
    AF_TRY(edit_file(&ed, "special_tokens_map.json", false, edit_names));
    /* with tokenizer.model alone, this is where a token that it does not have gets its id */
    AF_TRY(edit_file(&ed, "added_tokens.json", n > 0 && !af_file_in(dir, "tokenizer.json"),
                     edit_added));
    AF_TRY(edit_file(&ed, "generation_config.json", false, edit_ids));
    AF_TRY(edit_file(&ed, "config.json", false, edit_ids));
done:
    free(id);
    return st;
}

af_status af_token_ids_align(const char *dir, af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    AF_TRY(af_tokenizer_open(&t, dir, err));
    const af_token_edit named[] = {{.name = "bos_token", .text = af_tokenizer_bos_text(t)},
                                   {.name = "eos_token", .text = af_tokenizer_eos_text(t)},
                                   {.name = "pad_token", .text = af_tokenizer_pad_text(t)}};
    af_token_edit edit[AF_LEN(named)];
    int64_t id[AF_LEN(named)];
    editor ed = {.dir = dir, .edit = edit, .id = id, .err = err};
    for (size_t i = 0; i < AF_LEN(named); i++)
        if (named[i].text && *named[i].text) {
            edit[ed.n] = named[i];
            id[ed.n] = af_tokenizer_id(t, named[i].text, strlen(named[i].text));
            ed.n += id[ed.n] >= 0;
        }
    AF_TRY(edit_file(&ed, "generation_config.json", false, edit_ids));
    AF_TRY(edit_file(&ed, "config.json", false, edit_ids));
done:
    af_tokenizer_close(t);
    return st;
}

/* ---- another text for a token ---- */

/* Its key in the map of the vocabulary, where it has one. */
static void rename_key(af_json_text *d, const char *old, const char *text)
{
    uint64_t model = 0, vocab = 0, at = 0, end = 0;
    json_t *a = json_string(old), *b = json_string(text);
    char *was = af_json_dump(a, JSON_ENCODE_ANY), *now = af_json_dump(b, JSON_ENCODE_ANY);
    const size_t n = was ? strlen(was) : 0;
    af_buf made = {0};
    d->bad |= !was || !now;
    if (!d->bad && af_json_find(d->text, d->len, "model", &model, &end) &&
        af_json_find(d->text + model, end - model, "vocab", &vocab, &end)) {
        was[n - 1] = '\0'; /* without its quotes */
        if (af_json_find(d->text + model + vocab, end - vocab, was + 1, &at, &end)) {
            at += model + vocab - 1; /* the colon */
            while (strchr(" \t\r\n", d->text[at - 1]))
                at--;
            af_buf_add(&made, d->text, at - n);
            af_buf_str(&made, now);
            af_buf_add(&made, d->text + at, d->len - at);
            d->bad |= made.bad;
        }
    }
    if (made.data && !d->bad) {
        free(d->text);
        d->text = made.data;
        d->len = made.len;
        made = (af_buf){0};
    }
    af_buf_clear(&made);
    free(was);
    free(now);
    json_decref(a);
    json_decref(b);
}

static void rename_added(const editor *ed, af_json_text *d, const char *file)
{
    json_t *list = af_json_text_get(d, "added_tokens"), *o;
    size_t i;
    (void)file;
    json_array_foreach(list, i, o)
    {
        if (json_integer_value(json_object_get(o, "id")) == ed->id[0])
            json_object_set_new(o, "content", json_string(ed->edit[0].text));
    }
    if (list)
        af_json_text_set(d, "added_tokens", list);
    if (!d->bad)
        rename_key(d, ed->old, ed->edit[0].text);
}

/* The text in a name, in an object's "content" or in a list of either. */
static bool rename_text(json_t *v, const char *old, const char *text)
{
    json_t *inner = json_is_object(v) ? json_object_get(v, "content") : v, *o;
    bool hit = json_is_string(inner) && strcmp(json_string_value(inner), old) == 0;
    size_t i;
    if (hit)
        json_string_set(inner, text);
    json_array_foreach(v, i, o) { hit |= rename_text(o, old, text); }
    return hit;
}

/* What tokenizer_config.json and special_tokens_map.json call by its old text. */
static void rename_names(const editor *ed, af_json_text *d)
{
    static const char *const names[] = {
        "bos_token",           "eos_token", "unk_token",  "pad_token",
        "sep_token",           "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens"};
    for (size_t i = 0; i < AF_LEN(names); i++) {
        json_t *v = af_json_text_get(d, names[i]);
        if (rename_text(v, ed->old, ed->edit[0].text))
            af_json_text_set(d, names[i], json_incref(v));
        json_decref(v);
    }
}

static void rename_in_config(const editor *ed, af_json_text *d, const char *file)
{
    rename_names(ed, d);
    json_t *decoder = af_json_text_get(d, "added_tokens_decoder");
    char key[24];
    (void)file;
    snprintf(key, sizeof key, "%" PRId64, ed->id[0]);
    json_t *o = json_object_get(decoder, key);
    if (o)
        json_object_set_new(o, "content", json_string(ed->edit[0].text));
    if (o)
        af_json_text_set(d, "added_tokens_decoder", json_incref(decoder));
    json_decref(decoder);
}

/* Opens the folder's tokenizer again, and compares. */
static af_status check_text(const char *dir, int64_t id, const char *old, const char *text,
                            af_error *err)
{
    af_tokenizer *t = NULL;
    af_status st = af_tokenizer_open(&t, dir, err);
    if (st == AF_OK && (af_tokenizer_id(t, text, strlen(text)) != id ||
                        af_vocab_find(&t->vocab, old, strlen(old)) == id))
        st = af_fail(err, AF_EUNSUPPORTED, "the vocabulary of '%s' is not a map of tokens", dir);
    af_tokenizer_close(t);
    return st;
}

af_status af_token_rename(const char *dir, int64_t id, const char *text, af_error *err)
{
    af_status st = AF_OK;
    af_tokenizer *t = NULL;
    char *old = NULL;
    AF_TRY(af_tokenizer_open(&t, dir, err));
    const bool is_added = id >= 0 && id < t->added_at_count && t->added_at[id] >= 0;
    const int64_t other = af_tokenizer_id(t, text, strlen(text));
    if (other == id)
        goto done;
    if (!is_added || other >= 0)
        AF_TRY(other >= 0
                   ? af_fail(err, AF_EUSAGE, "the tokenizer has '%s' already: it is %" PRId64, text,
                             other)
                   : af_fail(err, AF_EUSAGE,
                             "token %" PRId64 " is not one of the added tokens of the tokenizer",
                             id));
    const af_str content = t->added[t->added_at[id]].content;
    old = af_strndup(content.s, content.n);
    const af_token_edit edit = {.text = text};
    const editor ed = {dir, &edit, 1, &id, 0, err, old};
    if (!old)
        AF_TRY(af_fail_nomem(err, "a token", content.n));
    if (af_tokenizer_can_make(dir))
        AF_TRY(write_made(dir, err));
    AF_TRY(edit_file(&ed, "tokenizer.json", false, rename_added));
    AF_TRY(edit_file(&ed, "tokenizer_config.json", false, rename_in_config));
    AF_TRY(edit_file(&ed, "special_tokens_map.json", false, rename_in_config));
    AF_TRY(edit_file(&ed, "added_tokens.json", false, edit_added));
    st = check_text(dir, id, old, text, err);
done:
    free(old);
    af_tokenizer_close(t);
    return st;
}
