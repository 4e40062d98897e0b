/* fakequant_cpu.c - the twins of fakequant.c. */
#include "ops/common/twin.h"
#include "ops/fakequant/grid.h"

static af_grid grid_of(const af_node *n, int64_t from, int64_t to)
{
    double min = 0, max = 0;
    for (int64_t i = from; i < to; i++) {
        min = fmin(min, af_ld(n->in[0], i));
        max = fmax(max, af_ld(n->in[0], i));
    }
    return af_grid_of(n->attr.fake_quant.bits, n->attr.fake_quant.symmetric, min, max);
}

static void fake_quant_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_tensor *x = n->in[0];
    uint8_t *mask = n->out[1]->data;
    const int64_t group = n->attr.fake_quant.group, count = af_live_count(x);
    const int64_t len = group > 0 ? group : group < 0 ? af_last(x) : count;
    for (int64_t from = 0; from < count; from += len) {
        const af_grid q = grid_of(n, from, from + len);
        for (int64_t i = from; i < from + len; i++)
            af_st(n->out[0], i, af_grid_round(&q, af_ld(x, i), &mask[i]));
    }
}

static void fake_quant_bwd_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const uint8_t *mask = n->in[0]->data;
    const int64_t count = af_live_count(n->out[0]);
    for (int64_t i = 0; i < count; i++)
        af_st(n->out[0], i, mask[i] ? af_ld(n->in[1], i) : 0);
}

static void ternary_run(const af_node *n, af_cpu *cpu)
{
    (void)cpu;
    const af_tensor *w = n->in[0];
    const int64_t count = af_count(w);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += fabs(af_ld(w, i));
    const double mean = fmax(sum / (double)AF_MAX(count, INT64_C(1)), 1e-5);
    for (int64_t i = 0; i < count; i++)
        af_st(n->out[0], i, mean * fmin(fmax(rint(af_ld(w, i) / mean), -1), 1));
}

const af_cpu_op af_cpu_ternary = {ternary_run, NULL};
const af_cpu_op af_cpu_fake_quant = {fake_quant_run, NULL};
const af_cpu_op af_cpu_fake_quant_bwd = {fake_quant_bwd_run, NULL};
