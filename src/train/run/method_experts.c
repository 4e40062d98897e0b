/* method_experts.c - names of modules that are parameters of experts now; see method.h. */
#include "model/adapter_config.h"
#include "train/run/method.h"

enum { GATE, UP, DOWN, ROUTER, OLD_NAMES };

static const char *const parameters[OLD_NAMES] = {"gate_up_proj", "gate_up_proj", "down_proj",
                                                  "gate.weight"};

static const char *old_name(const af_arch *a, int i)
{
    static const char *const usual[OLD_NAMES] = {"gate_proj", "up_proj", "down_proj", "gate"};
    return a->experts && i != ROUTER ? a->expert_part[i] : usual[i];
}

/* The path of a router, NULL without experts. */
static const char *router_of(const af_model_spec *s)
{
    for (int i = 0; i < s->layers; i++)
        if (s->layer[i].pieces[AF_GROUP_ROUTER])
            return s->module[s->layer[i].module[AF_GROUP_ROUTER][0]].path;
    return NULL;
}

/* Whether the parameter is called gate.weight (hunyuan_v1_moe has gate.wg). */
static bool router_is_gate(const char *path)
{
    static const char *const ends[] = {"gate", "gate.weight"};
    return af_path_in_list(path, ends, AF_LEN(ends));
}

/* Takes the old names out of the targets. */
static void take_old(af_adapter_config *c, af_method_lists *lists, const af_arch *a,
                     bool found[OLD_NAMES])
{
    int n = 0;
    for (int i = 0; i < c->target_count; i++) {
        bool old = false;
        for (int k = 0; k < OLD_NAMES && !old; k++) {
            const char *name = old_name(a, k);
            old = af_path_in_list(c->target[i], &name, 1);
            found[k] |= old;
        }
        if (!old)
            lists->name[n++] = c->target[i];
    }
    c->target = lists->name;
    c->target_count = n;
}

static void add_parameters(af_adapter_config *c, af_method_lists *lists,
                           const bool found[OLD_NAMES])
{
    int n = 0;
    for (int i = 0; i < c->param_count && n < AF_METHOD_NAMES_MAX - OLD_NAMES; i++)
        lists->param[n++] = c->param[i];
    for (int k = GATE + 1; k < OLD_NAMES; k++)
        if (found[k])
            lists->param[n++] = parameters[k];
    c->param = lists->param;
    c->param_count = n;
    if (!found[GATE])
        return;
    lists->rank[0] = (af_adapter_pattern){".*\\.gate_up_proj", 2.0 * c->r};
    lists->alpha[0] = (af_adapter_pattern){".*\\.gate_up_proj", 2 * c->alpha};
    c->rank_pattern = lists->rank;
    c->alpha_pattern = lists->alpha;
    c->rank_patterns = c->alpha_patterns = 1;
}

af_status af_method_convert(af_adapter_config *c, af_method_lists *lists, bool all,
                            const af_run_config *r, const af_model_spec *s, af_error *err)
{
    const char *router = router_of(s);
    bool found[OLD_NAMES] = {all, all, all, all && router && router_is_gate(router)};
    char at[300];
    if (!s->arch->peft_converts || c->target_regex || !router || c->type == AF_PEFT_OFT)
        return AF_OK;
    af_run_key_loc(r, "lora_target_modules", at, sizeof at);
    if (c->target_count > AF_METHOD_NAMES_MAX)
        return af_fail(err, AF_EUSAGE, "%s: lora_target_modules has %d names, at most %d", at,
                       c->target_count, AF_METHOD_NAMES_MAX);
    take_old(c, lists, s->arch, found);
    if (found[GATE] != found[UP])
        return af_fail(err, AF_EUSAGE,
                       "%s: lora_target_modules has '%s' without '%s': in the experts of this %s "
                       "model they are one parameter",
                       at, old_name(s->arch, found[GATE] ? GATE : UP),
                       old_name(s->arch, found[GATE] ? UP : GATE), s->arch->model_type);
    if (found[GATE] || found[DOWN] || found[ROUTER])
        add_parameters(c, lists, found);
    return AF_OK;
}
