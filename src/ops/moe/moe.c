/* moe.c - mixture of experts: the router, the lists, and the sum over experts. The experts' linears
 * are in moe_linear.c, their activation is GLU.
 *
 * N tokens, X experts, k of them a token. A pair is (token, j): pair p = n*k + j. Slots are pairs
 * sorted by expert, of one expert in order. Values by slot are [N][k][W]: as many slots as pairs,
 * and those of the live tokens come first. LISTS stands for list, slot, start.
 *
 * MOE_ROUTE        logits [N][X], [bias f32 [X]] -> weights [N][k], index i32 [N][k],
 *                  scores [N][X]: s = softmax or sigmoid of the logits, c = s + bias (without bias
 *                  softmax compares logits); groups: see af_route_opts; index = the k largest c
 *                  that may be chosen, of equals the lower first; weights = scale * s / T, T = the
 *                  sum of the chosen s + eps with `norm`, else 1. NEAR: scores = the logits z;
 *                  expert j is the largest z of those left, m; weight = scale / S_j, S_j = the sum
 *                  of exp(z - m) over those left with m - z <= eps max(|z|, m)
 * MOE_ROUTE_BWD    scores, index, dweights -> dlogits. d_j = scale dw_j / T, minus (norm)
 *                  m = sum_j d_j s_j / T; softmax: dz_e = s_e (d_e - sum_j d_j s_j), sigmoid:
 *                  dz_e = d_e s_e (1 - s_e); NEAR: the sum over j of scale dw_j / S_j times
 *                  ([e is j's] - exp(z_e - m_j) / S_j where e counts in S_j)
 * MOE_PICK         values [N][X], index -> y [N][k]: y[n][j] = values[n][index[n][j]]
 * MOE_PICK_BWD     index, dy [N][k] -> dvalues [N][X]: 0 where nothing was picked
 * MOE_REAL         index -> real i32 [N][k], mask [N][k]: of experts below X (attr.moe.real) the
 *                  index and 1; of others index mod X, so that they spread, and 0
 * MOE_LIST         index -> list i32 [N][k] (pair of a slot), slot i32 [N][k] (slot of a pair),
 *                  start i32 [X+1] (expert e has slots start[e] to start[e+1] - 1)
 * MOE_COMBINE      out [N][k][D], LISTS, [weights] -> y[n] = sum_j weights[n][j] * out[slot], j in
 *                  order; without weights: times 1; plus one more input [N][D] (attr.moe.plus)
 * MOE_COMBINE_BWD  out, LISTS, weights, dy -> dout [N][k][D], dweights: dout[s] = weights[p] *
 *                  dy[n], dweights[p] = dy[n] . out[s], p = list[s], n = p / k
 * MOE_GLU_BWD      gate_up [N][k][2F], LISTS, weights, dy [N][k][F] -> dgate_up, dweights: what
 *                  moe_fuse.c makes of three nodes. dgate_up[s] = weights[p] times GLU_BWD's,
 *                  dweights[p] = dy[s] . GLU's
 * weights and scores are f32 (f64 for f64). */
#include "ops/moe/moe_in.h"
#include "tensor/dtype.h"

