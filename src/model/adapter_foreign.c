/* adapter_foreign.c - adapters of other tools than PEFT, whose tensors alone say which modules they
 * are of.
 *
 * mlx-lm, a folder: adapters.safetensors has A and B transposed (PATH.lora_a [in][rank],
 * PATH.lora_b [rank][out]) and DoRA's magnitudes (PATH.m), one scale for all is in
 * adapter_config.json. llama.cpp, a GGUF file: NAME.lora_a [rank][in], NAME.lora_b [out][rank] with
 * the names and the order of rows of a GGUF model, and one alpha for all. */
#include "base/word.h"
#include "model/adapter_config.h"
#include "model/arch/gguf_fold.h"
#include "model/arch/gguf_order.h"
#include "model/arch/gguf_parts.h"
#include "tensor/codec.h"

#include <math.h>

/* ---- mlx-lm ---- */

/* Whether one of the two tables has values in the file. */
static bool has_table(const af_adapter *a, const af_weights *w, int module)
{
    char name[AF_ADAPTER_NAME_BYTES];
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_a", a->spec->module[module].path);
    return af_adapter_find(a, w, name) != NULL;
}

/* mlx-lm computes the head of a tied model with the adapter of the embedding, too. */
static bool is_tied_head(const af_adapter *a, const af_weights *w, int module)
{
    const af_model_spec *s = a->spec;
    return s->tied && module == s->head_module && !has_table(a, w, module) &&
           has_table(a, w, s->embed_module);
}

af_status af_adapter_mlx_targets(af_adapter *a, const af_weights *w, af_error *err)
{
    static const char tail[] = ".lora_a";
    const uint64_t n = (uint64_t)af_weights_count(w);
    const char **list = af_arena_take(&a->arena, (n + 2) * sizeof *list);
    int count = 0;
    if (list && is_tied_head(a, w, a->spec->head_module))
        list[count++] = a->spec->module[a->spec->head_module].path;
    for (uint64_t i = 0; list && i < n; i++) {
        const char *name = af_weights_at(w, (int)i)->name;
        if (!af_ends_with(name, tail))
            continue;
        list[count] = af_arena_strndup(&a->arena, name, strlen(name) - (sizeof tail - 1));
        if (!list[count++])
            list = NULL;
    }
    if (!list)
        return af_fail_nomem(err, "an adapter's settings", n * sizeof *list);
    a->config.target = list;
    a->config.target_count = count;
    return AF_OK;
}

