/* fakequant_fast.c - rounding of groups in f32, on all threads: the arithmetic of the twin, without
 * its conversions of every value. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/fakequant/grid.h"

enum { SPAN = 4096 }; /* elements of one piece of work, or one group */

typedef struct quant_job {
    const af_node *n;
    int64_t len, groups;
} quant_job;

static void round_groups(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const quant_job *j = arg;
    const af_node *n = j->n;
    const int64_t step = AF_MAX(SPAN / j->len, INT64_C(1));
    for (int64_t g = from * step; g < AF_MIN(to * step, j->groups); g++) {
        const float *x = (const float *)n->in[0]->data + g * j->len;
        float *y = (float *)n->out[0]->data + g * j->len;
        uint8_t *mask = (uint8_t *)n->out[1]->data + g * j->len;
        double min = 0, max = 0;
        for (int64_t i = 0; i < j->len; i++) {
            min = fmin(min, (double)x[i]);
            max = fmax(max, (double)x[i]);
        }
        const af_grid q =
            af_grid_of(n->attr.fake_quant.bits, n->attr.fake_quant.symmetric, min, max);
        for (int64_t i = 0; i < j->len; i++)
            y[i] = (float)af_grid_round(&q, (double)x[i], &mask[i]);
    }
}

static void fake_quant_run(const af_node *n, af_cpu *cpu)
{
    const int64_t group = n->attr.fake_quant.group, count = af_live_count(n->in[0]);
    quant_job j = {.n = n, .len = group > 0 ? group : af_last(n->in[0])};
    j.groups = j.len ? count / j.len : 0;
    const int64_t step = j.len ? AF_MAX(SPAN / j.len, INT64_C(1)) : 1;
    af_pool_run(cpu->pool, (j.groups + step - 1) / step, round_groups, &j);
}

static const af_cpu_op op = {fake_quant_run, NULL};

const af_cpu_op *af_fake_quant_fast(const af_node *n)
{
    return n->in[0]->dtype == AF_DTYPE_F32 && n->attr.fake_quant.group != 0 ? &op : NULL;
}
