/* binary_cpu.c - the twins of binary.c. */
#include "ops/common/twin.h"

/* Strides of x seen through the shape of y: 0 along stretched axes. */
static void strides_in(const af_tensor *x, const af_tensor *y, int64_t stride[AF_NDIM_MAX])
{
    int64_t s = 1;
    for (int i = 1; i <= y->ndim; i++) {
        const int64_t d = i <= x->ndim ? x->dim[x->ndim - i] : 1;
        stride[y->ndim - i] = d == 1 ? 0 : s;
        s *= d;
    }
}

/* Offset in x of element i of y. */
static int64_t offset_of(int64_t i, const af_tensor *y, const int64_t stride[AF_NDIM_MAX])
{
    int64_t at = 0;
    for (int k = y->ndim - 1; k >= 0; k--) {
        at += i % y->dim[k] * stride[k];
        i /= y->dim[k];
    }
    return at;
}

static double apply(af_binary_kind kind, double a, double b)
{
    switch (kind) {
    case AF_BINARY_ADD:
        return a + b;
    case AF_BINARY_SUB:
        return a - b;
    case AF_BINARY_MUL:
        return a * b;
    case AF_BINARY_DIV:
        return a / b;
    }
    return 0;
}

static void binary_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_tensor *a = n->in[0], *b = n->in[1];
    af_tensor *y = n->out[0];
    int64_t sa[AF_NDIM_MAX], sb[AF_NDIM_MAX];
    strides_in(a, y, sa);
    strides_in(b, y, sb);
    const int64_t count = af_live_count(y);
    for (int64_t i = 0; i < count; i++)
        af_st(y, i,
              apply(n->attr.binary.kind, af_ld(a, offset_of(i, y, sa)),
                    af_ld(b, offset_of(i, y, sb))));
}

static void sum_to_run(const af_node *n, af_cpu *cpu)
{
    double *sum = cpu->work;
    const af_tensor *d = n->in[0];
    af_tensor *y = n->out[0];
    int64_t stride[AF_NDIM_MAX];
    strides_in(y, d, stride);
    const int64_t count = af_live_count(d), out = af_count(y);
    memset(sum, 0, (size_t)out * sizeof *sum);
    for (int64_t i = 0; i < count; i++)
        sum[offset_of(i, d, stride)] += af_ld(d, i);
    for (int64_t i = 0; i < out; i++)
        af_put(n, y, i, sum[i]);
}

static uint64_t sum_to_work(const af_node *n, int threads)
{
    (void)threads;
    return (uint64_t)af_count(n->out[0]) * sizeof(double);
}

static void accum_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    af_tensor *into = n->in[0];
    const int64_t count = af_count(into);
    for (int64_t i = 0; i < count; i++)
        af_st(into, i, (n->first ? 0 : af_ld(into, i)) + af_ld(n->in[1], i));
}

static void fill_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const int64_t count = af_count(n->out[0]);
    for (int64_t i = 0; i < count; i++)
        af_st(n->out[0], i, n->attr.fill.value);
}

const af_cpu_op af_cpu_binary = {binary_run, NULL};
const af_cpu_op af_cpu_sum_to = {sum_to_run, sum_to_work};
const af_cpu_op af_cpu_accum = {accum_run, NULL};
const af_cpu_op af_cpu_fill = {fill_run, NULL};
