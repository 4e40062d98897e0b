/* linear.c - the projection: stacked weight pieces of any type, biases, and a low-rank adapter.
 *
 * LINEAR        x, weights.., biases.., [a, b, xa], [add] -> y
 *               y[n][o] = sum_i x[n][i] W[o][i] + bias[o] + sum_r xa[n][r] B[o][r]
 *               biases are listed only for pieces whose bit is set in attr.linear.biases. Columns
 *               that no piece covers hold the adapter's share alone. `add`, of y's shape, is
 *               added; only the CUDA backend makes such nodes (attr.linear.adds).
 * ADAPTER_DOWN  x, a -> xa[n][r] = scale * sum_i x[n][i] a[r][i], the scale of r's part. Its x may
 *               be another one than LINEAR's: that after dropout
 * ADAPTER_G     dy, b -> g[n][r] = scale * sum_o dy[n][o] B[o][r]
 * LINEAR_DX     dy, weights.., [a, g] -> dx = dy W + g a; one of each where the adapter has an x of
 *               its own
 * LINEAR_DW     x, dy -> dw[o][i] = sum_n dy[n][from + o] x[n][i] of piece attr.linear.piece
 * LINEAR_DBIAS  dy -> dbias[o] = sum_n dy[n][from + o] of that piece
 * ADAPTER_DA    x, g -> da[r][i] = sum_n g[n][r] x[n][i]
 * ADAPTER_DB    dy, xa -> db, packed as b: part after part, [out_rows][rank] each
 * DORA_NORM     weights.., a, b -> n[o] = |W[o] + scale B[o] A|
 * With attr.linear.fp8 LINEAR and LINEAR_DX round x, dy and the weights: fp8_linear.h.
 * The four parameter gradients have the parameter's type and may be added to. LINEAR's rule makes
 * all of them: ADAPTER_DOWN passes no gradient by itself. */
#include "graph/node.h"
#include "ops/common/weight_type.h"
#include "ops/linear/linear_in.h"

af_linear_inputs af_linear_in(const af_node *n)
{
    const bool has_dy = n->op == AF_OP_ADAPTER_G || n->op == AF_OP_LINEAR_DX ||
                        n->op == AF_OP_LINEAR_DBIAS || n->op == AF_OP_ADAPTER_DB;
    const bool has_w =
        n->op == AF_OP_LINEAR || n->op == AF_OP_LINEAR_DX || n->op == AF_OP_DORA_NORM;
    af_linear_inputs in = {.add = n->attr.linear.adds ? n->in[n->n_in - 1] : NULL};
    int at = 0;
    if (n->op != AF_OP_DORA_NORM)
        *(has_dy ? &in.dy : &in.x) = n->in[at++];
    if (has_w) {
        in.w = n->in + at;
        at += n->attr.linear.pieces;
    }
    for (int i = 0; n->op == AF_OP_LINEAR && i < n->attr.linear.pieces; i++)
        in.bias[i] = n->attr.linear.biases >> i & 1 ? n->in[at++] : NULL;
    if (n->op == AF_OP_LINEAR_DW)
        in.dy = n->in[at];
    if (n->attr.linear.parts == 0)
        return in;
    const af_op op = n->op;
    if (op == AF_OP_ADAPTER_DOWN || has_w)
        in.a = n->in[at++];
    if (op == AF_OP_LINEAR || op == AF_OP_ADAPTER_G || op == AF_OP_DORA_NORM)
        in.b = n->in[at++];
    if (op == AF_OP_LINEAR || op == AF_OP_ADAPTER_DB)
        in.xa = n->in[at];
    if (op == AF_OP_LINEAR_DX || op == AF_OP_ADAPTER_DA)
        in.g = n->in[at];
    return in;
}

