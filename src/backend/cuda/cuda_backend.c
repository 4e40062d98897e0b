/* cuda_backend.c - one GPU as a device: open, prepare, transfer.
 *
 * prepare allocates each arena once, lets every launcher append its steps, builds all kernels
 * together, fixes the GEMM algorithms, and only then anything of the model is uploaded. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/cudnn.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/library.h"
#include "base/log.h"
#include "base/proc.h"

#include <pthread.h>

enum { RESERVE_BYTES = 256 << 20 }; /* left to the driver: modules, captured graphs, fragments */

/* Of both passes of a product. Rates of large products on an H200 (docs/measurements/cuda.md); rows
 * that become codes are read and written once, by a launch of its own. Other GPUs have about the
 * same ratios. */
static double cuda_fp8_gain(const af_device *d, int64_t rows, int64_t out, int64_t in)
{
    static const double BF16_RATE = 800e12, FP8_RATE = 1180e12, BANDWIDTH = 4.0e12, LAUNCH = 4e-6;
    const af_cuda *cu = (const af_cuda *)d;
    if (cu->arch < 89 || out % 16 || in % 16)
        return 0;
    const double flops = 4.0 * (double)rows * (double)out * (double)in;
    const double codes = 3.0 * (double)rows * (double)(in + out) / BANDWIDTH + 2 * LAUNCH;
    return flops / BF16_RATE / (flops / FP8_RATE + codes);
}

static uint64_t cuda_memory_free(const af_device *d)
{
    const af_cuda *cu = (const af_cuda *)d;
    size_t unused = 0, total = 0;
    if (cu->drv->context_set(cu->context) || cu->drv->mem_info(&unused, &total))
        return 0;
    return unused > RESERVE_BYTES ? unused - RESERVE_BYTES : 0;
}

/* What waits there is pinned: the other half is for the rest of the system. */
static uint64_t cuda_host_free(const af_device *d)
{
    const af_cuda *cu = (const af_cuda *)d;
    char text[4096];
    if (cu->test && cu->test->host_free)
        return cu->test->host_free;
    af_proc_read(text, sizeof text, "/proc/meminfo");
    return af_proc_number(text, "MemAvailable:") * 1024 / 2;
}

void **af_cuda_slot(const af_graph *g, const af_cuda_family *f)
{
    af_cuda_graph *cg = g->backend;
    int i = 0;
    while (af_cuda_families[i] != f)
        i++;
    return &cg->plan.slot[i];
}

/* ---- prepare ---- */

static af_status allocate(af_cuda *cu, uint8_t **out, uint64_t bytes, const af_graph *g,
                          const char *what, af_error *err)
{
    if (bytes == 0)
        return AF_OK;
    const int r = cu->drv->mem_alloc((void **)out, bytes);
    if (r == AF_CU_NO_MEMORY)
        return af_fail(err, AF_ENOMEM,
                       "%s of %.2f GiB does not fit: the plan needs %.2f GiB (weights %.2f, "
                       "activations %.2f), %.2f GiB are free on %s",
                       what, (double)bytes / 0x1p30, (double)af_graph_bytes(g) / 0x1p30,
                       (double)g->role_bytes[AF_ROLE_WEIGHT] / 0x1p30,
                       (double)g->role_bytes[AF_ROLE_ACTIVATION] / 0x1p30,
                       (double)cuda_memory_free(&cu->device) / 0x1p30, cu->name);
    cu->device.counters.allocations++;
    return af_cu_check(cu->drv, r, "cuMemAlloc", what, err);
}

