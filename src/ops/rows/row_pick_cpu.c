/* row_pick_cpu.c - the twin of row_pick.c. */
#include "backend/cpu/cpu.h"

static void add_row(const af_tensor *x, int64_t row, double *sum)
{
    const int64_t D = af_last(x);
    for (int64_t d = 0; d < D; d++)
        sum[d] += af_ld(x, row * D + d);
}

static void pick_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = *(const af_node *const *)arg;
    const af_cpu *cpu = ((af_cpu *const *)arg)[1];
    const af_tensor *x = n->in[0];
    const int64_t D = af_last(x), bytes = D * (int64_t)af_dtype_get(x->dtype)->bytes;
    const int32_t *index = n->in[1]->data;
    double *sum = (double *)cpu->work + share * D;
    for (int64_t r = from; r < to; r++) {
        const int32_t a = index[2 * r], b = index[2 * r + 1];
        uint8_t *y = (uint8_t *)n->out[0]->data + r * bytes;
        if (a >= 0 && b >= 0) {
            memset(sum, 0, (size_t)D * sizeof *sum);
            add_row(x, a, sum);
            add_row(x, b, sum);
            af_st_row(n->out[0], r * D, D, sum);
        } else if (a >= 0 || b >= 0) {
            memcpy(y, (const uint8_t *)x->data + AF_MAX(a, b) * bytes, (size_t)bytes);
        } else {
            memset(y, 0, (size_t)bytes);
        }
    }
}

static void row_pick_run(const af_node *n, af_cpu *cpu)
{
    const void *arg[2] = {n, cpu};
    af_pool_run(cpu->pool, af_live(n->out[0]), pick_rows, arg);
}

static uint64_t row_pick_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)af_last(n->in[0]) * sizeof(double);
}

const af_cpu_op af_cpu_row_pick = {row_pick_run, row_pick_work};
