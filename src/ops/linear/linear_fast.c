/* linear_fast.c - the projections through the packed product: forward, dX, dW, and the adapter's
 * thin ones.
 *
 * Adapter products are never rounded to bf16: their values are f32 masters whose small updates must
 * be seen. */
#include "ops/common/cpu_fast.h"
#include "ops/linear/adapter_slim.h"
#include "ops/linear/linear_in.h"

static uint64_t work(const af_node *n, int threads)
{
    (void)n;
    return af_fast_get()->gemm_work(threads);
}

static bool served(const af_node *n, int activations)
{
    for (int i = 0; i < activations; i++)
        if (!af_fast_type(n->in[i]))
            return false;
    return true;
}

static bool no_f64(const af_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype == AF_DTYPE_F64)
            return false;
    return af_fast_type(n->out[0]);
}

static void *column(const af_tensor *t, int64_t c)
{
    return (uint8_t *)t->data + c * af_dtype_get(t->dtype)->bytes;
}

/* Columns [from, from+..) of an activation as an operand. */
static af_operand columns(const af_tensor *t, int64_t from, bool trans)
{
    af_operand o = af_fast_operand(t, trans);
    o.data = column(t, from);
    return o;
}

/* The adapter's share of part p, xa B^T, as a term of a product. */
static af_gemm_term part_term(const af_node *n, int p)
{
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *b = in.b, *xa = in.xa;
    const af_adapter_part *q = &n->attr.linear.part[p];
    af_gemm_term t = {q->rank, columns(xa, q->rank_from, false), af_fast_weight(b, q->rank, true),
                      true};
    t.b.data = column(b, af_linear_part_at(n, p));
    return t;
}

/* The part that covers exactly columns [from, to), or -1. */
static int part_of(const af_node *n, int64_t from, int64_t to)
{
    for (int p = 0; p < n->attr.linear.parts; p++)
        if (n->attr.linear.part[p].out_from == from && n->attr.linear.part[p].out_rows == to - from)
            return p;
    return -1;
}

/* A part that stands beside no single piece: added to what is there. */
static void add_part(const af_node *n, af_cpu *cpu, int p)
{
    const af_gemm_term t = part_term(n, p);
    af_tensor *y = n->out[0];
    const af_gemm g = {.M = af_live(n->in[0]),
                       .N = n->attr.linear.part[p].out_rows,
                       .K = t.K,
                       .a = t.a,
                       .b = t.b,
                       .c = column(y, n->attr.linear.part[p].out_from),
                       .ldc = af_last(y),
                       .c_dtype = y->dtype,
                       .alpha = 1,
                       .few = n->attr.linear.few_rows,
                       .add = true,
                       .exact = true};
    af_fast_get()->gemm(&g, cpu->pool, cpu->work);
}

static void linear_run(const af_node *n, af_cpu *cpu)
{
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *x = in.x;
    af_tensor *y = n->out[0];
    const int64_t N = af_live(x), I = af_last(x), O = af_last(y), *from = n->attr.linear.piece_from;
    unsigned done = 0; /* parts that went with their piece */
    for (int i = 0; i < n->attr.linear.pieces; i++) {
        const af_tensor *bias = in.bias[i];
        const int p = part_of(n, from[i], from[i + 1]);
        af_gemm g = {.M = N,
                     .N = from[i + 1] - from[i],
                     .K = I,
                     .a = af_fast_operand(x, false),
                     .b = af_fast_weight(in.w[i], I, true),
                     .c = column(y, from[i]),
                     .ldc = O,
                     .c_dtype = y->dtype,
                     .alpha = 1,
                     .few = n->attr.linear.few_rows,
                     .bias = bias ? bias->data : NULL,
                     .bias_dtype = bias ? bias->dtype : AF_DTYPE_F32};
        if (p >= 0) {
            g.term[g.terms++] = part_term(n, p);
            done |= 1u << p;
        }
        af_fast_get()->gemm(&g, cpu->pool, cpu->work);
    }
    if (n->attr.linear.pieces == 0)
        memset(y->data, 0, (size_t)(N * O) * (size_t)af_dtype_get(y->dtype)->bytes);
    for (int p = 0; p < n->attr.linear.parts; p++)
        if (!(done >> p & 1))
            add_part(n, cpu, p);
}

