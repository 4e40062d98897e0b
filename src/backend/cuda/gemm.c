/* gemm.c - plans of GEMMs. cuBLASLt is column-major: a row-major c = a b is its c' = b' a', so the
 * operands swap and the transposes stay. */
#include "backend/cuda/gemm.h"
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm_cost.h"
#include "backend/cuda/kernels.h"

enum {
    LT_LAYOUT_BATCH = 5,
    LT_LAYOUT_STRIDE = 6,
    LT_DESC_TRANSA = 3,
    LT_DESC_TRANSB = 4,
    LT_DESC_EPILOGUE = 7,
    LT_DESC_BIAS = 8,
    LT_EPILOGUE_BIAS = 4,
    LT_COMPUTE_32F = 68,
    LT_COMPUTE_TF32 = 77,
    JOIN_THREADS = 256,
};

static int lt_type(af_dtype t)
{
    return t == AF_DTYPE_BF16 ? 14 : t == AF_DTYPE_F16 ? 2 : 0; /* CUDA_R_16BF, 16F, 32F */
}

static bool computable(af_dtype t)
{
    return t == AF_DTYPE_BF16 || t == AF_DTYPE_F16 || t == AF_DTYPE_F32;
}

af_status af_lt_new(af_lt **out, af_cuda *cu, af_error *err)
{
    af_status st = AF_OK;
    af_lt *lt = af_calloc(1, sizeof *lt);
    if (!lt)
        return af_fail_nomem(err, "cuBLASLt", sizeof *lt);
    if (af_lt_api_open(&lt->api, cu->cuda, NULL) != AF_OK) {
        free(lt);
        return AF_OK; /* own kernels do it; the run reports it (cuda_backend.c) */
    }
    if (lt->api.create(&lt->handle) != 0)
        AF_TRY(af_fail(err, AF_EDEVICE, "cublasLtCreate failed on %s", cu->name));
    lt->version = lt->api.version();
    *out = lt;
    lt = NULL;
done:
    af_lt_free(lt);
    return st;
}

void af_lt_free(af_lt *lt)
{
    if (!lt)
        return;
    for (int i = 0; i < lt->n; i++) {
        free(lt->choice[i]->key);
        free(lt->choice[i]);
    }
    if (lt->handle)
        lt->api.destroy(lt->handle);
    free(lt->choice);
    free(lt->path);
    free(lt);
}

bool af_cuda_gemm_works(const af_cuda *cu) { return cu->lt || af_gpu_modelled(cu); }

static int64_t inner(const af_cuda_gemm *m) { return m->ta ? m->a.rows : m->a.cols; }

static void check_shapes(const af_cuda_gemm *m)
{
    assert(inner(m) == (m->tb ? m->b.cols : m->b.rows));
    assert(m->c.rows == (m->ta ? m->a.cols : m->a.rows));
    assert(m->c.cols == (m->tb ? m->b.rows : m->b.cols));
    assert(m->a.ld >= m->a.cols && m->b.ld >= m->b.cols && m->c.ld >= m->c.cols);
    assert(m->a.dtype == m->b.dtype);
    assert(!m->add.data || (m->add.rows == m->c.rows && m->add.cols == m->c.cols &&
                            m->add.dtype == m->c.dtype && m->batch <= 1));
}

static bool add_layout(const af_lt *lt, void **out, const af_mat *x, const af_cuda_gemm *m,
                       int64_t stride)
{
    if (lt->api.layout_new(out, lt_type(x->dtype), (uint64_t)x->cols, (uint64_t)x->rows, x->ld))
        return false;
    if (m->batch <= 1)
        return true;
    const int32_t batch = m->batch;
    return lt->api.layout_set(*out, LT_LAYOUT_BATCH, &batch, sizeof batch) == 0 &&
           lt->api.layout_set(*out, LT_LAYOUT_STRIDE, &stride, sizeof stride) == 0;
}

static bool describe(const af_lt *lt, af_cuda_gemm_plan *p)
{
    const af_cuda_gemm *m = &p->m;
    const int compute = p->tf32 ? LT_COMPUTE_TF32 : LT_COMPUTE_32F;
    const int32_t ta = m->tb, tb = m->ta; /* a and b swap */
    const int32_t epilogue = LT_EPILOGUE_BIAS;
    bool ok = lt->api.desc_new(&p->desc, compute, 0) == 0 &&
              lt->api.desc_set(p->desc, LT_DESC_TRANSA, &ta, sizeof ta) == 0 &&
              lt->api.desc_set(p->desc, LT_DESC_TRANSB, &tb, sizeof tb) == 0;
    if (ok && m->bias)
        ok = lt->api.desc_set(p->desc, LT_DESC_EPILOGUE, &epilogue, sizeof epilogue) == 0 &&
             lt->api.desc_set(p->desc, LT_DESC_BIAS, &m->bias, sizeof m->bias) == 0;
    return ok && add_layout(lt, &p->la, &m->b, m, m->stride_b) &&
           add_layout(lt, &p->lb, &m->a, m, m->stride_a) &&
           add_layout(lt, &p->lc, &m->c, m, m->stride_c) &&
           add_layout(lt, &p->ladd, af_cuda_gemm_addend(m), m, m->stride_c);
}

