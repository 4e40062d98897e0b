/* rope_fast.c - the rotation of rope.c row by row in f32.
 *
 * Angles grow with the position, so their sines are made in double: those of the last multiple of
 * STRIDE and of the rest, each taken once, by the addition theorem. A position always gives the
 * same numbers, whichever thread asks. */
#include "ops/common/cpu_fast.h"
#include "ops/rope/rope_span.h"

#include <math.h>

enum { STRIDE = 64, STEP = 8 }; /* positions between exact sines; of the rests below STRIDE */

typedef struct rope {
    const af_node *n;
    const af_fast *f;
    const af_tensor *qkv, *positions, *inv_freq, *q_norm, *k_norm;
    int64_t H, K, E, width, half;
    float plus;
    float *work;
    int64_t share_floats;
} rope;

/* Two rows, cos and sin, two norm weights; in double: sines of the anchor and of every rest. */
static int64_t share_floats(const af_node *n)
{
    const int64_t half = n->attr.rope.rotary_dim / 2;
    return 6 * af_last(n->in[0]) + 2 * (2 * half * (STRIDE + 1)) + 2 + 2 * 2;
}

static rope rope_of(const af_node *n, int first, void *work)
{
    af_tensor *const *in = n->in + first;
    rope r = {.n = n, .f = af_fast_get(), .qkv = in[0], .positions = in[1], .work = work};
    int k = 2;
    r.inv_freq = n->attr.rope.rotate ? in[k++] : NULL;
    r.q_norm = n->attr.rope.norm ? in[k++] : NULL;
    r.k_norm = n->attr.rope.norm ? in[k] : NULL;
    r.H = n->attr.rope.heads;
    r.K = n->attr.rope.kv_heads;
    r.E = n->attr.rope.head_dim;
    r.width = (r.H + 2 * r.K) * r.E;
    r.half = n->attr.rope.rotary_dim / 2;
    r.plus = n->attr.rope.plus_one ? 1.0f : 0.0f;
    r.share_floats = share_floats(n);
    return r;
}

/* Which sines a thread has made; a job's calls go on with them. */
typedef struct made {
    int64_t anchor_at; /* -1 = none yet */
    uint64_t rests;    /* bit j: rest j */
} made;

/* What one thread holds. */
typedef struct seat {
    float *x, *g, *cs, *sn;
    const float *qw, *kw; /* norm weights as f32 */
    made *made;
    double *anchor, *rest; /* [2][half] of `anchor_at`; [STRIDE][2][half] */
} seat;

static seat seat_of(const rope *r, int share)
{
    float *w = r->work + share * r->share_floats;
    seat s = {.x = w, .g = w + r->width, .cs = w + 2 * r->width};
    s.sn = s.cs + r->width;
    const uintptr_t behind = (uintptr_t)(w + 6 * r->width);
    s.made = (made *)AF_ALIGN_UP(behind, (uintptr_t)8);
    s.anchor = (double *)(s.made + 1);
    s.rest = s.anchor + 2 * r->half;
    if (r->q_norm) {
        s.qw = af_fast_row(r->f, r->q_norm, 0, af_count(r->q_norm), w + 4 * r->width);
        s.kw = af_fast_row(r->f, r->k_norm, 0, af_count(r->k_norm), w + 5 * r->width);
    }
    return s;
}

