/* oft_cpu.c - the twins of oft.c. */
#include "backend/cpu/cpu.h"
#include "ops/oft/oft.h"
#include "ops/oft/oft_attr.h"

enum { MATRICES = 6 }; /* of one thread, [n][n] each */

typedef struct oft_job {
    const af_node *n;
    double *space; /* [threads][MATRICES][n][n] */
    int64_t size;  /* n */
} oft_job;

/* c = a b + f I, or a^T b and a b^T */
static void multiply(double *c, const double *a, bool ta, const double *b, bool tb, double f,
                     int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = i == j ? f : 0;
            for (int64_t k = 0; k < n; k++)
                sum += a[ta ? k * n + i : i * n + k] * b[tb ? j * n + k : k * n + j];
            c[i * n + j] = sum;
        }
}

static void identity(double *m, double f, int64_t n)
{
    for (int64_t i = 0; i < n * n; i++)
        m[i] = i % (n + 1) ? 0 : f;
}

static void skew(double *q, const af_tensor *triangle, int64_t block, int64_t n)
{
    const int64_t first = block * triangle->dim[1];
    for (int64_t i = 0; i < n; i++) {
        q[i * n + i] = 0;
        for (int64_t j = i + 1; j < n; j++) {
            q[i * n + j] = af_ld(triangle, first + af_oft_row_at(i, n) + j);
            q[j * n + i] = -q[i * n + j];
        }
    }
}

void af_oft_invert(double *r, double *q, int64_t n)
{
    identity(r, 1, n);
    for (int64_t i = 0; i < n; i++)
        q[i * n + i] += 1;
    for (int64_t p = 0; p < n; p++) {
        const double d = 1 / q[p * n + p];
        for (int64_t j = 0; j < n; j++) {
            q[p * n + j] *= d;
            r[p * n + j] *= d;
        }
        for (int64_t i = 0; i < n; i++) {
            const double f = q[i * n + p];
            for (int64_t j = 0; i != p && j < n; j++) {
                q[i * n + j] -= f * q[p * n + j];
                r[i * n + j] -= f * r[p * n + j];
            }
        }
    }
    for (int64_t i = 0; i < n * n; i++)
        r[i] = 2 * r[i] - (i % (n + 1) == 0);
}

static void make_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const oft_job *j = arg;
    const int64_t n = j->size, nn = n * n;
    double *q = j->space + share * MATRICES * nn, *p = q + nn, *next = p + nn;
    const int last = j->n->attr.oft.last;
    for (int64_t b = from; b < to; b++) {
        skew(q, j->n->in[0], b, n);
        identity(p, af_oft_factor(j->n, last), n);
        for (int k = last - 1; k >= 0; k--) { /* p = c_k I + Q p */
            multiply(next, q, false, p, false, af_oft_factor(j->n, k), n);
            memcpy(p, next, (size_t)nn * sizeof *p);
        }
        if (j->n->attr.oft.exact)
            af_oft_invert(p, q, n);
        af_st_row(j->n->out[0], b * nn, nn, p);
    }
}

static void blocks_run(const af_node *n, af_cpu *cpu)
{
    oft_job j = {n, cpu->work, n->out[0]->dim[1]};
    af_pool_run(cpu->pool, n->out[0]->dim[0], make_blocks, &j);
}

static uint64_t blocks_work(const af_node *n, int threads)
{
    const int64_t size = n->op == AF_OP_OFT_BLOCKS ? n->out[0]->dim[1] : n->in[1]->dim[1];
    return (uint64_t)threads * MATRICES * (uint64_t)(size * size) * sizeof(double);
}

/* dQ of the series to `a`: a = dr P_k^T + Q^T a from the last power to the first, where P_k is what
 * the series has after Q^k. */
