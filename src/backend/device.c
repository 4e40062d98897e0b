/* device.c - from a name to a backend. */
#include "backend/cpu/cpu.h"

af_status af_device_open(af_device **out, const char *name, int threads, af_error *err)
{
    if (strcmp(name, "cpu") == 0 || strcmp(name, "auto") == 0)
        return af_cpu_open(out, threads, err);
    return af_fail(err, AF_EUSAGE, "unknown device '%s': auto, cpu, cuda or cuda:N", name);
}
