/* leaves.c - declares the weights, params and adapter tensors of a model in a graph. */
#include "graph/graph_access.h"
#include "model/arch/alibi.h"
#include "model/arch/decay.h"
#include "model/builder.h"
#include "ops/optim/optimizer.h"

static bool is_param(const af_leaves_opts *o, const af_model_spec *s, int tensor)
{
    if (s->tensor[tensor].buffer)
        return false;
    return (o->train_base && (!o->trained || o->trained[tensor])) ||
           (o->train_adapter && o->adapter && o->adapter->saved[tensor]);
}

/* Whether ops put columns next to the tensor or norm its rows, which codes do not allow. */
static bool is_widened(const af_leaves_opts *o, const af_model_spec *s, int tensor)
{
    if (af_adapter_token_table(o->adapter, tensor) >= 0)
        return true;
    return tensor == s->head && (s->outer[AF_SLOT_HEAD_BIAS] >= 0 || s->head_normed ||
                                 (o->adapter && o->adapter->module[s->head_module].rank > 0));
}

static af_dtype frozen_type(const af_leaves_opts *o, const af_model_spec *s, int tensor)
{
    if (o->adapter && o->adapter->saved[tensor])
        return AF_DTYPE_F32;
    const af_dtype type = o->dtype ? o->dtype[tensor] : o->compute;
    return !af_dtype_is_float(type) && is_widened(o, s, tensor) ? o->compute : type;
}

static af_status declare_tensors(af_model_leaves *l, const af_leaves_opts *o, af_error *err)
{
    const af_model_spec *s = l->spec;
    char name[512];
    for (int i = 0; i < s->tensors; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        const int64_t more = af_adapter_token_columns(o->adapter, i);
        snprintf(name, sizeof name, "%s%s", o->prefix ? o->prefix : "", t->name);
        if (o->base)
            l->tensor[i] = o->base->tensor[i];
        else if (is_param(o, s, i))
            l->tensor[i] = af_graph_param(
                l->graph, name, o->bf16_params ? AF_DTYPE_BF16 : AF_DTYPE_F32, t->ndim, t->dim);
        else if (more)
            l->tensor[i] = af_graph_weight(l->graph, name, frozen_type(o, s, i), 2,
                                           (int64_t[]){t->dim[0], t->dim[1] + more});
        else
            l->tensor[i] = af_graph_weight(l->graph, name, frozen_type(o, s, i), t->ndim, t->dim);
    }
    return af_graph_status(l->graph, err);
}

static af_tensor *adapter_tensor(af_model_leaves *l, const af_leaves_opts *o, const char *path,
                                 const char *tail, int ndim, const int64_t *dim)
{
    char name[512];
    snprintf(name, sizeof name, "%s%s.%s", o->prefix ? o->prefix : "", path, tail);
    return o->train_adapter ? af_graph_param(l->graph, name, AF_DTYPE_F32, ndim, dim)
                            : af_graph_weight(l->graph, name, AF_DTYPE_F32, ndim, dim);
}

/* For the optimizer each is a matrix of its own. */
static void name_parts(af_model_leaves *l, const af_leaves_opts *o, const int *module, int n,
                       af_tensor *a, af_tensor *b)
{
    int64_t a_dim[AF_LINEAR_PIECES][2], b_dim[AF_LINEAR_PIECES][2];
    int parts = 0;
    assert(n <= AF_LINEAR_PIECES);
    for (int p = 0; p < n; p++) {
        const af_module_spec *m = &l->spec->module[module[p]];
        const int64_t rank = o->adapter->module[module[p]].rank;
        if (rank == 0)
            continue;
        a_dim[parts][0] = b_dim[parts][1] = rank;
        a_dim[parts][1] = m->in;
        b_dim[parts++][0] = m->out;
    }
    af_param_parts(l->graph, a, parts, (const int64_t(*)[2])a_dim);
    af_param_parts(l->graph, b, parts, (const int64_t(*)[2])b_dim);
}

