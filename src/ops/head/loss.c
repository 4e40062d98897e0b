/* loss.c - scalar losses: mse, l1, huber, binary cross-entropy with logits, cross-entropy, KL.
 *
 * x and target have one shape (cross-entropy: x [N][V], target i32 [N]). The loss is [1], f32 (f64
 * for f64): the mean over elements, over rows whose label is not -100 for cross-entropy (0 when
 * there are none), over rows for KL.
 *   mse (x-t)^2    l1 |x-t|    huber 0.5 d^2 or delta (|d| - delta/2), d = x-t
 *   bce max(x,0) - x t + log(1 + exp(-|x|))
 *   ce  -sum_v p_v log softmax(x)_v, p = 1-s at the label plus s/V everywhere
 *   kl  sum_v t (log t - x), x log-probabilities, 0 log 0 = 0 */
#include "graph/node.h"
#include "ops/head/head_in.h"
#include "tensor/dtype.h"

static af_tensor *record(af_graph *g, af_tensor *x, af_tensor *target, af_loss_kind kind,
                         double value)
{
    af_node *n = af_node_new(g, AF_OP_LOSS, (af_tensor *[]){x, target}, 2);
    n->attr.loss.kind = kind;
    n->attr.loss.value = value;
    af_tensor *y = af_node_output(g, n, x->dtype == AF_DTYPE_F64 ? AF_DTYPE_F64 : AF_DTYPE_F32, 1,
                                  (int64_t[]){1});
    if (!af_graph_failed(g))
        y->live = NULL;
    return y;
}

static af_tensor *loss(af_graph *g, af_tensor *x, af_tensor *target, af_loss_kind kind,
                       double value, const char *name)
{
    char tx[96], tt[96];
    if (af_graph_refuses(g, name, (af_tensor *[]){x, target}, 2))
        return af_graph_dummy(g);
    if (!af_dtype_is_float(x->dtype) || x->dtype != target->dtype || !af_same_shape(x, target) ||
        af_count(x) == 0)
        return af_graph_bad(g, "%s: %s and %s do not fit together", name,
                            af_shape_text(x, tx, sizeof tx), af_shape_text(target, tt, sizeof tt));
    if (target->needs_grad && (kind == AF_LOSS_BCE || kind == AF_LOSS_KL))
        return af_graph_bad(g, "%s: the target %s depends on a parameter; only %s may", name,
                            af_shape_text(target, tt, sizeof tt), af_shape_text(x, tx, sizeof tx));
    return record(g, x, target, kind, value);
}

af_tensor *af_mse(af_graph *g, af_tensor *x, af_tensor *target)
{
    return loss(g, x, target, AF_LOSS_MSE, 0, "mse");
}
af_tensor *af_l1(af_graph *g, af_tensor *x, af_tensor *target)
{
    return loss(g, x, target, AF_LOSS_L1, 0, "l1");
}
af_tensor *af_huber(af_graph *g, af_tensor *x, af_tensor *target, double delta)
{
    if (!af_graph_failed(g) && !(delta > 0))
        return af_graph_bad(g, "huber: delta is %g, it must be above %g", delta, 0.0);
    return loss(g, x, target, AF_LOSS_HUBER, delta, "huber");
}
af_tensor *af_bce_with_logits(af_graph *g, af_tensor *x, af_tensor *target)
{
    return loss(g, x, target, AF_LOSS_BCE, 0, "bce_with_logits");
}
af_tensor *af_kl(af_graph *g, af_tensor *logq, af_tensor *p)
{
    return loss(g, logq, p, AF_LOSS_KL, 0, "kl");
}

af_tensor *af_cross_entropy(af_graph *g, af_tensor *x, af_tensor *labels, double smoothing)
{
    char tx[96], tl[96];
    if (af_graph_refuses(g, "cross_entropy", (af_tensor *[]){x, labels}, 2))
        return af_graph_dummy(g);
    if (!(smoothing >= 0 && smoothing < 1))
        return af_graph_bad(g, "cross_entropy: smoothing is %g, not from 0 up to below %g",
                            smoothing, 1.0);
    if (x->ndim != 2 || labels->ndim != 1 || x->dim[0] != labels->dim[0] || x->dim[1] < 1 ||
        labels->dtype != AF_DTYPE_I32 || !af_dtype_is_float(x->dtype))
        return af_graph_bad(g, "cross_entropy: %s and labels %s do not fit together",
                            af_shape_text(x, tx, sizeof tx), af_shape_text(labels, tl, sizeof tl));
    af_expect(labels, AF_VALUE_LABELS, x->dim[1]);
    return record(g, x, labels, AF_LOSS_CE, smoothing);
}

static void loss_grad(af_graph *g, af_node *n, af_tensor *const *dout)
{
    const af_loss_inputs in = af_loss_in(n);
    af_tensor *x = in.x, *target = in.target;
    af_node *b = af_node_new(g, AF_OP_LOSS_BWD, (af_tensor *[]){x, target, dout[0]}, 3);
    b->attr = n->attr;
    af_tensor *dx = af_node_output_like(g, b, x);
    af_grad_add(g, x, dx);
    if (target->needs_grad) /* mse, l1 and huber see the difference only */
        af_grad_add(g, target, af_neg(g, dx));
}

static double loss_flops(const af_node *n) { return 4.0 * (double)af_count(n->in[0]); }

const af_op_info af_op_loss = {.name = "loss", .grad = loss_grad, .flops = loss_flops};
const af_op_info af_op_loss_bwd = {.name = "loss_bwd", .flops = loss_flops};
