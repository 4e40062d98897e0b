/* resident.c - see resident.h. */
#define _GNU_SOURCE /* malloc_trim, sysconf */
#include "train/step/resident.h"
#include "base/proc.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

uint64_t af_resident_bytes(void)
{
    char text[256];
    af_proc_read(text, sizeof text, "/proc/self/statm");
    const char *second = strchr(text, ' '); /* all pages, resident ones, ... */
    return second ? strtoull(second, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static uint64_t status_bytes(const char *key)
{
    char text[4096];
    af_proc_read(text, sizeof text, "/proc/self/status");
    return af_proc_number(text, key) * 1024;
}

uint64_t af_resident_own(void) { return status_bytes("RssAnon:"); }

/* Not getrusage: a process that another one starts by vfork begins with the peak of that one. */
uint64_t af_resident_peak(void) { return status_bytes("VmHWM:"); }

void af_resident_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
