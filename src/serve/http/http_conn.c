#define _GNU_SOURCE /* EPOLLRDHUP */
/* http_conn.c - what a connection does when bytes arrive, can be sent, or time has passed. */
#include "serve/http/http_conn.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINGER_SECONDS = 2,   /* for a client that still sends a body we refused */
    STALL_SECONDS = 60,   /* a client that does not read its answer */
    BODY_RATE = 16 << 10, /* bytes per second that a body must have, after BODY_SECONDS */
    BODY_SECONDS = 60,
    CHUNK_LINE_MAX = 64,
};

static void advance(af_httpd_conn *c);

const char af_httpd_no_memory[] = "HTTP/1.1 500 Internal Server Error\r\n"
                                  "Content-Type: text/plain\r\nContent-Length: 14\r\n"
                                  "Connection: close\r\n\r\nout of memory\n";

/* ---- opening and closing ---- */

static void wait_for(af_httpd_conn *c, uint32_t events)
{
    if (events == c->events || c->fd < 0)
        return;
    struct epoll_event e = {.events = events, .data.ptr = c};
    c->events = events;
    epoll_ctl(c->http->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

static void update_events(af_httpd_conn *c)
{
    const bool reads =
        c->phase == AF_CONN_HEAD || c->phase == AF_CONN_BODY || c->phase == AF_CONN_LINGER;
    const bool sends = c->sent < c->out.len;
    /* while an answer is made nothing is read, but the end of the connection is noticed */
    wait_for(c, EPOLLRDHUP | (reads ? (uint32_t)EPOLLIN : 0) | (sends ? (uint32_t)EPOLLOUT : 0));
}

/* A connection whose memory the caller has; the socket stays the caller's when it fails. */
static bool start(af_httpd_conn *c, af_httpd *h, int fd)
{
    *c = (af_httpd_conn){.http = h, .fd = fd, .events = EPOLLIN | EPOLLRDHUP};
    c->in.limit = AF_HEAD_BYTES_MAX + 2 * AF_HTTP_READ_STEP;
    c->out.limit = AF_HTTP_OUT_MAX;
    c->since = c->moved = af_seconds_now();
    struct epoll_event e = {.events = c->events, .data.ptr = c};
    if (epoll_ctl(h->epoll, EPOLL_CTL_ADD, fd, &e) < 0) {
        c->http = NULL;
        return false;
    }
    c->next = h->conns;
    if (c->next)
        c->next->prev = c;
    h->conns = c;
    atomic_fetch_add(&h->connections, 1);
    return true;
}

af_status af_httpd_conn_new(af_httpd *h, int fd, const char *address, af_error *err)
{
    af_httpd_conn *c = af_calloc(1, sizeof *c);
    if (!c)
        return af_fail_nomem(err, "a connection", sizeof *c);
    if (!start(c, h, fd)) {
        free(c);
        return af_fail(err, AF_EIO, "epoll: %s", strerror(errno));
    }
    snprintf(c->address, sizeof c->address, "%s", address);
    return AF_OK;
}

/* The call lives on with those who work on it. */
static void leave_call(af_httpd_conn *c)
{
    if (!c->call)
        return;
    c->call->conn = NULL;
    af_httpd_call_unref(c->call);
    c->call = NULL;
}

void af_httpd_conn_close(af_httpd_conn *c)
{
    if (c->phase == AF_CONN_CLOSED)
        return;
    if (c->call)
        atomic_store(&c->call->closed, true);
    leave_call(c);
    close(c->fd); /* leaves the epoll set */
    c->fd = -1;
    c->phase = AF_CONN_CLOSED;
    atomic_fetch_sub(&c->http->connections, 1);
}

void af_httpd_conn_free(af_httpd_conn *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        c->http->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    af_buf_clear(&c->in);
    af_buf_clear(&c->out);
    af_httpd *h = c->http;
    if (c >= h->spare && c < h->spare + AF_HTTP_SPARE)
        c->http = NULL;
    else
        free(c);
}

/* ---- sending ---- */

/* False when the connection is gone. */
static bool send_some(af_httpd_conn *c)
{
    while (c->sent < c->out.len) {
        const ssize_t n = send(c->fd, c->out.data + c->sent, c->out.len - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return true;
        if (n <= 0)
            return false;
        c->sent += (uint64_t)n;
        c->moved = af_seconds_now();
    }
    c->out.len = c->sent = 0;
    return true;
}

/* Nothing more is sent, and what comes is dropped: a socket that is closed with unread bytes takes
 * the answer away from its client. */
static void linger(af_httpd_conn *c)
{
    leave_call(c);
    c->phase = AF_CONN_LINGER;
    c->since = c->moved = af_seconds_now();
    c->in.len = 0;
    shutdown(c->fd, SHUT_WR);
}

/* Ends the connection with an answer that takes no memory; nothing of another one was sent. */
static void give_up(af_httpd_conn *c, const char *answer)
{
    (void)!send(c->fd, answer, strlen(answer), MSG_NOSIGNAL);
    af_memory_forget();
    af_buf_clear(&c->out);
    c->sent = 0;
    if (c->call)
        atomic_store(&c->call->closed, true);
    linger(c);
    update_events(c);
}

void af_httpd_turn_away(af_httpd *h, int fd, const char *answer)
{
    for (int i = 0; i < AF_HTTP_SPARE; i++)
        if (!h->spare[i].http && start(&h->spare[i], h, fd)) {
            give_up(&h->spare[i], answer);
            return;
        }
    (void)!send(fd, answer, strlen(answer), MSG_NOSIGNAL); /* very many are turned away */
    close(fd);
}

/* The answer is sent: the next request, or the end. */
static void finish_answer(af_httpd_conn *c)
{
    if (c->call->close_after) {
        linger(c);
        return;
    }
    leave_call(c);
    c->since = c->moved = af_seconds_now();
    c->phase = AF_CONN_HEAD;
    c->chunk_left = c->trailer_bytes = 0;
    c->chunk_end = c->chunk_last = false;
}

void af_httpd_conn_output(af_httpd_conn *c)
{
    if (c->phase == AF_CONN_CLOSED)
        return;
    const bool ended = c->call ? af_httpd_call_flush(c->call) : false;
    if (c->out.bad && c->call && !c->call->sending) {
        give_up(c, af_httpd_no_memory);
        return;
    }
    if (c->out.bad || !send_some(c)) {
        af_httpd_conn_close(c);
        return;
    }
    if (ended && c->sent == c->out.len && c->phase != AF_CONN_LINGER)
        finish_answer(c);
    update_events(c);
}

/* ---- requests ---- */

static void drop_input(af_httpd_conn *c, uint64_t n)
{
    memmove(c->in.data, c->in.data + n, c->in.len - n);
    c->in.len -= n;
}

/* A call with no request, to refuse what could not be read. */
static bool refuse(af_httpd_conn *c, int status, const char *why)
{
    if (!c->call)
        c->call = af_httpd_call_new(c);
    if (!c->call) {
        give_up(c, af_httpd_no_memory);
        return false;
    }
    c->phase = AF_CONN_ANSWER;
    af_httpd_refuse(c->call, status, why);
    return true;
}

static bool refuse_late(af_httpd_conn *c)
{
    if (!c->call)
        c->call = af_httpd_call_new(c);
    if (c->call)
        af_httpd_add_header(c->call, "Retry-After: 5");
    return refuse(c, 503, "the server is shutting down");
}

static void begin_body(af_httpd_conn *c)
{
    af_httpd_call *call = c->call;
    const af_httpd_opts *o = &c->http->o;
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    if (call->head.body > o->max_body) {
        refuse(c, 413, "the body is larger than the server accepts");
        return;
    }
    if (call->head.expects_continue)
        af_buf_add(&c->out, go_on, sizeof go_on - 1);
    call->body.limit = o->max_body + 1;
    c->phase = AF_CONN_BODY;
    c->since = c->moved = af_seconds_now();
    c->deadline = c->since + BODY_SECONDS + (double)call->head.body / BODY_RATE;
}

/* No request begins with it; a client that speaks TLS sends 0x16. */
static bool is_no_text(char first)
{
    return ((unsigned char)first < ' ' && first != '\r') || (unsigned char)first >= 0x7f;
}

/* True when a head was there. */
static bool take_head(af_httpd_conn *c)
{
    const char *why = "";
    uint64_t blank = 0;
    while (blank + 1 < c->in.len && c->in.data[blank] == '\r' && c->in.data[blank + 1] == '\n')
        blank += 2; /* empty lines before a request are allowed */
    if (blank)
        drop_input(c, blank);
    const uint64_t n =
        c->in.len ? af_request_head_end(c->in.data, AF_MIN(c->in.len, (uint64_t)AF_HEAD_BYTES_MAX))
                  : 0;
    if (n == 0) {
        if (c->in.len && is_no_text(c->in.data[0])) /* it would wait for us as we for it */
            refuse(c, 400, "the request does not begin with a method (is the address https?)");
        else if (c->in.len >= AF_HEAD_BYTES_MAX)
            refuse(c, 431, "the request head is larger than 16 KiB");
        return false;
    }
    af_httpd_call *call = c->call = af_httpd_call_new(c);
    if (call)
        call->head_text = af_strndup(c->in.data, n);
    if (!call || !call->head_text) {
        give_up(c, af_httpd_no_memory);
        return false;
    }
    memcpy(call->head_text, c->in.data, n); /* with its NULs, which are refused */
    drop_input(c, n);
    const int status = af_request_head_parse(&call->head, call->head_text, n, &why);
    if (status) {
        refuse(c, status, why);
        return true;
    }
    if (atomic_load(&c->http->draining)) {
        refuse_late(c);
        return true;
    }
    c->phase = AF_CONN_ANSWER;
    call->close_after = call->head.has_body; /* an answer now leaves the body unread */
    c->http->o.head(c->http->o.user, call);
    if (af_httpd_is_answered(call))
        return true;
    call->close_after = false;
    begin_body(c);
    return true;
}

/* The line at byte *at of the input, *n bytes with its CRLF, and *at after it: 1, 0 when the line
 * is not complete, -1 when it is wrong or longer than `most`. */
static int take_line(const af_httpd_conn *c, uint64_t *at, uint64_t most, uint64_t *n)
{
    const char *line = c->in.data + *at;
    const uint64_t left = c->in.len - *at;
    const char *lf = left ? memchr(line, '\n', left) : NULL;
    if (!lf)
        return left > most ? -1 : 0;
    *n = (uint64_t)(lf - line) + 1;
    if (*n < 2 || *n > most || lf[-1] != '\r')
        return -1;
    *at += *n;
    return 1;
}

/* The size of the next chunk from its line; returns as take_line. */
static int chunk_size(af_httpd_conn *c, uint64_t *at)
{
    const char *line = c->in.data + *at;
    uint64_t n = 0, len = 0;
    int digits = 0;
    const int got = take_line(c, at, CHUNK_LINE_MAX, &len);
    if (got != 1)
        return got;
    for (const char *p = line; p < line + len - 2 && *p != ';'; p++, digits++) {
        const char *hex = "0123456789abcdef", low = *p >= 'A' && *p <= 'F' ? (char)(*p + 32) : *p;
        const char *is = low ? strchr(hex, low) : NULL;
        if (!is || digits == 8)
            return -1;
        n = n * 16 + (uint64_t)(is - hex);
    }
    c->chunk_left = n;
    return digits ? 1 : -1;
}

/* The fields after the last chunk, which say nothing here, and the empty line; as take_line. */
static int take_trailers(af_httpd_conn *c, uint64_t *at)
{
    for (;;) {
        uint64_t n = 0;
        const int got = take_line(c, at, AF_HEAD_BYTES_MAX - c->trailer_bytes, &n);
        if (got != 1)
            return got;
        if (n == 2)
            return 1;
        c->trailer_bytes += n;
    }
}

/* Moves chunks from the input, beginning at *at, to the body; returns as take_line. */
static int move_chunks(af_httpd_conn *c, uint64_t *at)
{
    while (!c->chunk_last) {
        if (c->chunk_left) {
            const uint64_t n = AF_MIN(c->chunk_left, c->in.len - *at);
            af_buf_add(&c->call->body, c->in.data + *at, n);
            *at += n;
            c->chunk_left -= n;
            c->chunk_end = true;
            if (c->chunk_left)
                return 0;
        }
        if (c->chunk_end) {
            if (c->in.len - *at < 2)
                return 0;
            if (memcmp(c->in.data + *at, "\r\n", 2) != 0)
                return -1;
            *at += 2;
            c->chunk_end = false;
        }
        const int got = chunk_size(c, at);
        if (got != 1)
            return got;
        c->chunk_last = c->chunk_left == 0;
    }
    return take_trailers(c, at);
}

/* The same, and what was read leaves the input: once, as chunks may be many and small. */
static int take_chunks(af_httpd_conn *c)
{
    uint64_t at = 0;
    const int got = move_chunks(c, &at);
    drop_input(c, at);
    return got;
}

/* True when the whole body is there. */
static bool take_body(af_httpd_conn *c)
{
    af_httpd_call *call = c->call;
    af_httpd *h = c->http;
    const uint64_t before = call->body.len;
    int got; /* 1: all of it, 0: not yet, -1: it is wrong */
    if (call->head.chunked) {
        got = c->in.data ? take_chunks(c) : 0;
    } else {
        const uint64_t n = AF_MIN(call->head.body - call->body.len, c->in.len);
        if (n) {
            af_buf_add(&call->body, c->in.data, n);
            drop_input(c, n);
        }
        got = call->body.len == call->head.body;
    }
    atomic_fetch_add(&h->body_bytes, call->body.len - before);
    if (got < 0) {
        refuse(c, 400, "the chunks of the body are malformed");
        return false;
    }
    if (got == 0 && call->body.len > AF_HTTP_SMALL_BODY &&
        atomic_load(&h->body_bytes) > AF_HTTP_BODIES * h->o.max_body) {
        af_httpd_add_header(call, "Retry-After: 5");
        refuse(c, 503, "too many large requests at the same time");
        return false;
    }
    if (call->body.bad && af_memory_failed()) {
        af_memory_forget();
        refuse(c, 500, "out of memory for the body");
        return false;
    }
    if (call->body.bad || call->body.len > c->http->o.max_body) {
        refuse(c, 413, "the body is larger than the server accepts");
        return false;
    }
    return got == 1;
}

/* Takes as many steps as the input allows. */
static void advance(af_httpd_conn *c)
{
    if (c->phase == AF_CONN_LINGER)
        c->in.len = 0;
    if (c->phase == AF_CONN_HEAD && !take_head(c)) {
        /* refused, closed or not complete */
    } else if (c->phase == AF_CONN_BODY && take_body(c)) {
        c->phase = AF_CONN_ANSWER;
        c->http->o.request(c->http->o.user, c->call);
    }
    if (c->phase != AF_CONN_CLOSED)
        af_httpd_conn_output(c);
}

/* ---- events ---- */

/* False when the connection ended. */
static bool receive(af_httpd_conn *c)
{
    char dropped[4096];
    const bool drops = c->phase == AF_CONN_LINGER;
    char *space = drops ? dropped : af_buf_reserve(&c->in, AF_HTTP_READ_STEP);
    if (!space) {
        give_up(c, af_httpd_no_memory);
        return true;
    }
    const ssize_t n = recv(c->fd, space, drops ? sizeof dropped : AF_HTTP_READ_STEP, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (n == 0)
        return false;
    const double now = af_seconds_now();
    if (c->phase == AF_CONN_HEAD && c->in.len == 0)
        c->since = now; /* the first byte of a head */
    if (!drops)
        c->in.len += (uint64_t)n;
    c->moved = now;
    return true;
}

/* Requests that were sent together. */
static void take_pipelined(af_httpd_conn *c)
{
    while (c->phase == AF_CONN_HEAD && c->in.len && af_request_head_end(c->in.data, c->in.len))
        advance(c);
}

void af_httpd_conn_event(af_httpd_conn *c, uint32_t events)
{
    if (c->phase == AF_CONN_CLOSED)
        return;
    const bool reads =
        c->phase == AF_CONN_HEAD || c->phase == AF_CONN_BODY || c->phase == AF_CONN_LINGER;
    if ((events & (EPOLLERR | EPOLLHUP)) || (!reads && (events & EPOLLRDHUP)) ||
        (reads && (events & (EPOLLIN | EPOLLRDHUP)) && !receive(c))) {
        af_httpd_conn_close(c);
        return;
    }
    if (events & EPOLLOUT)
        af_httpd_conn_output(c);
    if (reads && (events & EPOLLIN))
        advance(c);
    take_pipelined(c);
}

void af_httpd_conn_resume(af_httpd_conn *c)
{
    advance(c);
    take_pipelined(c);
}

void af_httpd_conn_check(af_httpd_conn *c, double now)
{
    const af_httpd_opts *o = &c->http->o;
    const bool begun = c->in.len > 0;
    if (c->phase == AF_CONN_HEAD && begun && atomic_load(&c->http->draining)) {
        if (refuse_late(c)) /* and nobody waits for the rest */
            af_httpd_conn_output(c);
    } else if (c->phase == AF_CONN_HEAD && begun && now - c->since > o->header_timeout) {
        if (refuse(c, 408, "the request head was not complete in time"))
            af_httpd_conn_output(c);
    } else if (c->phase == AF_CONN_HEAD && !begun &&
               (now - c->since > o->idle_timeout || atomic_load(&c->http->draining))) {
        af_httpd_conn_close(c);
    } else if (c->phase == AF_CONN_BODY &&
               (now - c->moved > o->header_timeout || now > c->deadline)) {
        if (refuse(c, 408, "the request body was not complete in time"))
            af_httpd_conn_output(c);
    } else if (c->phase == AF_CONN_ANSWER && c->sent < c->out.len &&
               now - c->moved > STALL_SECONDS) {
        af_httpd_conn_close(c);
    } else if (c->phase == AF_CONN_LINGER && now - c->since > LINGER_SECONDS) {
        af_httpd_conn_close(c);
    }
}
