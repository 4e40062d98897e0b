/* leaks.c - part of every test program that AddressSanitizer checks: the search for leaks at the
 * end is left out when the program holds exactly the bytes it held before main, since nothing can
 * be lost then. On aarch64 that search walks a table of every possible address: four seconds a
 * program, whatever it does. Any difference, of a single byte, and the search decides. */
#include <pthread.h>
#include <sanitizer/lsan_interface.h>
#include <stdio.h>
#include <time.h>

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

/* Lets the C library take what it takes once and keeps: the buffer of stdout, time zones, stacks.
 */
__attribute__((constructor)) static void note_bytes(void)
{
    static char buffer[BUFSIZ];
    static pthread_barrier_t all; /* threads may wait for it after we return */
    pthread_t thread[THREADS];
    int n = 0;
    setvbuf(stdout, buffer, _IOLBF, sizeof buffer);
    tzset();
    pthread_barrier_init(&all, NULL, THREADS);
    while (n < THREADS && pthread_create(&thread[n], NULL, wait_for_all, &all) == 0)
        n++;
    if (n < THREADS)
        return; /* the others wait for ever; `before` stays 0, so that the search is made */
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&all);
    before = __sanitizer_get_current_allocated_bytes();
}

int __lsan_is_turned_off(void)
{
    return before && __sanitizer_get_current_allocated_bytes() == before;
}
