/* launch.c - the helpers launchers call: steps, arguments, matrices. Errors are latched. */
#include "backend/cuda/cuda_graph.h"
#include "backend/cuda/cuda_test.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels.h"

#include <stdarg.h>

static void latch_nomem(af_cuda *cu)
{
    if (cu->err.code == AF_OK)
        (void)!af_fail_nomem(&cu->err, "the prepared graph", cu->cg->mem.bytes);
}

af_step *af_cuda_step(af_cuda *cu, af_node *n, af_step_kind kind)
{
    if (!n->exec)
        n->exec = af_arena_take(&cu->cg->mem, AF_ROW_LEVELS * sizeof(af_exec));
    if (!n->exec) {
        latch_nomem(cu);
        return NULL;
    }
    af_exec *e = (af_exec *)n->exec + cu->cg->level;
    if (e->n == e->cap) {
        const int cap = e->cap ? e->cap * 2 : 2;
        af_step *p = af_arena_take(&cu->cg->mem, (uint64_t)cap * sizeof *p);
        if (!p) {
            latch_nomem(cu);
            return NULL;
        }
        if (e->n > 0)
            memcpy(p, e->step, (size_t)e->n * sizeof *p);
        e->step = p;
        e->cap = cap;
    }
    e->step[e->n] = (af_step){.kind = kind,
                              .backward_only = cu->backward_only,
                              .renew_only = cu->renew_only,
                              .probe = cu->probe,
                              .chunk = (uint8_t)cu->chunk};
    return &e->step[e->n++];
}

af_kernel *af_cuda_kernel(af_cuda *cu, const char *file, const char *name, const char *defines)
{
    af_error err = {0};
    af_kernel *k = af_kernels_find(cu->kernels, file, name, defines, &err);
    if (!k && cu->err.code == AF_OK)
        cu->err = err;
    return k;
}

const char *af_cuda_text(af_cuda *cu, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *s = af_arena_strdup(&cu->cg->mem, text);
    if (!s)
        latch_nomem(cu);
    return s ? s : "";
}

const char *af_cuda_ctype(af_dtype t)
{
    switch (t) {
    case AF_DTYPE_F32:
        return "float";
    case AF_DTYPE_F64:
        return "double";
    case AF_DTYPE_BF16:
        return "bf16";
    case AF_DTYPE_F16:
        return "half";
    case AF_DTYPE_I32:
        return "int";
    case AF_DTYPE_I64:
        return "i64";
    case AF_DTYPE_U8:
        return "u8";
    default:
        return af_dtype_name(t);
    }
}

af_launch *af_cuda_launch(af_cuda *cu, af_node *n, af_kernel *k, int64_t gx, int64_t gy, int64_t gz,
                          int block, unsigned smem)
{
    af_launch *l = af_arena_take(&cu->cg->mem, sizeof *l);
    af_step *s = l ? af_cuda_step(cu, n, AF_STEP_LAUNCH) : NULL;
    if (!s) {
        latch_nomem(cu);
        return l;
    }
    s->launch = l;
    l->kernel = k;
    /* out of range values are caught by af_cuda_check_launches */
    l->grid[0] = gx > 0 && gx <= INT32_MAX ? (unsigned)gx : 0;
    l->grid[1] = gy > 0 && gy <= 65535 ? (unsigned)gy : 0;
    l->grid[2] = gz > 0 && gz <= 65535 ? (unsigned)gz : 0;
    l->block = (unsigned)block;
    l->smem = smem;
    return l;
}

static void add(af_launch *l, const void *p, unsigned n, unsigned align)
{
    if (!l)
        return;
    l->used = AF_ALIGN_UP(l->used, align);
    assert(l->n_args < AF_LAUNCH_ARGS && l->used + n <= AF_LAUNCH_BYTES);
    memcpy(l->store + l->used, p, n);
    l->arg[l->n_args] = l->store + l->used;
    l->size[l->n_args++] = (uint8_t)n;
    l->used += n;
}

void af_arg_ptr(af_launch *l, const void *p) { add(l, &p, sizeof p, 8); }

void af_arg_i32(af_launch *l, int64_t v)
{
    assert(v >= INT32_MIN && v <= INT32_MAX);
    const int32_t x = (int32_t)v;
    add(l, &x, sizeof x, 4);
}

void af_arg_i64(af_launch *l, int64_t v) { add(l, &v, sizeof v, 8); }

void af_arg_f32(af_launch *l, double v)
{
    const float x = (float)v;
    add(l, &x, sizeof x, 4);
}

