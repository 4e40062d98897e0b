/* cpu_fast.h - the fast CPU versions: one chooser an op, which gives the kernel when it serves the
 * node's types. */
#ifndef AF_CPU_FAST_H
#define AF_CPU_FAST_H

#include "cpu/cpu_kernels.h"
#include "ops/common/cpu_packs.h"

typedef const af_cpu_op *af_fast_chooser(const af_node *n);

#define AF_OP_DEF(NAME, name)
#define AF_OP_FAST(NAME, name) af_fast_chooser af_##name##_fast;
#include "graph/ops.def"

/* f32 or bf16: what the fast versions compute in. */
static inline bool af_fast_type(const af_tensor *t)
{
    return t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16;
}

/* Every value of the node is. */
static inline bool af_fast_all(const af_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (!af_fast_type(n->in[i]))
            return false;
    for (int i = 0; i < n->n_out; i++)
        if (!af_fast_type(n->out[i]))
            return false;
    return true;
}

/* Values [at, at + n) of an f32 or bf16 tensor as f32: the tensor's own memory, or `buf`. */
static inline const float *af_fast_span(const af_fast *f, const af_tensor *t, int64_t at, int64_t n,
                                        float *buf)
{
    if (t->dtype == AF_DTYPE_F32)
        return (const float *)t->data + at;
    f->to_f32(buf, (const uint16_t *)t->data + at, n);
    return buf;
}
/* Row r of such a tensor. */
static inline const float *af_fast_row(const af_fast *f, const af_tensor *t, int64_t r, int64_t n,
                                       float *buf)
{
    return af_fast_span(f, t, r * n, n, buf);
}
/* Where to compute an output row: its own memory, or `buf` for af_fast_put_row to round from. */
static inline float *af_fast_out_row(const af_tensor *t, int64_t r, int64_t n, float *buf)
{
    return t->dtype == AF_DTYPE_F32 ? (float *)t->data + r * n : buf;
}
static inline void af_fast_put_row(const af_fast *f, const af_tensor *t, int64_t r, int64_t n,
                                   const float *buf)
{
    if (t->dtype == AF_DTYPE_BF16)
        f->to_bf16((uint16_t *)t->data + r * n, buf, n);
}
/* Value `at` of a tensor of a plain type. */
static inline void *af_fast_value(const af_tensor *t, int64_t at)
{
    return (uint8_t *)t->data + at * af_dtype_get(t->dtype)->bytes;
}
/* Columns of an activation from `at` on, as an operand. */
static inline af_operand af_fast_operand(const af_tensor *t, int64_t at, bool trans)
{
    return (af_operand){
        .data = af_fast_value(t, at), .ld = af_last(t), .dtype = t->dtype, .trans = trans};
}
static inline void af_fast_decode(const void *weight, int64_t from, int64_t n, float *out)
{
    af_ld_row_f32(weight, from, n, out);
}
/* A weight of any type as an operand with rows of `ld`. */
static inline af_operand af_fast_weight(const af_tensor *t, int64_t ld, bool trans)
{
    const bool plain =
        t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16;
    return (af_operand){.data = t->data,
                        .ld = ld,
                        .dtype = t->dtype,
                        .trans = trans,
                        .decode = plain ? NULL : af_fast_decode,
                        .weight = t,
                        .packed = af_cpu_packed(t, trans)};
}
/* C [M][N] = A B, C being columns of a tensor's rows from `at` on. */
static inline af_gemm af_fast_gemm(int64_t M, int64_t N, int64_t K, af_operand a, af_operand b,
                                   const af_tensor *c, int64_t at)
{
    return (af_gemm){.M = M,
                     .N = N,
                     .K = K,
                     .a = a,
                     .b = b,
                     .c = af_fast_value(c, at),
                     .ldc = af_last(c),
                     .c_dtype = c->dtype,
                     .alpha = 1};
}
/* Its workspace: af_cpu_op.work of nodes that are one or several GEMMs. */
static inline uint64_t af_fast_gemm_work(const af_node *n, int threads)
{
    (void)n;
    return af_fast_get()->gemm_work(threads);
}
static inline void af_fast_gemm_run(const af_gemm *g, const af_cpu *cpu)
{
    af_fast_get()->gemm(g, cpu->pool, cpu->work);
}
#endif
