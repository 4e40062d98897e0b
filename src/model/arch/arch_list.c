/* arch_list.c - walks a model and lists its tensors and modules in the order of its layers. */
#include "model/arch/arch_list.h"

enum { SLOTS_PER_LAYER = AF_SLOT_LAYER_COUNT, MODULES_PER_LAYER = 19, OUTER = 10 };

typedef void list_block(af_lister *l, int layer);

/* The half of a layer that is not there. */
static void list_nothing(af_lister *l, int layer)
{
    (void)l;
    (void)layer;
}

static list_block *const mixers[AF_MIXER_COUNT] = {
    [AF_MIXER_ATTENTION] = af_list_attention, [AF_MIXER_LATENT] = af_list_latent,
    [AF_MIXER_DELTA_NET] = af_list_delta_net, [AF_MIXER_MAMBA1] = af_list_mamba1,
    [AF_MIXER_MAMBA2] = af_list_mamba2,       [AF_MIXER_SHORT_CONV] = af_list_short_conv,
    [AF_MIXER_HYBRID] = af_list_hybrid,       [AF_MIXER_SHARED] = af_list_shared,
    [AF_MIXER_LIGHTNING] = af_list_lightning, [AF_MIXER_NONE] = list_nothing,
};

static list_block *const mlps[AF_MLP_COUNT] = {
    [AF_MLP_GATED] = af_list_mlp_gated,       [AF_MLP_PLAIN] = af_list_mlp_plain,
    [AF_MLP_EXPERTS] = af_list_mlp_experts,   [AF_MLP_AND_EXPERTS] = af_list_mlp_and_experts,
    [AF_MLP_SHORTCUT] = af_list_mlp_shortcut, [AF_MLP_NONE] = list_nothing,
};

bool af_list_has_mixer(af_mixer m) { return mixers[m] != NULL; }

/* "model.layers.3.PART.mlp.up_proj.weight". A star stands for the number of a use, or for which
 * half of a double layer it is. */
static void layer_name(const af_lister *l, int layer, const char *hf, char out[256])
{
    char which[16] = "", prefix[64];
    const char *star = strchr(hf, '*');
    if (star)
        snprintf(which, sizeof which, "%d", l->use ? l->use - 1 : layer % 2);
    af_spec_layers_prefix(l->s, prefix, sizeof prefix);
    snprintf(out, 256, "%s%d.%s%.*s%s%s", prefix, af_spec_folder_layer(l->s, layer),
             l->part ? l->part : "", star ? (int)(star - hf) : 0, hf, which, star ? star + 1 : hf);
}

int af_list_tensor(af_lister *l, af_slot slot, int layer, int ndim, int64_t a, int64_t b, int64_t c)
{
    af_model_spec *s = l->s;
    if (l->again)
        return s->layer[layer].tensor[slot] = s->layer[l->first].tensor[slot];
    const int i = s->tensors++;
    af_tensor_spec *t = &s->tensor[i];
    *t = (af_tensor_spec){
        .slot = slot, .layer = layer, .ndim = ndim, .dim = {a, b, c}, .module = -1};
    t->alternates = s->arch->experts_alternate &&
                    (slot == AF_SLOT_EXPERTS_GATE_UP || slot == AF_SLOT_EXPERTS_GATE_UP_BIAS);
    uint64_t count = (uint64_t)a, total;
    l->failed |= ndim > 1 && !af_mul_ok(count, (uint64_t)b, &count);
    l->failed |= ndim > 2 && !af_mul_ok(count, (uint64_t)c, &count);
    l->failed |= !af_add_ok((uint64_t)s->params, count, &total) || total > (UINT64_C(1) << 50);
    s->params = l->failed ? s->params : (int64_t)total;
    const char *hf = af_slot_hf_name(s->arch, slot), *gguf = af_slot_gguf_name(s->arch, slot);
    if (layer < 0) {
        s->outer[slot] = i;
        t->name = hf;
        t->gguf = gguf ? gguf : "";
        return i;
    }
    s->layer[layer].tensor[slot] = i;
    char name[256];
    layer_name(l, l->use ? l->first : layer, hf, name);
    t->name = af_arena_strdup(&s->arena, name);
    t->gguf = gguf ? af_arena_printf(&s->arena, "blk.%d.%s", layer, gguf) : "";
    l->failed |= !t->name || !t->gguf;
    return i;
}

