/* kernels.h - from kernel text to loaded functions.
 *
 * Sources are embedded in the library (cmake/kernels.cmake). A module is one source file built with
 * one list of defines for one architecture; it is looked for in memory, in the shipped pack, in the
 * user's cache folder, and at last compiled by NVRTC on several threads. The cache key is a hash of
 * everything that goes into the compile. */
#ifndef AF_KERNELS_H
#define AF_KERNELS_H

#include "backend/cuda/cuda.h"
#include "backend/cuda/driver.h"

/* One embedded file, .cu or .cuh. The lists of defines a .cu file is built with, and those among
 * them that ordinary runs ask for, end with NULL; a .cuh file has none. Generated. */
typedef struct af_kernel_text {
    const char *name, *text;
    const char *const *variants, *const *common;
    bool early; /* every kernel waits for the launch before it (dev.cuh) */
} af_kernel_text;
extern const af_kernel_text af_kernel_sources[];
extern const int af_kernel_source_count;

/* One shipped cubin, deflated. Generated; the count is 0 in builds without a pack. */
typedef struct af_cubin_entry {
    const char *file, *defines, *arch; /* "rmsnorm.cu", "AF_T=bf16", "sm_90a" */
    uint64_t from, packed, size;       /* bytes of af_cubin_pack; inflated size */
} af_cubin_entry;
extern const af_cubin_entry af_cubins[];
extern const int af_cubin_count;
extern const uint8_t af_cubin_pack[];
extern const int af_cubin_cuda; /* version of the compiler that made them, 12090 for 12.9 */

typedef struct af_module {
    const char *file, *defines;
    uint8_t *cubin;
    uint64_t size;
    void *handle;
    af_error err;     /* of its compile */
    bool compiled;    /* by NVRTC, this time */
    bool early;       /* its kernels may begin before the launch before them ends */
    af_kernel **list; /* its kernels */
    int n, cap;
} af_module;

struct af_kernels {
    af_arena mem;
    char arch[16]; /* "sm_90a" */
    char *cache;   /* folder, or NULL: no disk cache */
    int cuda;      /* what the driver supports, 12040 for 12.4; 0 = unknown */
    bool no_pack;  /* tests */
    /* af_module_obtain; tests put a fake here */
    af_status (*obtain)(const struct af_kernels *k, af_module *m, af_error *err);
    af_nvrtc nvrtc; /* lib is NULL until a compile is needed */
    bool nvrtc_tried;
    af_error nvrtc_err;
    af_module **module;
    int n, cap;
};

/* `cuda`: as in the struct. */
AF_CHECKED af_status af_kernels_new(af_kernels **out, int arch, int cuda, af_error *err);
/* Unloads every module. */
void af_kernels_free(af_kernels *k, const af_driver *drv);

/* NULL with err set only when memory is gone or the file does not exist. */
af_kernel *af_kernels_find(af_kernels *k, const char *file, const char *name, const char *defines,
                           af_error *err);
/* Whether a module can be had on this machine: it is shipped, or NVRTC is there to compile it. */
bool af_kernels_can(af_kernels *k, const char *file, const char *defines);
/* Builds and loads every module that is not loaded yet, and sets the functions. Counts compiles and
 * loads. */
AF_CHECKED af_status af_kernels_build(af_kernels *k, af_cuda *cu, af_error *err);

/* Whether machine code for one architecture runs on another: of sm_80 on sm_86, of sm_120 on
 * sm_121; names that end with a letter stand for themselves only. */
bool af_arch_runs(const char *code, const char *gpu);
/* The shipped machine code of a module, or NULL: for exactly this architecture, or (`related`) for
 * an older one of the same generation, which runs on it. Code of a newer CUDA than the driver's is
 * not usable. */
const af_cubin_entry *af_pack_find(const af_kernels *k, const af_module *m, bool related);
/* Machine code of one module without loading it: what af_kernels_build does on its threads. */
AF_CHECKED af_status af_module_obtain(const af_kernels *k, af_module *m, af_error *err);
/* The key under which a module is cached: 64 hex digits. */
void af_module_key(const af_nvrtc *rtc, const char *arch, const char *file, const char *defines,
                   char key[65]);
/* An embedded file, and its text; NULL when there is no such file. */
const af_kernel_text *af_kernel_file(const char *file);
const char *af_kernel_source(const char *file);
#endif
