/* rank_env.h - what tests need to start ranks: a port, variables that are numbers. */
#ifndef AF_RANK_ENV_H
#define AF_RANK_ENV_H

#include "test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

/* A port that is free now, and that the system gives to nobody who asks for any: those begin at
 * 32768. Other processes try others first; test_cli_ranks.sh has those from 20000 on. */
static int free_port(void)
{
    enum { FIRST = 10000, PORTS = 10000 };
    static unsigned next;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int tries = 0; tries < PORTS; tries++) {
        const int port = FIRST + (int)(((unsigned)getpid() * 37u + next++) % PORTS);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        a.sin_port = htons((uint16_t)port);
        const bool free = bind(fd, (struct sockaddr *)&a, sizeof a) == 0;
        close(fd);
        if (free)
            return port;
    }
    fail_msg("no port is free");
    return 0;
}

static void set_number(const char *name, int v)
{
    char text[16];
    snprintf(text, sizeof text, "%d", v);
    setenv(name, text, 1);
}
#endif
