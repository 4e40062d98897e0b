/* project.c - the linears of a layer with their adapters: LoRA, DoRA, biases, dropout. */
#include "graph/graph_access.h"
#include "model/builder/blocks.h"
#include "ops/oft/oft.h"

/* Dropout streams of groups that other blocks than attention and a dense MLP have. */
static const uint64_t GROUP_STREAM = UINT64_C(1) << 40;

/* Frozen pieces only: with a trained one next to them nothing is in FP8. */
static bool in_fp8(const af_forward *f, int layer, af_group group)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    if (!f->o.fp8 || !f->o.fp8[layer * AF_GROUP_LAYER_COUNT + (int)group])
        return false;
    for (int p = 0; p < ls->pieces[group]; p++)
        if (af_tensor_role(f->l->tensor[f->s->module[ls->module[group][p]].weight]) !=
            AF_ROLE_WEIGHT)
            return false;
    return true;
}

static af_linear_opts base_linear(const af_forward *f, int layer, af_group group)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    af_linear_opts o = {.pieces = ls->pieces[group],
                        .few_rows = f->o.cache != NULL,
                        .fp8 = in_fp8(f, layer, group)};
    for (int p = 0; p < o.pieces; p++) {
        const af_module_spec *m = &f->s->module[ls->module[group][p]];
        o.weight[p] = f->l->tensor[m->weight];
        if (f->s->round_weights)
            o.weight[p] = af_ternary_weight(f->l, o.weight[p]);
        if (!m->parameter)
            o.weight[p] = af_qat_weight(f->l, o.weight[p], f->l->compute);
        o.bias[p] = m->bias < 0 ? NULL : f->l->tensor[m->bias];
    }
    return o;
}

/* Adds the adapters of a group's modules; false when none has one. */
static bool add_parts(const af_forward *f, int layer, af_group group, af_linear_opts *o)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    for (int p = 0; f->adapter && p < ls->pieces[group]; p++) {
        const int i = ls->module[group][p];
        const af_module_spec *m = &f->s->module[i];
        const af_adapter_module *am = &f->adapter->module[i];
        const af_adapter_leaf *al = &f->l->module[i];
        if (am->rank == 0)
            continue;
        o->a = al->a;
        o->b = al->b;
        o->part[o->parts++] = (af_adapter_part){.out_from = m->out_from,
                                                .out_rows = m->out,
                                                .rank_from = (int)al->a_row,
                                                .rank = am->rank,
                                                .scale = am->scale};
    }
    return o->parts > 0;
}

af_tensor *af_as_type(af_graph *g, af_tensor *t, af_dtype type)
{
    return af_tensor_dtype(t) == type ? t : af_cast(g, t, type);
}

/* The input of an adapter in training: masked by dropout, one stream per projection. */
static af_tensor *adapter_input(const af_forward *f, int layer, af_group group, af_tensor *x)
{
    if (f->l->dropout <= 0)
        return x;
    const uint64_t stream = group <= AF_GROUP_DOWN ? (uint64_t)layer * (AF_GROUP_DOWN + 1) + group
                                                   : GROUP_STREAM + (uint64_t)layer * 64 + group;
    return af_dropout(f->g, x, f->l->dropout, stream);
}

/* DoRA (Liu et al. 2024) as PEFT has it, x' = dropout(x):
 *   y = W x + (m/n - 1) W x' + (m/n) s B A x' + bias, n = row norms of W + s B A, not
 * differentiated; without dropout that is (m/n) (W x + s B A x) + bias. */
static af_tensor *dora(const af_forward *f, int layer, af_group group, int piece, af_tensor *x)
{
    af_graph *g = f->g;
    const int i = f->s->layer[layer].module[group][piece];
    const af_module_spec *m = &f->s->module[i];
    const af_adapter_module *am = &f->adapter->module[i];
    const af_adapter_leaf *al = &f->l->module[i];
    const af_dtype type = af_tensor_dtype(x);
    af_tensor *bias = m->bias < 0 ? NULL : f->l->tensor[m->bias];
    af_linear_opts o = {.pieces = 1,
                        .weight = {f->l->tensor[m->weight]},
                        .few_rows = f->o.cache != NULL,
                        .fp8 = in_fp8(f, layer, group)};
    if (am->rank == 0) {
        o.bias[0] = bias;
        return af_linear(g, x, &o);
    }
    o.a = al->a;
    o.b = al->b;
    o.parts = 1;
    o.part[0] = (af_adapter_part){
        .out_rows = m->out, .rank_from = (int)al->a_row, .rank = am->rank, .scale = am->scale};
    af_tensor *ratio = af_div(g, al->magnitude, af_dora_norm(g, &o));
    ratio = af_as_type(g, ratio, type);
    af_tensor *y = af_mul(g, af_linear(g, adapter_input(f, layer, group, x), &o), ratio);
    if (f->l->dropout > 0) { /* the base term itself sees the whole input */
        const af_linear_opts w = {.pieces = 1, .weight = {o.weight[0]}, .fp8 = o.fp8};
        af_tensor *masked = af_linear(g, adapter_input(f, layer, group, x), &w);
        y = af_add(g, y, af_sub(g, af_linear(g, x, &w), masked));
    }
    return bias ? af_add(g, y, af_as_type(g, bias, type)) : y;
}

