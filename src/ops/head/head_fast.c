/* head_fast.c - head.c through the packed GEMM: rows that have a label are gathered first, then
 * a chunk of them at a time gives logits, loss and gradients.
 *
 * With bf16 rows the logits' gradients are rounded to bf16 before the two GEMMs that use them,
 * in the place of the logits. Sums over the vocabulary are short f32 runs added up in double. */
#include "ops/common/cpu_fast.h"
#include "ops/head/head_in.h"

#include <math.h>

enum {
    RUN = 512,
    CHUNK_BYTES = 72 << 20, /* of logits at a time; each chunk packs the weights twice */
    CHUNK_MAX = 384,
    CHUNK_MIN = 16,
    CHUNK_UNIT = 32,
    PAGE = 4096 / (int)sizeof(float),
    APART = 128 / (int)sizeof(float),
};

typedef struct head_fast_job {
    const af_node *n;
    const af_fast *f;
    int64_t D, V, rows; /* rows of the chunk */
    bool dh, dw;
    double scale;
    const float *weight;  /* [N], of the gradients of rows; or NULL */
    const int32_t *index; /* of the chunk's rows */
    float *z;             /* [chunk] rows of `stride` */
    int64_t stride;
    double *loss; /* [chunk] */
} head_fast_job;

/* From row to row of the logits: rows that begin a multiple of a page apart, as many vocabularies
 * have them, fall on the same few sets of the caches. */
static int64_t stride_of(int64_t V) { return (V + PAGE - 1) / PAGE * PAGE + APART; }

/* Rows of one of the chunks, which are alike, of at most so many. */
static int64_t even_rows(int64_t count, int64_t most)
{
    const int64_t chunks = AF_MAX((count + most - 1) / most, INT64_C(1)),
                  rows = AF_ALIGN_UP((count + chunks - 1) / chunks, (int64_t)CHUNK_UNIT);
    return AF_MAX(AF_MIN(rows, AF_MIN(most, count)), INT64_C(1));
}

/* Rows that fit a chunk. */
static int64_t chunk_rows(const af_node *n)
{
    const af_head_inputs in = af_head_in(n);
    const int64_t row = stride_of(in.w->dim[0]) * (int64_t)sizeof(float),
                  fit = AF_MIN((int64_t)CHUNK_MAX, CHUNK_BYTES / row / CHUNK_UNIT * CHUNK_UNIT),
                  wish = n->attr.head.chunk_rows ? n->attr.head.chunk_rows : fit;
    return even_rows(af_rows(in.h), AF_MAX(wish, (int64_t)CHUNK_MIN));
}

static bool is_bf16(const head_fast_job *j) { return j->n->in[0]->dtype == AF_DTYPE_BF16; }

/* exp(z - shift) over z, in place when it may be; its sum. */
static double exp_row(const head_fast_job *j, float *z, float shift, bool keep)
{
    float e[RUN];
    double sum = 0;
    for (int64_t v = 0; v < j->V; v += RUN) {
        const int64_t n = AF_MIN((int64_t)RUN, j->V - v);
        sum += (double)j->f->exp_sum(keep ? e : z + v, z + v, 1.0f, shift, n);
    }
    return sum;
}

static double sum_row(const float *z, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)z[i];
    return sum;
}

/* Without a soft cap z holds exp(z - max), and with bf16 rows the result is rounded already; with
 * one, the capped logits. */
static void row_gradient(const head_fast_job *j, int32_t row, float *z, int32_t label, double lse,
                         double sum)
{
    const double s = j->n->attr.head.smoothing,
                 k = (j->weight ? (double)j->weight[row] : j->scale) * j->n->attr.head.logit_scale;
    const float cap = (float)j->n->attr.head.softcap, even = (float)(s / (double)j->V),
                factor = (float)k, share = (float)(k / sum), shift = (float)(k * s / (double)j->V),
                at = z[label];
    if (!(cap > 0) && is_bf16(j)) {
        uint16_t *half = (uint16_t *)z;
        j->f->scale_half(half, z, share, shift, j->V);
        half[label] = af_bf16_from_f32(at * share - shift - (float)(k * (1 - s)));
        return;
    }
    if (!(cap > 0)) {
        for (int64_t v = 0; v < j->V; v++)
            z[v] = z[v] * share - shift;
        z[label] -= (float)(k * (1 - s));
        return;
    }
    const float inv = 1.0f / cap;
    float e[RUN];
    for (int64_t v = 0; v < j->V; v += RUN) {
        const int64_t n = AF_MIN((int64_t)RUN, j->V - v);
        j->f->exp_sum(e, z + v, 1.0f, (float)lse, n);
        if (label >= v && label < v + n)
            e[label - v] -= (float)(1 - s);
        for (int64_t i = 0; i < n; i++) {
            const float t = z[v + i] * inv;
            z[v + i] = (e[i] - even) * (1.0f - t * t) * factor;
        }
    }
}

