/* block_altup.c - a residual of several streams (AltUp), of which layers read one: each layer first
 * predicts all streams from all of them, then corrects the predictions by what it computed of the
 * one; and the low-rank residual next to attention (LAuReL). arXiv 2301.13310, 2411.07501.
 *
 *   m(x)      = tanh(W norm(x) / D)                    [N][A], A streams
 *   p_j       = x_j + sum_i x_i (P m(x_a))[jA + i]     a: the active stream
 *   y         = what the layer makes of p_a
 *   x_j      <- p_j + (y - p_a) (1 + (C m(y))[j]) */
#include "model/builder/blocks.h"

#include <math.h>

static af_tensor *norm(const af_forward *f, int layer, af_slot slot, af_tensor *x)
{
    return af_rmsnorm(f->g, x, af_layer_leaf(f, layer, slot), f->s->eps, false);
}

/* The mean square of each row in f32, [N][1]. */
static af_tensor *mean_square(const af_forward *f, af_tensor *x)
{
    x = af_as_type(f->g, x, AF_DTYPE_F32);
    return af_mean(f->g, af_mul(f->g, x, x), -1, true);
}

/* y with the magnitude of each row of x; its own is not taken for less than sqrt(1e-5). */
static af_tensor *resize(const af_forward *f, af_tensor *y, af_tensor *x)
{
    af_graph *g = f->g;
    const int64_t one = 1;
    af_tensor *least = af_graph_constant(g, AF_DTYPE_F32, 1, &one, 1e-5),
              *tiny = af_graph_constant(g, AF_DTYPE_F32, 1, &one, 1e-30);
    af_tensor *own = af_add(g, af_relu(g, af_sub(g, mean_square(f, y), least)), least);
    af_tensor *by = af_sqrt(g, af_div(g, af_add(g, mean_square(f, x), tiny), own));
    return af_mul(g, y, af_as_type(g, by, af_tensor_dtype(y)));
}

af_streams af_streams_open(const af_forward *f, af_tensor *x)
{
    const int64_t D = f->s->width;
    af_streams s = {{x}};
    af_tensor *all = af_project(f, 0, AF_GROUP_ALTUP_OPEN, x);
    for (int i = 1; i < f->s->altup.streams; i++)
        s.x[i] = resize(f, af_slice(f->g, all, 1, (i - 1) * D, D), x);
    return s;
}

af_tensor *af_streams_close(const af_forward *f, const af_streams *s)
{
    af_tensor *sum = s->x[0];
    const int n = (int)f->s->altup.streams;
    for (int i = 1; i < n; i++) {
        af_tensor *y = af_project(f, 0, (af_group)(AF_GROUP_ALTUP_CLOSE_1 + i - 1), s->x[i]);
        sum = af_add(f->g, sum, resize(f, y, s->x[0]));
    }
    return af_scale(f->g, sum, 1.0 / n);
}

static af_tensor *modalities(const af_forward *f, int layer, af_tensor *x)
{
    x = af_scale(f->g, norm(f, layer, AF_SLOT_ALTUP_NORM, x), 1.0 / (double)f->s->width);
    return af_tanh(f->g, af_project(f, layer, AF_GROUP_ALTUP_ROUTER, x));
}

static void predict(const af_forward *f, int layer, af_streams *s)
{
    af_graph *g = f->g;
    const int A = (int)f->s->altup.streams;
    af_tensor *m = modalities(f, layer, s->x[f->s->altup.active]);
    af_tensor *by = af_project(f, layer, AF_GROUP_ALTUP_PREDICT, m);
    const af_streams old = *s;
    for (int j = 0; j < A; j++)
        for (int i = 0; i < A; i++)
            s->x[j] = af_add(g, s->x[j], af_mul(g, old.x[i], af_slice(g, by, 1, j * A + i, 1)));
}

static void correct(const af_forward *f, int layer, af_tensor *y, af_streams *s)
{
    af_graph *g = f->g;
    af_tensor *more = af_sub(g, y, s->x[f->s->altup.active]);
    af_tensor *by = af_project(f, layer, AF_GROUP_ALTUP_CORRECT, modalities(f, layer, y));
    for (int j = 0; j < f->s->altup.streams; j++) {
        af_tensor *own = af_mul(g, more, af_slice(g, by, 1, j, 1));
        s->x[j] = af_add(g, af_add(g, s->x[j], more), own);
    }
}

/* Streams but the first get the layer's own input, gated by the active one. */
static void add_inputs(const af_forward *f, int layer, af_streams *s)
{
    af_graph *g = f->g;
    const int64_t P = f->s->per_layer_input;
    af_tensor *x = s->x[f->s->altup.active];
    if (f->s->altup.scaled)
        x = af_mul(g, x,
                   af_as_type(g, af_layer_leaf(f, layer, AF_SLOT_ALTUP_SCALE), af_tensor_dtype(x)));
    af_tensor *y = af_activate(f, layer, af_project(f, layer, AF_GROUP_PER_LAYER_GATE, x));
    y = af_mul(g, y, af_slice(g, f->per_layer, 1, layer * P, P));
    y = norm(f, layer, AF_SLOT_PER_LAYER_NORM, af_project(f, layer, AF_GROUP_PER_LAYER_PROJ, y));
    for (int j = 1; j < f->s->altup.streams; j++)
        s->x[j] = af_add(g, s->x[j], y);
}

void af_streams_layer(const af_forward *f, int layer, af_block_record *mixer, af_block_record *mlp,
                      af_streams *s)
{
    af_graph *g = f->g;
    predict(f, layer, s);
    af_tensor *x = s->x[f->s->altup.active], *h = norm(f, layer, AF_SLOT_ATTN_NORM, x);
    af_tensor *low = af_project(f, layer, AF_GROUP_LAUREL_LEFT, h);
    low = norm(f, layer, AF_SLOT_LAUREL_NORM, af_project(f, layer, AF_GROUP_LAUREL_RIGHT, low));
    af_tensor *y = norm(f, layer, AF_SLOT_POST_ATTN_NORM, mixer(f, layer, h));
    x = af_add(g, af_add(g, x, y), af_add(g, h, low));
    x = af_scale(g, x, 1 / sqrt(2.0));
    y = mlp(f, layer, norm(f, layer, AF_SLOT_MLP_NORM, x));
    correct(f, layer, af_add(g, x, norm(f, layer, AF_SLOT_POST_MLP_NORM, y)), s);
    add_inputs(f, layer, s);
}
