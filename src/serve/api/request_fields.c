/* request_fields.c - sampling, stops, log-probabilities and the rest that both endpoints share. */
#include "serve/api/generation.h"

#include "format/text/json_text.h"

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
    f->status = 404;
    f->code = "model_not_found";
    return af_fail_subject(&f->err, AF_EUSAGE, "model", "the model '%.200s' does not exist",
                           name ? name : "");
}

static af_status read_sampling(af_generation *g, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    af_sample_opts *s = &g->sample;
    int64_t seed = 0;
    *s = (af_sample_opts){.temperature = 1, .top_p = 1, .repeat_penalty = 1};
    AF_TRY(af_value_number(body, "temperature", 0, 2, &s->temperature, err));
    AF_TRY(af_value_number(body, "top_p", 0, 1, &s->top_p, err));
    AF_TRY(af_value_number(body, "min_p", 0, 1, &s->min_p, err));
    AF_TRY(af_value_int(body, "top_k", -1, INT32_MAX, &s->top_k, err));
    AF_TRY(af_value_number(body, "repeat_penalty", 0, 1000, &s->repeat_penalty, err));
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
        if (af_value(body, "top_logprobs") && !g->logprobs)
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

/* Fields that mean something elsewhere and cannot be honoured here. */
static af_status refuse_others(const json_t *body, af_error *err)
{
    static const char *const zero[] = {"frequency_penalty", "presence_penalty"};
    static const char *const absent[] = {"suffix", "audio", "functions", "function_call"};
    for (size_t i = 0; i < AF_LEN(zero); i++) {
        double v = 0;
        const af_status st = af_value_number(body, zero[i], -2, 2, &v, err);
        if (st != AF_OK)
            return st;
        if (v != 0)
            return af_fail_subject(err, AF_EUNSUPPORTED, zero[i],
                                   "'%s' is not supported; use 'repeat_penalty'", zero[i]);
    }
    for (size_t i = 0; i < AF_LEN(absent); i++)
        if (af_value(body, absent[i]) && !(json_is_string(af_value(body, absent[i])) &&
                                           !*json_string_value(af_value(body, absent[i]))))
            return af_fail_subject(err, AF_EUNSUPPORTED, absent[i], "'%s' is not supported",
                                   absent[i]);
    int64_t best_of = 1, n = 1;
    af_status st = af_value_int(body, "best_of", 1, 128, &best_of, err);
    if (st == AF_OK)
        st = af_value_int(body, "n", 1, 128, &n, err);
    if (st == AF_OK && af_value(body, "best_of") && best_of != n)
        st = af_fail_subject(err, AF_EUNSUPPORTED, "best_of",
                             "'best_of' above 'n' is not supported");
    return st;
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

af_status af_generation_fields(af_generation *g, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    int64_t n = 1;
    af_error *err = &f->err;
    AF_TRY(read_sampling(g, body, err));
    AF_TRY(read_stops(g, body, err));
    AF_TRY(read_bias(g, body, err));
    AF_TRY(read_logprobs(g, body, err));
    AF_TRY(read_stream(g, body, err));
    AF_TRY(af_value_int(body, "n", 1, 128, &n, err));
    AF_TRY(af_value_bool(body, "ignore_eos", &g->ignore_eos, err));
    AF_TRY(af_value_bool(body, "return_token_ids", &g->return_ids, err));
    AF_TRY(refuse_others(body, err));
    g->n = (int)n;
    g->max_tokens = g->chat ? INT32_MAX / 2 : 16;
    AF_TRY(af_value_int(body, "max_tokens", g->chat ? 1 : 0, INT32_MAX / 2, &g->max_tokens, err));
    AF_TRY(af_value_int(body, "max_completion_tokens", 1, INT32_MAX / 2, &g->max_tokens, err));
    g->no_tokens = g->max_tokens == 0;
    g->skip_special = true;
done:
    return st;
}

/* ---- constrained output ---- */

static af_status take_schema(af_generation *g, const json_t *schema, const char *field,
                             af_error *err)
{
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no schema", field);
    char *text = af_json_dump(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return af_fail_nomem(err, "the schema", 0);
    const af_status st =
        af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_JSON_SCHEMA, text, strlen(text), err);
    free(text);
    if (st != AF_OK && err) /* the field of the request; the message names the keyword */
        snprintf(err->subject, sizeof err->subject, "%s", field);
    return st;
}

static af_status take_rules(af_generation *g, const json_t *rules, const char *field, af_error *err)
{
    if (!json_is_string(rules))
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no grammar text", field);
    const af_status st = af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_GBNF,
                                        json_string_value(rules), json_string_length(rules), err);
    if (st != AF_OK && err)
        snprintf(err->subject, sizeof err->subject, "%s", field);
    return st;
}

af_status af_generation_format(af_generation *g, const json_t *body, af_api_fault *f)
{
    static const char name[] = "response_format";
    af_status st = AF_OK;
    json_t *format = NULL, *inner = NULL;
    af_error *err = &f->err;
    if (af_value(body, "grammar"))
        return take_rules(g, af_value(body, "grammar"), "grammar", err);
    if (af_value(body, "json_schema"))
        return take_schema(g, af_value(body, "json_schema"), "json_schema", err);
    AF_TRY(af_value_type(body, name, JSON_OBJECT, &format, err));
    if (!format)
        return AF_OK;
    const char *type = json_string_value(af_value(format, "type"));
    if (!type)
        return af_fail_subject(err, AF_EUSAGE, name, "'response_format' has no type");
    if (strcmp(type, "text") == 0)
        return AF_OK;
    if (strcmp(type, "json_object") == 0 && af_value(format, "schema"))
        return take_schema(g, af_value(format, "schema"), name, err);
    if (strcmp(type, "json_object") == 0)
        return af_api_grammar(g->api, &g->grammar, AF_GRAMMAR_JSON_OBJECT, "", 0, err);
    if (strcmp(type, "grammar") == 0)
        return take_rules(g, af_value(format, "grammar"), name, err);
    if (strcmp(type, "json_schema") == 0) {
        AF_TRY(af_value_type(format, "json_schema", JSON_OBJECT, &inner, err));
        return take_schema(g, inner ? af_value(inner, "schema") : af_value(format, "schema"), name,
                           err);
    }
    st = af_fail_subject(err, AF_EUSAGE, name, "'response_format' is of the unknown type '%.40s'",
                         type);
done:
    return st;
}
