/* http_call.c - requests as other threads see them, and their answers. */
#include "serve/http/http_conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

af_httpd_call *af_httpd_call_new(af_httpd_conn *c)
{
    af_httpd_call *call = af_calloc(1, sizeof *call);
    if (!call)
        return NULL;
    call->http = c->http;
    call->conn = c;
    call->begun = af_seconds_now();
    atomic_init(&call->refs, 1);
    atomic_init(&call->closed, false);
    pthread_mutex_init(&call->lock, NULL);
    return call;
}

af_httpd_call *af_httpd_call_ref(af_httpd_call *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

void af_httpd_call_unref(af_httpd_call *c)
{
    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    pthread_mutex_destroy(&c->lock);
    atomic_fetch_sub(&c->http->body_bytes, c->body.len);
    af_buf_clear(&c->body);
    af_buf_clear(&c->headers);
    af_buf_clear(&c->out);
    free(c->head_text);
    free(c);
}

const af_request_head *af_httpd_head(const af_httpd_call *c) { return &c->head; }

const char *af_httpd_body(const af_httpd_call *c, uint64_t *n)
{
    *n = c->body.len;
    return c->body.data ? c->body.data : "";
}

const char *af_httpd_local_address(const af_httpd_call *c)
{
    return c->conn ? c->conn->address : "";
}
bool af_httpd_is_closed(const af_httpd_call *c) { return atomic_load(&c->closed); }
double af_httpd_age(const af_httpd_call *c) { return af_seconds_now() - c->begun; }
double af_httpd_quiet(af_httpd_call *c)
{
    pthread_mutex_lock(&c->lock);
    const double sent = c->sent;
    pthread_mutex_unlock(&c->lock);
    return af_seconds_now() - sent;
}

/* ---- answers ---- */

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {204, "No Content"},
                   {400, "Bad Request"},
                   {401, "Unauthorized"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed"},
                   {408, "Request Timeout"},
                   {409, "Conflict"},
                   {411, "Length Required"},
                   {413, "Content Too Large"},
                   {415, "Unsupported Media Type"},
                   {431, "Request Header Fields Too Large"},
                   {500, "Internal Server Error"},
                   {501, "Not Implemented"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < AF_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

void af_httpd_wake(af_httpd *h)
{
    const uint64_t one = 1;
    while (write(h->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* Tells the server's thread that there is output. The call's lock is held. */
static void mark_dirty(af_httpd_call *c)
{
    if (c->dirty)
        return;
    c->dirty = true;
    af_httpd_call_ref(c);
    pthread_mutex_lock(&c->http->lock);
    c->next_dirty = c->http->dirty;
    c->http->dirty = c;
    pthread_mutex_unlock(&c->http->lock);
    af_httpd_wake(c->http);
}

/* Status line and headers. The lock is held. */
static void begin(af_httpd_call *c, int status, const char *type)
{
    c->status = status;
    c->bodiless = c->head.method && strcmp(c->head.method, "HEAD") == 0;
    af_buf_printf(&c->out, "HTTP/1.1 %d %s\r\n", status, reason_of(status));
    if (type)
        af_buf_printf(&c->out, "Content-Type: %s\r\n", type);
    af_buf_str(&c->out, "X-Content-Type-Options: nosniff\r\n");
    af_buf_add(&c->out, c->headers.data ? c->headers.data : "", c->headers.len);
    if (c->close_after || !c->head.keep_alive || atomic_load(&c->http->draining)) {
        c->close_after = true;
        af_buf_str(&c->out, "Connection: close\r\n");
    } else if (c->head.minor == 0) {
        af_buf_str(&c->out, "Connection: keep-alive\r\n");
    }
}

void af_httpd_add_header(af_httpd_call *c, const char *line)
{
    pthread_mutex_lock(&c->lock);
    af_buf_str(&c->headers, line);
    af_buf_str(&c->headers, "\r\n");
    pthread_mutex_unlock(&c->lock);
}

bool af_httpd_is_answered(const af_httpd_call *c)
{
    af_httpd_call *call = (af_httpd_call *)c; /* the lock is not part of its value */
    pthread_mutex_lock(&call->lock);
    const bool answered = call->status != 0;
    pthread_mutex_unlock(&call->lock);
    return answered;
}

void af_httpd_answer(af_httpd_call *c, int status, const char *type, const char *body, uint64_t n)
{
    pthread_mutex_lock(&c->lock);
    if (c->status == 0) {
        begin(c, status, type);
        if (status != 204)
            af_buf_printf(&c->out, "Content-Length: %" PRIu64 "\r\n", n);
        af_buf_str(&c->out, "\r\n");
        if (!c->bodiless)
            af_buf_add(&c->out, body, n);
        c->ended = true;
        mark_dirty(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void af_httpd_stream_begin(af_httpd_call *c, int status, const char *type)
{
    pthread_mutex_lock(&c->lock);
    if (c->status == 0) {
        c->chunked = c->head.minor == 1;
        c->close_after = c->close_after || !c->chunked;
        c->sent = af_seconds_now();
        begin(c, status, type);
        af_buf_str(&c->out, "Cache-Control: no-cache\r\n");
        if (c->chunked)
            af_buf_str(&c->out, "Transfer-Encoding: chunked\r\n");
        af_buf_str(&c->out, "\r\n");
        mark_dirty(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void af_httpd_stream_send(af_httpd_call *c, const char *bytes, uint64_t n)
{
    pthread_mutex_lock(&c->lock);
    if (c->status && !c->ended && !c->bodiless && n) {
        c->sent = af_seconds_now();
        if (c->chunked)
            af_buf_printf(&c->out, "%" PRIx64 "\r\n", n);
        af_buf_add(&c->out, bytes, n);
        if (c->chunked)
            af_buf_str(&c->out, "\r\n");
        mark_dirty(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void af_httpd_stream_end(af_httpd_call *c)
{
    pthread_mutex_lock(&c->lock);
    if (c->status && !c->ended) {
        if (c->chunked && !c->bodiless)
            af_buf_str(&c->out, "0\r\n\r\n");
        c->ended = true;
        mark_dirty(c);
    }
    pthread_mutex_unlock(&c->lock);
}

void af_httpd_refuse(af_httpd_call *call, int status, const char *why)
{
    static const char no_memory[] = "out of memory\n";
    char *body = call->http->o.error_body(status, why);
    pthread_mutex_lock(&call->lock);
    call->close_after = true;
    pthread_mutex_unlock(&call->lock);
    if (body)
        af_httpd_answer(call, status, "application/json", body, strlen(body));
    else
        af_httpd_answer(call, 500, "text/plain", no_memory, sizeof no_memory - 1);
    free(body);
}

static void log_answer(af_httpd_call *call)
{
    af_httpd *h = call->http;
    call->logged = true;
    if (call->status < AF_HTTP_STATUS_MAX)
        atomic_fetch_add(&h->answers[call->status], 1);
    if (h->o.log)
        h->o.log(h->o.user, call->head.method ? call->head.method : "-",
                 call->head.path ? call->head.path : "-", call->status, af_httpd_age(call));
}

bool af_httpd_call_flush(af_httpd_call *call)
{
    pthread_mutex_lock(&call->lock);
    af_httpd_conn *c = call->conn;
    if (c && c->phase != AF_CONN_CLOSED && (call->out.len || call->out.bad)) {
        if (!call->out.bad)
            af_buf_add(&c->out, call->out.data, call->out.len);
        c->out.bad = c->out.bad || call->out.bad;
        if (c->out.bad && !call->sending)
            call->status = 500; /* the connection says so */
        else
            call->sending = true;
    }
    call->out.len = 0;
    const bool ended = call->ended;
    if (ended && !call->logged)
        log_answer(call);
    pthread_mutex_unlock(&call->lock);
    return ended;
}
