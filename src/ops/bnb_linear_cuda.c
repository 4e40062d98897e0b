/* bnb_linear_cuda.c - projections of few tokens straight from 4-bit weights (bnb_linear.cu): which
 * nodes it serves, and its launches. Everything else dequantises and multiplies (linear_cuda.c). */
#include "ops/cuda_ops.h"
#include "ops/linear_cuda.h"

enum {
    TOKENS_MAX = 16, /* above, dequantise + GEMM is faster (measured) */
    SEGMENT = 64,    /* values; a row is whole segments, a block holds at least one */
    WARPS = 8,
    WARP_ROWS = 16, /* of bnb_linear */
    DX_COLS = 64,
    DX_ROWS = 128, /* a block of bnb_linear_dx takes at a time */
    DX_PARTS_MAX = 16,
};

typedef struct bnb_piece { /* as in bnb_linear.cu */
    const void *codes, *absmax, *nested;
    int64_t end;
} bnb_piece;

static int log2_of(int64_t n)
{
    int k = 0;
    while (INT64_C(1) << k < n)
        k++;
    return k;
}

static bool same_format(const af_tensor *a, const af_tensor *b)
{
    return a->dtype == b->dtype && a->quant->block == b->quant->block &&
           a->quant->nested_block == b->quant->nested_block;
}

static bool readable(const af_linear_group *p)
{
    int64_t rows = 0;
    if (p->pieces == 0 || p->I % SEGMENT || (p->type != AF_DTYPE_BF16 && p->type != AF_DTYPE_F16))
        return false;
    for (int i = 0; i < p->pieces; i++) {
        const af_tensor *w = p->w[i];
        const af_quant *q = w->quant;
        if (!q || (w->dtype != AF_DTYPE_NF4 && w->dtype != AF_DTYPE_FP4) ||
            !same_format(w, p->w[0]) || q->block < SEGMENT || q->block & (q->block - 1) ||
            q->nested_block & (q->nested_block - 1) || p->of->attr.linear.piece_from[i] != rows ||
            (uintptr_t)w->data % AF_CUDA_ACCESS)
            return false;
        rows += w->dim[0];
    }
    return rows == p->O && p->O * p->I / SEGMENT <= INT32_MAX;
}

/* 16-byte rows; the adapter's halves as the kernels want them. */
static bool serves(const af_cuda *cu, const af_linear_group *p, const af_tensor *x)
{
    return p->scratch && !cu->no_bnb && !cu->graph->same_bits && af_rows(x) > 0 &&
           af_rows(x) <= TOKENS_MAX && x->ld % 8 == 0 && (uintptr_t)x->data % AF_CUDA_ACCESS == 0 &&
           readable(p) && (p->parts == 0 || (p->bt && p->down));
}

static af_kernel *kernel(af_cuda *cu, const af_linear_group *p, const char *name, int64_t tokens)
{
    return af_cuda_kernel(cu, "bnb_linear.cu", name,
                          af_cuda_text(cu, "AF_T=%s AF_BOOK=%s_bits AF_MT=%d",
                                       af_cuda_ctype(p->type), af_dtype_name(p->w[0]->dtype),
                                       tokens <= 16   ? 1
                                       : tokens <= 32 ? 2
                                                      : 4));
}

static void arg_pieces(af_cuda *cu, af_launch *l, const af_linear_group *p)
{
    bnb_piece piece[AF_LINEAR_PIECES];
    int64_t end = 0;
    for (int i = 0; i < AF_LINEAR_PIECES; i++) {
        const af_tensor *w = p->w[AF_MIN(i, p->pieces - 1)];
        end += i < p->pieces ? w->dim[0] : 0;
        piece[i] = (bnb_piece){w->data, w->quant->absmax->data,
                               w->quant->nested ? w->quant->nested->data : NULL, end};
    }
    af_arg_bytes(l, piece, sizeof piece);
    for (int i = 0; i < AF_LINEAR_PIECES; i++)
        af_arg_f32_late(cu, l, &p->w[AF_MIN(i, p->pieces - 1)]->quant->offset);
}

