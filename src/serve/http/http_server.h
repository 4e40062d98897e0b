/* http_server.h - HTTP/1.1 over sockets: one thread, no request can block another.
 *
 * One thread waits with epoll for all connections; memory of a connection grows only with what it
 * has sent, within the limits below. Two callbacks run in that thread and must return at once:
 * `head` when a request's head is complete (an answer given there refuses the body unread), and
 * `request` when all of it is there. An answer may come at any later time from any thread. Not
 * here: TLS, compression, what a path means. */
#ifndef AF_HTTP_SERVER_H
#define AF_HTTP_SERVER_H

#include "serve/http/request_head.h"

#include <stdatomic.h>

typedef struct af_httpd af_httpd;
/* A request and its answer; counted references. */
typedef struct af_httpd_call af_httpd_call;

typedef void af_httpd_hook(void *user, af_httpd_call *call);

typedef struct af_httpd_opts {
    const char *host;      /* address or name to listen on */
    int port;              /* 0: the system chooses */
    double header_timeout; /* seconds from the first byte of a head to its last */
    double idle_timeout;   /* seconds that a connection may wait for its next request */
    uint64_t max_body;     /* bytes */
    int connections;       /* open at once; 0: as many as the system allows, at most 4096 */
    af_httpd_hook *head, *request;
    /* Renders the body of an error that this layer finds (400, 408, ...): JSON, malloc'ed. */
    char *(*error_body)(int status, const char *why);
    void (*log)(void *user, const char *method, const char *path, int status, double seconds);
    void *user;
} af_httpd_opts;

/* Binds and listens, then serves from a thread of its own. On success *out is the caller's, to be
 * closed with af_httpd_close. AF_EIO with the address when it cannot be bound. */
AF_CHECKED af_status af_httpd_open(af_httpd **out, const af_httpd_opts *o, af_error *err);
/* The port it listens on. */
int af_httpd_port(const af_httpd *h);
/* No new connections from now on, and no new requests on old ones (503); returns when all answers
 * are sent, or after `seconds`: false then. */
bool af_httpd_drain(af_httpd *h, double seconds);
/* Closes all connections at once; no hook is called any more. NULL is allowed, as below. */
void af_httpd_stop(af_httpd *h);
/* The same, and frees it: nobody may hold a request of it then. */
void af_httpd_close(af_httpd *h);
int af_httpd_connections(const af_httpd *h);
enum { AF_HTTP_STATUS_MAX = 600 };
/* Answers with this status so far. */
uint64_t af_httpd_answers(const af_httpd *h, int status);

/* ---- requests ---- */

const af_request_head *af_httpd_head(const af_httpd_call *c);
/* The body, *n bytes, with a NUL after it. */
const char *af_httpd_body(const af_httpd_call *c, uint64_t *n);
/* The address of this side of the connection as text ("127.0.0.1"). */
const char *af_httpd_local_address(const af_httpd_call *c);
/* True once the client closed its connection (or the server closed it): nobody reads an answer. */
bool af_httpd_is_closed(const af_httpd_call *c);
/* Seconds since the request's head was complete. */
double af_httpd_age(const af_httpd_call *c);
/* Seconds since a stream sent something. */
double af_httpd_quiet(af_httpd_call *c);

/* ---- answers; exactly one of answer and stream. Any thread. ---- */

/* Adds a header line to the answer ("Name: value"), before it begins. */
void af_httpd_add_header(af_httpd_call *c, const char *line);
void af_httpd_answer(af_httpd_call *c, int status, const char *type, const char *body, uint64_t n);
/* True when an answer was given or begun. */
bool af_httpd_is_answered(const af_httpd_call *c);
void af_httpd_stream_begin(af_httpd_call *c, int status, const char *type);
void af_httpd_stream_send(af_httpd_call *c, const char *bytes, uint64_t n);
void af_httpd_stream_end(af_httpd_call *c);

af_httpd_call *af_httpd_call_ref(af_httpd_call *c);
void af_httpd_call_unref(af_httpd_call *c);
#endif
