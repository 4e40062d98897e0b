/* interrupt.c - Ctrl-C while output is written: a thread waits for the signal, removes the partial
 * output, and lets the signal end the process. */
#define _POSIX_C_SOURCE 200809L
#include "term/interrupt.h"

#include "afinar/output.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Signals that end a process, without those that nohup and the like ignore. */
static void stop_signals(sigset_t *set)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    sigemptyset(set);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct sigaction a;
        if (sigaction(all[i], NULL, &a) == 0 && a.sa_handler != SIG_IGN)
            sigaddset(set, all[i]);
    }
}

static void *watch(void *unused)
{
    sigset_t set;
    int sig = 0;
    (void)unused;
    stop_signals(&set);
    if (sigwait(&set, &sig) != 0)
        return NULL;
    const bool removed = af_output_abort();
    fprintf(stderr, "\nafinar: stopped%s\n", removed ? "; the partial output is removed" : "");
    signal(sig, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(sig);
    return NULL;
}

void af_cli_remove_partial_output(void)
{
    sigset_t set;
    pthread_t thread;
    stop_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, NULL); /* inherited by threads created later */
    if (pthread_create(&thread, NULL, watch, NULL) == 0)
        pthread_detach(thread);
    else
        pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static const char *command_name; /* set before threads start */

/* On a thread of its own. The thread that was reading may hold a lock of stdio. */
static void on_lost_file(const char *file, const af_error *why)
{
    (void)file;
    af_output_abort();
    if (ftrylockfile(stdout) == 0 && ftrylockfile(stderr) == 0) {
        af_report(command_name, why);
        fflush(stdout);
    } else {
        dprintf(STDERR_FILENO, "afinar %s: %s\n", command_name, why->msg);
    }
    _exit(AF_EXIT_FAILED);
}

void af_cli_watch_files(const char *command)
{
    command_name = command;
    if (af_output_on_lost_file(on_lost_file, NULL) != AF_OK) {
        /* SIGBUS ends the process, as without it */
    }
}
