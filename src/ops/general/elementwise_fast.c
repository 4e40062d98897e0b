/* elementwise_fast.c - the elementwise ops a step of a language model runs on: add and mul of equal
 * shapes or with a row, all four with a value per row, gradient accumulation, embedding rows, bias
 * gradients. */
#include "ops/common/cpu_fast.h"
#include "ops/common/twin.h"

enum { SPAN = 2048 }; /* elements of one piece of work */

typedef struct elementwise_job {
    const af_node *n;
    const af_fast *f;
    float *work;
    int64_t count, D; /* D: width of the row that is added to every row, or 0 */
} elementwise_job;

static void apply(const elementwise_job *j, int64_t at, const float *a, const float *b, int64_t n,
                  float *buf)
{
    const af_tensor *y = j->n->out[0];
    const bool f32 = y->dtype == AF_DTYPE_F32;
    float *out = f32 ? (float *)y->data + at : buf;
    if (j->n->attr.binary.kind == AF_BINARY_ADD)
        j->f->add(out, a, b, n);
    else
        j->f->mul(out, a, b, n);
    if (!f32)
        j->f->to_bf16((uint16_t *)y->data + at, out, n);
}

/* Pieces of SPAN elements; with a row operand, of one row. */
static void binary_pieces(void *arg, int64_t from, int64_t to, int share)
{
    const elementwise_job *j = arg;
    const int64_t span = j->D ? j->D : SPAN;
    float *a = j->work + share * 3 * AF_MAX(j->D, (int64_t)SPAN), *b = a + span, *y = b + span;
    for (int64_t i = from; i < to; i++) {
        const int64_t at = i * span, n = AF_MIN(span, j->count - at);
        apply(j, at, af_fast_span(j->f, j->n->in[0], at, n, a),
              af_fast_span(j->f, j->n->in[1], j->D ? 0 : at, n, b), n, y);
    }
}

static bool is_row(const af_tensor *b, const af_tensor *y)
{
    return af_count(b) == af_last(y) && af_last(b) == af_last(y);
}

static void binary_run(const af_node *n, af_cpu *cpu)
{
    elementwise_job j = {n, af_fast_get(), cpu->work, af_live_count(n->out[0]), 0};
    j.D = af_same_shape(n->in[0], n->in[1]) ? 0 : af_last(n->out[0]);
    const int64_t span = j.D ? j.D : SPAN;
    af_pool_run(cpu->pool, (j.count + span - 1) / span, binary_pieces, &j);
}

/* Equal shapes, or a value per row: y[r][i] = a[r][i] op b[r], all f32. */
static void row_pieces(void *arg, int64_t from, int64_t to, int share)
{
    (void)share;
    const elementwise_job *j = arg;
    const af_binary_kind kind = j->n->attr.binary.kind;
    const bool one = af_last(j->n->in[1]) != j->D;
    const int64_t step = AF_MAX(SPAN / j->D, INT64_C(1));
    for (int64_t r = from * step; r < AF_MIN(to * step, j->count / j->D); r++) {
        const float *a = (const float *)j->n->in[0]->data + r * j->D;
        const float *b = (const float *)j->n->in[1]->data + (one ? r : r * j->D);
        float *y = (float *)j->n->out[0]->data + r * j->D;
        for (int64_t i = 0; i < j->D; i++) {
            const float v = b[one ? 0 : i];
            y[i] = kind == AF_BINARY_ADD   ? a[i] + v
                   : kind == AF_BINARY_SUB ? a[i] - v
                   : kind == AF_BINARY_MUL ? a[i] * v
                                           : a[i] / v;
        }
    }
}

static void rows_run(const af_node *n, af_cpu *cpu)
{
    elementwise_job j = {n, af_fast_get(), NULL, af_live_count(n->out[0]), af_last(n->out[0])};
    const int64_t step = AF_MAX(SPAN / j.D, INT64_C(1));
    af_pool_run(cpu->pool, (j.count / j.D + step - 1) / step, row_pieces, &j);
}

/* Of live rows only where both are: one value per row of the batch. */
static bool fits_rows(const af_node *n)
{
    const af_tensor *a = n->in[0], *b = n->in[1], *y = n->out[0];
    const bool f32 = a->dtype == AF_DTYPE_F32 && b->dtype == AF_DTYPE_F32 && y->dtype == a->dtype;
    const bool one = b->ndim == y->ndim && af_last(b) == 1 && af_count(b) == af_rows(y);
    return f32 && af_last(y) > 0 && af_same_shape(a, y) && (one || af_same_shape(b, y));
}

static uint64_t binary_work(const af_node *n, int threads)
{
    const int64_t span = AF_MAX(af_last(n->out[0]), (int64_t)SPAN);
    return (uint64_t)threads * 3 * (uint64_t)span * sizeof(float);
}

