/* token_limits.c - tokens that an answer may not have: vLLM's "allowed_token_ids" and "bad_words",
 * and end tokens before min_tokens. */
#include "serve/api/generation.h"

enum { BAD_WORDS_MAX = 1024 };

static af_status read_allowed(af_generation *g, const json_t *body, af_error *err)
{
    static const char field[] = "allowed_token_ids";
    json_t *list = NULL;
    const af_status st = af_value_type(body, field, JSON_ARRAY, &list, err);
    if (st != AF_OK || !list)
        return st;
    const uint64_t words = (uint64_t)(g->api->vocab + 31) / 32;
    g->only = af_calloc(words, sizeof *g->only);
    if (!g->only)
        return af_fail_nomem(err, field, words * sizeof *g->only);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= g->api->vocab)
            return af_fail_subject(err, AF_EUSAGE, field,
                                   "'%s' is not a list of token ids (0 to %" PRId64 ")", field,
                                   g->api->vocab - 1);
        g->only[value / 32] |= 1u << (value % 32);
    }
    if (json_array_size(list) == 0)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' is empty", field);
    return AF_OK;
}

/* A word as it stands at the beginning and, where that is as many other tokens, after a blank. */
static af_status add_word(af_generation *g, const char *word, af_error *err)
{
    af_status st = AF_OK;
    af_buf text = {0};
    af_encoding *first = &g->bad[g->bads], *second = first + 1;
    while (*word == ' ')
        word++;
    g->bads += 2;
    af_buf_printf(&text, " %s", word);
    if (text.bad)
        AF_TRY(af_fail_nomem(err, "bad_words", strlen(word)));
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, first, text.data + 1, text.len - 1, false, err));
    if (first->count == 0)
        AF_TRY(
            af_fail_subject(err, AF_EUSAGE, "bad_words", "'bad_words' has a word without tokens"));
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, second, text.data, text.len, false, err));
    if (second->count != first->count || second->ids[0] == first->ids[0]) {
        af_encoding_clear(second);
        g->bads--;
    }
done:
    af_buf_clear(&text);
    return st;
}

static af_status read_words(af_generation *g, const json_t *body, af_error *err)
{
    static const char field[] = "bad_words";
    json_t *list = NULL;
    af_status st = af_value_type(body, field, JSON_ARRAY, &list, err);
    const size_t n = json_array_size(list);
    if (st != AF_OK || n == 0)
        return st;
    if (n > BAD_WORDS_MAX)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has more than %d words", field,
                               BAD_WORDS_MAX);
    g->bad = af_calloc(2 * n, sizeof *g->bad);
    if (!g->bad)
        return af_fail_nomem(err, field, 2 * n * sizeof *g->bad);
    for (size_t i = 0; st == AF_OK && i < n; i++) {
        const char *word = json_string_value(json_array_get(list, i));
        st = word ? add_word(g, word, err)
                  : af_fail_subject(err, AF_EUSAGE, field, "'%s' is not a list of texts", field);
    }
    return st;
}

af_status af_limits_read(af_generation *g, const json_t *body, af_error *err)
{
    const af_status st = read_allowed(g, body, err);
    return st == AF_OK ? read_words(g, body, err) : st;
}

void af_limits_free(af_generation *g)
{
    af_inputs_free(g->bad, g->bads);
    free(g->only);
}

bool af_limits_any(const af_generation *g)
{
    return g->only || g->bads || (g->min_tokens && g->stop_ids);
}

static void forbid(uint32_t *allowed, int32_t id) { allowed[id / 32] &= ~(1u << (id % 32)); }

void af_limits_apply(const af_generation *g, const int32_t *made, int64_t n, uint32_t *allowed)
{
    const int64_t words = (g->api->vocab + 31) / 32;
    for (int64_t i = 0; g->only && i < words; i++)
        allowed[i] &= g->only[i];
    for (int i = 0; i < g->bads; i++) {
        const int64_t before = g->bad[i].count - 1;
        if (n >= before && (before == 0 || memcmp(made + n - before, g->bad[i].ids,
                                                  (uint64_t)before * sizeof *made) == 0))
            forbid(allowed, g->bad[i].ids[before]);
    }
    /* min_tokens, for the ids of stop_token_ids: the decoder knows those of the model */
    for (int i = 0; i < g->stop_ids && n < g->min_tokens; i++)
        forbid(allowed, g->stop_id[i]);
}
