/* kernels.c - the modules of one device: requested by launchers, built and loaded together. */
#include "backend/cuda/kernels.h"
#include "base/file.h"
#include "base/pool.h"

/* "sm_80", "sm_90a", "sm_120" for a compute capability such as 90. */
static void write_arch(char out[16], int arch)
{
    /* 9.0 has instructions (wgmma) that only the architecture-specific target offers */
    snprintf(out, 16, "sm_%d%s", arch, arch == 90 ? "a" : "");
}

af_status af_kernels_new(af_kernels **out, int arch, int cuda, af_error *err)
{
    af_kernels *k = af_calloc(1, sizeof *k);
    if (!k)
        return af_fail_nomem(err, "the kernel table", sizeof *k);
    write_arch(k->arch, arch);
    k->cuda = cuda;
    k->obtain = af_module_obtain;
    if (af_cache_dir(&k->cache, "kernels", NULL) != AF_OK)
        k->cache = NULL; /* no home folder: kernels are compiled again each time */
    *out = k;
    return AF_OK;
}

void af_kernels_free(af_kernels *k, const af_driver *drv)
{
    if (!k)
        return;
    for (int i = 0; i < k->n; i++) {
        if (k->module[i]->handle)
            drv->module_unload(k->module[i]->handle);
        free(k->module[i]->cubin);
        free(k->module[i]->list);
    }
    free(k->module);
    free(k->cache);
    af_arena_clear(&k->mem);
    free(k);
}

static bool grow(void ***list, int n, int *cap)
{
    if (n < *cap)
        return true;
    const int more = *cap ? *cap * 2 : 16;
    void **p = af_realloc(*list, (uint64_t)more, sizeof *p);
    if (!p)
        return false;
    *list = p;
    *cap = more;
    return true;
}

static af_module *find_module(af_kernels *k, const char *file, const char *defines)
{
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->module[i]->file, file) == 0 && strcmp(k->module[i]->defines, defines) == 0)
            return k->module[i];
    af_module *m = af_arena_take(&k->mem, sizeof *m);
    if (!m || !grow((void ***)&k->module, k->n, &k->cap))
        return NULL;
    *m = (af_module){.file = af_arena_strdup(&k->mem, file),
                     .defines = af_arena_strdup(&k->mem, defines)};
    if (!m->file || !m->defines)
        return NULL;
    m->early = af_kernel_file(file)->early;
    k->module[k->n++] = m;
    return m;
}

af_kernel *af_kernels_find(af_kernels *k, const char *file, const char *name, const char *defines,
                           af_error *err)
{
    if (!af_kernel_source(file)) {
        (void)!af_fail(err, AF_EDEVICE, "there is no kernel source '%s' in this build", file);
        return NULL;
    }
    af_module *m = find_module(k, file, defines);
    for (int i = 0; m && i < m->n; i++)
        if (strcmp(m->list[i]->name, name) == 0)
            return m->list[i];
    af_kernel *f = m ? af_arena_take(&k->mem, sizeof *f) : NULL;
    if (f)
        *f = (af_kernel){.name = af_arena_strdup(&k->mem, name), .module = m};
    if (!f || !f->name || !grow((void ***)&m->list, m->n, &m->cap)) {
        (void)!af_fail_nomem(err, "the kernel table", sizeof *f);
        return NULL;
    }
    m->list[m->n++] = f;
    return f;
}

/* obtain reports what it means when it cannot be opened */
static void try_nvrtc(af_kernels *k)
{
    if (!k->nvrtc_tried && k->obtain == af_module_obtain)
        (void)!af_nvrtc_open(&k->nvrtc, k->cuda, &k->nvrtc_err);
    k->nvrtc_tried = true;
}

bool af_kernels_can(af_kernels *k, const char *file, const char *defines)
{
    const af_module m = {.file = file, .defines = defines};
    if (k->obtain != af_module_obtain || af_pack_find(k, &m, true))
        return true;
    try_nvrtc(k);
    return k->nvrtc.lib != NULL;
}

typedef struct build_job {
    af_kernels *k;
    af_module **todo;
} build_job;

static void build_some(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const build_job *j = arg;
    for (int64_t i = from; i < to; i++)
        (void)!j->k->obtain(j->k, j->todo[i], &j->todo[i]->err);
}

/* Every module without machine code, several at once. */
static af_status obtain_all(af_kernels *k, af_error *err)
{
    af_status st = AF_OK;
    af_pool *pool = NULL;
    int n = 0;
    bool compiler = false;
    af_module **todo = af_calloc((uint64_t)k->n + 1, sizeof *todo);
    if (!todo)
        return af_fail_nomem(err, "the kernel table", (uint64_t)k->n * sizeof *todo);
    for (int i = 0; i < k->n; i++)
        if (!k->module[i]->cubin) {
            todo[n++] = k->module[i];
            compiler |= !af_pack_find(k, k->module[i], false);
        }
    if (n == 0)
        goto done;
    if (compiler)
        try_nvrtc(k);
    AF_TRY(af_pool_new(&pool, AF_MIN(AF_MIN(n, af_cpu_count()), 16), err));
    af_pool_run(pool, n, build_some, &(build_job){k, todo});
    for (int i = 0; i < n; i++)
        if (!todo[i]->cubin)
            AF_TRY(af_fail(err, AF_EDEVICE, "%s", todo[i]->err.msg));
done:
    af_pool_free(pool);
    free(todo);
    return st;
}

/* The architecture a cubin is built for: NVIDIA's ELF flags. */
static int arch_of(const af_module *m)
{
    if (m->size < 64 || memcmp(m->cubin, "\177ELF", 4) != 0)
        return 0;
    uint32_t flags;
    memcpy(&flags, m->cubin + 48, sizeof flags);
    const int old = (int)(flags & 0xff), now = (int)(flags >> 8 & 0xff);
    return m->cubin[7] == 0x41 || now >= 50 ? now : old;
}

static af_status load(af_kernels *k, af_cuda *cu, af_module *m, af_error *err)
{
    const af_driver *drv = cu->drv;
    const int r = drv->module_load(&m->handle, m->cubin);
    if (r == AF_CU_NO_BINARY)
        return af_fail(err, AF_EDEVICE,
                       "the machine code of %s is for sm_%d, the GPU (%s) needs %s", m->file,
                       arch_of(m), cu->name, k->arch);
    return af_cu_check(drv, r, "cuModuleLoadData", m->file, err);
}

af_status af_kernels_build(af_kernels *k, af_cuda *cu, af_error *err)
{
    const af_driver *drv = cu->drv;
    af_status st = obtain_all(k, err);
    if (st != AF_OK)
        return st;
    for (int i = 0; i < k->n; i++) {
        af_module *m = k->module[i];
        if (!m->handle) {
            AF_TRY(load(k, cu, m, err));
            cu->device.counters.module_loads++;
            cu->device.counters.compiles += m->compiled;
        }
        for (int f = 0; f < m->n; f++)
            if (!m->list[f]->func)
                AF_TRY(af_cu_check(
                    drv, drv->module_function(&m->list[f]->func, m->handle, m->list[f]->name),
                    "cuModuleGetFunction", m->list[f]->name, err));
    }
done:
    return st;
}
