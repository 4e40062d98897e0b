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

/* Adds a mark (-1: none) and tokens to the prompt. */
static af_status add_ids(af_encoding *to, int32_t mark, const int32_t *ids, int64_t n,
                         af_error *err)
{
    const int64_t count = to->count + (mark >= 0) + n;
    int32_t *all = af_realloc(to->ids, (uint64_t)count + 1, sizeof *all);
    if (!all)
        return af_fail_nomem(err, "the prompt", (uint64_t)count * sizeof *all);
    to->ids = all;
    if (mark >= 0)
        all[to->count++] = mark;
    if (n)
        memcpy(all + to->count, ids, (uint64_t)n * sizeof *all);
    to->count = to->cap = count;
    return AF_OK;
}

/* The same with a text. */
static af_status add_text(const af_generation *g, af_encoding *to, int32_t mark, const char *text,
                          uint64_t n, af_error *err)
{
    af_encoding e = {0};
    af_status st = af_tokenizer_encode(g->api->tokenizer, &e, text, n, false, err);
    if (st == AF_OK)
        st = add_ids(to, mark, e.ids, e.count, err);
    af_encoding_clear(&e);
    return st;
}

static af_status add_json(const af_generation *g, af_encoding *to, const json_t *text,
                          af_error *err)
{
    return text ? add_text(g, to, -1, json_string_value(text), json_string_length(text), err)
                : AF_OK;
}

/* The token that every text of this model begins with, or none. */
static af_status add_begin(const af_generation *g, af_encoding *to, af_error *err)
{
    af_status st = AF_OK;
    af_encoding plain = {0}, whole = {0};
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, &plain, "a", 1, false, err));
    AF_TRY(af_tokenizer_encode(g->api->tokenizer, &whole, "a", 1, true, err));
    if (whole.count > plain.count && plain.count && whole.ids[0] != plain.ids[0])
        AF_TRY(add_ids(to, whole.ids[0], NULL, 0, err));
done:
    af_encoding_clear(&plain);
    af_encoding_clear(&whole);
    return st;
}

/* ---- /infill: other texts of the project, as llama-server puts them ---- */

static int32_t first_id(const af_generation *g, const char *const *tokens, size_t n)
{
    int32_t id = -1;
    for (size_t i = 0; i < n && id < 0; i++)
        id = id_of(g, tokens[i]);
    return id;
}

static af_status add_file(const af_generation *g, af_encoding *to, int32_t mark, const char *name,
                          af_error *err)
{
    af_buf b = {0};
    af_buf_printf(&b, "%s\n", name);
    const af_status st =
        b.bad ? af_fail_nomem(err, "the prompt", b.len) : add_text(g, to, mark, b.data, b.len, err);
    af_buf_clear(&b);
    return st;
}

static af_status add_extra(const af_generation *g, af_encoding *to, const json_t *list,
                           af_error *err)
{
    static const char *const repos[] = {"<|repo_name|>", "<repo_name>", "<reponame>", "<REPO>"};
    static const char *const files[] = {"<|file_sep|>", "<file_sep>"};
    static const char between[] = "\n\n--- snippet ---\n\n";
    const int32_t repo = first_id(g, repos, AF_LEN(repos)),
                  file = first_id(g, files, AF_LEN(files));
    af_status st = AF_OK;
    if (repo >= 0)
        AF_TRY(add_file(g, to, repo, "myproject", err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *text = af_value(one, "text");
        const char *name = json_string_value(af_value(one, "filename"));
        if (!json_is_string(text))
            return af_fail_subject(err, AF_EUSAGE, "input_extra",
                                   "'input_extra' is not a list of {\"filename\", \"text\"}");
        AF_TRY(file >= 0 ? add_file(g, to, file, name ? name : "tmp", err)
                         : add_text(g, to, -1, between, sizeof between - 1, err));
        AF_TRY(add_json(g, to, text, err));
    }
    if (file >= 0)
        AF_TRY(add_file(g, to, file, "filename", err));
done:
    return st;
}

/* Leaves out what is farthest from the gap until all fits. */
static void crop(const af_generation *g, af_encoding *extra, af_encoding *before,
                 af_encoding *after)
{
    const int64_t context = g->api->context, marks_max = 8;
    const int64_t room = AF_MAX(context - AF_MIN(g->max_tokens, context / 4) - marks_max, 0);
    after->count = AF_MIN(after->count, AF_MAX(room / 4, room - before->count));
    const int64_t kept = AF_MIN(before->count, room - after->count);
    const int64_t more = AF_MIN(extra->count, room - after->count - kept);
    if (kept)
        memmove(before->ids, before->ids + before->count - kept, (uint64_t)kept * sizeof(int32_t));
    if (more)
        memmove(extra->ids, extra->ids + extra->count - more, (uint64_t)more * sizeof(int32_t));
    before->count = kept;
    extra->count = more;
}

/* ---- prompts ---- */

static af_status find_marks(const af_generation *g, size_t *k, af_error *err)
{
    *k = 0;
    while (*k < AF_LEN(marks) && (id_of(g, marks[*k].before) < 0 || id_of(g, marks[*k].after) < 0 ||
                                  (marks[*k].middle && id_of(g, marks[*k].middle) < 0)))
        ++*k;
    if (*k == AF_LEN(marks))
        return af_fail_subject(err, AF_EUNSUPPORTED, "suffix",
                               "'suffix' is not supported: the model has no tokens for filling in "
                               "the middle");
    return AF_OK;
}

static af_status add_parts(const af_generation *g, af_encoding *to, const json_t *prompt,
                           const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    size_t k;
    af_encoding extra = {0}, before = {0}, after = {0};
    AF_TRY(find_marks(g, &k, err));
    const int32_t open = id_of(g, marks[k].before), gap = id_of(g, marks[k].after);
    AF_TRY(add_json(g, &before, prompt, err));
    AF_TRY(add_json(g, &after, af_value(body, "suffix"), err));
    if (g->form->infill) {
        AF_TRY(add_json(g, &before, af_value(body, "input_line"), err));
        AF_TRY(add_extra(g, &extra, af_value(body, "input_extra"), err));
        crop(g, &extra, &before, &after);
    }
    AF_TRY(add_begin(g, to, err));
    AF_TRY(add_ids(to, -1, extra.ids, extra.count, err));
    if (!marks[k].middle)
        AF_TRY(add_ids(to, gap, after.ids, after.count, err));
    AF_TRY(add_ids(to, open, before.ids, before.count, err));
    if (marks[k].middle) {
        AF_TRY(add_ids(to, gap, after.ids, after.count, err));
        AF_TRY(add_ids(to, id_of(g, marks[k].middle), NULL, 0, err));
    }
done:
    af_encoding_clear(&extra);
    af_encoding_clear(&before);
    af_encoding_clear(&after);
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
        AF_TRY(add_parts(g, &g->prompt[i], one, body, err));
    }
    for (size_t i = 0; i < AF_LEN(ends); i++)
        if (id_of(g, ends[i]) >= 0)
            g->stop_id[g->stop_ids++] = id_of(g, ends[i]);
done:
    return st;
}