/* Ranks of part p and of those after it that follow on with the same scale. */
static int parts_alike(const af_node *n, int p, int64_t *ranks)
{
    const af_adapter_part *q = &n->attr.linear.part[p];
    int count = 0;
    *ranks = 0;
    for (; p + count < n->attr.linear.parts && q[count].rank_from == q->rank_from + *ranks &&
           q[count].scale == q->scale;
         count++)
        *ranks += q[count].rank;
    return count;
}

/* xa = scale * x a^T */
static void adapter_down_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *a = n->in[1];
    af_tensor *xa = n->out[0];
    const int64_t I = af_last(x), R = af_last(xa);
    for (int p = 0; p < n->attr.linear.parts;) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        int64_t ranks;
        p += parts_alike(n, p, &ranks);
        af_operand w = af_fast_weight(a, I, true);
        w.data = column(a, q->rank_from * I);
        const af_gemm g = {.M = af_live(x),
                           .N = ranks,
                           .K = I,
                           .a = af_fast_operand(x, false),
                           .b = w,
                           .c = column(xa, q->rank_from),
                           .ldc = R,
                           .c_dtype = xa->dtype,
                           .alpha = q->scale,
                           .few = n->attr.linear.few_rows,
                           .exact = true};
        af_fast_get()->gemm(&g, cpu->pool, cpu->work);
    }
}

/* g = scale * dy B */
static void adapter_g_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *b = n->in[1];
    af_tensor *out = n->out[0];
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        af_operand w = af_fast_weight(b, q->rank, false);
        w.data = column(b, af_linear_part_at(n, p));
        const af_gemm g = {.M = af_live(dy),
                           .N = q->rank,
                           .K = q->out_rows,
                           .a = columns(dy, q->out_from, false),
                           .b = w,
                           .c = column(out, q->rank_from),
                           .ldc = af_last(out),
                           .c_dtype = out->dtype,
                           .alpha = q->scale,
                           .exact = true};
        af_fast_get()->gemm(&g, cpu->pool, cpu->work);
    }
}

/* dx = dy W + g a: one sum over the rows of all pieces and the ranks of the adapter. */
static void linear_dx_run(const af_node *n, af_cpu *cpu)
{
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *dy = in.dy;
    af_tensor *dx = n->out[0];
    const int64_t I = af_last(dx), *from = n->attr.linear.piece_from;
    af_gemm_term term[AF_LINEAR_PIECES + 1];
    int terms = 0;
    for (int i = 0; i < n->attr.linear.pieces; i++)
        term[terms++] = (af_gemm_term){from[i + 1] - from[i], columns(dy, from[i], false),
                                       af_fast_weight(in.w[i], I, false), false};
    if (in.a)
        term[terms++] = (af_gemm_term){af_last(in.g), af_fast_operand(in.g, false),
                                       af_fast_weight(in.a, I, false), true};
    af_gemm g = {.M = af_live(dy),
                 .N = I,
                 .K = term[0].K,
                 .a = term[0].a,
                 .b = term[0].b,
                 .exact = term[0].exact,
                 .c = dx->data,
                 .ldc = I,
                 .c_dtype = dx->dtype,
                 .alpha = 1,
                 .terms = terms - 1};
    memcpy(g.term, term + 1, (size_t)(terms - 1) * sizeof *term);
    af_fast_get()->gemm(&g, cpu->pool, cpu->work);
}

