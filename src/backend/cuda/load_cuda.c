/* load_cuda.c - weights quantised (or filled with random numbers) on the device while a model is
 * loaded: load.cu.
 *
 * Rows are uploaded into the arena of activations, which holds nothing yet, or into memory taken
 * for the time of loading where that is too small. Everything is queued; the one number the host
 * needs (the offset of the scales) is downloaded asynchronously before the first run.
 */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/kernels.h"

enum { BLOCK = 64, NESTED = 256 };

/* Where the parts of one tensor lie while it is quantised. */
typedef struct nf4_buffers {
    int64_t n, blocks, outer;
    uint8_t *rows;  /* bf16 [n] */
    float *absmax;  /* [blocks] */
    float *offset;  /* [1] */
    uint8_t *q;     /* [blocks] */
    float *nested;  /* [outer] */
    uint8_t *codes; /* [n / 2], of a tensor that ranks split */
} nf4_buffers;

static af_status take_temporary(af_cuda *cu, af_graph *g, uint64_t bytes, uint8_t **out,
                                af_error *err)
{
    af_cuda_graph *cg = g->backend;
    af_status st = AF_OK;
    *out = cg->arena[AF_ROLE_ACTIVATION];
    if (g->role_bytes[AF_ROLE_ACTIVATION] >= bytes)
        return AF_OK;
    if (cg->temp_bytes < bytes) {
        AF_TRY(af_cu_check(cu->drv, cu->drv->stream_sync(cu->stream), "cuStreamSynchronize",
                           "a weight to quantise", err));
        if (cg->temp)
            cu->drv->mem_free(cg->temp);
        cg->temp = NULL;
        cg->temp_bytes = 0;
        AF_TRY(af_cu_check(cu->drv, cu->drv->mem_alloc(&cg->temp, bytes), "cuMemAlloc",
                           "a weight to quantise", err));
        cu->device.counters.allocations++;
        cg->temp_bytes = bytes;
    }
    *out = cg->temp;
done:
    return st;
}

static af_status take_buffers(nf4_buffers *p, af_cuda *cu, af_graph *g, const af_tensor *t,
                              af_error *err)
{
    uint8_t *at = NULL;
    p->n = af_count(t);
    p->blocks = (p->n + BLOCK - 1) / BLOCK;
    p->outer = (p->blocks + NESTED - 1) / NESTED;
    void **const part[] = {(void **)&p->rows, (void **)&p->absmax, (void **)&p->offset,
                           (void **)&p->q,    (void **)&p->nested, (void **)&p->codes};
    const int64_t bytes[] = {p->n * 2,  p->blocks * 4, 4,
                             p->blocks, p->outer * 4,  t->cut ? (p->n + 1) / 2 : 0};
    uint64_t total = 0;
    for (size_t i = 0; i < AF_LEN(part); i++)
        total += AF_ALIGN_UP((uint64_t)bytes[i], (uint64_t)256);
    const af_status st = take_temporary(cu, g, total, &at, err);
    for (size_t i = 0; i < AF_LEN(part) && st == AF_OK; i++) {
        *part[i] = at;
        at += AF_ALIGN_UP((uint64_t)bytes[i], (uint64_t)256);
    }
    return st;
}

static const char *defines_of(af_dtype t)
{
    return t == AF_DTYPE_F32 ? "AF_T=float" : t == AF_DTYPE_F16 ? "AF_T=half" : "AF_T=bf16";
}

static af_status launch(af_cuda *cu, const char *name, const char *defines, int64_t grid,
                        unsigned block, void *const *args, int n, af_error *err)
{
    void *list[AF_LAUNCH_ARGS] = {NULL};
    af_error why = {0};
    af_kernel *k = af_kernels_find(cu->kernels, "load.cu", name, defines, &why);
    if (!k)
        return af_fail(err, why.code, "%s", why.msg);
    const af_status st = k->func ? AF_OK : af_kernels_build(cu->kernels, cu, err);
    if (st != AF_OK)
        return st;
    memcpy(list, args, (size_t)n * sizeof *list);
    return af_cu_check(cu->drv,
                       cu->drv->launch(k->func, (unsigned)AF_MAX(grid, (int64_t)1), 1, 1, block, 1,
                                       1, 0, cu->stream, list, NULL),
                       "cuLaunchKernel", name, err);
}

/* Blocks of 256 threads, not too many. */
static int64_t blocks_for(const af_cuda *cu, int64_t items)
{
    return AF_MIN((items + 255) / 256, (int64_t)cu->sms * 16);
}

/* Of the whole at `from`, the piece of this rank. */
static af_status keep_piece(af_cuda *cu, const af_tensor *t, const void *from, af_error *err)
{
    uint64_t begin, end;
    af_tensor_piece(t, &begin, &end);
    if (begin == end)
        return AF_OK;
    return af_cu_check(
        cu->drv,
        cu->drv->copy_inside(t->data, (const uint8_t *)from + begin, end - begin, cu->stream),
        "cuMemcpyDtoDAsync", t->name, err);
}

