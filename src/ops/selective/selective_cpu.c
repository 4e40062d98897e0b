/* selective_cpu.c - the twins of selective.c.
 *
 * One item of work is one of PARTS ranges of channels: it goes through all sequences, channel by
 * channel. What is summed over channels (db, dc) is summed by range, then over the ranges in order:
 * threads do not change the results. */
#include "backend/cpu/cpu.h"
#include "ops/selective/selective_in.h"

#include <math.h>

enum { PARTS = 16 };

typedef struct scan_job {
    const af_node *n;
    af_selective_inputs in;
    const int32_t *bounds;
    int64_t N, scratch;  /* live rows; doubles of one thread */
    double *work, *part; /* part [PARTS][N][2n]: dc, then db, of a range of channels */
} scan_job;

/* b and c of the rows of a sequence, [len][2n]. */
static void load_bc(const scan_job *j, int64_t row, int64_t len, double *bc)
{
    const int64_t n = j->in.n;
    for (int64_t t = 0; t < len; t++, bc += 2 * n) {
        af_ld_row(j->in.b, (row + t) * n, n, bc);
        af_ld_row(j->in.c, (row + t) * n, n, bc + n);
    }
}

/* Channel i of a sequence; s [n] is its state. With `kept` the states before each row, [len][n]. */
static void forward(const scan_job *j, int64_t i, int64_t row, int64_t len, const double *bc,
                    double *s, double *kept)
{
    const int64_t n = j->in.n, I = j->in.I;
    for (int64_t t = 0; t < len; t++, bc += 2 * n) {
        const double x = af_ld(j->in.x, (row + t) * I + i), dt = af_ld(j->in.dt, (row + t) * I + i);
        double y = 0;
        for (int64_t k = 0; k < n; k++) {
            if (kept)
                kept[t * n + k] = s[k];
            s[k] = exp(dt * af_ld(j->in.a, i * n + k)) * s[k] + dt * x * bc[k];
            y += bc[n + k] * s[k];
        }
        if (!kept)
            af_st(j->n->out[0], (row + t) * I + i, y);
    }
}

/* kept [len][n]: the states before each row; g [n], da [n]: zero, and added to. */
static void backward(const scan_job *j, int64_t i, int64_t row, int64_t len, const double *bc,
                     const double *kept, double *g, double *da, double *part)
{
    const int64_t n = j->in.n, I = j->in.I;
    for (int64_t t = len - 1; t >= 0; t--) {
        const int64_t at = (row + t) * I + i;
        const double x = af_ld(j->in.x, at), dt = af_ld(j->in.dt, at), dy = af_ld(j->in.dy, at);
        const double *b = bc + t * 2 * n, *c = b + n, *before = kept + t * n;
        double dx = 0, ddt = 0, *sums = part + (row + t) * 2 * n;
        for (int64_t k = 0; k < n; k++) {
            const double a = af_ld(j->in.a, i * n + k), e = exp(dt * a),
                         s = e * before[k] + dt * x * b[k];
            g[k] += dy * c[k];
            sums[k] += dy * s;
            sums[n + k] += g[k] * dt * x;
            dx += g[k] * dt * b[k];
            ddt += g[k] * (a * e * before[k] + x * b[k]);
            da[k] += g[k] * dt * e * before[k];
            g[k] *= e;
        }
        af_st(j->n->out[0], at, dx);
        af_st(j->n->out[1], at, ddt);
    }
}

static void carry(const scan_job *j, int64_t s, int64_t i, double *state, bool store)
{
    const int64_t at = (s * j->in.I + i) * j->in.n;
    if (store)
        af_st_row(j->in.state, at, j->in.n, state);
    else if (((const int32_t *)j->in.start->data)[s] != 0)
        af_ld_row(j->in.state, at, j->in.n, state);
}

static void ranges(void *arg, int64_t from, int64_t to, int share)
{
    const scan_job *j = arg;
    const int64_t n = j->in.n, I = j->in.I;
    double *s = j->work + share * j->scratch, *g = s + n, *da = g + n, *bc = da + I * n,
           *kept = bc + 2 * n * j->N;
    for (int64_t p = from; p < to; p++) {
        const int64_t first = p * I / PARTS, end = (p + 1) * I / PARTS;
        memset(da + first * n, 0, (size_t)((end - first) * n) * sizeof *da);
        for (int64_t q = 0; q < j->in.S; q++) {
            const int64_t row = j->bounds[q], len = j->bounds[q + 1] - row;
            load_bc(j, row, len, bc);
            for (int64_t i = first; i < end && len > 0; i++) {
                memset(s, 0, 2 * (size_t)n * sizeof *s); /* and g */
                if (j->in.state)
                    carry(j, q, i, s, false);
                forward(j, i, row, len, bc, s, j->in.dy ? kept : NULL);
                if (j->in.state)
                    carry(j, q, i, s, true);
                if (j->in.dy)
                    backward(j, i, row, len, bc, kept, g, da + i * n, j->part + p * j->N * 2 * n);
            }
        }
        if (j->in.dy)
            af_st_row(j->n->out[2], first * n, (end - first) * n, da + first * n);
    }
}

static void zero_rows(const scan_job *j, int64_t from, int64_t to)
{
    for (int64_t i = from * j->in.I; i < to * j->in.I; i++) {
        af_st(j->n->out[0], i, 0);
        if (j->in.dy)
            af_st(j->n->out[1], i, 0);
    }
}

/* db and dc of rows. */
static void add_parts(void *arg, int64_t from, int64_t to, int share)
{
    const scan_job *j = arg;
    const int64_t n = j->in.n;
    (void)share;
    for (int64_t r = from; r < to; r++)
        for (int64_t k = 0; k < 2 * n; k++) {
            double sum = 0;
            for (int64_t p = 0; p < PARTS; p++)
                sum += j->part[(p * j->N + r) * 2 * n + k];
            af_st(j->n->out[k < n ? 4 : 3], r * n + k % n, sum);
        }
}

static int64_t scratch_of(const af_selective_inputs *in)
{
    return 2 * in->n + in->I * in->n + 3 * in->n * in->x->dim[0];
}

static uint64_t selective_work(const af_node *n, int threads)
{
    const af_selective_inputs in = af_selective_in(n);
    const int64_t parts = in.dy ? PARTS * in.x->dim[0] * 2 * in.n : 0;
    return ((uint64_t)threads * (uint64_t)scratch_of(&in) + (uint64_t)parts) * sizeof(double);
}

static void selective_run(const af_node *n, af_cpu *cpu)
{
    scan_job j = {.n = n, .in = af_selective_in(n), .work = cpu->work};
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

const af_cpu_op af_cpu_selective = {selective_run, selective_work};
const af_cpu_op af_cpu_selective_bwd = {selective_run, selective_work};
const af_cpu_op af_cpu_selective_cached = {selective_run, selective_work};