static void round_row(const head_fast_job *j, float *z)
{
    uint16_t half[RUN];
    for (int64_t v = 0; v < j->V; v += RUN) {
        const int64_t n = AF_MIN((int64_t)RUN, j->V - v);
        j->f->to_bf16(half, z + v, n);
        memcpy((uint16_t *)z + v, half, (size_t)n * sizeof *half);
    }
}

/* Columns 2 to 4 of a row's results, before its logits are overwritten. */
static void put_stats(const head_fast_job *j, float *out, const float *z, double lse)
{
    float e[RUN];
    double mean = 0, squares = 0, all = 0;
    for (int64_t v = 0; v < j->V; v += RUN) {
        const int64_t n = AF_MIN((int64_t)RUN, j->V - v);
        j->f->exp_sum(e, z + v, 1.0f, (float)lse, n);
        for (int64_t i = 0; i < n; i++) {
            mean += (double)e[i] * (double)z[v + i];
            squares += (double)e[i] * (double)e[i];
            all += (double)z[v + i];
        }
    }
    out[2] = (float)(lse - mean);
    out[3] = (float)(all / (double)j->V);
    out[4] = (float)log(squares); // cppcheck-suppress invalidFunctionArg ; V > 0
}

/* log of the sum of exp(z), from the maximum; z stays. */
static double row_lse(const head_fast_job *j, float *z, float max)
{
    return (double)max + log(exp_row(j, z, max, true));
}

static void softmax_rows(void *arg, int64_t from, int64_t to, int share)
{
    const head_fast_job *j = arg;
    const af_head_inputs in = af_head_in(j->n);
    const double s = j->n->attr.head.smoothing;
    const float cap = (float)j->n->attr.head.softcap;
    const int64_t columns = af_last(j->n->out[1]);
    (void)share;
    for (int64_t i = from; i < to; i++) {
        const int32_t row = j->index[i], label = ((const int32_t *)in.labels->data)[row];
        float *z = j->z + i * j->stride, *out = (float *)j->n->out[1]->data + columns * row;
        assert(label >= 0 && label < j->V);
        if (cap > 0)
            j->f->softcap(z, z, cap, j->V);
        const float max = j->f->max(z, j->V), at = z[label];
        bool hit = at == max;
        for (int32_t v = 0; hit && v < label; v++)
            hit = z[v] < max; /* the first of equal ones counts */
        const double all = s > 0 ? sum_row(z, j->V) : 0;
        if (j->n->attr.head.stats)
            put_stats(j, out, z, row_lse(j, z, max));
        const double sum = exp_row(j, z, max, cap > 0), lse = (double)max + log(sum);
        j->loss[i] = lse - (1 - s) * (double)at - s * all / (double)j->V;
        out[0] = (float)j->loss[i];
        out[1] = hit ? 1.0f : 0.0f;
        if (!j->dh && !j->dw)
            continue;
        row_gradient(j, row, z, label, lse, sum);
        if (is_bf16(j) && cap > 0)
            round_row(j, z);
    }
}

/* The chunk's rows of h, one after another. */
static void gather(const head_fast_job *j, uint8_t *to)
{
    const af_head_inputs in = af_head_in(j->n);
    const int64_t row = j->D * (int64_t)af_dtype_get(in.h->dtype)->bytes;
    for (int64_t i = 0; i < j->rows; i++)
        memcpy(to + i * row, (const uint8_t *)in.h->data + j->index[i] * row, (size_t)row);
}

static void scatter(const head_fast_job *j, const uint8_t *from)
{
    const int64_t row = j->D * (int64_t)af_dtype_get(j->n->out[2]->dtype)->bytes;
    for (int64_t i = 0; i < j->rows; i++)
        memcpy((uint8_t *)j->n->out[2]->data + j->index[i] * row, from + i * row, (size_t)row);
}