void af_list_buffer(af_lister *l, af_slot slot, int layer, int64_t a)
{
    af_tensor_spec *t = &l->s->tensor[af_list_tensor(l, slot, layer, 1, a ? a : 1, 1, 1)];
    t->buffer = true;
    t->scalar = a == 0;
}

void af_list_norm(af_lister *l, af_slot slot, int bias_slot, int layer)
{
    if (l->s->arch->norm_bare)
        return;
    af_list_tensor(l, slot, layer, 1, l->s->width, 1, 1);
    if (bias_slot >= 0 && l->s->arch->norm_bias)
        af_list_tensor(l, (af_slot)bias_slot, layer, 1, l->s->width, 1, 1);
}

void af_list_linear(af_lister *l, int layer, af_group group, af_slot slot, int64_t out, int64_t in,
                    int bias_slot)
{
    af_model_spec *s = l->s;
    af_layer_spec *ls = &s->layer[layer];
    const int w = af_list_tensor(l, slot, layer, 2, out, in, 1);
    const int b = bias_slot >= 0 ? af_list_tensor(l, (af_slot)bias_slot, layer, 1, out, 1, 1) : -1;
    const int m = s->modules++, piece = ls->pieces[group]++;
    int64_t from = 0;
    for (int i = 0; i < piece; i++)
        from += s->module[ls->module[group][i]].out;
    s->module[m] = (af_module_spec){.layer = layer,
                                    .group = group,
                                    .piece = piece,
                                    .out_from = from,
                                    .out = out,
                                    .in = in,
                                    .copies = 1,
                                    .weight = w,
                                    .bias = b};
    if (s->tensor[w].name) {
        char name[256], own[256];
        layer_name(l, layer, af_slot_hf_name(s->arch, slot), own);
        af_spec_whole_name(s, own, name, sizeof name);
        s->module[m].path = af_arena_strndup(&s->arena, name, strlen(name) - strlen(".weight"));
    }
    l->failed |= !s->module[m].path;
    ls->module[group][piece] = m;
    if (!l->again)
        s->tensor[w].module = m;
    if (slot == AF_SLOT_Q || slot == AF_SLOT_K) {
        s->tensor[w].row_heads = slot == AF_SLOT_Q ? ls->heads : ls->kv_heads;
        if (b >= 0)
            s->tensor[b].row_heads = s->tensor[w].row_heads;
    }
}

void af_list_experts(af_lister *l, int layer, af_group group, af_slot slot, int64_t out, int64_t in)
{
    af_model_spec *s = l->s;
    af_layer_spec *ls = &s->layer[layer];
    const int w = af_list_tensor(l, slot, layer, 3, s->experts, out, in), m = s->modules++;
    s->tensor[w].flat = s->arch->experts_flat_up != NULL;
    char name[256] = "", own[256];
    const bool gate_up = group == AF_GROUP_EXPERTS_GATE_UP;
    snprintf(own, sizeof own, "model.layers.%d.%s.%s", layer,
             s->arch->experts_module ? s->arch->experts_module : "",
             gate_up ? "gate_up_proj" : "down_proj");
    if (s->tensor[w].name)
        af_spec_whole_name(s, s->arch->experts_module ? own : s->tensor[w].name, name, sizeof name);
    s->module[m] = (af_module_spec){.path = af_arena_strdup(&s->arena, name),
                                    .parameter = true,
                                    .layer = layer,
                                    .group = group,
                                    .out = out,
                                    .in = in,
                                    .copies = s->experts + (gate_up ? s->router.identity : 0),
                                    .weight = w,
                                    .bias = -1};
    l->failed |= !s->module[m].path;
    ls->module[group][0] = m;
    ls->pieces[group] = 1;
    s->tensor[w].module = m;
}

