/* scan.c - recurrences with a matrix as state: the gated delta rule (Yang et al. 2024) and the scan
 * of Mamba-2 (Dao and Gu 2024), over packed sequences and with a carried state for generation.
 *
 * SCAN  x [N][W], decay [N][H], beta [N][H], bounds i32 [S+1], [skip [H]] -> y [N][H*V].
 *       Columns of x: q [J][K], k [J][K], v [H][V] with delta, else v, k, q. Head h reads q and k
 *       of key head h / (H/J). With delta q and k are x / sqrt(sum x^2 + 1e-6), q times K^-1/2.
 *       State s [K][V] of a head, zero before a sequence; for its rows in order
 *         s = exp(decay) s;   d = beta (v - s^T k) with delta, else beta v;   s = s + k d^T;
 *         y = s^T q (+ skip v)
 *       With delta and no skip decay may be [N][H*K] (Kimi delta attention): row i of s has its
 *       own. Rows outside every sequence: y = 0, no gradient. decay is f32 (f64 for f64).
 * SCAN_BWD     x, decay, beta, bounds, dy, [skip] -> dx, ddecay, dbeta, [dskip]. No state is kept
 *              for it: states at the borders of chunks are made again in its workspace.
 * SCAN_CACHED  x, decay, beta, bounds, state [S][H][K*V] (in place), start i32 [S], [skip] -> y:
 *              new rows continue the state of their sequence; start[s] = 0: from zero.
 *
 * The fast versions go by chunks of 64 rows. With G = decay summed from the chunk's first row on,
 * s0 = the state before it, and a[t][i] = exp(G[t] - G[i]) for i <= t:
 *   (1 + M) d = beta (v - exp(G) s0^T k),  M[t][i] = beta[t] a[t][i] k[t].k[i], i < t  (delta)
 *   y[t] = exp(G[t]) s0^T q[t] + sum_{i<=t} a[t][i] (q[t].k[i]) d[i]
 *   s1 = exp(G[end]) s0 + sum_i exp(G[end] - G[i]) k[i] d[i]^T
 * A chunk never crosses the start of a sequence. With a decay per channel the factors of a chunk
 * can be far below 1, and what they multiply far above: those go row by row (scan_channel_fast.c,
 * channel.cu). */
#include "ops/state/state_in.h"
#include "tensor/dtype.h"

static af_dtype stat_type(const af_tensor *x)
{
    return x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
}

static bool check(af_graph *g, const char *name, const af_scan_opts *o, af_tensor *const *in)
{
    const af_tensor *x = in[0], *decay = in[1], *beta = in[2], *bounds = in[3], *skip = in[4];
    char a[96], b[96];
    if (af_graph_refuses_opts(g, name, o))
        return false;
    const int64_t J = o->key_heads, K = o->key_dim, H = o->heads, V = o->head_dim,
                  width = 2 * J * K + H * V;
    if (H < 1 || J < 1 || K < 1 || V < 1 || H % J)
        af_graph_bad(g, "%s: %d heads of %d cannot share %d key heads of %d", name, o->heads,
                     o->head_dim, o->key_heads, o->key_dim);
    else if (!af_dtype_is_float(x->dtype) || x->ndim != 2 || x->dim[1] != width)
        af_graph_bad(g, "%s: x is %s, but queries, keys and values are %" PRId64 " columns", name,
                     af_shape_text(x, a, sizeof a), width);
    else if (decay->dtype != stat_type(x) || !af_dtype_is_float(beta->dtype) || beta->ndim != 2 ||
             decay->ndim != 2 || decay->dim[0] != x->dim[0] || beta->dim[0] != x->dim[0] ||
             beta->dim[1] != H || (decay->dim[1] != H && !(o->delta && decay->dim[1] == H * K)))
        af_graph_bad(g, "%s: decay %s and beta %s do not fit %d heads", name,
                     af_shape_text(decay, a, sizeof a), af_shape_text(beta, b, sizeof b), o->heads);
    else if (bounds->dtype != AF_DTYPE_I32 || bounds->ndim != 1 || bounds->dim[0] < 1)
        af_graph_bad(g, "%s: bounds are %s, not i32 [S+1]", name,
                     af_shape_text(bounds, a, sizeof a));
    else if (skip && (!af_dtype_is_float(skip->dtype) || skip->ndim != 1 || skip->dim[0] != H))
        af_graph_bad(g, "%s: skip is %s, not one value for each of %d heads", name,
                     af_shape_text(skip, a, sizeof a), o->heads);
    else if (skip && decay->dim[1] != H)
        af_graph_bad(g, "%s: there is no skip with a decay per channel", name);
    return !af_graph_failed(g);
}

