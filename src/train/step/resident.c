/* resident.c - see resident.h. */
#define _GNU_SOURCE /* malloc_trim, sysconf */
#include "train/step/resident.h"
#include "base/proc.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

uint64_t af_resident_bytes(void)
{
    char text[256];
    af_proc_read(text, sizeof text, "/proc/self/statm");
    const char *second = strchr(text, ' '); /* all pages, resident ones, ... */
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

uint64_t af_resident_own(void)
{
    char text[4096];
    af_proc_read(text, sizeof text, "/proc/self/status");
    return af_proc_number(text, "RssAnon:") * 1024;
}

uint64_t af_resident_peak(void)
{
    struct rusage u;
    return getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

void af_resident_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
