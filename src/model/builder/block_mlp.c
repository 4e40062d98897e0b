/* block_mlp.c - dense MLPs. */
#include "model/builder/blocks.h"

af_tensor *af_block_mlp_gated(const af_forward *f, int layer, af_tensor *h)
{
    af_tensor *gate_up = af_project(f, layer, AF_GROUP_GATE_UP, h);
    const af_mup_keys *m = &f->s->mup;
    if (m->given && m->gate != 1)
        gate_up =
            af_mul_parts(f, gate_up, (const double[]){m->gate, 1},
                         (const int64_t[]){f->s->layer[layer].ffn, f->s->layer[layer].ffn}, 2);
    af_tensor *y = af_project(f, layer, AF_GROUP_DOWN, af_glu(f->g, gate_up, f->s->act));
    return m->given && m->down != 1 ? af_scale(f->g, y, m->down) : y;
}

static af_tensor *xielu(const af_forward *f, int layer, af_tensor *x)
{
    af_tensor *t[4];
    for (int i = 0; i < 4; i++)
        t[i] =
            af_as_type(f->g, af_layer_leaf(f, layer, (af_slot)(AF_SLOT_ACT_P + i)), AF_DTYPE_F32);
    return af_xielu(f->g, x, t[0], t[1], t[2], t[3]);
}

af_tensor *af_activate(const af_forward *f, int layer, af_tensor *x)
{
    af_graph *g = f->g;
    af_tensor *r;
    switch (f->s->plain_act) {
    case AF_PLAIN_RELU2:
        r = af_relu(g, x);
        return af_mul(g, r, r);
    case AF_PLAIN_XIELU:
        return xielu(f, layer, x);
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
    return af_project(f, layer, AF_GROUP_DOWN, af_activate(f, layer, up));
}
