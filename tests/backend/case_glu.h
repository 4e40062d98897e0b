/* case_glu.h - gated units between projections with adapters: on the GPU one kernel does the unit
 * and the low-rank products next to it, where types and ranks allow it (glu_adapter.h). */
#ifndef AF_CASE_GLU_H
#define AF_CASE_GLU_H

#include "backend/cases.h"

typedef struct glu_shape {
    int64_t N, D, F;
    int gate, up, down; /* ranks */
    af_act act;
    bool twice; /* the same adapters again: gradients are added */
} glu_shape;

static af_tensor *glu_block(rec *r, af_tensor *x, const glu_shape *s, af_linear_opts *o)
{
    return af_linear(r->g, af_glu(r->g, af_linear(r->g, x, &o[0]), s->act), &o[1]);
}
static void glu_adapters(rec *r, const glu_shape *s)
{
    const int ranks = s->gate + s->up;
    af_tensor *x = act_2(r, s->N, s->D);
    af_linear_opts o[2] = {
        {.weight = {weight_2(r, r->t, s->F, s->D), weight_2(r, r->t, s->F, s->D)}, .pieces = 2},
        {.weight = {weight_2(r, r->t, s->D, s->F)}, .pieces = 1}};
    if (ranks) {
        o[0].a = param_n(r, 2, (int64_t[]){ranks, s->D}, -0.2, 0.2);
        o[0].b = param_n(r, 1, (int64_t[]){s->F * ranks}, -0.2, 0.2);
        o[0].part[0] = (af_adapter_part){0, s->F, 0, s->gate, 0.5f};
        o[0].part[1] = (af_adapter_part){s->F, s->F, s->gate, s->up, 0.25f};
        o[0].parts = 2;
    }
    if (s->down) {
        o[1].a = param_n(r, 2, (int64_t[]){s->down, s->F}, -0.2, 0.2);
        o[1].b = param_n(r, 1, (int64_t[]){s->D * s->down}, -0.2, 0.2);
        o[1].part[0] = (af_adapter_part){0, s->D, 0, s->down, 0.5f};
        o[1].parts = 1;
    }
    af_tensor *y = glu_block(r, x, s, o);
    if (s->twice)
        y = af_add(r->g, glu_block(r, y, s, o), x);
    finish(r, y);
}
static void case_glu_adapters(rec *r)
{
    glu_adapters(r, &(glu_shape){70, 40, 264, 16, 16, 16, AF_ACT_SILU, false});
}
static void case_glu_adapters_twice(rec *r)
{
    glu_adapters(r, &(glu_shape){133, 48, 72, 8, 16, 8, AF_ACT_GELU_TANH, true});
}
static void case_glu_adapters_long(rec *r)
{
    glu_adapters(r, &(glu_shape){531, 64, 1160, 16, 8, 16, AF_ACT_SILU, false});
}
static void case_glu_adapters_front(rec *r) /* none after the unit */
{
    glu_adapters(r, &(glu_shape){19, 24, 48, 8, 8, 0, AF_ACT_GELU, false});
}
/* many rows: one kernel for the product before the unit as well (gate_up.h) */
static void case_gate_up(rec *r)
{
    glu_adapters(r, &(glu_shape){1301, 192, 640, 16, 16, 16, AF_ACT_SILU, false});
}
static void case_gate_up_narrow(rec *r) /* the last columns in tiles of half the width */
{
    glu_adapters(r, &(glu_shape){1041, 64, 2304, 16, 16, 16, AF_ACT_SILU, false});
}
static void case_gate_up_twice(rec *r)
{
    glu_adapters(r, &(glu_shape){1024, 64, 128, 16, 8, 8, AF_ACT_GELU_TANH, true});
}
static void case_gate_up_front(rec *r) /* an adapter before the unit only */
{
    glu_adapters(r, &(glu_shape){1536, 64, 128, 24, 24, 0, AF_ACT_SILU, false});
}
static void case_gate_up_back(rec *r) /* after it only */
{
    glu_adapters(r, &(glu_shape){1100, 128, 384, 0, 0, 16, AF_ACT_SILU, false});
}
static void case_glu_adapters_odd(rec *r) /* another rank: separate products */
{
    glu_adapters(r, &(glu_shape){21, 24, 40, 4, 12, 24, AF_ACT_RELU, false});
}
#endif
