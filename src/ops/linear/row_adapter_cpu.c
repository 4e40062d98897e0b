/* row_adapter_cpu.c - the twins of row_adapter.c. */
#include "backend/cpu/cpu.h"
#include "ops/linear/linear_in.h"

static void down_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *x = n->in[0], *a = n->in[2];
    const int32_t *which = n->in[1]->data, *rank = n->in[4]->data;
    const int64_t I = af_last(x), PR = af_last(n->out[0]);
    const int P = n->attr.linear.parts;
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int p = 0; which[r] >= 0 && p < P; p++)
            for (int j = 0; j < rank[which[r] * P + p]; j++) {
                const int64_t at = n->attr.linear.part[p].rank_from + j;
                double s = 0;
                for (int64_t i = 0; i < I; i++)
                    s += af_ld(x, r * I + i) * af_ld(a, (which[r] * PR + at) * I + i);
                af_st(n->out[0], r * PR + at, s * af_ld(n->in[3], which[r] * P + p));
            }
}

static void up_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *y = n->in[0], *xa = n->in[1], *b = n->in[3];
    const int32_t *which = n->in[2]->data, *rank = n->in[4]->data;
    const int64_t O = af_last(y), PR = af_last(xa);
    const int P = n->attr.linear.parts;
    (void)share;
    for (int64_t r = from; r < to; r++) {
        for (int64_t o = 0; o < O; o++)
            af_st(n->out[0], r * O + o, af_ld(y, r * O + o));
        for (int p = 0; which[r] >= 0 && p < P; p++) {
            const af_adapter_part *q = &n->attr.linear.part[p];
            const int64_t first = which[r] * af_last(b) + af_linear_part_at(n, p);
            for (int64_t o = 0; o < q->out_rows; o++) {
                const int64_t at = r * O + q->out_from + o;
                double s = af_ld(n->out[0], at);
                for (int j = 0; j < rank[which[r] * P + p]; j++)
                    s += af_ld(xa, r * PR + q->rank_from + j) * af_ld(b, first + o * q->rank + j);
                af_st(n->out[0], at, s);
            }
        }
    }
}

static void down_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), down_rows, (void *)n);
}

static void up_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), up_rows, (void *)n);
}

const af_cpu_op af_cpu_row_down = {down_run, NULL};
const af_cpu_op af_cpu_row_up = {up_run, NULL};
