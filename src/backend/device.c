/* device.c - from a name to a backend. */
#include "backend/cpu/cpu.h"
#include "backend/cuda/cuda.h"
#include "base/log.h"

#include <ctype.h>

/* "cuda" or "cuda:N" */
static bool parse_cuda(const char *name, int *ordinal)
{
    *ordinal = 0;
    if (strncmp(name, "cuda", 4) != 0)
        return false;
    if (name[4] == '\0')
        return true;
    if (name[4] != ':' || !isdigit((unsigned char)name[5]) || strlen(name) > 8)
        return false;
    for (const char *p = name + 5; *p; p++) {
        if (!isdigit((unsigned char)*p))
            return false;
        *ordinal = *ordinal * 10 + (*p - '0');
    }
    return true;
}

void af_device_allow_tf32(af_device *d, bool allow)
{
    if (strcmp(af_device_kind(d), "cuda") == 0)
        ((af_cuda *)d)->tf32 = allow;
}

void af_device_set_attention(af_device *d, af_attention_by by)
{
    if (strcmp(af_device_kind(d), "cuda") == 0)
        ((af_cuda *)d)->attention = by;
}

void af_device_set_gemm(af_device *d, af_gemm_by by)
{
    if (strcmp(af_device_kind(d), "cuda") == 0)
        ((af_cuda *)d)->gemm = by;
}

af_status af_device_open(af_device **out, const char *name, int threads, af_error *err)
{
    AF_NEED(err, out, name);
    int ordinal;
    if (strcmp(name, "cpu") == 0)
        return af_cpu_open(out, threads, err);
    if (parse_cuda(name, &ordinal))
        return af_cuda_open(out, ordinal, err);
    if (strcmp(name, "auto") != 0)
        return af_fail_subject(err, AF_EUSAGE, "device",
                               "unknown device '%s': use auto, cpu, cuda or cuda:N", name);
    af_error why = {0};
    if (af_cuda_open(out, 0, &why) == AF_OK)
        return AF_OK;
    /* a machine without a driver has no GPU to miss; one with it deserves the reason everywhere */
    const bool plain = strcmp(why.subject, "driver") == 0;
    af_log_write(plain ? AF_LOG_DEBUG : AF_LOG_INFO, "no GPU is used: %s", why.msg);
    const af_status st = af_cpu_open(out, threads, err);
    if (st == AF_OK)
        snprintf((*out)->no_gpu, sizeof(*out)->no_gpu, "%.159s", why.msg);
    return st;
}
