#define _GNU_SOURCE /* accept4 */
/* http_server.c - the socket that listens, and the thread that serves all connections. */
#include "serve/http/http_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNECTIONS_MAX = 4096,
    OTHER_FILES = 128, /* descriptors left to the rest of the program */
    EVENTS = 64,
    TICK_MS = 200,
    BACKLOG = 1024,
};

/* ---- listening ---- */

static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof a;
    char port[16];
    if (getsockname(fd, (struct sockaddr *)&a, &n) < 0 ||
        getnameinfo((struct sockaddr *)&a, n, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0)
        return 0;
    return (int)strtol(port, NULL, 10);
}

static af_status open_listener(af_httpd *h, af_error *err)
{
    char port[16];
    struct addrinfo *list = NULL, hint = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    snprintf(port, sizeof port, "%d", h->o.port);
    const int got = getaddrinfo(h->o.host, port, &hint, &list);
    if (got != 0)
        return af_fail(err, AF_EIO, "cannot listen on '%s': %s", h->o.host, gai_strerror(got));
    int why = 0;
    for (struct addrinfo *a = list; a && h->listener < 0; a = a->ai_next) {
        const int one = 1;
        const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) {
            why = errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
            h->listener = fd;
        } else {
            why = errno;
            close(fd);
        }
    }
    freeaddrinfo(list);
    if (h->listener < 0)
        return af_fail(err, AF_EIO, "cannot listen on %s port %d: %s", h->o.host, h->o.port,
                       strerror(why));
    h->port = port_of(h->listener);
    return AF_OK;
}

/* As many descriptors as the system lets us have. */
static int connection_limit(int wanted)
{
    struct rlimit r;
    int most = wanted > 0 ? wanted : CONNECTIONS_MAX;
    if (getrlimit(RLIMIT_NOFILE, &r) != 0)
        return AF_MIN(most, 512);
    const rlim_t need = (rlim_t)most + OTHER_FILES;
    if (r.rlim_cur < need && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = AF_MIN(need, r.rlim_max);
        (void)setrlimit(RLIMIT_NOFILE, &r);
        (void)getrlimit(RLIMIT_NOFILE, &r);
    }
    if (r.rlim_cur < need)
        most = r.rlim_cur > 2 * OTHER_FILES ? (int)r.rlim_cur - OTHER_FILES : OTHER_FILES;
    return most;
}

/* ---- the thread ---- */

/* The connection that waited longest for a next request goes. False: there is none. */
static bool close_idle(af_httpd *h)
{
    af_httpd_conn *oldest = NULL;
    for (af_httpd_conn *c = h->conns; c; c = c->next)
        if (c->phase == AF_CONN_LINGER ||
            (c->phase == AF_CONN_HEAD && c->in.len == 0 && (!oldest || c->since < oldest->since)))
            oldest = c;
    if (oldest)
        af_httpd_conn_close(oldest);
    return oldest != NULL;
}

static bool make_space(af_httpd *h)
{
    return atomic_load(&h->connections) < h->conns_max || close_idle(h);
}

static void accept_all(af_httpd *h)
{
    static const char full[] = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\n"
                               "Content-Length: 0\r\nConnection: close\r\n\r\n";
    for (int i = 0; i < EVENTS && h->listener >= 0; i++) {
        const int fd = accept4(h->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            const bool none_left =
                errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
            if (none_left && i == 0) /* later ones may say so although nobody waits */
                h->accept_after = close_idle(h) ? 0 : af_seconds_now() + 0.2;
            return;
        }
        const int one = 1;
        struct sockaddr_storage a;
        socklen_t n = sizeof a;
        char address[64] = "";
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (getsockname(fd, (struct sockaddr *)&a, &n) == 0)
            (void)getnameinfo((struct sockaddr *)&a, n, address, sizeof address, NULL, 0,
                              NI_NUMERICHOST);
        if (!make_space(h))
            af_httpd_turn_away(h, fd, full);
        else if (af_httpd_conn_new(h, fd, address, NULL) != AF_OK)
            af_httpd_turn_away(h, fd, af_httpd_no_memory);
    }
}

