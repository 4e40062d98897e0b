/* compile_all.h - compiles every program of the GPU's kernels, or of one file, on all cores, into
 * the cache. */
#ifndef AF_TEST_COMPILE_ALL_H
#define AF_TEST_COMPILE_ALL_H

#include "test.h"

#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/kernels.h"
#include "base/pool.h"

enum { PROGRAMS_MAX = 1024 };
static struct program {
    const char *file, *defines;
} programs[PROGRAMS_MAX];

static void compile_some(void *arg, int64_t from, int64_t to, int share)
{
    const af_kernels *k = arg;
    (void)share;
    for (int64_t i = from; i < to; i++) {
        af_module m = {.file = programs[i].file, .defines = programs[i].defines};
        (void)!af_module_obtain(k, &m, NULL);
        free(m.cubin);
    }
}

/* Fills the cache with every program at once; graph by graph it would take minutes. */
static inline void compile_file(af_cuda *cu, const char *file)
{
    af_pool *pool = NULL;
    af_error err = {0};
    int n = 0;
    if (af_nvrtc_open(&cu->kernels->nvrtc, cu->cuda, &err) != AF_OK)
        return;
    cu->kernels->nvrtc_tried = true;
    for (int i = 0; i < af_kernel_source_count; i++) {
        if (file && strcmp(file, af_kernel_sources[i].name) != 0)
            continue;
        for (const char *const *v = af_kernel_sources[i].variants; *v && n < PROGRAMS_MAX; v++, n++)
            programs[n] = (struct program){af_kernel_sources[i].name, *v};
    }
    CHECK_OK(af_pool_new(&pool, 0, &err), err);
    af_pool_run(pool, n, compile_some, cu->kernels);
    af_pool_free(pool);
}

/* All of them, unless only some cases run. */
static inline void compile_all(af_cuda *cu)
{
    if (!getenv("AF_CASE"))
        compile_file(cu, NULL);
}

#endif
