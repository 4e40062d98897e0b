/* rendezvous.c - the listener answers many at once, each with a deadline of its own, so that nobody
 * who connects and says nothing can delay the run. */
#define _GNU_SOURCE
#include "dist/rendezvous.h"
#include "dist/dist_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CALLERS_MAX = 64, REASON_MAX = 400 };
static const double hello_seconds = 5; /* a caller has this long to say who it is */
static const double told_seconds = 10; /* after which rank 0 names a rank that is missing */
static const double late_seconds = 8;  /* how long rank 0 stays to tell why nothing begins */

/* A connection that has not said who it is. */
typedef struct caller {
    int fd;
    double deadline;
    uint8_t nonce[AF_NONCE_BYTES], hello[AF_HELLO_BYTES];
    uint64_t got;
} caller;

typedef struct callers {
    caller list[CALLERS_MAX];
    int n;
} callers;

af_status af_rendezvous_init(af_rendezvous *m, const af_launcher *l, double timeout, af_error *err)
{
    *m = (af_rendezvous){.rank = l->rank, .size = l->size, .deadline = af_seconds_now() + timeout};
    m->place = af_calloc((uint64_t)l->size, sizeof *m->place);
    bool ok = m->place != NULL;
    for (int ch = 0; ch < AF_CHANNELS; ch++) {
        m->fd[ch] = af_calloc((uint64_t)l->size, sizeof *m->fd[ch]);
        ok = ok && m->fd[ch];
        for (int r = 0; m->fd[ch] && r < l->size; r++)
            m->fd[ch][r] = -1;
    }
    if (ok)
        return AF_OK;
    af_rendezvous_clear(m);
    return af_fail_nomem(err, "the list of ranks", (uint64_t)l->size * 32);
}

void af_rendezvous_clear(af_rendezvous *m)
{
    for (int ch = 0; ch < AF_CHANNELS; ch++) {
        for (int r = 0; m->fd[ch] && r < m->size; r++)
            if (m->fd[ch][r] >= 0)
                close(m->fd[ch][r]);
        free(m->fd[ch]);
    }
    free(m->place);
    *m = (af_rendezvous){0};
}

/* ---- the listener ---- */

static void caller_close(callers *g, int i)
{
    if (g->list[i].fd >= 0)
        close(g->list[i].fd);
    g->list[i] = g->list[--g->n];
}

static void caller_accept(af_rendezvous *m, callers *g, int fd)
{
    uint8_t challenge[AF_CHALLENGE_BYTES];
    const double now = af_seconds_now();
    caller *e = &g->list[g->n];
    *e = (caller){.fd = fd, .deadline = now + hello_seconds};
    if (af_random_bytes(e->nonce, sizeof e->nonce, NULL) != AF_OK) {
        close(fd);
        return;
    }
    af_challenge_write(challenge, e->nonce);
    if (af_sock_write(fd, challenge, sizeof challenge, now + 1, NULL, NULL) != AF_OK) {
        close(fd);
        m->strangers++;
        return;
    }
    g->n++;
}

static af_status refuse(const af_rendezvous *m, const af_hello *h, af_verdict v, af_error *err)
{
    switch (v) {
    case AF_VERDICT_VERSION:
        return af_fail_subject(err, AF_EUSAGE, "version",
                               "rank %u is afinar %s, rank %d is afinar %s; every rank needs the "
                               "same version",
                               h->rank, h->version, m->rank, AF_VERSION);
    case AF_VERDICT_SIZE:
        return af_fail_subject(err, AF_EUSAGE, "size",
                               "rank %u was started as one of %u ranks, rank %d as one of %d",
                               h->rank, h->size, m->rank, m->size);
    default:
        return af_fail_subject(err, AF_EUSAGE, "rank",
                               "two processes were started as rank %u of %d", h->rank, m->size);
    }
}

/* A caller has said everything. Failure ends the run: it came with the token of this run. */
static af_status caller_decide(af_rendezvous *m, caller *e, af_error *err)
{
    uint8_t answer[AF_ANSWER_BYTES];
    af_hello h = {0};
    af_verdict v = af_hello_read(&h, e->hello, &m->token, e->nonce, m->size, AF_VERSION);
    if (v == AF_VERDICT_WELCOME &&
        ((int)h.rank <= m->rank || !m->wants[h.channel] || m->fd[h.channel][h.rank] >= 0))
        v = AF_VERDICT_RANK;
    af_answer_write(answer, v, &h, &m->token);
    if (af_sock_write(e->fd, answer, sizeof answer, af_seconds_now() + 1, NULL, NULL) != AF_OK ||
        v == AF_VERDICT_STRANGER) {
        m->strangers += v == AF_VERDICT_STRANGER;
        return AF_OK; /* a rank that died just now comes up as missing */
    }
    if (v != AF_VERDICT_WELCOME)
        return refuse(m, &h, v, err);
    if (!af_sock_peer(e->fd, (int)h.port, &m->place[h.rank]))
        return AF_OK;
    m->fd[h.channel][h.rank] = e->fd;
    e->fd = -1;
    return AF_OK;
}