static bool route_fits(af_graph *g, const af_tensor *logits, const af_route_opts *o)
{
    char a[96];
    const int64_t X = logits->dim[1];
    const int groups = AF_MAX(o->groups, 1);
    if (!af_dtype_is_float(logits->dtype) || logits->ndim != 2 || o->used < 1 || o->used > X)
        af_graph_bad(g, "moe_route: cannot take %d experts of logits %s", o->used,
                     af_shape_text(logits, a, sizeof a));
    else if ((unsigned)o->score > AF_ROUTE_NEAR)
        af_graph_bad(g, "moe_route: score %d is not one of 0 to %d", (int)o->score, AF_ROUTE_NEAR);
    else if (o->score == AF_ROUTE_NEAR &&
             (o->bias || o->norm || groups > 1 || o->used > AF_ROUTE_NEAR_MAX))
        af_graph_bad(g,
                     "moe_route: a sparse mixer has no bias, norm or groups, and at most %d "
                     "experts per token",
                     AF_ROUTE_NEAR_MAX);
    else if (o->by_logit &&
             (o->score != AF_ROUTE_SIGMOID || groups > 1 || (o->norm && o->eps != 0)))
        af_graph_bad(g, "moe_route: choices by logits are for sigmoids without groups and eps");
    else if (o->bias &&
             (o->bias->ndim != 1 || o->bias->dim[0] != X ||
              o->bias->dtype != (logits->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32)))
        af_graph_bad(g, "moe_route: bias %s does not fit %" PRId64 " experts",
                     af_shape_text(o->bias, a, sizeof a), X);
    else if (groups > 1 && (X % groups || o->groups_used < 1 || o->groups_used > groups ||
                            o->group_best < 1 || o->group_best > 2 || o->group_best > X / groups ||
                            o->used > X / groups * o->groups_used))
        af_graph_bad(
            g, "moe_route: %d of %d groups by their %d best cannot give %d of %" PRId64 " experts",
            o->groups_used, groups, o->group_best, o->used, X);
    return !af_graph_failed(g);
}

static af_tensor *pick(af_graph *g, af_tensor *values, af_tensor *index)
{
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_MOE_PICK, (af_tensor *[]){values, index}, 2);
    return af_node_output(g, n, values->dtype, 2, index->dim);
}

static void pick_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_moe_inputs in = af_moe_in(n);
    af_node *b = af_node_new(g, AF_OP_MOE_PICK_BWD, (af_tensor *[]){in.index, dout[0]}, 2);
    af_tensor *d = af_node_output_like(g, b, in.scores);
    if (!af_graph_failed(g))
        af_grad_add(g, in.scores, d);
}

/* A softmax without a bias compares logits: it makes the choices, its weights are not used. */
static af_tensor *route_by_logit(af_graph *g, af_tensor *logits, const af_route_opts *o,
                                 af_tensor **index)
{
    const af_dtype type = logits->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
    af_tensor *z = logits->dtype == type ? logits : af_cast(g, logits, type);
    af_moe_route(g, o->bias ? af_add(g, z, o->bias) : z, &(af_route_opts){.used = o->used}, index);
    af_tensor *w = pick(g, af_sigmoid(g, z), *index);
    if (o->norm)
        w = af_div(g, w, af_sum(g, w, 1, true));
    return o->scale == 0 || o->scale == 1 ? w : af_scale(g, w, o->scale);
}

af_tensor *af_moe_route(af_graph *g, af_tensor *logits, const af_route_opts *o, af_tensor **index)
{
    af_tensor *own;
    index = index ? index : &own;
    *index = af_graph_dummy(g);
    if (af_graph_refuses_opts(g, "moe_route", o) || af_graph_refuses(g, "moe_route", &logits, 1) ||
        !route_fits(g, logits, o))
        return af_graph_dummy(g);
    if (o->by_logit)
        return route_by_logit(g, logits, o, index);
    af_node *n = af_node_new(g, AF_OP_MOE_ROUTE, (af_tensor *[]){logits, o->bias}, o->bias ? 2 : 1);
    n->attr.route.k = o->used;
    n->attr.route.score = o->score;
    n->attr.route.norm = o->norm;
    n->attr.route.bias = o->bias != NULL;
    n->attr.route.eps = o->eps;
    n->attr.route.scale = o->scale == 0 ? 1 : o->scale;
    n->attr.route.groups = AF_MAX(o->groups, 1);
    n->attr.route.groups_used = o->groups_used;
    n->attr.route.group_best = o->group_best;
    const af_dtype type = logits->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
    const int64_t dim[2] = {logits->dim[0], o->used};
    af_tensor *w = af_node_output(g, n, type, 2, dim);
    af_tensor *i = af_node_output(g, n, AF_DTYPE_I32, 2, dim);
    af_tensor *s = af_node_output(g, n, type, 2, logits->dim);
    if (af_graph_failed(g))
        return w;
    i->needs_grad = s->needs_grad = false;
    *index = i;
    return w;
}

