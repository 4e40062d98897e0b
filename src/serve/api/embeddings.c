/* embeddings.c - inputs become vectors of length 1, one per input; /v1/embeddings lists them. */
#include "serve/api/embeddings.h"

#include <math.h>

static void normalise(const af_embedding_task *e)
{
    double sum = 0;
    for (int64_t i = 0; i < e->dimensions; i++)
        sum += (double)e->vector[i] * e->vector[i];
    const double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int64_t i = 0; i < e->dimensions; i++)
        e->vector[i] = (float)(e->vector[i] * scale);
}

static void begin(af_serve_task *t, af_decoder *d) { (void)t, (void)d; }

/* One input per turn, so that a long list does not hold up those who wait for tokens. */
static bool poll(af_serve_task *t, af_decoder *d)
{
    af_embedding_task *e = (af_embedding_task *)t;
    af_api_fault f = {0};
    if (e->failed || e->next == e->inputs || af_httpd_is_closed(e->call))
        return true;
    const af_encoding *in = &e->input[e->next];
    int adapter;
    af_status st = af_served_adapter(e->model, &adapter, &f.err);
    if (st == AF_OK)
        st = af_decoder_embed(d, in->ids, in->count, adapter, e->api->o.pooling, e->vector, &f.err);
    if (st == AF_ENOMEM && af_decoder_count(d).running > 0)
        return false; /* they have the pages */
    if (st != AF_OK) {
        af_api_refuse_fault(e->call, &f);
        e->failed = true;
        return true;
    }
    normalise(e);
    e->use->take(e);
    e->next++;
    atomic_fetch_add(&e->api->prompt_tokens, (uint64_t)in->count);
    return e->next == e->inputs;
}

static void fail(af_serve_task *t, af_decoder *d, const af_error *why)
{
    af_embedding_task *e = (af_embedding_task *)t;
    (void)d;
    af_api_refuse_fault(e->call, &(af_api_fault){.err = *why});
    e->failed = true;
}

static void task_free(af_embedding_task *e)
{
    af_inputs_free(e->input, e->inputs);
    af_served_unref(e->model);
    af_httpd_call_unref(e->call);
    af_buf_clear(&e->out);
    free(e->vector);
    free(e->score.query);
    free(e->score.value);
    json_decref(e->score.texts);
    free(e);
}

int64_t af_embeddings_tokens(const af_embedding_task *e)
{
    int64_t tokens = 0;
    for (int i = 0; i < e->inputs; i++)
        tokens += e->input[i].count;
    return tokens;
}

static void end(af_serve_task *t)
{
    af_embedding_task *e = (af_embedding_task *)t;
    if (!e->failed && e->next == e->inputs) {
        e->use->answer(e);
        af_api_answer(e->call, &e->out);
    }
    task_free(e);
}

/* Fields of other servers that would make other vectors. */
static af_status refuse_others(const json_t *body, af_error *err)
{
    static const char cut[] = "truncate_prompt_tokens", length[] = "normalize",
                      kind[] = "embd_normalize"; /* llama-server's; 2: of length 1 */
    bool one = true;
    const json_t *norm = af_value(body, kind);
    if (af_value(body, cut))
        return af_fail_subject(err, AF_EUNSUPPORTED, cut, "'%s' is not supported", cut);
    if (norm && !(json_is_integer(norm) && json_integer_value(norm) == 2))
        return af_fail_subject(err, AF_EUNSUPPORTED, kind,
                               "'%s' other than 2 is not supported; vectors are always of length 1",
                               kind);
    const af_status st = af_value_bool(body, length, &one, err);
    return st != AF_OK || one
               ? st
               : af_fail_subject(err, AF_EUNSUPPORTED, length,
                                 "'%s' is false; vectors are always of length 1", length);
}

static af_status read_request(af_embedding_task *e, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    AF_TRY(af_request_model(e->api, body, &e->model, f));
    e->dimensions = e->api->width;
    AF_TRY(refuse_others(body, &f->err));
    AF_TRY(e->use->read(e, body, &f->err));
    for (int i = 0; i < e->inputs; i++) {
        if (e->input[i].count <= e->api->context)
            continue;
        f->code = "context_length_exceeded";
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, e->use->field,
                               "an input has %" PRId64 " tokens; the context is %" PRId64,
                               e->input[i].count, e->api->context));
    }
    e->vector = af_calloc((uint64_t)e->api->width, sizeof *e->vector);
    if (!e->vector)
        AF_TRY(af_fail_nomem(&f->err, "an embedding", (uint64_t)e->api->width * sizeof *e->vector));
done:
    return st;
}

void af_embeddings_start(af_api *a, af_httpd_call *c, const json_t *body,
                         const af_embedding_use *use)
{
    af_api_fault f = {0};
    af_embedding_task *e = af_calloc(1, sizeof *e);
    if (!e) {
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
        return;
    }
    e->api = a;
    e->use = use;
    e->call = af_httpd_call_ref(c);
    e->task = (af_serve_task){.begin = begin, .poll = poll, .fail = fail, .end = end};
    af_status st = read_request(e, body, &f);
    if (st == AF_OK && !af_serve_engine_add(a->engine, &e->task))
        st = af_fail(&f.err, AF_ESTOPPED, "the server is shutting down");
    if (st != AF_OK) {
        af_api_refuse_fault(c, &f);
        task_free(e);
    }
}

/* ---- /v1/embeddings ---- */

static af_status read_embeddings(af_embedding_task *e, const json_t *body, af_error *err)
{
    af_status st = AF_OK;
    const char *format = "float";
    AF_TRY(af_value_string(body, "encoding_format", &format, err));
    e->base64 = strcmp(format, "base64") == 0;
    if (!e->base64 && strcmp(format, "float") != 0)
        AF_TRY(af_fail_subject(err, AF_EUSAGE, "encoding_format",
                               "'encoding_format' is not float or base64"));
    AF_TRY(af_value_int(body, "dimensions", 1, e->api->width, &e->dimensions, err));
    AF_TRY(af_read_inputs(e->api, body, "input", &e->input, &e->inputs, err));
done:
    return st;
}

static void out_vector(af_embedding_task *e)
{
    af_buf *b = &e->out;
    af_buf_printf(b, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":",
                  e->next ? "," : "{\"object\":\"list\",\"data\":[", e->next);
    if (e->base64) {
        af_buf_char(b, '"');
        af_buf_base64(b, e->vector, (uint64_t)e->dimensions * sizeof *e->vector);
        af_buf_char(b, '"');
    } else {
        af_buf_char(b, '[');
        for (int64_t i = 0; i < e->dimensions; i++)
            af_buf_printf(b, "%s%.9g", i ? "," : "", e->vector[i]);
        af_buf_char(b, ']');
    }
    af_buf_char(b, '}');
}

static void end_list(af_embedding_task *e)
{
    const int64_t tokens = af_embeddings_tokens(e);
    af_buf_str(&e->out, "],\"model\":");
    af_out_cstring(&e->out, e->model->name);
    af_buf_printf(&e->out,
                  ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}",
                  tokens, tokens);
}

void af_api_embeddings(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const af_embedding_use use = {"input", read_embeddings, out_vector, end_list};
    af_embeddings_start(a, c, body, &use);
}
