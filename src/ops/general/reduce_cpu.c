/* reduce_cpu.c - the twins of reduce.c. */
#include "ops/common/twin.h"

static double reduce_one(const af_tensor *x, af_reduce_kind kind, int64_t at, int64_t len,
                         int64_t step)
{
    double r = kind == AF_REDUCE_MAX && len ? af_ld(x, at) : 0;
    for (int64_t k = 0; k < len; k++) {
        const double v = af_ld(x, at + k * step);
        if (kind != AF_REDUCE_MAX)
            r += v;
        else if (v > r || v != v) /* NaN stays visible */
            r = v;
    }
    return kind == AF_REDUCE_MEAN && len ? r / (double)len : r;
}

static void reduce_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int axis = n->attr.reduce.axis;
    const af_axis_view x = af_around(n->in[0], axis);
    const int64_t stride = n->in[0]->dim[axis] * x.inner;
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < x.inner; i++)
            af_put(n, n->out[0], o * x.inner + i,
                   reduce_one(n->in[0], n->attr.reduce.kind, o * stride + i, x.len, x.inner));
}

static void reduce_bwd_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_reduce_kind kind = n->attr.reduce.kind;
    const af_axis_view x = af_around(n->out[0], n->attr.reduce.axis);
    const af_tensor *dy = n->in[2];
    for (int64_t o = 0; o < x.outer; o++)
        for (int64_t i = 0; i < x.inner; i++) {
            const int64_t r = o * x.inner + i;
            const double d = af_ld(dy, r);
            bool found = false; /* the first maximum takes all */
            for (int64_t k = 0; k < x.len; k++) {
                const int64_t at = (o * x.len + k) * x.inner + i;
                const bool hit =
                    kind == AF_REDUCE_MAX && !found && af_ld(n->in[0], at) == af_ld(n->in[1], r);
                found |= hit;
                if (kind == AF_REDUCE_MAX)
                    af_put(n, n->out[0], at, hit ? d : 0);
                else
                    af_put(n, n->out[0], at, kind == AF_REDUCE_MEAN ? d / (double)x.len : d);
            }
        }
}

const af_cpu_op af_cpu_reduce = {reduce_run, NULL};
const af_cpu_op af_cpu_reduce_bwd = {reduce_bwd_run, NULL};