static void route_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (!dout[0])
        return;
    af_node *b =
        af_node_new(g, AF_OP_MOE_ROUTE_BWD, (af_tensor *[]){n->out[2], n->out[1], dout[0]}, 3);
    b->attr = n->attr;
    af_tensor *d = af_node_output_like(g, b, n->in[0]);
    if (!af_graph_failed(g))
        af_grad_add(g, n->in[0], d);
}

static af_moe_lists make_lists(af_graph *g, af_tensor *index, int64_t experts)
{
    af_node *n = af_node_new(g, AF_OP_MOE_LIST, (af_tensor *[]){index}, 1);
    af_moe_lists l = {.list = af_node_output_like(g, n, index),
                      .slot = af_node_output_like(g, n, index),
                      .start = af_node_output(g, n, AF_DTYPE_I32, 1, (int64_t[]){experts + 1})};
    if (!af_graph_failed(g))
        l.start->live = NULL;
    return l;
}

/* Pairs of identity experts become pairs of other experts with weight 0, since every pair has a
 * slot in the lists. The result, [N][1], is the sum of their weights: the factor of x. */
static af_tensor *take_identity(af_graph *g, af_tensor **weights, af_tensor **index, int64_t X)
{
    af_node *n = af_node_new(g, AF_OP_MOE_REAL, (af_tensor *[]){*index}, 1);
    n->attr.moe.real = (int)X;
    af_tensor *real = af_node_output_like(g, n, *index),
              *mask = af_node_output(g, n, (*weights)->dtype, 2, (*index)->dim);
    if (af_graph_failed(g))
        return *weights;
    af_tensor *kept = af_mul(g, *weights, mask), *own = af_sub(g, *weights, kept);
    *weights = kept;
    *index = real;
    return af_sum(g, own, 1, true);
}

static bool check(af_graph *g, const af_tensor *x, const af_tensor *weights, const af_tensor *index,
                  const af_tensor *gate_up, const af_tensor *down, bool plain)
{
    char a[96], b[96];
    if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || gate_up->ndim != 3 ||
        gate_up->dim[2] != x->dim[1] || gate_up->dim[1] % (plain ? 1 : 2))
        af_graph_bad(g, "moe_ffn: x %s and gate_up %s do not fit together",
                     af_shape_text(x, a, sizeof a), af_shape_text(gate_up, b, sizeof b));
    else if (down->ndim != 3 || down->dim[0] != gate_up->dim[0] ||
             down->dim[1] != gate_up->dim[2] || down->dim[2] != gate_up->dim[1] / (plain ? 1 : 2))
        af_graph_bad(g, "moe_ffn: down %s and gate_up %s do not fit together",
                     af_shape_text(down, a, sizeof a), af_shape_text(gate_up, b, sizeof b));
    else if (index->dtype != AF_DTYPE_I32 || !af_same_shape(weights, index) || index->ndim != 2 ||
             index->dim[0] != x->dim[0] || !af_dtype_is_float(weights->dtype))
        af_graph_bad(g, "moe_ffn: weights %s and index %s do not fit together",
                     af_shape_text(weights, a, sizeof a), af_shape_text(index, b, sizeof b));
    return !af_graph_failed(g);
}

static af_tensor *plain_act(af_graph *g, af_tensor *h, const af_experts_opts *o)
{
    if (o->relu2) {
        h = af_relu(g, h);
        return af_mul(g, h, h);
    }
    switch (o->act) {
    case AF_ACT_SILU:
        return af_silu(g, h);
    case AF_ACT_GELU_TANH:
        return af_gelu_tanh(g, h);
    case AF_ACT_GELU:
        return af_gelu(g, h);
    case AF_ACT_RELU:
        return af_relu(g, h);
    }
    return h;
}

