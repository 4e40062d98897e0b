/* map_watch.c - see map_watch.h.
 *
 * Reading a page of a map that the file does not have any more raises SIGBUS. The handler looks the
 * address up in a table without locks, wakes a thread that was waiting for it, and puts its own
 * thread to sleep for ever: what that thread was doing cannot go on, and in a signal handler little
 * else is allowed. The thread that wakes up reports the file and ends the process. */
#define _GNU_SOURCE
#include "base/map_watch.h"

#include "afinar/output.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

enum { MAPS_MAX = 4096, STACK = 256 << 10 };

/* A slot is in use when `end` is not 0; it is written last and cleared first. */
typedef struct map_slot {
    atomic_uintptr_t begin, end;
    _Atomic(char *) path;
} map_slot;

static map_slot slots[MAPS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of adding and dropping */
static int used;                                         /* slots from here on were never used */

void af_map_watch_add(const void *data, uint64_t size, const char *path)
{
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < used && atomic_load(&slots[i].end))
        i++;
    if (i < MAPS_MAX) {
        used += i == used;
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        atomic_store(&slots[i].path, af_strdup(path));
        atomic_store(&slots[i].begin, (uintptr_t)data);
        atomic_store(&slots[i].end, AF_ALIGN_UP((uintptr_t)data + size, page));
    }
    pthread_mutex_unlock(&lock);
}

void af_map_watch_drop(const void *data)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < used; i++)
        if (atomic_load(&slots[i].end) && atomic_load(&slots[i].begin) == (uintptr_t)data) {
            atomic_store(&slots[i].end, 0);
            free(atomic_exchange(&slots[i].path, NULL));
            break;
        }
    pthread_mutex_unlock(&lock);
}

const char *af_map_watch_find(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    for (int i = 0; i < MAPS_MAX; i++) {
        const uintptr_t end = atomic_load(&slots[i].end);
        if (a < end && a >= atomic_load(&slots[i].begin)) {
            const char *path = atomic_load(&slots[i].path);
            return path ? path : "a file";
        }
    }
    return NULL;
}

af_status af_map_watch_fail(const char *path, af_error *err)
{
    return af_fail(err, AF_EIO,
                   "'%s' became shorter, or could not be read any more, while it was in use", path);
}

/* ---- the handler ---- */

static void (*on_lost)(const char *file, const af_error *err);
static sem_t lost;
static _Atomic(const char *) lost_file;

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    (void)context;
    const char *file = af_map_watch_find(info->si_addr), *none = NULL;
    if (!file) { /* a fault of ours: as if there were no handler */
        signal(sig, SIG_DFL);
        return;
    }
    if (atomic_compare_exchange_strong(&lost_file, &none, file))
        sem_post(&lost);
    for (;;)
        pause();
}

static void *wait_for_loss(void *unused)
{
    af_error err = {0};
    (void)unused;
    while (sem_wait(&lost) != 0 && errno == EINTR)
        ;
    const char *file = atomic_load(&lost_file);
    af_map_watch_fail(file, &err);
    on_lost(file, &err);
    return NULL;
}

static bool start_thread(void)
{
    pthread_t thread;
    pthread_attr_t attr;
    sigset_t all, old;
    if (pthread_attr_init(&attr) != 0)
        return false;
    sigfillset(&all); /* signals go to the threads of the program */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const bool ok = pthread_attr_setstacksize(&attr, STACK) == 0 &&
                    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0 &&
                    pthread_create(&thread, &attr, wait_for_loss, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return ok;
}

af_status af_output_on_lost_file(void (*handler)(const char *file, const af_error *why),
                                 af_error *err)
{
    AF_NEED(err, handler);
    struct sigaction a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_NODEFER};
    if (on_lost)
        return af_fail(err, AF_EUSAGE, "af_output_on_lost_file: there is a handler already");
    on_lost = handler;
    sigemptyset(&a.sa_mask);
    if (sem_init(&lost, 0, 0) != 0 || !start_thread() || sigaction(SIGBUS, &a, NULL) != 0) {
        on_lost = NULL;
        return af_fail(err, AF_EIO, "cannot watch mapped files: %s", strerror(errno));
    }
    return AF_OK;
}
