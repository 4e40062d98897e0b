/* layernorm_cpu.c - the twins of layernorm.c. */
#include "ops/common/twin.h"
#include "ops/norm/norm_in.h"

#include <math.h>

static void layernorm_run(const af_node *n, af_cpu *cpu)
{
    const af_norm_inputs in = af_norm_in(n);
    (void)cpu;
    const af_tensor *x = in.x, *w = in.w, *b = in.b;
    const int64_t N = af_norm_rows(x), D = af_last(x);
    for (int64_t r = 0; r < N; r++) {
        double mean = 0, var = 0;
        for (int64_t d = 0; d < D; d++)
            mean += af_ld(x, r * D + d) / (double)D;
        for (int64_t d = 0; d < D; d++) {
            const double v = af_ld(x, r * D + d) - mean;
            var += v * v / (double)D;
        }
        const double rstd = 1 / sqrt(var + n->attr.norm.eps);
        for (int64_t d = 0; d < D; d++)
            af_st(n->out[0], r * D + d,
                  (af_ld(x, r * D + d) - mean) * rstd * af_ld(w, d) + af_ld(b, d));
        af_st(n->out[1], r, mean);
        af_st(n->out[2], r, rstd);
    }
}

static void layernorm_dx(const af_node *n, int64_t r, int64_t D)
{
    const af_norm_inputs in = af_norm_in(n);
    const af_tensor *x = in.x, *w = in.w, *dy = in.dy;
    const double mean = af_ld(in.mean, r), rstd = af_ld(in.rstd, r);
    double q_mean = 0, qh_mean = 0;
    for (int64_t d = 0; d < D; d++) {
        const double h = (af_ld(x, r * D + d) - mean) * rstd;
        const double q = af_ld(dy, r * D + d) * af_ld(w, d);
        q_mean += q / (double)D;
        qh_mean += q * h / (double)D;
    }
    for (int64_t d = 0; d < D; d++) {
        const double h = (af_ld(x, r * D + d) - mean) * rstd;
        const double q = af_ld(dy, r * D + d) * af_ld(w, d);
        af_st(n->out[0], r * D + d, rstd * (q - q_mean - h * qh_mean));
    }
}

static void layernorm_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_norm_inputs in = af_norm_in(n);
    (void)cpu;
    const af_tensor *x = in.x, *dy = in.dy;
    const int64_t N = af_norm_rows(x), D = af_last(x);
    for (int64_t r = 0; r < N; r++)
        layernorm_dx(n, r, D);
    for (int64_t d = 0; n->n_out > 1 && d < D; d++) {
        double dw = 0, db = 0;
        for (int64_t r = 0; r < N; r++) {
            const double g = af_ld(dy, r * D + d);
            dw += g * (af_ld(x, r * D + d) - af_ld(in.mean, r)) * af_ld(in.rstd, r);
            db += g;
        }
        af_st(n->out[1], d, dw);
        af_st(n->out[2], d, db);
    }
}

const af_cpu_op af_cpu_layernorm = {layernorm_run, NULL};
const af_cpu_op af_cpu_layernorm_bwd = {layernorm_bwd_run, NULL};
