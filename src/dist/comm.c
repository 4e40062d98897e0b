/* comm.c - collectives out of transfers, the same ones over every wire.
 *
 * All-gather is a ring, all-to-all a sequence of shifted pairs, broadcast a binomial tree, the
 * barrier a dissemination: each sends what must be sent and no more, and none needs a library's
 * tuned version whose order or buffers we would not know. */
#define _GNU_SOURCE /* gethostname */
#include "dist/comm.h"
#include "base/hash.h"
#include "dist/watch.h"
#include "dist/wire.h"

#include <unistd.h>

enum { AGREE_SHOWN = 64 };

int af_comm_rank(const af_comm *c) { return c ? c->launcher.rank : 0; }
int af_comm_size(const af_comm *c) { return c ? c->launcher.size : 1; }
int af_comm_local_rank(const af_comm *c) { return c ? c->launcher.local_rank : 0; }
int af_comm_local_size(const af_comm *c) { return c ? c->local_size : 1; }
bool af_comm_wants_nccl(const af_comm *c) { return c && c->nccl; }
const char *af_comm_name(const af_comm *c) { return c ? c->name : "one process"; }
uint64_t af_comm_bytes(const af_comm *c) { return c ? c->bytes : 0; }
bool af_comm_failed(const af_comm *c) { return c && c->watch && af_watch_lost(c->watch); }

af_status af_comm_check(const af_comm *c, af_error *err)
{
    const char *why = c && c->watch ? af_watch_failure(c->watch) : NULL;
    if (c && !c->watch && c->opts.stop && c->opts.stop(c->opts.user))
        return af_fail(err, AF_ESTOPPED, "stopped before all ranks had come");
    return why ? af_fail_subject(err, AF_EIO, "rank", "%s", why) : AF_OK;
}

af_status af_comm_lost(const af_comm *c, int peer, const char *what, af_error *err)
{
    /* a rank that ends because another went first closes its connections too */
    const char *why = c->watch ? af_watch_await(c->watch, 5) : NULL;
    if (why)
        return af_fail_subject(err, AF_EIO, "rank", "%s", why);
    return af_fail_subject(err, AF_EIO, "rank", "rank %d is gone (%s)", peer, what);
}

/* ---- collectives ---- */

static void enter(af_comm *c)
{
    atomic_fetch_add(&c->entered, 1);
    atomic_store(&c->inside, true);
}

static af_status leave(af_comm *c, af_status st)
{
    atomic_store(&c->inside, false);
    return st;
}

static af_status transfer(af_comm *c, af_transfer t, af_error *err)
{
    const af_status st = c->wire->transfer(c, &t, err);
    if (st == AF_OK && t.to >= 0)
        c->bytes += t.send_bytes;
    return st;
}

/* Ranks counted from the root: v gets from v minus its lowest bit, then sends to v plus each lower
 * one. */
static af_status broadcast(af_comm *c, void *buf, uint64_t bytes, int root, af_error *err)
{
    const int n = c->launcher.size, v = (c->launcher.rank - root + n) % n;
    af_status st = AF_OK;
    int bit = 1;
    for (; bit < n && !(v & bit); bit <<= 1)
        continue;
    if (v)
        AF_TRY(transfer(
            c,
            (af_transfer){.to = -1, .from = (v - bit + root) % n, .recv = buf, .recv_bytes = bytes},
            err));
    for (bit >>= 1; bit > 0; bit >>= 1)
        if (v + bit < n)
            AF_TRY(transfer(
                c,
                (af_transfer){
                    .to = (v + bit + root) % n, .from = -1, .send = buf, .send_bytes = bytes},
                err));
done:
    return st;
}

af_status af_comm_broadcast(af_comm *c, void *buf, uint64_t bytes, int root, af_error *err)
{
    assert(root >= 0 && root < af_comm_size(c));
    if (!c || bytes == 0)
        return af_comm_check(c, err);
    enter(c);
    return leave(c, broadcast(c, buf, bytes, root, err));
}

