/* head_cuda.c - launcher of head.c. Rows with a label are packed to the front; a chunk of them
 * gives logits, their loss and gradient in place, then dh (and dw). Chunks that hold no label in
 * this run are left out: a run with another number of chunks is another captured graph. */
#include "backend/cuda/cuda_graph.h"
#include "ops/head/head_in.h"
#include "ops/linear/linear_cuda.h"

enum {
    CHUNK_USUAL = 1280, /* a wave of tiles of the gradient's GEMM on a large GPU */
    OUT_DH = 2,
    OUT_DW = 3,
    ROW_THREADS = 1024,
    PACK_THREADS = 256,
    KEPT_LEAST = 1 << 16, /* logits of rows that head_kept.cu gains from */
    KEPT_BLOCK = 512 * 8, /* logits of a block, for each access of a thread */
};

typedef struct head_launch {
    af_cuda *cu;
    af_node *n;
    af_dtype t;
    af_mat w;              /* [V][D] */
    int64_t N, D, V, ld;   /* ld of the logits */
    int64_t step;          /* rows of a chunk */
    void *logits, *x, *dx; /* [step][ld]; packed h and dh, [N][D], in one buffer without dw */
    float *row_loss, *row_hit;
    float *row_stats, *weights;     /* [N][3] and [N], packed; where the node has them */
    int32_t *labels, *index, *slot; /* [N] each */
    const void *scale;
} head_launch;

/* Rows of a chunk: as many as wished, but no more than AF_CHUNKS_MAX chunks. */
static int64_t chunk_of(const af_node *n)
{
    const af_head_inputs in = af_head_in(n);
    const int64_t N = af_rows(in.h), wanted = n->attr.head.chunk_rows;
    const int64_t least = (N + AF_CHUNKS_MAX - 1) / AF_CHUNKS_MAX;
    return AF_MIN(N, AF_MAX(wanted ? wanted : CHUNK_USUAL, least));
}

/* Lays out the workspace; returns its size. */
static uint64_t layout(head_launch *h, af_cuda *cu, af_node *n)
{
    const af_head_inputs in = af_head_in(n);
    *h = (head_launch){.cu = cu, .n = n, .t = in.h->dtype, .step = chunk_of(n)};
    h->N = af_rows(in.h);
    h->D = af_last(in.h);
    h->V = in.w->dim[0];
    h->ld = AF_ALIGN_UP(h->V, (int64_t)8);
    const int64_t size = af_dtype_get(h->t)->bytes;
    const af_linear_group *p = af_linear_group_of(cu->graph, n);
    void *matrix; /* in scratch mode it comes first: see af_linear_group_mat */
    void **const part[] = {&matrix,
                           &h->logits,
                           &h->x,
                           &h->dx,
                           (void **)&h->row_loss,
                           (void **)&h->row_hit,
                           (void **)&h->row_stats,
                           (void **)&h->weights,
                           (void **)&h->labels,
                           (void **)&h->index,
                           (void **)&h->slot};
    const uint64_t bytes[] = {af_linear_group_scratch(p),
                              (uint64_t)(h->step * h->ld * size),
                              (uint64_t)(h->N * h->D * size),
                              n->attr.head.dw ? (uint64_t)(h->N * h->D * size) : 0,
                              (uint64_t)h->N * 4,
                              (uint64_t)h->N * 4,
                              n->attr.head.stats ? (uint64_t)h->N * 12 : 0,
                              n->attr.head.weighs ? (uint64_t)h->N * 4 : 0,
                              (uint64_t)h->N * 4,
                              (uint64_t)h->N * 4,
                              (uint64_t)h->N * 4};
    uint64_t at = 0;
    for (size_t i = 0; i < AF_LEN(part); i++) {
        *part[i] = cu->work ? (uint8_t *)cu->work + at : NULL;
        at += AF_ALIGN_UP(bytes[i], (uint64_t)256);
    }
    if (!n->attr.head.dw) /* a chunk of h is not read again once its logits are there */
        h->dx = h->x;
    return at;
}

static uint64_t head_work(const af_cuda *cu, const af_node *n)
{
    head_launch h;
    return layout(&h, (af_cuda *)cu, (af_node *)n);
}

static const char *row_defines(const head_launch *h)
{
    return af_cuda_text(h->cu, "AF_T=%s AF_VEC=%d AF_GRAD=%d AF_STATS=%d", af_cuda_ctype(h->t),
                        h->t == AF_DTYPE_F32 ? 4 : 8, h->n->attr.head.dh, h->n->attr.head.stats);
}

