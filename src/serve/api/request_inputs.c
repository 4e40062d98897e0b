/* request_inputs.c - texts and token ids of a request. */
#include "serve/api/generation.h"

void af_inputs_free(af_encoding *e, int count)
{
    for (int i = 0; e && i < count; i++)
        af_encoding_clear(&e[i]);
    free(e);
}

static af_status read_ids(const af_api *a, const json_t *list, const char *field, af_encoding *out,
                          af_error *err)
{
    const size_t n = json_array_size(list);
    out->ids = af_calloc(n, sizeof *out->ids);
    if (!out->ids)
        return af_fail_nomem(err, "tokens", n * sizeof *out->ids);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= a->vocab)
            return af_fail_subject(err, AF_EUSAGE, field,
                                   "'%s' has a token that is not an id from 0 to %" PRId64, field,
                                   a->vocab - 1);
        out->ids[i] = (int32_t)id;
    }
    out->count = out->cap = (int64_t)n;
    return AF_OK;
}

static af_status read_one(const af_api *a, const json_t *v, const char *field, bool special,
                          af_encoding *out, af_error *err)
{
    af_status st = AF_OK;
    if (json_is_string(v))
        AF_TRY(af_tokenizer_encode(a->tokenizer, out, json_string_value(v), json_string_length(v),
                                   special, err));
    else if (json_is_array(v) && json_array_size(v))
        AF_TRY(read_ids(a, v, field, out, err));
    else
        return af_fail_subject(
            err, AF_EUSAGE, field,
            "'%s' is not a text, a list of texts, token ids or lists of token ids", field);
    if (out->count == 0)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' has no tokens", field);
done:
    return st;
}

af_status af_read_inputs(const af_api *a, const json_t *body, const char *field, af_encoding **out,
                         int *count, af_error *err)
{
    const json_t *v = af_value(body, field);
    const bool many =
        json_is_array(v) && json_array_size(v) && !json_is_integer(json_array_get(v, 0));
    const size_t n = many ? json_array_size(v) : 1;
    af_status st = AF_OK;
    bool special = true;
    if (!v)
        return af_fail_subject(err, AF_EUSAGE, field, "'%s' is absent", field);
    AF_TRY(af_value_bool(body, "add_special_tokens", &special, err)); /* vLLM */
    if (n > AF_INPUTS_MAX)
        return af_fail_subject(err, AF_EUSAGE, field,
                               "'%s' has %zu entries; at most %d are supported", field, n,
                               AF_INPUTS_MAX);
    *out = af_calloc(n, sizeof **out);
    if (!*out)
        return af_fail_nomem(err, "prompts", n * sizeof **out);
    *count = (int)n;
    for (size_t i = 0; i < n; i++)
        AF_TRY(read_one(a, many ? json_array_get(v, i) : v, field, special, &(*out)[i], err));
done:
    return st;
}
