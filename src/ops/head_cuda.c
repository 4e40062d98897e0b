/* head_cuda.c - launcher of head.c: logits of a chunk of rows, their loss and gradient in place,
 * then dh (and dw) from them. */
#include "backend/cuda/cuda_graph.h"
#include "ops/linear_cuda.h"

enum { CHUNK_LARGE = 4096, CHUNK_SMALL = 1024, OUT_DH = 2, OUT_DW = 3, ROW_THREADS = 1024 };

static int64_t chunk_of(const af_cuda *cu, const af_node *n)
{
    const int64_t N = af_rows(n->in[0]), wish = n->attr.head.chunk_rows;
    const int64_t usual = cu->memory > UINT64_C(40) << 30 ? CHUNK_LARGE : CHUNK_SMALL;
    return AF_MIN(N, wish ? wish : usual);
}

static int64_t logits_ld(const af_node *n) { return AF_ALIGN_UP(n->in[1]->dim[0], (int64_t)8); }

static uint64_t logits_bytes(const af_cuda *cu, const af_node *n)
{
    const uint64_t size = (uint64_t)af_dtype_get(n->in[0]->dtype)->bytes;
    return AF_ALIGN_UP((uint64_t)(chunk_of(cu, n) * logits_ld(n)) * size, (uint64_t)256);
}

static uint64_t matrix_bytes(const af_cuda *cu, const af_node *n)
{
    const uint64_t b = af_linear_group_scratch(af_linear_group_of(cu->graph->backend, n));
    return AF_ALIGN_UP(b, (uint64_t)256);
}

static uint64_t head_work(const af_cuda *cu, const af_node *n)
{
    return matrix_bytes(cu, n) + logits_bytes(cu, n) + (uint64_t)af_rows(n->in[0]) * 8 + 256;
}

typedef struct head {
    af_cuda *cu;
    af_node *n;
    af_mat w; /* [V][D] */
    void *logits;
    float *row_loss, *row_hit;
    const void *scale;
    int64_t V, ld;
} head;

static af_mat rows_of(const af_tensor *t, int64_t row, int64_t rows)
{
    af_mat m = af_mat_of(t);
    m.data = (uint8_t *)m.data + (uint64_t)(row * m.ld) * (uint64_t)af_dtype_get(m.dtype)->bytes;
    m.rows = rows;
    return m;
}

static void row_losses(const head *h, int64_t row, int64_t rows)
{
    const af_node *n = h->n;
    const af_dtype t = n->in[0]->dtype;
    const char *defines = af_cuda_text(h->cu, "AF_T=%s AF_VEC=%d AF_GRAD=%d", af_cuda_ctype(t),
                                       t == AF_DTYPE_F32 ? 4 : 8, n->attr.head.dh);
    af_kernel *k = af_cuda_kernel(h->cu, "head.cu", "head_rows", defines);
    af_launch *l = af_cuda_launch(h->cu, h->n, k, rows, 1, 1, ROW_THREADS, 0);
    af_arg_ptr(l, h->logits);
    af_arg_i64(l, h->ld);
    af_arg_ptr(l, (const int32_t *)n->in[2]->data + row);
    af_arg_ptr(l, h->scale);
    af_arg_ptr(l, h->row_loss + row);
    af_arg_ptr(l, h->row_hit + row);
    af_arg_i32(l, h->V);
    af_arg_f32(l, n->attr.head.logit_scale);
    af_arg_f32(l, n->attr.head.softcap);
    af_arg_f32(l, n->attr.head.smoothing);
}

static void chunk(const head *h, int64_t row, int64_t rows)
{
    af_node *n = h->n;
    const af_mat x = rows_of(n->in[0], row, rows);
    const af_mat z = {h->logits, rows, h->V, h->ld, n->in[0]->dtype};
    af_cuda_gemm(h->cu, n, &(af_gemm){.a = x, .b = h->w, .c = z, .tb = true, .alpha = 1});
    row_losses(h, row, rows);
    h->cu->backward_only = true; /* a forward run must not touch gradients */
    if (n->attr.head.dh)
        af_cuda_gemm(
            h->cu, n,
            &(af_gemm){.a = z, .b = h->w, .c = rows_of(n->out[OUT_DH], row, rows), .alpha = 1});
    if (n->attr.head.dw)
        af_cuda_gemm(h->cu, n,
                     &(af_gemm){.a = z,
                                .b = x,
                                .c = af_mat_of(n->out[OUT_DW]),
                                .ta = true,
                                .alpha = 1,
                                .beta = n->accumulate || row > 0 ? 1 : 0});
    h->cu->backward_only = false;
}

static af_status head_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_linear_group *p = af_linear_group_of(g->backend, n);
    const int64_t N = af_rows(n->in[0]), step = chunk_of(cu, n);
    const af_dtype t = n->in[0]->dtype;
    if (!p || (t != AF_DTYPE_F32 && t != AF_DTYPE_BF16 && t != AF_DTYPE_F16))
        return af_fail(err, AF_EUNSUPPORTED, "head_loss of %s on the GPU: use f32, bf16 or f16",
                       af_dtype_name(t));
    head h = {.cu = cu, .n = n, .V = n->in[1]->dim[0], .ld = logits_ld(n)};
    uint8_t *at = (uint8_t *)cu->work + matrix_bytes(cu, n);
    h.logits = at;
    h.row_loss = (float *)(void *)(at + logits_bytes(cu, n));
    h.row_hit = h.row_loss + N;
    h.scale = n->attr.head.scaled ? n->in[3]->data : NULL;
    af_linear_group_fill(cu, n, p, AF_FILL_W);
    h.w = p->direct ? af_mat_of(p->w[0]) : af_linear_group_mat(cu, p, 0, p->O, 0, p->I);
    for (int64_t row = 0; row < N; row += step)
        chunk(&h, row, AF_MIN(step, N - row));
    af_kernel *k = af_cuda_kernel(cu, "head.cu", "head_sum",
                                  af_cuda_text(cu, "AF_T=%s AF_VEC=%d AF_GRAD=%d", af_cuda_ctype(t),
                                               t == AF_DTYPE_F32 ? 4 : 8, n->attr.head.dh));
    af_launch *l = af_cuda_launch(cu, n, k, 1, 1, 1, ROW_THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, h.row_loss);
    af_arg_ptr(l, h.row_hit);
    af_arg_ptr(l, h.scale);
    af_arg_i64(l, N);
    return AF_OK;
}

const af_cuda_op af_cuda_head_loss = {head_prepare, head_work, true};