void af_cuda_gemm_release(af_cuda *cu, af_cuda_gemm_plan *p)
{
    if (!cu->lt)
        return;
    const af_lt_api *api = &cu->lt->api;
    if (p->desc)
        api->desc_free(p->desc);
    void *layout[] = {p->la, p->lb, p->lc, p->ladd};
    for (size_t i = 0; i < AF_LEN(layout); i++)
        if (layout[i])
            api->layout_free(layout[i]);
    p->desc = p->la = p->lb = p->lc = p->ladd = NULL;
}

static af_status add_gemm(af_cuda *cu, af_node *n, const af_cuda_gemm *m, af_error *err)
{
    check_shapes(m);
    if (m->c.rows == 0 || m->c.cols == 0)
        return AF_OK;
    if (!computable(m->a.dtype) || !computable(m->c.dtype))
        return af_fail(err, AF_EUNSUPPORTED,
                       "a GEMM of %s into %s does not run on a GPU; use f32, bf16 or f16",
                       af_dtype_name(m->a.dtype), af_dtype_name(m->c.dtype));
    af_cuda_gemm_plan *p = af_arena_take(&cu->cg->mem, sizeof *p);
    af_step *s = p ? af_cuda_step(cu, n, AF_STEP_GEMM) : NULL;
    if (!s)
        return af_fail_nomem(err, "the prepared graph", sizeof *p);
    *p = (af_cuda_gemm_plan){.m = *m, .tf32 = cu->tf32 && m->a.dtype == AF_DTYPE_F32};
    s->gemm = p;
    if (!cu->lt || cu->gemm == AF_GEMM_OWN || (cu->test && cu->test->no_cublas) || inner(m) == 0)
        return af_cuda_gemm_own(cu, p, err);
    if (!describe(cu->lt, p)) {
        af_cuda_gemm_release(cu, p);
        return af_cuda_gemm_own(cu, p, err);
    }
    p->next = cu->lt->untuned;
    cu->lt->untuned = p;
    return AF_OK;
}

void af_cuda_add_gemm(af_cuda *cu, af_node *n, const af_cuda_gemm *m)
{
    af_error err = {0};
    if (add_gemm(cu, n, m, &err) != AF_OK && cu->err.code == AF_OK)
        cu->err = err;
}

af_status af_cuda_gemm_issue(af_cuda *cu, const af_cuda_gemm_plan *p, af_error *err)
{
    const af_cuda_gemm *m = &p->m;
    if (p->join) { /* the workspace of the stream it runs on */
        memcpy(p->own->arg[0], &cu->gemm_work, sizeof cu->gemm_work);
        memcpy(p->join->arg[2], &cu->gemm_work, sizeof cu->gemm_work);
    }
    if (p->own) {
        const af_status st = af_cuda_issue_launch(cu, p->own, err);
        return st == AF_OK && p->join ? af_cuda_issue_launch(cu, p->join, err) : st;
    }
    const int r =
        cu->lt->api.matmul(cu->lt->handle, p->desc, &m->alpha, m->b.data, p->la, m->a.data, p->lb,
                           &m->beta, af_cuda_gemm_addend(m)->data, p->ladd, m->c.data, p->lc,
                           &p->algo, cu->gemm_work, AF_LT_WORKSPACE, cu->stream);
    if (r == 0)
        return AF_OK;
    return af_fail(err, AF_EDEVICE,
                   "cublasLtMatmul failed (status %d) for %" PRId64 " x %" PRId64 " x %" PRId64, r,
                   m->c.rows, m->c.cols, inner(m));
}

static bool aligned(const af_mat *x, int64_t stride, int batch)
{
    return (uintptr_t)x->data % 16 == 0 && x->ld % 8 == 0 && (batch <= 1 || stride % 8 == 0);
}

