/* attention_fast.h - what the fast attention kernels, forward and backward, share. */
#ifndef AF_ATTENTION_FAST_H
#define AF_ATTENTION_FAST_H

#include "ops/attention/attention_in.h"
#include "ops/common/cpu_fast.h"

/* Queries by keys of a block of scores, and how many heads that share keys are stacked in it (so
 * that keys and values are packed once for all of them). */
enum {
    AF_ATTN_Q = 64,
    AF_ATTN_K = 256,
    AF_ATTN_HEADS = 4,
    AF_ATTN_ROWS = AF_ATTN_Q * AF_ATTN_HEADS
};

typedef struct af_attn {
    const af_node *n;
    const af_fast *f;
    af_attention_inputs in;
    const af_tensor *qkv, *cache; /* cache: NULL unless the node has one */
    const int32_t *bounds, *start;
    int64_t S, H, K, E, width;
    int64_t share;        /* floats of a thread before its GEMM workspace */
    uint64_t share_bytes; /* all of a thread's */
    void *work;
} af_attn;

static inline uint64_t af_attn_share_bytes(int64_t floats)
{
    return AF_ALIGN_UP((uint64_t)floats * sizeof(float), UINT64_C(64)) +
           af_fast_get()->gemm_work(1);
}

static inline af_attn af_attn_of(const af_node *n, const af_cpu *cpu, int64_t share_floats)
{
    const af_attention_inputs in = af_attention_in(n);
    af_attn a = {.n = n,
                 .f = af_fast_get(),
                 .in = in,
                 .qkv = in.qkv,
                 .cache = in.cache,
                 .bounds = af_attention_bounds(&in),
                 .start = in.start ? in.start->data : NULL,
                 .S = in.S,
                 .H = in.H,
                 .K = in.K,
                 .E = in.E,
                 .width = in.width,
                 .work = cpu->work};
    a.share = (share_floats + 15) / 16 * 16;
    a.share_bytes = af_attn_share_bytes(share_floats);
    return a;
}

/* Keys [from, to) that the query at position q may see of `keys`. */
static inline void af_attn_visible(const af_node *n, int64_t q, int64_t keys, int64_t *from,
                                   int64_t *to)
{
    const int window = n->attr.attention.window, chunk = n->attr.attention.chunk;
    const bool causal = n->attr.attention.causal || n->op == AF_OP_ATTENTION_CACHED;
    *from = chunk ? q / chunk * chunk : window && q - window + 1 > 0 ? q - window + 1 : 0;
    *to = causal ? q + 1 : keys;
}

/* Rows from `row` of one head (of q, k or v, counted through the row). */
static inline af_operand af_attn_head(const af_attn *a, int64_t head, int64_t row)
{
    af_operand o = {.ld = a->width, .dtype = a->qkv->dtype};
    o.data = (const uint8_t *)a->qkv->data +
             (row * a->width + head * a->E) * (int64_t)af_dtype_get(o.dtype)->bytes;
    return o;
}

/* Rows [row, row+m) of heads [h, h+heads), each `width` apart, head after head in `buf`. */
static inline af_operand af_attn_stack(const af_attn *a, const af_tensor *t, int64_t width,
                                       int64_t row, int64_t m, int64_t h, int64_t heads, void *buf)
{
    const int64_t size = (int64_t)af_dtype_get(t->dtype)->bytes;
    uint8_t *to = buf;
    for (int64_t k = h; k < h + heads; k++)
        for (int64_t i = row; i < row + m; i++, to += a->E * size)
            memcpy(to, (const uint8_t *)t->data + (i * width + k * a->E) * size,
                   (size_t)(a->E * size));
    return (af_operand){.data = buf, .ld = a->E, .dtype = t->dtype};
}

/* What scores are multiplied with before and after they leave the GEMM: a soft cap wants them
 * scaled, the exponential scales by itself. */
static inline float af_attn_before(const af_attn *a)
{
    return a->n->attr.attention.softcap > 0 ? (float)a->n->attr.attention.scale : 1.0f;
}
static inline float af_attn_after(const af_attn *a)
{
    return a->n->attr.attention.softcap > 0 ? 1.0f : (float)a->n->attr.attention.scale;
}

/* A block of f32 numbers [rows][ld] as an operand: rounded to `half` when the values are bf16. */
static inline af_operand af_attn_sums(const af_attn *a, const float *s, uint16_t *half,
                                      int64_t count, int64_t ld)
{
    af_operand o = {.data = s, .ld = ld, .dtype = AF_DTYPE_F32};
    if (a->qkv->dtype == AF_DTYPE_BF16) {
        a->f->to_bf16(half, s, count);
        o.data = half;
        o.dtype = AF_DTYPE_BF16;
    }
    return o;
}

/* c [M][N] f32 = alpha * x y, or added; in the calling thread. `skinny`: rows of generation. */
static inline void af_attn_gemm(const af_attn *a, af_operand x, af_operand y, int64_t M, int64_t N,
                                int64_t K, float *c, int64_t ldc, float alpha, bool add,
                                bool skinny, void *work)
{
    const af_gemm g = {.M = M,
                       .N = N,
                       .K = K,
                       .a = x,
                       .b = y,
                       .c = c,
                       .ldc = ldc,
                       .c_dtype = AF_DTYPE_F32,
                       .alpha = alpha,
                       .add = add,
                       .skinny = skinny};
    a->f->gemm(&g, NULL, work);
}

static inline void af_attn_product(const af_attn *a, af_operand x, af_operand y, int64_t M,
                                   int64_t N, int64_t K, float *c, int64_t ldc, float alpha,
                                   bool add, void *work)
{
    af_attn_gemm(a, x, y, M, N, K, c, ldc, alpha, add, false, work);
}

/* Rows outside every sequence. */
static inline void af_attn_zero_rows(const af_attn *a)
{
    const int64_t N = af_live(a->qkv), first = a->bounds[0], last = a->bounds[a->S];
    for (int k = 0; k < a->n->n_out; k++) {
        const af_tensor *t = a->n->out[k];
        const int64_t row = af_last(t) * (int64_t)af_dtype_get(t->dtype)->bytes;
        memset(t->data, 0, (size_t)(first * row));
        memset((uint8_t *)t->data + last * row, 0, (size_t)((N - last) * row));
    }
}
#endif
