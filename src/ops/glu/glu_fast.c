/* glu_fast.c - the gated unit of glu.c row by row in f32. */
#include "ops/common/cpu_fast.h"

#include <math.h>

typedef struct glu_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t F;
} glu_job;

static void clamped_row(float *y, const float *gate, const float *up, float limit, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = fminf(gate[i], limit), u = fmaxf(fminf(up[i], limit), -limit);
        y[i] = (u + 1.0f) * g / (1.0f + expf(-1.702f * g));
    }
}

/* dgate may be gate itself, dup up. */
static void clamped_bwd_row(float *dgate, float *dup, const float *gate, const float *up,
                            const float *dy, float limit, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = fminf(gate[i], limit), u = fmaxf(fminf(up[i], limit), -limit);
        const float s = 1.0f / (1.0f + expf(-1.702f * g)), d = dy[i];
        const bool gate_in = gate[i] <= limit, up_in = fabsf(up[i]) <= limit;
        dgate[i] = gate_in ? d * (u + 1.0f) * s * (1.0f + 1.702f * g * (1.0f - s)) : 0;
        dup[i] = up_in ? d * g * s : 0;
    }
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const glu_job *j = arg;
    const float limit = (float)j->n->attr.glu.limit;
    float *x = j->work + share * 5 * j->F, *out = x + 2 * j->F;
    for (int64_t r = from; r < to; r++) {
        const float *gate = af_fast_row(j->f, j->n->in[0], r, 2 * j->F, x);
        float *y = af_fast_out_row(j->n->out[0], r, j->F, out);
        if (limit > 0)
            clamped_row(y, gate, gate + j->F, limit, j->F);
        else
            j->f->glu(y, gate, gate + j->F, j->n->attr.glu.act, j->F);
        af_fast_put_row(j->f, j->n->out[0], r, j->F, y);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const glu_job *j = arg;
    const int64_t F = j->F;
    const float limit = (float)j->n->attr.glu.limit;
    float *x = j->work + share * 5 * F, *d = x + 2 * F, *out = d + F;
    for (int64_t r = from; r < to; r++) {
        const float *gate = af_fast_row(j->f, j->n->in[0], r, 2 * F, x);
        const float *dy = af_fast_row(j->f, j->n->in[1], r, F, d);
        float *dgate = af_fast_out_row(j->n->out[0], r, 2 * F, out);
        if (limit > 0)
            clamped_bwd_row(dgate, dgate + F, gate, gate + F, dy, limit, F);
        else
            j->f->glu_bwd(dgate, dgate + F, gate, gate + F, dy, j->n->attr.glu.act, F);
        af_fast_put_row(j->f, j->n->out[0], r, 2 * F, dgate);
    }
}

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * 5 * (uint64_t)af_last(n->in[0]) / 2 * sizeof(float);
}

static void glu_run(const af_node *n, af_cpu *cpu)
{
    glu_job j = {n, af_fast_get(), cpu->work, af_last(n->in[0]) / 2};
    af_pool_run(cpu->pool, af_live(n->in[0]), forward_rows, &j);
}
static void glu_bwd_run(const af_node *n, af_cpu *cpu)
{
    glu_job j = {n, af_fast_get(), cpu->work, af_last(n->in[0]) / 2};
    af_pool_run(cpu->pool, af_live(n->in[0]), backward_rows, &j);
}

static const af_cpu_op glu_op = {glu_run, work}, bwd_op = {glu_bwd_run, work};

const af_cpu_op *af_glu_fast(const af_node *n) { return af_fast_all(n) ? &glu_op : NULL; }
const af_cpu_op *af_glu_bwd_fast(const af_node *n) { return af_fast_all(n) ? &bwd_op : NULL; }
