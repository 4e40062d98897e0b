/* selective_fast.c - selective.c in f32, LANES channels side by side: state k of all of them is one
 * vector. Work is divided as in the twin: a range of channels goes through all sequences, and what
 * is summed over channels (db, dc) is summed by range, then over the ranges in order. */
#include "ops/common/cpu_fast.h"
#include "ops/selective/selective_in.h"

enum { LANES = 32, PARTS = 16, CHUNK = 64 /* rows whose states are kept at a time */ };

typedef struct selective_job {
    const af_node *n;
    const af_fast *f;
    af_selective_inputs in;
    const int32_t *bounds;
    int64_t N, scratch; /* live rows; floats of one thread */
    float *work, *part; /* part [PARTS][N][2n]: dc, then db, of a range of channels */
} selective_job;

/* Some channels of one thread. Arrays of states are [n][LANES]; lanes without a channel are zero.
 */
typedef struct lanes {
    int64_t first, count, n; /* channels; states of one */
    float *a, *s, *e, *g, *da;
    float *kept, *starts; /* s before each row of a chunk, and before each chunk */
    float *bc;            /* [rows][2n]: b, then c */
    float x[LANES], dt[LANES], u[LANES], dy[LANES], out[LANES], ddt[LANES]; /* of a row; u = dt x */
} lanes;

static int64_t scratch_of(const af_selective_inputs *in)
{
    const int64_t states = in->n * LANES, N = in->x->dim[0];
    const int64_t kept = in->dy ? CHUNK + (N + CHUNK - 1) / CHUNK : 0;
    return AF_ALIGN_UP((5 + kept) * states + N * 2 * in->n, INT64_C(16));
}

static void place(lanes *l, const af_selective_inputs *in, float *at)
{
    const int64_t states = in->n * LANES;
    *l = (lanes){.n = in->n, .a = at, .s = at + states, .e = at + 2 * states};
    l->g = at + 3 * states;
    l->da = at + 4 * states;
    l->bc = at + 5 * states;
    l->kept = l->bc + in->x->dim[0] * 2 * in->n;
    l->starts = l->kept + CHUNK * states;
}

static void load_lanes(const selective_job *j, const lanes *l, const af_tensor *t, int64_t row,
                       float *to)
{
    const int64_t at = row * j->in.I + l->first;
    if (t->dtype == AF_DTYPE_F32)
        memcpy(to, (const float *)t->data + at, (size_t)l->count * sizeof *to);
    else
        j->f->to_f32(to, (const uint16_t *)t->data + at, l->count);
}

static void store_lanes(const selective_job *j, const lanes *l, const af_tensor *t, int64_t row,
                        const float *from)
{
    const int64_t at = row * j->in.I + l->first;
    if (t->dtype == AF_DTYPE_F32)
        memcpy((float *)t->data + at, from, (size_t)l->count * sizeof *from);
    else
        j->f->to_bf16((uint16_t *)t->data + at, from, l->count);
}

/* x, dt and u of a row, and e = exp(dt a). */
static void load_row(const selective_job *j, lanes *l, int64_t row)
{
    load_lanes(j, l, j->in.x, row, l->x);
    load_lanes(j, l, j->in.dt, row, l->dt);
    for (int c = 0; c < LANES; c++)
        l->u[c] = l->dt[c] * l->x[c];
    for (int64_t k = 0; k < l->n; k++)
        for (int c = 0; c < LANES; c++)
            l->e[k * LANES + c] = l->dt[c] * l->a[k * LANES + c];
    (void)j->f->exp_sum(l->e, l->e, 1, 0, l->n * LANES);
}

static void forward_row(lanes *l, const float *b, const float *c)
{
    const float *restrict u = l->u;
    float y[LANES] = {0};
    for (int64_t k = 0; k < l->n; k++) {
        float *restrict s = l->s + k * LANES;
        const float *restrict e = l->e + k * LANES, bk = b[k], ck = c[k];
        for (int i = 0; i < LANES; i++) {
            s[i] = e[i] * s[i] + u[i] * bk;
            y[i] += ck * s[i];
        }
    }
    memcpy(l->out, y, sizeof y);
}

