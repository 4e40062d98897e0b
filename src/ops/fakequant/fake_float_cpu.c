/* fake_float_cpu.c - the twin of fake_float.c. */
#include "ops/common/twin.h"
#include "ops/fakequant/small_float.h"

static uint64_t fake_float_work(const af_node *n, int threads)
{
    (void)threads;
    return 2 * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static void load_row(const af_tensor *t, int64_t r, float *x)
{
    for (int64_t i = 0, n = af_last(t); i < n; i++)
        x[i] = (float)af_ld(t, r * n + i);
}

static void fake_float_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *t = n->in[0];
    const int64_t D = af_last(t), rows = af_live(t);
    const int64_t counted = n->n_in > 1 ? *(const int32_t *)n->in[1]->data : rows;
    float *x = cpu->work, *y = x + D;
    uint32_t most = 0;
    for (int64_t r = 0; r < AF_MIN(counted, rows); r++) {
        load_row(t, r, x);
        most = af_float_most(x, D, most);
    }
    for (int64_t r = 0; r < rows; r++) {
        load_row(t, r, x);
        af_round_float_row(n, y, x, D, af_float_of(most));
        for (int64_t i = 0; i < D; i++)
            af_st(n->out[0], r * D + i, y[i]);
    }
}

const af_cpu_op af_cpu_fake_float = {fake_float_run, fake_float_work};
