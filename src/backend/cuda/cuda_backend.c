/* cuda_backend.c - one GPU as a device: open, lay out, prepare, transfer.
 *
 * prepare allocates each arena once, lets every launcher append its steps, builds all kernels
 * together, fixes the GEMM algorithms, and only then is anything of the model uploaded. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels.h"
#include "ops/linear_cuda.h"

enum {
    RESERVE_BYTES = 256 << 20, /* left to the driver: modules, captured graphs, fragments */
    /* values of a gradient whose product leaves room beside it: larger ones fill the GPU, and what
     * runs beside them costs more than it hides (measured at 2048 and 8192 rows) */
    ASIDE_MAX = 1 << 23,
};

static uint64_t cuda_memory_free(const af_device *d)
{
    const af_cuda *cu = (const af_cuda *)d;
    size_t unused = 0, total = 0;
    if (cu->drv->context_set(cu->context) || cu->drv->mem_info(&unused, &total))
        return 0;
    return unused > RESERVE_BYTES ? unused - RESERVE_BYTES : 0;
}

/* ---- layout ---- */

static af_status check_ops(const af_graph *g, af_error *err)
{
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        if (!af_ops[n->op]->view && !af_cuda_ops[n->op])
            return af_fail(err, AF_EUNSUPPORTED, "op '%s' has no CUDA version",
                           af_ops[n->op]->name);
    }
    return AF_OK;
}

static void set_work(af_cuda *cu, af_graph *g)
{
    cu->graph = g;
    g->work_bytes = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const af_node *n = g->nodes[i];
        const af_cuda_op *op = af_ops[n->op]->view ? NULL : af_cuda_ops[n->op];
        if (op && op->work)
            g->work_bytes = AF_MAX(g->work_bytes, op->work(cu, n));
    }
    g->work_bytes = AF_ALIGN_UP(g->work_bytes, (uint64_t)256);
    cu->graph = NULL;
}

static uint64_t total_bytes(const af_graph *g)
{
    uint64_t sum = g->work_bytes;
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        sum += g->role_bytes[r];
    return sum;
}

static bool is_weight_gradient(af_op op)
{
    return op == AF_OP_LINEAR_DW || op == AF_OP_LINEAR_DBIAS || op == AF_OP_ADAPTER_DA ||
           op == AF_OP_ADAPTER_DB;
}

/* What nodes [from, from + n) read is not reused before position `until`. */
static void hold_inputs(const af_graph *g, int from, int n, int until)
{
    for (int i = from; i < from + n; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            af_tensor *t = g->nodes[i]->in[k];
            t = t->base ? t->base : t;
            t->hold = AF_MAX(t->hold, until);
        }
}

static bool touches(const af_node *n, const af_tensor *t)
{
    bool found = false;
    for (int k = 0; k < n->n_in; k++)
        found |= n->in[k] == t || n->in[k]->base == t;
    for (int k = 0; k < n->n_out; k++)
        found |= n->out[k] == t || n->out[k]->base == t;
    return found;
}

/* Delays the products that pass a gradient on until somebody reads their result: what the gradients
 * of weights (and recomputation) before that need is free again by then. */
static void products_late(af_graph *g)
{
    for (int i = g->n_nodes - 2; i >= 0; i--) {
        af_node *n = g->nodes[i];
        if (n->op != AF_OP_LINEAR_DX)
            continue;
        int at = i;
        for (; at + 1 < g->n_nodes && g->nodes[at + 1]->phase == n->phase &&
               !touches(g->nodes[at + 1], n->out[0]);
             at++) {
            g->nodes[at] = g->nodes[at + 1];
            g->nodes[at]->at = at;
        }
        g->nodes[at] = n;
        n->at = at;
    }
}

/* Gradients of weights that follow a LINEAR_DX run beside it. Until the next such place (or the end
 * of the pass) nothing they read may be overwritten. */
