/* watch.c - a star around rank 0: beats go in, echoes and sentences come out. */
#define _GNU_SOURCE
#include "dist/watch.h"
#include "dist/dist_socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { UNANSWERED_MAX = 10, SENTENCE = AF_NOTE_TEXT + 1 };
/* What a rank does to end by itself, before `lost` is called: return to a collective, and then
 * leave the program. */
static const double return_seconds = 0.3, leave_seconds = 8;

/* What is known about one rank. */
typedef struct peer {
    int fd; /* -1 = none */
    bool goodbye;
    uint8_t in[AF_NOTE_BYTES + AF_NOTE_TEXT]; /* a note that is not complete yet */
    uint64_t got;
    af_note last;
    double heard; /* when its last note came */
    double since; /* when its last note was not the same as the one before */
} peer;

struct af_watch {
    af_comm *comm;
    int rank, size, wake; /* wake: eventfd that ends a poll */
    peer *peer;           /* [size]: on rank 0 all, elsewhere only [0] has a connection */
    struct pollfd *poll;  /* [size + 1] */
    int unanswered;
    double beat, beat_every, ticked;
    pthread_t thread;
    pthread_mutex_t lock; /* of sentence and of sending */
    char sentence[SENTENCE];
    bool own; /* the failure is this rank's abort; written before `failed` */
    atomic_bool failed, noted, stop;
    double failed_at;
};

/* ---- the sentence ---- */

const char *af_watch_failure(af_watch *w)
{
    if (!atomic_load(&w->failed))
        return NULL;
    atomic_store(&w->noted, true);
    return w->sentence;
}

bool af_watch_lost(const af_watch *w) { return atomic_load(&w->failed) && !w->own; }

const char *af_watch_await(af_watch *w, double seconds)
{
    const double end = af_seconds_now() + seconds;
    while (!atomic_load(&w->failed) && af_seconds_now() < end)
        nanosleep(&(struct timespec){.tv_nsec = 5 * 1000 * 1000}, NULL);
    return af_watch_failure(w);
}