/* Reads what is there. *done: it leaves the list. */
static af_status caller_read(af_rendezvous *m, caller *e, bool *done, af_error *err)
{
    while (e->got < sizeof e->hello) {
        const ssize_t k = read(e->fd, e->hello + e->got, sizeof e->hello - e->got);
        if (k > 0) {
            e->got += (uint64_t)k;
        } else if (k < 0 && (errno == EAGAIN || errno == EINTR)) {
            return AF_OK;
        } else {
            *done = true;
            m->strangers += e->got > 0;
            return AF_OK;
        }
    }
    *done = true;
    return caller_decide(m, e, err);
}

static int missing_rank(const af_rendezvous *m)
{
    for (int r = m->rank + 1; r < m->size; r++)
        for (int ch = 0; ch < AF_CHANNELS; ch++)
            if (m->wants[ch] && m->fd[ch][r] < 0)
                return r;
    return -1;
}

static int count_missing(const af_rendezvous *m)
{
    int n = 0;
    for (int r = m->rank + 1; r < m->size; r++)
        n += m->fd[m->wants[AF_CHANNEL_DATA] ? AF_CHANNEL_DATA : AF_CHANNEL_WATCH][r] < 0;
    return n;
}

/* A rank that has joined says nothing until the run begins: if it does, it is gone. */
static int left_rank(const af_rendezvous *m)
{
    for (int r = m->rank + 1; r < m->size; r++)
        for (int ch = 0; ch < AF_CHANNELS; ch++) {
            struct pollfd p = {.fd = m->fd[ch][r], .events = POLLIN};
            uint8_t byte;
            if (p.fd >= 0 && poll(&p, 1, 0) > 0 &&
                recv(p.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) <= 0)
                return r;
        }
    return -1;
}

static af_status fail_missing(const af_rendezvous *m, af_error *err)
{
    const int n = count_missing(m);
    return af_fail(err, AF_EIO, "rank %d did not come in time (%d of %d ranks are missing)%s",
                   missing_rank(m), n, m->size,
                   m->strangers ? "; connections with another run token were refused" : "");
}

static void accept_callers(af_rendezvous *m, callers *g, int listener)
{
    while (g->n < CALLERS_MAX) {
        const int fd = af_sock_accept(listener);
        if (fd < 0)
            return;
        caller_accept(m, g, fd);
    }
}

static af_status read_callers(af_rendezvous *m, callers *g, af_error *err)
{
    const double now = af_seconds_now();
    for (int i = g->n; i-- > 0;) {
        bool done = false;
        const af_status st = caller_read(m, &g->list[i], &done, err);
        if (done || now > g->list[i].deadline)
            caller_close(g, i);
        if (st != AF_OK)
            return st;
    }
    return AF_OK;
}

/* Waits a little for somebody to come, and hears who is there. */
static af_status hear_once(af_rendezvous *m, callers *g, int listener, af_error *err)
{
    struct pollfd p[CALLERS_MAX + 1];
    p[0] = (struct pollfd){.fd = g->n < CALLERS_MAX ? listener : -1, .events = POLLIN};
    for (int i = 0; i < g->n; i++)
        p[i + 1] = (struct pollfd){.fd = g->list[i].fd, .events = POLLIN};
    (void)poll(p, (nfds_t)g->n + 1, 100);
    const af_status st = af_comm_check(m->watched, err);
    if (st != AF_OK)
        return st;
    accept_callers(m, g, listener);
    return read_callers(m, g, err);
}

static void callers_clear(callers *g)
{
    while (g->n > 0)
        caller_close(g, g->n - 1);
}

/* Once, on rank 0. */
static void tell_missing(const af_rendezvous *m, int listener, bool *told)
{
    char line[160];
    const af_comm_opts *o = m->watched ? &m->watched->opts : NULL;
    if (*told || m->rank > 0 || !o || !o->waits)
        return;
    snprintf(line, sizeof line,
             "waiting on port %d for %d of %d ranks, at most %.0f seconds (ddp_timeout): rank %d "
             "has not come yet",
             af_sock_port(listener), count_missing(m), m->size, o->timeout, missing_rank(m));
    o->waits(o->user, line);
    *told = true;
}

