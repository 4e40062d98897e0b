/* gguf_spm_text.c - a SentencePiece vocabulary of a GGUF file as the BPE model of a tokenizer.json.
 *
 * Merges are not in the file: every split of a token into two tokens is a merge, and merges are
 * tried in the order of the scores of what they make, as SentencePiece does. */
#include "convert/input/gguf_text.h"

#include "convert/input/gguf_spm_text.h"

enum { TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

typedef struct merge {
    uint32_t whole, cut; /* token, and bytes of its left part */
    uint32_t left, right;
    float score;
} merge;

typedef struct lookup {
    const af_gguf_kv *tokens;
    uint32_t *slot; /* id + 1, open addressing */
    uint64_t mask;
} lookup;

static uint64_t hash(const char *s, uint64_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * UINT64_C(0x100000001b3);
    return h;
}

static int64_t find(const lookup *l, const char *s, uint64_t n)
{
    for (uint64_t k = hash(s, n);; k++) {
        const uint32_t id = l->slot[k & l->mask];
        if (!id)
            return -1;
        const af_gguf_str t = l->tokens->str[id - 1];
        if (t.len == n && memcmp(t.at, s, n) == 0)
            return id - 1;
    }
}

static af_status build(lookup *l, const af_gguf_kv *tokens, af_error *err)
{
    uint64_t size = 16;
    while (size < tokens->count * 2)
        size *= 2;
    l->tokens = tokens;
    l->mask = size - 1;
    l->slot = af_calloc(size, sizeof *l->slot);
    if (!l->slot)
        return af_fail_nomem(err, "the vocabulary", size * sizeof *l->slot);
    for (uint64_t i = 0; i < tokens->count; i++) {
        uint64_t k = hash(tokens->str[i].at, tokens->str[i].len);
        while (l->slot[k & l->mask])
            k++;
        l->slot[k & l->mask] = (uint32_t)i + 1;
    }
    return AF_OK;
}

static int by_score(const void *a, const void *b)
{
    const merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

static af_status find_merges(const lookup *l, const af_gguf_kv *types, const af_gguf_kv *scores,
                             merge **out, uint64_t *count, af_error *err)
{
    uint64_t n = 0, cap = 1024;
    merge *list = af_calloc(cap, sizeof *list);
    for (uint64_t i = 0; list && i < l->tokens->count; i++) {
        const af_gguf_str t = l->tokens->str[i];
        const int64_t type = types && i < types->count ? af_gguf_item_int(types, i) : 1;
        if (type == TYPE_CONTROL || type == TYPE_UNKNOWN || type == TYPE_BYTE ||
            type == TYPE_UNUSED)
            continue;
        for (uint64_t cut = 1; cut < t.len; cut++) {
            if (((uint8_t)t.at[cut] & 0xc0) == 0x80) /* inside a character */
                continue;
            const int64_t left = find(l, t.at, cut), right = find(l, t.at + cut, t.len - cut);
            if (left < 0 || right < 0)
                continue;
            if (n == cap) {
                merge *more = af_realloc(list, cap * 2, sizeof *list);
                if (!more)
                    goto full;
                list = more;
                cap *= 2;
            }
            list[n++] = (merge){(uint32_t)i, (uint32_t)cut, (uint32_t)left, (uint32_t)right,
                                (float)af_gguf_item_float(scores, i)};
        }
    }
    if (list) {
        qsort(list, n, sizeof *list, by_score);
        *out = list;
        *count = n;
        return AF_OK;
    }
full:
    free(list);
    return af_fail_nomem(err, "the merges", cap * 2 * sizeof(merge));
}

static void put_model(json_t *o, const lookup *l, const merge *list, uint64_t n, json_t *unk)
{
    json_t *vocab = json_object(), *merges = json_array();
    for (uint64_t i = 0; i < l->tokens->count; i++)
        json_object_setn_new(vocab, l->tokens->str[i].at, l->tokens->str[i].len,
                             json_integer((json_int_t)i));
    for (uint64_t i = 0; i < n; i++) {
        const af_gguf_str t = l->tokens->str[list[i].whole];
        json_array_append_new(merges, json_pack("[s%, s%]", t.at, (size_t)list[i].cut,
                                                t.at + list[i].cut, (size_t)(t.len - list[i].cut)));
    }
    json_object_set_new(o, "model",
                        json_pack("{s:s, s:n, s:o, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type",
                                  "BPE", "dropout", "unk_token", unk, "continuing_subword_prefix",
                                  "end_of_word_suffix", "fuse_unk", 1, "byte_fallback", 1,
                                  "ignore_merges", 0, "vocab", vocab, "merges", merges));
}

static void put_parts(json_t *o, bool prefix)
{
    static const char mark[] = "\xe2\x96\x81";
    json_t *normal = json_pack("{s:s, s:[]}", "type", "Sequence", "normalizers");
    json_t *decode = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s}, {s:s}]}", "type", "Sequence",
                               "decoders", "type", "Replace", "pattern", "String", mark, "content",
                               " ", "type", "ByteFallback", "type", "Fuse");
    json_t *steps = json_object_get(normal, "normalizers");
    if (prefix) {
        json_array_append_new(steps, json_pack("{s:s, s:s}", "type", "Prepend", "prepend", mark));
        json_array_append_new(json_object_get(decode, "decoders"),
                              json_pack("{s:s, s:s, s:i, s:i}", "type", "Strip", "content", " ",
                                        "start", 1, "stop", 0));
    }
    json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern",
                                           "String", " ", "content", mark));
    json_object_set_new(o, "normalizer", normal);
    json_object_set_new(o, "decoder", decode);
}

af_status af_gguf_spm_json(const af_gguf *g, const af_gguf_kv *tokens, const af_gguf_kv *types,
                           json_t *o, af_error *err)
{
    af_status st = AF_OK;
    lookup l = {0};
    merge *list = NULL;
    uint64_t n = 0;
    const af_gguf_kv *scores = af_gguf_find_kv(g, "tokenizer.ggml.scores");
    const int64_t unk = af_gguf_int(g, "tokenizer.ggml.unknown_token_id", -1);
    if (!scores || scores->count != tokens->count)
        return af_fail(err, AF_EFORMAT, "tokenizer.ggml.scores does not have %" PRIu64 " entries",
                       tokens->count);
    AF_TRY(build(&l, tokens, err));
    AF_TRY(find_merges(&l, types, scores, &list, &n, err));
    const bool known = unk >= 0 && (uint64_t)unk < tokens->count;
    put_model(o, &l, list, n,
              known ? json_stringn(tokens->str[unk].at, tokens->str[unk].len) : json_null());
    put_parts(o, af_gguf_bool(g, "tokenizer.ggml.add_space_prefix", true));
done:
    free(l.slot);
    free(list);
    return st;
}
