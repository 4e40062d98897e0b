/* gated_norm_cpu.c - the twins of gated_norm.c. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"
#include "ops/state/gated_norm_in.h"

static double silu(double z) { return af_act_value(AF_ACT_SILU, z); }

/* What is normalised of value i. */
static double inner(const af_node *n, const af_gated_norm_inputs *in, int64_t i)
{
    return af_ld(in->x, i) * (n->attr.norm.gate_first ? silu(af_ld(in->gate, i)) : 1.0);
}

/* Group i of all rows' groups. */
static void forward_group(const af_node *n, const af_gated_norm_inputs *in, int64_t i)
{
    const bool first = n->attr.norm.gate_first;
    double ss = 0;
    for (int64_t e = 0; e < in->E; e++)
        ss += inner(n, in, i * in->E + e) * inner(n, in, i * in->E + e);
    const double r = 1.0 / sqrt(ss / (double)in->E + n->attr.norm.eps);
    af_st(n->out[1], i, r);
    for (int64_t e = 0; e < in->E; e++) {
        const int64_t at = i * in->E + e;
        af_st(n->out[0], at,
              inner(n, in, at) * r * af_ld(in->w, e) * (first ? 1.0 : silu(af_ld(in->gate, at))));
    }
}

static void backward_group(const af_node *n, const af_gated_norm_inputs *in, int64_t i)
{
    const bool first = n->attr.norm.gate_first;
    const double r = af_ld(in->rstd, i);
    double mean = 0;
    for (int64_t e = 0; e < in->E; e++) {
        const int64_t at = i * in->E + e;
        const double z = af_ld(in->gate, at),
                     a = af_ld(in->dy, at) * af_ld(in->w, e) * (first ? 1.0 : silu(z));
        mean += a * inner(n, in, at) * r / (double)in->E;
    }
    for (int64_t e = 0; e < in->E; e++) {
        const int64_t at = i * in->E + e;
        const double z = af_ld(in->gate, at), x = af_ld(in->x, at), dy = af_ld(in->dy, at),
                     w = af_ld(in->w, e), h = inner(n, in, at) * r,
                     dh = r * (dy * w * (first ? 1.0 : silu(z)) - h * mean),
                     slope = af_act_slope(AF_ACT_SILU, z);
        af_st(n->out[0], at, first ? dh * silu(z) : dh);
        af_st(n->out[1], at, first ? dh * x * slope : dy * h * w * slope);
    }
}

static void groups(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    (void)share;
    for (int64_t i = from; i < to; i++)
        (in.dy ? backward_group : forward_group)(n, &in, i);
}

/* Columns of the weight, each over all groups in order. */
static void weight_columns(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    const int64_t N = af_live(in.x) * (in.D / in.E);
    (void)share;
    for (int64_t e = from; e < to; e++) {
        double sum = 0;
        for (int64_t i = 0; i < N; i++) {
            const int64_t at = i * in.E + e;
            const double gate = n->attr.norm.gate_first ? 1.0 : silu(af_ld(in.gate, at));
            sum += af_ld(in.dy, at) * gate * inner(n, &in, at) * af_ld(in.rstd, i);
        }
        af_put(n, n->out[0], e, sum);
    }
}

static void gated_norm_run(const af_node *n, af_cpu *cpu)
{
    const af_gated_norm_inputs in = af_gated_norm_in(n);
    af_pool_run(cpu->pool, af_live(in.x) * (in.D / in.E), groups, (void *)n);
}
static void gated_norm_dw_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_gated_norm_in(n).E, weight_columns, (void *)n);
}

const af_cpu_op af_cpu_gated_norm = {gated_norm_run, NULL};
const af_cpu_op af_cpu_gated_norm_bwd = {gated_norm_run, NULL};
const af_cpu_op af_cpu_gated_norm_dw = {gated_norm_dw_run, NULL};