af_status af_rendezvous_accept(af_rendezvous *m, int listener, af_error *err)
{
    af_status st = AF_OK;
    callers g = {.n = 0};
    bool told = false;
    const double begun = af_seconds_now();
    while (missing_rank(m) >= 0) {
        AF_TRY(hear_once(m, &g, listener, err));
        if (missing_rank(m) >= 0 && af_seconds_now() > begun + told_seconds)
            tell_missing(m, listener, &told);
        const int gone = m->watched && m->watched->watch ? -1 : left_rank(m);
        if (gone >= 0)
            AF_TRY(af_fail(err, AF_EIO, "rank %d is gone (it ended before the run began)", gone));
        if (missing_rank(m) >= 0 && af_seconds_now() > m->deadline)
            AF_TRY(fail_missing(m, err));
    }
done:
    callers_clear(&g);
    return st;
}

void af_rendezvous_cancel(af_rendezvous *m, int listener, const af_error *reason)
{
    const double end = AF_MIN(m->deadline, af_seconds_now() + late_seconds);
    callers g = {.n = 0};
    (void)!af_rendezvous_begin(m, reason, NULL);
    while (missing_rank(m) >= 0 && af_seconds_now() < end && reason->code != AF_ESTOPPED)
        (void)!hear_once(m, &g, listener, NULL);
    callers_clear(&g);
    (void)!af_rendezvous_begin(m, reason, NULL); /* those who heard it have left */
}

static af_channel lead_channel(const af_rendezvous *m)
{
    return m->wants[AF_CHANNEL_DATA] ? AF_CHANNEL_DATA : AF_CHANNEL_WATCH;
}

/* What rank 0 sends at the end: u32 kind, u32 bytes, then those. */
typedef enum begin_kind { BEGIN_PLACES, BEGIN_FAILED, BEGIN_WRONG } begin_kind;

static void begin_head(uint8_t out[8], begin_kind kind, uint64_t bytes)
{
    for (int i = 0; i < 4; i++) {
        out[i] = i == 0 ? (uint8_t)kind : 0;
        out[4 + i] = (uint8_t)(bytes >> (8 * i));
    }
}

af_status af_rendezvous_begin(af_rendezvous *m, const af_error *reason, af_error *err)
{
    uint8_t head[8];
    const char *why = reason ? reason->msg : NULL;
    const uint64_t bytes =
        why ? AF_MIN(strlen(why), (size_t)REASON_MAX) : (uint64_t)m->size * AF_RANK_ADDRESS_BYTES;
    uint8_t *body = af_calloc(bytes + 1, 1);
    af_status st = AF_OK;
    if (!body)
        return af_fail_nomem(err, "the list of ranks", bytes);
    if (why)
        memcpy(body, why, bytes);
    for (int r = 0; !why && r < m->size; r++)
        af_rank_address_write(body + (uint64_t)r * AF_RANK_ADDRESS_BYTES, &m->place[r]);
    begin_head(head,
               !reason                     ? BEGIN_PLACES
               : reason->code == AF_EUSAGE ? BEGIN_WRONG
                                           : BEGIN_FAILED,
               bytes);
    for (int r = 1; r < m->size; r++) {
        const int fd = m->fd[lead_channel(m)][r];
        const double by = why ? af_seconds_now() + 1 : m->deadline;
        if (fd < 0)
            continue;
        st = af_sock_write(fd, head, sizeof head, by, NULL, err);
        if (st == AF_OK)
            st = af_sock_write(fd, body, bytes, by, NULL, err);
        if (st != AF_OK && !why)
            AF_TRY(af_fail(err, AF_EIO, "rank %d is gone (it ended before the run began)", r));
    }
    st = AF_OK;
done:
    free(body);
    return st;
}

/* ---- the others ---- */

static af_status refused(const af_rendezvous *m, int peer, af_verdict v, af_error *err)
{
    switch (v) {
    case AF_VERDICT_STRANGER:
        return af_fail_subject(err, AF_EUSAGE, "token",
                               "rank %d refuses this process: it belongs to another run, or "
                               "AFINAR_RUN_TOKEN differs",
                               peer);
    case AF_VERDICT_VERSION:
        return af_fail_subject(err, AF_EUSAGE, "version",
                               "rank %d is another version of afinar than this one (rank %d, %s); "
                               "every rank needs the same version",
                               peer, m->rank, AF_VERSION);
    case AF_VERDICT_SIZE:
        return af_fail_subject(err, AF_EUSAGE, "size",
                               "rank %d was started as one of another number of ranks than %d",
                               peer, m->size);
    default:
        return af_fail_subject(err, AF_EUSAGE, "rank",
                               "two processes were started as rank %d of %d", m->rank, m->size);
    }
}

