/* gguf_vocab.c - tokenizer.* keys from tokenizer.json, or tokenizer.model, and
 * tokenizer_config.json; see gguf_meta.h. */
#include "base/buf.h"
#include "base/log.h"
#include "convert/gguf/gguf_meta.h"
#include "convert/gguf/template_parts.h"
#include "convert/input/folder_text.h"
#include "format/text/json_text.h"
#include "format/tokenizer/sentencepiece.h"
#include "format/tokenizer/tokenizer_pre.h"

enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6
};

/* Of a token that is not in tokenizer.model, as llama.cpp's converter has it. */
static const float ADDED_SCORE = -1000;

typedef struct vocab {
    af_arena arena;
    af_gguf_str *token; /* [rows] */
    int32_t *type;
    float *score;
    int64_t rows;
    bool spm;
    const json_t *json, *config; /* tokenizer.json, tokenizer_config.json (or NULL) */
    const json_t *model;
    const af_spm *pieces;    /* tokenizer.model, instead of json and model; or NULL */
    const af_tokenizer *own; /* made of either and of the folder's other files */
} vocab;

/* ---- the name of the split ---- */

/* The regular expressions of a pre_tokenizer, one after another, and what else it does. */
static void describe(const json_t *p, af_buf *out)
{
    const char *type = json_string_value(json_object_get(p, "type"));
    if (!type)
        return;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(p, "pretokenizers");
        for (size_t i = 0; i < json_array_size(list); i++)
            describe(json_array_get(list, i), out);
    } else if (strcmp(type, "Split") == 0) {
        const json_t *pattern = json_object_get(p, "pattern");
        const char *s = json_string_value(json_object_get(pattern, "Regex"));
        s = s ? s : json_string_value(json_object_get(pattern, "String"));
        af_buf_printf(out, "[%s]", s ? s : "?");
    } else if (strcmp(type, "Digits") == 0) {
        af_buf_str(out, json_is_true(json_object_get(p, "individual_digits")) ? "[\\p{N}]"
                                                                              : "[\\p{N}+]");
    } else if (strcmp(type, "ByteLevel") == 0) {
        const json_t *regex = json_object_get(p, "use_regex");
        if (!regex || json_is_true(regex))
            af_buf_str(out, "['s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
                            "\\s+(?!\\S)|\\s+]");
    } else {
        af_buf_printf(out, "<%s>", type);
    }
}

static bool same_split(const af_buf *ours, const af_pre_name *pre)
{
    json_t *parts = af_pre_name_parts(pre);
    af_buf b = {0};
    describe(json_object_get(parts, "pre_tokenizer"), &b);
    const bool same = b.data && ours->data && strcmp(b.data, ours->data) == 0;
    af_buf_clear(&b);
    json_decref(parts);
    return same;
}

/* llama.cpp's name for a pre_tokenizer of a tokenizer.json, or NULL. `model_type` decides between
 * names that stand for the same split. Static storage. */
static const char *find_pre_name(const json_t *tokenizer, const char *model_type)
{
    const af_pre_name *pre;
    const char *found = NULL;
    af_buf ours = {0};
    describe(json_object_get(tokenizer, "pre_tokenizer"), &ours);
    for (int i = 0; !found && (pre = af_pre_name_at(i)); i++)
        if (same_split(&ours, pre))
            found = pre->name;
    af_buf_clear(&ours);
    if (found && strcmp(found, "gpt-2") == 0 && strcmp(model_type, "phi") == 0)
        return "phi-2";
    if (found && strcmp(found, "gpt-2") == 0 && strcmp(model_type, "olmo2") == 0)
        return "olmo";
    return found;
}

/* ---- tokens ---- */

