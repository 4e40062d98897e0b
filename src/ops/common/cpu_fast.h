/* cpu_fast.h - the fast CPU versions: one chooser an op, which gives the kernel when it serves the
 * node's types. */
#ifndef AF_CPU_FAST_H
#define AF_CPU_FAST_H

#include "cpu/gemm/fast.h"
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

/* Row r of a f32 or bf16 tensor as f32: the tensor's own memory, or `buf`. */
static inline const float *af_fast_row(const af_fast *f, const af_tensor *t, int64_t r, int64_t n,
                                       float *buf)
{
    if (t->dtype == AF_DTYPE_F32)
        return (const float *)t->data + r * n;
    f->to_f32(buf, (const uint16_t *)t->data + r * n, n);
    return buf;
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
/* An activation as an operand. */
static inline af_operand af_fast_operand(const af_tensor *t, bool trans)
{
    return (af_operand){t->data, af_last(t), t->dtype, trans, NULL, false, NULL};
}
/* A weight of any type as an operand with rows of `ld`. */
static inline af_operand af_fast_weight(const af_tensor *t, int64_t ld, bool trans)
{
    const bool plain =
        t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16;
    return (af_operand){.data = t->data,
                        .ld = ld,
                        .dtype = plain ? t->dtype : AF_DTYPE_F32,
                        .trans = trans,
                        .weight = plain ? NULL : t,
                        .packed = af_cpu_packed(t, trans)};
}
#endif
