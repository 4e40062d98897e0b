/* token_edit.c - see token_edit.h. tokenizer.json is changed in its list of added tokens only: the
 * rest of its bytes stays as it is. */
#include "format/tokenizer/token_edit.h"

#include "afinar/text.h"
#include "base/buf.h"
#include "base/file.h"

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

static af_status plan(af_token_edits *out, af_arena *arena, const af_tokenizer *t,
                      const af_token_edit *edit, int n, af_error *err)
{
    int64_t *ids = af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *ids);
    const char **text = af_arena_take(arena, (uint64_t)AF_MAX(n, 1) * sizeof *text);
    if (!ids || !text)
        return af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *ids);
    *out = (af_token_edits){.size = af_tokenizer_vocab_size(t), .ids = ids, .text = text};
    for (int i = 0; i < n; i++) {
        const char *s = edit[i].text;
        const int32_t id = af_tokenizer_id(t, s, strlen(s));
        out->changed |= id < 0 || !af_tokenizer_is_added(t, id) ||
                        (edit[i].special && !af_tokenizer_is_special(t, id)) ||
                        (edit[i].name && !is_named(t, &edit[i]));
        if (id >= 0 || seen_before(edit, i))
            continue;
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

/* ---- JSON files ---- */

static af_status load_json(json_t **out, const char *path, af_error *err)
{
    json_error_t je;
    *out = json_load_file(path, JSON_ALLOW_NUL, &je);
    return json_is_object(*out) ? AF_OK
                                : af_fail(err, AF_EFORMAT, "%s:%d: %s", path, je.line,
                                          *out ? "not an object" : je.text);
}

static af_status save_json(const json_t *o, const char *path, af_error *err)
{
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text)
        return af_fail_nomem(err, path, 0);
    const af_status st = af_file_write(path, text, strlen(text), err);
    free(text);
    return st;
}

/* An entry of added_tokens, or of added_tokens_decoder when it has no id. */
static json_t *entry_json(const af_token_edit *e, int64_t id)
{
    json_t *o = json_object();
    if (id >= 0)
        json_object_set_new(o, "id", json_integer(id));
    json_object_set_new(o, "content", json_string(e->text));
    json_object_set_new(o, "single_word", json_false());
    json_object_set_new(o, "lstrip", json_false());
    json_object_set_new(o, "rstrip", json_false());
    json_object_set_new(o, "normalized", json_false());
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
} editor;

/* ---- tokenizer.json ---- */

/* After the string that begins at text[i]. */
static uint64_t skip_string(const char *text, uint64_t len, uint64_t i)
{
    for (i++; i < len && text[i] != '"'; i++)
        i += text[i] == '\\';
    return i + 1;
}

/* The bytes [from, to) of the value of a key of the outermost object. */
static bool find_value(const char *text, uint64_t len, const char *key, uint64_t *from,
                       uint64_t *to)
{
    const size_t n = strlen(key);
    int depth = 0;
    bool found = false;
    for (uint64_t i = 0; i < len; i++) {
        const char c = text[i];
        if (c == '"') {
            const uint64_t end = skip_string(text, len, i);
            const bool match = depth == 1 && end - i == n + 2 && !memcmp(text + i + 1, key, n);
            i = end - 1;
            uint64_t next = end;
            while (next < len && strchr(" \t\r\n", text[next]))
                next++;
            if (match && !found && next < len && text[next] == ':') {
                found = true;
                *from = i = next;
                ++*from;
            }
            continue;
        }
        const bool closes = c == ']' || c == '}';
        if (found && depth == 1 && (c == ',' || closes)) {
            *to = i;
            return true;
        }
        depth += (c == '[' || c == '{') - closes;
    }
    return false;
}

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

static af_status splice(const editor *ed, const char *path, const char *text, uint64_t len)
{
    uint64_t from = 0, to = 0;
    json_error_t je;
    const bool has = find_value(text, len, "added_tokens", &from, &to);
    const char *brace = memchr(text, '{', len);
    json_t *list = has ? json_loadb(text + from, to - from, JSON_DECODE_ANY, &je) : json_array();
    if (!brace || !json_is_array(list)) {
        json_decref(list);
        return af_fail(ed->err, AF_EFORMAT, "%s: added_tokens is not a list", path);
    }
    char *made = json_dumps(added_list(ed, list), JSON_INDENT(2));
    af_buf b = {0};
    if (!has)
        from = to = (uint64_t)(brace - text) + 1;
    af_buf_add(&b, text, from);
    af_buf_printf(&b, has ? " %s" : "\n  \"added_tokens\": %s,", made ? made : "");
    af_buf_add(&b, text + to, len - to);
    const af_status st = b.bad || !made ? af_fail_nomem(ed->err, path, len)
                                        : af_file_write(path, b.data, b.len, ed->err);
    af_buf_clear(&b);
    free(made);
    json_decref(list);
    return st;
}