/* As llama.cpp's converter: these are control tokens although they are not marked as such. */
static bool looks_special(const char *s)
{
    const size_t n = strlen(s);
    return strcmp(s, "<pad>") == 0 || strcmp(s, "<mask>") == 0 || strcmp(s, "<2mass>") == 0 ||
           strcmp(s, "[@BOS@]") == 0 ||
           (n > 4 && strncmp(s, "<|", 2) == 0 && strcmp(s + n - 2, "|>") == 0) ||
           (n > 8 && strncmp(s, "<\xef\xbd\x9c", 4) == 0 &&
            strcmp(s + n - 4, "\xef\xbd\x9c>") == 0) ||
           (n > 8 && strncmp(s, "<unused", 7) == 0 && s[n - 1] == '>');
}

static bool is_byte_token(const char *s, size_t n)
{
    return n == 6 && strncmp(s, "<0x", 3) == 0 && s[5] == '>';
}

static af_status set_token(vocab *v, json_int_t id, const char *s, size_t n, int32_t type,
                           int64_t *beyond, af_error *err)
{
    if (id < 0)
        return af_fail(err, AF_EFORMAT, "token id %lld is negative", (long long)id);
    if (id >= v->rows) {
        (*beyond)++;
        return AF_OK;
    }
    v->token[id].at = af_arena_strndup(&v->arena, s, n);
    v->token[id].len = n;
    v->type[id] = type;
    return v->token[id].at ? AF_OK : af_fail_nomem(err, "a token", n);
}

/* Pieces as they are, types and scores, then what the folder adds. */
static af_status read_pieces(vocab *v, int64_t *beyond, af_error *err)
{
    af_status st = AF_OK;
    const af_spm *m = v->pieces;
    for (int32_t i = 0; i < m->count; i++) {
        const af_spm_piece *p = &m->piece[i];
        AF_TRY(set_token(v, i, p->s, p->n, (int32_t)p->type, beyond, err));
        if (i < v->rows)
            v->score[i] = p->score;
    }
    for (int32_t i = 0; i < af_tokenizer_vocab_size(v->own); i++) {
        uint64_t n;
        if (!af_tokenizer_is_added(v->own, i) || i == m->unk)
            continue;
        const char *s = af_tokenizer_token(v->own, i, &n);
        const bool special = af_tokenizer_is_special(v->own, i) || looks_special(s);
        AF_TRY(set_token(v, i, s, n, special ? TYPE_CONTROL : TYPE_USER, beyond, err));
        if (i >= m->count && i < v->rows)
            v->score[i] = ADDED_SCORE;
    }
done:
    return st;
}

/* What only tokenizer_config.json and its like add. */
static af_status read_more(vocab *v, int64_t *beyond, af_error *err)
{
    af_status st = AF_OK;
    for (int32_t i = 0; i < af_tokenizer_vocab_size(v->own) && i < v->rows; i++) {
        uint64_t n;
        if (!af_tokenizer_is_added(v->own, i) || v->type[i] > TYPE_NORMAL)
            continue;
        const char *s = af_tokenizer_token(v->own, i, &n);
        const bool special = af_tokenizer_is_special(v->own, i) || looks_special(s);
        AF_TRY(set_token(v, i, s, n, special ? TYPE_CONTROL : TYPE_USER, beyond, err));
    }
done:
    return st;
}

static af_status read_map(vocab *v, int64_t *beyond, af_error *err)
{
    af_status st = AF_OK;
    const json_t *map = json_object_get(v->model, "vocab");
    const char *unk = json_string_value(json_object_get(v->model, "unk_token"));
    for (void *it = json_object_iter((json_t *)map); it;
         it = json_object_iter_next((json_t *)map, it)) {
        const char *s = json_object_iter_key(it);
        const size_t n = json_object_iter_key_len(it);
        const int32_t type = v->spm && is_byte_token(s, n)          ? TYPE_BYTE
                             : v->spm && unk && strcmp(unk, s) == 0 ? TYPE_UNKNOWN
                                                                    : TYPE_NORMAL;
        AF_TRY(
            set_token(v, json_integer_value(json_object_iter_value(it)), s, n, type, beyond, err));
    }
    const json_t *added = json_object_get(v->json, "added_tokens");
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_t *a = json_array_get(added, i);
        const char *s = json_string_value(json_object_get(a, "content"));
        if (!s)
            continue;
        const bool special = json_is_true(json_object_get(a, "special")) || looks_special(s);
        const int32_t type = v->spm && unk && strcmp(unk, s) == 0 ? TYPE_UNKNOWN
                             : special                            ? TYPE_CONTROL
                                                                  : TYPE_USER;
        AF_TRY(set_token(v, json_integer_value(json_object_get(a, "id")), s,
                         json_string_length(json_object_get(a, "content")), type, beyond, err));
    }
    AF_TRY(read_more(v, beyond, err));
