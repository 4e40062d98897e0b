/* xielu_fast.c - xielu.c and its gradient in f32, rows as they come. The gradients of its two
 * slopes stay with the twin. */
#include "ops/common/cpu_fast.h"
#include "ops/xielu/xielu_in.h"

typedef struct xielu_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t width;
    af_xielu_row k;
} xielu_job;

static void rows(void *arg, int64_t from, int64_t to, int share)
{
    const xielu_job *j = arg;
    const af_xielu_inputs in = af_xielu_in(j->n);
    const int64_t D = j->width;
    float *xbuf = j->work + share * 3 * D, *dbuf = xbuf + D, *ybuf = dbuf + D;
    for (int64_t r = from; r < to; r++) {
        const float *x = af_fast_row(j->f, in.x, r, D, xbuf);
        float *y = af_fast_out_row(j->n->out[0], r, D, ybuf);
        if (in.dy)
            j->f->xielu_bwd(y, x, af_fast_row(j->f, in.dy, r, D, dbuf), &j->k, D);
        else
            j->f->xielu(y, x, &j->k, D);
        af_fast_put_row(j->f, j->n->out[0], r, D, y);
    }
}

static void xielu_run(const af_node *n, af_cpu *cpu)
{
    const af_xielu_inputs in = af_xielu_in(n);
    const double beta = af_ld(in.beta, 0);
    xielu_job j = {.n = n, .f = af_fast_get(), .work = cpu->work, .width = af_last(in.x)};
    j.k = (af_xielu_row){.a = (float)af_xielu_softplus(af_ld(in.p, 0)),
                         .c = (float)(beta + af_xielu_softplus(af_ld(in.n, 0))),
                         .beta = (float)beta,
                         .eps = (float)af_ld(in.eps, 0)};
    af_pool_run(cpu->pool, af_live(in.x), rows, &j);
}

static uint64_t xielu_work(const af_node *n, int threads)
{
    return (uint64_t)threads * 3 * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static const af_cpu_op op = {xielu_run, xielu_work};

const af_cpu_op *af_xielu_fast(const af_node *n)
{
    const af_xielu_inputs in = af_xielu_in(n);
    return af_fast_type(in.x) && af_fast_type(n->out[0]) && (!in.dy || af_fast_type(in.dy)) ? &op
                                                                                            : NULL;
}
const af_cpu_op *af_xielu_bwd_fast(const af_node *n) { return af_xielu_fast(n); }
