/* doctor.c - `afinar doctor`: every outside thing the backends can use, found or not. */
#include "afinar/doctor.h"
#include "backend/cpu/cpu.h"
#include "backend/cuda/driver.h"
#include "backend/cuda/gpu_rates.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/library.h"
#include "base/base.h"
#include "base/file.h"
#include "base/proc.h"

#include <glob.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The first word of a small file; "" when there is none. */
static void read_word(char *out, size_t size, const char *path)
{
    out[0] = '\0';
    FILE *f = fopen(path, "re");
    if (f && fgets(out, (int)size, f))
        out[strcspn(out, " \n")] = '\0';
    if (f)
        fclose(f);
}

/* Where a library was found, from one of its functions. */
static const char *library_file(int (*function)(void **))
{
    void *p;
    memcpy(&p, &function, sizeof p);
    return af_library_file(p);
}

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

/* The first model name of /proc/cpuinfo; "" when there is none. */
static void cpu_model(char *out, size_t size)
{
    char text[8192];
    af_proc_read(text, sizeof text, "/proc/cpuinfo");
    const char *name = af_proc_find(text, "model name");
    snprintf(out, size, "%.*s", name ? (int)strcspn(name, "\n") : 0, name ? name : "");
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
    const char *unit = af_cpu_bf16_unit();
    add(out, n, "bf16 matrix unit", unit ? AF_FINDING_GOOD : AF_FINDING_ABSENT, "%s",
        unit ? unit : "none: bf16 runs at the speed of f32 on the CPU");
    const double total = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    af_device *cpu = NULL;
    double free_bytes = 0;
    if (af_cpu_open(&cpu, 1, NULL) == AF_OK)
        free_bytes = (double)cpu->ops->memory_free(cpu);
    af_device_close(cpu);
    add(out, n, "memory", AF_FINDING_GOOD, "%.1f GiB, %.1f GiB available", total / 0x1p30,
        free_bytes / 0x1p30);
}

