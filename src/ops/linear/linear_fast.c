/* linear_fast.c - the projections through the packed GEMM: forward, dX, dW, and the adapter's
 * low-rank ones.
 *
 * Adapter GEMMs are never rounded to bf16: their values are f32 masters whose small updates must
 * be seen. */
#include "ops/common/cpu_fast.h"
#include "ops/linear/adapter_lowrank.h"
#include "ops/linear/fp8_linear.h"
#include "ops/linear/linear_in.h"

static bool served(const af_node *n, int activations)
{
    for (int i = 0; i < activations; i++)
        if (!af_fast_type(n->in[i]))
            return false;
    return true;
}

/* Whether the rows of this run are single tokens, or rows picked for the head. */
static bool is_skinny(const af_node *n)
{
    const af_tensor *x = n->in[0];
    const af_graph *g = x->graph;
    return n->attr.linear.few_rows && (g->one_token || x->live == &g->live_picks);
}

static bool no_f64(const af_node *n)
{
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i]->dtype == AF_DTYPE_F64)
            return false;
    return af_fast_type(n->out[0]);
}

/* The adapter's share of part p, xa B^T, as a term of a GEMM. */
static af_gemm_term part_term(const af_node *n, int p)
{
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *b = in.b, *xa = in.xa;
    const af_adapter_part *q = &n->attr.linear.part[p];
    af_gemm_term t = {q->rank, af_fast_operand(xa, q->rank_from, false),
                      af_fast_weight(b, q->rank, true), true};
    t.b.data = af_fast_value(b, af_linear_part_at(n, p));
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

/* A part that covers no single piece: added to what is there. */
static void add_part(const af_node *n, af_cpu *cpu, int p)
{
    const af_gemm_term t = part_term(n, p);
    const af_adapter_part *q = &n->attr.linear.part[p];
    af_gemm g = af_fast_gemm(af_live(n->in[0]), q->out_rows, t.K, t.a, t.b, n->out[0], q->out_from);
    g.skinny = is_skinny(n);
    g.add = g.exact = true;
    af_fast_gemm_run(&g, cpu);
}

static void linear_run(const af_node *n, af_cpu *cpu)
{
    if (n->attr.linear.fp8) {
        af_fp8_cpu_run(n, cpu, linear_run);
        return;
    }
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *x = in.x;
    af_tensor *y = n->out[0];
    const int64_t N = af_live(x), I = af_last(x), *from = n->attr.linear.piece_from;
    unsigned done = 0; /* parts that went with their piece */
    for (int i = 0; i < n->attr.linear.pieces; i++) {
        const af_tensor *bias = in.bias[i];
        const int p = part_of(n, from[i], from[i + 1]);
        af_gemm g = af_fast_gemm(N, from[i + 1] - from[i], I, af_fast_operand(x, 0, false),
                                 af_fast_weight(in.w[i], I, true), y, from[i]);
        g.skinny = is_skinny(n);
        g.rounded = x->graph->round_activations;
        g.bias = bias ? bias->data : NULL;
        g.bias_dtype = bias ? bias->dtype : AF_DTYPE_F32;
        if (p >= 0) {
            g.term[g.terms++] = part_term(n, p);
            done |= 1u << p;
        }
        af_fast_gemm_run(&g, cpu);
    }
    if (n->attr.linear.pieces == 0)
        memset(y->data, 0, (size_t)(N * af_last(y)) * (size_t)af_dtype_get(y->dtype)->bytes);
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
    const int64_t I = af_last(x);
    for (int p = 0; p < n->attr.linear.parts;) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        int64_t ranks;
        p += parts_alike(n, p, &ranks);
        af_operand w = af_fast_weight(a, I, true);
        w.data = af_fast_value(a, q->rank_from * I);
        af_gemm g = af_fast_gemm(af_live(x), ranks, I, af_fast_operand(x, 0, false), w, n->out[0],
                                 q->rank_from);
        g.alpha = q->scale;
        g.skinny = is_skinny(n);
        g.exact = true;
        af_fast_gemm_run(&g, cpu);
    }
}

/* g = scale * dy B */
static void adapter_g_run(const af_node *n, af_cpu *cpu)
{
    const af_tensor *dy = n->in[0], *b = n->in[1];
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        af_operand w = af_fast_weight(b, q->rank, false);
        w.data = af_fast_value(b, af_linear_part_at(n, p));
        af_gemm g =
            af_fast_gemm(af_live(dy), q->rank, q->out_rows, af_fast_operand(dy, q->out_from, false),
                         w, n->out[0], q->rank_from);
        g.alpha = q->scale;
        g.exact = true;
        af_fast_gemm_run(&g, cpu);
    }
}