static void list_router(af_lister *l, int layer, af_group group, af_slot slot)
{
    af_model_spec *s = l->s;
    af_layer_spec *ls = &s->layer[layer];
    const int w = ls->tensor[slot], m = s->modules;
    char name[256];
    if (w < 0 || l->failed)
        return;
    af_tensor_spec *t = &s->tensor[w];
    af_spec_whole_name(s, t->name, name, sizeof name);
    if (s->arch->router_linear)
        *strrchr(name, '.') = '\0';
    s->module[s->modules++] = (af_module_spec){.path = af_arena_strdup(&s->arena, name),
                                               .parameter = !s->arch->router_linear,
                                               .layer = layer,
                                               .group = group,
                                               .out = t->dim[0],
                                               .in = t->dim[1],
                                               .copies = 1,
                                               .weight = w,
                                               .bias = ls->tensor[AF_SLOT_ROUTER_BIAS]};
    l->failed |= !s->module[m].path;
    ls->module[group][0] = t->module = m;
    ls->pieces[group] = 1;
}

/* After all other modules, whose numbers choose the first values of their adapters. */
static void list_routers(af_lister *l)
{
    for (int i = 0; i < l->s->layers; i++) {
        list_router(l, i, AF_GROUP_ATTN_ROUTER, AF_SLOT_ATTN_ROUTER);
        list_router(l, i, AF_GROUP_ROUTER, AF_SLOT_ROUTER);
    }
}

/* The module of a tensor outside the layers, as PEFT names it. */
static const char *outer_path(af_lister *l, af_slot slot)
{
    char name[256];
    af_spec_whole_name(l->s, af_slot_hf_name(l->s->arch, slot), name, sizeof name);
    const char *path = af_arena_strndup(&l->s->arena, name, strlen(name) - strlen(".weight"));
    l->failed |= !path;
    return path;
}

/* An embedding is a linear over one-hot rows: in and out change places. */
static int add_outer_module(af_lister *l, af_group group, const char *path, int tensor, int bias)
{
    af_model_spec *s = l->s;
    const bool embed = group == AF_GROUP_EMBED;
    s->tensor[tensor].module = s->tensor[tensor].module < 0 ? s->modules : s->tensor[tensor].module;
    s->module[s->modules++] = (af_module_spec){.path = path,
                                               .layer = -1,
                                               .group = group,
                                               .out = embed       ? s->embed_width
                                                      : s->labels ? s->labels
                                                                  : s->vocab,
                                               .in = embed ? s->embed_rows : s->embed_width,
                                               .copies = 1,
                                               .weight = tensor,
                                               .bias = bias};
    return s->modules - 1;
}

void af_list_outer_linear(af_lister *l, af_group group, af_slot slot, int64_t out, int64_t in)
{
    af_model_spec *s = l->s;
    af_list_linear(l, 0, group, slot, out, in, -1);
    af_module_spec *m = &s->module[s->modules - 1];
    af_tensor_spec *t = &s->tensor[m->weight];
    const char *stem = slot == AF_SLOT_HEAD_DENSE ? ""
                       : s->arch->stem            ? s->arch->stem
                                                  : "model.",
               *gguf = af_slot_gguf_name(s->arch, slot);
    char name[256];
    m->layer = t->layer = -1;
    t->name = af_arena_printf(&s->arena, "%s%s", stem, af_slot_hf_name(s->arch, slot));
    t->gguf = gguf ? gguf : "";
    if (t->name) {
        af_spec_whole_name(s, t->name, name, sizeof name);
        m->path = af_arena_strndup(&s->arena, name, strlen(name) - strlen(".weight"));
    }
    l->failed |= !t->name || !m->path;
}

static void list_layer(af_lister *l, int i)
{
    const af_arch *a = l->s->arch;
    const af_layer_spec *ls = &l->s->layer[i];
    const bool attention = ls->mixer == AF_MIXER_ATTENTION;
    const bool before = a->pre_norm && !(a->norm_by_mixer && attention),
               after = a->post_norm && !(a->norm_by_mixer && !attention);
    if (before && ls->mixer != AF_MIXER_SHARED && !(a->no_first_norm && i == 0))
        af_list_norm(l, af_first_norm_slot(l->s, i), AF_SLOT_ATTN_NORM_BIAS, i);
    af_list_norm_gate(l, i, false);
    mixers[ls->mixer](l, i);
    if (after)
        af_list_norm(l, AF_SLOT_POST_ATTN_NORM, -1, i);
    const bool both = ls->mixer != AF_MIXER_NONE && ls->mlp != AF_MLP_NONE;
    if (before && both && (!l->s->parallel || l->s->parallel_norms))
        af_list_norm(l, AF_SLOT_MLP_NORM, AF_SLOT_MLP_NORM_BIAS, i);
    if (ls->mlp == AF_MLP_EXPERTS)
        af_list_norm_gate(l, i, true);
    mlps[ls->mlp](l, i);
    if (after || (a->post_experts_norm && ls->mlp == AF_MLP_EXPERTS))
        af_list_norm(l, AF_SLOT_POST_MLP_NORM, -1, i);
    af_list_layer_input(l, i);
    af_list_altup(l, i);
    if (a->layer_scale)
        af_list_buffer(l, AF_SLOT_LAYER_SCALE, i, 1);
}