static float sum_of(float (*v)[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            (*v)[i] += (*v)[i + half];
    return (*v)[0];
}

/* dc, db: what these channels add to the sums of a row. */
static void backward_row(lanes *l, const float *kept, const float *b, const float *c, float *dc,
                         float *db)
{
    const float *restrict u = l->u, *restrict x = l->x, *restrict dt = l->dt, *restrict dy = l->dy;
    float dx[LANES] = {0}, ddt[LANES] = {0}, of_c[LANES], of_b[LANES];
    for (int64_t k = 0; k < l->n; k++) {
        float *restrict g = l->g + k * LANES, *restrict da = l->da + k * LANES;
        const float *restrict e = l->e + k * LANES, *restrict a = l->a + k * LANES,
                              *restrict before = kept + k * LANES, bk = b[k], ck = c[k];
        for (int i = 0; i < LANES; i++) {
            const float passed = e[i] * before[i], slope = g[i] + dy[i] * ck;
            of_c[i] = dy[i] * (passed + u[i] * bk);
            of_b[i] = slope * u[i];
            dx[i] += slope * bk;
            ddt[i] += slope * (a[i] * passed + x[i] * bk);
            da[i] += slope * dt[i] * passed;
            g[i] = slope * e[i];
        }
        dc[k] += sum_of(&of_c);
        db[k] += sum_of(&of_b);
    }
    for (int i = 0; i < LANES; i++)
        l->out[i] = dx[i] * dt[i];
    memcpy(l->ddt, ddt, sizeof ddt);
}

/* States of sequence q from the cache or to it, whose rows are channels. */
static void carry(const selective_job *j, const lanes *l, int64_t q, bool store)
{
    float *state = (float *)j->in.state->data + (q * j->in.I + l->first) * l->n;
    for (int64_t i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->n; k++)
            if (store)
                state[i * l->n + k] = l->s[k * LANES + i];
            else
                l->s[k * LANES + i] = state[i * l->n + k];
}

/* Rows [from, to) of a sequence; with `kept` the states before each of them. */
static void forward(const selective_job *j, lanes *l, int64_t row, int64_t from, int64_t to,
                    float *kept)
{
    const int64_t n = l->n, states = n * LANES;
    for (int64_t t = from; t < to; t++) {
        const float *b = l->bc + t * 2 * n;
        if (kept)
            memcpy(kept + (t - from) * states, l->s, (size_t)states * sizeof *l->s);
        load_row(j, l, row + t);
        forward_row(l, b, b + n);
        if (!j->in.dy)
            store_lanes(j, l, j->n->out[0], row + t, l->out);
    }
}

/* From the last chunk to the first, whose states are made again. */
static void backward(const selective_job *j, lanes *l, int64_t row, int64_t len, float *part)
{
    const int64_t n = l->n, states = n * LANES;
    memset(l->g, 0, (size_t)states * sizeof *l->g);
    for (int64_t from = (len - 1) / CHUNK * CHUNK; from >= 0; from -= CHUNK) {
        const int64_t to = AF_MIN(from + CHUNK, len);
        memcpy(l->s, l->starts + from / CHUNK * states, (size_t)states * sizeof *l->s);
        forward(j, l, row, from, to, l->kept);
        for (int64_t t = to - 1; t >= from; t--) {
            const float *b = l->bc + t * 2 * n;
            float *sums = part + (row + t) * 2 * n;
            load_row(j, l, row + t);
            load_lanes(j, l, j->in.dy, row + t, l->dy);
            backward_row(l, l->kept + (t - from) * states, b, b + n, sums, sums + n);
            store_lanes(j, l, j->n->out[0], row + t, l->out);
            store_lanes(j, l, j->n->out[1], row + t, l->ddt);
        }
    }
}

static void sequence(const selective_job *j, lanes *l, int64_t q, float *part)
{
    const int64_t row = j->bounds[q], len = j->bounds[q + 1] - row, states = l->n * LANES;
    memset(l->s, 0, (size_t)states * sizeof *l->s);
    if (j->in.state && ((const int32_t *)j->in.start->data)[q] != 0)
        carry(j, l, q, false);
    for (int64_t from = 0; from < len; from += CHUNK) {
        if (j->in.dy)
            memcpy(l->starts + from / CHUNK * states, l->s, (size_t)states * sizeof *l->s);
        forward(j, l, row, from, AF_MIN(from + CHUNK, len), NULL);
    }
    if (j->in.state && len > 0)
        carry(j, l, q, true);
    if (j->in.dy && len > 0)
        backward(j, l, row, len, part);
}

static void take_channels(const selective_job *j, lanes *l, int64_t first, int64_t count)
{
    const float *a = (const float *)j->in.a->data + first * l->n;
    l->first = first;
    l->count = count;
    memset(l->x, 0, sizeof l->x);
    memset(l->dt, 0, sizeof l->dt);
    memset(l->dy, 0, sizeof l->dy);
    memset(l->a, 0, (size_t)(l->n * LANES) * sizeof *l->a);
    memset(l->da, 0, (size_t)(l->n * LANES) * sizeof *l->da);
    for (int64_t i = 0; i < count; i++)
        for (int64_t k = 0; k < l->n; k++)
            l->a[k * LANES + i] = a[i * l->n + k];
}

static void ranges(void *arg, int64_t from, int64_t to, int share)
{
    const selective_job *j = arg;
    const int64_t n = j->in.n, I = j->in.I;
    lanes l;
    place(&l, &j->in, j->work + share * j->scratch);
    for (int64_t p = from; p < to; p++) {
        const int64_t end = (p + 1) * I / PARTS;
        for (int64_t first = p * I / PARTS; first < end; first += LANES) {
            take_channels(j, &l, first, AF_MIN((int64_t)LANES, end - first));
            for (int64_t q = 0; q < j->in.S; q++) {
                const int64_t row = j->bounds[q];
                for (int64_t t = 0; t < j->bounds[q + 1] - row; t++) {
                    af_ld_row_f32(j->in.b, (row + t) * n, n, l.bc + t * 2 * n);
                    af_ld_row_f32(j->in.c, (row + t) * n, n, l.bc + t * 2 * n + n);
                }
                sequence(j, &l, q, j->part + p * j->N * 2 * n);
            }
            for (int64_t i = 0; i < l.count && j->in.dy; i++)
                for (int64_t k = 0; k < n; k++)
                    af_st(j->n->out[2], (first + i) * n + k, (double)l.da[k * LANES + i]);
        }
    }
}

static void zero_rows(const selective_job *j, int64_t from, int64_t to)
{
    const size_t count = (size_t)((to - from) * j->in.I);
    for (int i = 0; i < (j->in.dy ? 2 : 1); i++)
        memset(af_fast_value(j->n->out[i], from * j->in.I), 0,
               count * af_dtype_get(j->n->out[i]->dtype)->bytes);
}

/* db and dc of rows. */
static void add_parts(void *arg, int64_t from, int64_t to, int share)
{
    const selective_job *j = arg;
    const int64_t n = j->in.n;
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t k = 0; k < 2 * n; k++) {
            double sum = 0;
            for (int64_t p = 0; p < PARTS; p++)
                sum += (double)j->part[(p * j->N + r) * 2 * n + k];
            af_st(j->n->out[k < n ? 4 : 3], r * n + k % n, sum);
        }
}