/* An NVIDIA display or compute device without a driver is worth a sentence. */
static bool nvidia_on_bus(void)
{
    glob_t found = {0};
    bool seen = false;
    if (glob("/sys/bus/pci/devices/*/vendor", 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !seen; i++) {
            char vendor[16] = "", kind[16] = "", path[300];
            read_word(vendor, sizeof vendor, found.gl_pathv[i]);
            snprintf(path, sizeof path, "%.*sclass", (int)strlen(found.gl_pathv[i]) - 6,
                     found.gl_pathv[i]);
            read_word(kind, sizeof kind, path);
            seen = strcmp(vendor, "0x10de") == 0 && strncmp(kind, "0x03", 4) == 0;
        }
    globfree(&found);
    return seen;
}

/* Machine code that this build brings along. */
static void machine_code(af_finding *out, int *n, int cuda)
{
    af_kernels k = {.cuda = cuda};
    int variants = 0, shipped = 0;
    for (int i = 0; i < af_kernel_source_count; i++)
        for (const char *const *v = af_kernel_sources[i].variants; *v; v++) {
            const af_module m = {.file = af_kernel_sources[i].name, .defines = *v};
            snprintf(k.arch, sizeof k.arch, "sm_80");
            shipped += af_pack_find(&k, &m, false) != NULL;
            variants++;
        }
    if (af_cubin_count == 0)
        add(out, n, "machine code", AF_FINDING_ABSENT,
            "none in this build: kernels for a GPU are "
            "compiled by NVRTC");
    else if (shipped == 0)
        add(out, n, "machine code", AF_FINDING_ABSENT,
            "of CUDA %d.%d, which this driver does not load: update it, or kernels are compiled "
            "by NVRTC",
            af_cubin_cuda / 1000, af_cubin_cuda % 1000 / 10);
    else
        add(out, n, "machine code", AF_FINDING_GOOD, "%s kernels for sm_80 to sm_120, CUDA %d.%d",
            shipped == variants ? "all" : "the usual", af_cubin_cuda / 1000,
            af_cubin_cuda % 1000 / 10);
}

static void optional_libraries(af_finding *out, int *n, int cuda, bool gpu)
{
    af_nvrtc nvrtc = {0};
    af_lt_api lt = {0};
    af_cudnn_api dnn = {0};
    char hint[AF_LIBRARY_HINT];
    const bool has_nvrtc = af_nvrtc_open(&nvrtc, cuda, NULL) == AF_OK;
    const bool has_lt = af_lt_api_open(&lt, cuda, NULL) == AF_OK;
    const bool has_dnn = af_cudnn_api_open(&dnn, cuda, NULL) == AF_OK;
    const bool all_shipped = out[*n - 1].state == AF_FINDING_GOOD;
    if (has_lt)
        add(out, n, "cuBLASLt", AF_FINDING_GOOD, "%zu: GEMMs on a GPU (%s)", lt.version(),
            library_file(lt.create));
    else
        add(out, n, "cuBLASLt", AF_FINDING_ABSENT,
            "not found: GEMMs on a GPU run in own kernels; a step takes about 2 to 3 times as "
            "long");
    if (has_dnn)
        add(out, n, "cuDNN", AF_FINDING_GOOD, "%zu: attention on a GPU, where it is faster (%s)",
            dnn.version(), library_file(dnn.create));
    else
        add(out, n, "cuDNN", AF_FINDING_ABSENT, "not found: attention runs in own kernels");
    if (has_nvrtc)
        add(out, n, "NVRTC", AF_FINDING_GOOD,
            "%d.%d: compiles kernels once, then they are cached (%s)", nvrtc.major, nvrtc.minor,
            library_file(nvrtc.destroy));
    else
        add(out, n, "NVRTC", AF_FINDING_ABSENT, "not found%s",
            all_shipped ? ": not needed for kernels that are shipped"
                        : "; without it no kernel can be built for a GPU");
    if (gpu && !(has_lt && has_dnn && has_nvrtc))
        add(out, n, "what is missing", AF_FINDING_ABSENT, "%s",
            af_library_hint(hint, cuda, !has_lt, !has_nvrtc, !has_dnn));
}

/* Whether the kernels have run on such a GPU, and not only been compiled for it. */
static void gpus(af_finding *out, int *n, const af_driver *driver, int count)
{
    enum { OLDEST = 80 };
    static const char *const names[] = {"GPU 0", "GPU 1", "GPU 2", "GPU 3"};
    for (int i = 0; i < AF_MIN(count, (int)AF_LEN(names)); i++) {
        char model[128] = "";
        int device = 0, major = 0, minor = 0;
        if (driver->device_get(&device, i) ||
            driver->device_name(model, (int)sizeof model, device) ||
            driver->device_attribute(&major, AF_CU_ATTR_MAJOR, device) ||
            driver->device_attribute(&minor, AF_CU_ATTR_MINOR, device))
            continue;
        const int arch = major * 10 + minor;
        const bool tested = af_gpu_measured(arch);
        add(out, n, names[i], tested ? AF_FINDING_GOOD : AF_FINDING_ABSENT, "%s, sm_%d: %s", model,
            arch,
            tested ? "every kernel is tested on such a GPU"
            : arch < OLDEST
                ? "too old: sm_80 is the oldest that is used"
                : "untested: kernels are compiled for it and fit its memory, but have run on sm_90 "
                  "only, and tiles are chosen by a cost model instead of measurements; compare a "
                  "few "
                  "steps with --device cpu");
    }
}

static void nvidia(af_finding *out, int *n)
{
    af_error err = {0};
    af_driver driver = {0};
    int version = 0, count = 0;
    const bool good = af_driver_open(&driver, &err) == AF_OK;
    if (good) {
        driver.driver_version(&version);
        driver.device_count(&count);
        add(out, n, "GPU driver", AF_FINDING_GOOD, "supports CUDA %d.%d, sees %d GPU%s",
            version / 1000, version % 1000 / 10, count, count == 1 ? "" : "s");
        gpus(out, n, &driver, count);
    } else {
        add(out, n, "GPU driver", AF_FINDING_ABSENT, "%s: everything runs on the CPU%s", err.msg,
            nvidia_on_bus()
                ? "; an NVIDIA GPU is in this machine: `sudo apt install nvidia-driver` "
                  "(Debian) or `sudo ubuntu-drivers install` (Ubuntu) brings its driver"
                : "");
    }
    machine_code(out, n, version);
    optional_libraries(out, n, version, good);
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
        there ? "" : ": not there yet: the first download makes it");
    free(hub);
}

int af_doctor(af_finding out[AF_FINDINGS_MAX])
{
    int n = 0;
    if (!out)
        return 0;
    processor(out, &n);
    nvidia(out, &n);
    caches(out, &n);
    return n;
}
