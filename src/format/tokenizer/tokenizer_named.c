/* tokenizer_named.c - added tokens of the files next to tokenizer.json or tokenizer.model:
 * added_tokens_decoder and names of tokenizer_config.json, and in older folders added_tokens.json
 * and special_tokens_map.json. */
#include "format/tokenizer/tokenizer.h"

enum { ADDED_MAX = 1 << 20 };

/* Whether the id that it would get is that of an added token with another text: tokenizer.json has
 * the last word. */
static bool is_taken(const af_tokenizer *t, const af_added *a, int64_t id)
{
    const int32_t known = af_tokenizer_id(t, a->content.s ? a->content.s : "", a->content.n);
    const int64_t own = known >= 0 ? known : id;
    return own >= 0 && own < t->added_at_count && t->added_at[own] >= 0 &&
           af_vocab_find(&t->added_vocab, a->content.s ? a->content.s : "", a->content.n) != own;
}

/* id < 0: that of the vocabulary, or the next. */
static af_status insert(af_tokenizer *t, af_added a, int64_t id, bool pieces, af_error *err)
{
    if (pieces) /* never normalized: the text on each side of one is a text of its own */
        a.normalized = false;
    else if (is_taken(t, &a, id))
        return AF_OK;
    if (id < 0)
        id = af_tokenizer_vocab_size(t);
    if (t->added_count >= ADDED_MAX)
        return af_fail(err, AF_EFORMAT, "more than %d added tokens", ADDED_MAX);
    return af_added_insert(t, a, id, err);
}

/* added_tokens_decoder: {"ID": {"content": ...}} */
static af_status read_decoder(af_tokenizer *t, const af_json_value *v, bool pieces, af_error *err)
{
    af_status st = AF_OK;
    if (v->type > AF_JSON_NULL && v->type != AF_JSON_OBJECT)
        return af_fail(err, AF_EFORMAT, "added_tokens_decoder is not an object");
    for (v = v->item; v; v = v->next) {
        char *end;
        const long long id = strtoll(v->key, &end, 10);
        if (*end || end == v->key || id < 0 || af_json_get(v, "content")->type != AF_JSON_STRING)
            return af_fail(err, AF_EFORMAT, "added_tokens_decoder has the invalid entry \"%.60s\"",
                           v->key);
        AF_TRY(insert(t, af_added_of(v, false), id, pieces, err));
    }
done:
    return st;
}

/* added_tokens.json: {"TEXT": ID} */
static af_status read_added(af_tokenizer *t, const af_json_value *v, bool pieces, af_error *err)
{
    af_status st = AF_OK;
    for (v = v->item; v; v = v->next) {
        const int32_t id = af_token_id_of(v);
        if (id < 0)
            return af_fail(err, AF_EFORMAT, "added_tokens.json has no valid id for \"%.60s\"",
                           v->key);
        const af_added a = {.content = {v->key, (uint32_t)v->key_len}, .normalized = true};
        if (pieces || af_vocab_find(&t->added_vocab, v->key, v->key_len) < 0)
            AF_TRY(insert(t, a, id, pieces, err));
    }
done:
    return st;
}

/* A token that a config names is special; one that is nowhere gets the next id. */
static af_status name_token(af_tokenizer *t, const af_json_value *v, bool pieces, bool mark,
                            af_error *err)
{
    af_added a = {.content = af_str_of(v), .special = true};
    if (v->type == AF_JSON_OBJECT) {
        a = af_added_of(v, true);
        a.special = true;
    }
    const int32_t id = af_vocab_find(&t->added_vocab, a.content.s ? a.content.s : "", a.content.n);
    if (id >= 0 && mark)
        t->added[t->added_at[id]].special = true;
    return id >= 0 || !a.content.n ? AF_OK : insert(t, a, -1, pieces, err);
}

/* `mark`: also of those that are added already. */
static af_status name_tokens(af_tokenizer *t, const af_json_value *config, bool pieces, bool mark,
                             af_error *err)
{
    static const char *const one[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                      "pad_token", "cls_token", "mask_token"};
    static const char *const lists[] = {"additional_special_tokens", "extra_special_tokens"};
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(one); i++)
        AF_TRY(name_token(t, af_json_get(config, one[i]), pieces, mark, err));
    for (size_t i = 0; i < AF_LEN(lists); i++) {
        const af_json_value *v = af_json_get(config, lists[i]);
        const bool many = v->type == AF_JSON_ARRAY || v->type == AF_JSON_OBJECT;
        for (v = many ? v->item : NULL; v; v = v->next)
            AF_TRY(name_token(t, v, pieces, mark, err));
    }
done:
    return st;
}

af_status af_added_read_files(af_tokenizer *t, const af_json_value *config, const char *folder,
                              bool pieces, af_error *err)
{
    af_status st = AF_OK;
    af_json_value map = {0}, added = {0};
    const af_json_value *decoder = af_json_get(config, "added_tokens_decoder");
    if (decoder->type == AF_JSON_NONE) { /* older folders; transformers ignores these files else */
        AF_TRY(af_tokenizer_config(t, &map, folder, "special_tokens_map.json", err));
        AF_TRY(af_tokenizer_config(t, &added, folder, "added_tokens.json", err));
    }
    AF_TRY(read_decoder(t, decoder, pieces, err));
    AF_TRY(read_added(t, &added, pieces, err));
    AF_TRY(name_tokens(t, &map, pieces, pieces, err));
    AF_TRY(name_tokens(t, config, pieces, pieces || decoder->type == AF_JSON_OBJECT, err));
done:
    return st;
}
