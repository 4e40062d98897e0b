/* attention.c - softmax attention over packed sequences, and over a cache for generation.
 *
 * ATTENTION  qkv [N][(H+2K)E], bounds i32 [S+1]: sequence s is rows bounds[s] .. bounds[s+1]. Head
 * h reads kv head h / (H/K). For query row q and key row k of one sequence (positions count from
 * its start): s = scale * q.k;  s = cap tanh(s / cap) with a soft cap;  p = softmax over the keys
 *              that q may see (all; k <= q when causal; q - window < k <= q with a window)
 *              o[q] = sum_k p v[k];   lse[q][h] = log sum_k exp(s), kept for the backward
 *            Rows outside every sequence give o = 0, lse = 0, and take no gradient.
 *            o: [N][H*E]; lse: f32 (f64 for f64) [N][H]. Nothing of size S x S is ever held.
 * ATTENTION_BWD     qkv, bounds, o, lse, do -> dqkv
 * ATTENTION_CACHED  qkv, cache [P][L][2*K*E] (in place), bounds, start i32 [S], pages? i32 [S][M]
 *                   -> o: new rows are stored at positions start[s] .., then see the cache up to
 *                   themselves. Position p of sequence s is row p % L of page pages[s][p / L]; of
 *                   page s without pages. With a chunk: up to themselves from the first
 *                   position of their chunk of so many.
 * ATTENTION_SINK    o, lse, sinks [H] -> o, lse as if every softmax of head h had one more logit,
 *                   sinks[h], whose value is 0:  lse' = log(exp(lse) + exp(sink)),
 *                   o' = o exp(lse - lse'). Any attention may come before it. In place.
 * ATTENTION_SINK_BWD  o, lse (with sinks), sinks, dy -> dsinks[h] = - sum_n exp(sink - lse) dy.o
 */
#include "ops/attention/attention_both.h"
#include "ops/attention/attention_in.h"
#include "ops/rope/rope_in.h"
#include "tensor/dtype.h"

#include <math.h>

static bool check(af_graph *g, const char *name, const af_tensor *qkv, const af_tensor *bounds,
                  const af_attention_opts *o)
{
    char a[96];
    if (af_graph_refuses_opts(g, name, o))
        return false;
    const int64_t width = af_qkv_columns(o->heads, o->kv_heads, o->head_dim);
    if (o->heads < 1 || o->kv_heads < 1 || o->head_dim < 1 || o->heads % o->kv_heads)
        af_graph_bad(g, "%s: %d heads of %d cannot share %d kv heads", name, o->heads, o->head_dim,
                     o->kv_heads);
    else if (!af_dtype_is_float(qkv->dtype) || qkv->ndim != 2 || af_last(qkv) != width)
        af_graph_bad(g, "%s: qkv is %s, but (%d + 2*%d) heads of %d make %" PRId64 " columns", name,
                     af_shape_text(qkv, a, sizeof a), o->heads, o->kv_heads, o->head_dim, width);
    else if (bounds->dtype != AF_DTYPE_I32 || bounds->ndim != 1 || bounds->dim[0] < 1)
        af_graph_bad(g, "%s: bounds are %s, not i32 [S+1]", name,
                     af_shape_text(bounds, a, sizeof a));
    else if (o->window < 0 || !(o->softcap >= 0))
        af_graph_bad(g, "%s: window %d or soft cap %g is not possible", name, o->window,
                     o->softcap);
    else if (o->chunk < 0 || (o->chunk && (o->window || strcmp(name, "attention") == 0)))
        af_graph_bad(g, "%s: chunks of %d need a cache, and no window", name, o->chunk);
    else if (o->window && !o->causal)
        af_graph_bad(g, "%s: a window of %d needs causal attention", name, o->window);
    else if (o->sinks && (o->sinks->ndim != 1 || o->sinks->dim[0] != o->heads ||
                          !af_dtype_is_float(o->sinks->dtype)))
        af_graph_bad(g, "%s: sinks are %s, not one number for each of %d heads", name,
                     af_shape_text(o->sinks, a, sizeof a), o->heads);
    return !af_graph_failed(g);
}