/* gemm_tiles.cu takes operands of two bytes whose rows start on 16. */
static bool tiled(const af_cuda *cu, const af_cuda_gemm *m)
{
    return m->a.dtype != AF_DTYPE_F32 && aligned(&m->a, m->stride_a, m->batch) &&
           aligned(&m->b, m->stride_b, m->batch) &&
           cu->smem_max >= af_gemm_tile_shared(&af_gemm_tiles[0]);
}

static const char *tile_defines(af_cuda *cu, const af_cuda_gemm *m, int tile, af_dtype c)
{
    const af_gemm_tile *t = &af_gemm_tiles[tile];
    const char *types = af_cuda_text(cu, "AF_TA=%d AF_TB=%d AF_T=%s AF_C=%s", m->ta, m->tb,
                                     af_cuda_ctype(m->a.dtype), af_cuda_ctype(c));
    if (tile == 0)
        return types;
    return af_cuda_text(cu, "AF_BM=%d AF_BN=%d AF_WM=%d AF_WN=%d AF_STAGES=%d %s", t->m, t->n,
                        t->warps_m, t->warps_n, t->stages, types);
}

static const char *join_defines(const af_cuda_gemm *m)
{
    return m->c.dtype == AF_DTYPE_F32 ? "AF_C=float" : "AF_C=bf16";
}

/* The measured tile, or what the model chooses where none was measured. Other tiles exist in bf16
 * and for what graphs ask for: not for two transposed operands. Builds ship the first tile; where
 * the others are neither shipped nor can be compiled, it serves. */
static af_gemm_way way_of(af_cuda *cu, const af_cuda_gemm *m)
{
    const af_gemm_shape s = {m->c.rows, m->c.cols, inner(m), AF_MAX(m->batch, 1),
                             af_dtype_get(m->c.dtype)->bytes};
    if (m->a.dtype != AF_DTYPE_BF16 || (m->ta && m->tb) || s.K == 0)
        return (af_gemm_way){0, 1};
    if (cu->test && cu->test->gemm_tile)
        return (af_gemm_way){cu->test->gemm_tile - 1, AF_MAX(cu->test->gemm_split, 1)};
    if (!af_gpu_modelled(cu))
        return (af_gemm_way){0, 1};
    const af_gpu_rates g = af_gpu_rates_read(cu);
    const af_gemm_way w = af_gemm_choose(&g, &s, cu->gemm_work ? AF_LT_WORKSPACE : 0);
    const af_dtype c = w.split > 1 ? AF_DTYPE_F32 : m->c.dtype;
    const bool there =
        af_kernels_can(cu->kernels, "gemm_tiles.cu", tile_defines(cu, m, w.tile, c)) &&
        (w.split == 1 || af_kernels_can(cu->kernels, "gemm_join.cu", join_defines(m)));
    return there ? w : (af_gemm_way){0, 1};
}

static af_status new_launch(af_cuda *cu, af_launch **out, af_kernel *k, af_error *err)
{
    af_launch *l = af_arena_take(&cu->cg->mem, sizeof *l);
    if (!k || !l)
        return cu->err.code ? af_fail(err, cu->err.code, "%s", cu->err.msg)
                            : af_fail_nomem(err, "the prepared graph", sizeof *l);
    l->kernel = k;
    *out = l;
    return AF_OK;
}

/* Arguments of all the kernels, in their order; a matrix has an address, a row stride, a stride. */
static void arg_gemm(af_launch *l, const af_cuda_gemm *m, bool transposes)
{
    const af_mat *x[] = {&m->c, &m->a, &m->b};
    const int64_t stride[] = {m->stride_c, m->stride_a, m->stride_b};
    for (int i = 0; i < 3; i++) {
        af_arg_ptr(l, x[i]->data);
        af_arg_i64(l, x[i]->ld);
        af_arg_i64(l, m->batch > 1 ? stride[i] : 0);
    }
    af_arg_mat(l, *af_cuda_gemm_addend(m));
    af_arg_ptr(l, m->bias);
    af_arg_i64(l, m->c.rows);
    af_arg_i64(l, m->c.cols);
    af_arg_i64(l, inner(m));
    if (transposes) { /* in gemm_tiles.cu they are part of the kernel */
        af_arg_i32(l, m->ta);
        af_arg_i32(l, m->tb);
    }
    af_arg_f32(l, m->alpha);
    af_arg_f32(l, m->beta);
}

static af_status set_grid(af_launch *l, const af_cuda_gemm *m, int rows, int cols, af_error *err)
{
    l->grid[0] = (unsigned)((m->c.cols + cols - 1) / cols);
    l->grid[1] = (unsigned)((m->c.rows + rows - 1) / rows);
    l->grid[2] = (unsigned)AF_MAX(m->batch, 1);
    if (l->grid[1] > 65535)
        return af_fail(err, AF_EUNSUPPORTED,
                       "a GEMM of %" PRId64 " rows needs cuBLASLt, which is missing", m->c.rows);
    return AF_OK;
}

