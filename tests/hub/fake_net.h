/* fake_net.h - a transport without a network: a function of the test answers every request with raw
 * text (head, blank line, body), and a clock of its own passes while nothing runs. */
#ifndef AF_FAKE_NET_H
#define AF_FAKE_NET_H

#include "hub/http.h"

enum { FAKE_CALLS = 16 };

typedef struct fake_net fake_net;
struct fake_net {
    af_transport base;
    /* Puts the answer into out; true: the connection breaks after it. */
    bool (*answer)(fake_net *n, const af_http_call *c, af_buf *out);
    void *user;
    af_http_call *running[FAKE_CALLS];
    int count, requests;
    double clock;
    af_buf log; /* "GET url|header|header\n" per request */
};

static af_status fake_start(af_transport *t, af_http_call *c, af_error *err)
{
    fake_net *n = (fake_net *)t;
    (void)err;
    if (n->count == FAKE_CALLS)
        abort();
    af_http_head_init(&c->head);
    c->result = AF_HTTP_PENDING;
    c->carrier = n;
    n->running[n->count++] = c;
    n->requests++;
    af_buf_printf(&n->log, "%s %s", c->method, c->url);
    for (const char *const *h = c->header; *h; h++)
        af_buf_printf(&n->log, "|%s", *h);
    af_buf_char(&n->log, '\n');
    return AF_OK;
}

static void fake_stop(af_transport *t, af_http_call *c)
{
    fake_net *n = (fake_net *)t;
    int k = 0;
    for (int i = 0; i < n->count; i++)
        if (n->running[i] != c)
            n->running[k++] = n->running[i];
    n->count = k;
    c->carrier = NULL;
}

static bool fake_deliver(af_http_call *c, const af_buf *text)
{
    const char *p = text->data ? text->data : "", *end = p + text->len;
    while (p < end) {
        const char *line = memchr(p, '\n', (size_t)(end - p));
        const uint64_t len = (uint64_t)((line ? line + 1 : end) - p);
        const bool blank = len <= 2 && (*p == '\r' || *p == '\n');
        if (!blank && !af_http_head_add(&c->head, p, len))
            return false;
        p += len;
        if (blank)
            break;
    }
    if (c->on_head && !c->on_head(c->user))
        return false;
    while (p < end) {
        const uint64_t len = AF_MIN((uint64_t)(end - p), 1000);
        if (c->on_body && !c->on_body(c->user, (const uint8_t *)p, len))
            return false;
        p += len;
    }
    return true;
}

static af_status fake_wait(af_transport *t, double seconds, af_error *err)
{
    fake_net *n = (fake_net *)t;
    (void)err;
    if (n->count == 0)
        n->clock += seconds;
    while (n->count > 0) {
        af_http_call *c = n->running[0];
        af_buf text = {0};
        const bool broken = n->answer(n, c, &text);
        const bool good = fake_deliver(c, &text);
        c->result = good && !broken ? AF_HTTP_ANSWERED : AF_HTTP_FAILED;
        snprintf(c->failure, sizeof c->failure, "the connection broke");
        fake_stop(t, c);
        af_buf_clear(&text);
    }
    return AF_OK;
}

static double fake_now(af_transport *t) { return ((fake_net *)t)->clock; }

static void fake_close(af_transport *t) { (void)t; }

static inline void fake_init(fake_net *n,
                             bool (*answer)(fake_net *, const af_http_call *, af_buf *))
{
    *n = (fake_net){.base = {fake_start, fake_stop, fake_wait, fake_now, fake_close},
                    .answer = answer};
}
#endif
