/* leaks.c - part of every test program that AddressSanitizer checks: the search for leaks at the
 * end is left out when the program holds exactly the bytes it held before main, since nothing can
 * be lost then. On aarch64 that search scans a table of every possible address: four seconds per
 * program, whatever it does. With any difference, even of a single byte, the search runs.
 *
 * What the C library itself keeps is none of ours: every value ever set in the environment, the
 * libraries that are loaded and the message of the last one that was not. Those calls go through
 * here, and the bytes they keep are added to what was held before main. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Of sanitizer/allocator_interface.h, which gcc does not install. */
size_t __sanitizer_get_current_allocated_bytes(void);

/* The C library keeps the stacks of a few ended threads, and a small block with each. */
enum { THREADS = 8 };

static size_t before;

static void *wait_for_all(void *arg)
{
    pthread_barrier_wait(arg);
    return NULL;
}

/* Makes the C library allocate what it allocates once and keeps: the buffer of stdout, time zones,
 * stacks. */
__attribute__((constructor)) static void note_bytes(void)
{
    static char buffer[BUFSIZ];
    static pthread_barrier_t all; /* threads may wait for it after we return */
    pthread_t thread[THREADS];
    int n = 0;
    const char *options = getenv("ASAN_OPTIONS");
    if (options && strstr(options, "detect_leaks=0"))
        return; /* no search at all, as in scripts that start the program many times */
    setvbuf(stdout, buffer, isatty(1) ? _IOLBF : _IOFBF, sizeof buffer);
    tzset();
    pthread_barrier_init(&all, NULL, THREADS);
    while (n < THREADS && pthread_create(&thread[n], NULL, wait_for_all, &all) == 0)
        n++;
    if (n < THREADS)
        return; /* the others wait for ever; `before` stays 0, so that the search runs */
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
    before = __sanitizer_get_current_allocated_bytes();
}

/* Runs `call` and counts what it keeps; another thread that allocates meanwhile makes the sums
 * differ, and the search runs. */
#define AF_KEPT(type, call)                                                                        \
    do {                                                                                           \
        const size_t was = __sanitizer_get_current_allocated_bytes();                              \
        type kept = call;                                                                          \
        before += before ? __sanitizer_get_current_allocated_bytes() - was : 0;                    \
        return kept;                                                                               \
    } while (0)
#define AF_NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define AF_SHOWN      __attribute__((visibility("default")))

AF_SHOWN int setenv(const char *name, const char *value, int replace)
{
    AF_KEPT(int, AF_NEXT(setenv)(name, value, replace));
}

AF_SHOWN void *dlopen(const char *file, int mode) { AF_KEPT(void *, AF_NEXT(dlopen)(file, mode)); }

AF_SHOWN int dlclose(void *library) { AF_KEPT(int, AF_NEXT(dlclose)(library)); }

AF_SHOWN char *dlerror(void) { AF_KEPT(char *, AF_NEXT(dlerror)()); }

/* Called by the sanitizer's library: the program is compiled with hidden symbols, and a hidden one
 * it would not find. */
AF_SHOWN int __lsan_is_turned_off(void)
{
    return before && __sanitizer_get_current_allocated_bytes() == before;
}

/* Undefined behaviour traps (cmake/options.cmake). The sanitizer reports the line and the calls
 * that led there; 2: also where cmocka wants that signal. */
const char *__asan_default_options(void);
AF_SHOWN const char *__asan_default_options(void) { return "handle_sigtrap=2:handle_sigill=2"; }