done:
    return st;
}

static af_status read_vocab(vocab *v, af_error *err)
{
    af_status st = AF_OK;
    int64_t beyond = 0;
    AF_TRY(v->pieces ? read_pieces(v, &beyond, err) : read_map(v, &beyond, err));
    if (beyond)
        af_log_write(AF_LOG_WARN,
                     "%" PRId64 " tokens have no row in the embedding and are left out", beyond);
    for (int64_t i = 0; i < v->rows; i++) /* holes */
        if (!v->token[i].at) {
            v->token[i].at = af_arena_printf(&v->arena, "[PAD%" PRId64 "]", i);
            if (!v->token[i].at)
                AF_TRY(af_fail_nomem(err, "a token", 16));
            v->token[i].len = strlen(v->token[i].at);
            v->type[i] = TYPE_UNUSED;
        }
done:
    return st;
}

/* Merges as "a b". A blank inside a part would cut it wrongly: it becomes U+0120, as byte-level
 * vocabularies write it. */
static af_status merge_text(vocab *v, const json_t *m, af_gguf_str *out, af_error *err)
{
    af_buf b = {0};
    if (json_is_string(m)) {
        out->at = json_string_value(m);
        out->len = json_string_length(m);
        return AF_OK;
    }
    for (size_t k = 0; k < 2; k++) {
        const char *s = json_string_value(json_array_get(m, k));
        if (!s)
            return af_fail(err, AF_EFORMAT, "a merge of tokenizer.json is not two strings");
        for (; *s; s++) {
            if (*s == ' ')
                af_buf_utf8(&b, 0x120);
            else
                af_buf_char(&b, *s);
        }
        if (k == 0)
            af_buf_char(&b, ' ');
    }
    out->len = b.len;
    out->at = b.bad ? NULL : af_arena_strndup(&v->arena, b.data, b.len);
    af_buf_clear(&b);
    return out->at ? AF_OK : af_fail_nomem(err, "a merge", 64);
}

static af_status put_merges(vocab *v, af_gguf_writer *w, af_error *err)
{
    af_status st = AF_OK;
    const json_t *merges = json_object_get(v->model, "merges");
    const size_t n = json_array_size(merges);
    af_gguf_str *list = af_calloc(AF_MAX(n, 1), sizeof *list);
    if (!list)
        return af_fail_nomem(err, "the merges", n * sizeof *list);
    for (size_t i = 0; i < n; i++)
        AF_TRY(merge_text(v, json_array_get(merges, i), &list[i], err));
    AF_TRY(af_gguf_put_strs(w, "tokenizer.ggml.merges", list, n, err));
done:
    free(list);
    return st;
}

/* SentencePiece scores: the earlier a merge, the higher what it makes. */
static void count_scores(vocab *v)
{
    const json_t *merges = json_object_get(v->model, "merges"), *map;
    map = json_object_get(v->model, "vocab");
    af_buf b = {0};
    for (int64_t i = 0; i < v->rows; i++)
        v->score[i] = v->type[i] == TYPE_NORMAL ? -1e6f : 0;
    for (size_t i = json_array_size(merges); i-- > 0;) {
        const json_t *m = json_array_get(merges, i);
        const char *left = json_string_value(json_is_string(m) ? m : json_array_get(m, 0));
        const char *right = json_is_string(m) ? "" : json_string_value(json_array_get(m, 1));
        b.len = 0;
        for (const char *c = left ? left : ""; *c; c++)
            if (!json_is_string(m) || *c != ' ')
                af_buf_char(&b, *c);
        af_buf_str(&b, right ? right : "");
        const json_t *id = b.data ? json_object_get(map, b.data) : NULL;
        if (json_is_integer(id) && json_integer_value(id) >= 0 && json_integer_value(id) < v->rows)
            v->score[json_integer_value(id)] = -(float)i;
    }
    af_buf_clear(&b);
}

