/* fake_driver.h - a recording driver: device memory is host memory, kernels are looked up in the
 * embedded sources and not run. Counters are in `seen`. */
#ifndef AF_FAKE_DRIVER_H
#define AF_FAKE_DRIVER_H

#include "test.h"

#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/kernels.h"
#include "base/hash.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct fake_module {
    char file[64], defines[192];
} fake_module;
typedef struct fake_func {
    char name[64];
    const fake_module *module;
    int n;
    size_t size[AF_LAUNCH_ARGS];
    bool pointer[AF_LAUNCH_ARGS];
    bool large; /* may ask for much shared memory */
} fake_func;

static struct {
    int launches, early_launches, graph_launches, captures, allocs, loads, syncs;
    bool capturing;
    uint64_t digest; /* of every launch: kernel and its variant, geometry, arguments */
} seen;
static void *kept[4096];
static int n_kept;

static void *keep(size_t n)
{
    assert_true(n_kept < 4096);
    return kept[n_kept++] = calloc(1, n);
}

static int f_init(unsigned f) { return (void)f, 0; }
static int f_version(int *v) { return *v = 13000, 0; }
static int f_text(int e, const char **s) { return (void)e, *s = "fake error", 0; }
static int f_count(int *n) { return *n = 1, 0; }
static int f_get(int *d, int o) { return *d = o, 0; }
static int f_name(char *s, int n, int d) { return (void)d, snprintf(s, (size_t)n, "Fake GPU"), 0; }
static int f_attr(int *v, int a, int d)
{
    (void)d;
    *v = a == AF_CU_ATTR_MAJOR ? 9 : a == AF_CU_ATTR_SMS ? 132 : a == AF_CU_ATTR_SMEM ? 232448 : 0;
    return 0;
}
static int f_memory(size_t *n, int d) { return (void)d, *n = (size_t)1 << 34, 0; }
static int f_retain(void **c, int d) { return (void)d, *c = keep(8), 0; }
static int f_release(int d) { return (void)d, 0; }
static int f_ctx(void *c) { return (void)c, 0; }
static int f_sync(void) { return 0; }
/* The first word of a stream is a test's own, the second says whether its newest work is a launch:
 * only after one may another begin early. */
static int f_stream_new(void **s, unsigned f)
{
    return (void)f, *s = keep(2 * sizeof(uint64_t)), 0;
}
static void newest_work(void *stream, bool launch)
{
    if (stream)
        ((uint64_t *)stream)[1] = launch;
}
static int f_one(void *p) { return (void)p, 0; }
static int f_stream_sync(void *s) { return (void)s, seen.syncs++, 0; }

/* An event knows where it was recorded: a stream waits only for one of the same capture, or for one
 * outside of them. */
static uint64_t recorded_now(void) { return seen.capturing ? 2 + (uint64_t)seen.captures : 1; }
static int f_wait(void *s, void *e, unsigned f)
{
    (void)f;
    newest_work(s, false);
    assert_true(*(uint64_t *)e == recorded_now());
    return 0;
}
static int f_begin(void *s, int m)
{
    return newest_work(s, false), (void)m, seen.capturing = true, 0;
}
static int f_end(void *s, void **g)
{
    (void)s;
    seen.capturing = false;
    seen.captures++;
    return *g = keep(8), 0;
}
static int f_instantiate(void **e, void *g, unsigned long long f)
{
    return (void)g, (void)f, *e = keep(8), 0;
}
static int f_graph_launch(void *e, void *s)
{
    return (void)e, newest_work(s, false), seen.graph_launches++, 0;
}
static int f_event_new(void **e, unsigned f) { return (void)f, *e = keep(8), 0; }
static int f_record(void *e, void *s) { return (void)s, *(uint64_t *)e = recorded_now(), 0; }
static int f_elapsed(float *ms, void *a, void *b) { return (void)a, (void)b, *ms = 1, 0; }

static int f_load(void **m, const void *image)
{
    fake_module *f = keep(sizeof *f);
    seen.loads++;
    memcpy(f, image, sizeof *f);
    return *m = f, 0;
}