static void set_attr(af_node *n, const af_attention_opts *o)
{
    n->attr.attention.heads = o->heads;
    n->attr.attention.kv_heads = o->kv_heads;
    n->attr.attention.head_dim = o->head_dim;
    n->attr.attention.window = o->window;
    n->attr.attention.chunk = o->chunk;
    n->attr.attention.scale = o->scale != 0 ? o->scale : 1.0 / sqrt((double)o->head_dim);
    n->attr.attention.softcap = o->softcap;
    n->attr.attention.causal = o->causal;
}

/* log sum exp of each row and head, as an output of n; no gradient passes through it. */
static void lse_output(af_graph *g, af_node *n, const af_tensor *qkv, int heads)
{
    const af_dtype stat = qkv->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
    af_tensor *lse = af_node_output(g, n, stat, 2, (int64_t[]){qkv->dim[0], heads});
    if (!af_graph_failed(g))
        lse->needs_grad = false;
}

/* n: the node that made y, with lse. */
static af_tensor *with_sinks(af_graph *g, af_node *n, af_tensor *y, const af_attention_opts *o)
{
    if (!o->sinks || af_graph_failed(g))
        return y;
    af_node *s = af_node_new(g, AF_OP_ATTENTION_SINK, (af_tensor *[]){y, n->out[1], o->sinks}, 3);
    s->attr = n->attr;
    y = af_node_output_like(g, s, y);
    lse_output(g, s, y, o->heads);
    return y;
}

af_tensor *af_attention(af_graph *g, af_tensor *qkv, af_tensor *bounds, const af_attention_opts *o)
{
    if (af_graph_refuses(g, "attention", (af_tensor *[]){qkv, bounds}, 2) ||
        !check(g, "attention", qkv, bounds, o))
        return af_graph_dummy(g);
    af_expect(bounds, AF_VALUE_BOUNDS, qkv->dim[0]);
    af_node *n = af_node_new(g, AF_OP_ATTENTION, (af_tensor *[]){qkv, bounds}, 2);
    set_attr(n, o);
    af_tensor *y = af_node_output(g, n, qkv->dtype, 2,
                                  (int64_t[]){qkv->dim[0], (int64_t)o->heads * o->head_dim});
    lse_output(g, n, qkv, o->heads);
    return with_sinks(g, n, y, o);
}

af_tensor *af_attention_both(af_graph *g, af_tensor *qkv, af_tensor *bounds, af_tensor *dy,
                             const af_attention_opts *o)
{
    af_tensor *y = af_attention(g, qkv, bounds, o);
    if (af_graph_failed(g))
        return af_graph_dummy(g);
    const af_node *n = y->producer;
    af_node *b = af_node_new(g, AF_OP_ATTENTION_BWD,
                             (af_tensor *[]){qkv, bounds, n->out[0], n->out[1], dy}, 5);
    b->attr = n->attr;
    return af_node_output_like(g, b, qkv);
}

af_tensor *af_attention_cached(af_graph *g, af_tensor *qkv, af_tensor *cache, af_tensor *bounds,
                               af_tensor *start, const af_attention_opts *o)
{
    char a[96], b[96];
    if (af_graph_refuses(g, "attention_cached", (af_tensor *[]){qkv, cache, bounds, start}, 4) ||
        (o && o->pages && af_graph_refuses(g, "attention_cached", &(af_tensor *){o->pages}, 1)) ||
        !check(g, "attention_cached", qkv, bounds, o))
        return af_graph_dummy(g);
    af_expect(bounds, AF_VALUE_BOUNDS, qkv->dim[0]);
    const int64_t S = bounds->dim[0] - 1;
    if (start->dtype != AF_DTYPE_I32 || start->ndim != 1 || start->dim[0] != S)
        return af_graph_bad(g, "attention_cached: start %s does not fit bounds %s",
                            af_shape_text(start, a, sizeof a), af_shape_text(bounds, b, sizeof b));
    if (o->pages && (o->pages->dtype != AF_DTYPE_I32 || o->pages->ndim != 2 ||
                     o->pages->dim[0] != S || o->pages->dim[1] < 1))
        return af_graph_bad(g, "attention_cached: pages %s do not fit bounds %s",
                            af_shape_text(o->pages, a, sizeof a),
                            af_shape_text(bounds, b, sizeof b));
    if (cache->role != AF_ROLE_STATE || !af_dtype_is_float(cache->dtype) || cache->ndim != 3 ||
        (!o->pages && cache->dim[0] != S) ||
        cache->dim[2] != (int64_t)2 * o->kv_heads * o->head_dim)
        return af_graph_bad(
            g, "attention_cached: cache %s is not a state of %" PRId64 " sequences x L x %d",
            af_shape_text(cache, a, sizeof a), S, 2 * o->kv_heads * o->head_dim);
    if (o->pages)
        af_expect(o->pages, AF_VALUE_ROWS, cache->dim[0]);
    af_node *n =
        af_node_new(g, AF_OP_ATTENTION_CACHED, (af_tensor *[]){qkv, cache, bounds, start, o->pages},
                    o->pages ? 5 : 4);
    set_attr(n, o);
    n->attr.attention.paged = o->pages != NULL;
    af_tensor *y = af_node_output(g, n, qkv->dtype, 2,
                                  (int64_t[]){qkv->dim[0], (int64_t)o->heads * o->head_dim});
    if (o->sinks)
        lse_output(g, n, qkv, o->heads);
    return with_sinks(g, n, y, o);
}

