/* doctor.c - `afinar doctor`: every outside thing the backends can use, found or not. */
#include "afinar/doctor.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/driver.h"
#include "base/base.h"
#include "base/file.h"

#include <stdarg.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

AF_PRINTF(5, 6)
static void add(af_finding *out, int *n, const char *name, af_finding_state state, const char *fmt,
                ...)
{
    if (*n == AF_FINDINGS_MAX)
        return;
    va_list ap;
    va_start(ap, fmt);
    out[*n].name = name;
    out[*n].state = state;
    vsnprintf(out[*n].text, sizeof out[*n].text, fmt, ap);
    va_end(ap);
    (*n)++;
}

/* The first "key : value" of /proc/cpuinfo whose key is this; "" when there is none. */
static void cpu_model(char *out, size_t size)
{
    char line[512];
    out[0] = '\0';
    FILE *f = fopen("/proc/cpuinfo", "re");
    while (f && !out[0] && fgets(line, sizeof line, f))
        if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
            snprintf(out, size, "%s", strchr(line, ':') + 2);
            out[strcspn(out, "\n")] = '\0';
        }
    if (f)
        fclose(f);
}

static void processor(af_finding *out, int *n)
{
    char model[256];
    struct utsname u;
    cpu_model(model, sizeof model);
    const char *arch = uname(&u) == 0 ? u.machine : "unknown";
    add(out, n, "processor", AF_FINDING_GOOD, "%s%s%s, kernels for %s", arch, model[0] ? ", " : "",
        model, af_cpu_isa());
    add(out, n, "threads", AF_FINDING_GOOD, "%d of this process, %ld cores on line", af_cpu_count(),
        sysconf(_SC_NPROCESSORS_ONLN));
    const bool bf16 = af_cpu_has_bf16() || af_cpu_has_amx();
    add(out, n, "bf16 matrix unit", bf16 ? AF_FINDING_GOOD : AF_FINDING_ABSENT, "%s",
        af_cpu_has_amx()    ? "AMX tiles"
        : af_cpu_has_bf16() ? "BFMMLA"
                            : "none: bf16 runs at the speed of f32 on the CPU");
    const double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    af_device *cpu = NULL;
    double free_bytes = 0;
    if (af_cpu_open(&cpu, 1, NULL) == AF_OK)
        free_bytes = (double)cpu->ops->memory_free(cpu);
    af_device_close(cpu);
    add(out, n, "memory", AF_FINDING_GOOD, "%.1f GiB, %.1f GiB available", total / 0x1p30,
        free_bytes / 0x1p30);
}

static void nvidia(af_finding *out, int *n)
{
    af_error err = {0};
    af_driver driver = {0};
    af_nvrtc nvrtc = {0};
    af_lt_api lt = {0};
    af_cudnn_api dnn = {0};
    int version = 0, count = 0;
    const bool good = af_driver_open(&driver, &err) == AF_OK;
    if (good) {
        driver.driver_version(&version);
        driver.device_count(&count);
        add(out, n, "GPU driver", AF_FINDING_GOOD, "supports CUDA %d.%d, sees %d GPU%s",
            version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s");
    } else {
        add(out, n, "GPU driver", AF_FINDING_ABSENT, "%s: everything runs on the CPU", err.msg);
    }
    if (af_nvrtc_open(&nvrtc, &err) == AF_OK)
        add(out, n, "NVRTC", AF_FINDING_GOOD,
            "%d.%d: compiles the kernels once, then they are cached", nvrtc.major, nvrtc.minor);
    else
        add(out, n, "NVRTC", AF_FINDING_ABSENT, "%s; without it no kernel can be built for a GPU",
            err.msg);
    if (af_lt_api_open(&lt, &err) == AF_OK)
        add(out, n, "cuBLASLt", AF_FINDING_GOOD, "%zu: GEMMs on the GPU", lt.version());
    else
        add(out, n, "cuBLASLt", AF_FINDING_ABSENT,
            "%s: GEMMs on a GPU run in own kernels, which are slower", err.msg);
    if (af_cudnn_api_open(&dnn, &err) == AF_OK)
        add(out, n, "cuDNN", AF_FINDING_GOOD, "%zu: attention on the GPU, where it is faster",
            dnn.version());
    else
        add(out, n, "cuDNN", AF_FINDING_ABSENT, "%s: attention runs in own kernels", err.msg);
}

static void caches(af_finding *out, int *n)
{
    char *kernels = NULL;
    if (af_cache_dir(&kernels, "kernels", NULL) == AF_OK)
        add(out, n, "kernel cache", AF_FINDING_GOOD, "%s", kernels);
    else
        add(out, n, "kernel cache", AF_FINDING_ABSENT,
            "no cache folder can be written: kernels for a GPU are compiled in every run");
    free(kernels);
    char *hub = af_hub_dir();
    const bool there = hub && af_dir_exists(hub);
    add(out, n, "model cache", there ? AF_FINDING_GOOD : AF_FINDING_ABSENT, "%s%s", hub ? hub : "",
        there ? "" : ": does not exist; name models by folder or file");
    free(hub);
}

int af_doctor(af_finding out[AF_FINDINGS_MAX])
{
    int n = 0;
    processor(out, &n);
    nvidia(out, &n);
    caches(out, &n);
    return n;
}
