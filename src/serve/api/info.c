/* info.c - health, metrics, properties, the page. */
#include "serve/api/api.h"
#include "serve/page/page.h"

void af_api_health(af_api *a, af_httpd_call *c, const json_t *body)
{
    static const char ok[] = "{\"status\":\"ok\"}";
    (void)a, (void)body;
    af_httpd_answer(c, 200, "application/json", ok, sizeof ok - 1);
}

static void out_metric(af_buf *b, const char *name, const char *type, const char *help, uint64_t v)
{
    af_buf_printf(b, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type, name,
                  v);
}

void af_api_metrics(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_buf b = {0};
    (void)body;
    out_metric(&b, "afinar_requests_processing", "gauge", "Requests that are being computed.",
               (uint64_t)af_serve_engine_running(a->engine));
    out_metric(&b, "afinar_requests_deferred", "gauge", "Requests that wait.",
               (uint64_t)af_api_deferred(a));
    out_metric(&b, "afinar_connections", "gauge", "Open connections.",
               (uint64_t)af_httpd_connections(a->http));
    out_metric(&b, "afinar_prompt_tokens_total", "counter", "Tokens of prompts.",
               atomic_load(&a->prompt_tokens));
    out_metric(&b, "afinar_tokens_predicted_total", "counter", "Tokens made.",
               atomic_load(&a->new_tokens));
    af_buf_str(
        &b,
        "# HELP afinar_requests_total Answers by status.\n# TYPE afinar_requests_total counter\n");
    for (int code = 0; code < AF_HTTP_STATUS_MAX; code++)
        if (code == 200 || af_httpd_answers(a->http, code))
            af_buf_printf(&b, "afinar_requests_total{code=\"%d\"} %" PRIu64 "\n", code,
                          af_httpd_answers(a->http, code));
    if (b.bad)
        af_api_refuse(c, 500, NULL, NULL, "out of memory");
    else
        af_httpd_answer(c, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    af_buf_clear(&b);
}

void af_api_props(af_api *a, af_httpd_call *c, const json_t *body)
{
    af_buf b = {0};
    uint64_t n = 0;
    (void)body;
    af_buf_printf(&b,
                  "{\"default_generation_settings\":{\"n_ctx\":%" PRId64
                  ",\"params\":{\"temperature\":1.0,\"top_p\":1.0,\"top_k\":0,\"min_p\":0.0,"
                  "\"repeat_penalty\":1.0,\"n_predict\":-1}},\"total_slots\":%d,\"model_alias\":",
                  a->context, a->parallel);
    af_out_cstring(&b, a->alias);
    af_buf_str(&b, ",\"model_path\":");
    af_out_cstring(&b, a->model_path);
    af_buf_str(&b, ",\"chat_template\":");
    const char *text = a->template ? af_template_source(a->template, &n) : NULL;
    if (text)
        af_out_string(&b, text, n);
    else
        af_buf_str(&b, "null");
    af_buf_str(&b, ",\"bos_token\":");
    af_out_cstring(&b, af_tokenizer_bos_text(a->tokenizer));
    af_buf_str(&b, ",\"eos_token\":");
    af_out_cstring(&b, af_tokenizer_eos_text(a->tokenizer));
    af_buf_printf(&b,
                  ",\"vocab_size\":%" PRId64 ",\"modalities\":{\"vision\":false,\"audio\":false},"
                  "\"build_info\":\"afinar %s\"}",
                  a->vocab, AF_VERSION);
    af_api_answer(c, &b);
}

void af_api_page(af_api *a, af_httpd_call *c, const json_t *body)
{
    const af_page_file *f = af_page_find(af_httpd_head(c)->path);
    (void)a, (void)body;
    af_httpd_add_header(c, AF_PAGE_POLICY);
    af_httpd_add_header(c, AF_PAGE_NO_FRAME);
    af_httpd_add_header(c, "Referrer-Policy: no-referrer");
    af_httpd_add_header(c, "Cache-Control: no-cache");
    af_httpd_answer(c, 200, f->type, (const char *)f->data, f->size);
}
