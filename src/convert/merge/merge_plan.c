/* merge_plan.c - which tensors a merge makes, and from which; see merge_run.h. */
#include "convert/merge/merge_run.h"

#include "base/log.h"
#include "convert/merge/merge_names.h"

enum { NAME_BYTES = 512 };

/* "model.layers.3.x" with another number. */
static void renumber(const char *name, int64_t layer, char *out)
{
    size_t at, end;
    if (af_merge_layer_of(name, &at, &end) < 0 || layer < 0)
        snprintf(out, NAME_BYTES, "%s", name);
    else
        snprintf(out, NAME_BYTES, "%.*s%lld%s", (int)at, name, (long long)layer, name + end);
}

static af_status wrong_tensor(const af_merge_run *r, const af_merge_source *s, const char *name,
                              const char *why, af_error *err)
{
    return af_fail(err, AF_EFORMAT, "%s:%d: model '%s' %s tensor '%s'", r->config->file, s->line,
                   r->config->model[s->model], why, name);
}

static bool same_shape(const af_model_tensor *a, const af_model_tensor *b, int from)
{
    if (a->ndim != b->ndim)
        return false;
    for (int i = from; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i])
            return false;
    return true;
}

/* Without a dtype in the config: that of the inputs, f32 where they differ, so that the result of
 * a model in f32 and one in bf16 is not rounded by the order in which they are named. */
static af_dtype common_type(const af_merge_item *m)
{
    for (int i = 1; i < m->n; i++)
        if (m->tensor[i]->dtype != m->tensor[0]->dtype)
            return AF_DTYPE_F32;
    return m->tensor[0]->dtype;
}

/* All inputs have one shape; embeddings may differ in rows: the common ones stay. */
static af_status set_shape(const af_merge_run *r, af_merge_item *m, af_error *err)
{
    const af_model_tensor *a = m->tensor[0];
    m->ndim = a->ndim;
    memcpy(m->dim, a->dim, sizeof m->dim);
    m->embed = a->ndim == 2 && (af_merge_is_embed(m->name) || af_merge_is_head(m->name));
    for (int i = 1; i < m->n; i++) {
        const af_model_tensor *b = m->tensor[i];
        if (!same_shape(a, b, m->embed ? 1 : 0))
            return af_fail(
                err, AF_EFORMAT, "tensor '%s' is %lldx%lld in '%s' but %lldx%lld in '%s'", m->name,
                (long long)a->dim[0], (long long)(a->ndim > 1 ? a->dim[1] : 1),
                r->config->model[m->source[0]->model], (long long)b->dim[0],
                (long long)(b->ndim > 1 ? b->dim[1] : 1), r->config->model[m->source[i]->model]);
        if (b->dim[0] != m->dim[0] && !r->tokens.active)
            af_log_write(AF_LOG_WARN, "'%s' has %lld and %lld rows: the first %lld are merged",
                         m->name, (long long)m->dim[0], (long long)b->dim[0],
                         (long long)AF_MIN(m->dim[0], b->dim[0]));
        m->dim[0] = AF_MIN(m->dim[0], b->dim[0]);
    }
    if (m->embed && r->tokens.active)
        m->dim[0] = r->tokens.rows;
    const af_merge_config *c = r->config;
    m->dtype = c->has_out_dtype ? c->out_dtype : c->has_dtype ? c->dtype : common_type(m);
    if (!af_dtype_is_float(a->dtype))
        return af_fail(err, AF_EUNSUPPORTED, "tensor '%s' is %s and cannot be merged", m->name,
                       af_dtype_name(a->dtype));
    return AF_OK;
}

/* The embedding of a model; NULL = none. Tables of each layer's own have rows of tokens, too. */
static const af_model_tensor *embedding_of(const af_model_reader *in)
{
    for (int i = 0; i < in->count; i++)
        if (af_merge_is_embed(in->tensor[i].name) && !strstr(in->tensor[i].name, "per_layer"))
            return &in->tensor[i];
    return NULL;
}

/* One tensor of every source: `layer` is counted from the start of the slice, -1 = no layer. */
static af_status add_item(af_merge_run *r, int slice, const char *like, int64_t layer,
                          int64_t out_layer, double t, af_error *err)
{
    const af_merge_slice *s = &r->config->slice[slice];
    af_merge_item *m = &r->item[r->items];
    char name[NAME_BYTES];
    *m = (af_merge_item){.slice = slice, .t = t};
    renumber(like, out_layer, name);
    m->name = af_arena_strdup(&r->arena, name);
    if (!m->name)
        return af_fail_nomem(err, "a name", NAME_BYTES);
    for (int i = 0; i < s->sources; i++) {
        const af_merge_source *src = &s->source[i];
        const af_model_reader *in = r->in[src->model];
        renumber(like, layer < 0 ? -1 : src->from + layer, name);
        const af_model_tensor *x = af_model_reader_find(in, name);
        if (!x && af_merge_is_head(name)) /* tied: the embedding is the head */
            x = embedding_of(in);
        if (!x)
            return wrong_tensor(r, src, name, "has no", err);
        m->source[m->n] = src;
        m->tensor[m->n++] = x;
    }
    for (int i = 0; i < m->n && af_merge_is_head(m->name); i++)
        r->untied |= !r->in[m->source[i]->model]->config.tie_word_embeddings;
    r->items++;
    return set_shape(r, m, err);
}

