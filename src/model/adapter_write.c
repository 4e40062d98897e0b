/* adapter_write.c - an adapter as PEFT's folder: the names of its tensors, and writing them. */
#include "base/file.h"
#include "model/adapter_config.h"
#include "model/loader.h"

/* The stored name of A or B of a module, or of the module that has the parameter. */
void af_adapter_low_name(char *name, const af_module_spec *m, char which)
{
    const size_t n = m->parameter ? (size_t)(strrchr(m->path, '.') - m->path) : strlen(m->path);
    snprintf(name, AF_ADAPTER_NAME_BYTES,
             m->group == AF_GROUP_EMBED ? AF_ADAPTER_PREFIX "%.*s.lora_embedding_%c"
                                        : AF_ADAPTER_PREFIX "%.*s.lora_%c.weight",
             (int)n, m->path, which);
}

/* The stored name of a tensor of modules_to_save. */
void af_adapter_saved_name(const af_model_spec *s, const af_tensor_spec *t,
                           char name[AF_ADAPTER_NAME_BYTES])
{
    const size_t n = strlen(AF_ADAPTER_PREFIX);
    memcpy(name, AF_ADAPTER_PREFIX, n);
    af_spec_whole_name(s, t->name, name + n, AF_ADAPTER_NAME_BYTES - n);
}

enum { BASE_ROWS = 64 };

/* What goes into the file, in its order. */
typedef struct item {
    char name[AF_ADAPTER_NAME_BYTES];
    int64_t dim[2];
    int ndim;
    const float *data; /* NULL: rows of a tensor of the base, which was grown */
    int base;
    int experts; /* 1 + the module whose A or B is written in PEFT's order; 0 = none */
    char which;
} item;

/* Embedding and head of a vocabulary that was changed are part of the adapter, whoever trains
 * them: without them it would not fit the base. */
static int collect_grown(const af_adapter *a, item *list)
{
    const af_model_spec *s = a->spec;
    int n = 0;
    for (int i = 0; i < s->tensors && a->grown; i++) {
        const af_tensor_spec *t = &s->tensor[i];
        if ((t->slot != AF_SLOT_EMBED && t->slot != AF_SLOT_HEAD) || a->saved[i])
            continue;
        list[n] = (item){.dim = {t->dim[0], t->dim[1]}, .ndim = 2, .base = i};
        af_adapter_base_name(a, i, list[n++].name);
    }
    /* what is merged with low-rank matrices of one of two tied tables is not tied */
    const bool low = a->module[s->head_module].rank > 0;
    if (a->grown && s->tied && (low || a->module[s->embed_module].rank)) {
        list[n] = (item){.dim = {s->tensor[s->embed].dim[0], s->embed_width}, .ndim = 2};
        list[n].base = s->embed;
        snprintf(list[n++].name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%s%s.weight",
                 s->module[s->head_module].path, low ? ".base_layer" : "");
    }
    return n;
}

static int collect(const af_adapter *a, item *list)
{
    const af_model_spec *s = a->spec;
    int n = 0;
    for (int i = 0; i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        const af_adapter_module *am = &a->module[i];
        if (!am->rank)
            continue;
        if (af_module_is_experts(m)) {
            const int64_t rank = am->rank * m->copies, in = af_adapter_experts_width(a, i, 'A'),
                          out = af_adapter_experts_width(a, i, 'B');
            list[n] =
                (item){.dim = {rank, in}, .ndim = 2, .data = am->a, .experts = i + 1, .which = 'A'};
            af_adapter_experts_name(list[n++].name, a, i, 'A');
            list[n] = (item){
                .dim = {out, rank}, .ndim = 2, .data = am->b, .experts = i + 1, .which = 'B'};
            af_adapter_experts_name(list[n++].name, a, i, 'B');
            continue;
        }
        list[n] = (item){.dim = {am->rank, m->in}, .ndim = 2, .data = am->a};
        af_adapter_low_name(list[n++].name, m, 'A');
        list[n] = (item){.dim = {m->out, am->rank}, .ndim = 2, .data = am->b};
        af_adapter_low_name(list[n++].name, m, 'B');
        if (am->bias) {
            list[n] = (item){.dim = {m->out}, .ndim = 1, .data = am->bias};
            snprintf(list[n++].name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%s.lora_B.bias",
                     m->path);
        }
        if (am->magnitude) {
            list[n] = (item){.dim = {m->out}, .ndim = 1, .data = am->magnitude};
            snprintf(list[n++].name, AF_ADAPTER_NAME_BYTES,
                     AF_ADAPTER_PREFIX "%s.lora_magnitude_vector", m->path);
        }
    }
    for (int i = 0; i < s->tensors; i++)
        if (a->saved[i]) {
            const af_tensor_spec *t = &s->tensor[i];
            list[n] = (item){.dim = {t->dim[0], t->dim[1]}, .ndim = t->ndim, .data = a->saved[i]};
            af_adapter_saved_name(s, t, list[n++].name);
        }
    for (int k = 0; k < AF_TOKEN_TABLES; k++)
        if (a->tokens[k].count) {
            list[n] = (item){
                .dim = {a->tokens[k].count, s->embed_width}, .ndim = 2, .data = a->token_values[k]};
            af_adapter_tokens_name(a, k, list[n++].name);
        }
    return n + collect_grown(a, list + n);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const item *)a)->name, ((const item *)b)->name);
}

