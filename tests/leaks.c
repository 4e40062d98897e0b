/* leaks.c - part of every test program that AddressSanitizer checks: the search for leaks at the
 * end is left out when the program holds exactly the bytes it held before main, since nothing can
 * be lost then. On aarch64 that search scans a table of every possible address: four seconds per
 * program, whatever it does. With any difference, even of a single byte, the search runs. */
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <stdio.h>
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

/* Called by the sanitizer's library: the program is compiled with hidden symbols, and a hidden one
 * it would not find. */
__attribute__((visibility("default"))) int __lsan_is_turned_off(void)
{
    return before && __sanitizer_get_current_allocated_bytes() == before;
}
