/* pool.c - a fork-join pool: a generation counter starts a job, a countdown ends it. */
#define _GNU_SOURCE
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SPINS 2000 /* some microseconds: longer than the gap between two kernels of a step */

struct af_pool {
    int threads; /* the caller included */
    pthread_t *worker;
    struct seat *seats;
    pthread_mutex_t lock;
    pthread_cond_t wake, finished;
    _Atomic unsigned generation;
    _Atomic int left;
    _Atomic bool quit;
    af_pool_job *job;
    void *arg;
    int64_t count;
};

struct seat {
    af_pool *pool;
    int share;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void run_share(af_pool *p, int share)
{
    const int64_t from = p->count * share / p->threads, to = p->count * (share + 1) / p->threads;
    if (to > from)
        p->job(p->arg, from, to, share);
}

static void *worker_main(void *arg)
{
    const struct seat *seat = arg;
    af_pool *p = seat->pool;
    unsigned seen = 0;
    for (;;) {
        int spins = SPINS;
        while (atomic_load_explicit(&p->generation, memory_order_acquire) == seen && spins-- > 0)
            relax();
        if (atomic_load_explicit(&p->generation, memory_order_acquire) == seen) {
            pthread_mutex_lock(&p->lock);
            while (atomic_load(&p->generation) == seen)
                pthread_cond_wait(&p->wake, &p->lock);
            pthread_mutex_unlock(&p->lock);
        }
        seen++;
        if (atomic_load(&p->quit))
            return NULL;
        run_share(p, seat->share);
        if (atomic_fetch_sub(&p->left, 1) == 1) {
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
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
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
    threads = threads > 0 ? threads : af_cpu_count();
    af_pool *p = af_calloc(1, sizeof *p);
    if (!p)
        return af_fail_nomem(err, "the thread pool", sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->finished, NULL);
    p->threads = 1;
    p->worker = af_calloc((uint64_t)threads, sizeof *p->worker);
    p->seats = af_calloc((uint64_t)threads, sizeof *p->seats);
    bool ok = p->worker && p->seats;
    for (int i = 1; ok && i < threads; i++) {
        p->seats[i] = (struct seat){p, i};
        ok = pthread_create(&p->worker[i], NULL, worker_main, &p->seats[i]) == 0;
        p->threads += ok;
    }
    if (!ok) {
        af_pool_free(p);
        return af_fail(err, AF_EIO, "the system gave %d of %d threads", p->threads, threads);
    }
    *out = p;
    return AF_OK;
}

int af_pool_threads(const af_pool *p) { return p ? p->threads : 1; }

void af_pool_run(af_pool *p, int64_t count, af_pool_job *job, void *arg)
{
    if (!p || p->threads == 1 || count <= 1) {
        if (count > 0)
            job(arg, 0, count, 0);
        return;
    }
    p->job = job;
    p->arg = arg;
    p->count = count;
    atomic_store(&p->left, p->threads - 1);
    announce(p);
    run_share(p, 0);
    for (int spins = SPINS; spins > 0 && atomic_load(&p->left) > 0; spins--)
        relax();
    if (atomic_load(&p->left) > 0) {
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->left) > 0)
            pthread_cond_wait(&p->finished, &p->lock);
        pthread_mutex_unlock(&p->lock);
    }
}
