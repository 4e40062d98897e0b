/* head.c - the output projection and its cross-entropy in one op; logits exist a few rows at a
 * time.
 *
 * HEAD_LOSS  h, w, labels, scale? -> loss, rows, [dh, [dw]]
 *   z[n][v] = logit_scale * sum_d h[n][d] w[v][d];  z = cap tanh(z / cap) with a soft cap
 *   t[n][v] = (1 - smoothing) [v = label n] + smoothing / V
 *   row loss = - sum_v t log softmax(z);  rows[n] = {row loss, 1 if the label is the (first) arg
 * max} loss = scale * sum of row losses;  dh, dw = the gradients of that loss Rows with label -100
 * count nothing: loss 0, hit 0, dh 0. h: [N][D]; w: [V][D] of any type; labels: i32 [N]; scale: f32
 * [1]; loss: f32 (f64 for f64) [1]; rows: f32 [N][2]; dh: like h; dw: like w, may be added to. The
 * gradient rule turns on dh (and dw): they are made in the forward pass, from the logits that are
 * there anyway. A backend leaves them out when a run has no backward pass.
 *
 * With stats, rows[n] = {row loss, hit, entropy of softmax(z), mean of z, log of the sum of squared
 * probabilities}.
 * With row weights u (f32 [N]) the gradient is that of sum_n u[n] row loss[n], and u is read in the
 * backward pass: dh[n] of a unit weight is made in the forward pass as above and multiplied by u[n]
 * later (HEAD_WEIGH). dw cannot be corrected so: where it is needed, the backward pass has a second
 * HEAD_LOSS node (attribute weighs), which makes the logits again and both gradients from them.
 *
 * HEAD_WEIGH  dh [N][D], u f32 [N] -> y[n][d] = dh[n][d] u[n], like dh */
#include "graph/node.h"
#include "ops/common/weight_type.h"
#include "ops/head/head_in.h"

enum { OUT_DH = 2, OUT_DW = 3 };

static bool check(af_graph *g, const af_tensor *h, const af_tensor *w, const af_tensor *labels,
                  const af_head_opts *o)
{
    char a[96], b[96];
    if (!af_dtype_is_float(h->dtype) || h->ndim != 2 || w->ndim != 2 || w->dim[1] != h->dim[1])
        af_graph_bad(g, "head_loss: h %s and weight %s do not fit together",
                     af_shape_text(h, a, sizeof a), af_shape_text(w, b, sizeof b));
    else if (!af_is_weight(w->dtype))
        af_graph_bad(g, "head_loss: weight %s cannot be read with h %s",
                     af_shape_text(w, a, sizeof a), af_shape_text(h, b, sizeof b));
    else if (labels->dtype != AF_DTYPE_I32 || labels->ndim != 1 || labels->dim[0] != h->dim[0])
        af_graph_bad(g, "head_loss: labels %s do not fit h %s", af_shape_text(labels, a, sizeof a),
                     af_shape_text(h, b, sizeof b));
    else if (o->scale && (o->scale->dtype != AF_DTYPE_F32 || af_count(o->scale) != 1))
        af_graph_bad(g, "head_loss: the scale is %s, not [1] f32",
                     af_shape_text(o->scale, a, sizeof a));
    else if (o->row_weight && (o->scale || o->row_weight->dtype != AF_DTYPE_F32 ||
                               o->row_weight->ndim != 1 || o->row_weight->dim[0] != h->dim[0]))
        af_graph_bad(g, "head_loss: row weights %s do not fit h %s, or there is a scale, too",
                     af_shape_text(o->row_weight, a, sizeof a), af_shape_text(h, b, sizeof b));
    else if (!(o->softcap >= 0 && o->smoothing >= 0 && o->smoothing < 1) || o->chunk_rows < 0)
        af_graph_bad(g,
                     "head_loss: soft cap %g, smoothing %g or chunk of %" PRId64
                     " rows is outside its range",
                     o->softcap, o->smoothing, o->chunk_rows);
    return !af_graph_failed(g);
}