/* The connector's side of the handshake. *again: the other side went away before it had answered;
 * nothing is decided. */
static af_status introduce(const af_rendezvous *m, int fd, const af_hello *h, int peer, bool *again,
                           af_error *err)
{
    uint8_t challenge[AF_CHALLENGE_BYTES], nonce[AF_NONCE_BYTES], hello[AF_HELLO_BYTES],
        answer[AF_ANSWER_BYTES];
    const double by = AF_MIN(m->deadline, af_seconds_now() + 4 * hello_seconds);
    *again = false;
    if (af_sock_read(fd, challenge, sizeof challenge, by, m->watched, NULL) != AF_OK) {
        *again = true;
        return AF_OK;
    }
    if (!af_challenge_read(nonce, challenge))
        return af_fail_subject(err, AF_EUSAGE, "token",
                               "what answers in place of rank %d is not an afinar that waits for "
                               "ranks",
                               peer);
    af_hello_write(hello, h, &m->token, nonce);
    if (af_sock_write(fd, hello, sizeof hello, by, m->watched, NULL) != AF_OK ||
        af_sock_read(fd, answer, sizeof answer, by, m->watched, NULL) != AF_OK) {
        *again = true;
        return AF_OK;
    }
    const af_verdict v = af_answer_read(answer, h, &m->token);
    return v == AF_VERDICT_WELCOME ? AF_OK : refused(m, peer, v, err);
}

af_status af_rendezvous_join(af_rendezvous *m, af_channel ch, int peer, int port,
                             af_rendezvous_open *attempt, void *user, af_error *err)
{
    af_hello h = {.channel = (uint32_t)ch,
                  .rank = (uint32_t)m->rank,
                  .size = (uint32_t)m->size,
                  .port = (uint32_t)port};
    snprintf(h.version, sizeof h.version, "%s", AF_VERSION);
    for (;;) {
        bool again = true;
        const double left = m->deadline - af_seconds_now();
        af_status st = af_random_bytes(h.nonce, sizeof h.nonce, err);
        if (st == AF_OK)
            st = af_comm_check(m->watched, err);
        const int fd = st == AF_OK ? attempt(user, left > 10 ? 10 : left) : -1;
        if (fd >= 0)
            st = introduce(m, fd, &h, peer, &again, err);
        if (st == AF_OK && !again) {
            m->fd[ch][peer] = fd;
            return AF_OK;
        }
        if (fd >= 0)
            close(fd);
        if (st != AF_OK)
            return st;
        if (af_seconds_now() > m->deadline)
            return af_fail_subject(err, AF_EIO, "timeout", "rank %d does not answer", peer);
        nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
    }
}

af_status af_rendezvous_wait(af_rendezvous *m, af_error *err)
{
    const int fd = m->fd[lead_channel(m)][0];
    const uint64_t places = (uint64_t)m->size * AF_RANK_ADDRESS_BYTES;
    uint8_t head[8], expected[8], *body = NULL;
    /* rank 0 gives up at its own deadline, and says why */
    const double by = m->deadline + 5;
    af_status st = af_sock_read(fd, head, sizeof head, by, m->watched, err);
    if (st != AF_OK)
        return st == AF_ESTOPPED
                   ? st
                   : af_fail(err, AF_EIO, "rank 0 is gone (it ended before the run began)");
    begin_head(expected, BEGIN_PLACES, places);
    const uint64_t reason = head[4] | (uint64_t)head[5] << 8;
    if (head[0] != BEGIN_PLACES && reason <= REASON_MAX) {
        char text[REASON_MAX + 1] = {0};
        AF_TRY(af_sock_read(fd, text, reason, by, m->watched, err));
        return af_fail(err, head[0] == BEGIN_WRONG ? AF_EUSAGE : AF_EIO, "%s", text);
    }
    if (memcmp(head, expected, sizeof head) != 0)
        return af_fail(err, AF_EFORMAT, "rank 0 sent a list of places that cannot be right");
    body = af_calloc(places, 1);
    if (!body)
        return af_fail_nomem(err, "the list of ranks", places);
    AF_TRY(af_sock_read(fd, body, places, by, m->watched, err));
    for (int r = 0; r < m->size; r++)
        af_rank_address_read(&m->place[r], body + (uint64_t)r * AF_RANK_ADDRESS_BYTES);
done:
    free(body);
    return st;
}