static void send_note(const peer *p, const af_note *n, const char *text)
{
    uint8_t out[AF_NOTE_BYTES + AF_NOTE_TEXT];
    if (p->fd < 0)
        return;
    af_note_write(out, n);
    memcpy(out + AF_NOTE_BYTES, text, n->bytes);
    /* a note is small; one that does not fit is for a rank that has not read for minutes */
    (void)!send(p->fd, out, AF_NOTE_BYTES + n->bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* The first failure stays; rank 0 tells everybody. */
static void set_failure(af_watch *w, const char *sentence, bool own)
{
    pthread_mutex_lock(&w->lock);
    if (!atomic_load(&w->failed)) {
        snprintf(w->sentence, sizeof w->sentence, "%s", sentence);
        w->own = own;
        w->failed_at = af_seconds_now();
        const af_note n = {.kind = AF_NOTE_FAILED, .bytes = (uint32_t)strlen(w->sentence)};
        for (int r = 0; r < w->size && (w->rank == 0 || own); r++)
            send_note(&w->peer[r], &n, w->sentence);
        atomic_store(&w->failed, true);
    }
    pthread_mutex_unlock(&w->lock);
}

AF_PRINTF(2, 3) static void fail_sentence(af_watch *w, const char *fmt, ...)
{
    char text[SENTENCE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    set_failure(w, text, false);
}

void af_watch_abort(af_watch *w, const char *why)
{
    char text[SENTENCE];
    snprintf(text, sizeof text, "rank %d: %s", w->rank, why);
    set_failure(w, text, true);
    (void)!write(w->wake, &(uint64_t){1}, 8);
}

/* ---- notes that come in ---- */

static void take_failure(af_watch *w, int rank, const char *text)
{
    char head[32];
    snprintf(head, sizeof head, "rank %d: ", rank);
    if (w->rank != 0) /* rank 0 has decided */
        set_failure(w, text, false);
    else if (strncmp(text, head, strlen(head)) == 0)
        set_failure(w, text, false);
    else
        fail_sentence(w, "%s%s", head, text);
}

static void take_note(af_watch *w, int rank, const af_note *n, char *text)
{
    peer *p = &w->peer[rank];
    const double now = af_seconds_now();
    p->heard = now;
    switch (n->kind) {
    case AF_NOTE_BEAT:
        if (n->entered != p->last.entered || n->moved != p->last.moved ||
            n->inside != p->last.inside)
            p->since = now;
        p->last = *n;
        send_note(p, &(af_note){.kind = AF_NOTE_ECHO}, "");
        break;
    case AF_NOTE_ECHO:
        w->unanswered = 0;
        break;
    case AF_NOTE_FAILED:
        af_note_clean(text, n->bytes);
        take_failure(w, rank, text);
        break;
    default:
        p->goodbye = true;
    }
}

/* Takes the complete notes out of the buffer. False when the bytes are not notes. */
static bool take_notes(af_watch *w, int rank)
{
    peer *p = &w->peer[rank];
    af_note n;
    while (p->got >= AF_NOTE_BYTES) {
        char text[SENTENCE];
        if (!af_note_read(&n, p->in))
            return false;
        const uint64_t all = AF_NOTE_BYTES + n.bytes;
        if (p->got < all)
            return true;
        memcpy(text, p->in + AF_NOTE_BYTES, n.bytes);
        text[n.bytes] = '\0';
        memmove(p->in, p->in + all, p->got - all);
        p->got -= all;
        take_note(w, rank, &n, text);
    }
    return true;
}

static void end_peer(af_watch *w, int rank, const char *why)
{
    peer *p = &w->peer[rank];
    pthread_mutex_lock(&w->lock);
    close(p->fd);
    p->fd = -1;
    pthread_mutex_unlock(&w->lock);
    if (!p->goodbye)
        fail_sentence(w, "rank %d is gone (%s)", rank, why);
}

static void hear(af_watch *w, int rank)
{
    peer *p = &w->peer[rank];
    for (;;) {
        const ssize_t k = recv(p->fd, p->in + p->got, sizeof p->in - p->got, MSG_DONTWAIT);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (k <= 0) {
            end_peer(w, rank,
                     k == 0 || errno == ECONNRESET ? "its process ended" : strerror(errno));
            return;
        }
        p->got += (uint64_t)k;
        if (!take_notes(w, rank)) {
            end_peer(w, rank, "it sent bytes that make no sense");
            return;
        }
    }
}

/* ---- time ---- */

static af_note own_note(const af_watch *w)
{
    return (af_note){.kind = AF_NOTE_BEAT,
                     .inside = atomic_load(&w->comm->inside),
                     .entered = atomic_load(&w->comm->entered),
                     .moved = atomic_load(&w->comm->moved)};
}

/* Ranks that sleep together (a suspended job) wake together: that time does not count. */
static void tick(af_watch *w, double now)
{
    const double gap = now - w->ticked;
    w->ticked = now;
    for (int r = 0; gap > 5 && r < w->size; r++) {
        w->peer[r].heard += gap;
        w->peer[r].since += gap;
    }
}

static void send_beat(af_watch *w, double now)
{
    peer *hub = &w->peer[0];
    if (now < w->beat)
        return;
    w->beat = now + w->beat_every;
    if (w->unanswered >= UNANSWERED_MAX)
        return;
    w->unanswered++;
    const af_note n = own_note(w);
    pthread_mutex_lock(&w->lock);
    send_note(hub, &n, "");
    pthread_mutex_unlock(&w->lock);
}

/* The rank that the others wait for: one that is not in a collective, of those the one that has
 * been elsewhere for longest; when all are in one, the one that has entered the fewest. Counts
 * alone do not tell: some exchanges are between two ranks only. */
static int laggard(const af_watch *w)
{
    int low = 0;
    for (int r = 1; r < w->size; r++) {
        const peer *a = &w->peer[r], *b = &w->peer[low];
        if (a->last.inside != b->last.inside)
            low = b->last.inside ? r : low;
        else if (a->last.inside ? a->last.entered < b->last.entered : a->since < b->since)
            low = r;
    }
    return low;
}

static void judge_all(af_watch *w, double now)
{
    const double limit = w->comm->opts.timeout;
    const af_note mine = own_note(w);
    peer *me = &w->peer[0];
    if (mine.entered != me->last.entered || mine.moved != me->last.moved ||
        mine.inside != me->last.inside)
        me->since = now;
    me->last = mine;
    for (int r = 1; r < w->size; r++)
        if (w->peer[r].fd >= 0 && !w->peer[r].goodbye && now - w->peer[r].heard > limit)
            fail_sentence(w, "rank %d is gone (silent for %.0f seconds)", r, limit);
    for (int r = 0; r < w->size; r++)
        if (w->peer[r].last.inside && now - w->peer[r].since > limit)
            fail_sentence(w,
                          "rank %d is gone (the others have waited for it for %.0f seconds; see "
                          "ddp_timeout)",
                          laggard(w), limit);
}

static void judge_hub(af_watch *w, double now)
{
    const peer *hub = &w->peer[0];
    /* rank 0 judges first, when it lives */
    const double limit = w->comm->opts.timeout + 2 * w->beat_every;
    if (hub->fd >= 0 && !hub->goodbye && now - hub->heard > limit)
        fail_sentence(w, "rank 0 is gone (silent for %.0f seconds)", w->comm->opts.timeout);
}

/* The main thread does not end by itself. */
static void call_lost(af_watch *w, double now)
{
    const double patience = atomic_load(&w->noted) ? leave_seconds : return_seconds;
    if (!atomic_load(&w->failed) || w->own || !w->comm->opts.lost || now - w->failed_at < patience)
        return;
    w->comm->opts.lost(w->comm->opts.user, w->sentence);
    w->comm->opts.lost = NULL;
}

/* ---- the thread ---- */

static void listen_once(af_watch *w)
{
    uint64_t count;
    w->poll[w->size] = (struct pollfd){.fd = w->wake, .events = POLLIN};
    for (int r = 0; r < w->size; r++)
        w->poll[r] = (struct pollfd){.fd = w->peer[r].fd, .events = POLLIN};
    if (poll(w->poll, (nfds_t)w->size + 1, 100) <= 0)
        return;
    if (w->poll[w->size].revents)
        (void)!read(w->wake, &count, sizeof count);
    for (int r = 0; r < w->size; r++)
        if (w->poll[r].revents && w->peer[r].fd >= 0)
            hear(w, r);
}

static void *watch_main(void *arg)
{
    af_watch *w = arg;
    while (!atomic_load(&w->stop)) {
        listen_once(w);
        const double now = af_seconds_now();
        tick(w, now);
        if (w->rank == 0)
            judge_all(w, now);
        else
            judge_hub(w, now);
        if (w->rank != 0)
            send_beat(w, now);
        call_lost(w, now);
    }
    return NULL;
}

static void watch_free(af_watch *w)
{
    for (int r = 0; w->peer && r < w->size; r++)
        if (w->peer[r].fd >= 0)
            close(w->peer[r].fd);
    if (w->wake >= 0)
        close(w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w->peer);
    free(w->poll);
    free(w);
}

static af_watch *watch_new(af_comm *c, int *fd)
{
    const uint64_t n = (uint64_t)c->launcher.size;
    const double now = af_seconds_now();
    af_watch *w = af_calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    w->comm = c;
    w->rank = c->launcher.rank;
    w->size = c->launcher.size;
    w->beat_every = AF_MIN(2.0, c->opts.timeout / 4);
    w->ticked = now;
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    w->peer = af_calloc(n, sizeof *w->peer);
    w->poll = af_calloc(n + 1, sizeof *w->poll);
    if (!w->peer || !w->poll || w->wake < 0) {
        w->size = 0;
        watch_free(w);
        return NULL;
    }
    for (int r = 0; r < w->size; r++) {
        w->peer[r] = (peer){.fd = fd[r], .heard = now, .since = now};
        fd[r] = -1;
        if (w->peer[r].fd >= 0)
            af_sock_guard(w->peer[r].fd);
    }
    return w;
}

af_status af_watch_start(af_comm *c, int *fd, af_error *err)
{
    sigset_t all, old;
    af_watch *w = watch_new(c, fd);
    if (!w)
        return af_fail_nomem(err, "the watch over the ranks", sizeof *w);
    sigfillset(&all); /* signals are the main thread's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int made = pthread_create(&w->thread, NULL, watch_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (made != 0) {
        watch_free(w);
        return af_fail(err, AF_ENOMEM,
                       "cannot start a thread: not enough memory, or too many threads");
    }
    c->watch = w;
    return AF_OK;
}

static bool is_alone(af_watch *w)
{
    bool alone = true;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->size; r++)
        alone = alone && w->peer[r].fd < 0;
    pthread_mutex_unlock(&w->lock);
    return alone;
}

/* mpirun ends every rank as soon as one has failed: the others get a moment to say who it was. */
static void let_others_end(af_watch *w)
{
    const double end = af_seconds_now() + 1;
    while (!is_alone(w) && af_seconds_now() < end)
        nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

void af_watch_stop(af_watch *w, bool goodbye)
{
    if (!w)
        return;
    if (atomic_load(&w->failed) && w->own)
        let_others_end(w);
    atomic_store(&w->stop, true);
    (void)!write(w->wake, &(uint64_t){1}, 8);
    pthread_join(w->thread, NULL);
    for (int r = 0; goodbye && r < w->size; r++)
        send_note(&w->peer[r], &(af_note){.kind = AF_NOTE_GOODBYE}, "");
    watch_free(w);
}
