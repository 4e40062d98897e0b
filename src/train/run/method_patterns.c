/* method_patterns.c - ranks and alphas of single modules (PEFT's rank_pattern, alpha_pattern). */
#include "model/adapter_config.h"
#include "train/run/adapter_start.h"
#include "train/run/method.h"

#include <math.h>

#define ALPHA_MAX 1e6 /* as lora_alpha */

/* {NAME or regular expression: number} as patterns; ranks are whole numbers. */
static af_status read_patterns(af_adapter_pattern *out, int *n, const af_run_config *r,
                               const char *key, const af_yaml *v, bool whole, af_error *err)
{
    char at[300];
    const double most = whole ? AF_ADAPTER_RANK_MAX : ALPHA_MAX;
    af_run_key_loc(r, key, at, sizeof at);
    *n = 0;
    if (!v)
        return AF_OK;
    if (v->kind != AF_YAML_MAP || v->count > AF_METHOD_NAMES_MAX)
        return af_fail(err, AF_EUSAGE, "%s: %s must be a map of at most %d modules: {down_proj: 8}",
                       at, key, AF_METHOD_NAMES_MAX);
    for (int i = 0; i < v->count; i++) {
        af_adapter_pattern *p = &out[(*n)++];
        p->key = v->key[i];
        if (!af_yaml_f64(v->item[i], &p->value) || !(p->value > 0) || p->value > most ||
            (whole && p->value != floor(p->value)))
            return af_fail(err, AF_EUSAGE, "%s: %s of '%.60s' must be a %s above 0, at most %g", at,
                           key, p->key, whole ? "whole number" : "number", most);
    }
    return AF_OK;
}

static af_status matches(bool *hit, const af_adapter_pattern *p, const char *path, af_error *err)
{
    double value = 0;
    const af_status st = af_adapter_pattern_value(&value, p, 1, path, 0, err);
    *hit = value > 0;
    return st;
}

/* A misspelt name would change nothing. Of two patterns that match a module the first one counts,
 * and an adapter's file, PEFT's too, has them in alphabetical order. */
static af_status check_patterns(const af_run_config *r, const char *key,
                                const af_adapter_pattern *p, int n, const bool *target,
                                const af_model_spec *spec, af_error *err)
{
    af_status st = AF_OK;
    char at[300];
    int *first =
        af_calloc((uint64_t)spec->modules, sizeof *first); /* 1 + the pattern that counts */
    af_run_key_loc(r, key, at, sizeof at);
    if (!first)
        return af_fail_nomem(err, key, (uint64_t)spec->modules * sizeof *first);
    for (int i = 0; i < n; i++) {
        bool used = false;
        for (int k = 0; k < spec->modules; k++) {
            const char *path = spec->module[k].path;
            bool hit = false;
            st = matches(&hit, &p[i], path, err);
            if (st != AF_OK)
                AF_TRY(af_fail_prefix(st, err, "%s: %s", at, key));
            if (!hit || !target[k])
                continue;
            used = true;
            if (first[k] && strcmp(p[i].key, p[first[k] - 1].key) < 0)
                AF_TRY(af_fail(err, AF_EUSAGE,
                               "%s: '%.60s' and '%.60s' of %s match '%.60s'; in alphabetical "
                               "order, which adapter files have, the second one would count",
                               at, p[first[k] - 1].key, p[i].key, key, path));
            first[k] = first[k] ? first[k] : i + 1;
        }
        if (!used)
            AF_TRY(af_fail(err, AF_EUSAGE, "%s: %s has '%.60s', which no adapted module matches",
                           at, key, p[i].key));
    }
done:
    free(first);
    return st;
}

af_status af_method_patterns(af_adapter_config *c, af_method_lists *lists, const af_run_config *r,
                             const af_model_spec *spec, af_error *err)
{
    static const char rank[] = "lora_rank_pattern", alpha[] = "lora_alpha_pattern";
    const char *key = r->lora_rank_pattern ? rank : alpha;
    af_status st = AF_OK;
    af_start_kind start = AF_START_PLAIN;
    int steps, ranks, alphas;
    char at[300];
    bool *target = NULL;
    if (!r->lora_rank_pattern && !r->lora_alpha_pattern)
        return AF_OK;
    (void)af_start_find(r->lora_init, &start, &steps);
    if (c->rank_patterns || start == AF_START_PISSA || start == AF_START_OLORA)
        return af_fail(err, AF_EUNSUPPORTED, "%s: %s is not supported with %s",
                       af_run_key_loc(r, key, at, sizeof at), key,
                       c->rank_patterns ? "the old names of experts in lora_target_modules"
                                        : "a start that changes the base (pissa, olora)");
    AF_TRY(read_patterns(lists->rank, &ranks, r, rank, r->lora_rank_pattern, true, err));
    AF_TRY(read_patterns(lists->alpha, &alphas, r, alpha, r->lora_alpha_pattern, false, err));
    target = af_calloc((uint64_t)spec->modules, sizeof *target);
    if (!target)
        AF_TRY(af_fail_nomem(err, "the targets", (uint64_t)spec->modules));
    AF_TRY(af_adapter_targets(c, spec, target, err));
    AF_TRY(check_patterns(r, rank, lists->rank, ranks, target, spec, err));
    AF_TRY(check_patterns(r, alpha, lists->alpha, alphas, target, spec, err));
    c->rank_pattern = lists->rank;
    c->alpha_pattern = lists->alpha;
    c->rank_patterns = ranks;
    c->alpha_patterns = alphas;
done:
    free(target);
    return st;
}