static bool check_pieces(af_graph *g, const af_linear_opts *o, int64_t I)
{
    char a[96], b[96];
    if (af_graph_refuses_opts(g, "linear", o))
        return false;
    if (o->pieces < 0 || o->pieces > AF_LINEAR_PIECES || o->parts < 0 ||
        o->parts > AF_ADAPTER_PARTS || o->pieces + o->parts == 0) {
        af_graph_bad(g, "linear: %d weights and %d adapter parts, not up to %d and %d", o->pieces,
                     o->parts, AF_LINEAR_PIECES, AF_ADAPTER_PARTS);
        return false;
    }
    if (af_graph_refuses(g, "linear", o->weight, o->pieces))
        return false;
    for (int i = 0; i < o->pieces; i++) {
        const af_tensor *w = o->weight[i], *bias = o->bias[i];
        if (!af_is_weight(w->dtype))
            af_graph_bad(
                g, "linear: weight '%s' is %s, which no projection of %" PRId64 " columns can read",
                w->name, af_dtype_name(w->dtype), I);
        else if (w->ndim != 2 || w->dim[1] != I)
            af_graph_bad(g, "linear: weight %s '%s' does not take %" PRId64 " columns",
                         af_shape_text(w, a, sizeof a), w->name, I);
        else if (bias &&
                 (bias->ndim != 1 || bias->dim[0] != w->dim[0] || !af_dtype_is_float(bias->dtype)))
            af_graph_bad(g, "linear: bias %s does not fit weight %s",
                         af_shape_text(bias, a, sizeof a), af_shape_text(w, b, sizeof b));
    }
    return !af_graph_failed(g);
}

static bool check_adapter(af_graph *g, const af_linear_opts *o, int64_t I, int64_t O)
{
    char a[96];
    int64_t count = 0;
    if (o->parts == 0)
        return true;
    if (af_graph_refuses(g, "linear", (af_tensor *[]){o->a, o->b}, 2))
        return false;
    if (o->a->ndim != 2 || o->a->dim[1] != I || !af_dtype_is_float(o->a->dtype) ||
        !af_dtype_is_float(o->b->dtype)) {
        af_graph_bad(g, "linear: adapter a %s does not take %" PRId64 " columns",
                     af_shape_text(o->a, a, sizeof a), I);
        return false;
    }
    for (int p = 0; p < o->parts; p++) {
        const af_adapter_part *q = &o->part[p];
        if (q->rank < 1 || q->rank_from < 0 || q->rank_from > o->a->dim[0] - q->rank)
            af_graph_bad(g, "linear: adapter part %d has %d ranks from %d on of %" PRId64, p,
                         q->rank, q->rank_from, o->a->dim[0]);
        else if (q->out_from < 0 || q->out_rows < 0 || q->out_rows > O ||
                 q->out_from > O - q->out_rows)
            af_graph_bad(g,
                         "linear: adapter part %d has %" PRId64 " output rows from %" PRId64
                         " on of %" PRId64,
                         p, q->out_rows, q->out_from, O);
        if (af_graph_failed(g))
            return false;
        count += q->out_rows * q->rank;
        for (int k = 0; k < p; k++)
            if (q->rank_from < o->part[k].rank_from + o->part[k].rank &&
                o->part[k].rank_from < q->rank_from + q->rank)
                af_graph_bad(g, "linear: adapter parts %d and %d share ranks", k, p);
    }
    if (!af_graph_failed(g) && af_count(o->b) != count)
        af_graph_bad(g, "linear: adapter b has %" PRId64 " values, its parts need %" PRId64,
                     af_count(o->b), count);
    return !af_graph_failed(g);
}

/* The attributes; false with the error latched when something does not fit. */
static bool describe(af_graph *g, const af_linear_opts *o, int64_t I, af_attr *attr)
{
    if (!check_pieces(g, o, I))
        return false;
    *attr = (af_attr){0};
    attr->linear.pieces = o->pieces;
    attr->linear.parts = o->parts;
    attr->linear.few_rows = o->few_rows;
    attr->linear.fp8 = o->fp8 && o->pieces > 0;
    for (int i = 0; i < o->pieces; i++) {
        if (attr->linear.fp8 && o->weight[i]->needs_grad) {
            af_graph_bad(g, "linear: weight '%s' is trained, so its products cannot be in FP8",
                         o->weight[i]->name);
            return false;
        }
        attr->linear.biases |= o->bias[i] ? 1 << i : 0;
        attr->linear.piece_from[i + 1] = attr->linear.piece_from[i] + o->weight[i]->dim[0];
    }
    const int64_t rows = attr->linear.piece_from[o->pieces];
    attr->linear.out = o->out ? o->out : rows;
    if (attr->linear.out < rows || attr->linear.out < 1) {
        af_graph_bad(g, "linear: %" PRId64 " output columns cannot hold %" PRId64 " weight rows",
                     attr->linear.out, rows);
        return false;
    }
    memcpy(attr->linear.part, o->part, (size_t)o->parts * sizeof o->part[0]);
    return check_adapter(g, o, I, attr->linear.out);
}