static af_kernel *pack_kernel(const head_launch *h, const char *name)
{
    return af_cuda_kernel(h->cu, "head_gather.cu", name,
                          af_cuda_text(h->cu, "AF_T=%s", af_cuda_ctype(h->t)));
}

static void pack(const head_launch *h)
{
    const af_head_inputs in = af_head_in(h->n);
    const af_tensor *x = in.h;
    af_launch *l =
        af_cuda_launch(h->cu, h->n, pack_kernel(h, "head_index"), 1, 1, 1, ROW_THREADS, 0);
    af_arg_ptr(l, h->index);
    af_arg_ptr(l, h->slot);
    af_arg_ptr(l, in.labels->data);
    af_arg_i32(l, h->N);
    l = af_cuda_launch(h->cu, h->n, pack_kernel(h, "head_gather"), h->N, 1, 1, PACK_THREADS, 0);
    af_arg_ptr(l, h->x);
    af_arg_ptr(l, h->labels);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, in.labels->data);
    af_arg_ptr(l, h->index);
    af_arg_i32(l, h->D);
    af_arg_ptr(l, h->n->attr.head.weighs ? h->weights : NULL);
    af_arg_ptr(l, h->n->attr.head.weighs ? in.weights->data : NULL);
    /* chunks that are left out count nothing */
    af_cuda_zero(h->cu, h->n, h->row_loss, (uint64_t)h->N * 4);
    af_cuda_zero(h->cu, h->n, h->row_hit, (uint64_t)h->N * 4);
    if (h->n->attr.head.stats)
        af_cuda_zero(h->cu, h->n, h->row_stats, (uint64_t)h->N * 12);
}

/* How head_kept.cu is built for these rows: blocks of a cluster, accesses of a thread. 0 blocks:
 * they are for head_rows. */
typedef struct kept {
    int blocks, accesses;
} kept;

static kept kept_of(const head_launch *h)
{
    const af_node *n = h->n;
    if (h->cu->arch < 90 || h->t == AF_DTYPE_F32 || !n->attr.head.dh || n->attr.head.stats ||
        n->attr.head.softcap > 0 || !(n->attr.head.logit_scale > 0) || h->V < KEPT_LEAST)
        return (kept){0};
    for (int blocks = 4; blocks <= 8; blocks *= 2)
        for (int accesses = 8; accesses <= 10; accesses += 2)
            if (h->V <= (int64_t)KEPT_BLOCK * blocks * accesses)
                return (kept){blocks, accesses};
    return (kept){0};
}

static void row_losses(const head_launch *h, int64_t row, int64_t rows)
{
    const af_node *n = h->n;
    const kept shape = kept_of(h);
    af_launch *l;
    if (shape.blocks)
        l = af_cuda_launch(
            h->cu, h->n,
            af_cuda_kernel(h->cu, "head_kept.cu", "head_rows_kept",
                           af_cuda_text(h->cu, "AF_T=%s AF_KS=%d AF_N=%d", af_cuda_ctype(h->t),
                                        shape.blocks, shape.accesses)),
            rows * shape.blocks, 1, 1, KEPT_BLOCK / 8, 0);
    else
        l = af_cuda_launch(h->cu, h->n,
                           af_cuda_kernel(h->cu, "head.cu", "head_rows", row_defines(h)), rows, 1,
                           1, ROW_THREADS, 0);
    af_arg_ptr(l, h->logits);
    af_arg_i64(l, h->ld);
    af_arg_ptr(l, h->labels + row);
    af_arg_ptr(l, n->attr.head.weighs ? h->weights + row : h->scale);
    af_arg_ptr(l, h->row_loss + row);
    af_arg_ptr(l, h->row_hit + row);
    af_arg_i32(l, h->V);
    af_arg_f32(l, n->attr.head.logit_scale);
    if (!shape.blocks)
        af_arg_f32(l, n->attr.head.softcap);
    af_arg_f32(l, n->attr.head.smoothing);
    if (!shape.blocks)
        af_arg_ptr(l, n->attr.head.stats ? h->row_stats + row * 3 : NULL);
    af_arg_i32(l, n->attr.head.weighs);
}

