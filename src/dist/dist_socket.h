/* dist_socket.h - TCP sockets with deadlines. Every wait ends early when the communicator's watch
 * reports a failure (c may be NULL: no watch yet). Sockets do not survive exec, and writing to one
 * that is closed is an error, never a signal. */
#ifndef AF_DIST_SOCKET_H
#define AF_DIST_SOCKET_H

#include "dist/wire.h"

/* Exactly n bytes. The end of the stream is AF_EIO with subject "closed". */
AF_CHECKED af_status af_sock_read(int fd, void *to, uint64_t n, double deadline, const af_comm *c,
                                  af_error *err);
AF_CHECKED af_status af_sock_write(int fd, const void *from, uint64_t n, double deadline,
                                   const af_comm *c, af_error *err);
/* Listens on `port` (0: the system chooses), on the loopback interface only or on all. */
AF_CHECKED af_status af_sock_listen(int *fd, bool loopback, int port, int backlog, af_error *err);
int af_sock_port(int fd);
/* For the watch: a machine that lost its power or its network sends no FIN, so unanswered bytes and
 * probes end the connection after 15 s. A process that is merely stopped still answers both. Not
 * for data: a rank that computes for a minute does not read either. */
void af_sock_guard(int fd);
/* The next connection, ready for use; -1 when there is none. */
int af_sock_accept(int listener);
/* One attempt on each address of a host name; -1 when nobody answers there within `seconds`. */
int af_sock_connect_host(const char *host, int port, double seconds, const char **why);
int af_sock_connect_rank(const af_rank_address *p, double seconds);
/* The other side's address; port as given. */
bool af_sock_peer(int fd, int port, af_rank_address *out);
bool af_rank_address_is_loopback(const af_rank_address *p);
/* "localhost" and 127.x.x.x as the text says it, without asking for a name. */
bool af_host_is_loopback(const char *host);
#endif
