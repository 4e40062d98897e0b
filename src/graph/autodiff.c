/* autodiff.c - reverse-mode differentiation: walks the recorded nodes backwards and lets each op's
 * rule emit ordinary nodes. A value used twice gets the sum of its gradients; a parameter's
 * gradient is a persistent tensor that contributions are accumulated into, so that micro-batches
 * add up. */
#include "graph/node.h"

af_dtype af_grad_type(const af_tensor *param)
{
    return param->dtype == AF_DTYPE_BF16 ? AF_DTYPE_F32 : param->dtype;
}

static void accumulate(af_graph *g, af_tensor *param, af_tensor *dt)
{
    const af_dtype type = af_grad_type(param);
    if (!param->grad)
        param->grad = af_leaf(g, AF_ROLE_GRADIENT, param->name, type, param->ndim, param->dim);
    if (af_graph_failed(g))
        return;
    if (dt->dtype != type)
        dt = af_cast(g, dt, type);
    af_node_new(g, AF_OP_ACCUM, (af_tensor *[]){param->grad, dt}, 2);
}

void af_grad_add(af_graph *g, af_tensor *t, af_tensor *dt)
{
    if (!t->needs_grad || af_graph_failed(g))
        return;
    assert(af_same_shape(t, dt));
    if (t->role == AF_ROLE_PARAM)
        accumulate(g, t, dt);
    else
        t->grad = t->grad ? af_add(g, t->grad, dt) : dt;
}

static void differentiate(af_graph *g, int last)
{
    for (int i = last; i >= 0 && !af_graph_failed(g); i--) {
        af_node *n = g->nodes[i];
        const af_op_info *op = af_ops[n->op];
        af_tensor *dout[AF_NODE_OUT_MAX] = {0};
        bool any = false;
        for (int k = 0; k < n->n_out; k++) {
            dout[k] = n->out[k]->grad;
            any |= dout[k] != NULL;
        }
        if (!any || !op->grad)
            continue;
        bool wanted = false;
        for (int k = 0; k < n->n_in; k++)
            wanted |= n->in[k]->needs_grad;
        if (wanted) {
            g->block = n->block;
            op->grad(g, n, dout);
        }
    }
}

void af_graph_backward(af_graph *g, af_tensor *loss)
{
    if (af_graph_refuses(g, "backward", &loss, 1))
        return;
    char text[96];
    if (g->differentiated) {
        af_graph_bad(g, "the graph has a backward pass already");
        return;
    }
    if (af_count(loss) != 1) {
        af_graph_bad(g, "the loss is %s, not a single number",
                     af_shape_text(loss, text, sizeof text));
        return;
    }
    if (!loss->needs_grad) {
        af_graph_bad(g, "no parameter leads to the loss '%s': there is nothing to differentiate",
                     loss->name);
        return;
    }
    const int last = g->n_nodes - 1;
    g->differentiated = true;
    g->loss = loss;
    g->phase = AF_PHASE_BACKWARD;
    af_graph_output(g, loss);
    loss->grad = af_graph_constant(g, loss->dtype, loss->ndim, loss->dim, 1.0);
    if (!af_graph_failed(g))
        differentiate(g, last);
    g->block = -1;
}
