/* glu_cpu.c - the twins of glu.c. */
#include "backend/cpu/cpu.h"
#include "ops/general/activation.h"

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *x = n->in[0];
    const int64_t F = af_last(n->out[0]);
    const double limit = n->attr.glu.limit;
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t f = 0; f < F; f++) {
            const double gate = af_ld(x, 2 * r * F + f), up = af_ld(x, 2 * r * F + F + f);
            af_st(n->out[0], r * F + f,
                  limit > 0 ? af_glu_clamped_value(gate, up, limit)
                            : af_act_value(n->attr.glu.act, gate) * up);
        }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *x = n->in[0];
    const int64_t F = af_last(n->in[1]);
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t f = 0; f < F; f++) {
            const int64_t at = 2 * r * F + f;
            const double gate = af_ld(x, at), up = af_ld(x, at + F),
                         dy = af_ld(n->in[1], r * F + f);
            double dgate = up * af_act_slope(n->attr.glu.act, gate),
                   dup = af_act_value(n->attr.glu.act, gate);
            if (n->attr.glu.limit > 0)
                af_glu_clamped_slopes(gate, up, n->attr.glu.limit, &dgate, &dup);
            af_st(n->out[0], at, dy * dgate);
            af_st(n->out[0], at + F, dy * dup);
        }
}

static void glu_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), forward_rows, (void *)n);
}

static void glu_bwd_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), backward_rows, (void *)n);
}

const af_cpu_op af_cpu_glu = {glu_run, NULL};
const af_cpu_op af_cpu_glu_bwd = {glu_bwd_run, NULL};
