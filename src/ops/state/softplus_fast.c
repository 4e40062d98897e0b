/* softplus_fast.c - softplus.c in f32. An item of work is a span of columns; their sums over the
 * rows are formed in the order of rows. */
#include "ops/common/cpu_fast.h"
#include "ops/state/softplus_in.h"

#include <math.h>

enum { SPAN = 64 /* columns of one item */, RUN = 64 /* rows summed in f32 */ };

typedef struct softplus_job {
    const af_node *n;
    const af_fast *f;
    af_softplus_inputs in;
    int64_t H, N;
} softplus_job;

/* The columns of one item: what does not depend on the row. */
typedef struct columns {
    int64_t at, count;
    float bias[SPAN], factor[SPAN];
} columns;

static columns columns_of(const softplus_job *j, int64_t item)
{
    columns c = {.at = item * SPAN, .count = AF_MIN((int64_t)SPAN, j->H - item * SPAN)};
    for (int64_t i = 0; i < c.count; i++) {
        c.bias[i] = (float)af_ld(j->in.bias, c.at + i);
        c.factor[i] = j->in.a_log ? (float)-exp(af_ld(j->in.a_log, c.at + i)) : 1.0f;
    }
    return c;
}

/* z = x + bias of a row. */
static void load_row(const softplus_job *j, const columns *c, int64_t row, float *z)
{
    float buf[SPAN];
    j->f->add(z, af_fast_span(j->f, j->in.x, row * j->H + c->at, c->count, buf), c->bias, c->count);
}

static void forward_columns(void *arg, int64_t from, int64_t to, int share)
{
    const softplus_job *j = arg;
    (void)share;
    for (int64_t item = from; item < to; item++) {
        const columns c = columns_of(j, item);
        for (int64_t r = 0; r < j->N; r++) {
            float z[SPAN], *y = (float *)j->n->out[0]->data + r * j->H + c.at;
            load_row(j, &c, r, z);
            j->f->softplus(z, NULL, z, c.count);
            j->f->mul(y, z, c.factor, c.count);
        }
    }
}

static void backward_columns(void *arg, int64_t from, int64_t to, int share)
{
    const softplus_job *j = arg;
    (void)share;
    for (int64_t item = from; item < to; item++) {
        const columns c = columns_of(j, item);
        double dbias[SPAN] = {0}, da[SPAN] = {0};
        for (int64_t first = 0; first < j->N; first += RUN) {
            float of_bias[SPAN] = {0}, of_a[SPAN] = {0};
            for (int64_t r = first; r < AF_MIN(first + RUN, j->N); r++) {
                const float *dy = (const float *)j->in.dy->data + r * j->H + c.at;
                float z[SPAN], slope[SPAN], d[SPAN];
                load_row(j, &c, r, z);
                j->f->softplus(z, slope, z, c.count);
                j->f->mul(d, dy, c.factor, c.count);
                j->f->mul(z, z, d, c.count);
                j->f->mul(slope, slope, d, c.count);
                j->f->add(of_a, of_a, z, c.count);
                j->f->add(of_bias, of_bias, slope, c.count);
                if (j->in.x->dtype == AF_DTYPE_BF16)
                    j->f->to_bf16((uint16_t *)j->n->out[0]->data + r * j->H + c.at, slope, c.count);
                else
                    memcpy((float *)j->n->out[0]->data + r * j->H + c.at, slope,
                           (size_t)c.count * sizeof *slope);
            }
            for (int64_t i = 0; i < c.count; i++) {
                dbias[i] += (double)of_bias[i];
                da[i] += (double)of_a[i];
            }
        }
        for (int64_t i = 0; i < c.count; i++) {
            af_st(j->n->out[1], c.at + i, dbias[i]);
            if (j->in.a_log)
                af_st(j->n->out[2], c.at + i, da[i]);
        }
    }
}

static void softplus_run(const af_node *n, af_cpu *cpu)
{
    softplus_job j = {.n = n, .f = af_fast_get(), .in = af_softplus_in(n)};
    j.H = af_last(j.in.x);
    j.N = af_live(j.in.x);
    af_pool_run(cpu->pool, (j.H + SPAN - 1) / SPAN,
                n->op == AF_OP_SOFTPLUS ? forward_columns : backward_columns, &j);
}

static const af_cpu_op op = {softplus_run, NULL};

/* y and dy are f32 where x is f32 or bf16. */
const af_cpu_op *af_softplus_fast(const af_node *n)
{
    return af_fast_type(af_softplus_in(n).x) ? &op : NULL;
}
const af_cpu_op *af_softplus_bwd_fast(const af_node *n) { return af_softplus_fast(n); }
