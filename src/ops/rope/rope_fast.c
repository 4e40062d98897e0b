/* rope_fast.c - the rotation of rope.c row by row in f32.
 *
 * Angles grow with the position, so their sines are made in double: those of the last multiple of
 * STRIDE and of the rest, each taken once, by the addition theorem. A position always gives the
 * same numbers, whichever thread asks. */
#include "ops/common/cpu_fast.h"
#include "ops/rope/rope_in.h"

#include <math.h>

enum { STRIDE = 64, STEP = 8 }; /* positions between exact sines; of the rests below STRIDE */

typedef struct rope_fast_job {
    const af_node *n;
    const af_fast *f;
    af_rope_inputs in;
    float plus;
    float *work;
    int64_t share_floats;
} rope_fast_job;

/* Two rows, cos and sin, two norm weights; in double: sines of the anchor and of every rest. */
static int64_t share_floats(const af_node *n)
{
    const int64_t half = n->attr.rope.rotary_dim / 2;
    return 6 * af_last(n->in[0]) + 2 * (2 * half * (STRIDE + 1)) + 2 + 2 * 2;
}

static rope_fast_job rope_of(const af_node *n, void *work)
{
    return (rope_fast_job){.n = n,
                           .f = af_fast_get(),
                           .in = af_rope_in(n),
                           .plus = n->attr.rope.plus_one ? 1.0f : 0.0f,
                           .work = work,
                           .share_floats = share_floats(n)};
}

/* Which sines a thread has made; later calls of the same job use them. */
typedef struct made_sines {
    int64_t anchor_at; /* -1 = none yet */
    uint64_t rests;    /* bit j: rest j */
} made_sines;

/* The buffers of one thread. */
typedef struct thread_buffers {
    float *x, *g, *cs, *sn;
    const float *qw, *kw; /* norm weights as f32 */
    made_sines *made;
    double *anchor, *rest; /* [2][half] of `anchor_at`; [STRIDE][2][half] */
} thread_buffers;

static thread_buffers buffers_of(const rope_fast_job *r, int share)
{
    float *w = r->work + share * r->share_floats;
    thread_buffers s = {.x = w, .g = w + r->in.width, .cs = w + 2 * r->in.width};
    s.sn = s.cs + r->in.width;
    const uintptr_t end = (uintptr_t)(w + 6 * r->in.width);
    s.made = (made_sines *)AF_ALIGN_UP(end, (uintptr_t)8);
    s.anchor = (double *)(s.made + 1);
    s.rest = s.anchor + 2 * r->in.half;
    if (r->in.q_norm) {
        s.qw = af_fast_row(r->f, r->in.q_norm, 0, af_count(r->in.q_norm), w + 4 * r->in.width);
        s.kw = af_fast_row(r->f, r->in.k_norm, 0, af_count(r->in.k_norm), w + 5 * r->in.width);
    }
    return s;
}

/* cos and sin of position * inv_freq into [2][half]. */
static void exact(const rope_fast_job *r, int64_t position, double *out)
{
    for (int64_t i = 0; i < r->in.half; i++) {
        const double angle = (double)position * af_ld(r->in.inv_freq, i);
        out[i] = cos(angle);
        out[r->in.half + i] = sin(angle);
    }
}

/* The sines of a + b from those of a and of b. */
static void sum_of(double *out, const double *a, const double *b, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const double c = a[i] * b[i] - a[half + i] * b[half + i];
        out[half + i] = a[half + i] * b[i] + a[i] * b[half + i];
        out[i] = c;
    }
}

/* Rest j: exact for those below and the multiples of STEP, the others are sums of two. */
static const double *rest_of(const rope_fast_job *r, thread_buffers *s, int64_t j)
{
    double *b = s->rest + j * 2 * r->in.half;
    if (s->made->rests >> j & 1)
        return b;
    s->made->rests |= UINT64_C(1) << j;
    if (j < STEP || j % STEP == 0)
        exact(r, j, b);
    else
        sum_of(b, rest_of(r, s, j / STEP * STEP), rest_of(r, s, j % STEP), r->in.half);
    return b;
}

static void angles(const rope_fast_job *r, thread_buffers *s, int64_t row, double sign)
{
    const int64_t p = ((const int32_t *)r->in.positions->data)[row], j = p % STRIDE,
                  half = r->in.half;
    const double scale = r->n->attr.rope.scale;
    const double *b = rest_of(r, s, j);
    double *a = s->anchor;
    assert(p >= 0);
    if (s->made->anchor_at != p - j)
        exact(r, p - j, a);
    s->made->anchor_at = p - j;
    for (int64_t i = 0; i < half; i++) {
        s->cs[i] = (float)(scale * (a[i] * b[i] - a[half + i] * b[half + i]));
        s->sn[i] = (float)(sign * scale * (a[half + i] * b[i] + a[i] * b[half + i]));
    }
}

