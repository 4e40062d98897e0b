/* block_mlp.c - dense MLPs. */
#include "model/builder/blocks.h"

af_tensor *af_block_mlp_gated(const af_forward *f, int layer, af_tensor *h)
{
    af_tensor *gate_up = af_project(f, layer, AF_GROUP_GATE_UP, h);
    return af_project(f, layer, AF_GROUP_DOWN, af_glu(f->g, gate_up, f->s->act));
}

static af_tensor *activate(const af_forward *f, af_tensor *x)
{
    af_graph *g = f->g;
    af_tensor *r;
    switch (f->s->plain_act) {
    case AF_PLAIN_RELU2:
        r = af_relu(g, x);
        return af_mul(g, r, r);
    case AF_PLAIN_XIELU:
    case AF_PLAIN_ACT:
        break;
    }
    switch (f->s->act) {
    case AF_ACT_SILU:
        return af_silu(g, x);
    case AF_ACT_GELU_TANH:
        return af_gelu_tanh(g, x);
    case AF_ACT_GELU:
        return af_gelu(g, x);
    case AF_ACT_RELU:
        return af_relu(g, x);
    }
    return x;
}

af_tensor *af_block_mlp_plain(const af_forward *f, int layer, af_tensor *h)
{
    af_tensor *up = af_project(f, layer, AF_GROUP_GATE_UP, h);
    return af_project(f, layer, AF_GROUP_DOWN, activate(f, up));
}
