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

/* What the part was called in a layer: the path of its parameter with the old name. */
static bool old_path(const af_model_spec *s, const af_module_spec *m, int part, char *out, int size)
{
    const bool fits = part == ROUTER ? m->group == AF_GROUP_ROUTER && router_is_gate(m->path)
                      : part == DOWN ? m->group == AF_GROUP_EXPERTS_DOWN
                                     : m->group == AF_GROUP_EXPERTS_GATE_UP;
    const char *end = strstr(m->path, ".weight"), *dot = strrchr(m->path, '.');
    const size_t whole = end ? (size_t)(end - m->path) : strlen(m->path);
    if (!fits || !m->parameter || !dot)
        return false;
    if (part == ROUTER)
        snprintf(out, (size_t)size, "%.*s", (int)whole, m->path);
    else
        snprintf(out, (size_t)size, "%.*s.%s", (int)(dot - m->path), m->path,
                 old_name(s->arch, part));
    return true;
}

/* Which old names the expression has, and whether it has them in every layer. */
static af_status find_old(const char *regex, const af_model_spec *s, bool found[OLD_NAMES],
                          bool *every, af_error *err)
{
    char path[512];
    *every = true;
    for (int k = 0; k < OLD_NAMES; k++) {
        int hits = 0, all = 0;
        for (int i = 0; i < s->modules; i++) {
            bool hit;
            if (!old_path(s, &s->module[i], k, path, sizeof path))
                continue;
            const af_status st = af_pattern_matches(&hit, regex, path, true, err);
            if (st != AF_OK)
                return st;
            hits += hit;
            all++;
        }
        found[k] = hits > 0;
        *every &= hits == 0 || hits == all;
    }
    return AF_OK;
}

/* The last parts of the paths that the expression matches, each once, and whether it matches every
 * path that ends so; no old names. */
static af_status names_of(const char *regex, const af_model_spec *s, const char **name, int *count,
                          bool *every, af_error *err)
{
    int n = 0, known = 0;
    for (int round = 0; round < 2; round++) /* finds the names, looks for paths with them */
        for (int i = 0; i < s->modules; i++) {
            const char *path = s->module[i].path, *dot = strrchr(path, '.');
            bool hit, old = false;
            if (s->module[i].parameter)
                continue;
            for (int k = 0; k < OLD_NAMES; k++) {
                const char *part = old_name(s->arch, k);
                old |= af_path_in_list(path, &part, 1);
            }
            const af_status st = af_pattern_matches(&hit, regex, path, true, err);
            if (st != AF_OK)
                return st;
            known = af_path_in_list(path, name, n);
            if (round == 1)
                *every &= hit || !known;
            else if (hit && !known && !old && n < AF_METHOD_NAMES_MAX)
                name[n++] = dot ? dot + 1 : path;
        }
    *count = n;
    return AF_OK;
}

/* PEFT reads an expression that names experts as the list of the names it matches. One that means
 * some layers would mean all of them there. */
static af_status convert_regex(af_adapter_config *c, af_method_lists *lists, const af_model_spec *s,
                               const char *at, bool found[OLD_NAMES], af_error *err)
{
    bool every, every_name = true;
    int n = 0;
    af_status st = find_old(c->target_regex, s, found, &every, err);
    if (st != AF_OK || !(found[GATE] || found[UP] || found[DOWN] || found[ROUTER]))
        return st;
    st = names_of(c->target_regex, s, lists->name, &n, &every_name, err);
    if (st != AF_OK)
        return st;
    if (!every || !every_name)
        return af_fail(err, AF_EUSAGE,
                       "%s: the expression '%.60s' names experts or routers of this %s model, for "
                       "which PEFT takes it as names in all layers, but it matches some alone: "
                       "give a list of names",
                       at, c->target_regex, s->arch->model_type);
    c->target_regex = NULL;
    c->target = lists->name;
    c->target_count = n;
    return AF_OK;
}

af_status af_method_convert(af_adapter_config *c, af_method_lists *lists, bool all,
                            const af_run_config *r, const af_model_spec *s, af_error *err)
{
    const char *router = router_of(s);
    bool found[OLD_NAMES] = {all, all, all, all && router && router_is_gate(router)};
    char at[300];
    if (!s->arch->peft_converts || !router || c->type == AF_PEFT_OFT)
        return AF_OK;
    af_run_key_loc(r, "lora_target_modules", at, sizeof at);
    if (c->target_regex) {
        const af_status st = convert_regex(c, lists, s, at, found, err);
        if (st != AF_OK || c->target_regex)
            return st;
    }
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