af_tensor *af_moe_ffn(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                      const af_experts_opts *o)
{
    if (af_graph_refuses_opts(g, "moe_ffn", o))
        return af_graph_dummy(g);
    af_tensor *const in[] = {x, weights, index, o->gate_up.weight, o->down.weight};
    if (af_graph_refuses(g, "moe_ffn", in, 5) ||
        !check(g, x, weights, index, o->gate_up.weight, o->down.weight, o->plain))
        return af_graph_dummy(g);
    const int64_t X = o->gate_up.weight->dim[0];
    if (o->identity < 0 || !(o->clamp >= 0))
        return af_graph_bad(g, "moe_ffn: %d identity experts or a clamp of %g", o->identity,
                            o->clamp);
    af_tensor *own = o->identity ? take_identity(g, &weights, &index, X) : NULL;
    const af_moe_lists lists = make_lists(g, index, X);
    af_tensor *h = af_moe_linear(g, x, &lists, &o->gate_up);
    h = o->plain       ? plain_act(g, h, o)
        : o->clamp > 0 ? af_glu_clamped(g, h, o->clamp)
                       : af_glu(g, h, o->act);
    af_tensor *y = af_moe_combine(g, af_moe_linear(g, h, &lists, &o->down), &lists, weights);
    if (!own)
        return y;
    if (own->dtype != x->dtype)
        own = af_cast(g, own, x->dtype);
    return af_add(g, y, af_mul(g, x, own));
}

af_tensor *af_moe_project(af_graph *g, af_tensor *x, af_tensor *weights, af_tensor *index,
                          const af_expert_linear *o)
{
    char a[96], b[96];
    if (af_graph_refuses_opts(g, "moe_project", o))
        return af_graph_dummy(g);
    af_tensor *const in[] = {x, weights, index, o->weight};
    if (af_graph_refuses(g, "moe_project", in, 4))
        return af_graph_dummy(g);
    if (o->weight->ndim != 3 || x->ndim != 2 || index->dtype != AF_DTYPE_I32 || index->ndim != 2 ||
        !af_same_shape(weights, index) || index->dim[0] != x->dim[0] ||
        !af_dtype_is_float(weights->dtype))
        return af_graph_bad(g, "moe_project: x %s and experts %s do not fit together",
                            af_shape_text(x, a, sizeof a), af_shape_text(o->weight, b, sizeof b));
    const af_moe_lists lists = make_lists(g, index, o->weight->dim[0]);
    return af_moe_combine(g, af_moe_linear(g, x, &lists, o), &lists, weights);
}

af_tensor *af_moe_combine(af_graph *g, af_tensor *out, const af_moe_lists *lists,
                          af_tensor *weights)
{
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_tensor *in[] = {out, lists->list, lists->slot, lists->start, weights};
    af_node *n = af_node_new(g, AF_OP_MOE_COMBINE, in, weights ? 5 : 4);
    n->attr.moe.k = (int)out->dim[1];
    return af_node_output(g, n, out->dtype, 2, (int64_t[]){out->dim[0], out->dim[2]});
}

/* The one without weights is made by a gradient rule and has none itself. */
static void combine_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_moe_inputs in = af_moe_in(n);
    if (!in.weights)
        return;
    af_node *b =
        af_node_new(g, AF_OP_MOE_COMBINE_BWD,
                    (af_tensor *[]){in.out, in.list, in.slot, in.start, in.weights, dout[0]}, 6);
    b->attr = n->attr;
    af_tensor *d = af_node_output_like(g, b, in.out);
    af_tensor *dw = af_node_output_like(g, b, in.weights);
    if (af_graph_failed(g))
        return;
    af_grad_add(g, in.out, d);
    af_grad_add(g, in.weights, dw);
}

const af_op_info af_op_moe_route = {.name = "moe_route", .grad = route_grad};
const af_op_info af_op_moe_route_bwd = {.name = "moe_route_bwd"};
const af_op_info af_op_moe_pick = {.name = "moe_pick", .grad = pick_grad};
const af_op_info af_op_moe_pick_bwd = {.name = "moe_pick_bwd"};
const af_op_info af_op_moe_real = {.name = "moe_real"};
const af_op_info af_op_moe_list = {.name = "moe_list"};
const af_op_info af_op_moe_combine = {.name = "moe_combine", .grad = combine_grad};
const af_op_info af_op_moe_combine_bwd = {.name = "moe_combine_bwd", .inplace = 1};
const af_op_info af_op_moe_glu_bwd = {.name = "moe_glu_bwd", .inplace = 1};