/* The final norm, and the head where it is not the embedding. */
static void list_end(af_lister *l)
{
    af_model_spec *s = l->s;
    if (!s->no_final_norm)
        af_list_norm(l, AF_SLOT_FINAL_NORM, AF_SLOT_FINAL_NORM_BIAS, -1);
    if (s->arch->head_dense) {
        af_list_outer_linear(l, AF_GROUP_HEAD_DENSE, AF_SLOT_HEAD_DENSE, s->width, s->width);
        af_list_norm(l, AF_SLOT_HEAD_NORM, -1, -1);
    }
    if (s->labels) {
        s->head = af_list_tensor(l, AF_SLOT_SCORE, -1, 2, s->labels, s->embed_width, 1);
        return;
    }
    s->head =
        s->tied ? s->embed : af_list_tensor(l, AF_SLOT_HEAD, -1, 2, s->vocab, s->embed_width, 1);
    if (s->arch->head_bias)
        af_list_tensor(l, AF_SLOT_HEAD_BIAS, -1, 1, s->vocab, 1, 1);
}

af_status af_list_model(af_model_spec *s, const af_hf_config *c, af_error *err)
{
    af_lister l = {.s = s, .c = c};
    const uint64_t n = (uint64_t)s->layers;
    memset(s->outer, 0xff, sizeof s->outer); /* -1: absent */
    s->tensor = af_arena_take(&s->arena, (n * SLOTS_PER_LAYER + OUTER) * sizeof *s->tensor);
    s->module = af_arena_take(&s->arena, (n * MODULES_PER_LAYER + OUTER) * sizeof *s->module);
    if (!s->tensor || !s->module)
        return af_fail_nomem(err, "the list of tensors", n * SLOTS_PER_LAYER * sizeof *s->tensor);
    s->embed = af_list_tensor(&l, AF_SLOT_EMBED, -1, 2, s->embed_rows, s->embed_width, 1);
    if (s->arch->embed_norm)
        af_list_norm(&l, AF_SLOT_EMBED_NORM, AF_SLOT_EMBED_NORM_BIAS, -1);
    if (s->arch->positions && !s->arch->sinusoids)
        af_list_tensor(&l, AF_SLOT_POSITIONS, -1, 2, s->max_positions + s->arch->positions_from,
                       s->width, 1);
    if (s->embed_width != s->width) {
        af_list_outer_linear(&l, AF_GROUP_PROJECT_IN, AF_SLOT_PROJECT_IN, s->width, s->embed_width);
        af_list_outer_linear(&l, AF_GROUP_PROJECT_OUT, AF_SLOT_PROJECT_OUT, s->embed_width,
                             s->width);
    }
    af_list_layer_inputs(&l);
    af_list_altup_outer(&l);
    for (int i = 0; i < s->layers; i++)
        list_layer(&l, i);
    list_end(&l);
    s->embed_module =
        add_outer_module(&l, AF_GROUP_EMBED, outer_path(&l, AF_SLOT_EMBED), s->embed, -1);
    s->head_module = add_outer_module(&l, AF_GROUP_HEAD,
                                      outer_path(&l, s->labels ? AF_SLOT_SCORE : AF_SLOT_HEAD),
                                      s->head, s->outer[AF_SLOT_HEAD_BIAS]);
    list_routers(&l);
    if (l.failed)
        return af_fail(err, AF_EFORMAT,
                       "the config describes more than 2^50 parameters (hidden_size %" PRId64
                       ", intermediate_size %" PRId64 ", %d layers)",
                       s->width, s->ffn, s->layers);
    return AF_OK;
}
