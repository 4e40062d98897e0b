/* cudnn_plan.c - cuDNN on one device: its handle, its plans and their cache.
 *
 * A stored plan is a magic, the SHA-256 of the rest in hex, and the plan as the library writes it,
 * machine code included. Its name is a hash of what it is for, the GPU and the library's version.
 * One that does not add up is removed and built again. */
#include "backend/cuda/cudnn.h"
#include "base/file.h"
#include "base/hash.h"

#define MAGIC "AFCUDNN1"
enum {
    MAGIC_LEN = 8,
    SUM_LEN = 64,
    HEAD_LEN = MAGIC_LEN + SUM_LEN,
    TEXT_MAX = 16 << 20,
    DESC_PLAN = 5,
    DESC_PACK = 16,
    PLAN_HANDLE = 400,
    PLAN_WORK = 402,
    PLAN_TEXT = 405,
    PACK_IDS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORK = 1003,
    TYPE_HANDLE = 0,
    TYPE_INT64 = 3,
    TYPE_POINTER = 6,
    TYPE_CHAR = 24,
    OLDEST = 90600, /* heads that share keys, over packed sequences */
};

af_status af_dnn_open(af_cuda *cu, const af_cudnn_api *api, af_error *err)
{
    af_status st = AF_OK;
    af_dnn *d = af_calloc(1, sizeof *d);
    if (!d)
        return af_fail_nomem(err, "cuDNN", sizeof *d);
    if (api)
        d->api = *api;
    else
        AF_TRY(af_cudnn_api_open(&d->api, cu->cuda, err));
    d->version = d->api.version();
    if (d->version < OLDEST)
        AF_TRY(af_fail(err, AF_EDEVICE, "cuDNN is version %zu; afinar needs %d or newer",
                       d->version, OLDEST));
    if (d->api.create(&d->handle) != 0)
        AF_TRY(af_fail(err, AF_EDEVICE, "cudnnCreate failed on %s", cu->name));
    if (af_cache_dir(&d->cache, "cudnn", NULL) != AF_OK)
        d->cache = NULL;
    cu->dnn = d;
    d = NULL;
done:
    af_dnn_close(d);
    return st;
}

void af_dnn_close(af_dnn *d)
{
    if (!d)
        return;
    while (d->plan) {
        af_dnn_plan *p = d->plan;
        d->plan = p->next;
        if (p->desc)
            d->api.desc_free(p->desc);
        free(p->key);
        free(p);
    }
    if (d->handle)
        d->api.destroy(d->handle);
    free(d->cache);
    free(d);
}

/* ---- the folder ---- */

static void sum_of(const void *bytes, uint64_t n, char hex[65])
{
    af_sha256 s;
    af_sha256_init(&s);
    af_sha256_add(&s, bytes, n);
    af_sha256_hex(&s, hex);
}

static char *path_of(const af_cuda *cu, const char *key)
{
    char what[512], hex[65], name[80];
    const int n = snprintf(what, sizeof what, "%s|%d|%d|%zu|%s", cu->name, cu->arch, cu->sms,
                           cu->dnn->version, key);
    sum_of(what, (uint64_t)AF_MIN((size_t)n, sizeof what - 1), hex);
    snprintf(name, sizeof name, "%s.plan", hex);
    return cu->dnn->cache ? af_path_join(cu->dnn->cache, name) : NULL;
}

/* The plan's text, malloc'ed; NULL when there is none that adds up. */
static char *read_kept(const char *path, uint64_t *n)
{
    char *file = NULL, hex[65];
    if (!path || !af_file_exists(path) || af_file_read(&file, n, path, TEXT_MAX, NULL) != AF_OK)
        return NULL;
    bool good = *n > HEAD_LEN && memcmp(file, MAGIC, MAGIC_LEN) == 0;
    if (good) {
        sum_of(file + HEAD_LEN, *n - HEAD_LEN, hex);
        good = memcmp(hex, file + MAGIC_LEN, SUM_LEN) == 0;
    }
    if (!good) {
        free(file);
        (void)!af_path_remove(path, NULL);
        return NULL;
    }
    *n -= HEAD_LEN;
    memmove(file, file + HEAD_LEN, *n);
    return file;
}

/* A cache that cannot be written costs time, not truth. */
static void keep(const char *path, const char *text, uint64_t n)
{
    char hex[65];
    af_out *o = NULL;
    sum_of(text, n, hex);
    if (!path || af_out_open(&o, path, NULL) != AF_OK)
        return;
    if (af_out_write(o, MAGIC, MAGIC_LEN, NULL) == AF_OK &&
        af_out_write(o, hex, SUM_LEN, NULL) == AF_OK && af_out_write(o, text, n, NULL) == AF_OK)
        (void)!af_out_commit(o, NULL);
    else
        af_out_abandon(o);
}