static af_status edit_tokenizer(const editor *ed, const char *path)
{
    char *text = NULL;
    uint64_t len = 0;
    af_status st = af_file_read(&text, &len, path, FILE_MAX_BYTES, ed->err);
    if (st == AF_OK)
        st = splice(ed, path, text, len);
    free(text);
    return st;
}

/* ---- the other files ---- */

/* tokenizer_config.json and special_tokens_map.json */
static void edit_names(const editor *ed, json_t *o, const char *unused)
{
    json_t *decoder = json_object_get(o, "added_tokens_decoder"), *listed = json_array();
    (void)unused;
    for (int i = 0; i < ed->n; i++) {
        const af_token_edit *e = &ed->edit[i];
        char key[24];
        snprintf(key, sizeof key, "%" PRId64, ed->id[i]);
        if (e->name)
            json_object_set_new(o, e->name, json_string(e->text));
        if (e->listed)
            json_array_append_new(listed, json_string(e->text));
        if (decoder) {
            json_t *entry = entry_json(e, -1);
            if (json_is_true(json_object_get(json_object_get(decoder, key), "special")))
                json_object_set_new(entry, "special", json_true());
            json_object_set_new(decoder, key, entry);
        }
    }
    if (json_array_size(listed)) {
        json_object_del(o, "extra_special_tokens");
        json_object_set(o, "additional_special_tokens", listed);
    }
    json_decref(listed);
}

static void edit_added(const editor *ed, json_t *o, const char *unused)
{
    (void)unused;
    for (int i = 0; i < ed->n; i++)
        json_object_set_new(o, ed->edit[i].text, json_integer(ed->id[i]));
}

/* A new eos comes before the others that end an answer, as transformers' Trainer has it. */
static json_t *ends(int64_t id, const json_t *old)
{
    json_t *list = json_pack("[I]", (json_int_t)id);
    const size_t n = json_is_array(old) ? json_array_size(old) : json_is_integer(old);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_is_array(old) ? json_array_get(old, i) : old;
        if (json_integer_value(v) != id)
            json_array_append(list, (json_t *)v);
    }
    return list;
}

static void edit_ids(const editor *ed, json_t *o, const char *file)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    json_t *text = json_object_get(o, "text_config");
    const bool model = strcmp(file, "config.json") == 0;
    for (int i = 0; i < ed->n; i++)
        for (size_t k = 0; k < AF_LEN(names) && ed->edit[i].name; k++) {
            char key[32];
            if (strcmp(names[k], ed->edit[i].name) != 0)
                continue;
            snprintf(key, sizeof key, "%s_id", names[k]);
            json_t *to = text && json_object_get(text, key) ? text : o;
            json_object_set_new(to, key,
                                k == 1 && !model ? ends(ed->id[i], json_object_get(to, key))
                                                 : json_integer(ed->id[i]));
        }
    if (model && ed->vocab)
        json_object_set_new(text ? text : o, "vocab_size", json_integer(ed->vocab));
}

static af_status edit_file(const editor *ed, const char *file, bool create,
                           void (*change)(const editor *ed, json_t *o, const char *file))
{
    af_status st = AF_OK;
    json_t *o = NULL;
    char *path = af_path_join(ed->dir, file);
    if (!path)
        return af_fail_nomem(ed->err, "a path", strlen(ed->dir));
    const bool there = af_file_exists(path);
    if (!there && !create)
        goto done;
    if (there)
        AF_TRY(load_json(&o, path, ed->err));
    else
        o = json_object();
    change(ed, o, file);
    st = save_json(o, path, ed->err);
done:
    json_decref(o);
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

af_status af_token_edits_write(const char *dir, const af_token_edit *edit, int n, int64_t vocab,
                               af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "tokenizer.json");
    int64_t *id = af_calloc((uint64_t)AF_MAX(n, 1), sizeof *id);
    const editor ed = {dir, edit, n, id, vocab, err};
    if (!path || !id)
        AF_TRY(af_fail_nomem(err, "the new tokens", (uint64_t)n * sizeof *id));
    AF_TRY(find_ids(id, dir, edit, n, err));
    AF_TRY(edit_tokenizer(&ed, path));
    AF_TRY(edit_file(&ed, "tokenizer_config.json", true, edit_names));
    AF_TRY(edit_file(&ed, "special_tokens_map.json", false, edit_names));
    AF_TRY(edit_file(&ed, "added_tokens.json", false, edit_added));
    AF_TRY(edit_file(&ed, "generation_config.json", false, edit_ids));
    AF_TRY(edit_file(&ed, "config.json", false, edit_ids));
done:
    free(path);
    free(id);
    return st;
}
