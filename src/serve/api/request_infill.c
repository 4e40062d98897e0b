/* request_infill.c - a completion with text after it ("suffix"): the prompt of models that were
 * trained to fill in the middle. Their tokens are known by name, as llama.cpp knows them. */
#include "serve/api/generation.h"

static const struct {
    const char *before, *after, *middle; /* middle NULL: the suffix comes first, then the prefix */
} marks[] = {{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma, Granite */
             {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder */
             {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       /* SantaCoder */
             {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"}, /* DeepSeek */
             {"▁<PRE>", "▁<SUF>", "▁<MID>"},                         /* Code Llama */
             {"<PRE>", "<SUF>", "<MID>"},
             {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"}, /* GLM */
             {"<|prefix|>", "<|suffix|>", "<|middle|>"},                /* Falcon */
             {"[PREFIX]", "[SUFFIX]", NULL}};                           /* Codestral */
/* What such a model writes after the middle, where it is not the end token. */
static const char *const ends[] = {"<|endoftext|>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>",
                                   "<file_sep>",    "▁<EOT>",      "<EOT>"};
_Static_assert(AF_LEN(ends) <= AF_STOPS_MORE, "space for them in stop_id");

static int32_t id_of(const af_generation *g, const char *token)
{
    return token ? af_tokenizer_id(g->api->tokenizer, token, strlen(token)) : -1;
}

/* Adds a mark (-1: none) and a text to the prompt. */
static af_status add_part(const af_generation *g, af_encoding *to, int32_t mark, const json_t *text,
                          af_error *err)
{
    af_status st = AF_OK;
    af_encoding e = {0};
    if (text)
        AF_TRY(af_tokenizer_encode(g->api->tokenizer, &e, json_string_value(text),
                                   json_string_length(text), false, err));
    const int64_t count = to->count + (mark >= 0) + e.count;
    int32_t *ids = af_realloc(to->ids, (uint64_t)count + 1, sizeof *ids);
    if (!ids)
        AF_TRY(af_fail_nomem(err, "the prompt", (uint64_t)count * sizeof *ids));
    to->ids = ids;
    if (mark >= 0)
        ids[to->count++] = mark;
    if (e.count)
        memcpy(ids + to->count, e.ids, (uint64_t)e.count * sizeof *ids);
    to->count = to->cap = count;
done:
    af_encoding_clear(&e);
    return st;
}

/* The token that every text of this model begins with, or none. */
static af_status add_begin(const af_generation *g, af_encoding *to, af_error *err)
{
    af_status st = AF_OK;
    af_encoding plain = {0}, whole = {0};
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, &plain, "a", 1, false, err));
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, &whole, "a", 1, true, err));
    if (whole.count > plain.count && plain.count && whole.ids[0] != plain.ids[0])
        AF_TRY(add_part(g, to, whole.ids[0], NULL, err));
done:
    af_encoding_clear(&plain);
    af_encoding_clear(&whole);
    return st;
}

static af_status add_parts(const af_generation *g, af_encoding *to, const json_t *prompt,
                           const json_t *suffix, af_error *err)
{
    af_status st = AF_OK;
    size_t k = 0;
    while (k < AF_LEN(marks) && (id_of(g, marks[k].before) < 0 || id_of(g, marks[k].after) < 0 ||
                                 (marks[k].middle && id_of(g, marks[k].middle) < 0)))
        k++;
    if (k == AF_LEN(marks))
        return af_fail_subject(err, AF_EUNSUPPORTED, "suffix",
                               "'suffix' is not supported: the model has no tokens for filling in "
                               "the middle");
    const int32_t before = id_of(g, marks[k].before), after = id_of(g, marks[k].after);
    AF_TRY(add_begin(g, to, err));
    if (!marks[k].middle)
        AF_TRY(add_part(g, to, after, suffix, err));
    AF_TRY(add_part(g, to, before, prompt, err));
    if (marks[k].middle) {
        AF_TRY(add_part(g, to, after, suffix, err));
        AF_TRY(add_part(g, to, id_of(g, marks[k].middle), NULL, err));
    }
done:
    return st;
}

af_status af_generation_infill(af_generation *g, const json_t *body, af_error *err)
{
    const json_t *prompt = af_value(body, "prompt"), *suffix = af_value(body, "suffix");
    const bool list = json_is_array(prompt) && json_array_size(prompt) > 0;
    const size_t n = list ? json_array_size(prompt) : 1;
    af_status st = AF_OK;
    if (!json_is_string(suffix))
        return af_fail_subject(err, AF_EUSAGE, "suffix", "'suffix' is not a text");
    if (n > AF_INPUTS_MAX)
        return af_fail_subject(err, AF_EUSAGE, "prompt",
                               "'prompt' has %zu entries; at most %d are supported", n,
                               AF_INPUTS_MAX);
    g->prompt = af_calloc(n, sizeof *g->prompt);
    if (!g->prompt)
        return af_fail_nomem(err, "prompts", n * sizeof *g->prompt);
    g->prompts = (int)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = list ? json_array_get(prompt, i) : prompt;
        if (!json_is_string(one))
            return af_fail_subject(err, AF_EUSAGE, "prompt",
                                   "'prompt' is not a text or a list of texts, as 'suffix' needs");
        AF_TRY(add_parts(g, &g->prompt[i], one, suffix, err));
    }
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (id_of(g, ends[i]) >= 0)
            g->stop_id[g->stop_ids++] = id_of(g, ends[i]);
done:
    return st;
}