static void accum_pieces(void *arg, int64_t from, int64_t to, int share)
{
    const elementwise_job *j = arg;
    const af_tensor *into = j->n->in[0];
    float *a = j->work + share * 3 * SPAN, *b = a + SPAN;
    for (int64_t at = from * SPAN; at < AF_MIN(to * SPAN, j->count); at += SPAN) {
        const int64_t n = AF_MIN((int64_t)SPAN, j->count - at);
        const bool f32 = into->dtype == AF_DTYPE_F32;
        const float *x = af_fast_span(j->f, into, at, n, a),
                    *y = af_fast_span(j->f, j->n->in[1], at, n, b);
        float *out = f32 ? (float *)into->data + at : a;
        if (j->n->first)
            memcpy(out, y, (size_t)n * sizeof *out);
        else
            j->f->add(out, x, y, n);
        if (!f32)
            j->f->to_bf16((uint16_t *)into->data + at, out, n);
    }
}

static void accum_run(const af_node *n, af_cpu *cpu)
{
    elementwise_job j = {n, af_fast_get(), cpu->work, af_count(n->in[0]), 0};
    af_pool_run(cpu->pool, (j.count + SPAN - 1) / SPAN, accum_pieces, &j);
}

static void embedding_rows(void *arg, int64_t from, int64_t to, int share)
{
    const elementwise_job *j = arg;
    const af_tensor *table = j->n->in[1], *y = j->n->out[0];
    const int32_t *ids = j->n->in[0]->data;
    for (int64_t r = from; r < to; r++) {
        assert(ids[r] >= 0 && ids[r] < table->dim[0]);
        if (table->dtype == y->dtype) {
            const int64_t bytes = j->D * (int64_t)af_dtype_get(y->dtype)->bytes;
            memcpy((uint8_t *)y->data + r * bytes, (uint8_t *)table->data + ids[r] * bytes,
                   (size_t)bytes);
            continue;
        }
        float *out = af_fast_out_row(y, r, j->D, j->work + share * j->D);
        af_ld_row_f32(table, ids[r] * j->D, j->D, out);
        af_fast_put_row(j->f, y, r, j->D, out);
    }
}

static void embedding_run(const af_node *n, af_cpu *cpu)
{
    elementwise_job j = {n, af_fast_get(), cpu->work, 0, n->in[1]->dim[1]};
    af_pool_run(cpu->pool, af_live(n->in[0]), embedding_rows, &j);
}

static uint64_t embedding_work(const af_node *n, int threads)
{
    return (uint64_t)threads * (uint64_t)n->in[1]->dim[1] * sizeof(float);
}

enum { COLUMNS = 512 }; /* of dbias, summed side by side */

static void bias_columns(void *arg, int64_t from, int64_t to, int share)
{
    const elementwise_job *j = arg;
    const af_node *n = j->n;
    const int64_t N = af_live(n->in[0]), W = af_last(n->in[0]), O = n->out[0]->dim[0];
    const int64_t first = n->attr.linear.piece_from[n->attr.linear.piece];
    float *sum = j->work + share * 3 * COLUMNS, *buf = sum + COLUMNS, *part = buf + COLUMNS;
    for (int64_t c = from * COLUMNS; c < AF_MIN(to * COLUMNS, O); c += COLUMNS) {
        const int64_t m = AF_MIN((int64_t)COLUMNS, O - c);
        memset(sum, 0, (size_t)m * sizeof *sum);
        for (int64_t r0 = 0; r0 < N; r0 += 64) { /* short runs keep the rounding small */
            memset(part, 0, (size_t)m * sizeof *part);
            for (int64_t r = r0; r < AF_MIN(r0 + 64, N); r++)
                j->f->add(part, part, af_fast_span(j->f, n->in[0], r * W + first + c, m, buf), m);
            j->f->add(sum, sum, part, m);
        }
        for (int64_t i = 0; i < m; i++)
            af_put(n, n->out[0], c + i, (double)sum[i]);
    }
}

static void dbias_run(const af_node *n, af_cpu *cpu)
{
    elementwise_job j = {n, af_fast_get(), cpu->work, 0, 0};
    af_pool_run(cpu->pool, (n->out[0]->dim[0] + COLUMNS - 1) / COLUMNS, bias_columns, &j);
}

static uint64_t pieces_work(const af_node *n, int threads)
{
    (void)n;
    return (uint64_t)threads * 3 * SPAN * sizeof(float);
}

static const af_cpu_op rows_op = {rows_run, NULL}, binary_op = {binary_run, binary_work},
                       accum_op = {accum_run, pieces_work},
                       embedding_op = {embedding_run, embedding_work},
                       dbias_op = {dbias_run, pieces_work};

const af_cpu_op *af_binary_fast(const af_node *n)
{
    const bool kind = n->attr.binary.kind == AF_BINARY_ADD || n->attr.binary.kind == AF_BINARY_MUL;
    const bool shape = af_same_shape(n->in[0], n->out[0]) &&
                       (af_same_shape(n->in[1], n->out[0]) || is_row(n->in[1], n->out[0]));
    return kind && shape && af_fast_all(n) ? &binary_op : fits_rows(n) ? &rows_op : NULL;
}
const af_cpu_op *af_accum_fast(const af_node *n)
{
    return af_fast_type(n->in[0]) && af_fast_type(n->in[1]) ? &accum_op : NULL;
}
const af_cpu_op *af_embedding_fast(const af_node *n)
{
    return af_fast_type(n->out[0]) && n->in[1]->dtype != AF_DTYPE_F64 ? &embedding_op : NULL;
}
const af_cpu_op *af_linear_dbias_fast(const af_node *n)
{
    return af_fast_all(n) ? &dbias_op : NULL;
}
