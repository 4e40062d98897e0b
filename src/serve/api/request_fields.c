/* request_fields.c - sampling, stops, log-probabilities and the rest that both endpoints share. */
#include "serve/api/generation.h"

#include <float.h>
#include <sys/random.h>

af_status af_request_model(af_api *a, const json_t *body, af_served **out, af_api_fault *f)
{
    const char *name = NULL;
    const af_status st = af_value_string(body, "model", &name, &f->err);
    if (st != AF_OK)
        return st;
    *out = af_api_find_model(a, name);
    if (*out)
        return AF_OK;
    af_served *base = af_api_find_model(a, NULL);
    f->status = 404;
    f->code = "model_not_found";
    const af_status none = af_fail_subject(
        &f->err, AF_EUSAGE, "model",
        "the model '%.200s' does not exist; the server has '%.200s' (GET /v1/models lists it and "
        "its adapters)",
        name ? name : "", base ? base->name : "");
    af_served_unref(base);
    return none;
}

static af_status read_sampling(af_generation *g, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    af_sample_opts *s = &g->sample;
    int64_t seed = 0, last = -1;
    *s = (af_sample_opts){.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    AF_TRY(af_value_number(body, "temperature", 0, 2, &s->temperature, err));
    AF_TRY(af_value_number(body, "top_p", 0, 1, &s->top_p, err));
    AF_TRY(af_value_number(body, "min_p", 0, 1, &s->min_p, err));
    AF_TRY(af_value_int(body, "top_k", -1, INT32_MAX, &s->top_k, err));
    AF_TRY(
        af_value_number(body, "repetition_penalty", 0, 1000, &s->repeat_penalty, err)); /* vLLM */
    AF_TRY(af_value_number(body, "repeat_penalty", 0, 1000, &s->repeat_penalty, err));
    AF_TRY(af_value_number(body, "frequency_penalty", -2, 2, &s->frequency_penalty, err));
    AF_TRY(af_value_number(body, "presence_penalty", -2, 2, &s->presence_penalty, err));
    AF_TRY(af_value_int(body, "repeat_last_n", -1, INT32_MAX, &last, err)); /* llama-server */
    if (last == 0)                                                          /* no token counts */
        s->frequency_penalty = s->presence_penalty = s->repeat_penalty = 0;
    s->repeat_last_n = AF_MAX(last, 0);
    AF_TRY(af_value_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err));
    s->top_k = AF_MAX(s->top_k, 0);
    s->top_p = s->top_p == 0 ? DBL_MIN : s->top_p; /* 0 is off in the library */
    s->seed = (uint64_t)seed;
    if (!af_value(body, "seed"))
        (void)!getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK);
done:
    return st;
}

static af_status add_stop(af_generation *g, const json_t *v, af_error *err)
{
    if (!json_is_string(v))
        return af_fail_subject(err, AF_EUSAGE, "stop",
                               "'stop' is not a string or a list of strings");
    if (json_string_length(v) == 0)
        return AF_OK;
    if (strlen(json_string_value(v)) != json_string_length(v))
        return af_fail_subject(err, AF_EUSAGE, "stop", "'stop' contains a NUL character");
    if (g->stops == AF_STOPS_MAX)
        return af_fail_subject(err, AF_EUSAGE, "stop", "'stop' has more than %d strings",
                               AF_STOPS_MAX);
    g->stop[g->stops] = af_strdup(json_string_value(v));
    if (!g->stop[g->stops])
        return af_fail_nomem(err, "stop strings", json_string_length(v));
    g->stops++;
    return AF_OK;
}

static af_status read_stops(af_generation *g, const json_t *body, af_error *err)
{
    const json_t *v = af_value(body, "stop");
    af_status st = AF_OK;
    if (!v)
        return AF_OK;
    if (!json_is_array(v))
        return add_stop(g, v, err);
    for (size_t i = 0; st == AF_OK && i < json_array_size(v); i++)
        st = add_stop(g, json_array_get(v, i), err);
    return st;
}

/* vLLM's: tokens that end the answer as the end token does. */
static af_status read_stop_ids(af_generation *g, const json_t *body, af_error *err)
{
    static const char field[] = "stop_token_ids";
    json_t *list = NULL;
    const af_status st = af_value_type(body, field, JSON_ARRAY, &list, err);
    if (st != AF_OK)
        return st;
    if (json_array_size(list) > AF_STOPS_MAX)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has more than %d ids", field,
                               AF_STOPS_MAX);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
        if (value < 0 || value >= g->api->vocab)
            return af_fail_subject(err, AF_EUSAGE, field,
                                   "'%s' is not a list of token ids (0 to %" PRId64 ")", field,
                                   g->api->vocab - 1);
        g->stop_id[g->stop_ids++] = (int32_t)value;
    }
    return AF_OK;
}

