/* rank_env.h - what tests need to start ranks: a port, variables that are numbers. */
#ifndef AF_RANK_ENV_H
#define AF_RANK_ENV_H

#include "test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    close(fd);
    return ntohs(a.sin_port);
}

static void set_number(const char *name, int v)
{
    char text[16];
    snprintf(text, sizeof text, "%d", v);
    setenv(name, text, 1);
}
#endif