static af_status allocate_all(af_cuda *cu, af_graph *g, af_error *err)
{
    static const char *const name[AF_ROLE_COUNT] = {
        "the arena of inputs",    "the arena of weights", "the arena of parameters",
        "the arena of gradients", "the arena of state",   "the arena of activations"};
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        AF_TRY(allocate(cu, &cg->arena[r], g->role_bytes[r], g, name[r], err));
    const bool works = af_cuda_gemm_works(cu);
    if (works && !cu->gemm_work)
        AF_TRY(allocate(cu, (uint8_t **)&cu->gemm_work, AF_LT_WORKSPACE, g, "the GEMM workspace",
                        err));
    if (works && !cu->second_gemm_work && cg->plan.uses_second)
        AF_TRY(allocate(cu, (uint8_t **)&cu->second_gemm_work, AF_LT_WORKSPACE, g,
                        "the second GEMM workspace", err));
    AF_TRY(af_cuda_offload_prepare(cu, g, err));
done:
    return st;
}

static af_status zero_all(af_cuda *cu, const af_graph *g, af_error *err)
{
    const af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        if (cg->arena[r])
            AF_TRY(af_cu_check(cu->drv,
                               cu->drv->fill(cg->arena[r], 0, g->role_bytes[r], cu->stream),
                               "cuMemsetD8Async", "an arena", err));
done:
    return st;
}

static void point_tensors(af_graph *g, const af_cuda_graph *cg)
{
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (!t->base && (t->role != AF_ROLE_ACTIVATION || t->first >= 0))
            t->data = cg->arena[t->role] ? cg->arena[t->role] + t->offset : NULL;
    }
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->base)
            t->data = t->base->data ? (uint8_t *)t->base->data + t->base_offset : NULL;
    }
}

static af_status prepare_level(af_cuda *cu, af_graph *g, af_error *err)
{
    const af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    for (int i = 0; i < g->n_nodes && st == AF_OK; i++) {
        af_node *n = g->nodes[i];
        cu->work = n->work ? cg->arena[AF_ROLE_ACTIVATION] + n->work_offset : NULL;
        if (!af_ops[n->op]->view)
            st = af_cuda_ops[n->op]->prepare(cu, g, n, err);
        if (st == AF_OK && cu->err.code != AF_OK)
            st = af_fail(err, cu->err.code, "op '%s': %s", af_ops[n->op]->name, cu->err.msg);
    }
    return st;
}

static af_status prepare_nodes(af_cuda *cu, af_graph *g, af_error *err)
{
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    for (int i = 0; i < AF_CUDA_FAMILIES && st == AF_OK; i++)
        if (af_cuda_families[i]->prepare)
            st = af_cuda_families[i]->prepare(cu, g, err);
    for (int i = 0; i < g->n_nodes; i++)
        g->nodes[i]->exec = NULL;
    cg->levels = af_cuda_levels(g);
    for (int level = cg->levels - 1; level >= 0 && st == AF_OK; level--) {
        af_cuda_set_level(g, level);
        st = prepare_level(cu, g, err);
    }
    af_cuda_set_level(g, 0);
    return st;
}

static af_status choose_all(af_cuda *cu, af_graph *g, bool *dirtied, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; i < AF_CUDA_FAMILIES && st == AF_OK; i++)
        if (af_cuda_families[i]->choose)
            st = af_cuda_families[i]->choose(cu, g, dirtied, err);
    return st;
}

static af_status check_nodes(af_cuda *cu, const af_graph *g, af_error *err)
{
    const af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    for (int i = 0; i < g->n_nodes; i++)
        AF_TRY(af_cuda_check_launches(cu, g->nodes[i], err));
    AF_TRY(af_cuda_check_launches(cu, &cg->on_weights, err));
    AF_TRY(af_cuda_check_launches(cu, &cg->on_params, err));
done:
    return st;
}

static af_status cuda_write(af_device *d, af_graph *g, af_tensor *t, const void *data,
                            af_error *err);

static af_status upload_bound(af_device *d, af_graph *g, af_error *err)
{
    for (int i = 0; i < g->n_tensors; i++) {
        af_tensor *t = g->tensors[i];
        if (t->role != AF_ROLE_WEIGHT || !t->backend || !t->data)
            continue;
        const af_status st = cuda_write(d, g, t, t->backend, err);
        if (st != AF_OK)
            return st;
        t->backend = NULL;
    }
    return AF_OK;
}

