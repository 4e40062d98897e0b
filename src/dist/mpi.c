/* mpi.c - MPI as a wire: two requests at a time, tested until they are done.
 *
 * Only point-to-point calls that return at once are used, never MPI's own collectives: those block
 * inside the library when a rank is gone, and nobody could say which. The watch has TCP connections
 * of its own, whose token and addresses rank 0 spreads by MPI. */
#define _GNU_SOURCE
#include "dist/dist_socket.h"
#include "dist/mpi_library.h"
#include "dist/rendezvous.h"
#include "dist/watch.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK_BYTES = 64 << 20, ADDRESSES_MAX = 16 };

/* One direction, a chunk at a time. */
typedef struct side {
    bool active;
    af_mpi_request request;
    int expected; /* bytes of a receive; -1 = a send */
} side;

/* A busy loop at first: a message between two processes of a machine takes microseconds, and large
 * ones move only while MPI is called. Then short sleeps: where cores are shared, MPI gives whole
 * time slices away each time it is called (and so would sched_yield). */
static void rest(double waited, int bytes)
{
    const double busy = bytes > 1 << 20 ? 500e-6 : 50e-6;
    if (waited > busy)
        nanosleep(&(struct timespec){.tv_nsec = waited > 0.1 ? 100 * 1000 : 5 * 1000}, NULL);
}

/* True: MPI reported nothing wrong. */
static bool test_side(af_mpi *m, side *s)
{
    bool done = false;
    int bytes = 0;
    if (!s->active)
        return true;
    if (!af_mpi_test(m, &s->request, &done, &bytes))
        return false;
    if (done && s->expected >= 0 && bytes != s->expected)
        return false;
    s->active = !done;
    return true;
}

static af_status wait_sides(af_comm *c, side *out, side *in, const af_transfer *t, af_error *err)
{
    af_mpi *m = c->wire_state;
    const double begun = af_seconds_now();
    const int bytes = (int)AF_MIN(t->send_bytes + t->recv_bytes, (uint64_t)CHUNK_BYTES);
    for (;;) {
        if (!test_side(m, out))
            return af_comm_lost(c, t->to, "MPI cannot send to it", err);
        if (!test_side(m, in))
            return af_comm_lost(c, t->from, "MPI cannot receive from it", err);
        if (!out->active && !in->active)
            return AF_OK;
        const af_status st = af_comm_check(c, err);
        if (st != AF_OK)
            return st;
        const double waited = af_seconds_now() - begun;
        if (waited > c->opts.timeout + 5) /* the watch speaks first */
            return af_comm_lost(c, in->active ? t->from : t->to, "it does not answer", err);
        rest(waited, bytes);
    }
}

static int chunk_of(uint64_t bytes, uint64_t at)
{
    return (int)AF_MIN(bytes - at, (uint64_t)CHUNK_BYTES);
}

static af_status mpi_transfer(af_comm *c, const af_transfer *t, af_error *err)
{
    af_mpi *m = c->wire_state;
    const uint64_t sends = t->to >= 0 ? t->send_bytes : 0, recvs = t->from >= 0 ? t->recv_bytes : 0;
    af_status st = af_comm_check(c, err);
    for (uint64_t at = 0; st == AF_OK && (at < sends || at < recvs); at += CHUNK_BYTES) {
        side out = {.active = at < sends, .expected = -1}, in = {.active = at < recvs};
        if (in.active) {
            in.expected = chunk_of(recvs, at);
            if (!af_mpi_receive(m, (uint8_t *)t->recv + at, in.expected, t->from, &in.request))
                return af_comm_lost(c, t->from, "MPI cannot receive from it", err);
        }
        if (out.active && !af_mpi_send(m, (const uint8_t *)t->send + at, chunk_of(sends, at), t->to,
                                       &out.request))
            return af_comm_lost(c, t->to, "MPI cannot send to it", err);
        st = wait_sides(c, &out, &in, t, err);
        atomic_fetch_add_explicit(&c->moved, 1, memory_order_relaxed);
    }
    return st;
}

static void mpi_close(af_comm *c, bool orderly)
{
    af_mpi_library_close(c->wire_state, orderly);
    c->wire_state = NULL;
}

static const af_wire mpi_wire = {mpi_transfer, mpi_close};

/* ---- the connections of the watch ---- */