/* Output that other threads have made. */
static void take_dirty(af_httpd *h)
{
    uint64_t count;
    while (read(h->wake, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&h->lock);
    af_httpd_call *list = h->dirty;
    h->dirty = NULL;
    pthread_mutex_unlock(&h->lock);
    while (list) {
        af_httpd_call *call = list;
        list = call->next_dirty;
        pthread_mutex_lock(&call->lock);
        call->dirty = false; /* here alone, where it leaves the list: it must not be there twice */
        pthread_mutex_unlock(&call->lock);
        af_httpd_conn *c = call->conn;
        if (c)
            af_httpd_conn_output(c);
        else
            (void)af_httpd_call_flush(call); /* nobody is there: dropped, but logged */
        if (c && c->phase == AF_CONN_HEAD && c->in.len)
            af_httpd_conn_resume(c); /* a request that came with the last one */
        af_httpd_call_unref(call);
    }
}

static void sweep(af_httpd *h, double now)
{
    for (af_httpd_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        af_httpd_conn_check(c, now);
        if (c->phase == AF_CONN_CLOSED)
            af_httpd_conn_free(c);
    }
    if (atomic_load(&h->draining)) {
        if (h->listener >= 0)
            close(h->listener);
        h->listener = -1;
        if (!h->conns)
            atomic_store(&h->idle, true);
    }
}

static void *serve(void *arg)
{
    af_httpd *h = arg;
    struct epoll_event events[EVENTS];
    double swept = 0;
    while (!atomic_load(&h->quit)) {
        const int n = epoll_wait(h->epoll, events, EVENTS, TICK_MS);
        bool accepts = false;
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == h)
                accepts = true;
            else if (events[i].data.ptr == &h->wake)
                take_dirty(h);
            else
                af_httpd_conn_event(events[i].data.ptr, events[i].events);
        }
        const double now = af_seconds_now();
        if (accepts && now >= h->accept_after)
            accept_all(h);
        else if (accepts)
            usleep(10000); /* no descriptor is free */
        if (now - swept >= TICK_MS / 1000.0 || atomic_load(&h->draining)) {
            sweep(h, now);
            swept = now;
        }
    }
    return NULL;
}

/* ---- opening and closing ---- */

af_status af_httpd_open(af_httpd **out, const af_httpd_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_httpd *h = af_calloc(1, sizeof *h);
    if (!h)
        return af_fail_nomem(err, "the server", sizeof *h);
    h->o = *o;
    h->listener = h->epoll = h->wake = -1;
    pthread_mutex_init(&h->lock, NULL);
    h->conns_max = connection_limit(o->connections);
    AF_TRY(open_listener(h, err));
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event l = {.events = EPOLLIN, .data.ptr = h};
    struct epoll_event w = {.events = EPOLLIN, .data.ptr = &h->wake};
    if (h->epoll < 0 || h->wake < 0 || epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->listener, &l) < 0 ||
        epoll_ctl(h->epoll, EPOLL_CTL_ADD, h->wake, &w) < 0)
        AF_TRY(af_fail(err, AF_EIO, "cannot wait for connections: %s", strerror(errno)));
    *out = h; /* before the first request: its hooks may use it */
    const int code = pthread_create(&h->thread, NULL, serve, h);
    if (code)
        *out = NULL;
    if (code)
        AF_TRY(af_fail(err, AF_ENOMEM,
                       "cannot start a thread: not enough memory, or too many threads"));
    h->started = true;
    h = NULL;
done:
    af_httpd_close(h);
    return st;
}

int af_httpd_port(const af_httpd *h) { return h->port; }
int af_httpd_connections(const af_httpd *h) { return atomic_load(&h->connections); }

uint64_t af_httpd_answers(const af_httpd *h, int status)
{
    return atomic_load(&h->answers[status]);
}

bool af_httpd_drain(af_httpd *h, double seconds)
{
    const double until = af_seconds_now() + seconds;
    atomic_store(&h->draining, true);
    af_httpd_wake(h);
    while (!atomic_load(&h->idle) && af_seconds_now() < until)
        usleep(20000);
    return atomic_load(&h->idle);
}

void af_httpd_stop(af_httpd *h)
{
    if (!h)
        return;
    atomic_store(&h->quit, true);
    af_httpd_wake(h);
    if (h->started)
        pthread_join(h->thread, NULL);
    h->started = false;
    for (af_httpd_conn *c = h->conns, *next; c; c = next) {
        next = c->next;
        af_httpd_conn_close(c);
        af_httpd_conn_free(c);
    }
}

void af_httpd_close(af_httpd *h)
{
    if (!h)
        return;
    af_httpd_stop(h);
    for (af_httpd_call *c = h->dirty, *next; c; c = next) {
        next = c->next_dirty;
        af_httpd_call_unref(c);
    }
    if (h->listener >= 0)
        close(h->listener);
    if (h->epoll >= 0)
        close(h->epoll);
    if (h->wake >= 0)
        close(h->wake);
    pthread_mutex_destroy(&h->lock);
    free(h);
}
