/* unary_fast.c - the activations of unary.c in f32: those of a gated unit whose other half is 1. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

enum { SPAN = 2048 }; /* elements of one piece of work */

typedef struct unary_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t count;
    af_act act;
} unary_job;

static bool act_of(const af_node *n, af_act *act)
{
    switch (n->attr.unary.kind) {
    case AF_UNARY_GELU:
        *act = AF_ACT_GELU;
        return true;
    case AF_UNARY_GELU_TANH:
        *act = AF_ACT_GELU_TANH;
        return true;
    case AF_UNARY_SILU:
        *act = AF_ACT_SILU;
        return true;
    default:
        return false;
    }
}

static void pieces(void *arg, int64_t from, int64_t to, int share)
{
    const unary_job *j = arg;
    const af_node *n = j->n;
    const af_tensor *y = n->out[0];
    const bool back = n->op == AF_OP_UNARY_BWD, f32 = y->dtype == AF_DTYPE_F32;
    float *ones = j->work + share * 5 * SPAN, *xbuf = ones + SPAN, *dbuf = xbuf + SPAN,
          *spare = dbuf + SPAN, *ybuf = spare + SPAN;
    for (int64_t i = 0; i < SPAN; i++)
        ones[i] = 1;
    for (int64_t at = from * SPAN; at < AF_MIN(to * SPAN, j->count); at += SPAN) {
        const int64_t m = AF_MIN((int64_t)SPAN, j->count - at);
        const float *x = af_fast_span(j->f, n->in[0], at, m, xbuf);
        float *out = f32 ? (float *)y->data + at : ybuf;
        if (back)
            j->f->glu_bwd(out, spare, x, ones, af_fast_span(j->f, n->in[2], at, m, dbuf), j->act,
                          m);
        else
            j->f->glu(out, x, ones, j->act, m);
        if (!f32)
            j->f->to_bf16((uint16_t *)y->data + at, out, m);
    }
}

static void unary_run(const af_node *n, af_cpu *cpu)
{
    unary_job j = {n, af_fast_get(), cpu->work, af_live_count(n->out[0]), AF_ACT_SILU};
    act_of(n, &j.act);
    af_pool_run(cpu->pool, (j.count + SPAN - 1) / SPAN, pieces, &j);
}

static uint64_t unary_work(const af_node *n, int threads)
{
    (void)n;
    return (uint64_t)threads * 5 * SPAN * sizeof(float);
}

static const af_cpu_op op = {unary_run, unary_work};

const af_cpu_op *af_unary_fast(const af_node *n)
{
    af_act act;
    return act_of(n, &act) && af_fast_all(n) ? &op : NULL;
}
const af_cpu_op *af_unary_bwd_fast(const af_node *n) { return af_unary_fast(n); }
