/* tokenizer_ranks.c - vocabularies that are a list of byte strings in the order of their ranks:
 * tekken.json of Mistral, and the files of the tiktoken package. See tokenizer_make.h.
 *
 * Two neighbours are joined when the result is a token, the one of the lowest rank first. As a list
 * of merges: for every token all its cuts into two tokens, in the order of the ranks. */
#include "format/tokenizer/tokenizer_make.h"

#include "base/file.h"
#include "format/tokenizer/tokenizer.h"

#define RANKS_MAX (UINT64_C(64) << 20) /* bytes of a file */
#define CUTS_MAX  (UINT64_C(1) << 28)  /* bytes of all cuts of all tokens into two */
enum {
    TOKEN_MAX = 4096,       /* bytes of a token, in base64 */
    SPECIALS_MAX = 1 << 20, /* of tekken.json */
};

typedef struct token_cut {
    int32_t left, right; /* ranks */
    size_t at;           /* bytes of the left part */
} token_cut;

/* The token as text of a byte-level vocabulary. */
static af_status add_token(json_t *vocab, const char *base64, uint64_t len, json_int_t id,
                           const char *path, af_error *err)
{
    uint8_t bytes[TOKEN_MAX];
    char text[2 * TOKEN_MAX];
    uint64_t n = 0;
    uint32_t to = 0;
    if (len > TOKEN_MAX || !af_base64_decode(bytes, &n, base64, len) || n == 0)
        return af_fail(err, AF_EFORMAT, "%s: token %lld is not base64", path, (long long)id);
    for (uint64_t i = 0; i < n; i++)
        to += af_utf8_put(text + to, af_byte_char(bytes[i]));
    if (json_object_getn(vocab, text, to))
        return af_fail(err, AF_EFORMAT, "%s: token %lld is there twice", path, (long long)id);
    json_object_setn_new(vocab, text, to, json_integer(id));
    return AF_OK;
}

static int by_ranks(const void *a, const void *b)
{
    const token_cut *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    return x->right < y->right ? -1 : x->right > y->right;
}

static void add_cuts(json_t *merges, const af_vocab *vocab, const char *text, size_t n)
{
    token_cut cut[TOKEN_MAX];
    int count = 0;
    for (size_t at = 1; at < n && count < TOKEN_MAX; at++) {
        if (((uint8_t)text[at] & 0xc0) == 0x80) /* inside a character */
            continue;
        const int32_t left = af_vocab_find(vocab, text, at);
        const int32_t right = left < 0 ? -1 : af_vocab_find(vocab, text + at, n - at);
        if (right >= 0)
            cut[count++] = (token_cut){left, right, at};
    }
    qsort(cut, (size_t)count, sizeof *cut, by_ranks);
    for (int i = 0; i < count; i++)
        json_array_append_new(
            merges, json_pack("[s%,s%]", text, cut[i].at, text + cut[i].at, n - cut[i].at));
}

typedef struct ranked {
    const char *text;
    size_t len;
    json_int_t id;
} ranked;

static int by_id(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static af_status make_merges(json_t *merges, json_t *vocab, const char *path, af_error *err)
{
    af_status st = AF_OK;
    const size_t n = json_object_size(vocab);
    ranked *list = af_calloc(AF_MAX(n, 1), sizeof *list);
    af_vocab ids = {0};
    af_arena arena = {0};
    size_t k = 0;
    uint64_t bytes = 0;
    if (!list)
        AF_TRY(af_fail_nomem(err, "a vocabulary", n * sizeof *list));
    for (void *it = json_object_iter(vocab); it; it = json_object_iter_next(vocab, it)) {
        const size_t len = json_object_iter_key_len(it);
        list[k++] =
            (ranked){json_object_iter_key(it), len, json_integer_value(json_object_iter_value(it))};
        bytes += (uint64_t)len * len;
    }
    if (bytes > CUTS_MAX)
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s: the tokens are too long: all their cuts into two have %" PRIu64
                       " bytes, and at most %" PRIu64 " are supported",
                       path, bytes, CUTS_MAX));
    qsort(list, k, sizeof *list, by_id);
    for (size_t i = 0; i < k; i++) /* in their order, and not by id: ids may have gaps */
        AF_TRY(af_vocab_add(&ids, &arena, list[i].text, list[i].len, (int32_t)i, err));
    for (size_t i = 0; i < k; i++)
        add_cuts(merges, &ids, list[i].text, list[i].len);
done:
    free(list);
    af_vocab_clear(&ids);
    af_arena_clear(&arena);
    return st;
}

/* ---- tiktoken: lines of base64 and rank ---- */