static af_status place_aside(af_graph *g, af_cuda_graph *cg, af_error *err)
{
    int from = -1, count = 0;
    cg->aside = af_arena_take(&g->mem, (uint64_t)g->n_nodes + 1);
    if (!cg->aside)
        return af_fail_nomem(err, "the plan", (uint64_t)g->n_nodes);
    if (g->recompute >= AF_RECOMPUTE_WIDE) { /* memory is short: hold nothing longer than needed */
        products_late(g);
        return AF_OK;
    }
    for (int i = 0; i <= g->n_nodes; i++) {
        const af_node *n = i < g->n_nodes ? g->nodes[i] : NULL;
        int k = 0;
        while (n && n->op == AF_OP_LINEAR_DX && af_count(n->out[0]) <= ASIDE_MAX &&
               i + 1 + k < g->n_nodes && k < 255 && g->nodes[i + 1 + k]->phase == n->phase &&
               is_weight_gradient(g->nodes[i + 1 + k]->op))
            k++;
        if ((k > 0 || !n || n->phase == AF_PHASE_UPDATE) && count > 0) {
            hold_inputs(g, from, count, i);
            count = 0;
        }
        if (k > 0) {
            cg->aside[i] = (uint8_t)k;
            from = i + 1;
            count = k;
            i += k;
        }
    }
    return AF_OK;
}