static void series_back(const oft_job *j, double *a, const double *q, const double *dr,
                        double *space)
{
    const int64_t n = j->size, nn = n * n;
    double *p = space, *next = p + nn, *turned = next + nn;
    const int last = j->n->attr.oft.last;
    identity(p, af_oft_factor(j->n, last), n);
    identity(a, 0, n);
    for (int k = last; k > 0; k--) {
        if (k < last) {
            multiply(next, q, false, p, false, af_oft_factor(j->n, k), n);
            memcpy(p, next, (size_t)nn * sizeof *p);
        }
        multiply(turned, q, true, a, false, 0, n);
        multiply(a, dr, false, p, true, 0, n);
        for (int64_t i = 0; i < nn; i++)
            a[i] += turned[i];
    }
}

static void exact_back(double *a, double *r, const double *dr, double *space, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        r[i * n + i] += 1;
    multiply(space, r, true, dr, false, 0, n);
    multiply(a, space, false, r, true, 0, n);
    for (int64_t i = 0; i < n * n; i++)
        a[i] *= -0.5;
}

static void blocks_back(void *arg, int64_t from, int64_t to, int share)
{
    const oft_job *j = arg;
    const int64_t n = j->size, nn = n * n;
    double *q = j->space + share * MATRICES * nn, *dr = q + nn, *a = dr + nn, *space = a + nn;
    for (int64_t b = from; b < to; b++) {
        af_ld_row(j->n->in[2], b * nn, nn, dr);
        if (j->n->attr.oft.exact) {
            af_ld_row(j->n->in[1], b * nn, nn, q);
            exact_back(a, q, dr, space, n);
        } else {
            skew(q, j->n->in[0], b, n);
            series_back(j, a, q, dr, space);
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = i + 1; c < n; c++)
                af_put(j->n, j->n->out[0], b * j->n->out[0]->dim[1] + af_oft_row_at(i, n) + c,
                       a[i * n + c] - a[c * n + i]);
    }
}

static void blocks_bwd_run(const af_node *n, af_cpu *cpu)
{
    oft_job j = {n, cpu->work, n->in[1]->dim[1]};
    af_pool_run(cpu->pool, n->in[1]->dim[0], blocks_back, &j);
}

/* ---- rotations ---- */

static void rotate_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *x = n->in[0], *r = n->in[1];
    const int64_t I = af_last(x), size = r->dim[1];
    (void)share;
    for (int64_t i = from * I; i < to * I; i++) {
        const int64_t b = i % I / size, c = i % size, own = r->dim[0] == 1 ? 0 : b;
        double sum = 0;
        for (int64_t k = 0; k < size; k++) {
            const int64_t at = n->attr.oft.turned ? c * size + k : k * size + c;
            sum += af_ld(x, i - c + k) * af_ld(r, own * size * size + at);
        }
        af_st(n->out[0], i, sum);
    }
}

static void rotate_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, af_live(n->in[0]), rotate_rows, (void *)n);
}

/* Rows k of all blocks. */
static void dr_rows(void *arg, int64_t from, int64_t to, int share)
{
    const af_node *n = arg;
    const af_tensor *x = n->in[0], *dy = n->in[1], *dr = n->out[0];
    const int64_t I = af_last(x), size = dr->dim[1], N = af_live(x);
    (void)share;
    for (int64_t i = from; i < to; i++)
        for (int64_t c = 0; c < size; c++) {
            const int64_t b = i / size;
            double sum = 0;
            for (int64_t at = b * size; at < (dr->dim[0] == 1 ? I : (b + 1) * size); at += size)
                for (int64_t row = 0; row < N; row++)
                    sum += af_ld(x, row * I + at + i % size) * af_ld(dy, row * I + at + c);
            af_st(n->out[0], i * size + c, sum);
        }
}

static void rotate_dr_run(const af_node *n, af_cpu *cpu)
{
    af_pool_run(cpu->pool, n->out[0]->dim[0] * n->out[0]->dim[1], dr_rows, (void *)n);
}

const af_cpu_op af_cpu_oft_blocks = {blocks_run, blocks_work};
const af_cpu_op af_cpu_oft_blocks_bwd = {blocks_bwd_run, blocks_work};
const af_cpu_op af_cpu_oft_rotate = {rotate_run, NULL};
const af_cpu_op af_cpu_oft_rotate_dr = {rotate_dr_run, NULL};