static af_status read_bias(af_generation *g, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    json_t *v = NULL, *item;
    const char *key;
    AF_TRY(af_value_type(body, "logit_bias", JSON_OBJECT, &v, err));
    if (!v || json_object_size(v) == 0)
        return AF_OK;
    g->bias = af_calloc(json_object_size(v), sizeof *g->bias);
    if (!g->bias)
        return af_fail_nomem(err, "logit_bias", json_object_size(v) * sizeof *g->bias);
    json_object_foreach(v, key, item)
    {
        char *end = NULL;
        const long id = strtol(key, &end, 10);
        const double bias = json_number_value(item);
        if (!*key || *end || id < 0 || id >= g->api->vocab || !json_is_number(item) ||
            bias < -100 || bias > 100)
            return af_fail_subject(err, AF_EUSAGE, "logit_bias",
                                   "'logit_bias' maps token ids (0 to %" PRId64
                                   ") to numbers from -100 to 100, not '%.40s'",
                                   g->api->vocab - 1, key);
        g->bias[g->biases++] = (af_logit_bias){(int32_t)id, bias};
    }
done:
    return st;
}

static af_status read_logprobs(af_generation *g, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    int64_t top = 0;
    if (g->chat) {
        AF_TRY(af_value_bool(body, "logprobs", &g->logprobs, err));
        AF_TRY(af_value_int(body, "top_logprobs", 0, AF_TOP_LOGPROBS_MAX, &top, err));
        if (top > 0 && !g->logprobs)
            return af_fail_subject(err, AF_EUSAGE, "top_logprobs",
                                   "'top_logprobs' needs 'logprobs': true");
    } else {
        AF_TRY(af_value_int(body, "logprobs", 0, AF_TOP_LOGPROBS_MAX, &top, err));
        g->logprobs = af_value(body, "logprobs") != NULL;
    }
    g->top_logprobs = (int)top;
done:
    return st;
}

/* null, false, 0, "", [] and {}: as if the field were absent. */
static bool says_nothing(const json_t *v)
{
    return !v || json_is_null(v) || json_is_false(v) ||
           (json_is_number(v) && json_number_value(v) == 0) ||
           (json_is_string(v) && json_string_length(v) == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Something else than text is asked for. */
static af_status refuse_modalities(const json_t *body, af_error *err)
{
    static const char field[] = "modalities";
    json_t *list = NULL;
    const af_status st = af_value_type(body, field, JSON_ARRAY, &list, err);
    for (size_t i = 0; st == AF_OK && i < json_array_size(list); i++)
        if (!af_is_word(json_array_get(list, i), "text"))
            return af_fail_subject(err, AF_EUNSUPPORTED, field,
                                   "'%s' other than [\"text\"] is not supported", field);
    return st;
}

/* Fields that mean something elsewhere and cannot be honoured here. */
static af_status refuse_others(const json_t *body, bool chat, af_error *err)
{
    static const char *const absent[] = {"audio",
                                         "use_beam_search",
                                         "prompt_logprobs",
                                         "truncate_prompt_tokens",
                                         "include_stop_str_in_output",
                                         "logits_processors",
                                         "chat_template",
                                         "suffix", /* of completions, as "echo" */
                                         "echo"};
    const size_t others = chat ? 0 : 2;
    for (size_t i = 0; i < AF_LEN(absent) - others; i++)
        if (!says_nothing(json_object_get(body, absent[i])))
            return af_fail_subject(err, AF_EUNSUPPORTED, absent[i], "'%s' is not supported",
                                   absent[i]);
    if (af_value(body, "web_search_options")) /* also without any: it is the search itself */
        return af_fail_subject(err, AF_EUNSUPPORTED, "web_search_options",
                               "'web_search_options' is not supported");
    const af_status st = af_samplers_check(body, err);
    return st == AF_OK ? refuse_modalities(body, err) : st;
}

/* How many answers there are to a prompt, and how many of them are shown: the most likely. */
static af_status read_counts(af_generation *g, const json_t *body, af_error *err)
{
    static const char field[] = "best_of";
    int64_t n = 1, best_of;
    af_status st = AF_OK;
    AF_TRY(af_value_int(body, "n", 1, 128, &n, err));
    best_of = n;
    AF_TRY(af_value_int(body, field, 1, 128, &best_of, err));
    if (best_of < n)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, field,
                               "'best_of' is %" PRId64 ", less than 'n', %" PRId64, best_of, n));
    if (best_of > n && (g->chat || g->stream))
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, field,
                               "'best_of' above 'n' is not supported %s",
                               g->chat ? "in chats" : "with 'stream'"));
    if (best_of > 1 && g->form->item.open)
        AF_TRY(af_fail_subject(err, AF_EUNSUPPORTED, n > 1 ? "n" : field,
                               "'%s' above 1 is not supported here: use chat completions",
                               n > 1 ? "n" : field));
    g->n = (int)best_of;
    g->shown = (int)n;
