/* compile_all.h - compiles every program of the GPU's kernels on all cores, into the cache. */
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
static void compile_all(af_cuda *cu)
{
    af_pool *pool = NULL;
    af_error err = {0};
    int n = 0;
    if (getenv("AF_CASE") || af_nvrtc_open(&cu->kernels->nvrtc, cu->cuda, &err) != AF_OK)
        return;
    cu->kernels->nvrtc_tried = true;
    for (int i = 0; i < af_kernel_source_count; i++)
        for (const char *const *v = af_kernel_sources[i].variants; *v && n < PROGRAMS_MAX; v++, n++)
            programs[n] = (struct program){af_kernel_sources[i].name, *v};
    CHECK_OK(af_pool_new(&pool, 0, &err), err);
    af_pool_run(pool, n, compile_some, cu->kernels);
    af_pool_free(pool);
}

#endif