static af_tensor *rows_output(af_graph *g, af_node *n, const af_tensor *x, int64_t width)
{
    int64_t dim[AF_NDIM_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[x->ndim - 1] = width;
    return af_node_output(g, n, x->dtype, x->ndim, dim);
}

static af_tensor *adapter_down(af_graph *g, af_tensor *x, af_tensor *a, const af_attr *attr)
{
    af_node *n = af_node_new(g, AF_OP_ADAPTER_DOWN, (af_tensor *[]){x, a}, 2);
    n->attr = *attr;
    return rows_output(g, n, x, a->dim[0]);
}

af_tensor *af_linear(af_graph *g, af_tensor *x, const af_linear_opts *o)
{
    af_attr attr;
    char a[96];
    if (af_graph_refuses(g, "linear", (af_tensor *[]){x}, 1))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || x->ndim < 2)
        return af_graph_bad(g, "linear: x is %s, not rows of floats in 2 to 4 dimensions",
                            af_shape_text(x, a, sizeof a));
    if (!describe(g, o, af_last(x), &attr))
        return af_graph_dummy(g);
    if (o->adapter_x && af_graph_refuses(g, "linear", (af_tensor *[]){o->adapter_x}, 1))
        return af_graph_dummy(g);
    if (o->adapter_x && (!af_same_shape(o->adapter_x, x) || o->adapter_x->dtype != x->dtype))
        return af_graph_bad(g, "linear: the adapter's x is not like x %s",
                            af_shape_text(x, a, sizeof a));
    af_tensor *in[AF_NODE_IN_MAX] = {x};
    int n_in = 1;
    for (int i = 0; i < o->pieces; i++)
        in[n_in++] = o->weight[i];
    for (int i = 0; i < o->pieces; i++)
        if (o->bias[i])
            in[n_in++] = o->bias[i];
    if (o->parts) {
        in[n_in++] = o->a;
        in[n_in++] = o->b;
        in[n_in++] = adapter_down(g, o->adapter_x ? o->adapter_x : x, o->a, &attr);
    }
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    af_node *n = af_node_new(g, AF_OP_LINEAR, in, n_in);
    n->attr = attr;
    return rows_output(g, n, x, attr.linear.out);
}

af_tensor *af_dora_norm(af_graph *g, const af_linear_opts *o)
{
    af_attr attr;
    if (af_graph_refuses_opts(g, "dora_norm", o))
        return af_graph_dummy(g);
    const int pieces = o->pieces;
    if (pieces < 1 || pieces > AF_LINEAR_PIECES)
        return af_graph_bad(g, "dora_norm: %d weights, not 1 to %d", pieces, AF_LINEAR_PIECES);
    if (af_graph_refuses(g, "dora_norm", o->weight, pieces))
        return af_graph_dummy(g);
    if (!describe(g, o, af_last(o->weight[0]), &attr))
        return af_graph_dummy(g);
    af_tensor *in[AF_NODE_IN_MAX];
    int n_in = 0;
    for (int i = 0; i < o->pieces; i++)
        in[n_in++] = o->weight[i];
    if (o->parts) {
        in[n_in++] = o->a;
        in[n_in++] = o->b;
    }
    const bool wide = o->parts && o->a->dtype == AF_DTYPE_F64;
    af_node *n = af_node_new(g, AF_OP_DORA_NORM, in, n_in);
    n->attr = attr;
    return af_node_output(g, n, wide ? AF_DTYPE_F64 : AF_DTYPE_F32, 1,
                          (int64_t[]){attr.linear.out});
}

/* A parameter's gradient made by one node from two (or one) inputs. */
static void param_grad(af_graph *g, af_op op, const af_node *n, af_tensor *const *in, int n_in,
                       af_tensor *param, int piece)
{
    if (!param->needs_grad || af_graph_failed(g))
        return;
    af_node *b = af_node_new(g, op, in, n_in);
    b->attr = n->attr;
    b->attr.linear.piece = piece;
    af_tensor *d = af_node_output(g, b, af_grad_type(param), param->ndim, param->dim);
    if (af_graph_failed(g))
        return;
    d->live = NULL; /* a parameter's axis may happen to be as long as the token axis */
    af_grad_add(g, param, d);
}

