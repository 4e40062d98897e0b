/* shape_fast.c - the ops of shape.c on all threads: runs of neighbours are copied as they are. What
 * is added to an output is f32 or bf16. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

enum { SPAN = 2048 /* elements added at a time */, PIECE = 16384 /* bytes of one piece of work */ };

typedef struct shape_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t outer, to, stride; /* of y: its slices around the axis, where a part begins in them */
    const af_tensor *x;        /* the part: slices of `run` elements, `from` and `step` of x */
    int64_t from, step, run;
} shape_job;

/* y[to..] (+)= x[from..] */
static void move(const shape_job *j, int64_t to, int64_t from, int64_t count, int share)
{
    const af_tensor *y = j->n->out[0];
    float *a = j->work + share * 3 * SPAN, *b = a + SPAN, *sum = b + SPAN;
    if (!j->n->accumulate) {
        memcpy(af_fast_value(y, to), af_fast_value(j->x, from),
               (size_t)count * af_dtype_get(y->dtype)->bytes);
        return;
    }
    for (int64_t i = 0; i < count; i += SPAN) {
        const int64_t n = AF_MIN((int64_t)SPAN, count - i);
        float *out = y->dtype == AF_DTYPE_F32 ? (float *)y->data + to + i : sum;
        j->f->add(out, af_fast_span(j->f, y, to + i, n, a),
                  af_fast_span(j->f, j->x, from + i, n, b), n);
        if (y->dtype == AF_DTYPE_BF16)
            j->f->to_bf16((uint16_t *)y->data + to + i, out, n);
    }
}

static void move_slices(void *arg, int64_t first, int64_t last, int share)
{
    const shape_job *j = arg;
    for (int64_t o = first; o < last; o++)
        move(j, j->to + o * j->stride, j->from + o * j->step, j->run, share);
}

static void run_part(const shape_job *j, af_cpu *cpu, af_pool_job *part)
{
    const int64_t bytes = AF_MAX(j->run * af_dtype_get(j->n->out[0]->dtype)->bytes, INT64_C(1));
    af_pool_run_least(cpu->pool, j->outer, PIECE / bytes + 1, part, (void *)j);
}

static void slice_run(const af_node *n, af_cpu *cpu)
{
    const af_axis_view y = af_around(n->out[0], n->attr.slice.axis);
    const int64_t run = y.len * y.inner;
    const shape_job j = {.n = n,
                         .f = af_fast_get(),
                         .work = cpu->work,
                         .outer = y.outer,
                         .stride = run,
                         .x = n->in[0],
                         .from = n->attr.slice.from * y.inner,
                         .step = n->in[0]->dim[n->attr.slice.axis] * y.inner,
                         .run = run};
    run_part(&j, cpu, move_slices);
}

/* Zeros around the slice, where nothing is added to. */
static void spread_slices(void *arg, int64_t first, int64_t last, int share)
{
    const shape_job *j = arg;
    const af_tensor *dx = j->n->out[0];
    const size_t size = af_dtype_get(dx->dtype)->bytes;
    const int64_t after = j->to + j->run;
    for (int64_t o = first; o < last; o++) {
        if (!j->n->accumulate) {
            memset(af_fast_value(dx, o * j->stride), 0, (size_t)j->to * size);
            memset(af_fast_value(dx, o * j->stride + after), 0, (size_t)(j->stride - after) * size);
        }
        move(j, j->to + o * j->stride, o * j->step, j->run, share);
    }
}

static void slice_bwd_run(const af_node *n, af_cpu *cpu)
{
    const af_axis_view x = af_around(n->out[0], n->attr.slice.axis);
    const int64_t run = n->attr.slice.count * x.inner;
    const shape_job j = {.n = n,
                         .f = af_fast_get(),
                         .work = cpu->work,
                         .outer = x.outer,
                         .to = n->attr.slice.from * x.inner,
                         .stride = x.len * x.inner,
                         .x = n->in[0],
                         .step = run,
                         .run = run};
    run_part(&j, cpu, spread_slices);
}

static void concat_run(const af_node *n, af_cpu *cpu)
{
    const int axis = n->attr.slice.axis;
    int64_t at = 0;
    for (int p = 0; p < n->n_in; p++) {
        const af_axis_view x = af_around(n->in[p], axis);
        const shape_job j = {.n = n,
                             .outer = x.outer,
                             .to = at * x.inner,
                             .stride = n->out[0]->dim[axis] * x.inner,
                             .x = n->in[p],
                             .step = x.len * x.inner,
                             .run = x.len * x.inner};
        run_part(&j, cpu, move_slices);
        at += n->in[p]->dim[axis];
    }
}

static uint64_t shape_work(const af_node *n, int threads)
{
    return n->accumulate ? (uint64_t)threads * 3 * SPAN * sizeof(float) : 0;
}

static const af_cpu_op slice_op = {slice_run, shape_work},
                       slice_bwd_op = {slice_bwd_run, shape_work}, concat_op = {concat_run, NULL};

static bool copies(const af_node *n) { return !n->accumulate || af_fast_all(n); }

const af_cpu_op *af_slice_fast(const af_node *n) { return copies(n) ? &slice_op : NULL; }
const af_cpu_op *af_slice_bwd_fast(const af_node *n)
{
    /* on axis 0 only the live rows are written */
    return copies(n) && n->attr.slice.axis > 0 ? &slice_bwd_op : NULL;
}
const af_cpu_op *af_concat_fast(const af_node *n) { return copies(n) ? &concat_op : NULL; }