/* As the base has them: a plain type of it, else f32. */
static af_dtype type_of(const af_adapter *a, const item *e)
{
    const af_dtype type = e->data ? AF_DTYPE_F32 : af_loader_dtypes(a->grown)[e->base];
    return af_dtype_is_float(type) ? type : AF_DTYPE_F32;
}

static af_status write_base(const af_adapter *a, const item *e, af_safetensors_writer *w,
                            af_error *err)
{
    af_status st = AF_OK;
    const int64_t cols = e->dim[1];
    const af_dtype type = type_of(a, e);
    float *rows = af_calloc((uint64_t)(BASE_ROWS * cols), 2 * sizeof *rows);
    if (!rows)
        return af_fail_nomem(err, "rows of the embedding", (uint64_t)cols * sizeof *rows);
    for (int64_t r = 0; r < e->dim[0]; r += BASE_ROWS) {
        const int64_t n = AF_MIN(e->dim[0] - r, BASE_ROWS);
        AF_TRY(af_loader_rows(a->grown, e->base, r, n, rows, err));
        af_convert(rows + n * cols, type, rows, AF_DTYPE_F32, (uint64_t)(n * cols));
        AF_TRY(af_safetensors_writer_data(
            w, rows + n * cols, (uint64_t)(n * cols) * (uint64_t)af_dtype_get(type)->bytes, err));
    }
done:
    free(rows);
    return st;
}

static af_status write_item(const af_adapter *a, const item *e, af_safetensors_writer *w,
                            af_error *err)
{
    const int64_t count = e->dim[0] * (e->ndim > 1 ? e->dim[1] : 1);
    const uint64_t bytes = (uint64_t)count * sizeof(float);
    if (!e->data)
        return write_base(a, e, w, err);
    if (!e->experts)
        return af_safetensors_writer_data(w, e->data, bytes, err);
    float *packed = af_calloc((uint64_t)count, sizeof *packed);
    if (!packed)
        return af_fail_nomem(err, "an adapter of experts", bytes);
    af_adapter_experts_pack(packed, a, e->experts - 1, e->which);
    const af_status st = af_safetensors_writer_data(w, packed, bytes, err);
    free(packed);
    return st;
}

static af_status write_values(const af_adapter *a, const char *path, af_error *err)
{
    af_status st = AF_OK;
    af_safetensors_writer *w = NULL;
    const uint64_t most =
        (uint64_t)a->spec->modules * 4 + (uint64_t)a->spec->tensors + AF_TOKEN_TABLES * 2;
    item *list = af_calloc(most, sizeof *list);
    if (!list)
        return af_fail_nomem(err, "the list of tensors", most * sizeof *list);
    const int n = collect(a, list);
    qsort(list, (size_t)n, sizeof *list, by_name);
    AF_TRY(af_safetensors_writer_new(&w, path, 0, err));
    for (int i = 0; i < n; i++)
        AF_TRY(af_safetensors_writer_add(w, list[i].name, type_of(a, &list[i]), list[i].dim,
                                         list[i].ndim, err));
    AF_TRY(af_safetensors_writer_begin(w, err));
    for (int i = 0; i < n; i++)
        AF_TRY(write_item(a, &list[i], w, err));
    st = af_safetensors_writer_commit(w, err);
    w = NULL;
done:
    af_safetensors_writer_abandon(w);
    free(list);
    return st;
}

af_status af_adapter_write(const af_adapter *a, const char *dir, af_error *err)
{
    af_status st = AF_OK;
    char *values = af_path_join(dir, "adapter_model.safetensors");
    char *config = af_path_join(dir, "adapter_config.json");
    af_adapter_config c = a->config;
    c.fan_in_fan_out = a->spec->arch->linears_turned;
    for (int k = 0; k < AF_TOKEN_TABLES; k++) {
        const af_model_spec *s = a->spec;
        const char *path = s->module[k == AF_TOKENS_EMBED ? s->embed_module : s->head_module].path;
        c.table_names[k] = strrchr(path, '.') ? strrchr(path, '.') + 1 : path;
    }
    char *text = af_adapter_config_text(&c);
    if (!values || !config || !text)
        AF_TRY(af_fail_nomem(err, "an adapter's settings", 0));
    AF_TRY(af_dir_make(dir, err));
    AF_TRY(write_values(a, values, err));
    AF_TRY(af_file_write(config, text, strlen(text), err));
done:
    free(values);
    free(config);
    free(text);
    return st;
}