static void release_gemms(af_cuda *cu, const af_node *n)
{
    for (int level = 0; n->exec && level < AF_ROW_LEVELS; level++) {
        const af_exec *e = af_exec_of(n, level);
        for (int i = 0; i < e->n; i++)
            if (e->step[i].kind == AF_STEP_GEMM)
                af_cuda_gemm_release(cu, e->step[i].gemm);
    }
}

static void cuda_release(af_device *d, af_graph *g)
{
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    if (!cg)
        return;
    cu->drv->context_set(cu->context);
    cu->drv->stream_sync(cu->stream);
    af_download_drop(cu);
    af_cuda_drop_captures(cu, cg);
    for (int i = 0; i < AF_CUDA_FAMILIES; i++)
        if (af_cuda_families[i]->release)
            af_cuda_families[i]->release(cu, g);
    for (int i = 0; i < g->n_nodes; i++) {
        release_gemms(cu, g->nodes[i]);
        g->nodes[i]->exec = NULL;
    }
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        if (cg->arena[r])
            cu->drv->mem_free(cg->arena[r]);
    if (cg->temp)
        cu->drv->mem_free(cg->temp);
    if (cg->pinned)
        cu->drv->host_free(cg->pinned);
    if (cg->tables)
        cu->drv->mem_free(cg->tables);
    af_arena_clear(&cg->mem);
    const af_cuda_graph empty = {.plan = cg->plan};
    *cg = empty;
    for (int i = 0; i < g->n_tensors; i++)
        g->tensors[i]->data = NULL;
}

/* Without cuBLASLt a run is slower; it says so once, and what would help. */
static af_status check_gemm_library(af_cuda *cu, af_error *err)
{
    char hint[AF_LIBRARY_HINT];
    if (cu->gemm == AF_GEMM_CUBLAS && !cu->lt)
        return af_fail(err, AF_EDEVICE, "gemm: cublas needs cuBLASLt; `%s` brings it",
                       af_library_hint(hint, cu->cuda, true, false, false));
    if (cu->report_own_gemm && cu->gemm == AF_GEMM_AUTO)
        af_log_write(AF_LOG_WARN,
                     "cuBLASLt was not found: GEMMs run in afinar's own kernels, and a step takes "
                     "about 2 to 3 times as long; `%s` brings it",
                     af_library_hint(hint, cu->cuda, true, false, false));
    cu->report_own_gemm = false;
    return AF_OK;
}

static af_status open_third(af_cuda *cu, af_error *err)
{
    const af_driver *drv = cu->drv;
    af_status st = AF_OK;
    if (cu->third)
        return AF_OK;
    AF_TRY(af_cu_check(drv, drv->stream_new(&cu->third, AF_CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->event_new(&cu->ready, AF_CU_EVENT_NO_TIMING), "cuEventCreate",
                       cu->name, err));
    for (int i = 0; i < AF_EXCHANGES_AHEAD; i++)
        AF_TRY(af_cu_check(drv, drv->event_new(&cu->done[i], AF_CU_EVENT_NO_TIMING),
                           "cuEventCreate", cu->name, err));
    for (int i = 0; i < AF_GATHERS_AHEAD; i++)
        AF_TRY(af_cu_check(drv, drv->event_new(&cu->gathered[i], AF_CU_EVENT_NO_TIMING),
                           "cuEventCreate", cu->name, err));
done:
    return st;
}

static af_status cuda_prepare(af_device *d, af_graph *g, af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    bool dirtied = false;
    cu->graph = g;
    cu->cg = cg;
    cu->err = (af_error){0};
    AF_TRY(
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "prepare", err));
    AF_TRY(check_gemm_library(cu, err));
    if (cg->plan.uses_third)
        AF_TRY(open_third(cu, err));
    AF_TRY(allocate_all(cu, g, err));
    AF_TRY(zero_all(cu, g, err));
    af_log_time("GPU: memory");
    point_tensors(g, cg);
    AF_TRY(prepare_nodes(cu, g, err));
    if (cu->lt && cu->lt->untuned)
        (void)af_cuda_kernel(cu, "gemm.cu", "fill_noise", "AF_T=bf16 AF_C=bf16");
    AF_TRY(af_kernels_build(cu->kernels, cu, err));
    af_log_time("GPU: kernels");
    AF_TRY(af_cuda_gemm_tune(cu, &dirtied, err));
    af_log_time("GPU: algorithms of GEMMs");
    AF_TRY(af_kernels_build(cu->kernels, cu, err)); /* own kernels the tuning fell back to */
    AF_TRY(check_nodes(cu, g, err));
    AF_TRY(choose_all(cu, g, &dirtied, err));
    if (dirtied)
        AF_TRY(zero_all(cu, g, err));
    AF_TRY(upload_bound(d, g, err));
    cg->weights_dirty = cg->params_dirty = true;
    AF_TRY(af_cu_check(cu->drv, cu->drv->stream_sync(cu->stream), "cuStreamSynchronize", "prepare",
                       err));
done:
    cu->graph = NULL;
    cu->cg = NULL;
    if (cu->lt)
        cu->lt->untuned = NULL;
    if (st != AF_OK)
        cuda_release(d, g);
    return st;
}