static size_t size_of_type(const char *s, size_t n)
{
    char t[256];
    snprintf(t, sizeof t, "%.*s", (int)n, s);
    if (strchr(t, '*') || strstr(t, "long long") || strstr(t, "i64") || strstr(t, "u64") ||
        strstr(t, "double"))
        return 8;
    if (strstr(t, "int") || strstr(t, "float") || strstr(t, "unsigned") || strstr(t, "u32"))
        return 4;
    return 0; /* a struct: not known here */
}

/* The parameter list after "name(" in the kernel's text. */
static int f_function(void **func, void *module, const char *name)
{
    const char *text = af_kernel_source(((fake_module *)module)->file), *p = text;
    const size_t len = strlen(name);
    while ((p = strstr(p, name)) != NULL) {
        const bool whole = !isalnum((unsigned char)p[-1]) && p[-1] != '_' && p[len] == '(';
        const char *line = p;
        while (line > text && !(line[0] == '_' && strncmp(line, "__global__", 10) == 0) &&
               p - line < 120)
            line--;
        if (whole && strncmp(line, "__global__", 10) == 0)
            break;
        p++;
    }
    if (!p)
        return 500;
    fake_func *f = keep(sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->module = module;
    p += len + 1;
    for (int depth = 0; depth >= 0;) {
        const size_t n = strcspn(p, ",)");
        if (n > 0 && strspn(p, " \n\t") < n) {
            f->pointer[f->n] = memchr(p, '*', n) != NULL;
            f->size[f->n++] = size_of_type(p, n);
        }
        depth = p[n] == ')' ? -1 : 0;
        p += n + 1;
    }
    return *func = f, 0;
}
static int f_set(void *f, int a, int v)
{
    ((fake_func *)f)->large |= a == AF_CU_FUNC_SMEM && v > 48 * 1024;
    return 0;
}
static int f_func_get(int *v, int a, void *f) { return (void)a, (void)f, *v = 0, 0; }
static int f_param(void *func, size_t i, size_t *offset, size_t *size)
{
    const fake_func *f = func;
    if (i >= (size_t)f->n)
        return AF_CU_INVALID_VALUE;
    *offset = 0;
    *size = f->size[i];
    return 0;
}
/* The copy engine's own rules. */
static int f_map(void *map, int type, unsigned rank, void *data, const uint64_t *dim,
                 const uint64_t *pitch, const unsigned *box, const unsigned *every, int interleave,
                 int swizzle, int l2, int fill)
{
    (void)type, (void)swizzle, (void)l2, (void)fill;
    assert_true((uintptr_t)map % 64 == 0 && (uintptr_t)data % 16 == 0 && rank == 2);
    assert_true(dim[0] > 0 && dim[1] > 0 && pitch[0] % 16 == 0 && pitch[0] >= dim[0] * 2);
    assert_true(box[0] * 2 <= 128 && box[1] <= 256 && every[0] == 1 && interleave == 0);
    return 0;
}
/* Memory that was given out: a pointer argument is known by the size of its block and its offset
 * there, so that two pointers of a launch that changed places change the digest. */
static struct {
    char *at;
    size_t n;
} blocks[4096];
static int n_blocks;

static int note_block(void *p, size_t n)
{
    assert_true(n_blocks < (int)AF_LEN(blocks));
    blocks[n_blocks].at = p;
    blocks[n_blocks++].n = n;
    return p ? 0 : AF_CU_NO_MEMORY;
}

static uint64_t digest_pointer(uint64_t h, void *const *arg)
{
    uint64_t where[2] = {0, 0}; /* none, or not memory of the device */
    for (int i = n_blocks - 1; *arg && i >= 0; i--) {
        const char *p = *arg;
        if (!blocks[i].at || p < blocks[i].at || p > blocks[i].at + blocks[i].n)
            continue;
        where[0] = blocks[i].n;
        where[1] = (uint64_t)(p - blocks[i].at) + 1;
        break;
    }
    return af_fnv1a(h, where, sizeof where);
}

static void digest_launch(const fake_func *f, const unsigned geometry[5], void **args)
{
    uint64_t h = af_fnv1a(0, f->name, strlen(f->name));
    h = af_fnv1a(h, f->module->defines, strlen(f->module->defines));
    h = af_fnv1a(h, geometry, 5 * sizeof *geometry);
    for (int i = 0; i < f->n; i++)
        h = f->pointer[i] ? digest_pointer(h, args[i]) : af_fnv1a(h, args[i], f->size[i]);
    seen.digest += h; /* order-independent: the order in which operands of a call are recorded
                         depends on the compiler */
}

static int f_launch(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                    unsigned bz, unsigned smem, void *s, void **args, void **extra)
{
    (void)extra;
    newest_work(s, true);
    int passed = 0;
    while (passed < AF_LAUNCH_ARGS && args[passed])
        passed++;
    CHECK_MSG(passed == ((fake_func *)f)->n, "kernel '%s' takes %d arguments, not %d",
              ((fake_func *)f)->name, ((fake_func *)f)->n, passed);
    assert_true(gx && gy && gz && by == 1 && bz == 1 && bx % 32 == 0 && bx <= 1024);
    assert_true(smem <= 232448 && args);
    CHECK_MSG(smem <= 48 * 1024 || ((fake_func *)f)->large,
              "kernel '%s' was not allowed %u bytes of shared memory", ((fake_func *)f)->name,
              smem);
    digest_launch(f, (unsigned[]){gx, gy, gz, bx, smem}, args);
    seen.launches++;
    return 0;
}
static int f_launch_with(const af_cu_launch *c, void *f, void **args, void **extra)
{
    const bool early = c->attribute->id == AF_CU_OVERLAP;
    assert_true(c->attributes == 1 && (early || c->attribute->id == AF_CU_TOGETHER));
    CHECK_MSG(!early || ((uint64_t *)c->stream)[1],
              "kernel '%s' begins early, and not after a launch", ((fake_func *)f)->name);
    seen.early_launches += early;
    return f_launch(f, c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                    c->shared, c->stream, args, extra);
}
static int f_alloc(void **p, size_t n)
{
    seen.allocs++;
    return note_block(*p = calloc(1, n), n);
}
static int f_free(void *p)
{
    for (int i = n_blocks - 1; i >= 0; i--)
        if (blocks[i].at == p)
            blocks[i].at = NULL;
    while (n_blocks > 0 && !blocks[n_blocks - 1].at)
        n_blocks--;
    return free(p), 0;
}
static int f_info(size_t *a, size_t *b) { return *a = (size_t)1 << 34, *b = (size_t)1 << 34, 0; }

/* Large host memory (the upload ring of every device) is mapped, with a page before and after it
 * that nobody may touch: for a calloc the sanitizer would mark each of its bytes, twice. `mark` is
 * lost, and reported, when the memory is never freed. */
enum { HOST_LARGE = 16 << 20, HOST_GUARD = 1 << 16, HOST_MAPS = 64 };
static struct host_map {
    char *at;
    size_t n;
    void *mark;
} host_maps[HOST_MAPS];

static int f_host(void **p, size_t n, unsigned f)
{
    (void)f;
    struct host_map *m = host_maps;
    while (m < host_maps + HOST_MAPS && m->at)
        m++;
    if (n < HOST_LARGE || n % HOST_GUARD || m == host_maps + HOST_MAPS)
        return *p = calloc(1, n), 0;
    const int zero = open("/dev/zero", O_RDWR);
    char *base = mmap(NULL, n + 2 * HOST_GUARD, PROT_NONE, MAP_PRIVATE, zero, 0);
    assert_true(base != MAP_FAILED);
    close(zero);
    *m = (struct host_map){base + HOST_GUARD, n, malloc(1)};
    return *p = m->at, mprotect(m->at, n, PROT_READ | PROT_WRITE);
}
static int f_host_free(void *p)
{
    for (struct host_map *m = host_maps; p && m < host_maps + HOST_MAPS; m++)
        if (m->at == p) {
            const int r = munmap(m->at - HOST_GUARD, m->n + 2 * HOST_GUARD);
            free(m->mark);
            *m = (struct host_map){0};
            return r;
        }
    return f_free(p);
}
static int f_copy(void *to, const void *from, size_t n, void *s)
{
    return newest_work(s, false), memcpy(to, from, n), 0;
}
static int f_copy_2d(const af_copy2d *c, void *s)
{
    newest_work(s, false);
    const char *from = c->src_kind == AF_CU_KIND_HOST ? c->src_host : c->src_device;
    char *to = c->dst_kind == AF_CU_KIND_HOST ? c->dst_host : c->dst_device;
    for (size_t i = 0; i < c->height; i++)
        memcpy(to + i * c->dst_pitch, from + i * c->src_pitch, c->width);
    return 0;
}
static int f_fill(void *p, unsigned char b, size_t n, void *s)
{
    return newest_work(s, false), memset(p, b, n), 0;
}

static const af_driver fake = {
    .init = f_init,
    .driver_version = f_version,
    .error_name = f_text,
    .error_string = f_text,
    .device_count = f_count,
    .device_get = f_get,
    .device_name = f_name,
    .device_attribute = f_attr,
    .device_memory = f_memory,
    .context_retain = f_retain,
    .context_release = f_release,
    .context_set = f_ctx,
    .context_sync = f_sync,
    .stream_new = f_stream_new,
    .stream_free = f_one,
    .stream_sync = f_stream_sync,
    .stream_wait = f_wait,
    .capture_begin = f_begin,
    .capture_end = f_end,
    .graph_instantiate = f_instantiate,
    .graph_launch = f_graph_launch,
    .graph_upload = f_graph_launch,
    .graph_free = f_one,
    .graph_exec_free = f_one,
    .event_new = f_event_new,
    .event_free = f_one,
    .event_record = f_record,
    .event_sync = f_one,
    .event_query = f_one,
    .event_elapsed = f_elapsed,
    .module_load = f_load,
    .module_unload = f_one,
    .module_function = f_function,
    .func_set = f_set,
    .func_get = f_func_get,
    .func_param = f_param,
    .tensor_map = f_map,
    .launch = f_launch,
    .launch_with = f_launch_with,
    .mem_alloc = f_alloc,
    .mem_free = f_free,
    .mem_info = f_info,
    .host_alloc = f_host,
    .host_free = f_host_free,
    .copy_up = f_copy,
    .copy_down = f_copy,
    .copy_inside = f_copy,
    .copy_2d = f_copy_2d,
    .fill = f_fill,
};

/* "Machine code" is the name of its source, and its defines. A list of defines the file does not
 * name is an error: the shipped pack would lack it. */
static af_status fake_obtain(const af_kernels *k, af_module *m, af_error *err)
{
    (void)k;
    for (const char *const *v = af_kernel_file(m->file)->variants; *v; v++)
        if (strcmp(*v, m->defines) == 0) {
            m->size = sizeof(fake_module);
            m->cubin = calloc(1, m->size);
            fake_module *code = (fake_module *)(void *)m->cubin;
            snprintf(code->file, sizeof code->file, "%s", m->file);
            snprintf(code->defines, sizeof code->defines, "%s", m->defines);
            return AF_OK;
        }
    return af_fail(err, AF_EDEVICE, "%s does not list the variant '%s'", m->file, m->defines);
}

static inline af_device *open_fake(void)
{
    af_device *d = NULL;
    af_error err = {0};
    memset(&seen, 0, sizeof seen);
    CHECK_OK(af_cuda_open_with(&d, &fake, 0, &err), err);
    ((af_cuda *)d)->kernels->obtain = fake_obtain;
    af_cuda_test_on(d)->host_free = UINT64_C(1) << 40; /* plans do not depend on this machine */
    return d;
}

static void drop_kept(void)
{
    while (n_kept > 0)
        free(kept[--n_kept]);
}
#endif
