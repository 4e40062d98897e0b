/* run_qat.c - the key 'qat' of Axolotl: quantisation-aware training with torchao's formats. */
#include "train/run/run_qat.h"

#include "base/word.h"
#include "graph/graph_access.h"
#include "tensor/dtype.h"
#include "train/run/freeze.h"

enum { GROUP = 32, GROUP_MAX = 1 << 20 }; /* Axolotl's default */

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

static af_status read_types(af_run_config *r, af_error *err)
{
    char at[300], text[80];
    const af_yaml *w = value(r->qat, "weight_dtype"), *x = value(r->qat, "activation_dtype");
    r->qat_inputs = is_text(x, "int8");
    if (is_text(w, "int4") && (!x || r->qat_inputs))
        return AF_OK;
    const char *key = is_text(w, "int4") ? "activation_dtype" : "weight_dtype";
    const af_yaml *v = is_text(w, "int4") ? x : w;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: qat.%s %s is not supported: weights are int4, with activations in int8 or "
                   "as they are",
                   af_run_key_loc(r, "qat", at, sizeof at), key,
                   v ? af_yaml_show(v, text, sizeof text) : "int8 (its default)");
}

af_status af_run_qat_check(af_run_config *r, af_error *err)
{
    static const char known[] = "weight_dtype activation_dtype group_size quantize_embedding "
                                "fake_quant_after_n_steps";
    char at[300];
    const af_yaml *v;
    int64_t group = GROUP;
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
    const af_status st = read_types(r, err);
    if (st != AF_OK)
        return st;
    v = value(r->qat, "group_size");
    if (v && (!af_yaml_i64(v, &group) || group < 2 || group > GROUP_MAX))
        return bad(r, "group_size", v, "a whole number from 2", err);
    v = value(r->qat, "quantize_embedding");
    if (v && !af_yaml_bool(v, &r->qat_embedding))
        return bad(r, "quantize_embedding", v, "true or false", err);
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
    r->qat_group = group;
    return AF_OK;
}

af_status af_run_qat_fits(const af_run_config *r, const af_model_leaves *l, af_error *err)
{
    char at[300];
    const af_model_spec *s = l->spec;
    if (r->qat_group && s->round_inputs)
        return af_fail(err, AF_EUSAGE, "%s: qat: a %s model rounds its weights and inputs itself",
                       af_run_key_loc(r, "qat", at, sizeof at), s->arch->model_type);
    for (int i = 0; r->qat_group && i < s->modules; i++) {
        const af_module_spec *m = &s->module[i];
        const bool table = i == s->embed_module;
        const af_dtype type = af_tensor_dtype(l->tensor[table ? s->embed : m->weight]);
        const int64_t columns = table ? s->embed_width : m->in;
        if (m->parameter || (table && !r->qat_embedding))
            continue;
        if (columns % r->qat_group != 0)
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
