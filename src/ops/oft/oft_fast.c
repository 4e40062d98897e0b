/* oft_fast.c - oft.c in f32: blocks by vectors, rotations block after block through the packed
 * GEMM. */
#include "ops/common/cpu_fast.h"
#include "ops/oft/oft_attr.h"

enum { MATRICES = 6 }; /* of one thread, [n][n] each */

typedef struct oft_job {
    const af_node *n;
    const af_fast *f;
    float *space; /* [threads][MATRICES][n][n] */
    int64_t size; /* n */
} oft_job;

/* c = a b + f I */
static void multiply(const oft_job *j, float *c, const float *a, const float *b, float f)
{
    const int64_t n = j->size;
    memset(c, 0, (size_t)(n * n) * sizeof *c);
    for (int64_t i = 0; i < n; i++) {
        c[i * n + i] = f;
        for (int64_t k = 0; k < n; k++)
            j->f->axpy(c + i * n, a[i * n + k], b + k * n, n);
    }
}

static void turn(float *to, const float *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++)
            to[k * n + i] = m[i * n + k];
}

/* What the series has after Q^(last - 1): c_(last - 1) I + c_last Q. */
static void begin(const af_node *node, float *p, const float *q, int64_t n)
{
    const int last = node->attr.oft.last;
    const float one = (float)af_oft_factor(node, AF_MAX(last - 1, 0)),
                by = last ? (float)af_oft_factor(node, last) : 0;
    for (int64_t i = 0; i < n * n; i++)
        p[i] = by * q[i] + (i % (n + 1) ? 0 : one);
}

static void skew(float *q, const float *triangle, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        q[i * n + i] = 0;
        for (int64_t j = i + 1; j < n; j++) {
            q[i * n + j] = triangle[af_oft_row_at(i, n) + j];
            q[j * n + i] = -q[i * n + j];
        }
    }
}

static void make_blocks(void *arg, int64_t from, int64_t to, int share)
{
    const oft_job *j = arg;
    const int64_t n = j->size, nn = n * n;
    const int last = j->n->attr.oft.last;
    const af_tensor *t = j->n->in[0];
    float *q = j->space + share * MATRICES * nn, *p = q + nn, *next = p + nn;
    for (int64_t b = from; b < to; b++) {
        float *out = (float *)j->n->out[0]->data + b * nn;
        skew(q, (const float *)t->data + b * t->dim[1], n);
        begin(j->n, p, q, n);
        for (int k = last - 2; k >= 0; k--) {
            multiply(j, next, q, p, (float)af_oft_factor(j->n, k));
            memcpy(p, next, (size_t)nn * sizeof *p);
        }
        memcpy(out, p, (size_t)nn * sizeof *p);
    }
}

static void blocks_run(const af_node *n, af_cpu *cpu)
{
    oft_job j = {n, af_fast_get(), cpu->work, n->out[0]->dim[1]};
    af_pool_run(cpu->pool, n->out[0]->dim[0], make_blocks, &j);
}

static uint64_t blocks_work(const af_node *n, int threads)
{
    const int64_t size = n->op == AF_OP_OFT_BLOCKS ? n->out[0]->dim[1] : n->in[1]->dim[1];
    return (uint64_t)threads * MATRICES * (uint64_t)(size * size) * sizeof(float);
}

/* dQ of the series to `a`, as in oft_cpu.c; Q^T is -Q. */
static void series_back(const oft_job *j, float *a, const float *q, const float *dr, float *space)
{
    const int64_t n = j->size, nn = n * n;
    float *p = space, *next = p + nn, *p_turned = next + nn, *before = p_turned + nn;
    const int last = j->n->attr.oft.last;
    for (int64_t i = 0; i < nn; i++)
        a[i] = last ? (float)af_oft_factor(j->n, last) * dr[i] : 0;
    begin(j->n, p, q, n);
    for (int k = last - 1; k > 0; k--) {
        if (k < last - 1) {
            multiply(j, next, q, p, (float)af_oft_factor(j->n, k));
            memcpy(p, next, (size_t)nn * sizeof *p);
        }
        multiply(j, before, q, a, 0);
        turn(p_turned, p, n);
        multiply(j, a, dr, p_turned, 0);
        j->f->axpy(a, -1, before, nn);
    }
}

