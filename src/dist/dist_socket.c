/* dist_socket.c - non-blocking sockets and poll; slices of a tenth of a second to look at the
 * watch. */
#define _GNU_SOURCE /* accept4 */
#include "dist/dist_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SLICE_MS = 100 };

/* One descriptor ready for `events` of poll. AF_EIO with subject "timeout" after the deadline
 * (af_seconds_now). */
AF_CHECKED static af_status wait_socket(int fd, short events, double deadline, const af_comm *c,
                                        af_error *err)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (;;) {
        const double left = deadline - af_seconds_now();
        const int n = poll(&p, 1, left > 0 ? AF_MIN((int)(left * 1000) + 1, SLICE_MS) : 0);
        if (n > 0)
            return AF_OK;
        if (n < 0 && errno != EINTR)
            return af_fail(err, AF_EIO, "poll: %s", strerror(errno));
        const af_status st = af_comm_check(c, err);
        if (st != AF_OK)
            return st;
        if (left <= 0)
            return af_fail_subject(err, AF_EIO, "timeout", "no answer");
    }
}

af_status af_sock_read(int fd, void *to, uint64_t n, double deadline, const af_comm *c,
                       af_error *err)
{
    uint8_t *at = to;
    while (n > 0) {
        const ssize_t k = recv(fd, at, n, MSG_DONTWAIT);
        if (k == 0)
            return af_fail_subject(err, AF_EIO, "closed", "connection closed");
        if (k > 0) {
            at += k;
            n -= (uint64_t)k;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const af_status st = wait_socket(fd, POLLIN, deadline, c, err);
            if (st != AF_OK)
                return st;
        } else if (errno != EINTR) {
            return af_fail_subject(err, AF_EIO, "closed", "%s", strerror(errno));
        }
    }
    return AF_OK;
}

af_status af_sock_write(int fd, const void *from, uint64_t n, double deadline, const af_comm *c,
                        af_error *err)
{
    const uint8_t *at = from;
    while (n > 0) {
        const ssize_t k = send(fd, at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (k >= 0) {
            at += k;
            n -= (uint64_t)k;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const af_status st = wait_socket(fd, POLLOUT, deadline, c, err);
            if (st != AF_OK)
                return st;
        } else if (errno != EINTR) {
            return af_fail_subject(err, AF_EIO, "closed", "%s", strerror(errno));
        }
    }
    return AF_OK;
}

static void send_at_once(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void af_sock_guard(int fd)
{
    const int on = 1, idle = 5, interval = 3, count = 3;
    const unsigned unanswered_ms = 15000;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

static int listen_on(int family, bool loopback, int port, int backlog)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const int on = 1, off = 0;
    six.sin6_addr = in6addr_any;
    four.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    const int bound = family == AF_INET6 ? bind(fd, (struct sockaddr *)&six, sizeof six)
                                         : bind(fd, (struct sockaddr *)&four, sizeof four);
    if (bound == 0 && listen(fd, backlog) == 0)
        return fd;
    const int why = errno;
    close(fd);
    errno = why;
    return -1;
}

af_status af_sock_listen(int *fd, bool loopback, int port, int backlog, af_error *err)
{
    int s = loopback ? -1 : listen_on(AF_INET6, false, port, backlog);
    if (s < 0)
        s = listen_on(AF_INET, loopback, port, backlog);
    if (s < 0)
        return af_fail(err, AF_EIO, "cannot listen on port %d: %s", port, strerror(errno));
    *fd = s;
    return AF_OK;
}

/* A socket address as a place: IPv4 mapped into IPv6. */
static bool place_of(const struct sockaddr_storage *a, af_rank_address *out)
{
    if (a->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)a;
        memcpy(out->address, &six->sin6_addr, 16);
        out->port = ntohs(six->sin6_port);
        return true;
    }
    if (a->ss_family != AF_INET)
        return false;
    const struct sockaddr_in *four = (const struct sockaddr_in *)a;
    memset(out->address, 0, 10);
    memset(out->address + 10, 0xff, 2);
    memcpy(out->address + 12, &four->sin_addr, 4);
    out->port = ntohs(four->sin_port);
    return true;
}

int af_sock_port(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    af_rank_address p = {0};
    return getsockname(fd, (struct sockaddr *)&a, &n) == 0 && place_of(&a, &p) ? p.port : 0;
}

bool af_sock_peer(int fd, int port, af_rank_address *out)
{
    struct sockaddr_storage a = {0};
    socklen_t n = sizeof a;
    if (getpeername(fd, (struct sockaddr *)&a, &n) != 0 || !place_of(&a, out))
        return false;
    out->port = (uint16_t)port;
    return true;
}

int af_sock_accept(int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        send_at_once(fd);
    return fd;
}

/* -1 with errno. */
static int connect_to(const struct sockaddr *a, socklen_t n, double seconds)
{
    const int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    send_at_once(fd);
    int why = connect(fd, a, n) == 0 ? 0 : errno;
    if (why == EINPROGRESS) {
        socklen_t size = sizeof why;
        if (wait_socket(fd, POLLOUT, af_seconds_now() + seconds, NULL, NULL) != AF_OK)
            why = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &size) != 0)
            why = errno;
    }
    if (why == 0)
        return fd;
    close(fd);
    errno = why;
    return -1;
}

int af_sock_connect_host(const char *host, int port, double seconds, const char **why)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char service[16];
    int fd = -1;
    snprintf(service, sizeof service, "%d", port);
    const int unknown = getaddrinfo(host, service, &hints, &list);
    if (unknown != 0) {
        *why = gai_strerror(unknown);
        return -1;
    }
    for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next)
        fd = connect_to(a->ai_addr, a->ai_addrlen, seconds);
    if (fd < 0)
        *why = strerror(errno);
    freeaddrinfo(list);
    return fd;
}

static bool is_mapped(const af_rank_address *p)
{
    static const uint8_t head[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return memcmp(p->address, head, sizeof head) == 0;
}

int af_sock_connect_rank(const af_rank_address *p, double seconds)
{
    if (is_mapped(p)) {
        struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(p->port)};
        memcpy(&four.sin_addr, p->address + 12, 4);
        return connect_to((struct sockaddr *)&four, sizeof four, seconds);
    }
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(p->port)};
    memcpy(&six.sin6_addr, p->address, 16);
    return connect_to((struct sockaddr *)&six, sizeof six, seconds);
}

bool af_rank_address_is_loopback(const af_rank_address *p)
{
    return is_mapped(p) ? p->address[12] == 127
                        : memcmp(p->address, &in6addr_loopback, sizeof p->address) == 0;
}

bool af_host_is_loopback(const char *host)
{
    struct in_addr four;
    return strcmp(host, "localhost") == 0 ||
           (inet_pton(AF_INET, host, &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}
