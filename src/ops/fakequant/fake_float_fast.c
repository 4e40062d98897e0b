/* fake_float_fast.c - rounding to small float types on all threads, with the bits of the twin. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/fakequant/small_float.h"

typedef struct float_job {
    const af_node *n;
    const af_fast *f;
    float *work;    /* [threads][2][D] */
    uint32_t *most; /* [threads] */
    float all;
} float_job;

static void find_most(void *arg, int64_t from, int64_t to, int share)
{
    const float_job *j = arg;
    const af_tensor *t = j->n->in[0];
    const int64_t D = af_last(t);
    for (int64_t r = from; r < to; r++)
        j->most[share] =
            af_float_most(af_fast_row(j->f, t, r, D, j->work + 2 * share * D), D, j->most[share]);
}

static void round_rows(void *arg, int64_t from, int64_t to, int share)
{
    const float_job *j = arg;
    const af_tensor *t = j->n->in[0], *out = j->n->out[0];
    const int64_t D = af_last(t);
    float *buf = j->work + 2 * share * D;
    for (int64_t r = from; r < to; r++) {
        float *y = af_fast_out_row(out, r, D, buf + D);
        af_round_float_row(j->n, y, af_fast_row(j->f, t, r, D, buf), D, j->all);
        af_fast_put_row(j->f, out, r, D, y);
    }
}

static uint64_t fake_float_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (2 * (uint64_t)af_last(n->in[0]) + 1) * sizeof(float);
}

static void fake_float_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *t = n->in[0];
    const int64_t rows = af_live(t), threads = af_pool_threads(cpu->pool);
    const int64_t counted = n->n_in > 1 ? *(const int32_t *)n->in[1]->data : rows;
    float_job j = {.n = n, .f = af_fast_get(), .work = cpu->work};
    j.most = (uint32_t *)(j.work + threads * 2 * af_last(t));
    memset(j.most, 0, (size_t)threads * sizeof *j.most);
    if (n->attr.fake_float.type == AF_QAT_NVFP4)
        af_pool_run(cpu->pool, AF_MIN(counted, rows), find_most, &j);
    for (int64_t i = 0; i < threads; i++)
        j.all = af_float_of(AF_MAX(af_bits_of(j.all), j.most[i]));
    af_pool_run(cpu->pool, rows, round_rows, &j);
}

static const af_cpu_op op = {fake_float_run, fake_float_work};

const af_cpu_op *af_fake_float_fast(const af_node *n)
{
    return af_fast_type(n->in[0]) && af_fast_type(n->out[0]) ? &op : NULL;
}