static void rotate_pairs(float *x, const float *cs, const float *sn, int64_t half)
{
    for (int64_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * cs[i] - b * sn[i];
        x[2 * i + 1] = b * cs[i] + a * sn[i];
    }
}

/* y = x rotated; what is not rotated is copied when y is not x. */
static void rotate_row(const rope_fast_job *r, thread_buffers *s, float *y, const float *x,
                       int64_t row, double sign)
{
    if (y != x)
        memcpy(y, x, (size_t)r->in.width * sizeof *y);
    const float by = (float)af_rope_query_factor(r->n, ((int32_t *)r->in.positions->data)[row]);
    for (int64_t i = 0; by != 1 && i < r->in.H * r->in.E; i++)
        y[i] *= by;
    if (!r->in.inv_freq)
        return;
    angles(r, s, row, sign);
    for (int64_t h = 0; h < r->in.H + r->in.K; h++)
        if (r->n->attr.rope.pairs)
            rotate_pairs(y + h * r->in.E, s->cs, s->sn, r->in.half);
        else
            r->f->rotate(y + h * r->in.E, y + h * r->in.E, s->cs, s->sn, r->in.half);
}

static float rstd_of(const rope_fast_job *r, const float *x, int64_t len)
{
    const double mean = (double)r->f->sum_squares(x, len) / (double)len;
    return (float)(1.0 / sqrt(mean + r->n->attr.rope.eps));
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope_fast_job *r = arg;
    thread_buffers s = buffers_of(r, share);
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        const float *x = af_fast_row(r->f, r->in.qkv, row, r->in.width, s.x);
        float *y = af_fast_out_row(r->n->out[0], row, r->in.width, s.g);
        if (y != x)
            memcpy(y, x, (size_t)r->in.width * sizeof *y);
        for (int64_t i = 0; r->in.q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            r->f->norm(y + at, y + at, is_q ? s.qw : s.kw, r->plus, rstd_of(r, y + at, len), len);
        rotate_row(r, &s, y, y, row, 1);
        af_fast_put_row(r->f, r->n->out[0], row, r->in.width, y);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope_fast_job *r = arg;
    thread_buffers s = buffers_of(r, share);
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        const float *dy = af_fast_row(r->f, r->in.dy, row, r->in.width, s.g);
        float *g = af_fast_out_row(r->n->out[0], row, r->in.width, s.g);
        rotate_row(r, &s, g, dy, row, -1);
        const float *x = r->in.q_norm ? af_fast_row(r->f, r->in.qkv, row, r->in.width, s.x) : NULL;
        for (int64_t i = 0; x && af_rope_span(r->n, i, &at, &len, &is_q); i++) {
            const float *w = is_q ? s.qw : s.kw;
            const float rs = rstd_of(r, x + at, len);
            const float c = rs * rs * r->f->norm_dot(x + at, w, r->plus, g + at, len) / (float)len;
            r->f->norm_bwd(g + at, x + at, w, r->plus, g + at, NULL, rs, c, len);
        }
        af_fast_put_row(r->f, r->n->out[0], row, r->in.width, g);
    }
}

static void run_rows(const af_node *n, af_cpu *cpu, af_pool_job *rows)
{
    rope_fast_job r = rope_of(n, cpu->work);
    for (int i = 0; i < cpu->threads; i++)
        *buffers_of(&r, i).made = (made_sines){.anchor_at = -1};
    af_pool_run_least(cpu->pool, af_live(r.in.qkv), STRIDE, rows, &r);
}
static void rope_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, forward_rows); }
static void rope_bwd_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, backward_rows); }

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)share_floats(n) * sizeof(float);
}

static bool served(const af_node *n)
{
    const af_rope_inputs in = af_rope_in(n);
    const bool norms = !in.q_norm || (af_fast_type(in.q_norm) && af_fast_type(in.k_norm));
    return norms && af_fast_type(n->in[0]) && af_fast_type(in.qkv) && af_fast_type(n->out[0]);
}

static const af_cpu_op rope_op = {rope_run, work}, bwd_op = {rope_bwd_run, work};

const af_cpu_op *af_rope_fast(const af_node *n) { return served(n) ? &rope_op : NULL; }
const af_cpu_op *af_rope_bwd_fast(const af_node *n) { return served(n) ? &bwd_op : NULL; }
