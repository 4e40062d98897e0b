/* stack.c - `ulimit -s` is the size of the first thread's stack, and glibc's size for all others.
 * Kernels, templates and nested files were written for the usual 8 MiB. */
#define _GNU_SOURCE /* pthread_setattr_default_np */
#include "term/stack.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>

#define USUAL ((size_t)8 << 20)

typedef struct call {
    int (*run)(int argc, char **argv);
    char **argv;
    int argc, result;
    sigset_t signals;
} call;

static bool is_small(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur != RLIM_INFINITY && r.rlim_cur < USUAL;
}

static bool set_usual(void)
{
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0)
        return false;
    const bool ok =
        pthread_attr_setstacksize(&attr, USUAL) == 0 && pthread_setattr_default_np(&attr) == 0;
    pthread_attr_destroy(&attr);
    return ok;
}

static void *run_call(void *arg)
{
    call *c = arg;
    pthread_sigmask(SIG_SETMASK, &c->signals, NULL);
    c->result = c->run(c->argc, c->argv);
    return NULL;
}

int af_cli_with_stack(int (*run)(int argc, char **argv), int argc, char **argv)
{
    call c = {.run = run, .argv = argv, .argc = argc};
    pthread_t thread;
    sigset_t all;
    if (!is_small() || !set_usual())
        return run(argc, argv);
    sigfillset(&all); /* signals interrupt the thread that works, not the one that waits for it */
    pthread_sigmask(SIG_SETMASK, &all, &c.signals);
    if (pthread_create(&thread, NULL, run_call, &c) != 0) {
        pthread_sigmask(SIG_SETMASK, &c.signals, NULL);
        return run(argc, argv);
    }
    pthread_join(thread, NULL);
    return c.result;
}