static void exact_back(const oft_job *j, float *a, float *r, const float *dr, float *space)
{
    const int64_t n = j->size, nn = n * n;
    float *turned = space, *both = turned + nn;
    for (int64_t i = 0; i < n; i++)
        r[i * n + i] += 1;
    turn(turned, r, n);
    multiply(j, both, turned, dr, 0);
    multiply(j, r, both, turned, 0);
    for (int64_t i = 0; i < nn; i++)
        a[i] = -0.5f * r[i];
}

static void blocks_back(void *arg, int64_t from, int64_t to, int share)
{
    const oft_job *j = arg;
    const int64_t n = j->size, nn = n * n;
    const af_tensor *t = j->n->in[0];
    float *q = j->space + share * MATRICES * nn, *a = q + nn, *space = a + nn;
    for (int64_t b = from; b < to; b++) {
        const float *dr = (const float *)j->n->in[2]->data + b * nn;
        float *dq = (float *)j->n->out[0]->data + b * t->dim[1];
        if (j->n->attr.oft.exact) {
            memcpy(q, (const float *)j->n->in[1]->data + b * nn, (size_t)nn * sizeof *q);
            exact_back(j, a, q, dr, space);
        } else {
            skew(q, (const float *)t->data + b * t->dim[1], n);
            series_back(j, a, q, dr, space);
        }
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = i + 1; c < n; c++) {
                float *to_value = dq + af_oft_row_at(i, n) + c;
                *to_value = (j->n->accumulate ? *to_value : 0) + a[i * n + c] - a[c * n + i];
            }
    }
}

static void blocks_bwd_run(const af_node *n, af_cpu *cpu)
{
    oft_job j = {n, af_fast_get(), cpu->work, n->in[1]->dim[1]};
    af_pool_run(cpu->pool, n->in[1]->dim[0], blocks_back, &j);
}

/* ---- rotations ---- */

static void rotate_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *r = n->in[1];
    const int64_t size = r->dim[1];
    for (int64_t at = 0; at < af_last(x); at += size) {
        const int64_t block = r->dim[0] == 1 ? 0 : at * size;
        const af_operand w = {.data = (const float *)r->data + block,
                              .ld = size,
                              .dtype = AF_DTYPE_F32,
                              .trans = n->attr.oft.turned};
        af_gemm g =
            af_fast_gemm(af_live(x), size, size, af_fast_operand(x, at, false), w, n->out[0], at);
        g.exact = true;
        af_fast_gemm_run(&g, cpu);
    }
}

static void rotate_dr_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *dr = n->out[0];
    const int64_t size = dr->dim[1];
    for (int64_t at = 0; at < af_last(x); at += size) {
        af_gemm g =
            af_fast_gemm(size, size, af_live(x), af_fast_operand(x, at, true),
                         af_fast_operand(n->in[1], at, false), dr, dr->dim[0] == 1 ? 0 : at * size);
        g.add = dr->dim[0] == 1 && at > 0;
        g.exact = true;
        af_fast_gemm_run(&g, cpu);
    }
}

static const af_cpu_op blocks_op = {blocks_run, blocks_work},
                       blocks_bwd_op = {blocks_bwd_run, blocks_work},
                       rotate_op = {rotate_run, af_fast_gemm_work},
                       rotate_dr_op = {rotate_dr_run, af_fast_gemm_work};

/* The exact transform is made by the twin, in double. */
const af_cpu_op *af_oft_blocks_fast(const af_node *n)
{
    return af_fast_all(n) && !n->attr.oft.exact ? &blocks_op : NULL;
}
const af_cpu_op *af_oft_blocks_bwd_fast(const af_node *n)
{
    return af_fast_all(n) ? &blocks_bwd_op : NULL;
}
const af_cpu_op *af_oft_rotate_fast(const af_node *n) { return af_fast_all(n) ? &rotate_op : NULL; }
const af_cpu_op *af_oft_rotate_dr_fast(const af_node *n)
{
    return af_fast_all(n) ? &rotate_dr_op : NULL;
}
