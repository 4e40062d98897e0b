/* block_mlp.c - dense MLPs. */
#include "model/builder/blocks.h"

/* max(x - (mean + m std), 0) of each row: the largest gates alone. */
static af_tensor *sparse_gate(const af_forward *f, af_tensor *x, double m)
{
    af_graph *g = f->g;
    const af_dtype type = af_tensor_dtype(x);
    const int64_t one = 1;
    x = af_as_type(g, x, AF_DTYPE_F32);
    x = af_sub(g, x, af_mean(g, x, -1, true));
    af_tensor *tiny = af_graph_constant(g, AF_DTYPE_F32, 1, &one, 1e-30); /* rows of equal values */
    af_tensor *std = af_sqrt(g, af_add(g, af_mean(g, af_mul(g, x, x), -1, true), tiny));
    return af_as_type(g, af_relu(g, af_sub(g, x, af_scale(g, std, m))), type);
}

/* act(gate) * up with an activation or gates that af_glu has not. */
static af_tensor *other_glu(const af_forward *f, int layer, af_tensor *gate_up)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *gate = af_slice(g, gate_up, 1, 0, ls->ffn);
    if (ls->sparse)
        gate = sparse_gate(f, gate, ls->sparsity);
    return af_mul(g, af_activate(f, layer, gate), af_slice(g, gate_up, 1, ls->ffn, ls->ffn));
}

af_tensor *af_gated_unit(const af_forward *f, af_tensor *gate_up)
{
    const double limit = f->s->router.clamp;
    return limit > 0 ? af_glu_clamped(f->g, gate_up, limit) : af_glu(f->g, gate_up, f->s->act);
}

af_tensor *af_block_mlp_gated(const af_forward *f, int layer, af_tensor *h)
{
    af_tensor *gate_up = af_project(f, layer, AF_GROUP_GATE_UP, h);
    const af_mup_keys *m = &f->s->mup;
    if (m->given && m->gate != 1)
        gate_up =
            af_mul_parts(f, gate_up, (const double[]){m->gate, 1},
                         (const int64_t[]){f->s->layer[layer].ffn, f->s->layer[layer].ffn}, 2);
    const bool other = f->s->layer[layer].sparse || f->s->plain_act != AF_PLAIN_ACT;
    af_tensor *wide = other ? other_glu(f, layer, gate_up) : af_gated_unit(f, gate_up);
    if (f->s->arch->sub_norms)
        wide =
            af_rmsnorm(f->g, wide, af_layer_leaf(f, layer, AF_SLOT_MLP_SUB_NORM), f->s->eps, false);
    af_tensor *y = af_project(f, layer, AF_GROUP_DOWN, wide);
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
