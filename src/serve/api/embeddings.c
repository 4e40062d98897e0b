/* embeddings.c - /v1/embeddings: one vector per input, of length 1. */
#include "serve/api/generation.h"

#include <math.h>

typedef struct af_embedding_task {
    af_serve_task task; /* first */
    af_api *api;
    af_httpd_call *call;
    af_served *model;
    af_encoding *input;
    int inputs, next;
    int64_t dimensions;
    bool base64, failed;
    af_buf out;
    float *vector;
} af_embedding_task;

static void out_vector(af_embedding_task *e)
{
    double sum = 0;
    af_buf *b = &e->out;
    for (int64_t i = 0; i < e->dimensions; i++)
        sum += (double)e->vector[i] * e->vector[i];
    const double scale = sum > 0 ? 1 / sqrt(sum) : 0;
    for (int64_t i = 0; i < e->dimensions; i++)
        e->vector[i] = (float)(e->vector[i] * scale);
    af_buf_printf(b, "%s{\"object\":\"embedding\",\"index\":%d,\"embedding\":", e->next ? "," : "",
                  e->next);
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

static void begin(af_serve_task *t, af_decoder *d)
{
    af_embedding_task *e = (af_embedding_task *)t;
    (void)d;
    af_buf_str(&e->out, "{\"object\":\"list\",\"data\":[");
}

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
    out_vector(e);
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
    free(e);
}

static void end(af_serve_task *t)
{
    af_embedding_task *e = (af_embedding_task *)t;
    int64_t tokens = 0;
    for (int i = 0; i < e->inputs; i++)
        tokens += e->input[i].count;
    if (!e->failed) {
        af_buf_str(&e->out, "],\"model\":");
        af_out_cstring(&e->out, e->model->name);
        af_buf_printf(&e->out,
                      ",\"usage\":{\"prompt_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}}",
                      tokens, tokens);
        af_api_answer(e->call, &e->out);
    }
    task_free(e);
}

static af_status read_request(af_embedding_task *e, const json_t *body, af_api_fault *f)
{
    af_status st = AF_OK;
    const char *format = "float";
    AF_TRY(af_request_model(e->api, body, &e->model, f));
    AF_TRY(af_value_string(body, "encoding_format", &format, &f->err));
    e->base64 = strcmp(format, "base64") == 0;
    if (!e->base64 && strcmp(format, "float") != 0)
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "encoding_format",
                               "'encoding_format' is not float or base64"));
    e->dimensions = e->api->width;
    AF_TRY(af_value_int(body, "dimensions", 1, e->api->width, &e->dimensions, &f->err));
    AF_TRY(af_read_inputs(e->api, body, "input", &e->input, &e->inputs, &f->err));
    for (int i = 0; i < e->inputs; i++) {
        if (e->input[i].count <= e->api->context)
            continue;
        f->code = "context_length_exceeded";
        AF_TRY(af_fail_subject(&f->err, AF_EUSAGE, "input",
                               "an input has %" PRId64 " tokens; the context is %" PRId64,
                               e->input[i].count, e->api->context));
    }
    e->vector = af_calloc((uint64_t)e->api->width, sizeof *e->vector);
    if (!e->vector)
        AF_TRY(af_fail_nomem(&f->err, "an embedding", (uint64_t)e->api->width * sizeof *e->vector));
done:
    return st;
}

void af_api_embeddings(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_api_fault f = {0};
    af_embedding_task *e = af_calloc(1, sizeof *e);
    if (!e) {
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
        return;
    }
    e->api = a;
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