static af_status check_layers(const af_merge_run *r, af_error *err)
{
    for (int i = 0; i < r->config->slices; i++)
        for (int k = 0; k < r->config->slice[i].sources; k++) {
            af_merge_source *s = &r->config->slice[i].source[k];
            const int64_t n = r->in[s->model]->config.num_hidden_layers;
            if (s->to < 0)
                s->to = n;
            if (s->to > n)
                return af_fail(err, AF_EUSAGE,
                               "%s:%d: layer_range ends at %lld, but '%s' has %lld layers",
                               r->config->file, s->line, (long long)s->to,
                               r->config->model[s->model], (long long)n);
            if (s->to - s->from !=
                r->config->slice[i].source[0].to - r->config->slice[i].source[0].from)
                return af_fail(err, AF_EUSAGE, "%s:%d: '%s' has %lld layers, '%s' has %lld",
                               r->config->file, s->line, r->config->model[s->model],
                               (long long)(s->to - s->from),
                               r->config->model[r->config->slice[i].source[0].model],
                               (long long)(r->config->slice[i].source[0].to -
                                           r->config->slice[i].source[0].from));
        }
    return AF_OK;
}

/* The head of a model that has one of its own, and none of the models before it in the slice; NULL
 * when that is the first, or there is none. */
static const char *later_head(const af_merge_run *r, int slice)
{
    const af_merge_slice *s = &r->config->slice[slice];
    for (int k = 0; k < s->sources; k++) {
        const af_model_reader *in = r->in[s->source[k].model];
        for (int i = 0; i < in->count; i++)
            if (af_merge_is_head(in->tensor[i].name) && (k == 0 || !in->config.tie_word_embeddings))
                return k ? in->tensor[i].name : NULL;
    }
    return NULL;
}

/* The tensors outside the layers: the embedding from the first slice, the rest from the last. */
static af_status add_outer(af_merge_run *r, bool before, af_error *err)
{
    const int slice = before ? 0 : r->config->slices - 1;
    const af_model_reader *in = r->in[r->config->slice[slice].source[0].model];
    size_t at, end;
    for (int i = 0; i < in->count; i++) {
        const char *name = in->tensor[i].name;
        if (af_merge_layer_of(name, &at, &end) >= 0 || af_merge_is_embed(name) != before)
            continue;
        const af_status st = add_item(r, slice, name, -1, -1, 0, err);
        if (st != AF_OK)
            return st;
    }
    const char *head = before ? NULL : later_head(r, slice);
    return head ? add_item(r, slice, head, -1, -1, 0, err) : AF_OK;
}

static af_status add_slice(af_merge_run *r, int slice, af_error *err)
{
    const af_merge_source *s = &r->config->slice[slice].source[0];
    const af_model_reader *in = r->in[s->model];
    const int64_t n = s->to - s->from;
    size_t at, end;
    for (int64_t layer = 0; layer < n; layer++, r->layers++)
        for (int i = 0; i < in->count; i++) {
            if (af_merge_layer_of(in->tensor[i].name, &at, &end) != s->from + layer)
                continue;
            const double t = n > 1 ? (double)layer / (double)(n - 1) : 1;
            const af_status st = add_item(r, slice, in->tensor[i].name, layer, r->layers, t, err);
            if (st != AF_OK)
                return st;
        }
    return AF_OK;
}

af_status af_merge_plan_items(af_merge_run *r, af_error *err)
{
    af_status st = AF_OK;
    uint64_t most = 0;
    AF_TRY(check_layers(r, err));
    for (int i = 0; i < r->config->slices; i++) {
        const af_merge_source *s = &r->config->slice[i].source[0];
        most += (uint64_t)r->in[s->model]->count * (i == 0 || i == r->config->slices - 1 ? 2 : 1);
    }
    r->item = af_arena_take(&r->arena, (most + 8) * sizeof *r->item);
    if (!r->item)
        AF_TRY(af_fail_nomem(err, "the tensor list", most * sizeof *r->item));
    AF_TRY(add_outer(r, true, err));
    for (int i = 0; i < r->config->slices; i++)
        AF_TRY(add_slice(r, i, err));
    AF_TRY(add_outer(r, false, err));
done:
    return st;
}