/* OFT (Qiu et al. 2023, 2025) as PEFT has it: each module of `o` with its input rotated, block by
 * block. */
static af_tensor *rotated(const af_forward *f, int layer, af_group group, const af_linear_opts *o,
                          af_tensor *x)
{
    af_graph *g = f->g;
    const af_oft *oft = &f->adapter->config.oft;
    af_tensor *y[AF_LINEAR_PIECES];
    for (int p = 0; p < o->pieces; p++) {
        const int i = f->s->layer[layer].module[group][p];
        const af_oft_opts turn = {f->adapter->module[i].block, oft->terms, oft->exact};
        const af_linear_opts one = {.pieces = 1,
                                    .weight = {o->weight[p]},
                                    .bias = {o->bias[p]},
                                    .few_rows = o->few_rows,
                                    .fp8 = o->fp8};
        af_tensor *q = f->l->module[i].triangle;
        af_tensor *in = q ? af_oft_rotate(g, x, af_oft_blocks(g, q, &turn)) : x;
        y[p] = af_linear(g, af_qat_input(f->l, in), &one);
    }
    return o->pieces == 1 ? y[0] : af_concat(g, y, o->pieces, 1);
}

/* Passes the input of a group of linears to the hook, where there is one. */
static void tap(const af_forward *f, int layer, af_group group, af_tensor *x)
{
    if (f->o.tap)
        f->o.tap(f->o.tap_user, layer, group, x);
}

/* lora_bias: s times the bias of each adapted piece is added. */
static af_tensor *add_bias(const af_forward *f, int layer, af_group group, af_tensor *y)
{
    af_graph *g = f->g;
    const af_layer_spec *ls = &f->s->layer[layer];
    af_tensor *piece[AF_LINEAR_PIECES];
    int64_t from = 0;
    if (!f->adapter->config.lora_bias)
        return y;
    for (int p = 0; p < ls->pieces[group]; p++) {
        const int i = ls->module[group][p];
        af_tensor *bias = f->l->module[i].bias;
        piece[p] = ls->pieces[group] == 1 ? y : af_slice(g, y, 1, from, f->s->module[i].out);
        if (bias)
            bias =
                af_as_type(g, af_scale(g, bias, f->adapter->module[i].scale), af_tensor_dtype(y));
        piece[p] = bias ? af_add(g, piece[p], bias) : piece[p];
        from += f->s->module[i].out;
    }
    return ls->pieces[group] == 1 ? piece[0] : af_concat(g, piece, ls->pieces[group], 1);
}

static bool is_rotated(const af_forward *f, int layer, af_group group)
{
    const af_layer_spec *ls = &f->s->layer[layer];
    bool any = false;
    for (int p = 0; p < ls->pieces[group]; p++)
        any |= f->l->module[ls->module[group][p]].triangle != NULL;
    return any;
}

/* With the adapter of the leaves. */
static af_tensor *project(const af_forward *f, int layer, af_group group, af_tensor *x)
{
    af_graph *g = f->g;
    af_linear_opts o = base_linear(f, layer, group), z = {0};
    af_tensor *low_x = x; /* what adapters read: never rounded */
    if (f->adapter && f->adapter->as_stored && is_rotated(f, layer, group))
        return rotated(f, layer, group, &o, x);
    if (f->s->round_inputs)
        x = af_fake_quant(g, x, 8, -1, true);
    if (!f->s->module[f->s->layer[layer].module[group][0]].parameter)
        x = af_qat_input(f->l, x);
    if (!add_parts(f, layer, group, &z))
        return af_linear(g, x, &o);
    if (f->adapter->config.dora) {
        af_tensor *y[AF_LINEAR_PIECES];
        for (int p = 0; p < o.pieces; p++)
            y[p] = dora(f, layer, group, p, x);
        return o.pieces == 1 ? y[0] : af_concat(g, y, o.pieces, 1);
    }
    o.a = z.a;
    o.b = z.b;
    o.parts = z.parts;
    memcpy(o.part, z.part, sizeof o.part);
    o.adapter_x = adapter_input(f, layer, group, low_x);
    return add_bias(f, layer, group, af_linear(g, x, &o));
}

af_tensor *af_project(const af_forward *f, int layer, af_group group, af_tensor *x)
{
    const af_layer_adapters *chosen = f->o.adapters;
    const af_row_adapter *own =
        chosen ? &chosen->group[layer * AF_GROUP_LAYER_COUNT + group] : NULL;
    tap(f, layer, group, x);
    af_tensor *y = project(f, layer, group, x);
    if (!own || !own->a)
        return y;
    if (own->factor) {
        const af_dtype type = af_tensor_dtype(y);
        y = af_mul(f->g, y, af_embedding(f->g, chosen->column, own->factor, type));
        y = af_add(f->g, y, af_embedding(f->g, chosen->column, own->shift, type));
    }
    return af_row_adapters(f->g, y, x, &chosen->rows, own);
}