/* ---- plans ---- */

static char *text_of(const af_dnn *d, void *plan, uint64_t *n)
{
    int64_t size = 0;
    if (d->api.desc_get(plan, PLAN_TEXT, TYPE_CHAR, 0, &size, NULL) != 0 || size <= 0 ||
        size > TEXT_MAX)
        return NULL;
    char *text = af_calloc((uint64_t)size + 1, 1);
    if (text && d->api.desc_get(plan, PLAN_TEXT, TYPE_CHAR, size, &size, text) != 0) {
        free(text);
        return NULL;
    }
    *n = (uint64_t)size;
    return text;
}

/* A plan the library wrote, read back. */
static void *plan_from(const af_dnn *d, const char *text, uint64_t n, uint64_t *work)
{
    void *p = NULL;
    int64_t bytes = 0, found = 0;
    if (d->api.desc_new(DESC_PLAN, &p) != 0)
        return NULL;
    if (d->api.desc_set(p, PLAN_HANDLE, TYPE_HANDLE, 1, &d->handle) == 0 &&
        d->api.desc_set(p, PLAN_TEXT, TYPE_CHAR, (int64_t)n, text) == 0 &&
        d->api.desc_finalize(p) == 0 &&
        d->api.desc_get(p, PLAN_WORK, TYPE_INT64, 1, &found, &bytes) == 0 && bytes >= 0) {
        *work = (uint64_t)bytes;
        return p;
    }
    d->api.desc_free(p);
    return NULL;
}

static char *build(af_cuda *cu, void (*describe)(af_dnn_graph *, const void *), const void *of,
                   uint64_t *n)
{
    af_dnn_graph g = {.api = &cu->dnn->api};
    char *text = NULL;
    describe(&g, of);
    if (af_dnn_build(&g, cu->dnn->handle)) {
        cu->device.counters.compiles++;
        text = text_of(cu->dnn, g.plan, n);
    }
    af_dnn_clear(&g);
    return text;
}

const af_dnn_plan *af_dnn_plan_get(af_cuda *cu, const char *key,
                                   void (*describe)(af_dnn_graph *, const void *), const void *of)
{
    af_dnn *d = cu->dnn;
    for (af_dnn_plan *p = d->plan; p; p = p->next)
        if (strcmp(p->key, key) == 0)
            return p->desc ? p : NULL;
    af_dnn_plan *p = af_calloc(1, sizeof *p);
    char *path = path_of(cu, key);
    uint64_t n = 0;
    char *text = read_kept(path, &n);
    if (p)
        p->key = af_strdup(key);
    if (p && text)
        p->desc = plan_from(d, text, n, &p->work);
    if (p && !p->desc) {
        free(text);
        text = build(cu, describe, of, &n);
        p->desc = text ? plan_from(d, text, n, &p->work) : NULL;
        if (p->desc)
            keep(path, text, n);
    }
    free(text);
    free(path);
    if (!p || !p->key) {
        free(p);
        return NULL;
    }
    p->next = d->plan; /* also when refused: it is not tried again */
    d->plan = p;
    return p->desc ? p : NULL;
}

void *af_dnn_bind(const af_dnn *d, const int64_t *id, void *const *at, int n, void *work)
{
    void *p = NULL;
    if (d->api.desc_new(DESC_PACK, &p) != 0)
        return NULL;
    if (d->api.desc_set(p, PACK_IDS, TYPE_INT64, n, id) == 0 &&
        d->api.desc_set(p, PACK_POINTERS, TYPE_POINTER, n, at) == 0 &&
        d->api.desc_set(p, PACK_WORK, TYPE_POINTER, 1, &work) == 0 && d->api.desc_finalize(p) == 0)
        return p;
    d->api.desc_free(p);
    return NULL;
}

void af_dnn_unbind(const af_dnn *d, void *pack)
{
    if (pack)
        d->api.desc_free(pack);
}

af_status af_dnn_issue(af_cuda *cu, const af_dnn_plan *p, void *pack, const char *what,
                       af_error *err)
{
    af_dnn *d = cu->dnn;
    char why[200] = "";
    int r = 0;
    if (d->stream != cu->stream)
        r = d->api.stream_set(d->handle, cu->stream);
    if (r == 0) {
        d->stream = cu->stream;
        r = d->api.execute(d->handle, p->desc, pack);
    }
    if (r == 0)
        return AF_OK;
    d->api.last_error(why, sizeof why);
    return af_fail(err, AF_EDEVICE, "cuDNN failed (status %d) for %s: %.150s", r, what, why);
}