static void chunk(const head_launch *h, int64_t row, int64_t rows)
{
    af_node *n = h->n;
    const uint64_t at = (uint64_t)(row * h->D * af_dtype_get(h->t)->bytes);
    const af_mat x = {(uint8_t *)h->x + at, rows, h->D, h->D, h->t};
    const af_mat dx = {(uint8_t *)h->dx + at, rows, h->D, h->D, h->t};
    const af_mat z = {h->logits, rows, h->V, h->ld, h->t};
    af_cuda_add_gemm(h->cu, n, &(af_cuda_gemm){.a = x, .b = h->w, .c = z, .tb = true, .alpha = 1});
    row_losses(h, row, rows);
    h->cu->backward_only = true; /* a forward run must not touch gradients */
    if (n->attr.head.dh)
        af_cuda_add_gemm(h->cu, n, &(af_cuda_gemm){.a = z, .b = h->w, .c = dx, .alpha = 1});
    if (n->attr.head.dw)
        af_cuda_add_gemm(h->cu, n,
                         &(af_cuda_gemm){.a = z,
                                         .b = x,
                                         .c = af_mat_of(n->out[OUT_DW]),
                                         .ta = true,
                                         .alpha = 1,
                                         .beta = n->accumulate || row > 0 ? 1 : 0});
    h->cu->backward_only = false;
}

static void unpack(const head_launch *h)
{
    af_node *n = h->n;
    af_launch *l = af_cuda_launch(h->cu, n, pack_kernel(h, "head_rows_out"),
                                  AF_MIN((h->N + 255) / 256, (int64_t)1024), 1, 1, 256, 0);
    af_arg_ptr(l, n->out[1]->data);
    af_arg_ptr(l, h->row_loss);
    af_arg_ptr(l, h->row_hit);
    af_arg_ptr(l, h->slot);
    af_arg_i64(l, h->N);
    af_arg_ptr(l, n->attr.head.stats ? h->row_stats : NULL);
    l = af_cuda_launch(h->cu, n, af_cuda_kernel(h->cu, "head.cu", "head_sum", row_defines(h)), 1, 1,
                       1, ROW_THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_ptr(l, NULL);
    af_arg_ptr(l, h->row_loss);
    af_arg_ptr(l, h->row_hit);
    af_arg_ptr(l, h->scale);
    af_arg_i64(l, h->N);
    if (!n->attr.head.dh)
        return;
    h->cu->backward_only = true;
    l = af_cuda_launch(h->cu, n, pack_kernel(h, "head_scatter"), h->N, 1, 1, PACK_THREADS, 0);
    af_arg_ptr(l, n->out[OUT_DH]->data);
    af_arg_i64(l, n->out[OUT_DH]->ld);
    af_arg_ptr(l, h->dx);
    af_arg_ptr(l, h->slot);
    af_arg_i32(l, h->D);
    h->cu->backward_only = false;
}

static af_status head_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_head_inputs in = af_head_in(n);
    const af_linear_group *p = af_linear_group_of(g, n);
    const af_dtype t = in.h->dtype;
    if (!p || (t != AF_DTYPE_F32 && t != AF_DTYPE_BF16 && t != AF_DTYPE_F16))
        return af_fail(err, AF_EUNSUPPORTED, "head_loss of %s on the GPU: use f32, bf16 or f16",
                       af_dtype_name(t));
    head_launch h;
    (void)layout(&h, cu, n);
    h.scale = in.scale ? in.scale->data : NULL;
    af_linear_group_fill(cu, n, p, AF_FILL_W);
    h.w = p->direct ? af_mat_of(in.w) : af_linear_group_mat(cu, p, 0, p->O, 0, p->I);
    pack(&h);
    const bool counted = af_cuda_count_labels(cu, in.labels, h.step);
    for (int64_t row = 0; row < h.N; row += h.step) {
        /* the first chunk always runs: it is what writes dw when nothing is added to it */
        cu->chunk = counted && row > 0 ? (int)(row / h.step) + 1 : 0;
        chunk(&h, row, AF_MIN(h.step, h.N - row));
        cu->chunk = 0;
    }
    unpack(&h);
    return AF_OK;
}

static af_status weigh_prepare(af_cuda *cu, af_graph *g, af_node *n, af_error *err)
{
    const af_tensor *x = n->in[0];
    (void)g, (void)err;
    af_kernel *k = af_cuda_kernel(cu, "head_gather.cu", "head_weigh",
                                  af_cuda_text(cu, "AF_T=%s", af_cuda_ctype(x->dtype)));
    af_launch *l = af_cuda_launch(cu, n, k, af_rows(x), 1, 1, PACK_THREADS, 0);
    af_arg_ptr(l, n->out[0]->data);
    af_arg_i64(l, n->out[0]->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    af_arg_ptr(l, n->in[1]->data);
    af_arg_i32(l, af_last(x));
    return AF_OK;
}

const af_cuda_op af_cuda_head_weigh = {weigh_prepare, NULL, true};
const af_cuda_op af_cuda_head_loss = {head_prepare, head_work, true};
