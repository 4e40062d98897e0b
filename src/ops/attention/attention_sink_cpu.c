/* attention_sink_cpu.c - the twins of attention_sink (attention.c). */
#include "backend/cpu/cpu.h"

#include <math.h>

typedef struct sink_job {
    const af_node *n;
    const af_tensor *o, *lse, *sinks, *dy; /* dy: of the backward */
    int64_t H, E, rows;
    double *work;
} sink_job;

static sink_job sink_of(const af_node *n, void *work)
{
    return (sink_job){.n = n,
                      .o = n->in[0],
                      .lse = n->in[1],
                      .sinks = n->in[2],
                      .dy = n->n_in > 3 ? n->in[3] : NULL,
                      .H = n->attr.attention.heads,
                      .E = n->attr.attention.head_dim,
                      .rows = af_live(n->in[0]),
                      .work = work};
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const sink_job *s = arg;
    double *o = s->work + share * 2 * s->E;
    for (int64_t i = from * s->H; i < to * s->H; i++) {
        const double lse = af_ld(s->lse, i), sink = af_ld(s->sinks, i % s->H);
        const double both = fmax(lse, sink) + log1p(exp(-fabs(lse - sink)));
        const double keep = exp(lse - both);
        af_ld_row(s->o, i * s->E, s->E, o);
        for (int64_t e = 0; e < s->E; e++)
            o[e] *= keep;
        af_st_row(s->n->out[0], i * s->E, s->E, o);
        af_st(s->n->out[1], i, both);
    }
}

/* One head: rows in order. */
static void backward_heads(void *arg, int64_t from, int64_t to, int share)
{
    const sink_job *s = arg;
    double *o = s->work + share * 2 * s->E, *dy = o + s->E;
    for (int64_t h = from; h < to; h++) {
        const double sink = af_ld(s->sinks, h);
        double sum = 0;
        for (int64_t row = 0; row < s->rows; row++) {
            const int64_t at = row * s->H + h;
            double delta = 0;
            af_ld_row(s->o, at * s->E, s->E, o);
            af_ld_row(s->dy, at * s->E, s->E, dy);
            for (int64_t e = 0; e < s->E; e++)
                delta += o[e] * dy[e];
            sum -= exp(sink - af_ld(s->lse, at)) * delta;
        }
        af_st(s->n->out[0], h, sum);
    }
}

static void sink_run(const af_node *n, af_cpu *cpu)
{
    sink_job s = sink_of(n, cpu->work);
    af_pool_run(cpu->pool, s.rows, forward_rows, &s);
}

static void sink_bwd_run(const af_node *n, af_cpu *cpu)
{
    sink_job s = sink_of(n, cpu->work);
    af_pool_run(cpu->pool, s.H, backward_heads, &s);
}

static uint64_t sink_work(const af_node *n, int threads)
{
    return (uint64_t)threads * 2 * (uint64_t)n->attr.attention.head_dim * sizeof(double);
}

const af_cpu_op af_cpu_attention_sink = {sink_run, sink_work};
const af_cpu_op af_cpu_attention_sink_bwd = {sink_bwd_run, sink_work};