/* dx of x: through the weights, and through the adapter where `down` is given. */
static void linear_dx(af_graph *g, const af_node *n, int pieces, af_tensor *dy, af_tensor *down,
                      af_tensor *x)
{
    af_tensor *in[AF_NODE_IN_MAX] = {dy};
    int n_in = 1;
    const af_linear_inputs of = af_linear_in(n);
    if (!x->needs_grad || (pieces == 0 && !down))
        return;
    for (int i = 0; i < pieces; i++)
        in[n_in++] = of.w[i];
    if (down) {
        in[n_in++] = of.a;
        in[n_in++] = down;
    }
    af_node *b = af_node_new(g, AF_OP_LINEAR_DX, in, n_in);
    b->attr = n->attr;
    b->attr.linear.pieces = pieces;
    b->attr.linear.fp8 = n->attr.linear.fp8 && pieces > 0;
    b->attr.linear.parts = down ? n->attr.linear.parts : 0;
    af_tensor *dx = af_node_output_like(g, b, x);
    if (!af_graph_failed(g))
        af_grad_add(g, x, dx);
}

static void linear_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_linear_inputs in = af_linear_in(n);
    const int pieces = n->attr.linear.pieces;
    af_tensor *x = in.x, *dy = dout[0], *down = NULL;
    af_tensor *low_x = in.a ? in.xa->producer->in[0] : x; /* what the adapter read */
    if (in.a && (low_x->needs_grad || in.a->needs_grad)) {
        af_node *k = af_node_new(g, AF_OP_ADAPTER_G, (af_tensor *[]){dy, in.b}, 2);
        k->attr = n->attr;
        down = rows_output(g, k, dy, in.a->dim[0]);
    }
    if (af_graph_failed(g))
        return;
    linear_dx(g, n, pieces, dy, low_x == x ? down : NULL, x);
    if (low_x != x)
        linear_dx(g, n, 0, dy, down, low_x);
    if (in.a) {
        param_grad(g, AF_OP_ADAPTER_DA, n, (af_tensor *[]){low_x, down}, 2, in.a, 0);
        param_grad(g, AF_OP_ADAPTER_DB, n, (af_tensor *[]){dy, in.xa}, 2, in.b, 0);
    }
    for (int i = 0; i < n->attr.linear.pieces; i++) {
        param_grad(g, AF_OP_LINEAR_DW, n, (af_tensor *[]){x, dy}, 2, in.w[i], i);
        if (in.bias[i])
            param_grad(g, AF_OP_LINEAR_DBIAS, n, (af_tensor *[]){dy}, 1, in.bias[i], i);
    }
}

/* Multiply-adds of the adapter's two halves, for one row. */
static double adapter_macs(const af_node *n, int64_t I)
{
    double sum = 0;
    for (int p = 0; p < n->attr.linear.parts; p++)
        sum += (double)n->attr.linear.part[p].rank * (double)(n->attr.linear.part[p].out_rows + I);
    return sum;
}

static double linear_flops(const af_node *n)
{
    const bool dx = n->op == AF_OP_LINEAR_DX;
    const af_tensor *x = dx ? n->out[0] : n->in[0];
    const int64_t I = af_last(x), O = n->attr.linear.piece_from[n->attr.linear.pieces];
    /* the halves that ADAPTER_DOWN and ADAPTER_G do are counted here, theirs are left at zero */
    return 2.0 * (double)af_rows(x) * ((double)O * (double)I + adapter_macs(n, I));
}

static double outer_flops(const af_node *n)
{
    return 2.0 * (double)af_rows(n->in[0]) * (double)af_count(n->out[0]);
}

const af_op_info af_op_linear = {
    .name = "linear", .grad = linear_grad, .flops = linear_flops, .wide = true};
const af_op_info af_op_adapter_down = {.name = "adapter_down"};
const af_op_info af_op_adapter_g = {.name = "adapter_g"};
const af_op_info af_op_linear_dx = {.name = "linear_dx", .flops = linear_flops};
const af_op_info af_op_linear_dw = {.name = "linear_dw", .flops = outer_flops, .accum_out = 1};
const af_op_info af_op_linear_dbias = {.name = "linear_dbias", .accum_out = 1};
const af_op_info af_op_adapter_da = {.name = "adapter_da", .flops = outer_flops, .accum_out = 1};
const af_op_info af_op_adapter_db = {.name = "adapter_db", .flops = outer_flops, .accum_out = 1};
const af_op_info af_op_dora_norm = {.name = "dora_norm"};