static void arg_shape(af_launch *l, const af_linear_group *p, int64_t tokens)
{
    const af_quant *q = p->w[0]->quant;
    af_arg_i32(l, tokens);
    af_arg_i32(l, p->O);
    af_arg_i32(l, p->I);
    af_arg_i32(l, p->parts ? p->R : 0);
    af_arg_i32(l, log2_of(q->block / SEGMENT));
    af_arg_i32(l, q->nested_block ? log2_of(q->nested_block) : -1);
}

bool af_bnb_linear(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const af_tensor *x = n->in[0], *low = p->parts ? n->in[n->n_in - 1] : NULL, *y = n->out[0];
    const int64_t tokens = af_rows(x);
    if (!serves(cu, p, x))
        return false;
    /* a block takes as many rows as leave every multiprocessor with one; the fewer tokens there
     * are, the less it matters that x is read again */
    int ways = WARPS;
    while (ways > (tokens > 16 ? 2 : 4) &&
           p->O / (WARPS / ways * WARP_ROWS * 2) >= (int64_t)cu->sms * 2)
        ways /= 2;
    const int rows = WARPS / ways * WARP_ROWS;
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, p, "bnb_linear", tokens),
                                  (p->O + rows - 1) / rows, 1, 1, WARPS * 32, 0);
    af_arg_ptr(l, y->data);
    af_arg_i64(l, y->ld);
    af_arg_ptr(l, x->data);
    af_arg_i64(l, x->ld);
    arg_pieces(cu, l, p);
    af_arg_ptr(l, p->bias ? p->bias->data : NULL);
    af_arg_ptr(l, low ? low->data : NULL);
    af_arg_i64(l, low ? low->ld : 0);
    af_arg_ptr(l, low ? p->bt->data : NULL);
    arg_shape(l, p, tokens);
    af_arg_i32(l, ways);
    return true;
}

/* Blocks that share a column of dx. Their sums fit the group's part of the workspace: a block has
 * at least DX_ROWS rows, so 64 tokens in f32 take no more than those rows in two bytes. */
static int64_t parts_of(const af_cuda *cu, const af_linear_group *p)
{
    const int64_t want = (int64_t)cu->sms * 2 / (p->I / DX_COLS), most = p->O / DX_ROWS;
    return AF_MAX(AF_MIN(AF_MIN(want, most), (int64_t)DX_PARTS_MAX), (int64_t)1);
}

bool af_bnb_linear_dx(af_cuda *cu, af_node *n, const af_linear_group *p)
{
    const af_tensor *dy = n->in[0], *low = p->parts ? n->in[n->n_in - 1] : NULL, *dx = n->out[0];
    const int64_t tokens = af_rows(dy);
    if (!serves(cu, p, dy))
        return false;
    const int64_t parts = parts_of(cu, p);
    af_launch *l = af_cuda_launch(cu, n, kernel(cu, p, "bnb_linear_dx", tokens), p->I / DX_COLS,
                                  parts, 1, WARPS * 32, 0);
    af_arg_ptr(l, dx->data);
    af_arg_i64(l, dx->ld);
    af_arg_ptr(l, dy->data);
    af_arg_i64(l, dy->ld);
    arg_pieces(cu, l, p);
    af_arg_ptr(l, low ? low->data : NULL);
    af_arg_i64(l, low ? low->ld : 0);
    af_arg_ptr(l, low ? p->down->data : NULL);
    af_arg_i64(l, low ? p->down->ld : 0);
    af_arg_ptr(l, parts > 1 ? cu->work : NULL);
    arg_shape(l, p, tokens);
    if (parts == 1)
        return true;
    l = af_cuda_launch(cu, n, kernel(cu, p, "bnb_join", tokens),
                       af_cuda_grid(cu, tokens * p->I, 256), 1, 1, 256, 0);
    af_arg_ptr(l, dx->data);
    af_arg_i64(l, dx->ld);
    af_arg_ptr(l, cu->work);
    af_arg_i32(l, tokens);
    af_arg_i32(l, p->I);
    af_arg_i32(l, parts);
    return true;
}
