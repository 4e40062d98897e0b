/* run_qat.c - the key 'qat' of Axolotl: quantisation-aware training with torchao's formats. */
#include "train/run/run_qat.h"

#include "base/word.h"
#include "graph/graph_access.h"
#include "tensor/dtype.h"
#include "train/run/freeze.h"

enum { GROUP_MAX = 1 << 20 };

static af_status bad(const af_run_config *r, const char *key, const af_yaml *v, const char *want,
                     af_error *err)
{
    char at[300], text[80];
    return af_fail(err, AF_EUSAGE, "%s: qat.%s is %s; it must be %s",
                   af_run_key_loc(r, "qat", at, sizeof at), key, af_yaml_show(v, text, sizeof text),
                   want);
}

static bool is_text(const af_yaml *v, const char *text)
{
    return v && v->kind == AF_YAML_SCALAR && strcmp(v->text, text) == 0;
}

static const af_yaml *value(const af_yaml *map, const char *key)
{
    const af_yaml *v = af_yaml_get(map, key);
    return v && !af_yaml_is_null(v) ? v : NULL;
}

/* What weights may be rounded to, as prepare_model_for_qat of Axolotl 0.19 has it; activations in
 * nvfp4 are an addition. */
static const struct qat_kind {
    const char *name, *aka; /* aka: words */
    af_qat_type type;
    int64_t group; /* the default; 0: rows have a scale */
    bool fixed;    /* there is no other */
    bool embedding;
    const char *inputs; /* the activation_dtype it goes with; NULL: the same type */
    bool always;        /* inputs are rounded without an activation_dtype, too */
    bool needs;         /* an activation_dtype must be there */
} kinds[] = {
    {"int4", "", AF_QAT_INT4, 32, .embedding = true, .inputs = "int8"},
    {"nvfp4", "", AF_QAT_NVFP4, 16, .fixed = true},
    {"mxfp4", "", AF_QAT_MXFP4, 32, .fixed = true, .always = true},
    {"float8_e4m3fn", "fp8 float8", AF_QAT_FP8, .fixed = true, .embedding = true, .needs = true},
};

const char *af_run_qat_name(const af_run_config *r)
{
    for (size_t i = 0; i < AF_LEN(kinds); i++)
        if (kinds[i].type == r->qat_type)
            return kinds[i].name;
    return NULL;
}

static bool names(const struct qat_kind *k, const af_yaml *v)
{
    return v && v->kind == AF_YAML_SCALAR &&
           (strcmp(v->text, k->name) == 0 || af_word_listed(v->text, k->aka));
}

static af_status read_types(af_run_config *r, const struct qat_kind **kind, af_error *err)
{
    char at[300], text[80];
    const af_yaml *w = value(r->qat, "weight_dtype"), *x = value(r->qat, "activation_dtype");
    const struct qat_kind *k = NULL;
    for (size_t i = 0; i < AF_LEN(kinds); i++)
        if (names(&kinds[i], w))
            k = &kinds[i];
    af_run_key_loc(r, "qat", at, sizeof at);
    if (!k)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: qat.weight_dtype %s is not supported: weights are int4, nvfp4, mxfp4 "
                       "or float8_e4m3fn",
                       at, w ? af_yaml_show(w, text, sizeof text) : "int8 (its default)");
    r->qat_inputs = x || k->always;
    *kind = k;
    if (x ? (k->inputs ? is_text(x, k->inputs) : names(k, x)) : !k->needs)
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: qat.activation_dtype %s is not supported: with weights in %s it is %s%s",
                   at, x ? af_yaml_show(x, text, sizeof text) : "null", k->name,
                   k->inputs ? k->inputs : k->name, k->needs ? "" : ", or left out");
}