/* ---- transfers ---- */

static uint64_t width_bytes(const af_tensor *t, uint64_t *rows)
{
    *rows = 1;
    if (t->ld == af_last(t))
        return af_tensor_bytes(t);
    *rows = (uint64_t)af_rows(t);
    return (uint64_t)af_last(t) * (uint64_t)af_dtype_get(t->dtype)->bytes;
}

static uint64_t pitch_bytes(const af_tensor *t, uint64_t width)
{
    return t->ld == af_last(t) ? width : (uint64_t)t->ld * (uint64_t)af_dtype_get(t->dtype)->bytes;
}

/* Chunks of the head that have a label, when rows with one are packed to the front. */
static int chunks_in(const af_cuda_graph *cg, const af_tensor *t, const int32_t *labels)
{
    int64_t n = 0;
    for (int64_t i = 0; i < t->dim[0]; i++)
        n += labels[i] >= 0;
    return (int)((n + cg->chunk_rows - 1) / cg->chunk_rows);
}

/* Copies of t are made again before the next run. */
static void note_write(af_graph *g, const af_tensor *t)
{
    af_cuda_graph *cg = g->backend;
    cg->weights_dirty |= t->role == AF_ROLE_WEIGHT;
    cg->params_dirty |= t->role == AF_ROLE_PARAM;
}

static af_status cuda_write(af_device *d, af_graph *g, af_tensor *t, const void *data,
                            af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    uint64_t rows;
    const uint64_t width = width_bytes(t, &rows);
    if (t == cg->labels)
        cg->chunks = chunks_in(cg, t, data);
    note_write(g, t);
    if (t->role != AF_ROLE_INPUT && t != g->hyper && t != g->clock)
        d->counters.upload_bytes += width * rows;
    const af_status st =
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a write", err);
    return st == AF_OK ? af_upload_rows(cu, t->data, pitch_bytes(t, width), data, width, rows,
                                        t->name[0] ? t->name : "a tensor", err)
                       : st;
}

static af_status cuda_read(af_device *d, af_graph *g, const af_tensor *t, void *data, af_error *err)
{
    (void)g;
    af_cuda *cu = (af_cuda *)d;
    uint64_t rows;
    const uint64_t width = width_bytes(t, &rows);
    const af_status st =
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a read", err);
    return st == AF_OK ? af_download_rows(cu, data, t->data, pitch_bytes(t, width), width, rows,
                                          t->name[0] ? t->name : "a tensor", err)
                       : st;
}

static af_status cuda_read_later(af_device *d, af_graph *g, const af_tensor *t, void *data,
                                 af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    if (t->ld != af_last(t))
        return cuda_read(d, g, t, data, err);
    const af_status st =
        af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a read", err);
    return st == AF_OK ? af_download_async(cu, data, t->data, af_tensor_bytes(t),
                                           t->name[0] ? t->name : "a tensor", err)
                       : st;
}

