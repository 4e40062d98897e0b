/* dropout_fast.c - dropout.c in f32 by all threads: the words of the generator are made a span at a
 * time and compared as integers; the values of a mask are those of the twin. */
#include "base/rng.h"
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"
#include "ops/general/dropout.h"

#include <math.h>

enum { SPAN = 1024 }; /* elements; a multiple of the words of a block */

typedef struct dropout_job {
    const af_node *n;
    const af_fast *f;
    uint64_t seed, stream;
    int64_t count;
    uint32_t least; /* the smallest 24-bit number that is kept */
    float factor;
} dropout_job;

static void mask(float *y, const float *x, const uint32_t *word, uint32_t least, float factor,
                 int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = word[i] >> 8 >= least ? x[i] * factor : 0.0f;
}

static void spans(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const dropout_job *j = arg;
    const af_tensor *in = j->n->in[0], *out = j->n->out[0];
    uint32_t word[SPAN];
    float a[SPAN], b[SPAN];
    for (int64_t s = from; s < to; s++) {
        const int64_t at = s * SPAN, n = AF_MIN((int64_t)SPAN, j->count - at);
        const bool f32 = out->dtype == AF_DTYPE_F32;
        const float *x = in->dtype == AF_DTYPE_F32 ? (const float *)in->data + at : a;
        float *y = f32 ? (float *)out->data + at : b;
        if (x == a)
            j->f->to_f32(a, (const uint16_t *)in->data + at, n);
        af_rng_words(word, j->seed, j->stream, (uint64_t)at / 4, SPAN / 4);
        mask(y, x, word, j->least, j->factor, n);
        if (!f32)
            j->f->to_bf16((uint16_t *)out->data + at, y, n);
    }
}

static void dropout_run(const af_node *n, af_cpu *cpu)
{
    const uint32_t *clock = n->in[1]->data;
    const double p = clock[3] >> 31 ? 0 : n->attr.dropout.p; /* evaluating */
    dropout_job j = {
        .n = n,
        .f = af_fast_get(),
        .seed = clock[0] | (uint64_t)clock[1] << 32,
        .stream = af_dropout_stream(n->attr.dropout.stream, clock[2] | (uint64_t)clock[3] << 32),
        .count = af_live_count(n->out[0]),
        .least = (uint32_t)ceil((double)(float)p * 0x1p24),
        .factor = (float)(1 / (1 - p))};
    af_pool_run(cpu->pool, (j.count + SPAN - 1) / SPAN, spans, &j);
}

static const af_cpu_op dropout_op = {dropout_run, NULL};

const af_cpu_op *af_dropout_fast(const af_node *n)
{
    return af_fast_type(n->in[0]) && af_fast_type(n->out[0]) ? &dropout_op : NULL;
}
