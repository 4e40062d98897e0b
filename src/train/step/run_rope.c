/* run_rope.c - see run_rope.h. */
#include "train/step/run_rope.h"

#include "base/log.h"
#include "format/config/hf_config.h"
#include "format/text/yaml_json.h"
#include "train/run/freeze.h"

#include <strings.h>

/* LLaMA-Factory: a name, and as large a factor as cutoff_len asks for. */
static af_status by_name(af_rope_change *out, const af_run_config *r, const char *model,
                         const char *at, af_error *err)
{
    static const char *const names[] = {"linear", "dynamic", "yarn", "llama3"};
    const char *name = r->rope_scaling->text;
    af_hf_config c = {0};
    size_t k = 0;
    while (k < AF_LEN(names) && strcmp(names[k], name) != 0)
        k++;
    if (k == AF_LEN(names))
        return af_fail(err, AF_EUSAGE,
                       "%s: rope_scaling must be linear, dynamic, yarn, llama3 or a map, not "
                       "'%.40s'",
                       at, name);
    af_status st = af_model_config(&c, model, err);
    if (st != AF_OK)
        return st;
    const int64_t old = c.rope.original_max_position_embeddings
                            ? c.rope.original_max_position_embeddings
                            : c.max_position_embeddings;
    af_hf_config_clear(&c);
    if (old <= 0 || r->sequence_len <= old)
        return af_run_idle_key(r, "rope_scaling", "rows are not longer than the model's positions",
                               err);
    const int64_t factor = (r->sequence_len + old - 1) / old;
    out->scaling = json_pack("{s:s, s:f}", "rope_type", name, "factor", (double)factor);
    bool ok = out->scaling != NULL;
    if (ok && strcmp(name, "linear") != 0)
        ok = !json_object_set_new(out->scaling, "original_max_position_embeddings",
                                  json_integer(old));
    if (ok && strcmp(name, "llama3") == 0)
        ok = !json_object_set_new(out->scaling, "low_freq_factor", json_real(1)) &&
             !json_object_set_new(out->scaling, "high_freq_factor", json_real(4));
    out->positions = old * factor;
    return ok ? AF_OK : af_fail_nomem(err, "rope_scaling", 0);
}

af_status af_run_rope_open(af_rope_change *out, const af_run_config *r, const char *model,
                           af_error *err)
{
    char at[300];
    const af_yaml *n = r->rope_scaling;
    af_status st = AF_OK;
    *out = (af_rope_change){0};
    bool on = true;
    if (!n || af_yaml_is_null(n) || (af_yaml_bool(n, &on) && !on) ||
        (n->kind == AF_YAML_SCALAR && strcasecmp(n->text, "none") == 0))
        return AF_OK;
    af_run_key_loc(r, "rope_scaling", at, sizeof at);
    snprintf(out->name, sizeof out->name, "%s: rope_scaling", at);
    if (r->sequence_len == AF_SEQUENCE_UNLIMITED)
        return af_fail(err, AF_EUSAGE, "%s: rope_scaling needs a sequence_len", at);
    if (n->kind == AF_YAML_SCALAR)
        st = by_name(out, r, model, at, err);
    else if (n->kind == AF_YAML_LIST)
        st = af_fail(err, AF_EUSAGE, "%s: rope_scaling must be a name or a map, not a list", at);
    else if (!(out->scaling = af_yaml_json(n)))
        st = af_fail_nomem(err, "rope_scaling", 0);
    if (st == AF_OK && out->scaling && !af_method_trains_base(r))
        af_log_write(AF_LOG_WARN,
                     "%s: rope_scaling is not part of an adapter: write it into the config.json of "
                     "the base that the adapter is used with",
                     at);
    return st;
}

void af_run_rope_close(af_rope_change *r)
{
    json_decref(r->scaling);
    *r = (af_rope_change){0};
}
