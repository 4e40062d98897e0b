/* moe_fuse.c - the backward pass of a mixture with two passes over the slots less.
 *
 * y[n] = sum_j w_j W_j h_j with h = GLU(gate_up), and dy[n] is known. As recorded: dout[s] = w dy,
 * dw = dy . out[s] (MOE_COMBINE_BWD), dh = W^T dout (MOE_LINEAR_DX), GLU_BWD. W does not depend on
 * w, so u = W^T dy(s) from the rows of dy by token gives dh = w u and dw = u . h: neither dout nor
 * out is needed, and GLU_BWD, which has h at hand, does the rest. Not where the linear has a bias,
 * an adapter or a gradient of its own: these need dout. */
#include "ops/moe/moe_fuse.h"
#include "ops/moe/moe_in.h"

static bool plain(const af_node *n)
{
    return !n->attr.moe.lora && !n->attr.moe.half && n->attr.moe.alpha == 1;
}

static bool read_before(const af_graph *g, const af_tensor *t, const af_node *end)
{
    for (int i = 0; i < g->n_nodes && g->nodes[i] != end; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            if (g->nodes[i]->in[k] == t)
                return true;
    return false;
}

static void fuse(const af_graph *g, af_node *c)
{
    const af_moe_inputs in = af_moe_in(c);
    const af_node *down = in.out->producer;
    af_node *dx = af_only_reader(g, c->out[0]), *back = dx ? af_only_reader(g, dx->out[0]) : NULL;
    if (!back || dx->op != AF_OP_MOE_LINEAR_DX || !plain(dx) || back->op != AF_OP_GLU_BWD ||
        back->in[1] != dx->out[0] || back->attr.glu.limit > 0 || !down ||
        down->op != AF_OP_MOE_LINEAR || !plain(down) || down->attr.moe.bias || c->out[0]->keep ||
        dx->out[0]->keep || c->out[1]->keep)
        return;
    const af_node *glu = af_moe_in(down).x->producer;
    if (!glu || glu->op != AF_OP_GLU || glu->in[0] != back->in[0] || c->out[1]->base ||
        read_before(g, c->out[1], back))
        return;
    const af_tensor *const lists[] = {in.list, in.slot, in.start};
    dx->in[0] = in.dy;
    dx->attr.moe.by_token = true;
    const af_act act = back->attr.glu.act;
    back->op = AF_OP_MOE_GLU_BWD;
    back->attr = c->attr;
    back->attr.moe.act = act;
    for (int k = 0; k < 3; k++)
        back->in[1 + k] = (af_tensor *)lists[k];
    back->in[4] = in.weights;
    back->in[5] = dx->out[0];
    back->n_in = 6;
    back->out[1] = c->out[1];
    back->out[1]->producer = back;
    back->n_out = 2;
    c->n_out = 1; /* nobody reads that: it is dropped */
}

/* a + b where one is a sum over experts that nobody else reads: the sum begins with the other. */
static void fuse_sum(const af_graph *g, af_node *add)
{
    for (int k = 0; k < 2 && add->op == AF_OP_BINARY; k++) {
        const af_node *sum = add->in[k]->producer;
        af_tensor *other = add->in[1 - k];
        if (!sum || sum->op != AF_OP_MOE_COMBINE || sum->attr.moe.plus || add->in[k]->base ||
            add->in[k]->keep || other == add->in[k] || sum->phase != add->phase ||
            af_only_reader(g, add->in[k]) != add || !af_same_shape(other, sum->out[0]))
            continue;
        add->op = AF_OP_MOE_COMBINE;
        add->attr = sum->attr;
        add->attr.moe.plus = true;
        add->n_in = sum->n_in + 1;
        for (int i = 0; i < sum->n_in; i++)
            add->in[i] = sum->in[i];
        add->in[sum->n_in] = other;
    }
}

/* GLU of what experts just made, for the next experts alone: both results are made by one node. */
static void fuse_unit(const af_graph *g, af_node *glu)
{
    af_tensor *h = glu->out[0];
    const af_tensor *y = glu->in[0];
    af_node *n = y->producer;
    const af_node *next = af_only_reader(g, h);
    if (!n || n->op != AF_OP_MOE_LINEAR || n->attr.moe.half || y->base || h->keep ||
        glu->attr.glu.limit > 0 || !next || next->op != AF_OP_MOE_LINEAR ||
        n->phase != glu->phase || n->block != glu->block)
        return;
    n->attr.moe.glu = true;
    n->attr.moe.act = glu->attr.glu.act;
    n->out[n->n_out++] = h;
    h->producer = n;
    glu->n_out = 0;
}

void af_moe_fuse(af_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        af_node *n = g->nodes[i];
        if (n->op == AF_OP_MOE_COMBINE_BWD)
            fuse(g, n);
        if (n->op == AF_OP_BINARY && n->attr.binary.kind == AF_BINARY_ADD &&
            n->phase == AF_PHASE_BACKWARD)
            fuse_sum(g, n);
    }
    for (int i = 0; i < g->n_nodes; i++) /* after those above, which look for units */
        if (g->nodes[i]->op == AF_OP_GLU)
            fuse_unit(g, g->nodes[i]);
}

const af_cuda_family af_cuda_experts_family = {.rewrite = af_moe_fuse};