af_tensor *af_head_loss(af_graph *g, af_tensor *h, af_tensor *weight, af_tensor *labels,
                        const af_head_opts *o)
{
    static const af_head_opts none;
    o = o ? o : &none;
    if (o->rows)
        *o->rows = af_graph_dummy(g);
    if (af_graph_refuses(g, "head_loss", (af_tensor *[]){h, weight, labels}, 3) ||
        !check(g, h, weight, labels, o))
        return af_graph_dummy(g);
    af_expect(labels, AF_VALUE_LABELS, weight->dim[0]);
    af_tensor *factor = o->row_weight ? o->row_weight : o->scale;
    af_node *n =
        af_node_new(g, AF_OP_HEAD_LOSS, (af_tensor *[]){h, weight, labels, factor}, factor ? 4 : 3);
    n->block = -1; /* never part of a recomputed block: it makes gradients */
    n->attr.head.softcap = o->softcap;
    n->attr.head.logit_scale = o->logit_scale != 0 ? o->logit_scale : 1;
    n->attr.head.smoothing = o->smoothing;
    n->attr.head.chunk_rows = o->chunk_rows;
    n->attr.head.scaled = o->scale != NULL;
    n->attr.head.weights = o->row_weight != NULL;
    n->attr.head.stats = o->stats;
    const af_dtype type = h->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32;
    af_tensor *loss = af_node_output(g, n, type, 1, (int64_t[]){1});
    af_tensor *rows =
        af_node_output(g, n, AF_DTYPE_F32, 2, (int64_t[]){h->dim[0], o->stats ? AF_HEAD_STATS : 2});
    if (af_graph_failed(g))
        return loss;
    loss->live = NULL;
    rows->needs_grad = false;
    if (o->rows)
        *o->rows = rows;
    return loss;
}

/* The gradient as it is when the seed is 1, else times the seed. */
static void add_scaled(af_graph *g, af_tensor *t, af_tensor *dt, af_tensor *seed)
{
    const af_node *p = seed->producer;
    if (af_graph_failed(g) || !t->needs_grad)
        return;
    if (!p || p->op != AF_OP_FILL || p->attr.fill.value != 1.0) {
        seed = seed->dtype == dt->dtype ? seed : af_cast(g, seed, dt->dtype);
        dt = af_mul(g, dt, seed);
    }
    if (!af_graph_failed(g))
        af_grad_add(g, t, dt);
}

/* The head again in the backward pass, with gradients by the weights of rows. */
static af_node *weighed_again(af_graph *g, const af_node *n)
{
    af_node *b = af_node_new(g, AF_OP_HEAD_LOSS, n->in, n->n_in);
    b->block = -1;
    b->attr = n->attr;
    b->attr.head.stats = false;
    b->attr.head.weighs = true;
    af_tensor *loss = af_node_output(g, b, n->out[0]->dtype, 1, (int64_t[]){1});
    af_tensor *rows = af_node_output(g, b, AF_DTYPE_F32, 2, (int64_t[]){n->in[0]->dim[0], 2});
    if (af_graph_failed(g))
        return b;
    loss->live = NULL;
    loss->needs_grad = rows->needs_grad = false;
    return b;
}

static af_tensor *weigh(af_graph *g, af_tensor *dh, af_tensor *weights)
{
    af_node *n = af_node_new(g, AF_OP_HEAD_WEIGH, (af_tensor *[]){dh, weights}, 2);
    af_tensor *y = af_node_output_like(g, n, dh);
    if (!af_graph_failed(g))
        y->needs_grad = false;
    return y;
}

static void head_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_head_inputs in = af_head_in(n);
    af_tensor *h = in.h, *w = in.w;
    if (!dout[0])
        return;
    if (in.weights && w->needs_grad)
        n = weighed_again(g, n);
    if (af_graph_failed(g))
        return;
    n->attr.head.dh = true;
    af_tensor *dh = af_node_output_like(g, n, h), *dw = NULL;
    if (w->needs_grad) {
        n->attr.head.dw = true;
        dw = af_node_output(g, n, af_grad_type(w), 2, w->dim);
    }
    if (af_graph_failed(g))
        return;
    dh->needs_grad = false;
    if (in.weights && !n->attr.head.weighs)
        dh = weigh(g, dh, in.weights);
    add_scaled(g, h, dh, dout[0]);
    if (dw) {
        dw->needs_grad = false;
        dw->live = NULL;
        add_scaled(g, w, dw, dout[0]);
    }
}

static double head_flops(const af_node *n)
{
    const af_head_inputs in = af_head_in(n);
    const double pass = 2.0 * (double)af_rows(in.h) * (double)af_count(in.w);
    return pass * (1 + n->attr.head.dh + n->attr.head.dw);
}

static double weigh_flops(const af_node *n) { return (double)af_count(n->in[0]); }

const af_op_info af_op_head_weigh = {.name = "head_weigh", .flops = weigh_flops};
_Static_assert(OUT_DH == 2, "dh is appended after loss and rows");
const af_op_info af_op_head_loss = {
    .name = "head_loss", .grad = head_grad, .flops = head_flops, .accum_out = OUT_DW + 1};