/* The three GEMMs of a chunk. h and dh: its gathered rows. */
static void run_chunk(head_fast_job *j, af_cpu *cpu, void *h, void *dh, void *work, bool add_dw)
{
    const af_node *n = j->n;
    const af_head_inputs in = af_head_in(n);
    const af_operand rows = {.data = h, .ld = j->D, .dtype = in.h->dtype};
    af_operand dz = {
        .data = j->z, .ld = is_bf16(j) ? 2 * j->stride : j->stride, .dtype = in.h->dtype};
    gather(j, h);
    af_gemm g = {.M = j->rows,
                 .N = j->V,
                 .K = j->D,
                 .a = rows,
                 .b = af_fast_weight(in.w, j->D, true),
                 .c = j->z,
                 .ldc = j->stride,
                 .c_dtype = AF_DTYPE_F32,
                 .alpha = (float)n->attr.head.logit_scale};
    j->f->gemm(&g, cpu->pool, work);
    af_pool_run(cpu->pool, j->rows, softmax_rows, j);
    if (j->dh) {
        g = (af_gemm){.M = j->rows,
                      .N = j->D,
                      .K = j->V,
                      .a = dz,
                      .b = af_fast_weight(in.w, j->D, false),
                      .c = dh,
                      .ldc = j->D,
                      .c_dtype = n->out[2]->dtype,
                      .alpha = 1};
        j->f->gemm(&g, cpu->pool, work);
        scatter(j, dh);
    }
    if (j->dw) {
        dz.trans = true;
        g = (af_gemm){.M = j->V,
                      .N = j->D,
                      .K = j->rows,
                      .a = dz,
                      .b = rows,
                      .c = n->out[3]->data,
                      .ldc = j->D,
                      .c_dtype = n->out[3]->dtype,
                      .alpha = 1,
                      .add = add_dw};
        j->f->gemm(&g, cpu->pool, work);
    }
}

/* Rows with a label, in order; the others' results are zero. Returns how many. */
static int64_t select_rows(const head_fast_job *j, int32_t *index)
{
    const af_head_inputs in = af_head_in(j->n);
    const int64_t N = af_live(in.h);
    const int32_t *label = in.labels->data;
    float *rows = j->n->out[1]->data;
    int64_t count = 0;
    memset(rows, 0, (size_t)(af_last(j->n->out[1]) * N) * sizeof *rows);
    for (int64_t i = 0; i < N; i++)
        if (label[i] != -100)
            index[count++] = (int32_t)i;
    if (j->dh && count < N)
        memset(j->n->out[2]->data, 0,
               (size_t)(N * j->D) * (size_t)af_dtype_get(j->n->out[2]->dtype)->bytes);
    if (j->dw && count == 0 && !j->n->accumulate)
        memset(j->n->out[3]->data, 0, af_tensor_extent(j->n->out[3]));
    return count;
}

static void head_loss_run(const af_node *n, af_cpu *cpu)
{
    const af_head_inputs in = af_head_in(n);
    const bool back = cpu->what & (AF_RUN_BACKWARD | AF_RUN_KEEP);
    head_fast_job j = {.n = n, .f = af_fast_get(), .D = in.w->dim[1], .V = in.w->dim[0]};
    const int64_t N = af_rows(in.h), capacity = chunk_rows(n);
    j.dh = back && n->attr.head.dh;
    j.dw = back && n->attr.head.dw;
    j.scale = in.scale ? af_ld(in.scale, 0) : 1;
    j.weight = n->attr.head.weighs ? in.weights->data : NULL;
    j.z = cpu->work;
    j.stride = stride_of(j.V);
    float *h = j.z + capacity * j.stride, *dh = h + capacity * j.D;
    int32_t *index = (int32_t *)(dh + capacity * j.D);
    j.loss = (double *)((uint8_t *)cpu->work +
                        AF_ALIGN_UP((uint64_t)((uint8_t *)(index + N) - (uint8_t *)cpu->work), 64));
    void *work = (uint8_t *)j.loss + AF_ALIGN_UP((uint64_t)capacity * sizeof(double), 64);
    const int64_t count = select_rows(&j, index), chunk = even_rows(count, capacity);
    double total = 0;
    for (int64_t at = 0; at < count; at += chunk) {
        j.index = index + at;
        j.rows = AF_MIN(chunk, count - at);
        run_chunk(&j, cpu, h, dh, work, n->accumulate || at > 0);
        for (int64_t i = 0; i < j.rows; i++)
            total += j.loss[i];
    }
    af_st(n->out[0], 0, total * j.scale);
}

static uint64_t work(const af_node *n, int threads)
{
    const af_head_inputs in = af_head_in(n);
    const uint64_t stride = (uint64_t)stride_of(in.w->dim[0]), N = (uint64_t)af_rows(in.h),
                   D = (uint64_t)in.w->dim[1], chunk = (uint64_t)chunk_rows(n);
    return chunk * (stride + 2 * D) * sizeof(float) + N * sizeof(int32_t) + chunk * sizeof(double) +
           3 * 64 + af_fast_get()->gemm_work(threads);
}

static const af_cpu_op head_op = {head_loss_run, work};

const af_cpu_op *af_head_loss_fast(const af_node *n)
{
    const af_head_inputs in = af_head_in(n);
    const bool dw = n->n_out < 4 || af_fast_type(n->out[3]);
    return af_fast_type(in.h) && in.w->dtype != AF_DTYPE_F64 && dw ? &head_op : NULL;
}
