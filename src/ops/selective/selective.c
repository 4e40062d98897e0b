/* selective.c - the selective scan of Mamba-1 (Gu and Dao 2023), over packed sequences and with a
 * carried state for generation.
 *
 * SELECTIVE  x [N][I], dt [N][I], a [I][n], b [N][n], c [N][n], bounds i32 [S+1] -> y [N][I].
 *            State s [n] of each channel i, zero before a sequence; for its rows in order
 *              s[j] = exp(dt[i] a[i][j]) s[j] + dt[i] x[i] b[j];   y[i] = sum_j c[j] s[j]
 *            Rows outside every sequence: y = 0, no gradient. dt and a are f32 (f64 for f64), b and
 *            c have the type of x.
 * SELECTIVE_BWD     x, dt, a, b, c, bounds, dy -> dx, ddt, da, db, dc. With e = exp(dt a) and g the
 *                   gradient of s, from the last row to the first:
 *                     g = dy c + (e g of the next row);   dc = sum_i dy s;   db = sum_i g dt x
 *                     dx = sum_j g dt b;   ddt = sum_j g (a e s' + x b);   da = sum_rows g dt e s'
 *                   s' being the state before the row. No state is kept for it.
 * SELECTIVE_CACHED  x, dt, a, b, c, bounds, state f32 [S][I][n] (in place), start i32 [S] -> y: new
 *                   rows continue the state of their sequence; start[s] = 0: from zero. */
#include "ops/selective/selective_in.h"
#include "tensor/dtype.h"

static af_dtype stat_type(const af_tensor *x)
{
    return x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
}

static bool is_matrix(const af_tensor *t, af_dtype type, int64_t rows, int64_t cols)
{
    return t->dtype == type && t->ndim == 2 && t->dim[0] == rows && t->dim[1] == cols;
}

static bool check(af_graph *g, const char *name, const af_selective_opts *o)
{
    char a[96], b[96];
    const af_tensor *x = o->x;
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || o->a->ndim != 2 ||
        !is_matrix(o->dt, stat_type(x), x->dim[0], x->dim[1]) ||
        !is_matrix(o->a, stat_type(x), x->dim[1], o->a->dim[1]) || o->a->dim[1] < 1)
        af_graph_bad(g, "%s: x %s, its steps and a %s do not fit together", name,
                     af_shape_text(x, a, sizeof a), af_shape_text(o->a, b, sizeof b));
    else if (!is_matrix(o->b, x->dtype, x->dim[0], o->a->dim[1]) ||
             !is_matrix(o->c, x->dtype, x->dim[0], o->a->dim[1]))
        af_graph_bad(g, "%s: b %s and c %s do not fit the states", name,
                     af_shape_text(o->b, a, sizeof a), af_shape_text(o->c, b, sizeof b));
    else if (o->bounds->dtype != AF_DTYPE_I32 || o->bounds->ndim != 1 || o->bounds->dim[0] < 1)
        af_graph_bad(g, "%s: bounds are %s, not i32 [S+1]", name,
                     af_shape_text(o->bounds, a, sizeof a));
    return !af_graph_failed(g);
}

af_tensor *af_selective(af_graph *g, const af_selective_opts *o)
{
    if (af_graph_refuses_opts(g, "selective", o))
        return af_graph_dummy(g);
    af_tensor *in[] = {o->x, o->dt, o->a, o->b, o->c, o->bounds};
    if (af_graph_refuses(g, "selective", in, 6) || !check(g, "selective", o))
        return af_graph_dummy(g);
    af_expect(o->bounds, AF_VALUE_BOUNDS, o->x->dim[0]);
    return af_node_output_like(g, af_node_new(g, AF_OP_SELECTIVE, in, 6), o->x);
}

af_tensor *af_selective_cached(af_graph *g, const af_selective_opts *o, af_tensor *state,
                               af_tensor *start)
{
    char a[96];
    if (af_graph_refuses_opts(g, "selective_cached", o))
        return af_graph_dummy(g);
    af_tensor *in[] = {o->x, o->dt, o->a, o->b, o->c, o->bounds, state, start};
    if (af_graph_refuses(g, "selective_cached", in, 8) || !check(g, "selective_cached", o))
        return af_graph_dummy(g);
    const int64_t S = o->bounds->dim[0] - 1;
    if (start->dtype != AF_DTYPE_I32 || start->ndim != 1 || start->dim[0] != S ||
        state->role != AF_ROLE_STATE || state->dtype != stat_type(o->x) || state->ndim != 3 ||
        state->dim[0] != S || state->dim[1] * state->dim[2] != o->a->dim[0] * o->a->dim[1])
        return af_graph_bad(g, "selective_cached: state %s does not fit %" PRId64 " sequences",
                            af_shape_text(state, a, sizeof a), S);
    af_expect(o->bounds, AF_VALUE_BOUNDS, o->x->dim[0]);
    return af_node_output_like(g, af_node_new(g, AF_OP_SELECTIVE_CACHED, in, 8), o->x);
}

static void selective_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *in[7], *d[5] = {0};
    if (!dout[0])
        return;
    memcpy(in, n->in, 6 * sizeof *in);
    in[6] = dout[0];
    af_node *b = af_node_new(g, AF_OP_SELECTIVE_BWD, in, 7);
    for (int i = 0; i < 5 && !af_graph_failed(g); i++)
        d[i] = af_node_output_like(g, b, n->in[i]);
    for (int i = 0; i < 5 && !af_graph_failed(g); i++) {
        if (i == 2)
            d[i]->live = NULL;
        af_grad_add(g, n->in[i], d[i]);
    }
}

static double selective_flops(const af_node *n)
{
    const af_selective_inputs in = af_selective_in(n);
    return 8.0 * (double)in.x->dim[0] * (double)in.I * (double)in.n;
}
static double selective_bwd_flops(const af_node *n) { return 3 * selective_flops(n); }

const af_op_info af_op_selective = {
    .name = "selective", .grad = selective_grad, .flops = selective_flops, .costly = true};
const af_op_info af_op_selective_bwd = {.name = "selective_bwd", .flops = selective_bwd_flops};
const af_op_info af_op_selective_cached = {.name = "selective_cached", .effect = true};
