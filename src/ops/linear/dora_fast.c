/* dora_fast.c - the row norms of W + s B A of linear.c in f32: a row of W is read once, the rows of
 * A are added to it, and its squares are summed in short runs. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/linear/linear_in.h"

#include <math.h>

enum { RUN = 512 };

typedef struct dora_job {
    const af_node *n;
    af_linear_inputs in;
    const af_fast *f;
    float *rows; /* [threads][I] */
    int64_t I;
} dora_job;

static void add_adapter(const dora_job *j, int64_t o, float *w)
{
    const af_node *n = j->n;
    const float *a = j->in.a->data, *b = j->in.b->data;
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        if (o < q->out_from || o >= q->out_from + q->out_rows)
            continue;
        const float *row = b + af_linear_part_at(n, p) + (o - q->out_from) * q->rank;
        for (int r = 0; r < q->rank; r++)
            j->f->axpy(w, (float)q->scale * row[r], a + (q->rank_from + r) * j->I, j->I);
    }
}

static void norm_rows(void *arg, int64_t from, int64_t to, int share)
{
    const dora_job *j = arg;
    const int64_t *start = j->n->attr.linear.piece_from;
    float *w = j->rows + share * j->I;
    for (int64_t o = from; o < to; o++) {
        for (int k = 0; k < j->n->attr.linear.pieces; k++)
            if (o >= start[k] && o < start[k + 1])
                af_ld_row_f32(j->in.w[k], (o - start[k]) * j->I, j->I, w);
        add_adapter(j, o, w);
        double ss = 0;
        for (int64_t i = 0; i < j->I; i += RUN)
            ss += (double)j->f->sum_squares(w + i, AF_MIN((int64_t)RUN, j->I - i));
        af_st(j->n->out[0], o, sqrt(ss));
    }
}

static void dora_norm_run(const af_node *n, af_cpu *cpu)
{
    dora_job j = {n, af_linear_in(n), af_fast_get(), cpu->work, af_last(n->in[0])};
    af_pool_run(cpu->pool, n->out[0]->dim[0], norm_rows, &j);
}

static uint64_t dora_norm_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static const af_cpu_op dora_op = {dora_norm_run, dora_norm_work};

const af_cpu_op *af_dora_norm_fast(const af_node *n)
{
    const af_linear_inputs in = af_linear_in(n);
    bool f32 = in.a && in.a->dtype == AF_DTYPE_F32 && in.b->dtype == AF_DTYPE_F32;
    for (int k = 0; k < n->attr.linear.pieces; k++)
        f32 &= in.w[k]->dtype != AF_DTYPE_F64;
    return f32 ? &dora_op : NULL;
}