/* ---- open and close ---- */

static void cuda_close(af_device *d)
{
    af_cuda *cu = (af_cuda *)d;
    const af_driver *drv = cu->drv;
    if (cu->context) {
        drv->context_set(cu->context);
        if (cu->stream)
            drv->stream_sync(cu->stream);
        af_upload_free(cu->upload, cu);
        af_lt_free(cu->lt);
        if (cu->gemm_work)
            drv->mem_free(cu->gemm_work);
        if (cu->second_gemm_work)
            drv->mem_free(cu->second_gemm_work);
        af_dnn_close(cu->dnn);
        af_kernels_free(cu->kernels, drv);
        if (cu->fork)
            drv->event_free(cu->fork);
        if (cu->join)
            drv->event_free(cu->join);
        if (cu->ready)
            drv->event_free(cu->ready);
        for (int i = 0; i < AF_EXCHANGES_AHEAD; i++)
            if (cu->done[i])
                drv->event_free(cu->done[i]);
        for (int i = 0; i < AF_GATHERS_AHEAD; i++)
            if (cu->gathered[i])
                drv->event_free(cu->gathered[i]);
        for (int i = 0; i < AF_MOVES_AHEAD; i++)
            if (cu->moved[i])
                drv->event_free(cu->moved[i]);
        if (cu->third)
            drv->stream_free(cu->third);
        if (cu->second)
            drv->stream_free(cu->second);
        if (cu->stream)
            drv->stream_free(cu->stream);
        drv->context_release(cu->ordinal);
    }
    free((void *)cu->own_driver);
    free(cu->test);
    free(cu);
}

static const af_backend_ops cuda_ops = {
    .kind = "cuda",
    .rewrite = af_cuda_rewrite,
    .layout = af_cuda_layout,
    .prepare = cuda_prepare,
    .run = af_cuda_run,
    .run_nodes = af_cuda_run_nodes,
    .run_node = af_cuda_run_node,
    .write = cuda_write,
    .read = cuda_read,
    .read_later = cuda_read_later,
    .write_nf4 = af_cuda_write_nf4,
    .write_noise = af_cuda_write_noise,
    .release = cuda_release,
    .memory_free = cuda_memory_free,
    .host_free = cuda_host_free,
    .fp8_gain = cuda_fp8_gain,
    .close = cuda_close,
};

af_cuda_test *af_cuda_test_on(af_device *d)
{
    af_cuda *cu = (af_cuda *)d;
    if (!cu->test)
        cu->test = af_calloc(1, sizeof *cu->test);
    return cu->test;
}

static af_status read_device(af_cuda *cu, af_error *err)
{
    const af_driver *drv = cu->drv;
    af_status st = AF_OK;
    int count = 0, device = 0, major = 0, minor = 0;
    size_t memory = 0;
    AF_TRY(
        af_cu_check(drv, drv->driver_version(&cu->cuda), "cuDriverGetVersion", "the driver", err));
    AF_TRY(af_cu_check(drv, drv->device_count(&count), "cuDeviceGetCount", "the driver", err));
    if (cu->ordinal < 0 || cu->ordinal >= count)
        AF_TRY(af_fail(err, AF_EUSAGE, "GPU %d does not exist: the driver sees %d", cu->ordinal,
                       count));
    AF_TRY(af_cu_check(drv, drv->device_get(&device, cu->ordinal), "cuDeviceGet", "the GPU", err));
    AF_TRY(af_cu_check(drv, drv->device_name(cu->name, (int)sizeof cu->name, device),
                       "cuDeviceGetName", "the GPU", err));
    AF_TRY(af_cu_check(drv, drv->device_attribute(&major, AF_CU_ATTR_MAJOR, device),
                       "cuDeviceGetAttribute", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->device_attribute(&minor, AF_CU_ATTR_MINOR, device),
                       "cuDeviceGetAttribute", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->device_attribute(&cu->sms, AF_CU_ATTR_SMS, device),
                       "cuDeviceGetAttribute", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->device_attribute(&cu->smem_max, AF_CU_ATTR_SMEM, device),
                       "cuDeviceGetAttribute", cu->name, err));
    AF_TRY(
        af_cu_check(drv, drv->device_memory(&memory, device), "cuDeviceTotalMem", cu->name, err));
    cu->arch = major * 10 + minor;
    cu->memory = memory;
    if (cu->arch < 80)
        AF_TRY(af_fail(err, AF_EUNSUPPORTED,
                       "%s has compute capability %d.%d; afinar needs 8.0 or newer", cu->name,
                       major, minor));
    AF_TRY(af_cu_check(drv, drv->context_retain(&cu->context, device), "cuDevicePrimaryCtxRetain",
                       cu->name, err));
done:
    return st;
}