/* Codes and scales of the rows that lie at p->rows. */
static af_status quantise(af_cuda *cu, nf4_buffers *p, af_tensor *t, af_error *err)
{
    af_status st = AF_OK;
    const char *d = defines_of(t->dtype);
    af_quant *q = t->dtype == AF_DTYPE_NF4 ? t->quant : NULL;
    assert(!q || (q->block == BLOCK && q->nested_block == NESTED));
    const bool split = t->cut != NULL;
    void *scales = q && !split ? q->absmax->data : p->q,
         *nested = q && !split ? q->nested->data : p->nested, *codes = split ? p->codes : t->data;
    AF_TRY(launch(cu, "nf4_absmax", d, blocks_for(cu, p->blocks * 32), 256,
                  (void *[]){&p->absmax, &p->rows, &p->n}, 3, err));
    AF_TRY(launch(cu, "nf4_offset", d, 1, 1024, (void *[]){&p->offset, &p->absmax, &p->blocks}, 3,
                  err));
    AF_TRY(launch(cu, "nf4_nest", d, p->outer, 256,
                  (void *[]){&scales, &nested, &p->absmax, &p->offset, &p->blocks}, 5, err));
    if (q) {
        AF_TRY(launch(cu, "nf4_codes", d, blocks_for(cu, p->n / 8), 256,
                      (void *[]){&codes, &p->rows, &p->absmax, &p->n}, 4, err));
        if (split) {
            AF_TRY(keep_piece(cu, t, codes, err));
            AF_TRY(keep_piece(cu, q->absmax, scales, err));
            AF_TRY(keep_piece(cu, q->nested, nested, err));
        }
        AF_TRY(af_download_async(cu, &q->offset, p->offset, sizeof q->offset, t->name, err));
        goto done;
    }
    int64_t rows = af_rows(t), cols = af_last(t);
    AF_TRY(launch(cu, "nf4_dense", d, blocks_for(cu, p->n), 256,
                  (void *[]){&t->data, &t->ld, &p->rows, &p->absmax, &scales, &nested, &p->offset,
                             &rows, &cols},
                  9, err));
done:
    return st;
}

static af_status begin_write(af_cuda *cu, af_error *err)
{
    return af_cu_check(cu->drv, cu->drv->context_set(cu->context), "cuCtxSetCurrent", "a write",
                       err);
}

static void note_write(af_cuda *cu, af_graph *g, const af_tensor *t, uint64_t bytes)
{
    af_cuda_graph *cg = g->backend;
    cg->weights_dirty |= t->role == AF_ROLE_WEIGHT;
    cg->params_dirty |= t->role == AF_ROLE_PARAM;
    cu->device.counters.upload_bytes += bytes;
}

af_status af_cuda_write_nf4(af_device *d, af_graph *g, af_tensor *t, const uint16_t *rows,
                            af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_status st = AF_OK;
    nf4_buffers p;
    AF_TRY(begin_write(cu, err));
    AF_TRY(take_buffers(&p, cu, g, t, err));
    const uint64_t bytes = (uint64_t)p.n * 2;
    AF_TRY(af_upload_rows(cu, p.rows, bytes, rows, bytes, 1, t->name, err));
    note_write(cu, g, t, bytes);
    AF_TRY(quantise(cu, &p, t, err));
done:
    return st;
}

static af_status noise(af_cuda *cu, void *dst, int64_t ld, int64_t rows, int64_t cols,
                       af_dtype type, af_random_fill n, af_error *err)
{
    uint64_t seed = 1;
    return launch(cu, "noise_rows", defines_of(type), blocks_for(cu, rows * cols / 4), 256,
                  (void *[]){&dst, &ld, &rows, &cols, &seed, &n.stream, &n.scale, &n.offset}, 8,
                  err);
}

af_status af_cuda_write_noise(af_device *d, af_graph *g, af_tensor *t, const af_random_fill *n,
                              af_error *err)
{
    af_cuda *cu = (af_cuda *)d;
    af_status st = AF_OK;
    nf4_buffers p;
    AF_TRY(begin_write(cu, err));
    note_write(cu, g, t, 0);
    if (!n->nf4)
        return noise(cu, t->data, t->ld, af_rows(t), af_last(t), t->dtype, *n, err);
    AF_TRY(take_buffers(&p, cu, g, t, err));
    AF_TRY(noise(cu, p.rows, p.n, 1, p.n, AF_DTYPE_BF16, *n, err));
    AF_TRY(quantise(cu, &p, t, err));
done:
    return st;
}

af_status af_cuda_load_done(af_cuda *cu, af_cuda_graph *cg, bool *changed, af_error *err)
{
    af_status st = AF_OK;
    AF_TRY(af_download_wait(cu, err));
    for (const af_late *l = cg->late; l; l = l->next) {
        *changed |= memcmp(l->to, l->from, sizeof *l->from) != 0;
        memcpy(l->to, l->from, sizeof *l->from);
    }
    if (cg->temp) {
        AF_TRY(af_cu_check(cu->drv, cu->drv->stream_sync(cu->stream), "cuStreamSynchronize",
                           "loading", err));
        cu->drv->mem_free(cg->temp);
        cg->temp = NULL;
        cg->temp_bytes = 0;
    }
done:
    return st;
}
