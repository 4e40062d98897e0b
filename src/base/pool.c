/* pool.c - a fork-join pool: a generation counter starts a job, pieces of it are claimed, and the
 * caller returns when every piece is taken and no thread works on one any more.
 *
 * Two flags decide who waits for whom, each against a counter of the other side and all of them
 * sequentially consistent: a worker that has counted itself in before the job is closed is waited
 * for, a later one finds it closed; a sleeper that has counted itself is woken, a later one sees
 * the new generation before it sleeps. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum {
    THREADS_MAX = 4096,
    SPIN_NS = 60000, /* longer than the gap between two kernels of a step */
    SPINS = 32,      /* between two looks at the clock */
    PIECES = 8,      /* of a share: the first is half of it */
    LINE = 64,
};

/* One thread: its share of the job, and how far that is taken. */
typedef struct seat {
    _Atomic int64_t taken; /* pieces */
    af_pool *pool;
    int share;
    char apart[LINE - sizeof(int64_t) - sizeof(void *) - sizeof(int)];
} seat;

/* What all wait for, what all write to, and what hardly changes are in cache lines of their own. */
struct af_pool {
    _Atomic unsigned generation;
    int threads, caller; /* the caller included; its number */
    af_pool_job *job;
    void *arg;
    int64_t count, least, spin_ns;
    seat *seats;
    char apart[LINE];
    _Atomic int inside; /* workers */
    _Atomic bool open;
    char apart2[LINE];
    _Atomic int asleep;
    _Atomic bool waits, quit;
    pthread_t *worker;
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb"); /* yield does nothing on most machines */
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* The pieces of share i. A look comes before each claim: most shares are gone when a thread comes
 * by, and looking is cheaper when many do it at once. */
static void take_share(af_pool *p, int i, int share)
{
    const int64_t first = p->count * i / p->threads, end = p->count * (i + 1) / p->threads,
                  size = AF_MAX((end - first) / PIECES, p->least), half = (end - first + 1) / 2,
                  lead = AF_MAX((half + size - 1) / size, INT64_C(1)) * size;
    const int64_t pieces =
        first == end ? 0 : 1 + AF_MAX(end - first - lead + size - 1, INT64_C(0)) / size;
    _Atomic int64_t *taken = &p->seats[i].taken;
    while (atomic_load_explicit(taken, memory_order_relaxed) < pieces) {
        const int64_t k = atomic_fetch_add(taken, 1);
        if (k >= pieces)
            return;
        const int64_t from = k == 0 ? first : first + lead + (k - 1) * size;
        p->job(p->arg, from, AF_MIN(k == 0 ? first + lead : from + size, end), share);
    }
}

static void take_pieces(af_pool *p, int share)
{
    for (int n = 0; n < p->threads; n++)
        take_share(p, (share + n) % p->threads, share);
}

/* Until the generation is another than `seen`. */
static void await_generation(af_pool *p, unsigned seen)
{
    const int64_t until = now_ns() + p->spin_ns;
    do
        for (int i = 0; i < SPINS; i++) {
            if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen)
                return;
            relax();
        }
    while (now_ns() < until);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->asleep, 1);
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->asleep, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *worker_main(void *arg)
{
    const seat *s = arg;
    af_pool *p = s->pool;
    unsigned seen = 0;
    for (;;) {
        await_generation(p, seen);
        seen = atomic_load(&p->generation);
        if (atomic_load(&p->quit))
            return NULL;
        atomic_fetch_add(&p->inside, 1);
        if (atomic_load(&p->open))
            take_pieces(p, s->share == p->caller ? 0 : s->share);
        if (atomic_fetch_sub(&p->inside, 1) == 1 && atomic_load(&p->waits)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->finished);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

int af_cpu_count(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? AF_MAX(CPU_COUNT(&set), 1) : 1;
}

static void announce(af_pool *p)
{
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->asleep) > 0) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
}

void af_pool_free(af_pool *p)
{
    if (!p)
        return;
    atomic_store(&p->quit, true);
    announce(p);
    for (int i = 1; i < p->threads; i++)
        pthread_join(p->worker[i], NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->wake);
    pthread_cond_destroy(&p->finished);
    free(p->worker);
    free(p->seats);
    free(p);
}

af_status af_pool_new(af_pool **out, int threads, af_error *err)
{
    if (threads < 0 || threads > THREADS_MAX)
        return af_fail(err, AF_EUSAGE, "threads is %d; it must be 0 to %d", threads, THREADS_MAX);
    threads = threads > 0 ? threads : af_cpu_count();
    af_pool *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "the thread pool", sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->threads = 1;
    /* more threads than cores: one that spins would take the time of one that has work */
    p->spin_ns = threads <= af_cpu_count() ? SPIN_NS : 0;
    p->worker = af_calloc((uint64_t)threads, sizeof *p->worker);
    p->seats = af_calloc((uint64_t)threads, sizeof *p->seats);
    bool ok = p->worker && p->seats;
    for (int i = 1; ok && i < threads; i++) {
        p->seats[i].pool = p;
        p->seats[i].share = i;
        ok = pthread_create(&p->worker[i], NULL, worker_main, &p->seats[i]) == 0;
        p->threads += ok;
    }
    if (!ok) {
        const int given = p->threads;
        af_pool_free(p);
        return af_fail(err, AF_EIO,
                       "the system gave %d of %d threads: not enough memory, or too many threads",
                       given, threads);
    }
    *out = p;
    return AF_OK;
}

void af_pool_caller_last(af_pool *p) { p->caller = p->threads - 1; }

int af_pool_threads(const af_pool *p) { return p ? p->threads : 1; }

/* Until no worker is inside. */
static void await_workers(af_pool *p)
{
    const int64_t until = now_ns() + p->spin_ns;
    do
        for (int i = 0; i < SPINS; i++) {
            if (atomic_load(&p->inside) == 0)
                return;
            relax();
        }
    while (now_ns() < until);
    atomic_store(&p->waits, true);
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->inside) > 0)
        pthread_cond_wait(&p->finished, &p->lock);
    pthread_mutex_unlock(&p->lock);
    atomic_store(&p->waits, false);
}

void af_pool_run_least(af_pool *p, int64_t count, int64_t least, af_pool_job *job, void *arg)
{
    if (!p || p->threads == 1 || count <= 1) {
        if (count > 0)
            job(arg, 0, count, 0);
        return;
    }
    p->job = job;
    p->arg = arg;
    p->count = count;
    p->least = AF_MAX(least, INT64_C(1));
    for (int i = 0; i < p->threads; i++)
        atomic_store_explicit(&p->seats[i].taken, 0, memory_order_relaxed);
    atomic_store(&p->open, true);
    announce(p);
    take_pieces(p, p->caller);
    atomic_store(&p->open, false);
    await_workers(p);
}

void af_pool_run(af_pool *p, int64_t count, af_pool_job *job, void *arg)
{
    af_pool_run_least(p, count, 1, job, arg);
}
