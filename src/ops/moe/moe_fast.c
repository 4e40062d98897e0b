/* moe_fast.c - the linears of experts, one packed GEMM per expert that has slots, and the sum over
 * experts row by row. Experts come in order and each GEMM is the same with any number of threads.
 * Adapter GEMMs are never rounded to bf16, as in linear_fast.c. */
#include "ops/common/cpu_fast.h"
#include "ops/moe/moe_in.h"

/* Values of expert e of a weight of a block type: an offset for the decoder. */
typedef struct expert_rows {
    const af_tensor *w;
    int64_t at;
} expert_rows;

static void decode_expert(const void *weight, int64_t from, int64_t n, float *out)
{
    const expert_rows *r = weight;
    af_ld_row_f32(r->w, r->at + from, n, out);
}

/* Matrix e of w [X][O][I]; `rows` must outlive the GEMM. */
static af_operand expert(const af_tensor *w, int64_t e, bool trans, expert_rows *rows)
{
    const int64_t I = af_last(w), at = e * w->dim[1] * I;
    af_operand o = af_fast_weight(w, I, trans);
    o.packed = NULL;
    if (o.decode) {
        *rows = (expert_rows){w, at};
        o.decode = decode_expert;
        o.weight = rows;
    } else {
        o.data = af_fast_value(w, at);
    }
    return o;
}

/* x by slot: where it lies, or gathered behind the GEMM's own workspace. */
typedef struct gather_job {
    const af_tensor *x;
    const int32_t *list;
    int64_t k, bytes;
    uint8_t *to;
} gather_job;

static void gather_rows(void *arg, int64_t from, int64_t to, int share)
{
    const gather_job *j = arg;
    (void)share;
    for (int64_t s = from; s < to; s++)
        memcpy(j->to + s * j->bytes, (const uint8_t *)j->x->data + j->list[s] / j->k * j->bytes,
               (size_t)j->bytes);
}

static uint64_t gemm_bytes(int threads)
{
    return AF_ALIGN_UP(af_fast_get()->gemm_work(threads), (uint64_t)64);
}

static uint64_t work(const af_node *n, int threads)
{
    const af_tensor *x = n->in[0];
    const uint64_t gathered = n->attr.moe.by_token
                                  ? (uint64_t)af_count(x) * (uint64_t)n->attr.moe.k *
                                        (uint64_t)af_dtype_get(x->dtype)->bytes
                                  : 0;
    return gemm_bytes(threads) + gathered;
}

static const uint8_t *x_by_slot(const af_node *n, const af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    if (!n->attr.moe.by_token)
        return in.x->data;
    gather_job j = {in.x, in.list->data, n->attr.moe.k,
                    af_last(in.x) * af_dtype_get(in.x->dtype)->bytes,
                    (uint8_t *)cpu->work + gemm_bytes(cpu->threads)};
    af_pool_run(cpu->pool, af_live(in.list) * j.k, gather_rows, &j);
    return j.to;
}

/* Rows of type t from slot s on. */
static af_operand slots(const void *data, int64_t s, int64_t width, af_dtype t, bool trans)
{
    return (af_operand){.data = (const uint8_t *)data + s * width * af_dtype_get(t)->bytes,
                        .ld = width,
                        .dtype = t,
                        .trans = trans};
}

static void linear_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    const int32_t *start = in.start->data;
    const af_tensor *y = n->out[0];
    const int64_t O = in.w->dim[1], I = in.w->dim[2], R = in.a ? in.a->dim[1] : 0;
    const uint8_t *x = x_by_slot(n, cpu);
    for (int64_t e = 0; e < in.w->dim[0]; e++) {
        const int64_t s = start[e], M = start[e + 1] - s;
        if (M == 0)
            continue;
        expert_rows rows, low;
        af_gemm g = af_fast_gemm(M, O, I, slots(x, s, I, in.x->dtype, false),
                                 expert(in.w, e, true, &rows), y, s * O);
        g.alpha = n->attr.moe.alpha;
        g.exact = n->attr.moe.half;
        if (in.bias) {
            g.bias = af_fast_value(in.bias, e * O);
            g.bias_dtype = in.bias->dtype;
        }
        if (R)
            g.term[g.terms++] = (af_gemm_term){R, slots(in.xa->data, s, R, in.xa->dtype, false),
                                               expert(in.b, e, true, &low), true};
        af_fast_gemm_run(&g, cpu);
    }
}

