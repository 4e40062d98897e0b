/* clock.c - the monotonic clock. */
#define _GNU_SOURCE /* clock_gettime */
#include "base/base.h"

#include <time.h>

double af_seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