/* ---- special tokens ---- */

static int64_t id_of(const vocab *v, const char *text)
{
    for (int64_t i = 0; text && i < v->rows; i++)
        if (v->token[i].len == strlen(text) && memcmp(v->token[i].at, text, v->token[i].len) == 0)
            return i;
    return -1;
}

/* "bos_token": a string, or an object with "content". */
static const char *config_token(const vocab *v, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "%s_token", name);
    const json_t *t = json_object_get(v->config, key);
    return json_string_value(json_is_object(t) ? json_object_get(t, "content") : t);
}

/* What TemplateProcessing adds before or after: 1 yes, 0 something else, -1 nothing. */
static int adds(const vocab *v, const char *text, bool last)
{
    const json_t *post = json_object_get(v->json, "post_processor");
    const json_t *list = json_object_get(post, "processors");
    const size_t n = json_is_array(list) ? json_array_size(list) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_is_array(list) ? json_array_get(list, i) : post;
        const char *type = json_string_value(json_object_get(p, "type"));
        const json_t *single = json_object_get(p, "single");
        const size_t parts = json_array_size(single);
        if (!type || strcmp(type, "TemplateProcessing") != 0 || parts < 2)
            continue;
        const json_t *part = json_array_get(single, last ? parts - 1 : 0);
        const char *id =
            json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
        if (id)
            return text && strcmp(id, text) == 0;
    }
    return -1;
}

/* In the order of the kinds below. */
static int64_t named_id(const af_tokenizer *t, size_t kind)
{
    const int64_t ids[] = {af_tokenizer_bos(t), af_tokenizer_eos(t), af_tokenizer_unk(t),
                           af_tokenizer_pad(t)};
    return ids[kind];
}

static af_status put_special(vocab *v, af_gguf_writer *w, const af_hf_config *c, int32_t turn_end,
                             af_error *err)
{
    static const struct {
        const char *name, *gguf;
    } kinds[] = {{"bos", "bos"}, {"eos", "eos"}, {"unk", "unknown"}, {"pad", "padding"}};
    af_status st = AF_OK;
    char key[96];
    int64_t eos = -1;
    for (size_t i = 0; i < AF_LEN(kinds); i++) {
        int64_t id = v->pieces ? named_id(v->own, i) : id_of(v, config_token(v, kinds[i].name));
        if (id < 0)
            id = i == 0   ? c->bos_token_id
                 : i == 1 ? (c->eos_count ? c->eos_token_id[0] : -1)
                 : i == 3 ? c->pad_token_id
                          : -1;
        eos = i == 1 ? id : eos;
        snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", kinds[i].gguf);
        if (id >= 0 && id < v->rows)
            AF_TRY(af_gguf_put_u32(w, key, (uint32_t)id, err));
    }
    /* Further ends of generation: the first two have keys of their own. */
    int more = 0;
    bool known = turn_end < 0 || turn_end == eos || turn_end >= v->rows;
    if (!known) { /* without this, answers never stop */
        AF_TRY(af_gguf_put_u32(w, "tokenizer.ggml.eot_token_id", (uint32_t)turn_end, err));
        more++;
    }
    for (int i = 0; i < c->eos_count && more < 2; i++)
        if (c->eos_token_id[i] != eos && c->eos_token_id[i] < v->rows &&
            (known || c->eos_token_id[i] != turn_end))
            AF_TRY(af_gguf_put_u32(
                w, more++ ? "tokenizer.ggml.eom_token_id" : "tokenizer.ggml.eot_token_id",
                (uint32_t)c->eos_token_id[i], err));
    for (int k = 0; k < 2; k++) {
        const char *name = k ? "eos" : "bos";
        snprintf(key, sizeof key, "add_%s_token", name);
        const json_t *stated = json_object_get(v->config, key);
        const int found = v->pieces ? k == 0 : adds(v, config_token(v, name), k == 1);
        snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", name);
        if (json_is_boolean(stated))
            AF_TRY(af_gguf_put_bool(w, key, json_is_true(stated), err));
        else if (found >= 0)
            AF_TRY(af_gguf_put_bool(w, key, found == 1, err));
    }
done:
    return st;
}