static uint64_t selective_work(const af_node *n, int threads)
{
    const af_selective_inputs in = af_selective_in(n);
    const int64_t parts = in.dy ? PARTS * in.x->dim[0] * 2 * in.n : 0;
    return ((uint64_t)threads * (uint64_t)scratch_of(&in) + (uint64_t)parts) * sizeof(float);
}

static void selective_run(const af_node *n, af_cpu *cpu)
{
    selective_job j = {.n = n, .f = af_fast_get(), .in = af_selective_in(n), .work = cpu->work};
    j.N = af_live(j.in.x);
    j.scratch = scratch_of(&j.in);
    j.bounds = j.in.bounds->data;
    j.part = j.work + af_pool_threads(cpu->pool) * j.scratch;
    zero_rows(&j, 0, j.bounds[0]);
    zero_rows(&j, j.bounds[j.in.S], j.N);
    if (j.in.dy)
        memset(j.part, 0, (size_t)(PARTS * j.N * 2 * j.in.n) * sizeof *j.part);
    af_pool_run(cpu->pool, PARTS, ranges, &j);
    if (j.in.dy)
        af_pool_run(cpu->pool, j.N, add_parts, &j);
}

static const af_cpu_op op = {selective_run, selective_work};

const af_cpu_op *af_selective_fast(const af_node *n)
{
    const af_selective_inputs in = af_selective_in(n);
    return af_fast_type(in.x) && (!in.dy || af_fast_type(in.dy)) ? &op : NULL;
}
const af_cpu_op *af_selective_bwd_fast(const af_node *n) { return af_selective_fast(n); }
const af_cpu_op *af_selective_cached_fast(const af_node *n) { return af_selective_fast(n); }