/* *to [cols][rows] from PATH.TAIL [rows][cols]. */
static af_status read_turned(af_adapter *a, float **to, const af_weights *w, const char *path,
                             const char *tail, int64_t rows, int64_t cols, int *used, af_error *err)
{
    char name[AF_ADAPTER_NAME_BYTES];
    float *stored = NULL;
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.%s", path, tail);
    af_status st = af_adapter_read_tensor(a, &stored, w, name, rows, cols, used, err);
    if (st == AF_OK)
        st = af_adapter_alloc(a, to, rows * cols, err);
    for (int64_t r = 0; st == AF_OK && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            (*to)[c * rows + r] = stored[r * cols + c];
    return st;
}

af_status af_adapter_mlx_read(af_adapter *a, int module, const af_weights *w, int *used,
                              af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    char name[AF_ADAPTER_NAME_BYTES];
    if (is_tied_head(a, w, module)) {
        const char *path = a->spec->module[a->spec->embed_module].path;
        int counted = 0; /* with the embedding */
        snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_b", path);
        AF_TRY(af_adapter_read_tensor(a, &am->a, w, name, am->rank, m->in, &counted, err));
        snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.lora_a", path);
        AF_TRY(af_adapter_read_tensor(a, &am->b, w, name, m->out, am->rank, &counted, err));
        goto done;
    }
    AF_TRY(read_turned(a, &am->a, w, m->path, "lora_a", m->in, am->rank, used, err));
    AF_TRY(read_turned(a, &am->b, w, m->path, "lora_b", am->rank, m->out, used, err));
    snprintf(name, sizeof name, AF_ADAPTER_PREFIX "%s.m", m->path);
    if (a->config.dora)
        AF_TRY(af_adapter_read_tensor(a, &am->magnitude, w, name, m->out, 1, used, err));
done:
    return st;
}

/* ---- llama.cpp ---- */

af_status af_adapter_gguf_config(af_adapter_config *out, const char *path, af_error *err)
{
    af_gguf *g;
    af_status st = af_gguf_open(&g, path, err);
    if (st != AF_OK)
        return st;
    const af_gguf_str type = af_gguf_string(g, "general.type"),
                      kind = af_gguf_string(g, "adapter.type");
    *out = (af_adapter_config){.r = 1, .gguf = true, .init_weights = "true"};
    out->alpha = af_gguf_float(g, "adapter.lora.alpha", 0); /* 0: a scale of 1 */
    if (type.len != 7 || memcmp(type.at, "adapter", 7) != 0)
        st = af_fail(err, AF_EUSAGE, "'%s' is not an adapter: its general.type is '%.*s'", path,
                     (int)AF_MIN(type.len, 32), type.at ? type.at : "");
    else if (kind.len != 4 || memcmp(kind.at, "lora", 4) != 0 || !isfinite(out->alpha))
        st = af_fail(err, AF_EUNSUPPORTED, "'%s' is not an adapter of type lora with an alpha",
                     path);
    af_gguf_close(g);
    return st;
}

static const af_stored *find_gguf(const af_weights *w, const char *base, char which)
{
    char name[AF_ADAPTER_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s.lora_%c", base, which);
    return af_weights_find(w, name);
}

/* What this reader has no order for. */
static bool is_divided(const af_adapter *a, const af_weights *w, const af_module_spec *m)
{
    const af_tensor_spec *t = &a->spec->tensor[m->weight];
    const af_gguf_parts p = af_gguf_parts_of(a->spec, t);
    char base[AF_ADAPTER_NAME_BYTES];
    for (int k = 0; k < p.count; k++) {
        snprintf(base, sizeof base, "blk.%d.%s", m->layer, p.name[k]);
        if (find_gguf(w, base, 'a'))
            return true;
    }
    return find_gguf(w, t->gguf, 'a') &&
           (af_module_is_experts(m) || af_gguf_fold_of(a->spec, t).count);
}

static float *decode(const af_stored *t)
{
    float *values = af_calloc((uint64_t)AF_MAX(af_weight_count(t), 1), sizeof *values);
    if (values)
        af_codec_decode_row(t->dtype, t->data, values, af_weight_count(t));
    return values;
}

/* A and B in the order of the spec. */
static void order_pair(af_adapter *a, int module, const float *low, const float *high)
{
    const af_module_spec *m = &a->spec->module[module];
    const af_adapter_module *am = &a->module[module];
    const af_gguf_order order = af_gguf_order_of(a->spec, &a->spec->tensor[m->weight]);
    const int64_t R = am->rank;
    for (int64_t r = 0; r < R; r++) {
        for (int64_t c = 0; c < m->in; c++) /* of the embedding: one row per token */
            am->a[r * m->in + c] = low[m->group == AF_GROUP_EMBED ? c * R + r : r * m->in + c];
        if (order.columns)
            af_gguf_order_from_file(&order, am->a + r * m->in);
    }
    for (int64_t r = 0; r < m->out; r++) {
        const int64_t here = order.columns ? r : af_gguf_order_here(&order, r);
        memcpy(am->b + here * R, high + r * R, (size_t)R * sizeof *high);
    }
}

static af_status read_pair(af_adapter *a, int module, const af_stored *low, const af_stored *high,
                           af_error *err)
{
    af_status st = AF_OK;
    const af_module_spec *m = &a->spec->module[module];
    af_adapter_module *am = &a->module[module];
    const bool embed = m->group == AF_GROUP_EMBED;
    const int64_t R = low->ndim == 2 ? low->dim[embed] : 0;
    float *x = NULL, *y = NULL;
    if (R < 1 || R > AF_ADAPTER_RANK_MAX || low->dim[!embed] != m->in || high->ndim != 2 ||
        high->dim[0] != m->out || high->dim[1] != R || !af_codec_can_decode(low->dtype) ||
        !af_codec_can_decode(high->dtype))
        return af_fail(err, AF_EFORMAT,
                       "'%s' and '%s' are not matrices of one rank for %" PRId64 " x %" PRId64,
                       low->name, high->name, m->out, m->in);
    AF_TRY(af_adapter_alloc(a, &am->a, R * m->in, err));
    AF_TRY(af_adapter_alloc(a, &am->b, R * m->out, err));
    am->rank = (int)R;
    am->alpha = a->config.alpha != 0 ? a->config.alpha : (double)R;
    am->scale = (float)(am->alpha / (double)R);
    x = decode(low);
    y = decode(high);
    if (!x || !y)
        AF_TRY(af_fail_nomem(err, low->name, (uint64_t)(R * (m->in + m->out)) * sizeof *x));
    order_pair(a, module, x, y);
done:
    free(x);
    free(y);
    return st;
}

af_status af_adapter_describe(af_adapter *a, af_error *err)
{
    const af_model_spec *s = a->spec;
    af_adapter_config *c = &a->config;
    const uint64_t most = (uint64_t)s->modules;
    const char **target = af_arena_take(&a->arena, most * sizeof *target);
    af_adapter_pattern *rank = af_arena_take(&a->arena, most * sizeof *rank);
    af_adapter_pattern *alpha = af_arena_take(&a->arena, most * sizeof *alpha);
    if (!target || !rank || !alpha)
        return af_fail_nomem(err, "an adapter's settings", most * sizeof *rank);
    c->target_regex = c->exclude_regex = NULL;
    c->target_count = c->exclude_count = c->layer_count = c->layer_lists = 0;
    c->rank_patterns = c->alpha_patterns = 0;
    for (int i = 0; i < s->modules; i++) {
        const af_adapter_module *m = &a->module[i];
        if (!m->rank)
            continue;
        if (c->target_count == 0) {
            c->r = m->rank;
            c->alpha = m->alpha;
        }
        target[c->target_count++] = s->module[i].path;
        if (m->rank != c->r)
            rank[c->rank_patterns++] = (af_adapter_pattern){s->module[i].path, m->rank};
        if (m->alpha != c->alpha)
            alpha[c->alpha_patterns++] = (af_adapter_pattern){s->module[i].path, m->alpha};
    }
    c->target = target;
    c->rank_pattern = rank;
    c->alpha_pattern = alpha;
    c->gguf = false;
    c->type = AF_PEFT_LORA;
    return AF_OK;
}

af_status af_adapter_gguf_read(af_adapter *a, const af_weights *w, const char *path, af_error *err)
{
    const af_model_spec *s = a->spec;
    int count = 0;
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        const char *base = s->tensor[m->weight].gguf;
        if (base && is_divided(a, w, m))
            return af_fail(err, AF_EUNSUPPORTED,
                           "'%s' adapts '%s', which llama.cpp has in another form: give the folder "
                           "that it was made from",
                           path, m->path);
        const af_stored *low = base ? find_gguf(w, base, 'a') : NULL,
                        *high = base ? find_gguf(w, base, 'b') : NULL;
        if (!low || !high)
            continue;
        const af_status st = read_pair(a, i, low, high, err);
        if (st != AF_OK)
            return st;
        count++;
    }
    if (count == 0 || 2 * count != af_weights_count(w))
        return af_fail(err, AF_EFORMAT, "'%s' has %d tensors, this model accounts for %d of them",
                       path, af_weights_count(w), 2 * count);
    return af_adapter_describe(a, err);
}