af_status af_comm_all_gather(af_comm *c, const void *mine, void *all, uint64_t bytes, af_error *err)
{
    const int n = af_comm_size(c), rank = af_comm_rank(c);
    uint8_t *part = all;
    if (bytes == 0)
        return af_comm_check(c, err);
    if (part + (uint64_t)rank * bytes != mine)
        memmove(part + (uint64_t)rank * bytes, mine, bytes);
    if (!c)
        return AF_OK;
    enter(c);
    af_status st = AF_OK;
    for (int k = 0; k + 1 < n && st == AF_OK; k++)
        st = transfer(c,
                      (af_transfer){.to = (rank + 1) % n,
                                    .from = (rank + n - 1) % n,
                                    .send = part + (uint64_t)((rank - k + n) % n) * bytes,
                                    .recv = part + (uint64_t)((rank - k - 1 + n) % n) * bytes,
                                    .send_bytes = bytes,
                                    .recv_bytes = bytes},
                      err);
    return leave(c, st);
}

af_status af_comm_all_to_all(af_comm *c, const void *send, void *recv, uint64_t bytes,
                             af_error *err)
{
    const int n = af_comm_size(c), rank = af_comm_rank(c);
    const uint8_t *from = send;
    uint8_t *to = recv;
    if (bytes == 0)
        return af_comm_check(c, err);
    memcpy(to + (uint64_t)rank * bytes, from + (uint64_t)rank * bytes, bytes);
    if (!c)
        return AF_OK;
    enter(c);
    af_status st = AF_OK;
    for (int k = 1; k < n && st == AF_OK; k++) {
        const int up = (rank + k) % n, down = (rank - k + n) % n;
        st = transfer(c,
                      (af_transfer){.to = up,
                                    .from = down,
                                    .send = from + (uint64_t)up * bytes,
                                    .recv = to + (uint64_t)down * bytes,
                                    .send_bytes = bytes,
                                    .recv_bytes = bytes},
                      err);
    }
    return leave(c, st);
}

af_status af_comm_swap(af_comm *c, int peer, const void *send, uint64_t send_bytes, void *recv,
                       uint64_t recv_bytes, af_error *err)
{
    assert(peer >= 0 && peer < af_comm_size(c));
    if (send_bytes == 0 && recv_bytes == 0)
        return af_comm_check(c, err);
    if (peer == af_comm_rank(c)) {
        assert(send_bytes == recv_bytes);
        memcpy(recv, send, recv_bytes);
        return af_comm_check(c, err);
    }
    enter(c);
    return leave(c, transfer(c,
                             (af_transfer){.to = send_bytes ? peer : -1,
                                           .from = recv_bytes ? peer : -1,
                                           .send = send,
                                           .recv = recv,
                                           .send_bytes = send_bytes,
                                           .recv_bytes = recv_bytes},
                             err));
}

af_status af_comm_barrier(af_comm *c, af_error *err)
{
    const int n = af_comm_size(c), rank = af_comm_rank(c);
    uint8_t mine = 0, theirs = 0;
    af_status st = AF_OK;
    if (!c || af_comm_check(c, err) != AF_OK)
        return c ? AF_EIO : AF_OK;
    enter(c);
    for (int k = 1; k < n && st == AF_OK; k <<= 1)
        st = transfer(c,
                      (af_transfer){.to = (rank + k) % n,
                                    .from = (rank - k + n) % n,
                                    .send = &mine,
                                    .recv = &theirs,
                                    .send_bytes = 1,
                                    .recv_bytes = 1},
                      err);
    return leave(c, st);
}

void af_comm_wait_begin(af_comm *c)
{
    if (c)
        enter(c);
}

void af_comm_wait_end(af_comm *c)
{
    if (c)
        (void)leave(c, AF_OK);
}

/* ---- agreement ---- */

/* What a rank says about a value: its hash, and its text when that is short and printable. */
typedef struct opinion {
    char hash[65];
    char text[AGREE_SHOWN + 1];
} opinion;

static void opinion_of(opinion *o, const char *key, const void *value, uint64_t bytes)
{
    af_sha256 s;
    const uint8_t *p = value;
    bool shown = bytes > 0 && bytes <= AGREE_SHOWN;
    *o = (opinion){{0}, {0}};
    af_sha256_init(&s);
    af_sha256_add(&s, key, strlen(key) + 1);
    af_sha256_add(&s, value, bytes);
    af_sha256_hex(&s, o->hash);
    for (uint64_t i = 0; i < bytes && shown; i++)
        shown = p[i] >= ' ' && p[i] < 127;
    if (shown)
        memcpy(o->text, value, bytes);
}