static void dx_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    const int32_t *start = in.start->data;
    const int64_t O = in.w->dim[1], I = in.w->dim[2], R = in.a ? in.a->dim[1] : 0;
    for (int64_t e = 0; e < in.w->dim[0]; e++) {
        const int64_t s = start[e], M = start[e + 1] - s;
        if (M == 0)
            continue;
        expert_rows rows, low;
        af_gemm g = af_fast_gemm(M, I, O, slots(in.dy->data, s, O, in.dy->dtype, false),
                                 expert(in.w, e, false, &rows), n->out[0], s * I);
        g.alpha = n->attr.moe.alpha;
        g.exact = n->attr.moe.half;
        if (R)
            g.term[g.terms++] = (af_gemm_term){R, slots(in.g->data, s, R, in.g->dtype, false),
                                               expert(in.a, e, false, &low), true};
        af_fast_gemm_run(&g, cpu);
    }
}

static void dw_run(const af_node *n, af_cpu *cpu)
{
    const af_moe_inputs in = af_moe_in(n);
    const int32_t *start = in.start->data;
    const af_tensor *d = n->out[0];
    const int64_t O = d->dim[1], I = d->dim[2];
    const uint8_t *x = x_by_slot(n, cpu);
    for (int64_t e = 0; e < d->dim[0]; e++) {
        const int64_t s = start[e], K = start[e + 1] - s;
        if (K == 0) {
            if (!n->accumulate)
                memset(af_fast_value(d, e * O * I), 0,
                       (size_t)(O * I * af_dtype_get(d->dtype)->bytes));
            continue;
        }
        af_gemm g = af_fast_gemm(O, I, K, slots(in.dy->data, s, O, in.dy->dtype, true),
                                 slots(x, s, I, in.x->dtype, false), d, e * O * I);
        g.add = n->accumulate;
        g.exact = n->attr.moe.half;
        af_fast_gemm_run(&g, cpu);
    }
}

/* ---- rows ---- */

typedef struct row_job {
    const af_node *n;
    af_moe_inputs in;
    const af_fast *f;
    float *work; /* [threads][3 * D] */
    int64_t k, D;
} row_job;

static uint64_t row_work(const af_node *n, int threads)
{
    return (uint64_t)threads * 3 * (uint64_t)af_last(n->in[0]) * sizeof(float);
}

static row_job rows_of(const af_node *n, const af_cpu *cpu)
{
    return (row_job){n, af_moe_in(n), af_fast_get(), cpu->work, n->attr.moe.k, af_last(n->in[0])};
}

static void dbias_experts(void *arg, int64_t from, int64_t to, int share)
{
    const row_job *j = arg;
    const int32_t *start = j->in.start->data;
    float *buf = j->work + share * 3 * j->D;
    for (int64_t e = from; e < to; e++) {
        float *sum = (float *)j->n->out[0]->data + e * j->D;
        if (!j->n->accumulate)
            memset(sum, 0, (size_t)j->D * sizeof *sum);
        for (int64_t s = start[e]; s < start[e + 1]; s++)
            j->f->add(sum, sum, af_fast_row(j->f, j->in.dy, s, j->D, buf), j->D);
    }
}

static void dbias_run(const af_node *n, af_cpu *cpu)
{
    row_job j = rows_of(n, cpu);
    af_pool_run(cpu->pool, n->out[0]->dim[0], dbias_experts, &j);
}