/* cos and sin of position * inv_freq into [2][half]. */
static void exact(const rope *r, int64_t position, double *out)
{
    for (int64_t i = 0; i < r->half; i++) {
        const double angle = (double)position * af_ld(r->inv_freq, i);
        out[i] = cos(angle);
        out[r->half + i] = sin(angle);
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
static const double *rest_of(const rope *r, seat *s, int64_t j)
{
    double *b = s->rest + j * 2 * r->half;
    if (s->made->rests >> j & 1)
        return b;
    s->made->rests |= UINT64_C(1) << j;
    if (j < STEP || j % STEP == 0)
        exact(r, j, b);
    else
        sum_of(b, rest_of(r, s, j / STEP * STEP), rest_of(r, s, j % STEP), r->half);
    return b;
}

static void angles(const rope *r, seat *s, int64_t row, double sign)
{
    const int64_t p = ((const int32_t *)r->positions->data)[row], j = p % STRIDE, half = r->half;
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

/* y = x rotated; what is not rotated is copied when y is not x. */
static void rotate_row(const rope *r, seat *s, float *y, const float *x, int64_t row, double sign)
{
    if (y != x)
        memcpy(y, x, (size_t)r->width * sizeof *y);
    if (!r->inv_freq)
        return;
    angles(r, s, row, sign);
    for (int64_t h = 0; h < r->H + r->K; h++)
        r->f->rotate(y + h * r->E, y + h * r->E, s->cs, s->sn, r->half);
}

static float rstd_of(const rope *r, const float *x, int64_t len)
{
    const double mean = (double)r->f->sum_squares(x, len) / (double)len;
    return (float)(1.0 / sqrt(mean + r->n->attr.rope.eps));
}

static void forward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope *r = arg;
    seat s = seat_of(r, share);
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        const float *x = af_fast_row(r->f, r->qkv, row, r->width, s.x);
        float *y = af_fast_out_row(r->n->out[0], row, r->width, s.g);
        if (y != x)
            memcpy(y, x, (size_t)r->width * sizeof *y);
        for (int64_t i = 0; r->q_norm && af_rope_span(r->n, i, &at, &len, &is_q); i++)
            r->f->norm(y + at, y + at, is_q ? s.qw : s.kw, r->plus, rstd_of(r, y + at, len), len);
        rotate_row(r, &s, y, y, row, 1);
        af_fast_put_row(r->f, r->n->out[0], row, r->width, y);
    }
}

static void backward_rows(void *arg, int64_t from, int64_t to, int share)
{
    const rope *r = arg;
    seat s = seat_of(r, share);
    int64_t at, len;
    bool is_q;
    for (int64_t row = from; row < to; row++) {
        const float *dy = af_fast_row(r->f, r->n->in[0], row, r->width, s.g);
        float *g = af_fast_out_row(r->n->out[0], row, r->width, s.g);
        rotate_row(r, &s, g, dy, row, -1);
        const float *x = r->q_norm ? af_fast_row(r->f, r->qkv, row, r->width, s.x) : NULL;
        for (int64_t i = 0; x && af_rope_span(r->n, i, &at, &len, &is_q); i++) {
            const float *w = is_q ? s.qw : s.kw;
            const float rs = rstd_of(r, x + at, len);
            const float c = rs * rs * r->f->norm_dot(x + at, w, r->plus, g + at, len) / (float)len;
            r->f->norm_bwd(g + at, x + at, w, r->plus, g + at, NULL, rs, c, len);
        }
        af_fast_put_row(r->f, r->n->out[0], row, r->width, g);
    }
}

static void run_rows(const af_node *n, af_cpu *cpu, int first, af_pool_job *rows)
{
    rope r = rope_of(n, first, cpu->work);
    for (int i = 0; i < cpu->threads; i++)
        *seat_of(&r, i).made = (made){.anchor_at = -1};
    af_pool_run_least(cpu->pool, af_live(r.qkv), STRIDE, rows, &r);
}
static void rope_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, 0, forward_rows); }
static void rope_bwd_run(const af_node *n, af_cpu *cpu) { run_rows(n, cpu, 1, backward_rows); }

static uint64_t work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)share_floats(n) * sizeof(float);
}

static bool served(const af_node *n, int first)
{
    const int norms = n->attr.rope.norm ? 2 : 0;
    for (int i = 0; i < norms; i++)
        if (!af_fast_type(n->in[n->n_in - 1 - i]))
            return false;
    return af_fast_type(n->in[0]) && af_fast_type(n->in[first]) && af_fast_type(n->out[0]);
}

static const af_cpu_op rope_op = {rope_run, work}, bwd_op = {rope_bwd_run, work};

const af_cpu_op *af_rope_fast(const af_node *n) { return served(n, 0) ? &rope_op : NULL; }
const af_cpu_op *af_rope_bwd_fast(const af_node *n) { return served(n, 1) ? &bwd_op : NULL; }