/* The modules of one projection share one A (their ranks stacked) and one B (one after another). */
static void declare_shared(af_model_leaves *l, const af_leaves_opts *o, const int *module, int n)
{
    const af_model_spec *s = l->spec;
    const af_adapter_module *am = o->adapter->module;
    int64_t ranks = 0, values = 0;
    const char *path = NULL;
    assert(n == 0 || module[n - 1] - module[0] < AF_LINEAR_PIECES); /* adapter_graph.c */
    for (int p = 0; p < n; p++) {
        l->module[module[p]].a_row = ranks;
        l->module[module[p]].b_from = values;
        ranks += am[module[p]].rank;
        values += am[module[p]].rank * s->module[module[p]].out;
        path = am[module[p]].rank && !path ? s->module[module[p]].path : path;
    }
    if (ranks == 0)
        return;
    const int64_t a_dim[2] = {ranks, s->module[module[0]].in};
    af_tensor *a = adapter_tensor(l, o, path, "lora_A", 2, a_dim);
    af_tensor *b = adapter_tensor(l, o, path, "lora_B", 1, &values);
    for (int p = 0; p < n; p++)
        if (am[module[p]].rank) {
            l->module[module[p]].a = a;
            l->module[module[p]].b = b;
        }
    if (o->train_adapter)
        name_parts(l, o, module, n, a, b);
    for (int p = 0; p < n && o->adapter->config.lora_bias; p++)
        if (am[module[p]].rank)
            l->module[module[p]].bias = adapter_tensor(l, o, s->module[module[p]].path,
                                                       "lora_B.bias", 1, &s->module[module[p]].out);
}

/* A and B of all experts. */
static void declare_experts(af_model_leaves *l, const af_leaves_opts *o, int module)
{
    const af_module_spec *m = &l->spec->module[module];
    const int64_t rank = o->adapter->module[module].rank;
    const int64_t a_dim[3] = {m->copies, rank, m->in}, b_dim[3] = {m->copies, m->out, rank};
    if (rank == 0)
        return;
    l->module[module].a = adapter_tensor(l, o, m->path, "lora_A", 3, a_dim);
    l->module[module].b = adapter_tensor(l, o, m->path, "lora_B", 3, b_dim);
}

/* DoRA scales each module's output, so each has its own tensors. */
static void declare_dora(af_model_leaves *l, const af_leaves_opts *o, int module)
{
    if (o->adapter->module[module].rank == 0)
        return;
    declare_shared(l, o, &module, 1);
    l->module[module].magnitude =
        adapter_tensor(l, o, l->spec->module[module].path, "lora_magnitude_vector", 1,
                       &l->spec->module[module].out);
}

static void declare_oft(af_model_leaves *l, const af_leaves_opts *o, int module)
{
    const af_adapter_module *am = &o->adapter->module[module];
    const int64_t dim[2] = {am->triangles, am->block * (am->block - 1) / 2};
    if (am->triangles)
        l->module[module].triangle =
            adapter_tensor(l, o, l->spec->module[module].path, "oft_R", 2, dim);
}

/* The rows that fill up the columns are a matrix of their own, which stays zero. */
static void declare_tokens(af_model_leaves *l, const af_leaves_opts *o, int table, int tensor)
{
    const int64_t count = o->adapter->tokens[table].count, width = l->spec->embed_width;
    const int64_t columns = count ? af_adapter_token_columns(o->adapter, tensor) : 0;
    const int64_t part[2][2] = {{count, width}, {columns - count, width}};
    char path[512];
    if (!count)
        return;
    snprintf(path, sizeof path, "%s", l->spec->tensor[tensor].name);
    *strrchr(path, '.') = '\0';
    l->tokens[table] =
        adapter_tensor(l, o, path, "trainable_tokens_delta", 2, (int64_t[]){columns, width});
    if (o->train_adapter)
        af_param_parts(l->graph, l->tokens[table], columns > count ? 2 : 1, part);
}

static af_status declare_adapter(af_model_leaves *l, const af_leaves_opts *o, af_error *err)
{
    const af_model_spec *s = l->spec;
    for (int i = 0; o->adapter && i < s->layers; i++)
        for (int k = 0; k < AF_GROUP_LAYER_COUNT; k++) {
            const af_layer_spec *ls = &s->layer[i];
            if (o->adapter->as_stored) {
                for (int p = 0; p < ls->pieces[k]; p++)
                    declare_oft(l, o, ls->module[k][p]);
                continue;
            }
            if (ls->pieces[k] && af_module_is_experts(&s->module[ls->module[k][0]])) {
                declare_experts(l, o, ls->module[k][0]);
                continue;
            }
            if (!o->adapter->config.dora)
                declare_shared(l, o, ls->module[k], ls->pieces[k]);
            for (int p = 0; o->adapter->config.dora && p < ls->pieces[k]; p++)
                declare_dora(l, o, ls->module[k][p]);
        }
    if (o->adapter && !o->adapter->as_stored) {
        declare_shared(l, o, &s->embed_module, 1);
        if (o->adapter->config.dora)
            declare_dora(l, o, s->head_module);
        else
            declare_shared(l, o, &s->head_module, 1);
    }
    if (o->adapter) {
        declare_tokens(l, o, AF_TOKENS_EMBED, s->embed);
        declare_tokens(l, o, AF_TOKENS_HEAD, s->head);
    }
    return af_graph_status(l->graph, err);
}