static void combine_tokens(void *arg, int64_t from, int64_t to, int share)
{
    const row_job *j = arg;
    const int32_t *slot = j->in.slot->data;
    const float *weights = j->in.weights ? j->in.weights->data : NULL;
    float *buf = j->work + share * 3 * j->D, *out = buf + j->D;
    for (int64_t n = from; n < to; n++) {
        float *y = af_fast_out_row(j->n->out[0], n, j->D, out);
        memset(y, 0, (size_t)j->D * sizeof *y);
        for (int64_t p = n * j->k; p < (n + 1) * j->k; p++)
            j->f->axpy(y, weights ? weights[p] : 1.0f,
                       af_fast_row(j->f, j->in.out, slot[p], j->D, buf), j->D);
        af_fast_put_row(j->f, j->n->out[0], n, j->D, y);
    }
}

static void combine_run(const af_node *n, af_cpu *cpu)
{
    row_job j = rows_of(n, cpu);
    af_pool_run(cpu->pool, af_live(n->out[0]), combine_tokens, &j);
}

/* dout may lie where out does. */
static void combine_back_slots(void *arg, int64_t from, int64_t to, int share)
{
    const row_job *j = arg;
    const int32_t *list = j->in.list->data;
    const float *weights = j->in.weights->data;
    float *dweights = j->n->out[1]->data;
    float *buf = j->work + share * 3 * j->D, *dy_buf = buf + j->D, *out = dy_buf + j->D;
    for (int64_t s = from; s < to; s++) {
        const int64_t p = list[s];
        const float *o = af_fast_row(j->f, j->in.out, s, j->D, buf);
        const float *dy = af_fast_row(j->f, j->in.dy, p / j->k, j->D, dy_buf);
        dweights[p] = j->f->dot(dy, o, j->D);
        float *d = af_fast_out_row(j->n->out[0], s, j->D, out);
        j->f->scale(d, weights[p], dy, j->D);
        af_fast_put_row(j->f, j->n->out[0], s, j->D, d);
    }
}

static void combine_bwd_run(const af_node *n, af_cpu *cpu)
{
    row_job j = rows_of(n, cpu);
    af_pool_run(cpu->pool, af_live(n->in[0]), combine_back_slots, &j);
}

/* ---- which nodes they serve ---- */

static const af_cpu_op linear_op = {linear_run, work}, dx_op = {dx_run, work},
                       dw_op = {dw_run, work}, dbias_op = {dbias_run, row_work},
                       combine_op = {combine_run, row_work},
                       combine_bwd_op = {combine_bwd_run, row_work};

static bool served(const af_node *n)
{
    const af_moe_inputs in = af_moe_in(n);
    const af_tensor *const rows[] = {n->in[0], in.dy, in.xa, in.g, n->out[0]};
    for (size_t i = 0; i < AF_LEN(rows); i++)
        if (rows[i] && !af_fast_type(rows[i]))
            return false;
    const af_tensor *const weights[] = {in.w, in.bias, in.a, in.b};
    for (size_t i = 0; i < AF_LEN(weights); i++)
        if (weights[i] && weights[i]->dtype == AF_DTYPE_F64)
            return false;
    return !in.plus && (!in.weights || in.weights->dtype == AF_DTYPE_F32);
}

const af_cpu_op *af_moe_linear_fast(const af_node *n)
{
    return served(n) && !n->attr.moe.glu ? &linear_op : NULL;
}
const af_cpu_op *af_moe_linear_dx_fast(const af_node *n)
{
    return served(n) && !n->attr.moe.by_token ? &dx_op : NULL;
}
const af_cpu_op *af_moe_linear_dw_fast(const af_node *n) { return served(n) ? &dw_op : NULL; }
const af_cpu_op *af_moe_linear_dbias_fast(const af_node *n)
{
    return served(n) && n->out[0]->dtype == AF_DTYPE_F32 ? &dbias_op : NULL;
}
const af_cpu_op *af_moe_combine_fast(const af_node *n) { return served(n) ? &combine_op : NULL; }
const af_cpu_op *af_moe_combine_bwd_fast(const af_node *n)
{
    return served(n) ? &combine_bwd_op : NULL;
}
