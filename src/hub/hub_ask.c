/* hub_ask.c - the state machine of one question; see hub_ask.h. */
#include "hub/hub_ask.h"

#include "base/log.h"

#include <time.h>

static bool is_redirect(int status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

static bool is_busy(int status)
{
    return status == 408 || status == 429 || status == 500 || status == 502 || status == 503 ||
           status == 504;
}

static void fail(af_ask *a) { a->state = AF_ASK_FAILED; }

/* ---- callbacks of the transport ---- */

static bool on_head(void *user)
{
    af_ask *a = user;
    const af_http_head *h = &a->call.head;
    const bool good = h->status >= 200 && h->status < 300;
    if (h->bad || !a->check || !(good || is_redirect(h->status)))
        return true;
    return a->check(a->user, h, a->of_hub, good, &a->why) == AF_OK;
}

static bool on_body(void *user, const uint8_t *bytes, uint64_t n)
{
    af_ask *a = user;
    const int status = a->call.head.status;
    const bool good = status >= 200 && status < 300;
    const uint64_t limit = a->limit ? a->limit : 1 << 20;
    if (good && a->sink) {
        a->moved = true;
        return a->sink(a->user, bytes, n, &a->why) == AF_OK;
    }
    if (n > limit - a->text.len) {
        if (good)
            (void)!af_fail(&a->why, AF_EFORMAT, "%s sends an answer of more than %" PRIu64 " bytes",
                           a->where, limit);
        a->cut = true;
        return false;
    }
    af_buf_add(&a->text, bytes, n);
    if (a->text.bad)
        (void)!af_fail_nomem(&a->why, "an answer", n);
    return !a->text.bad;
}

/* ---- states ---- */

static void start(af_ask *a, af_hub_client *c)
{
    char origin[300] = "";
    int n = 0;
    if (!*a->at)
        snprintf(a->at, sizeof a->at, "%s", a->url);
    if (!af_url_origin(origin, a->at)) {
        (void)!af_fail(&a->why, AF_EFORMAT, "'%.200s' is not an address of a hub", a->at);
        fail(a);
        return;
    }
    memcpy(a->where, origin, sizeof origin);
    if (strncmp(c->origin, "https", 5) == 0 && strncmp(origin, "https", 5) != 0) {
        (void)!af_fail(&a->why, AF_EFORMAT, "%s names %s, which is not encrypted", c->origin,
                       origin);
        fail(a);
        return;
    }
    a->of_hub = strcmp(origin, c->origin) == 0;
    af_buf_clear(&a->text);
    a->cut = false;
    a->why = (af_error){0};
    if (a->begin)
        a->begin(a->user);
    af_http_call *call = &a->call;
    *call = (af_http_call){.method = a->method,
                           .url = a->at,
                           .body = a->body,
                           .size = a->size,
                           .fd = a->has_file ? a->fd : -1,
                           .from = a->from,
                           .stall_s = a->is_slow ? 60 + c->stall_s : c->stall_s,
                           .on_head = on_head,
                           .on_body = on_body,
                           .user = a};
    a->bearer[0] = '\0';
    if (a->of_hub && c->token) {
        snprintf(a->bearer, sizeof a->bearer, "Authorization: Bearer %s", c->token);
        call->header[n++] = a->bearer;
    }
    call->header[n++] = "Accept-Encoding: identity"; /* sizes and hashes are of the bytes */
    call->header[n++] = "Expect:";
    if (a->type)
        call->header[n++] = a->type;
    if (*a->range)
        call->header[n++] = a->range;
    call->header[n] = NULL;
    if (c->net->start(c->net, call, &a->why) == AF_OK)
        a->state = AF_ASK_RUNNING;
    else
        fail(a);
}

/* Once more from the beginning, later; or the end of patience. */
static void repeat(af_ask *a, af_hub_client *c, double wait, const char *reason)
{
    if (a->moved)
        a->tries = 0;
    a->moved = false;
    const int most = a->call.unreachable ? AF_ASK_CONNECTS : AF_ASK_TRIES;
    if (++a->tries >= most || wait > 600) {
        (void)!af_fail(&a->why, AF_EIO, "%s does not answer (%s)%s", a->where, reason,
                       wait > 600 ? " and asks to wait longer than ten minutes" : "");
        fail(a);
        return;
    }
    const double own = 0.25 * (double)(1 << AF_MIN(a->tries, 5)); /* 0.5, 1, 2, 4, 8 s */
    wait = AF_MAX(wait, wait < 0 ? own : 0);
    if (wait >= 5)
        af_log_write(AF_LOG_WARN, "%s: %s; trying again in %.0f s", a->where, reason, wait);
    a->start_at = c->net->now(c->net) + wait;
    a->at[0] = '\0';
    a->redirects = 0;
    a->state = AF_ASK_READY;
}

static void redirect(af_ask *a, const af_hub_client *c)
{
    char to[AF_HTTP_URL_MAX], origin[300] = "";
    const af_http_head *h = &a->call.head;
    a->state = AF_ASK_READY;
    if (!*h->location || !af_url_join(to, a->at, h->location) || !af_url_origin(origin, to))
        (void)!af_fail(&a->why, AF_EFORMAT, "%s redirects to an address that is none", a->where);
    else if (++a->redirects > AF_ASK_REDIRECTS)
        (void)!af_fail(&a->why, AF_EFORMAT, "%s redirects more than %d times", a->where,
                       AF_ASK_REDIRECTS);
    else if (strncmp(a->where, "https", 5) == 0 && strncmp(origin, "https", 5) != 0)
        (void)!af_fail(&a->why, AF_EFORMAT, "%s redirects to %s, which is not encrypted", a->where,
                       origin);
    else if (!a->for_file && strcmp(origin, c->origin) != 0)
        (void)!af_fail(&a->why, AF_EFORMAT, "%s redirects a question about a repository to %s",
                       a->where, origin);
    if (a->why.code != AF_OK)
        fail(a);
    else
        memcpy(a->at, to, sizeof to);
}

static void look(af_ask *a, af_hub_client *c)
{
    const af_http_head *h = &a->call.head;
    char reason[260];
    const bool whole = a->call.result == AF_HTTP_ANSWERED || a->cut;
    a->status = h->status;
    if (h->bad)
        (void)!af_fail(&a->why, AF_EFORMAT, "%s sends more than %d lines or %d bytes of headers",
                       a->where, AF_HTTP_HEAD_LINES, AF_HTTP_HEAD_BYTES);
    if (a->why.code != AF_OK) {
        fail(a);
    } else if (!whole) {
        snprintf(reason, sizeof reason, "%s", a->call.failure);
        repeat(a, c, -1, reason);
    } else if (is_redirect(h->status)) {
        redirect(a, c);
    } else if (h->status >= 200 && h->status < 300) {
        a->state = AF_ASK_DONE;
    } else if (is_busy(h->status)) {
        snprintf(reason, sizeof reason, "status %d", h->status);
        const double wait = af_http_retry_after(h, (int64_t)time(NULL));
        repeat(a, c, wait > 0 ? wait : -1, reason); /* the hub's "now" may be past here */
    } else if (!a->of_hub && a->for_file && (h->status == 403 || h->status == 410)) {
        snprintf(reason, sizeof reason, "status %d: the address has expired", h->status);
        repeat(a, c, 0, reason);
    } else {
        fail(a);
    }
}

void af_ask_step(af_ask *a, af_hub_client *c)
{
    if (a->state == AF_ASK_READY && c->net->now(c->net) >= a->start_at)
        start(a, c);
    else if (a->state == AF_ASK_RUNNING && a->call.result != AF_HTTP_PENDING)
        look(a, c);
}

void af_ask_run(af_ask *a, af_hub_client *c)
{
    while (a->state == AF_ASK_READY || a->state == AF_ASK_RUNNING) {
        af_ask_step(a, c);
        const double left = a->start_at - c->net->now(c->net);
        const bool waits = a->state == AF_ASK_RUNNING || left > 0;
        const double most = a->state == AF_ASK_RUNNING ? 1 : left;
        if (waits && c->net->wait(c->net, most, &a->why) != AF_OK)
            fail(a);
    }
}

void af_ask_clear(af_ask *a, af_hub_client *c)
{
    if (a->state == AF_ASK_RUNNING && a->call.carrier)
        c->net->stop(c->net, &a->call);
    af_buf_clear(&a->text);
    a->state = AF_ASK_FAILED;
}