static void declare_rope(af_model_leaves *l)
{
    for (int r = 0; r < l->spec->ropes; r++) {
        const int64_t half = l->spec->rope[r].rotary_dim / 2;
        l->inv_freq[r] =
            af_graph_weight(l->graph, r ? "inv_freq.local" : "inv_freq", AF_DTYPE_F32, 1, &half);
    }
    const af_model_spec *s = l->spec;
    const int64_t H = s->heads, pick[2] = {H, H / s->kv_heads * af_alibi_pieces(s)};
    if (s->alibi > 0) {
        l->alibi = af_graph_weight(l->graph, "alibi", AF_DTYPE_F32, 1, &H);
        l->alibi_pick = af_graph_weight(l->graph, "alibi.pick", AF_DTYPE_F32, 2, pick);
    }
    if (s->state.fixed_decay)
        l->decay = af_graph_weight(l->graph, "decay", AF_DTYPE_F32, 1, &H);
    if (s->arch->sinusoids)
        l->sinusoids = af_graph_weight(l->graph, "sinusoids", AF_DTYPE_F32, 2,
                                       (int64_t[]){s->max_positions, s->width});
}

af_status af_model_leaves_init(af_model_leaves *out, af_graph *g, const af_model_spec *s,
                               const af_leaves_opts *o, af_error *err)
{
    af_status st = AF_OK;
    af_model_leaves l = {
        .spec = s, .adapter = o->adapter, .dropout = o->dropout, .graph = g, .compute = o->compute};
    l.qat = o->qat;
    if (o->qat.switched)
        l.qat_on = af_graph_input(g, "qat_on", AF_DTYPE_F32, 1, (int64_t[]){1});
    if (o->qat.type == AF_QAT_NVFP4 && o->qat.inputs)
        l.qat_rows = af_graph_input(g, "qat_rows", AF_DTYPE_I32, 1, (int64_t[]){1});
    l.tensor = af_arena_take(&l.arena, (uint64_t)s->tensors * sizeof *l.tensor);
    l.module = af_arena_take(&l.arena, (uint64_t)s->modules * sizeof *l.module);
    if (!l.tensor || !l.module)
        AF_TRY(af_fail_nomem(err, "the leaves of a model", (uint64_t)s->tensors * 8));
    AF_TRY(declare_tensors(&l, o, err));
    AF_TRY(declare_adapter(&l, o, err));
    declare_rope(&l);
    AF_TRY(af_graph_status(g, err));
    *out = l;
    l = (af_model_leaves){0};
done:
    af_model_leaves_clear(&l);
    return st;
}

/* A graph that is only planned asks whether a tensor is bound, not to what. */
static void borrow(af_tensor *t, const af_tensor *from)
{
    const void *data = from ? af_tensor_host_view(from) : NULL;
    if (t && from)
        af_tensor_bind(t, data ? data : from);
}

/* The scales of 4-bit codes. */
static af_tensor *borrow_scales(af_graph *g, const char *name, const af_tensor *from)
{
    af_tensor *t =
        from ? af_graph_weight(g, name, af_tensor_dtype(from), 1, af_tensor_dims(from)) : NULL;
    borrow(t, from);
    return t;
}

static void borrow_quant(af_graph *g, af_tensor *t, const af_quant *from)
{
    af_quant q = *from;
    q.absmax = borrow_scales(g, "absmax", from->absmax);
    q.nested = borrow_scales(g, "nested", from->nested);
    af_weight_set_quant(t, &q);
}