/* True when the normalizer puts a blank in front of a text. */
static bool prepends(const json_t *json)
{
    char *text = af_json_dump(json_object_get(json, "normalizer"), JSON_ENCODE_ANY);
    const bool yes = text && strstr(text, "\"Prepend\"");
    free(text);
    const json_t *pre = json_object_get(json, "pre_tokenizer"); /* Metaspace does it there */
    const char *scheme = json_string_value(json_object_get(pre, "prepend_scheme"));
    return yes || (scheme && strcmp(scheme, "never") != 0);
}

/* The same of tokenizer.model: what it does. */
static bool starts_marked(const af_tokenizer *t)
{
    af_encoding e = {0};
    const char *s = NULL;
    if (af_tokenizer_encode(t, &e, "a", 1, false, NULL) == AF_OK && e.count)
        s = af_tokenizer_token(t, e.ids[0], NULL);
    const bool yes = s && strncmp(s, "\xe2\x96\x81", 3) == 0;
    af_encoding_clear(&e);
    return yes;
}

static af_status pre_name(const char **out, const vocab *v, const char *model_type, af_error *err)
{
    *out = v->spm ? "default" : find_pre_name(v->json, model_type);
    return *out ? AF_OK
                : af_fail(
                      err, AF_EUNSUPPORTED,
                      "llama.cpp has no name for the pre_tokenizer of tokenizer.json: it could not "
                      "tokenize with a GGUF file of this model");
}

static af_status put_all(vocab *v, af_gguf_writer *w, const af_hf_config *c, int32_t turn_end,
                         af_error *err)
{
    af_status st = AF_OK;
    const char *model = v->spm ? "llama" : "gpt2";
    const char *pre;
    AF_TRY(pre_name(&pre, v, c->model_type, err));
    AF_TRY(af_gguf_put_str(w, "tokenizer.ggml.model", model, strlen(model), err));
    AF_TRY(af_gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre), err));
    AF_TRY(read_vocab(v, err));
    AF_TRY(af_gguf_put_strs(w, "tokenizer.ggml.tokens", v->token, (uint64_t)v->rows, err));
    if (v->spm && !v->pieces)
        count_scores(v);
    if (v->spm)
        AF_TRY(af_gguf_put_array(w, "tokenizer.ggml.scores", AF_GGUF_F32, v->score,
                                 (uint64_t)v->rows, err));
    AF_TRY(af_gguf_put_array(w, "tokenizer.ggml.token_type", AF_GGUF_I32, v->type,
                             (uint64_t)v->rows, err));
    if (!v->spm)
        AF_TRY(put_merges(v, w, err));
    AF_TRY(put_special(v, w, c, turn_end, err));
    if (v->spm)
        AF_TRY(af_gguf_put_bool(w, "tokenizer.ggml.add_space_prefix",
                                v->pieces ? starts_marked(v->own) : prepends(v->json), err));
done:
    return st;
}