/* group_size and quantize_embedding: what the type of weights allows. */
static af_status read_groups(af_run_config *r, const struct qat_kind *k, af_error *err)
{
    char at[300], want[40];
    const af_yaml *v = value(r->qat, "group_size");
    int64_t group = k->group;
    af_run_key_loc(r, "qat", at, sizeof at);
    if (v && !k->group)
        return af_fail(err, AF_EUSAGE,
                       "%s: qat.group_size has no effect with %s: rows have a scale", at, k->name);
    snprintf(want, sizeof want, "%lld with %s", (long long)k->group, k->name);
    if (v && (!af_yaml_i64(v, &group) || group < 2 || group > GROUP_MAX ||
              (k->fixed && group != k->group)))
        return bad(r, "group_size", v, k->fixed ? want : "a whole number from 2", err);
    v = value(r->qat, "quantize_embedding");
    if (v && !af_yaml_bool(v, &r->qat_embedding))
        return bad(r, "quantize_embedding", v, "true or false", err);
    if (r->qat_embedding && !k->embedding)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: qat.quantize_embedding is not supported with %s; it is with int4 and "
                       "float8_e4m3fn",
                       at, k->name);
    r->qat_group = group;
    return AF_OK;
}

af_status af_run_qat_check(af_run_config *r, af_error *err)
{
    static const char known[] = "weight_dtype activation_dtype group_size quantize_embedding "
                                "fake_quant_after_n_steps";
    char at[300];
    const af_yaml *v;
    const struct qat_kind *k = NULL;
    bool on = true;
    if (r->qat && (af_yaml_is_null(r->qat) || (af_yaml_bool(r->qat, &on) && !on)))
        r->qat = NULL;
    if (!r->qat)
        return AF_OK;
    af_run_key_loc(r, "qat", at, sizeof at);
    if (r->qat->kind != AF_YAML_MAP)
        return af_fail(err, AF_EUSAGE, "%s: qat must be a map: {weight_dtype: int4}", at);
    for (int i = 0; i < r->qat->count; i++)
        if (!af_word_listed(r->qat->key[i], known))
            return af_fail(err, AF_EUSAGE, "%s: qat has no key '%.60s'; it has %s", at,
                           r->qat->key[i], known);
    af_status st = read_types(r, &k, err);
    if (st == AF_OK)
        st = read_groups(r, k, err);
    if (st != AF_OK)
        return st;
    v = value(r->qat, "fake_quant_after_n_steps");
    if (v && (!af_yaml_i64(v, &r->qat_after) || r->qat_after < 0))
        return bad(r, "fake_quant_after_n_steps", v, "a whole number from 0", err);
    if (!af_method_trains_base(r))
        return af_fail(err, AF_EUSAGE, "%s: qat is for full fine-tuning, not for an adapter", at);
    if (r->rl != AF_RL_NONE || af_run_teacher(r) || r->kd_logits)
        return af_fail(err, AF_EUNSUPPORTED, "%s: qat together with '%s' is not supported", at,
                       r->rl != AF_RL_NONE ? "rl"
                       : r->asft           ? "use_asft_loss"
                       : r->teacher_model  ? "teacher_model"
                                           : "kd_logits");
    r->qat_type = k->type;
    return AF_OK;
}

af_status af_run_qat_fits(const af_run_config *r, const af_model_leaves *l, af_error *err)
{
    char at[300];
    const af_model_spec *s = l->spec;
    if (r->qat_type && s->round_inputs)
        return af_fail(err, AF_EUSAGE, "%s: qat: a %s model rounds its weights and inputs itself",
                       af_run_key_loc(r, "qat", at, sizeof at), s->arch->model_type);
    for (int i = 0; r->qat_type && i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        const bool table = i == s->embed_module;
        const af_dtype type = af_tensor_dtype(l->tensor[table ? s->embed : m->weight]);
        const int64_t columns = table ? s->embed_width : m->in;
        if (m->parameter || (table && !r->qat_embedding))
            continue;
        if (r->qat_group && columns % r->qat_group != 0)
            return af_fail(err, AF_EUSAGE,
                           "%s: qat.group_size %lld does not divide the %lld columns of '%s'",
                           af_run_key_loc(r, "qat", at, sizeof at), (long long)r->qat_group,
                           (long long)columns, m->path);
        if (af_dtype_is_block(type))
            return af_fail(err, AF_EUSAGE,
                           "%s: qat needs a base that is not quantised: '%s' is stored in %s",
                           af_run_key_loc(r, "qat", at, sizeof at), m->path, af_dtype_name(type));
    }
    return AF_OK;
}