af_status af_tiktoken_read(json_t *vocab, json_t *merges, const char *path, af_error *err)
{
    af_status st = AF_OK;
    char *text = NULL;
    uint64_t n = 0;
    AF_TRY(af_file_read(&text, &n, path, RANKS_MAX, err));
    for (char *line = text, *next; line && *line; line = next) {
        char *end = strchr(line, '\n'), *after;
        next = end ? end + 1 : NULL;
        if (end)
            *end = 0;
        if (!*line)
            continue;
        const char *blank = strchr(line, ' ');
        const long long id = blank ? strtoll(blank + 1, &after, 10) : -1;
        if (!blank || after == blank + 1 || (*after && *after != '\r') || id < 0 || id >= INT32_MAX)
            AF_TRY(af_fail(err, AF_EFORMAT, "%s: '%.60s' is not a token and its rank", path, line));
        AF_TRY(add_token(vocab, line, (uint64_t)(blank - line), id, path, err));
    }
    AF_TRY(make_merges(merges, vocab, path, err));
done:
    free(text);
    return st;
}

/* ---- tekken.json ---- */

/* Of files that have no "special_tokens", as mistral-common has them. */
static const char *const old_specials[] = {"<unk>",
                                           "<s>",
                                           "</s>",
                                           "[INST]",
                                           "[/INST]",
                                           "[AVAILABLE_TOOLS]",
                                           "[/AVAILABLE_TOOLS]",
                                           "[TOOL_RESULTS]",
                                           "[/TOOL_RESULTS]",
                                           "[TOOL_CALLS]",
                                           "[IMG]",
                                           "<pad>",
                                           "[IMG_BREAK]",
                                           "[IMG_END]",
                                           "[PREFIX]",
                                           "[MIDDLE]",
                                           "[SUFFIX]",
                                           "[SYSTEM_PROMPT]",
                                           "[/SYSTEM_PROMPT]",
                                           "[TOOL_CONTENT]"};

/* Texts by their ids; the rest up to `count` are fillers. */
static af_status read_specials(json_t *specials, const json_t *file, json_int_t count,
                               const char *path, af_error *err)
{
    const json_t *list = json_object_get(file, "special_tokens");
    const size_t n = json_is_array(list) ? json_array_size(list) : AF_LEN(old_specials);
    if (count < (json_int_t)n || count > SPECIALS_MAX)
        return af_fail(err, AF_EFORMAT, "%s: default_num_special_tokens is %lld, not %zu to %d",
                       path, (long long)count, n, SPECIALS_MAX);
    for (json_int_t i = 0; i < count; i++) {
        char filler[48];
        snprintf(filler, sizeof filler, "<SPECIAL_%lld>", (long long)i);
        json_array_append_new(
            specials,
            json_string(!json_is_array(list) && i < (json_int_t)n ? old_specials[i] : filler));
    }
    for (size_t i = 0; json_is_array(list) && i < n; i++) {
        const json_t *e = json_array_get(list, i), *rank = json_object_get(e, "rank");
        json_t *text = json_object_get(e, "token_str");
        if (!json_is_integer(rank) || json_integer_value(rank) < 0 ||
            json_integer_value(rank) >= count || !json_is_string(text))
            return af_fail(err, AF_EFORMAT, "%s: special token %zu has no valid rank or text", path,
                           i);
        json_array_set(specials, (size_t)json_integer_value(rank), text);
    }
    return AF_OK;
}

af_status af_tekken_read(json_t *vocab, json_t *merges, json_t *specials, char **pattern,
                         const char *path, af_error *err)
{
    af_status st = AF_OK;
    json_t *file = NULL;
    AF_TRY(af_json_read_file(&file, path, err));
    const json_t *config = json_object_get(file, "config"), *list = json_object_get(file, "vocab");
    const json_t *size = json_object_get(config, "default_vocab_size"),
                 *count = json_object_get(config, "default_num_special_tokens");
    const char *split = json_string_value(json_object_get(config, "pattern"));
    if (!split || !json_is_array(list))
        AF_TRY(af_fail(err, AF_EFORMAT, "%s has no config.pattern or no vocab", path));
    const json_int_t first = json_is_integer(count) ? json_integer_value(count) : 1000;
    AF_TRY(read_specials(specials, file, first, path, err));
    json_int_t n = (json_int_t)json_array_size(list);
    if (json_is_integer(size) && json_integer_value(size) < first)
        AF_TRY(af_fail(err, AF_EFORMAT,
                       "%s: default_vocab_size is %lld, less than the %lld special tokens", path,
                       (long long)json_integer_value(size), (long long)first));
    if (json_is_integer(size)) /* the rest is padding */
        n = AF_MIN(n, json_integer_value(size) - first);
    for (json_int_t i = 0; i < n; i++) {
        const json_t *t = json_object_get(json_array_get(list, (size_t)i), "token_bytes");
        AF_TRY(add_token(vocab, json_string_value(t) ? json_string_value(t) : "",
                         json_string_length(t), first + i, path, err));
    }
    AF_TRY(make_merges(merges, vocab, path, err));
    *pattern = af_strdup(split);
    if (!*pattern)
        st = af_fail_nomem(err, "a pattern", strlen(split));
done:
    json_decref(file);
    return st;
}
