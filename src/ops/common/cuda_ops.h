/* cuda_ops.h - what the launchers share: types, widths of accesses, grids. */
#ifndef AF_CUDA_OPS_H
#define AF_CUDA_OPS_H

#include "backend/cuda/cuda.h"

enum { AF_CUDA_ACCESS = 16 /* bytes of the widest access */ };

/* The types kernels are built for. */
static inline bool af_cuda_float(const af_tensor *t)
{
    return t->dtype == AF_DTYPE_F32 || t->dtype == AF_DTYPE_BF16 || t->dtype == AF_DTYPE_F16;
}

AF_CHECKED static inline af_status af_cuda_no_type(const af_node *n, const af_tensor *t,
                                                   af_error *err)
{
    return af_fail(err, AF_EUNSUPPORTED, "%s has no CUDA kernel for %s, only for f32, bf16 and f16",
                   af_ops[n->op]->name, af_dtype_name(t->dtype));
}

/* Elements in 16 bytes. */
static inline int af_cuda_wide(const af_tensor *t)
{
    return AF_CUDA_ACCESS / af_dtype_get(t->dtype)->bytes;
}
/* Every row of t starts on 16 bytes, and `vec` divides it. NULL is fine. */
static inline bool af_cuda_rows_fit(const af_tensor *t, int vec)
{
    return !t ||
           (t->ld % vec == 0 && af_last(t) % vec == 0 && (uintptr_t)t->data % AF_CUDA_ACCESS == 0);
}
/* The same for a flat range of n elements. */
static inline bool af_cuda_flat_fits(const af_tensor *t, int vec)
{
    return af_count(t) % vec == 0 && (uintptr_t)t->data % AF_CUDA_ACCESS == 0;
}

/* Blocks of a grid-stride loop over `items`. */
static inline int64_t af_cuda_grid(const af_cuda *cu, int64_t items, int threads)
{
    const int64_t need = (items + threads - 1) / threads, most = (int64_t)cu->sms * 16;
    return AF_MAX(AF_MIN(need, most), INT64_C(1));
}
/* Threads that share `count` elements: the power of two whose accesses hold them, at most a warp.
 */
static inline int af_cuda_lanes(int count, int vec)
{
    int lanes = 1;
    while (lanes < 32 && lanes * vec < count)
        lanes *= 2;
    return lanes;
}
/* Rows cut among blocks: the number of cuts, and *threads so that they are even and whole warps. */
static inline int64_t af_cuda_cuts(int64_t accesses, int most, int *threads)
{
    const int64_t cuts = AF_MAX((accesses + most - 1) / most, INT64_C(1));
    *threads = (int)AF_MAX(AF_ALIGN_UP((accesses + cuts - 1) / cuts, INT64_C(32)), INT64_C(32));
    return cuts;
}

/* y (+)= factor * the sum over parts, in order, of part[p * stride + i], i < n: elementwise_cuda.c
 */
void af_cuda_reduce_parts(af_cuda *cu, af_node *n, const af_tensor *y, const float *part,
                          int64_t stride, int64_t parts, double factor, bool accumulate);
#endif
