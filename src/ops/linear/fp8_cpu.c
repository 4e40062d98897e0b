/* fp8_cpu.c - FP8 projections on the CPU: operands are rounded to e4m3 and back into f32 copies,
 * which the ordinary versions multiply. Nothing is kept between runs: a CPU gains nothing by FP8,
 * and what counts here is that its numbers are those of a GPU. */
#include "ops/linear/fp8_linear.h"
#include "ops/linear/linear_in.h"
#include "tensor/fp8_round.h"

/* Weight rows whose columns a task looks at; a fixed number, though maxima do not depend on it. */
enum { BAND = 256 };

typedef struct fp8_job {
    const af_node *n;
    af_linear_inputs in;
    int64_t I, O;
    const af_tensor *from; /* activations to be copied, `round`: to e4m3 */
    bool round;
    float *to;
    float *w;             /* [O][I] */
    float *largest;       /* [I] */
    af_fp8_scale *column; /* [I] */
} fp8_job;

static int64_t in_columns(const af_node *n)
{
    return af_last(n->op == AF_OP_LINEAR ? n->in[0] : n->out[0]);
}

static int64_t weight_rows(const af_node *n)
{
    return n->attr.linear.piece_from[n->attr.linear.pieces];
}

static uint64_t floats(int64_t count) { return AF_ALIGN_UP((uint64_t)count * 4, (uint64_t)64); }

/* The adapter's low-rank values, where the terms of a GEMM would be of two types. */
static const af_tensor *low_rank(const af_linear_inputs *in)
{
    const af_tensor *low = in->xa ? in->xa : in->g;
    return low && low->dtype == AF_DTYPE_BF16 ? low : NULL;
}

uint64_t af_fp8_cpu_bytes(const af_node *n)
{
    if (!n->attr.linear.fp8)
        return 0;
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *low = low_rank(&in);
    const int64_t I = in_columns(n);
    return floats(af_count(n->in[0])) + (low ? floats(af_count(low)) : 0) +
           floats(weight_rows(n) * I) + 3 * floats(I);
}

static void copy_rows(void *arg, int64_t from, int64_t to, int share)
{
    const fp8_job *j = arg;
    const int64_t W = af_last(j->from);
    (void)share;
    for (int64_t r = from; r < to; r++) {
        float *row = j->to + r * W;
        af_ld_row_f32(j->from, r * W, W, row);
        if (j->round)
            af_fp8_round_row(row, W, af_fp8_scale_of(af_fp8_largest(row, W, 0)));
    }
}

/* Row o of the stacked pieces. */
static void load_weight_row(const fp8_job *j, int64_t o, float *out)
{
    const int64_t *start = j->n->attr.linear.piece_from;
    int k = 0;
    while (o >= start[k + 1])
        k++;
    af_ld_row_f32(j->in.w[k], (o - start[k]) * j->I, j->I, out);
}

static void round_weight_rows(void *arg, int64_t from, int64_t to, int share)
{
    const fp8_job *j = arg;
    const bool forward = j->n->op == AF_OP_LINEAR;
    (void)share;
    for (int64_t o = from; o < to; o++) {
        float *row = j->w + o * j->I;
        if (!forward) {
            af_fp8_round_columns(row, j->I, j->column);
            continue;
        }
        load_weight_row(j, o, row);
        af_fp8_round_row(row, j->I, af_fp8_scale_of(af_fp8_largest(row, j->I, 0)));
    }
}

static void load_weight_rows(void *arg, int64_t from, int64_t to, int share)
{
    const fp8_job *j = arg;
    (void)share;
    for (int64_t o = from; o < to; o++)
        load_weight_row(j, o, j->w + o * j->I);
}

static void scale_columns(void *arg, int64_t from, int64_t to, int share)
{
    const fp8_job *j = arg;
    (void)share;
    for (int64_t band = from; band < to; band++) {
        const int64_t at = band * BAND, n = AF_MIN(j->I - at, (int64_t)BAND);
        memset(j->largest + at, 0, (size_t)n * sizeof *j->largest);
        for (int64_t o = 0; o < j->O; o++)
            af_fp8_largest_columns(j->largest + at, j->w + o * j->I + at, n);
        for (int64_t i = at; i < at + n; i++)
            j->column[i] = af_fp8_scale_of(j->largest[i]);
    }
}

static void fill_weights(fp8_job *j, af_cpu *cpu)
{
    if (j->n->op == AF_OP_LINEAR_DX) {
        af_pool_run(cpu->pool, j->O, load_weight_rows, j);
        af_pool_run(cpu->pool, (j->I + BAND - 1) / BAND, scale_columns, j);
    }
    af_pool_run(cpu->pool, j->O, round_weight_rows, j);
}

/* t as f32 at *at, which moves on behind it. */
static af_tensor copy_of(const af_tensor *t, uint8_t **at)
{
    af_tensor copy = *t;
    copy.dtype = AF_DTYPE_F32;
    copy.data = *at;
    copy.quant = NULL;
    copy.backend = NULL;
    *at += floats(af_count(t));
    return copy;
}

static void replace(af_node *n, const af_tensor *old, af_tensor *by)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] == old)
            n->in[i] = by;
}

void af_fp8_cpu_run(const af_node *n, af_cpu *cpu, af_cpu_kernel *plain)
{
    fp8_job j = {.n = n, .in = af_linear_in(n), .I = in_columns(n), .O = weight_rows(n)};
    af_node run = *n;
    af_tensor rows, low, weight[AF_LINEAR_PIECES];
    uint8_t *const work = cpu->work, *at = work;
    const af_tensor *const active[] = {n->in[0], low_rank(&j.in)};
    for (int k = 0; k < 2 && active[k]; k++) {
        af_tensor *copy = k ? &low : &rows;
        *copy = copy_of(active[k], &at);
        j.from = active[k];
        j.round = k == 0;
        j.to = copy->data;
        af_pool_run(cpu->pool, af_live(j.from), copy_rows, &j);
        replace(&run, active[k], copy);
    }
    j.w = (float *)at;
    at += floats(j.O * j.I);
    j.largest = (float *)at;
    at += floats(j.I);
    j.column = (af_fp8_scale *)at;
    at += 2 * floats(j.I);
    fill_weights(&j, cpu);
    for (int k = 0; k < n->attr.linear.pieces; k++) {
        uint8_t *data = (uint8_t *)(j.w + n->attr.linear.piece_from[k] * j.I);
        weight[k] = copy_of(j.in.w[k], &data);
        run.in[1 + k] = &weight[k];
    }
    run.attr.linear.fp8 = false;
    cpu->work = at;
    plain(&run, cpu);
    cpu->work = work;
}