/* c = the sum of parts: a batch of GEMMs over a share of the inner dimension each, whose results
 * are added up in order. */
static af_status add_join(af_cuda *cu, af_cuda_gemm_plan *p, int parts, af_error *err)
{
    const af_cuda_gemm *m = &p->m;
    const int64_t values = m->c.rows * m->c.cols;
    af_kernel *k = af_cuda_kernel(cu, "gemm_join.cu", "gemm_join", join_defines(m));
    const af_status st = new_launch(cu, &p->join, k, err);
    if (st != AF_OK)
        return st;
    af_launch *l = p->join;
    l->grid[0] =
        (unsigned)AF_MIN((values + JOIN_THREADS - 1) / JOIN_THREADS, (int64_t)cu->sms * 16);
    l->grid[1] = l->grid[2] = 1;
    l->block = JOIN_THREADS;
    af_arg_ptr(l, m->c.data);
    af_arg_i64(l, m->c.ld);
    af_arg_ptr(l, cu->gemm_work);
    af_arg_mat(l, *af_cuda_gemm_addend(m));
    af_arg_ptr(l, m->bias);
    af_arg_i64(l, m->c.rows);
    af_arg_i64(l, m->c.cols);
    af_arg_i32(l, parts);
    af_arg_f32(l, m->alpha);
    af_arg_f32(l, m->beta);
    return AF_OK;
}

static af_cuda_gemm part_of(const af_cuda *cu, const af_cuda_gemm *m, int parts)
{
    const int64_t share = inner(m) / parts;
    af_cuda_gemm s = *m;
    s.c = (af_mat){cu->gemm_work, m->c.rows, m->c.cols, m->c.cols, AF_DTYPE_F32};
    *(m->ta ? &s.a.rows : &s.a.cols) = share;
    *(m->tb ? &s.b.cols : &s.b.rows) = share;
    s.stride_a = m->ta ? share * m->a.ld : share;
    s.stride_b = m->tb ? share : share * m->b.ld;
    s.stride_c = m->c.rows * m->c.cols;
    s.batch = parts;
    s.bias = NULL;
    s.add = (af_mat){0};
    s.alpha = 1;
    s.beta = 0;
    return s;
}

static af_status own_tiles(af_cuda *cu, af_cuda_gemm_plan *p, af_error *err)
{
    const af_gemm_way w = way_of(cu, &p->m);
    const af_gemm_tile *t = &af_gemm_tiles[w.tile];
    const af_cuda_gemm m = w.split > 1 ? part_of(cu, &p->m, w.split) : p->m;
    af_kernel *k =
        af_cuda_kernel(cu, "gemm_tiles.cu", "gemm_tiles", tile_defines(cu, &m, w.tile, m.c.dtype));
    af_launch *l = NULL;
    af_status st = AF_OK;
    AF_TRY(new_launch(cu, &l, k, err));
    AF_TRY(set_grid(l, &m, t->m, t->n, err));
    l->block = (unsigned)af_gemm_tile_threads(t);
    l->smem = (unsigned)af_gemm_tile_shared(t);
    arg_gemm(l, &m, false);
    if (w.split > 1)
        AF_TRY(add_join(cu, p, w.split, err));
    p->own = l;
done:
    return st;
}

/* gemm_tiles.cu, or a block makes a tile of 64 x 64 (gemm.cu: any stride). */
af_status af_cuda_gemm_own(af_cuda *cu, af_cuda_gemm_plan *p, af_error *err)
{
    const af_cuda_gemm *m = &p->m;
    const bool f32 = m->a.dtype == AF_DTYPE_F32;
    if (tiled(cu, m))
        return own_tiles(cu, p, err);
    af_kernel *k = af_cuda_kernel(
        cu, "gemm.cu", f32 ? "gemm_f32" : "gemm_mma",
        af_cuda_text(cu, "AF_T=%s AF_C=%s", af_cuda_ctype(m->a.dtype), af_cuda_ctype(m->c.dtype)));
    af_launch *l = NULL;
    af_status st = AF_OK;
    AF_TRY(new_launch(cu, &l, k, err));
    AF_TRY(set_grid(l, m, 64, 64, err));
    l->block = f32 ? 256 : 128;
    arg_gemm(l, m, true);
    p->own = l;
done:
    return st;
}