af_status af_model_leaves_borrow(af_model_leaves *out, af_graph *g, const af_model_leaves *from,
                                 af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = from->spec;
    af_model_leaves l = {0};
    af_dtype *type = af_calloc((uint64_t)s->tensors, sizeof *type);
    if (!type)
        return af_fail_nomem(err, "the leaves of a model", (uint64_t)s->tensors * sizeof *type);
    for (int i = 0; i < s->tensors; i++)
        type[i] = af_tensor_dtype(from->tensor[i]);
    AF_TRY(af_model_leaves_init(
        &l, g, s,
        &(af_leaves_opts){.compute = from->compute, .adapter = from->adapter, .dtype = type}, err));
    for (int i = 0; i < s->tensors; i++) {
        borrow(l.tensor[i], from->tensor[i]);
        if (af_weight_quant(from->tensor[i]))
            borrow_quant(g, l.tensor[i], af_weight_quant(from->tensor[i]));
    }
    for (int i = 0; i < s->modules; i++) {
        borrow(l.module[i].a, from->module[i].a);
        borrow(l.module[i].b, from->module[i].b);
        borrow(l.module[i].magnitude, from->module[i].magnitude);
        borrow(l.module[i].bias, from->module[i].bias);
        borrow(l.module[i].triangle, from->module[i].triangle);
    }
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        borrow(l.tokens[k], from->tokens[k]);
    AF_TRY(af_graph_status(g, err));
    *out = l;
    l = (af_model_leaves){0};
done:
    free(type);
    af_model_leaves_clear(&l);
    return st;
}

void af_model_leaves_clear(af_model_leaves *l)
{
    af_arena_clear(&l->arena);
    *l = (af_model_leaves){0};
}

static af_status write_alibi(af_model_leaves *l, af_error *err)
{
    af_status st = AF_OK;
    const af_model_spec *s = l->spec;
    if (!l->alibi)
        return AF_OK;
    const uint64_t H = (uint64_t)s->heads, picks = (uint64_t)af_tensor_count(l->alibi_pick);
    float *f = af_calloc(H + picks, sizeof *f);
    if (!f)
        return af_fail_nomem(err, "slopes", (H + picks) * sizeof *f);
    af_alibi_factors(s, f);
    af_alibi_picks(s, f + H);
    AF_TRY(af_tensor_write(l->graph, l->alibi, f, H * sizeof *f, err));
    AF_TRY(af_tensor_write(l->graph, l->alibi_pick, f + H, picks * sizeof *f, err));
done:
    free(f);
    return st;
}

static af_status write_decay(af_model_leaves *l, af_error *err)
{
    const uint64_t H = (uint64_t)l->spec->heads;
    if (!l->decay)
        return AF_OK;
    float *f = af_calloc(H, sizeof *f);
    if (!f)
        return af_fail_nomem(err, "slopes", H * sizeof *f);
    for (uint64_t h = 0; h < H; h++)
        f[h] = (float)af_decay_slope(l->spec, (int)h);
    const af_status st = af_tensor_write(l->graph, l->decay, f, H * sizeof *f, err);
    free(f);
    return st;
}

static af_status write_sinusoids(af_model_leaves *l, af_error *err)
{
    const af_model_spec *s = l->spec;
    if (!l->sinusoids)
        return AF_OK;
    const uint64_t n = (uint64_t)s->max_positions * (uint64_t)s->width;
    float *f = af_calloc(n, sizeof *f);
    if (!f)
        return af_fail_nomem(err, "vectors of positions", n * sizeof *f);
    for (int64_t p = 0; p < s->max_positions; p++)
        if (p + s->arch->positions_from != s->padding_row) /* that row is 0 */
            af_sinusoids(f + p * s->width, s->width, p + s->arch->positions_from);
    const af_status st = af_tensor_write(l->graph, l->sinusoids, f, n * sizeof *f, err);
    free(f);
    return st;
}

af_status af_model_write_rope(af_model_leaves *l, int64_t length, af_error *err)
{
    const af_model_spec *s = l->spec;
    af_status st = af_spec_check_length(s, "sequences", length, err);
    if (st != AF_OK || (l->rope_length != 0 && (!s->rope_by_length || l->rope_length == length)))
        return st;
    const uint64_t most = (uint64_t)AF_MAX(s->rope[0].rotary_dim, s->rope[1].rotary_dim) / 2;
    float *f = af_calloc(most, sizeof *f);
    if (!f)
        return af_fail_nomem(err, "rotary frequencies", most * sizeof *f);
    for (int r = 0; r < s->ropes; r++) {
        const af_rope_set *set = &s->rope[r];
        af_rope_inv_freq(f, &set->config, set->dim, s->max_positions, length);
        AF_TRY(af_tensor_write(l->graph, l->inv_freq[r], f,
                               (uint64_t)set->rotary_dim / 2 * sizeof *f, err));
    }
    AF_TRY(write_alibi(l, err));
    AF_TRY(write_decay(l, err));
    AF_TRY(write_sinusoids(l, err));
    l->rope_length = length;
done:
    free(f);
    return st;
}
