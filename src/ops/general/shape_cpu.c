/* shape_cpu.c - the twins of shape.c. Reshape has none: it is a view. */
#include "ops/common/twin.h"

static void transpose_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_tensor *x = n->in[0];
    af_tensor *y = n->out[0];
    int64_t of_axis[AF_NDIM_MAX], stride[AF_NDIM_MAX], s = 1;
    for (int k = x->ndim - 1; k >= 0; k--) {
        of_axis[k] = s;
        s *= x->dim[k];
    }
    for (int k = 0; k < y->ndim; k++)
        stride[k] = of_axis[n->attr.transpose.perm[k]];
    const int64_t count = af_live_count(y);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, rest = i;
        for (int k = y->ndim - 1; k >= 0; k--) {
            at += rest % y->dim[k] * stride[k];
            rest /= y->dim[k];
        }
        af_put(n, y, i, af_ld(x, at));
    }
}

static void slice_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_axis_view y = af_around(n->out[0], n->attr.slice.axis);
    const int64_t len = n->in[0]->dim[n->attr.slice.axis], from = n->attr.slice.from;
    for (int64_t o = 0; o < y.outer; o++)
        for (int64_t i = 0; i < y.len * y.inner; i++)
            af_put(n, n->out[0], o * y.len * y.inner + i,
                   af_ld(n->in[0], (o * len + from) * y.inner + i));
}

static void slice_bwd_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_axis_view x = af_around(n->out[0], n->attr.slice.axis);
    const int64_t from = n->attr.slice.from, count = n->attr.slice.count;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t k = 0; k < x.len; k++)
            for (int64_t i = 0; i < x.inner; i++) {
                const bool inside = k >= from && k < from + count;
                af_put(n, n->out[0], (o * x.len + k) * x.inner + i,
                       inside ? af_ld(n->in[0], (o * count + k - from) * x.inner + i) : 0);
            }
}

static void concat_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int axis = n->attr.slice.axis;
    const int64_t total = n->out[0]->dim[axis];
    int64_t from = 0;
    for (int p = 0; p < n->n_in; p++) {
        const af_axis_view x = af_around(n->in[p], axis);
        for (int64_t o = 0; o < x.outer; o++)
            for (int64_t i = 0; i < x.len * x.inner; i++)
                af_st(n->out[0], (o * total + from) * x.inner + i,
                      af_ld(n->in[p], o * x.len * x.inner + i));
        from += n->in[p]->dim[axis];
    }
}

const af_cpu_op af_cpu_transpose = {transpose_run, NULL};
const af_cpu_op af_cpu_slice = {slice_run, NULL};
const af_cpu_op af_cpu_slice_bwd = {slice_bwd_run, NULL};
const af_cpu_op af_cpu_concat = {concat_run, NULL};