/* Where rank 0 may be reached, and the token of this run. */
typedef struct call {
    af_token token;
    uint32_t count;
    af_rank_address place[ADDRESSES_MAX];
} call;

static void add_address(call *k, const struct sockaddr *a, int port, bool loopback)
{
    af_rank_address *p = &k->place[k->count];
    *p = (af_rank_address){.port = (uint16_t)port};
    if (a->sa_family == AF_INET) {
        memset(p->address + 10, 0xff, 2);
        memcpy(p->address + 12, &((const struct sockaddr_in *)(const void *)a)->sin_addr, 4);
    } else {
        memcpy(p->address, &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, 16);
        if (p->address[0] == 0xfe && (p->address[1] & 0xc0) == 0x80)
            return; /* link-local: useless without the interface */
    }
    k->count += af_rank_address_is_loopback(p) == loopback;
}

/* Addresses of this machine; those of the loopback interface come last. */
static void own_addresses(call *k, int port)
{
    struct ifaddrs *list = NULL;
    if (getifaddrs(&list) != 0)
        return;
    for (int loopback = 0; loopback < 2; loopback++)
        for (const struct ifaddrs *i = list; i && k->count < ADDRESSES_MAX; i = i->ifa_next)
            if (i->ifa_addr && (i->ifa_flags & IFF_UP) &&
                (i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
                add_address(k, i->ifa_addr, port, loopback);
    freeifaddrs(list);
}

static int open_place(void *user, double seconds)
{
    return af_sock_connect_rank(user, AF_MIN(seconds, 3.0));
}

/* An address of rank 0's machine may be somebody else's here: tries all until one knows the
 * token. */
static af_status find_hub(af_rendezvous *m, call *k, af_error *err)
{
    const double end = m->deadline;
    while (af_seconds_now() < end) {
        for (uint32_t i = 0; i < k->count; i++) {
            m->deadline = af_seconds_now() + 0.2; /* one attempt */
            if (af_rendezvous_join(m, AF_CHANNEL_WATCH, 0, 0, open_place, &k->place[i], NULL) ==
                AF_OK) {
                m->deadline = end;
                return AF_OK;
            }
        }
    }
    return af_fail(err, AF_EIO,
                   "rank %d cannot connect to rank 0 by TCP, which is how ranks that die are "
                   "noticed",
                   m->rank);
}

static af_status open_watch(af_comm *c, af_error *err)
{
    const bool hub = c->launcher.rank == 0;
    af_rendezvous m = {0};
    call k = {.count = 0};
    int listener = -1;
    af_status st = AF_OK;
    AF_TRY(af_rendezvous_init(&m, &c->launcher, AF_MIN(c->opts.timeout, 60.0), err));
    m.wants[AF_CHANNEL_WATCH] = true;
    if (hub) {
        AF_TRY(af_sock_listen(&listener, false, 0, c->launcher.size + 64, err));
        AF_TRY(af_random_bytes(&k.token, sizeof k.token, err));
        own_addresses(&k, af_sock_port(listener));
    }
    AF_TRY(af_comm_broadcast(c, &k, sizeof k, 0, err));
    m.token = k.token;
    if (hub) {
        st = af_rendezvous_accept(&m, listener, err);
        if (st != AF_OK)
            af_rendezvous_cancel(&m, listener, err);
        AF_TRY(st == AF_OK ? af_rendezvous_begin(&m, NULL, err) : st);
    } else {
        k.count = AF_MIN(k.count, (uint32_t)ADDRESSES_MAX);
        AF_TRY(find_hub(&m, &k, err));
        AF_TRY(af_rendezvous_wait(&m, err));
    }
    AF_TRY(af_watch_start(c, m.fd[AF_CHANNEL_WATCH], err));
done:
    if (listener >= 0)
        close(listener);
    af_rendezvous_clear(&m);
    return st;
}

af_status af_mpi_open(af_comm *c, af_error *err)
{
    af_mpi *m = NULL;
    af_status st = af_mpi_library_open(&m, &c->launcher, err);
    if (st != AF_OK)
        return st;
    c->wire_state = m;
    c->wire = &mpi_wire;
    snprintf(c->name, sizeof c->name, "mpi (%s)", af_mpi_library_name(m));
    return open_watch(c, err);
}
