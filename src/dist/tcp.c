/* tcp.c - one connection between every two ranks; one message each way at a time.
 *
 * Connections come from the rendezvous at MASTER_ADDR:MASTER_PORT with rank 0; the others listen on
 * a port of their own, whose place rank 0 hands around. A message has a frame in front (number,
 * bytes), so that ranks which do not run the same sequence of calls get a sentence, not bytes of
 * something else. */
#define _GNU_SOURCE
#include "dist/dist_socket.h"
#include "dist/rendezvous.h"
#include "dist/watch.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct tcp {
    int size;
    int *fd;                   /* [size]; -1 for this rank */
    uint64_t *sent, *received; /* [size] messages with each */
} tcp;

/* One direction of a transfer. */
typedef struct half {
    int fd, peer;
    uint8_t frame[AF_FRAME_BYTES];
    uint8_t *data;
    uint64_t bytes, done; /* done counts the frame too */
    uint64_t number;
} half;

static bool finished(const half *h) { return h->fd < 0 || h->done == h->bytes + AF_FRAME_BYTES; }

/* What is left, frame and data, as buffers. */
static int buffers(half *h, struct iovec v[2])
{
    int n = 0;
    if (h->done < AF_FRAME_BYTES)
        v[n++] = (struct iovec){h->frame + h->done, AF_FRAME_BYTES - h->done};
    const uint64_t at = h->done > AF_FRAME_BYTES ? h->done - AF_FRAME_BYTES : 0;
    if (at < h->bytes)
        v[n++] = (struct iovec){h->data + at, h->bytes - at};
    return n;
}

static bool is_busy(void) { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

static af_status send_some(const af_comm *c, half *h, af_error *err)
{
    struct iovec v[2];
    const struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)buffers(h, v)};
    const ssize_t k = sendmsg(h->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (k >= 0)
        h->done += (uint64_t)k;
    else if (!is_busy())
        return af_comm_lost(c, h->peer, strerror(errno), err);
    return AF_OK;
}

static af_status check_frame(const af_comm *c, const half *h, af_error *err)
{
    af_frame f;
    if (!af_frame_read(&f, h->frame))
        return af_fail(err, AF_EFORMAT, "rank %d sent bytes that are not a message", h->peer);
    if (f.number != h->number || f.bytes != h->bytes)
        return af_fail(err, AF_EFORMAT,
                       "rank %d sent message %" PRIu64 " of %" PRIu64
                       " bytes where rank %d expects "
                       "message %" PRIu64 " of %" PRIu64,
                       h->peer, f.number, f.bytes, c->launcher.rank, h->number, h->bytes);
    return AF_OK;
}

/* The frame first and alone: its data goes nowhere before it is checked. */
static af_status receive_some(const af_comm *c, half *h, af_error *err)
{
    struct iovec v[2];
    buffers(h, v);
    const ssize_t k = recv(h->fd, v[0].iov_base, v[0].iov_len, MSG_DONTWAIT);
    if (k == 0)
        return af_comm_lost(c, h->peer, "its connection closed", err);
    if (k < 0)
        return is_busy() ? AF_OK : af_comm_lost(c, h->peer, strerror(errno), err);
    const bool in_frame = h->done < AF_FRAME_BYTES;
    h->done += (uint64_t)k;
    return in_frame && h->done == AF_FRAME_BYTES ? check_frame(c, h, err) : AF_OK;
}