void af_arg_f32_late(af_cuda *cu, af_launch *l, const float *from)
{
    af_late *late = l ? af_arena_take(&cu->cg->mem, sizeof *late) : NULL;
    af_arg_f32(l, *from);
    if (!late) {
        latch_nomem(cu);
        return;
    }
    *late = (af_late){.to = l->arg[l->n_args - 1], .from = from, .next = cu->cg->late};
    cu->cg->late = late;
}

void af_arg_f64(af_launch *l, double v) { add(l, &v, sizeof v, 8); }
void af_arg_u64(af_launch *l, uint64_t v) { add(l, &v, sizeof v, 8); }

void af_arg_bytes(af_launch *l, const void *p, unsigned n)
{
    assert(n <= 128);
    add(l, p, n, 8);
}

void af_arg_mat(af_launch *l, af_mat m)
{
    af_arg_ptr(l, m.data);
    af_arg_i64(l, m.ld);
}

void af_arg_map(af_cuda *cu, af_launch *l, af_mat m)
{
    _Alignas(64) uint8_t map[128] = {0};
    const uint64_t dim[2] = {(uint64_t)m.cols, (uint64_t)m.rows}, pitch = (uint64_t)m.ld * 2;
    const unsigned box[2] = {64, 64}, every[2] = {1, 1};
    af_error err = {0};
    assert(m.dtype == AF_DTYPE_BF16);
    const int r = cu->drv->tensor_map(map, AF_CU_MAP_BF16, 2, m.data, dim, &pitch, box, every, 0,
                                      AF_CU_MAP_SWIZZLE_128, AF_CU_MAP_L2_256, 0);
    if (af_cu_check(cu->drv, r, "cuTensorMapEncodeTiled", "a matrix", &err) != AF_OK &&
        cu->err.code == AF_OK)
        cu->err = err;
    af_arg_bytes(l, map, sizeof map);
}

void af_cuda_reads_early(af_launch *l, const af_tensor *t)
{
    if (l && t && t->role != AF_ROLE_INPUT && t->role != AF_ROLE_WEIGHT)
        l->whole = true;
}

void af_cuda_drop_steps(af_cuda *cu, af_node *n)
{
    if (n->exec)
        ((af_exec *)n->exec)[cu->cg->level].n = 0;
}

void af_cuda_zero(af_cuda *cu, af_node *n, void *p, uint64_t bytes)
{
    if (bytes == 0)
        return;
    af_step *s = af_cuda_step(cu, n, AF_STEP_ZERO);
    if (s) {
        s->to = p;
        s->bytes = bytes;
    }
}

void af_cuda_copy(af_cuda *cu, af_node *n, void *to, const void *from, uint64_t bytes)
{
    if (bytes == 0)
        return;
    af_step *s = af_cuda_step(cu, n, AF_STEP_COPY);
    if (s) {
        s->to = to;
        s->from = from;
        s->bytes = bytes;
    }
}

void af_cuda_swap(af_cuda *cu, af_node *n, const af_swap *s, int count)
{
    const uint64_t size = (uint64_t)count * sizeof *s;
    uint64_t sent = 0;
    for (int i = 0; i < count; i++)
        sent += s[i].send_bytes;
    if (count == 0)
        return;
    af_swap *copy = af_arena_take(&cu->cg->mem, size);
    af_step *step = copy ? af_cuda_step(cu, n, AF_STEP_SWAP) : NULL;
    if (!step) {
        latch_nomem(cu);
        return;
    }
    memcpy(copy, s, size);
    step->exchange = &cu->graph->exchange;
    step->swap = copy;
    step->swaps = count;
    step->bytes = sent;
}

bool af_cuda_count_labels(af_cuda *cu, const af_tensor *t, int64_t chunk_rows)
{
    if (t->role != AF_ROLE_INPUT || cu->cg->labels)
        return false;
    cu->cg->labels = t;
    cu->cg->chunk_rows = chunk_rows;
    cu->cg->chunks = AF_CHUNKS_MAX;
    return true;
}

af_mat af_mat_of(const af_tensor *t) { return af_mat_cols(t, 0, af_last(t)); }

af_mat af_mat_cols(const af_tensor *t, int64_t col, int64_t cols)
{
    assert(col >= 0 && col + cols <= t->ld);
    const uint64_t size = (uint64_t)af_dtype_get(t->dtype)->bytes;
    return (af_mat){(uint8_t *)t->data + (uint64_t)col * size, af_rows(t), cols, t->ld, t->dtype};
}