done:
    return st;
}

/* -1: no limit but the context, as for llama-server and LM Studio. */
static af_status read_limit(af_generation *g, const json_t *body, const char *name, int64_t least,
                            af_error *err)
{
    const json_t *v = af_value(body, name);
    const int64_t most = INT32_MAX / 2;
    if (json_is_integer(v) && json_integer_value(v) == -1) {
        g->max_tokens = most;
        return AF_OK;
    }
    return af_value_int(body, name, least, most, &g->max_tokens, err);
}

static af_status read_stream(af_generation *g, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    json_t *options = NULL;
    AF_TRY(af_value_bool(body, "stream", &g->stream, err));
    AF_TRY(af_value_type(body, "stream_options", JSON_OBJECT, &options, err));
    if (options && !g->stream)
        return af_fail_subject(err, AF_EUSAGE, "stream_options",
                               "'stream_options' needs 'stream': true");
    if (options)
        AF_TRY(af_value_bool(options, "include_usage", &g->include_usage, err));
done:
    return st;
}

/* llama-server's: reasoning in "reasoning_content", or with its marks in the text. */
static af_status read_reasoning(af_generation *g, const json_t *body, af_error *err)
{
    static const char field[] = "reasoning_format";
    const char *format = g->api->o.reasoning ? "auto" : "none";
    const af_status st = af_value_string(body, field, &format, err);
    if (st != AF_OK)
        return st;
    const bool none = strcmp(format, "none") == 0;
    if (!none && strcmp(format, "auto") != 0 && strcmp(format, "deepseek") != 0)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' is '%.40s', not none, auto or deepseek",
                               field, format);
    g->reasoning = g->chat && !none;
    return AF_OK;
}

af_status af_generation_fields(af_generation *g, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    bool skip = true;
    af_error *err = &f->err;
    AF_TRY(read_sampling(g, body, err));
    AF_TRY(read_stops(g, body, err));
    AF_TRY(read_stop_ids(g, body, err));
    AF_TRY(read_bias(g, body, err));
    AF_TRY(af_limits_read(g, body, err));
    AF_TRY(read_logprobs(g, body, err));
    AF_TRY(read_stream(g, body, err));
    AF_TRY(read_counts(g, body, err));
    AF_TRY(af_value_bool(body, "ignore_eos", &g->ignore_eos, err));
    AF_TRY(af_value_bool(body, "return_token_ids", &g->return_ids, err));
    AF_TRY(af_value_bool(body, "skip_special_tokens", &skip, err)); /* vLLM */
    AF_TRY(read_reasoning(g, body, err));
    AF_TRY(refuse_others(body, g->chat, err));
    g->show_special = !skip;
    g->max_tokens = g->chat ? INT32_MAX / 2 : 16;
    AF_TRY(read_limit(g, body, "max_tokens", g->chat ? 1 : 0, err));
    AF_TRY(read_limit(g, body, "max_completion_tokens", 1, err));
    AF_TRY(read_limit(g, body, "n_predict", 1, err)); /* llama-server's, which also goes first */
    AF_TRY(af_value_int(body, "min_tokens", 0, INT32_MAX / 2, &g->min_tokens, err));
    if (g->min_tokens > g->max_tokens)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "min_tokens",
                               "'min_tokens' is %" PRId64 ", more than 'max_tokens', %" PRId64,
                               g->min_tokens, g->max_tokens));
    g->no_tokens = g->max_tokens == 0;
done:
    return st;
}

void af_copy_fields(const json_t *body, json_t *chat)
{
    /* clang-format off */
    static const char *const same[] = {
        "model", "stream", "temperature", "top_p", "top_k", "min_p", "repeat_penalty",
        "repetition_penalty", "repeat_last_n", "frequency_penalty", "presence_penalty", "seed",
        "stop", "stop_token_ids", "logit_bias", "allowed_token_ids", "bad_words", "ignore_eos",
        "min_tokens", "grammar", "structured_outputs", "parallel_tool_calls", "reasoning_format",
        "reasoning_effort", "chat_template_kwargs", "n", "best_of", "skip_special_tokens",
        "add_special_tokens", "json_schema", "guided_json", "guided_choice", "guided_grammar",
        "guided_regex", "structural_tag", "documents", "continue_final_message",
        "add_generation_prompt", "mirostat", "typical_p", "dry_multiplier", "xtc_probability",
        "dynatemp_range", "top_n_sigma", "use_beam_search", "audio", "modalities",
        "web_search_options", "truncate_prompt_tokens", "include_stop_str_in_output",
        "logits_processors", "chat_template"};
    /* clang-format on */
    for (size_t i = 0; i < AF_LEN(same); i++)
        if (af_value(body, same[i]))
            json_object_set(chat, same[i], json_object_get(body, same[i]));
}