af_status af_comm_agree(af_comm *c, const char *key, const void *value, uint64_t bytes,
                        af_error *err)
{
    const int n = af_comm_size(c);
    opinion mine;
    af_status st = AF_OK;
    if (!c)
        return AF_OK;
    opinion *all = af_calloc((uint64_t)n, sizeof *all);
    if (!all)
        return af_fail_nomem(err, key, (uint64_t)n * sizeof *all);
    opinion_of(&mine, key, value, bytes);
    AF_TRY(af_comm_all_gather(c, &mine, all, sizeof mine, err));
    for (int r = 1; r < n; r++) {
        if (memcmp(all[r].hash, all[0].hash, sizeof mine.hash) == 0)
            continue;
        af_note_clean(all[0].text, strnlen(all[0].text, AGREE_SHOWN));
        af_note_clean(all[r].text, strnlen(all[r].text, AGREE_SHOWN));
        if (all[0].text[0] && all[r].text[0])
            AF_TRY(af_fail_subject(err, AF_EUSAGE, key, "%s differs: rank 0 has %s, rank %d has %s",
                                   key, all[0].text, r, all[r].text));
        AF_TRY(af_fail_subject(err, AF_EUSAGE, key,
                               "%s differs between rank 0 and rank %d; every rank needs the same",
                               key, r));
    }
done:
    free(all);
    return st;
}

/* ---- opening and leaving ---- */

/* How many ranks have this machine's name and boot. */
static af_status count_local(af_comm *c, af_error *err)
{
    const int n = c->launcher.size;
    char name[256] = {0};
    uint64_t mine = AF_FNV_START;
    af_status st = AF_OK;
    uint64_t *all = af_calloc((uint64_t)n, sizeof *all);
    if (!all)
        return af_fail_nomem(err, "the list of ranks", (uint64_t)n * 8);
    (void)gethostname(name, sizeof name - 1);
    mine = af_fnv1a(mine, name, sizeof name);
    AF_TRY(af_comm_all_gather(c, &mine, all, sizeof mine, err));
    for (int r = 0; r < n; r++)
        c->local_size += all[r] == mine;
done:
    free(all);
    return st;
}

static void comm_free(af_comm *c, bool orderly)
{
    af_watch_stop(c->watch, orderly);
    if (c->wire)
        c->wire->close(c, orderly);
    free(c);
}

static bool takes_mpi(const af_comm_opts *o, const af_launcher *l)
{
    return o->backend == AF_COMM_MPI || (o->backend != AF_COMM_TCP && l->mpi);
}

af_status af_comm_open(af_comm **out, const af_comm_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_launcher l = {0};
    af_comm *c = NULL;
    af_error unread;
    err = af_error_or(err, &unread); /* the others are told what it says */
    *out = NULL;
    AF_TRY(af_launcher_find(&l, err));
    if (l.size == 1)
        return AF_OK;
    c = af_calloc(1, sizeof *c);
    if (!c)
        return af_fail_nomem(err, "the communicator", sizeof *c);
    c->launcher = l;
    c->opts = *o;
    c->opts.timeout = o->timeout > 0 ? o->timeout : 1800;
    c->nccl = o->backend == AF_COMM_NCCL || o->backend == AF_COMM_AUTO;
    AF_TRY(takes_mpi(o, &l) ? af_mpi_open(c, err) : af_tcp_open(c, err));
    AF_TRY(count_local(c, err));
    *out = c;
    c = NULL;
done:
    if (c) {
        af_comm_abort(c, err->msg);
        comm_free(c, false);
    }
    return st;
}

void af_comm_abort(af_comm *c, const char *why)
{
    if (c && c->watch)
        af_watch_abort(c->watch, why);
}

void af_comm_report(const char *why)
{
    af_launcher l = {0};
    af_comm *c = NULL;
    const af_comm_opts o = {.backend = AF_COMM_TCP, .timeout = 10};
    if (af_launcher_find(&l, NULL) != AF_OK || l.size == 1 || l.mpi || !l.address[0] || !l.port ||
        af_comm_open(&c, &o, NULL) != AF_OK)
        return;
    af_comm_abort(c, why);
    af_comm_close(c);
}

void af_comm_close(af_comm *c)
{
    if (c)
        comm_free(c, af_comm_barrier(c, NULL) == AF_OK);
}