af_status af_cuda_open_with(af_device **out, const af_driver *drv, int ordinal, af_error *err)
{
    af_status st = AF_OK;
    af_cuda *cu = af_calloc(1, sizeof *cu);
    if (!cu)
        return af_fail_nomem(err, "the CUDA device", sizeof *cu);
    cu->device.ops = &cuda_ops;
    cu->drv = drv;
    cu->ordinal = ordinal;
    cu->attention = AF_ATTENTION_OWN;
    AF_TRY(read_device(cu, err));
    AF_TRY(af_cu_check(drv, drv->context_set(cu->context), "cuCtxSetCurrent", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->stream_new(&cu->stream, AF_CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->stream_new(&cu->second, AF_CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->event_new(&cu->fork, AF_CU_EVENT_NO_TIMING), "cuEventCreate",
                       cu->name, err));
    AF_TRY(af_cu_check(drv, drv->event_new(&cu->join, AF_CU_EVENT_NO_TIMING), "cuEventCreate",
                       cu->name, err));
    AF_TRY(af_kernels_new(&cu->kernels, cu->arch, cu->cuda, err));
    AF_TRY(af_upload_new(&cu->upload, cu, err));
    snprintf(cu->device.text, sizeof cu->device.text, "cuda:%d, %s, %.1f GiB", ordinal, cu->name,
             (double)cu->memory / 0x1p30);
    *out = &cu->device;
    cu = NULL;
done:
    if (cu)
        cuda_close(&cu->device);
    return st;
}

/* cuBLASLt is a large library: it is mapped while the context is made, and af_lt_new finds it. */
static void *open_library(void *arg)
{
    const af_driver *drv = arg;
    af_lt_api unused;
    int cuda = 0;
    if (drv->driver_version(&cuda) == AF_CU_OK)
        (void)!af_lt_api_open(&unused, cuda, NULL);
    return NULL;
}

af_status af_cuda_open(af_device **out, int ordinal, af_error *err)
{
    af_status st = AF_OK;
    af_device *d = NULL;
    pthread_t thread;
    af_driver *drv = af_calloc(1, sizeof *drv);
    if (!drv)
        return af_fail_nomem(err, "the CUDA driver", sizeof *drv);
    AF_TRY(af_driver_open(drv, err));
    af_log_time("GPU: driver");
    const bool early = pthread_create(&thread, NULL, open_library, drv) == 0;
    st = af_cuda_open_with(&d, drv, ordinal, err);
    if (early)
        pthread_join(thread, NULL);
    if (st != AF_OK)
        goto done;
    af_log_time("GPU: context");
    ((af_cuda *)d)->own_driver = drv;
    drv = NULL;
    AF_TRY(af_lt_new(&((af_cuda *)d)->lt, (af_cuda *)d, err));
    if (((af_cuda *)d)->lt)
        af_cuda_gemm_choices_read(((af_cuda *)d)->lt, (af_cuda *)d);
    else
        ((af_cuda *)d)->report_own_gemm = true;
    *out = d;
    d = NULL;
done:
    af_device_close(d);
    free(drv);
    return st;
}