/* dW of one piece = dy^T x. The pieces of a projection come one after another and share x. */
static void linear_dw_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *dy = n->in[1];
    const af_node *before = cpu->before;
    if (!before || before->op != AF_OP_LINEAR_DW || before->in[0] != x)
        cpu->kept = (af_kept){0};
    const int i = n->attr.linear.piece;
    const int64_t *from = n->attr.linear.piece_from, I = af_last(x);
    const af_gemm g = {.M = from[i + 1] - from[i],
                       .N = I,
                       .K = af_live(x),
                       .a = columns(dy, from[i], true),
                       .b = af_fast_operand(x, false),
                       .c = n->out[0]->data,
                       .ldc = I,
                       .c_dtype = n->out[0]->dtype,
                       .alpha = 1,
                       .add = n->accumulate,
                       .away = true,
                       .kept = &cpu->kept};
    af_fast_get()->gemm(&g, cpu->pool, cpu->work);
}

/* da = g^T x: rows of all parts at once. */
static void adapter_da_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *x = n->in[0], *gr = n->in[1];
    const int64_t I = af_last(x);
    const af_gemm g = {.M = af_last(gr),
                       .N = I,
                       .K = af_live(x),
                       .a = af_fast_operand(gr, true),
                       .b = af_fast_operand(x, false),
                       .c = n->out[0]->data,
                       .ldc = I,
                       .c_dtype = n->out[0]->dtype,
                       .alpha = 1,
                       .add = n->accumulate,
                       .exact = true};
    af_fast_get()->gemm(&g, cpu->pool, cpu->work);
}

/* db of part p = dy_p^T xa_p */
static void adapter_db_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *xa = n->in[1];
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        const af_gemm g = {.M = q->out_rows,
                           .N = q->rank,
                           .K = af_live(dy),
                           .a = columns(dy, q->out_from, true),
                           .b = columns(xa, q->rank_from, false),
                           .c = column(n->out[0], af_linear_part_at(n, p)),
                           .ldc = q->rank,
                           .c_dtype = n->out[0]->dtype,
                           .alpha = 1,
                           .add = n->accumulate,
                           .exact = true};
        af_fast_get()->gemm(&g, cpu->pool, cpu->work);
    }
}

static const af_cpu_op linear_op = {linear_run, work}, down_op = {adapter_down_run, work},
                       g_op = {adapter_g_run, work}, dx_op = {linear_dx_run, work},
                       dw_op = {linear_dw_run, work}, da_op = {adapter_da_run, work},
                       db_op = {adapter_db_run, work};

const af_cpu_op *af_linear_fast(const af_node *n)
{
    return served(n, 1) && no_f64(n) ? &linear_op : NULL;
}
const af_cpu_op *af_adapter_down_fast(const af_node *n)
{
    const af_cpu_op *slim = af_adapter_down_slim(n);
    return slim ? slim : served(n, 1) && no_f64(n) ? &down_op : NULL;
}
const af_cpu_op *af_adapter_g_fast(const af_node *n)
{
    const af_cpu_op *slim = af_adapter_g_slim(n);
    return slim ? slim : served(n, 1) && no_f64(n) ? &g_op : NULL;
}
const af_cpu_op *af_linear_dx_fast(const af_node *n)
{
    return served(n, 1) && no_f64(n) ? &dx_op : NULL;
}
const af_cpu_op *af_linear_dw_fast(const af_node *n)
{
    return served(n, 2) && no_f64(n) ? &dw_op : NULL;
}
const af_cpu_op *af_adapter_da_fast(const af_node *n)
{
    const af_cpu_op *slim = af_adapter_da_slim(n);
    return slim ? slim : served(n, 2) && no_f64(n) ? &da_op : NULL;
}
const af_cpu_op *af_adapter_db_fast(const af_node *n)
{
    const af_cpu_op *slim = af_adapter_db_slim(n);
    return slim ? slim : served(n, 2) && no_f64(n) ? &db_op : NULL;
}