/* Of attention node n, whose result, with or without sinks, is o and lse. */
static void back(af_graph *g, const af_node *n, af_tensor *o, af_tensor *lse, af_tensor *dy)
{
    const af_attention_inputs f = af_attention_in(n);
    if (!f.qkv->needs_grad)
        return;
    af_node *b =
        af_node_new(g, AF_OP_ATTENTION_BWD, (af_tensor *[]){f.qkv, f.bounds, o, lse, dy}, 5);
    b->attr = n->attr;
    af_tensor *d = af_node_output_like(g, b, f.qkv);
    if (!af_graph_failed(g))
        af_grad_add(g, f.qkv, d);
}

static void attention_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    if (dout[0])
        back(g, n, n->out[0], n->out[1], dout[0]);
}

/* With p = exp(s - lse) and delta = dy . o the gradient of the scores is p (dp - delta) whether
 * lse counts a sink or not: the backward of attention serves both. */
static void sink_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    af_tensor *sinks = n->in[2];
    if (!dout[0])
        return;
    if (sinks->needs_grad) {
        af_node *b = af_node_new(g, AF_OP_ATTENTION_SINK_BWD,
                                 (af_tensor *[]){n->out[0], n->out[1], sinks, dout[0]}, 4);
        b->attr = n->attr;
        af_tensor *d = af_node_output(g, b, sinks->dtype, 1, sinks->dim);
        if (af_graph_failed(g))
            return;
        d->live = NULL;
        af_grad_add(g, sinks, d);
    }
    back(g, n->in[0]->producer, n->out[0], n->out[1], dout[0]);
}

/* Keys that a row sees, as if the rows were `S` sequences of equal length: bounds are not known
 * when planning. */
static double keys_per_row(const af_node *n)
{
    const af_attention_inputs in = af_attention_in(n);
    const double T = (double)in.qkv->dim[0] / (double)AF_MAX(in.S, INT64_C(1));
    const double keys = n->attr.attention.causal ? T / 2 : T;
    return n->attr.attention.window ? AF_MIN(keys, n->attr.attention.window) : keys;
}

static double pairs(const af_node *n)
{
    return (double)af_attention_in(n).qkv->dim[0] * keys_per_row(n) * n->attr.attention.heads *
           n->attr.attention.head_dim;
}
static double attention_flops(const af_node *n) { return 4 * pairs(n); }
static double attention_bwd_flops(const af_node *n) { return 10 * pairs(n); }

const af_op_info af_op_attention = {
    .name = "attention", .grad = attention_grad, .flops = attention_flops, .costly = true};
const af_op_info af_op_attention_bwd = {.name = "attention_bwd", .flops = attention_bwd_flops};
const af_op_info af_op_attention_sink = {.name = "attention_sink", .grad = sink_grad, .inplace = 1};
const af_op_info af_op_attention_sink_bwd = {.name = "attention_sink_bwd"};
const af_op_info af_op_attention_cached = {.name = "attention_cached", .effect = true};