/* dx = dy W + g a: one sum over the rows of all pieces and the ranks of the adapter. */
static void linear_dx_run(const af_node *n, af_cpu *cpu)
{
    if (n->attr.linear.fp8) {
        af_fp8_cpu_run(n, cpu, linear_dx_run);
        return;
    }
    const af_linear_inputs in = af_linear_in(n);
    const af_tensor *dy = in.dy;
    const int64_t I = af_last(n->out[0]), *from = n->attr.linear.piece_from;
    af_gemm_term term[AF_LINEAR_PIECES + 1];
    int terms = 0;
    for (int i = 0; i < n->attr.linear.pieces; i++)
        term[terms++] = (af_gemm_term){from[i + 1] - from[i], af_fast_operand(dy, from[i], false),
                                       af_fast_weight(in.w[i], I, false), false};
    if (in.a)
        term[terms++] = (af_gemm_term){af_last(in.g), af_fast_operand(in.g, 0, false),
                                       af_fast_weight(in.a, I, false), true};
    af_gemm g = af_fast_gemm(af_live(dy), I, term[0].K, term[0].a, term[0].b, n->out[0], 0);
    g.exact = term[0].exact;
    g.terms = terms - 1;
    memcpy(g.term, term + 1, (size_t)(terms - 1) * sizeof *term);
    af_fast_gemm_run(&g, cpu);
}

/* out [M][N] at value `at` = or += dy^T x */
static void gradient(const af_node *n, af_cpu *cpu, int64_t M, int64_t N, af_operand dy,
                     af_operand x, int64_t at, bool adapter)
{
    af_gemm g = af_fast_gemm(M, N, af_live(n->in[0]), dy, x, n->out[0], at);
    g.ldc = N;
    g.add = n->accumulate;
    g.nontemporal = !adapter;
    g.exact = adapter;
    af_fast_gemm_run(&g, cpu);
}

/* dW of one piece = dy^T x */
static void linear_dw_run(const af_node *n, af_cpu *cpu)
{
    const int i = n->attr.linear.piece;
    const int64_t *from = n->attr.linear.piece_from;
    gradient(n, cpu, from[i + 1] - from[i], af_last(n->in[0]),
             af_fast_operand(n->in[1], from[i], true), af_fast_operand(n->in[0], 0, false), 0,
             false);
}

/* da = g^T x: rows of all parts at once. */
static void adapter_da_run(const af_node *n, af_cpu *cpu)
{
    gradient(n, cpu, af_last(n->in[1]), af_last(n->in[0]), af_fast_operand(n->in[1], 0, true),
             af_fast_operand(n->in[0], 0, false), 0, true);
}

/* db of part p = dy_p^T xa_p */
static void adapter_db_run(const af_node *n, af_cpu *cpu)
{
    for (int p = 0; p < n->attr.linear.parts; p++) {
        const af_adapter_part *q = &n->attr.linear.part[p];
        gradient(n, cpu, q->out_rows, q->rank, af_fast_operand(n->in[0], q->out_from, true),
                 af_fast_operand(n->in[1], q->rank_from, false), af_linear_part_at(n, p), true);
    }
}

/* Of LINEAR and LINEAR_DX. */
static uint64_t projection_work(const af_node *n, int threads)
{
    return af_fp8_cpu_bytes(n) + af_fast_gemm_work(n, threads);
}

static const af_cpu_op linear_op = {linear_run, projection_work},
                       down_op = {adapter_down_run, af_fast_gemm_work},
                       g_op = {adapter_g_run, af_fast_gemm_work},
                       dx_op = {linear_dx_run, projection_work},
                       dw_op = {linear_dw_run, af_fast_gemm_work},
                       da_op = {adapter_da_run, af_fast_gemm_work},
                       db_op = {adapter_db_run, af_fast_gemm_work};

const af_cpu_op *af_linear_fast(const af_node *n)
{
    return served(n, 1) && no_f64(n) ? &linear_op : NULL;
}
const af_cpu_op *af_adapter_down_fast(const af_node *n)
{
    const af_cpu_op *lowrank = af_adapter_down_lowrank(n);
    return lowrank ? lowrank : served(n, 1) && no_f64(n) ? &down_op : NULL;
}
const af_cpu_op *af_adapter_g_fast(const af_node *n)
{
    const af_cpu_op *lowrank = af_adapter_g_lowrank(n);
    return lowrank ? lowrank : served(n, 1) && no_f64(n) ? &g_op : NULL;
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
    const af_cpu_op *lowrank = af_adapter_da_lowrank(n);
    return lowrank ? lowrank : served(n, 2) && no_f64(n) ? &da_op : NULL;
}
const af_cpu_op *af_adapter_db_fast(const af_node *n)
{
    const af_cpu_op *lowrank = af_adapter_db_lowrank(n);
    return lowrank ? lowrank : served(n, 2) && no_f64(n) ? &db_op : NULL;
}
