/* adapter_write.c - an adapter as PEFT's folder: the names of its tensors, and writing them and
 * adapter_config.json. */
#include "base/file.h"
#include "format/hub/hub_name.h"
#include "format/text/json_text.h"
#include "model/adapter_config.h"
#include "model/loader.h"

#include <jansson.h>
#include <math.h>

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
        if (am->triangle) {
            list[n] = (item){
                .dim = {am->triangles, af_adapter_triangle(am)}, .ndim = 2, .data = am->triangle};
            af_adapter_oft_name(list[n++].name, m);
            continue;
        }
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
            af_adapter_whole_name(a, i, list[n++].name);
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

/* ---- adapter_config.json ---- */

static json_t *number(double v)
{
    return v == floor(v) && fabs(v) < 1e15 ? json_integer((json_int_t)v) : json_real(v);
}

static json_t *names_json(const char *const *list, int n, const char *single, bool null_when_empty)
{
    if (single)
        return json_string(single);
    if (n == 0 && null_when_empty)
        return json_null();
    json_t *a = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(a, json_string(list[i]));
    return a;
}

static json_t *patterns_json(const af_adapter_pattern *p, int n)
{
    json_t *o = json_object();
    for (int i = 0; i < n; i++)
        json_object_set_new(o, p[i].key, number(p[i].value));
    return o;
}

static json_t *layers_json(const af_adapter_config *c)
{
    if (c->layer_count == 0)
        return json_null();
    json_t *a = json_array();
    for (int i = 0; i < c->layer_count; i++)
        json_array_append_new(a, json_integer(c->layers[i]));
    return a;
}

/* Keys of LoRA's features that we do not have, at the values that mean "off". */
static void set_constants(json_t *o)
{
    static const char *const nulls[] = {
        "alora_invocation_tokens", "arrow_config",    "corda_config", "eva_config",
        "layer_replication",       "megatron_config", "use_bdlora"};
    static const char *const falses[] = {"ensure_weight_tying", "use_qalora"};
    for (size_t i = 0; i < AF_LEN(nulls); i++)
        json_object_set_new(o, nulls[i], json_null());
    for (size_t i = 0; i < AF_LEN(falses); i++)
        json_object_set_new(o, falses[i], json_false());
    json_object_set_new(o, "loftq_config", json_object());
    json_object_set_new(o, "megatron_core", json_string("megatron.core"));
    json_object_set_new(o, "qalora_group_size", json_integer(16));
}

void af_adapter_put_base(json_t *o, const char *base)
{
    af_hub_repo r;
    const bool split = base && strchr(base, '@') && af_hub_is_name(base) && !af_dir_exists(base) &&
                       af_hub_repo_parse(&r, AF_HUB_MODEL, base, NULL, NULL) == AF_OK;
    json_object_set_new(o, "base_model_name_or_path",
                        base ? json_string(split ? r.name : base) : json_null());
    json_object_set_new(o, "revision", split ? json_string(r.revision) : json_null());
}

/* What every type has. */
static void put_common(json_t *o, const af_adapter_config *c)
{
    json_error_t why;
    const bool oft = c->type == AF_PEFT_OFT, own = c->bias && strcmp(c->bias, "all") != 0;
    json_object_set_new(o, "peft_type", json_string(oft ? "OFT" : "LORA"));
    json_object_set_new(o, "peft_version", json_string("0.20.0"));
    json_object_set_new(o, "auto_mapping", json_null());
    json_object_set_new(o, "layers_pattern", json_null());
    json_object_set_new(o, "inference_mode", json_true());
    af_adapter_put_base(o, c->base_model);
    json_object_set_new(o, "bias",
                        json_string(oft && own ? "oft_only"
                                    : c->bias  ? c->bias
                                               : "none"));
    json_object_set_new(o, "exclude_modules",
                        names_json(c->exclude, c->exclude_count, c->exclude_regex, true));
    json_object_set_new(o, "fan_in_fan_out", json_boolean(c->fan_in_fan_out));
    json_object_set_new(o, "layers_to_transform", layers_json(c));
    json_object_set_new(o, "task_type", json_string(c->classifies ? "SEQ_CLS" : "CAUSAL_LM"));
    if (c->labels)
        json_object_set_new(o, AF_LABELS_KEY, af_json_load(c->labels, strlen(c->labels), 0, &why));
    json_object_set_new(o, "modules_to_save",
                        names_json(c->modules_to_save, c->save_count, NULL, true));
    json_object_set_new(o, "target_modules",
                        names_json(c->target, c->target_count, c->target_regex, false));
}

static void put_lora(json_t *o, const af_adapter_config *c)
{
    const bool is_true = !c->init_weights || strcmp(c->init_weights, "true") == 0 ||
                         strcmp(c->init_weights, "xavier") == 0 || /* PEFT has no such name */
                         c->lora_bias; /* with which PEFT reads no other */
    set_constants(o);
    json_object_set_new(o, "alpha_pattern", patterns_json(c->alpha_pattern, c->alpha_patterns));
    json_object_set_new(o, "init_lora_weights",
                        is_true ? json_true() : json_string(c->init_weights));
    json_object_set_new(o, "lora_alpha", number(c->alpha));
    json_object_set_new(o, "lora_bias", json_boolean(c->lora_bias));
    json_object_set_new(o, "lora_dropout", json_real(c->dropout));
    json_object_set_new(o, "r", json_integer(c->r));
    json_object_set_new(o, "rank_pattern", patterns_json(c->rank_pattern, c->rank_patterns));
    json_object_set_new(o, "target_parameters", names_json(c->param, c->param_count, NULL, true));
    json_object_set_new(o, "trainable_token_indices",
                        af_adapter_tokens_json(c->tokens, c->table_names));
    json_object_set_new(o, "use_dora", json_boolean(c->dora));
    json_object_set_new(o, "use_rslora", json_boolean(c->rslora));
}

char *af_adapter_config_text(const af_adapter_config *c)
{
    json_t *o = json_object();
    put_common(o, c);
    if (c->type == AF_PEFT_OFT)
        af_oft_put(o, &c->oft);
    else
        put_lora(o, c);
    char *text = af_json_dump(o, JSON_SORT_KEYS | JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    json_decref(o);
    return text;
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