static af_status move(af_comm *c, half *out, half *in, af_error *err)
{
    af_status st = AF_OK;
    double heard = af_seconds_now();
    while (st == AF_OK && !(finished(out) && finished(in))) {
        const uint64_t before = out->done + in->done;
        struct pollfd p[2] = {{.fd = finished(out) ? -1 : out->fd, .events = POLLOUT},
                              {.fd = finished(in) ? -1 : in->fd, .events = POLLIN}};
        if (poll(p, 2, 50) < 0 && errno != EINTR)
            return af_fail(err, AF_EIO, "poll: %s", strerror(errno));
        st = af_comm_check(c, err);
        if (st == AF_OK && p[0].revents)
            st = send_some(c, out, err);
        if (st == AF_OK && p[1].revents)
            st = receive_some(c, in, err);
        const double now = af_seconds_now();
        if (out->done + in->done != before) {
            heard = now;
            atomic_fetch_add_explicit(&c->moved, 1, memory_order_relaxed);
        } else if (st == AF_OK && now - heard > c->opts.timeout + 5) { /* the watch speaks first */
            st = af_comm_lost(c, finished(in) ? out->peer : in->peer, "it does not answer", err);
        }
    }
    return st;
}

static af_status tcp_transfer(af_comm *c, const af_transfer *t, af_error *err)
{
    tcp *w = c->wire_state;
    half out = {.fd = -1}, in = {.fd = -1};
    if (t->to >= 0) {
        /* send only reads what data points to */
        out = (half){.fd = w->fd[t->to],
                     .peer = t->to,
                     .data = (uint8_t *)(uintptr_t)t->send,
                     .bytes = t->send_bytes};
        af_frame_write(out.frame, (af_frame){w->sent[t->to]++, t->send_bytes});
    }
    if (t->from >= 0)
        in = (half){.fd = w->fd[t->from],
                    .peer = t->from,
                    .data = t->recv,
                    .bytes = t->recv_bytes,
                    .number = w->received[t->from]++};
    return move(c, &out, &in, err);
}

static void tcp_free(tcp *w)
{
    for (int r = 0; w && w->fd && r < w->size; r++)
        if (w->fd[r] >= 0)
            close(w->fd[r]);
    if (w) {
        free(w->fd);
        free(w->sent);
        free(w->received);
    }
    free(w);
}

static void tcp_close(af_comm *c, bool orderly)
{
    (void)orderly;
    tcp_free(c->wire_state);
    c->wire_state = NULL;
}

static const af_wire tcp_wire = {tcp_transfer, tcp_close};

/* ---- opening ---- */

typedef struct master_place {
    const af_launcher *launcher;
    const char *why; /* the last attempt failed */
} master_place;

static int open_master(void *user, double seconds)
{
    master_place *p = user;
    return af_sock_connect_host(p->launcher->address, p->launcher->port, seconds, &p->why);
}

static int open_place(void *user, double seconds) { return af_sock_connect_rank(user, seconds); }

/* The token of the run: a secret when there is one, else what tells this run from others. */
static void tcp_token(af_token *out, const af_launcher *l)
{
    const char *secret = getenv("AFINAR_RUN_TOKEN");
    char text[2 * AF_LAUNCHER_TEXT + 64];
    if (secret && *secret)
        snprintf(text, sizeof text, "token %.500s", secret);
    else
        snprintf(text, sizeof text, "%s:%d %d %s", l->address, l->port, l->size, l->job);
    af_token_of(out, text);
}

static af_status meet_as_master(af_comm *c, af_rendezvous *m, af_error *err)
{
    const af_launcher *l = &c->launcher;
    int listener = -1;
    af_status st = AF_OK;
    AF_TRY(
        af_sock_listen(&listener, af_host_is_loopback(l->address), l->port, 2 * l->size + 64, err));
    st = af_rendezvous_accept(m, listener, err);
    if (st != AF_OK)
        af_rendezvous_cancel(m, listener, err);
    else
        st = af_rendezvous_begin(m, NULL, err);
done:
    if (listener >= 0)
        close(listener);
    return st;
}

/* A rank on the machine of rank 0 may have come over its loopback interface: from elsewhere it is
 * reached where rank 0 is. */
