/* errors.c - {"error": {...}} as the clients of OpenAI, Anthropic and Ollama expect it. */
#include "serve/api/api.h"

#include <stdarg.h>

void af_api_error_object(af_buf *b, int status, const char *code, const char *param,
                         const char *message)
{
    af_buf_str(b, "{\"error\":{\"message\":");
    af_out_cstring(b, message);
    af_buf_printf(
        b, ",\"type\":\"%s\",\"param\":", status >= 500 ? "server_error" : "invalid_request_error");
    af_out_cstring(b, param && *param ? param : NULL);
    af_buf_str(b, ",\"code\":");
    af_out_cstring(b, code);
    af_buf_str(b, "}}");
}

void af_api_message_error(af_buf *b, int status, const char *message)
{
    static const struct {
        int status;
        const char *type;
    } types[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
                 {413, "request_too_large"},    {503, "overloaded_error"}, {500, "api_error"}};
    const char *type = "invalid_request_error";
    for (size_t i = 0; i < AF_LEN(types); i++)
        if (types[i].status == status)
            type = types[i].type;
    af_buf_printf(b, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":", type);
    af_out_cstring(b, message);
    af_buf_str(b, "}}");
}

static bool is_for(const af_httpd_call *c, const char *path)
{
    return strncmp(af_httpd_head(c)->path, path, strlen(path)) == 0;
}

/* Ollama's. */
static void out_plain_error(af_buf *b, const char *message)
{
    af_buf_str(b, "{\"error\":");
    af_out_cstring(b, message);
    af_buf_char(b, '}');
}

char *af_api_error_body(int status, const char *why)
{
    af_buf b = {0};
    af_api_error_object(&b, status, NULL, NULL, why);
    return af_buf_take(&b);
}

void af_api_answer(af_httpd_call *c, af_buf *b)
{
    static const char none[] =
        "{\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
        "\"param\":null,\"code\":null}}";
    if (b->bad)
        af_httpd_answer(c, 500, "application/json", none, sizeof none - 1);
    else
        af_httpd_answer(c, 200, "application/json", b->data ? b->data : "", b->len);
    af_buf_clear(b);
}

void af_api_refuse(af_httpd_call *c, int status, const char *code, const char *param,
                   const char *fmt, ...)
{
    char message[1200];
    af_buf b = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    if (status == 503)
        af_httpd_add_header(c, "Retry-After: 5");
    if (is_for(c, "/v1/messages"))
        af_api_message_error(&b, status, message);
    else if (is_for(c, "/api/"))
        out_plain_error(&b, message);
    else
        af_api_error_object(&b, status, code, param, message);
    af_httpd_answer(c, status, "application/json", b.data ? b.data : "", b.len);
    af_buf_clear(&b);
}

int af_api_fault_status(const af_api_fault *f)
{
    if (f->status)
        return f->status;
    switch (f->err.code) {
    case AF_EUSAGE:
    case AF_EFORMAT:
    case AF_EUNSUPPORTED:
        return 400;
    case AF_ESTOPPED:
        return 503;
    default:
        return 500;
    }
}

void af_api_refuse_fault(af_httpd_call *c, const af_api_fault *f)
{
    af_api_refuse(c, af_api_fault_status(f), f->code, f->err.subject, "%s", f->err.msg);
}
