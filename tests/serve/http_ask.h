/* http_ask.h - requests to a server of this process, over a real socket. */
#ifndef AF_TEST_HTTP_ASK_H
#define AF_TEST_HTTP_ASK_H
#include "test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static inline void send_request(int fd, const char *method, const char *path, const char *body)
{
    char text[8192];
    const int n = snprintf(text, sizeof text,
                           "%s %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                           method, path, strlen(body), body);
    assert_true(n > 0 && n < (int)sizeof text);
    assert_int_equal(send(fd, text, (size_t)n, 0), n);
}

static inline int new_socket(void)
{
    const struct timeval limit = {.tv_sec = 300};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    return fd;
}

static inline void connect_to(int fd, int port)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_port = htons((uint16_t)port),
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
}

/* A new connection with a request. */
static inline int ask(int port, const char *method, const char *path, const char *body)
{
    const int fd = new_socket();
    connect_to(fd, port);
    send_request(fd, method, path, body);
    return fd;
}

/* What the server sends, up to and with `last`, has this status. */
static inline void expect_answer(int fd, int status, const char *last)
{
    static char got[1 << 16];
    char first[32];
    size_t n = 0;
    snprintf(first, sizeof first, "HTTP/1.1 %d ", status);
    do {
        const ssize_t more = recv(fd, got + n, sizeof got - 1 - n, 0);
        CHECK_MSG(more > 0, "the answer ended before '%s'", last);
        n += (size_t)more;
        got[n] = '\0';
        CHECK_MSG(strncmp(got, first, AF_MIN(n, strlen(first))) == 0, "not %d: %s", status, got);
    } while (!strstr(got, last));
}
#endif