static void resolve_places(af_rendezvous *m)
{
    af_rank_address master;
    if (!af_sock_peer(m->fd[AF_CHANNEL_DATA][0], 0, &master) ||
        af_rank_address_is_loopback(&master))
        return;
    for (int r = 1; r < m->size; r++)
        if (af_rank_address_is_loopback(&m->place[r]))
            memcpy(m->place[r].address, master.address, sizeof master.address);
}

static af_status meet_as_other(af_comm *c, af_rendezvous *m, int *listener, af_error *err)
{
    const af_launcher *l = &c->launcher;
    master_place master = {.launcher = l, .why = "no answer"};
    af_status st = AF_OK;
    AF_TRY(af_sock_listen(listener, af_host_is_loopback(l->address), 0, l->size + 64, err));
    for (int ch = 0; ch < AF_CHANNELS; ch++) {
        st = af_rendezvous_join(m, (af_channel)ch, 0, af_sock_port(*listener), open_master, &master,
                                err);
        if (st != AF_OK && af_seconds_now() > m->deadline)
            return af_fail_subject(err, AF_EIO, "rank",
                                   "rank 0 did not come in time (at %s:%d: %s)", l->address,
                                   l->port, master.why);
        if (st != AF_OK)
            return st;
    }
    AF_TRY(af_rendezvous_wait(m, err));
    resolve_places(m);
done:
    return st;
}

/* Ranks above 0 among each other: the higher one connects. */
static af_status meet_the_rest(af_rendezvous *m, int listener, af_error *err)
{
    af_status st = AF_OK;
    m->wants[AF_CHANNEL_WATCH] = false;
    for (int r = 1; r < m->rank; r++)
        AF_TRY(af_rendezvous_join(m, AF_CHANNEL_DATA, r, 0, open_place, &m->place[r], err));
    AF_TRY(af_rendezvous_accept(m, listener, err));
done:
    return st;
}

static af_status keep(af_comm *c, af_rendezvous *m, af_error *err)
{
    const uint64_t n = (uint64_t)m->size;
    tcp *w = af_calloc(1, sizeof *w);
    if (!w)
        return af_fail_nomem(err, "the connections", sizeof *w);
    w->size = m->size;
    w->sent = af_calloc(n, sizeof *w->sent);
    w->received = af_calloc(n, sizeof *w->received);
    if (!w->sent || !w->received) {
        tcp_free(w);
        return af_fail_nomem(err, "the connections", n * 16);
    }
    w->fd = m->fd[AF_CHANNEL_DATA];
    m->fd[AF_CHANNEL_DATA] = NULL;
    c->wire_state = w;
    c->wire = &tcp_wire;
    snprintf(c->name, sizeof c->name, "tcp");
    return AF_OK;
}

af_status af_tcp_open(af_comm *c, af_error *err)
{
    const af_launcher *l = &c->launcher;
    af_rendezvous m = {0};
    int listener = -1;
    af_status st = AF_OK;
    if (!l->address[0] || !l->port)
        return af_fail_subject(err, AF_EUSAGE, "dist_backend",
                               "rank %d of %d finds the others by MASTER_ADDR and MASTER_PORT, and "
                               "%s is not set",
                               l->rank, l->size, l->address[0] ? "MASTER_PORT" : "MASTER_ADDR");
    AF_TRY(af_rendezvous_init(&m, l, c->opts.timeout, err));
    tcp_token(&m.token, l);
    m.watched = c;
    m.wants[AF_CHANNEL_DATA] = m.wants[AF_CHANNEL_WATCH] = true;
    AF_TRY(l->rank == 0 ? meet_as_master(c, &m, err) : meet_as_other(c, &m, &listener, err));
    AF_TRY(af_watch_start(c, m.fd[AF_CHANNEL_WATCH], err));
    if (l->rank > 0)
        AF_TRY(meet_the_rest(&m, listener, err));
    AF_TRY(keep(c, &m, err));
done:
    if (listener >= 0)
        close(listener);
    af_rendezvous_clear(&m);
    return st;
}