static int launch_with(af_cuda *cu, const af_launch *l, int id)
{
    af_cu_attribute attribute = {.id = id, .value.on = 1};
    const af_cu_launch config = {.grid = {l->grid[0], l->grid[1], l->grid[2]},
                                 .block = {l->block, 1, 1},
                                 .shared = l->smem,
                                 .stream = cu->stream,
                                 .attribute = &attribute,
                                 .attributes = 1};
    return cu->drv->launch_with(&config, l->kernel->func, (void **)l->arg, NULL);
}

/* One that begins early overlaps with the launch before it, the stream's newest work. */
static int launch(af_cuda *cu, const af_launch *l)
{
    const bool early = cu->after_launch && l->kernel->module->early && !l->whole &&
                       cu->arch >= 90 && !(cu->test && cu->test->no_overlap);
    if (cu->drv->launch_with && (early || l->together))
        return launch_with(cu, l, l->together ? AF_CU_TOGETHER : AF_CU_OVERLAP);
    const unsigned x = l->together ? 1 : l->grid[0]; /* by an older driver */
    return cu->drv->launch(l->kernel->func, x, l->grid[1], l->grid[2], l->block, 1, 1, l->smem,
                           cu->stream, (void **)l->arg, NULL);
}

af_status af_cuda_issue_launch(af_cuda *cu, const af_launch *l, af_error *err)
{
    const int result = launch(cu, l);
    cu->after_launch = true;
    return af_cu_check(cu->drv, result, "cuLaunchKernel", l->kernel->name, err);
}

static af_status bad_launch(const af_launch *l, af_error *err, const char *what, int64_t have,
                            int64_t limit)
{
    return af_fail(err, AF_EDEVICE, "kernel %s of %s: %s is %" PRId64 ", not %" PRId64,
                   l->kernel->name, l->kernel->module->file, what, have, limit);
}

/* Sizes, as the driver sees them. It is not asked beyond the last argument we pass (that would be
 * an error of its own); too few are caught by the tests, which read the kernels' text. */
static af_status check_args(af_cuda *cu, const af_launch *l, af_error *err)
{
    size_t offset, size;
    for (int i = 0; cu->drv->func_param && i < l->n_args; i++) {
        if (cu->drv->func_param(l->kernel->func, (size_t)i, &offset, &size) != AF_CU_OK)
            return bad_launch(l, err, "the number of arguments", l->n_args, i);
        if (size && size != l->size[i]) /* a fake driver may not know */
            return bad_launch(l, err, "the size of an argument", l->size[i], (int64_t)size);
    }
    return AF_OK;
}

static af_status check_launch(af_cuda *cu, const af_launch *l, af_error *err)
{
    af_status st = AF_OK;
    if (!l)
        return AF_OK;
    if (!l->grid[0] || !l->grid[1] || !l->grid[2])
        return bad_launch(l, err, "a grid dimension", 0, 1);
    if (l->block < 1 || l->block > 1024 || l->block % 32)
        return bad_launch(l, err, "the block size", l->block, 1024);
    if (l->smem > (unsigned)cu->smem_max)
        return bad_launch(l, err, "shared memory", l->smem, cu->smem_max);
    if (l->smem > AF_MAX(47u * 1024, l->kernel->shared)) { /* more, next to arrays of its own */
        AF_TRY(af_cu_check(cu->drv,
                           cu->drv->func_set(l->kernel->func, AF_CU_FUNC_SMEM, (int)l->smem),
                           "cuFuncSetAttribute", l->kernel->name, err));
        l->kernel->shared = l->smem;
    }
    AF_TRY(check_args(cu, l, err));
done:
    return st;
}

static af_status check_level(af_cuda *cu, const af_exec *e, af_error *err)
{
    af_status st = AF_OK;
    for (int i = 0; e && i < e->n; i++) {
        const af_step *s = &e->step[i];
        const bool gemm = s->kind == AF_STEP_GEMM;
        AF_TRY(check_launch(cu, gemm ? s->gemm->own : s->launch, err));
        AF_TRY(check_launch(cu, gemm ? s->gemm->join : NULL, err));
    }
done:
    return st;
}

af_status af_cuda_check_launches(af_cuda *cu, const af_node *n, af_error *err)
{
    af_status st = AF_OK;
    for (int level = 0; level < AF_ROW_LEVELS; level++)
        AF_TRY(check_level(cu, af_exec_of(n, level), err));
done:
    return st;
}