/* The kind of model, as far as GGUF has it. */
static af_status read_kind(vocab *v, const char *dir, af_error *err)
{
    const char *type = json_string_value(json_object_get(v->model, "type"));
    if (v->pieces && v->pieces->bpe && !v->pieces->byte_fallback)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: a tokenizer.model without byte_fallback cannot be written to GGUF",
                       dir);
    if (v->pieces)
        type = v->pieces->bpe ? "BPE" : "Unigram";
    if (type && strcmp(type, "BPE") != 0)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: tokenizers of type '%.32s' cannot be written to GGUF, BPE can", dir,
                       type);
    v->spm = v->pieces || json_is_true(json_object_get(v->model, "byte_fallback"));
    return AF_OK;
}

af_status af_gguf_check_tokenizer(const char *dir, const char *model_type, af_error *err)
{
    af_status st = AF_OK;
    json_t *json = NULL;
    AF_TRY(af_tokenizer_json_read(&json, dir, err));
    vocab v = {.json = json, .model = json_object_get(json, "model")};
    const char *pre = NULL;
    AF_TRY(read_kind(&v, dir, err));
    st = json ? pre_name(&pre, &v, model_type, err) : AF_OK;
done:
    json_decref(json);
    return st;
}

/* tokenizer.model, where there is one and no tokenizer.json. */
static af_status open_pieces(vocab *v, af_spm *pieces, af_tokenizer **own, const char *dir,
                             af_error *err)
{
    af_status st = AF_OK;
    char *path = af_path_join(dir, "tokenizer.model");
    if (!path)
        return af_fail_nomem(err, "a path", strlen(dir));
    if (!af_file_exists(path))
        goto done;
    AF_TRY(af_spm_open(pieces, path, err));
    AF_TRY(af_tokenizer_open(own, dir, err));
    v->pieces = pieces;
    v->own = *own;
done:
    free(path);
    return st;
}

static af_status put_texts(vocab *v, af_gguf_writer *w, const char *texts, const af_hf_config *c,
                           af_error *err)
{
    af_status st = AF_OK;
    af_template_parts turn = {.end_id = -1};
    AF_TRY(af_template_parts_read(&turn, texts, err));
    AF_TRY(put_all(v, w, c, turn.end_id, err));
    AF_TRY(af_gguf_put_template(w, texts, err));
done:
    af_template_parts_clear(&turn);
    return st;
}

af_status af_gguf_put_tokenizer(af_gguf_writer *w, const af_text_dirs *h, const af_hf_config *c,
                                int64_t rows, af_error *err)
{
    af_status st = AF_OK;
    const char *dir = h->tokenizer_dir ? h->tokenizer_dir : h->dir;
    vocab v = {.rows = rows};
    json_t *json = NULL, *config = NULL;
    af_spm pieces = {0};
    af_tokenizer *own = NULL;
    AF_TRY(af_tokenizer_json_read(&json, dir, err));
    AF_TRY(af_json_read(&config, dir, "tokenizer_config.json", err));
    if (!json)
        AF_TRY(open_pieces(&v, &pieces, &own, dir, err));
    if (!json && !v.pieces) {
        af_log_write(AF_LOG_WARN,
                     "%s has no tokenizer (tokenizer.json, tokenizer.model, vocab.json with "
                     "merges.txt), and so has the GGUF file",
                     dir);
        goto done;
    }
    if (json)
        AF_TRY(af_tokenizer_open(&own, dir, err));
    v.json = json;
    v.own = own;
    v.config = config;
    v.model = json_object_get(json, "model");
    AF_TRY(read_kind(&v, dir, err));
    v.token = af_calloc((uint64_t)rows, sizeof *v.token);
    v.type = af_calloc((uint64_t)rows, sizeof *v.type);
    v.score = af_calloc((uint64_t)rows, sizeof *v.score);
    if (!v.token || !v.type || !v.score)
        AF_TRY(af_fail_nomem(err, "the vocabulary", (uint64_t)rows * 24));
    AF_TRY(put_texts(&v, w, h->template_dir ? h->template_dir : h->dir, c, err));
done:
    free(v.token);
    free(v.type);
    free(v.score);
    af_arena_clear(&v.arena);
    af_tokenizer_close(own);
    af_spm_clear(&pieces);
    json_decref(json);
    json_decref(config);
    return st;
}