static af_status cuda_layout(af_device *d, af_graph *g, af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_status st = AF_OK;
    af_cuda_graph *cg = af_arena_take(&g->mem, sizeof *cg);
    if (!cg)
        return af_fail_nomem(err, "the plan", sizeof *cg);
    g->backend = cg;
    AF_TRY(check_ops(g, err));
    for (int i = 0; i < g->n_tensors; i++)
        if (g->tensors[i]->bound) { /* values lie in host memory: prepare uploads them */
            g->tensors[i]->backend = (void *)g->tensors[i]->bound;
            g->tensors[i]->bound = NULL;
        }
    AF_TRY(af_cuda_linear_layout(cu, g, err));
    AF_TRY(place_aside(g, cg, err));
    set_work(cu, g);
    if (!af_cuda_linear_has_shadow(cg))
        goto done;
    af_cuda_linear_use_scratch(cg, cu->scratch);
    set_work(cu, g);
    AF_TRY(af_graph_layout(g, err)); /* to look: do the copies of other block types fit? */
    if (total_bytes(g) > cuda_memory_free(d)) {
        af_cuda_linear_use_scratch(cg, true);
        set_work(cu, g);
    }
done:
    return st;
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
                       what, (double)bytes / 0x1p30, (double)total_bytes(g) / 0x1p30,
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
    AF_TRY(allocate(cu, &cg->work, g->work_bytes, g, "the workspace", err));
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
    if (cg->work)
        AF_TRY(af_cu_check(cu->drv, cu->drv->fill(cg->work, 0, g->work_bytes, cu->stream),
                           "cuMemsetD8Async", "the workspace", err));
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
    af_status st = AF_OK;
    for (int i = 0; i < g->n_nodes && st == AF_OK; i++) {
        af_node *n = g->nodes[i];
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
    af_status st = af_cuda_linear_prepare(cu, g, err);
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
                af_gemm_release(cu, e->step[i].gemm);
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
    for (int i = 0; i < g->n_nodes; i++) {
        release_gemms(cu, g->nodes[i]);
        g->nodes[i]->exec = NULL;
    }
    for (int r = 0; r < AF_ROLE_COUNT; r++)
        if (cg->arena[r])
            cu->drv->mem_free(cg->arena[r]);
    if (cg->work)
        cu->drv->mem_free(cg->work);
    if (cg->tables)
        cu->drv->mem_free(cg->tables);
    af_arena_clear(&cg->mem);
    const af_cuda_graph empty = {
        .groups = cg->groups, .n_groups = cg->n_groups, .aside = cg->aside};
    *cg = empty; /* the layout stays: the graph may be prepared again */
    for (int i = 0; i < g->n_tensors; i++)
        g->tensors[i]->data = NULL;
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
    AF_TRY(allocate_all(cu, g, err));
    AF_TRY(zero_all(cu, g, err));
    point_tensors(g, cg);
    cu->work = cg->work;
    AF_TRY(prepare_nodes(cu, g, err));
    if (cu->lt && cu->lt->untuned)
        (void)af_cuda_kernel(cu, "gemm.cu", "fill_noise", "AF_T=bf16 AF_C=bf16");
    AF_TRY(af_kernels_build(cu->kernels, cu, err));
    AF_TRY(af_gemm_tune(cu, &dirtied, err));
    AF_TRY(af_kernels_build(cu->kernels, cu, err)); /* own products the tuning fell back to */
    AF_TRY(check_nodes(cu, g, err));
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

static af_status cuda_write(af_device *d, af_graph *g, af_tensor *t, const void *data,
                            af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_cuda_graph *cg = g->backend;
    uint64_t rows;
    const uint64_t width = width_bytes(t, &rows);
    if (t == cg->labels)
        cg->chunks = chunks_in(cg, t, data);
    cg->weights_dirty |= t->role == AF_ROLE_WEIGHT;
    cg->params_dirty |= t->role == AF_ROLE_PARAM;
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
    return st == AF_OK ? af_download_later(cu, data, t->data, af_tensor_bytes(t),
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
        af_lt_free(cu->lt, cu);
        af_kernels_free(cu->kernels, drv);
        if (cu->fork)
            drv->event_free(cu->fork);
        if (cu->join)
            drv->event_free(cu->join);
        if (cu->side)
            drv->stream_free(cu->side);
        if (cu->stream)
            drv->stream_free(cu->stream);
        drv->context_release(cu->ordinal);
    }
    free((void *)cu->own_driver);
    free(cu);
}

static const af_backend_ops cuda_ops = {
    .kind = "cuda",
    .layout = cuda_layout,
    .prepare = cuda_prepare,
    .run = af_cuda_run,
    .write = cuda_write,
    .read = cuda_read,
    .read_later = cuda_read_later,
    .release = cuda_release,
    .memory_free = cuda_memory_free,
    .close = cuda_close,
};

static af_status read_device(af_cuda *cu, af_error *err)
{
    const af_driver *drv = cu->drv;
    af_status st = AF_OK;
    int count = 0, device = 0, major = 0, minor = 0;
    size_t memory = 0;
    AF_TRY(af_cu_check(drv, drv->device_count(&count), "cuDeviceGetCount", "the driver", err));
    if (cu->ordinal < 0 || cu->ordinal >= count)
        AF_TRY(
            af_fail(err, AF_EUSAGE, "there is no GPU %d: the driver sees %d", cu->ordinal, count));
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
    AF_TRY(read_device(cu, err));
    AF_TRY(af_cu_check(drv, drv->context_set(cu->context), "cuCtxSetCurrent", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->stream_new(&cu->stream, AF_CU_STREAM_NON_BLOCKING),
                       "cuStreamCreate", cu->name, err));
    AF_TRY(af_cu_check(drv, drv->stream_new(&cu->side, AF_CU_STREAM_NON_BLOCKING), "cuStreamCreate",
                       cu->name, err));
    AF_TRY(af_cu_check(drv, drv->event_new(&cu->fork, AF_CU_EVENT_NO_TIMING), "cuEventCreate",
                       cu->name, err));
    AF_TRY(af_cu_check(drv, drv->event_new(&cu->join, AF_CU_EVENT_NO_TIMING), "cuEventCreate",
                       cu->name, err));
    AF_TRY(af_kernels_new(&cu->kernels, cu->arch, err));
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

af_status af_cuda_open(af_device **out, int ordinal, af_error *err)
{
    af_status st = AF_OK;
    af_device *d = NULL;
    af_driver *drv = af_calloc(1, sizeof *drv);
    if (!drv)
        return af_fail_nomem(err, "the CUDA driver", sizeof *drv);
    AF_TRY(af_driver_open(drv, err));
    AF_TRY(af_cuda_open_with(&d, drv, ordinal, err));
    ((af_cuda *)d)->own_driver = drv;
    drv = NULL;
    AF_TRY(af_lt_new(&((af_cuda *)d)->lt, (af_cuda *)d, err));
    *out = d;
    d = NULL;
done:
    af_device_close(d);
    free(drv);
    return st;
}
