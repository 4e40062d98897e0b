/* scores.c - /v1/score and /v1/rerank as vLLM answers them with an embedding model: the cosine of
 * the angle between two texts' vectors. */
#include "serve/api/embeddings.h"

#include "format/text/json_text.h"

/* ---- requests ---- */

static void add_texts(json_t *list, json_t *v)
{
    if (json_is_array(v))
        json_array_extend(list, v);
    else
        json_array_append(list, v);
}

/* The first of these fields that is there. */
static json_t *one_of(const json_t *body, const char *const names[3])
{
    json_t *v = NULL;
    for (int i = 0; i < 3 && !v; i++)
        v = af_value(body, names[i]);
    return v;
}

/* Makes the inputs of texts, those to compare with first. */
static af_status take_texts(af_embedding_task *e, const json_t *asked, json_t *first,
                            json_t *second, const char *const names[2], af_error *err)
{
    static const char special[] = "add_special_tokens";
    af_status st = AF_OK;
    json_t *list = json_array(), *body = NULL;
    add_texts(list, first);
    e->score.queries = (int)json_array_size(list);
    add_texts(list, second);
    const size_t others = json_array_size(list) - (size_t)e->score.queries;
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i)))
            AF_TRY(af_fail_subject(err, AF_EUSAGE, names[i >= (size_t)e->score.queries],
                                   "'%s' is not a text or a list of texts",
                                   names[i >= (size_t)e->score.queries]));
    if (others == 0 || e->score.queries == 0 ||
        (e->score.queries > 1 && (size_t)e->score.queries != others))
        AF_TRY(af_fail_subject(err, AF_EUSAGE, names[1],
                               "%d texts of '%s' cannot be compared with %zu of '%s'; one can with "
                               "any number, and more with as many",
                               e->score.queries, names[0], others, names[1]));
    body = json_pack("{s:O, s:O?}", "input", list, special, json_object_get(asked, special));
    AF_TRY(af_memory_check(err));
    st = af_read_inputs(e->api, body, "input", &e->input, &e->inputs, err);
    if (st != AF_OK && err)
        snprintf(err->subject, sizeof err->subject, "%s", names[1]);
    AF_TRY(st);
    e->score.query =
        af_calloc((uint64_t)e->score.queries * (uint64_t)e->dimensions, sizeof *e->score.query);
    e->score.value = af_calloc(others, sizeof *e->score.value);
    if (!e->score.query || !e->score.value)
        AF_TRY(af_fail_nomem(err, "scores", others * sizeof *e->score.value));
done:
    json_decref(list);
    json_decref(body);
    return st;
}

static af_status read_score(af_embedding_task *e, const json_t *body, af_error *err)
{
    static const char *const firsts[] = {"text_1", "queries", "data_1"},
                             *const seconds[] = {"text_2", "documents", "data_2"},
                             *const names[] = {"text_1", "text_2"};
    json_t *first = one_of(body, firsts), *second = one_of(body, seconds);
    if (!first || !second)
        return af_fail_subject(err, AF_EUSAGE, names[first != NULL], "'%s' is absent",
                               names[first != NULL]);
    return take_texts(e, body, first, second, names, err);
}

/* Documents are texts or {"text"}, as Cohere's and Jina's clients send them. */
static af_status read_rerank(af_embedding_task *e, const json_t *body, af_error *err)
{
    static const char *const names[] = {"query", "documents"};
    af_status st = AF_OK;
    json_t *query = NULL, *documents = NULL;
    bool shown = true;
    AF_TRY(af_value_type(body, names[0], JSON_STRING, &query, err));
    AF_TRY(af_value_type(body, names[1], JSON_ARRAY, &documents, err));
    if (!query || !documents)
        return af_fail_subject(err, AF_EUSAGE, names[query != NULL], "'%s' is absent",
                               names[query != NULL]);
    AF_TRY(af_value_int(body, "top_n", 0, INT32_MAX, &e->score.top, err));
    AF_TRY(af_value_bool(body, "return_documents", &shown, err)); /* Cohere, Jina */
    e->score.bare = !shown;
    e->score.texts = json_array();
    for (size_t i = 0; i < json_array_size(documents); i++) {
        json_t *d = json_array_get(documents, i), *text = json_object_get(d, "text");
        json_array_append_new(e->score.texts, json_deep_copy(text ? text : d));
    }
    AF_TRY(take_texts(e, body, query, e->score.texts, names, err));
done:
    return st;
}

/* ---- answers ---- */

static void take(af_embedding_task *e)
{
    const int64_t n = e->dimensions;
    const int at = e->next - e->score.queries;
    double sum = 0;
    if (at < 0) {
        memcpy(e->score.query + e->next * n, e->vector, (size_t)n * sizeof *e->vector);
        return;
    }
    const float *query = e->score.query + (e->score.queries > 1 ? at * n : 0);
    for (int64_t i = 0; i < n; i++)
        sum += (double)query[i] * e->vector[i];
    e->score.value[at] = sum;
}

static void out_usage(const af_embedding_task *e, af_buf *b)
{
    const int64_t tokens = af_embeddings_tokens(e);
    af_buf_str(b, ",\"model\":");
    af_out_cstring(b, e->model->name);
    af_buf_printf(b, ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}",
                  tokens, tokens);
}

static void answer_score(af_embedding_task *e)
{
    af_buf *b = &e->out;
    af_buf_str(b, "{\"object\":\"list\",\"data\":[");
    for (int i = 0; i < e->inputs - e->score.queries; i++) {
        af_buf_printf(b, "%s{\"index\":%d,\"object\":\"score\",\"score\":", i ? "," : "", i);
        af_out_number(b, e->score.value[i]);
        af_buf_char(b, '}');
    }
    af_buf_char(b, ']');
    out_usage(e, b);
}

/* The best of those that were not listed, of equal ones the first; -1: none. */
static int next_best(const double *value, const bool *listed, int n)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!listed[i] && (best < 0 || value[i] > value[best]))
            best = i;
    return best;
}

static void answer_rerank(af_embedding_task *e)
{
    af_buf *b = &e->out;
    const int n = e->inputs - 1;
    const int64_t top = e->score.top > 0 ? AF_MIN(e->score.top, n) : n;
    bool *listed = af_calloc((uint64_t)n, sizeof *listed);
    b->bad |= !listed;
    af_buf_str(b, "{\"results\":[");
    for (int64_t i = 0; listed && i < top; i++) {
        const int best = next_best(e->score.value, listed, n);
        const json_t *text = json_array_get(e->score.texts, (size_t)best);
        listed[best] = true;
        af_buf_printf(b, "%s{\"index\":%d", i ? "," : "", best);
        if (!e->score.bare) {
            af_buf_str(b, ",\"document\":{\"text\":");
            af_out_string(b, json_string_value(text), json_string_length(text));
            af_buf_char(b, '}');
        }
        af_buf_str(b, ",\"relevance_score\":");
        af_out_number(b, e->score.value[best]);
        af_buf_char(b, '}');
    }
    free(listed);
    af_buf_char(b, ']');
    out_usage(e, b);
}

void af_api_score(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const af_embedding_use use = {"text_2", read_score, take, answer_score};
    af_embeddings_start(a, c, body, &use);
}

void af_api_rerank(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const af_embedding_use use = {"documents", read_rerank, take, answer_rerank};
    af_embeddings_start(a, c, body, &use);
}