static af_tensor *record(af_graph *g, af_op op, af_tensor *const *in, int n_in, bool skip,
                         const af_scan_opts *o)
{
    af_expect(in[3], AF_VALUE_BOUNDS, in[0]->dim[0]);
    af_node *n = af_node_new(g, op, in, n_in);
    n->attr.scan.heads = o->heads;
    n->attr.scan.key_heads = o->key_heads;
    n->attr.scan.key_dim = o->key_dim;
    n->attr.scan.head_dim = o->head_dim;
    n->attr.scan.delta = o->delta;
    n->attr.scan.skip = skip;
    return af_node_output(g, n, in[0]->dtype, 2,
                          (int64_t[]){in[0]->dim[0], (int64_t)o->heads * o->head_dim});
}

af_tensor *af_scan(af_graph *g, af_tensor *x, af_tensor *decay, af_tensor *beta, af_tensor *skip,
                   af_tensor *bounds, const af_scan_opts *o)
{
    af_tensor *in[] = {x, decay, beta, bounds, skip};
    const int n_in = skip ? 5 : 4;
    if (af_graph_refuses(g, "scan", in, n_in) || !check(g, "scan", o, in))
        return af_graph_dummy(g);
    return record(g, AF_OP_SCAN, in, n_in, skip != NULL, o);
}

af_tensor *af_scan_cached(af_graph *g, af_tensor *x, af_tensor *decay, af_tensor *beta,
                          af_tensor *skip, af_tensor *state, af_tensor *bounds, af_tensor *start,
                          const af_scan_opts *o)
{
    char a[96], b[96];
    af_tensor *in[] = {x, decay, beta, bounds, state, start, skip};
    const int n_in = skip ? 7 : 6;
    if (af_graph_refuses(g, "scan_cached", in, n_in) ||
        !check(g, "scan_cached", o, (af_tensor *[]){x, decay, beta, bounds, skip}))
        return af_graph_dummy(g);
    const int64_t S = bounds->dim[0] - 1;
    if (start->dtype != AF_DTYPE_I32 || start->ndim != 1 || start->dim[0] != S)
        return af_graph_bad(g, "scan_cached: start %s does not fit bounds %s",
                            af_shape_text(start, a, sizeof a), af_shape_text(bounds, b, sizeof b));
    if (state->role != AF_ROLE_STATE || state->dtype != stat_type(x) || state->ndim != 3 ||
        state->dim[0] != S || state->dim[1] != o->heads ||
        state->dim[2] != (int64_t)o->key_dim * o->head_dim)
        return af_graph_bad(g, "scan_cached: state %s is not %" PRId64 " sequences x %d x %d*%d",
                            af_shape_text(state, a, sizeof a), S, o->heads, o->key_dim,
                            o->head_dim);
    return record(g, AF_OP_SCAN_CACHED, in, n_in, skip != NULL, o);
}

static void scan_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_scan_inputs f = af_scan_in(n);
    af_tensor *in[] = {f.x, f.decay, f.beta, f.bounds, dout[0], f.skip}, *d[4] = {0};
    af_tensor *const of[] = {f.x, f.decay, f.beta, f.skip};
    if (!dout[0])
        return;
    af_node *b = af_node_new(g, AF_OP_SCAN_BWD, in, f.skip ? 6 : 5);
    b->attr = n->attr;
    for (int i = 0; i < (f.skip ? 4 : 3) && !af_graph_failed(g); i++)
        d[i] = af_node_output_like(g, b, of[i]);
    if (d[3])
        d[3]->live = NULL;
    for (int i = 0; i < 4 && !af_graph_failed(g); i++)
        if (d[i])
            af_grad_add(g, of[i], d[i]);
}

/* By chunks of 64: three products with the state, and two of 64 x 64. */
static double scan_flops(const af_node *n)
{
    const af_scan_inputs in = af_scan_in(n);
    const double state = (double)in.K * (double)in.V, row = 64.0 * (double)(in.K + in.V);
    return 2.0 * (double)in.x->dim[0] * (double)in.H * (3 * state + row);
}
static double scan_bwd_flops(const af_node *n) { return 3 * scan_flops(n); }

const af_op_info af_op_scan = {
    .name = "scan", .grad = scan_grad, .flops = scan_flops, .costly = true};
const af_op_info af_op_scan_bwd = {.name = "scan_bwd", .flops = scan_bwd_flops};
const af_op_info af_op_scan_cached = {.name = "scan_cached", .effect = true};
