/* optim_args.c - settings that one optimizer alone has, in one key: 'alpha=0.95,eps=1e-6', as
 * TrainingArguments of transformers has them. */
#include "base/word.h"
#include "train/run/freeze.h"
#include "train/run/run_keys.h"

#include <math.h>
#include <strings.h>

/* Settings by optimizer. key: where the value goes, if it has a key of its own. Where low and high
 * are the same, nothing else is supported; words: the names there are instead of numbers. */
static const struct {
    af_optimizer_kind kind;
    const char *name;
    double low, below;
    const char *key, *words;
} settings[] = {
    {AF_OPTIMIZER_SGD, "momentum", 0, 1, "sgd_momentum", NULL},
    {AF_OPTIMIZER_SGD, "nesterov", 0, 1.5, NULL, NULL},
    {AF_OPTIMIZER_SGD, "dampening", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_ADAGRAD, "lr_decay", 0, 1e6, NULL, NULL},
    {AF_OPTIMIZER_ADAGRAD, "eps", 1e-30, 1, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP, "alpha", 1e-6, 1, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP, "eps", 1e-30, 1, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP, "momentum", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP, "centered", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_FREE_ADAMW, "weight_lr_power", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_FREE_ADAMW, "r", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_FREE_RADAM, "weight_lr_power", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_FREE_RADAM, "r", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_FREE_SGD, "weight_lr_power", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_FREE_SGD, "r", 0, 100, NULL, NULL},
    {AF_OPTIMIZER_ADOPT, "eps", 1e-30, 1, "adam_epsilon", NULL},
    {AF_OPTIMIZER_STABLE_ADAMW, "decouple_lr", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_STABLE_ADAMW, "kahan_sum", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_ADEMAMIX, "beta1", 0, 1, "adam_beta1", NULL},
    {AF_OPTIMIZER_ADEMAMIX, "beta2", 0, 1, "adam_beta2", NULL},
    {AF_OPTIMIZER_ADEMAMIX, "eps", 1e-30, 1, "adam_epsilon", NULL},
    {AF_OPTIMIZER_ADEMAMIX, "beta3", 1e-6, 1, NULL, NULL},
    {AF_OPTIMIZER_ADEMAMIX, "alpha", 1e-6, 1e6, NULL, NULL},
    {AF_OPTIMIZER_APOLLO, "rank", 1, 1 << 16, "apollo_rank", NULL},
    {AF_OPTIMIZER_APOLLO, "scale", 1e-6, 1e9, "apollo_scale", NULL},
    {AF_OPTIMIZER_APOLLO, "update_proj_gap", 1, 1e9, "apollo_update_interval", NULL},
    {AF_OPTIMIZER_APOLLO, "scale_type", 0, 0, "apollo_scale_type", "channel tensor"},
    {AF_OPTIMIZER_APOLLO, "proj", 0, 0, NULL, "random"},
    {AF_OPTIMIZER_APOLLO, "proj_type", 0, 0, NULL, "std"},
    {AF_OPTIMIZER_GALORE, "rank", 1, 1 << 16, "galore_rank", NULL},
    {AF_OPTIMIZER_GALORE, "scale", 1e-6, 1e9, "galore_scale", NULL},
    {AF_OPTIMIZER_GALORE, "update_proj_gap", 1, 1e9, "galore_update_interval", NULL},
    {AF_OPTIMIZER_GALORE, "proj_type", 0, 0, "galore_proj_type", "std reverse_std right left full"},
    {AF_OPTIMIZER_RMSPROP_8BIT, "alpha", 1e-6, 1, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP_8BIT, "eps", 1e-30, 1, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP_8BIT, "momentum", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_RMSPROP_8BIT, "centered", 0, 0, NULL, NULL},
    {AF_OPTIMIZER_ADEMAMIX_8BIT, "beta1", 0, 1, "adam_beta1", NULL},
    {AF_OPTIMIZER_ADEMAMIX_8BIT, "beta2", 0, 1, "adam_beta2", NULL},
    {AF_OPTIMIZER_ADEMAMIX_8BIT, "eps", 1e-30, 1, "adam_epsilon", NULL},
    {AF_OPTIMIZER_ADEMAMIX_8BIT, "beta3", 1e-6, 1, NULL, NULL},
    {AF_OPTIMIZER_ADEMAMIX_8BIT, "alpha", 1e-6, 1e6, NULL, NULL},
};

/* The next `name=value` at *at, without blanks; false at the end. */
typedef struct optim_arg {
    char name[40], value[40];
} optim_arg;

static void copy_part(char *out, size_t size, const char *from, size_t n)
{
    while (n > 0 && (*from == ' ' || *from == '\t')) {
        from++;
        n--;
    }
    while (n > 0 && (from[n - 1] == ' ' || from[n - 1] == '\t'))
        n--;
    snprintf(out, size, "%.*s", (int)AF_MIN(n, size - 1), from);
}

static bool next_arg(const char **at, optim_arg *a)
{
    *at += strspn(*at, ", \t");
    if (!**at)
        return false;
    const size_t all = strcspn(*at, ","), name = AF_MIN(strcspn(*at, "="), all);
    copy_part(a->name, sizeof a->name, *at, name);
    copy_part(a->value, sizeof a->value, *at + AF_MIN(name + 1, all), all - AF_MIN(name + 1, all));
    *at += all;
    return true;
}

/* A number; true and false are 1 and 0. */
static bool number_of(const char *text, double *v)
{
    const af_yaml n = {.kind = AF_YAML_SCALAR, .text = text};
    bool flag;
    if (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0) {
        *v = strcasecmp(text, "true") == 0;
        return true;
    }
    if (af_yaml_bool(&n, &flag)) {
        *v = flag;
        return true;
    }
    return af_yaml_f64(&n, v) && isfinite(*v);
}

double af_optim_arg(const af_run_config *r, const char *name, double otherwise)
{
    optim_arg a;
    for (const char *at = r->optim_args ? r->optim_args : ""; next_arg(&at, &a);)
        if (strcmp(a.name, name) == 0)
            (void)number_of(a.value, &otherwise); /* it was checked */
    return otherwise;
}

static int find_setting(af_optimizer_kind kind, const char *name)
{
    for (size_t i = 0; i < AF_LEN(settings); i++)
        if (settings[i].kind == kind && strcmp(settings[i].name, name) == 0)
            return (int)i;
    return -1;
}

static af_status refuse_name(const af_run_config *r, const char *name, af_error *err)
{
    char at[300], known[200] = "";
    for (size_t i = 0, n = 0; i < AF_LEN(settings); i++)
        if (settings[i].kind == r->optimizer && n < sizeof known)
            n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "",
                                  settings[i].name);
    return af_fail(
        err, AF_EUSAGE, "%s: optim_args has '%s', which optimizer %s does not: it has %s",
        af_run_key_loc(r, "optim_args", at, sizeof at), name,
        af_key_choice_name(af_key_find("optimizer"), r->optimizer), known[0] ? known : "none");
}

/* Those for which transformers does not read optim_args. */
static bool reads_none(af_optimizer_kind k)
{
    switch (k) {
    case AF_OPTIMIZER_ADAM:
    case AF_OPTIMIZER_ADAMW:
    case AF_OPTIMIZER_ADAMW_8BIT:
    case AF_OPTIMIZER_ADAMW_TORCH_8BIT:
    case AF_OPTIMIZER_ADAMW_4BIT:
    case AF_OPTIMIZER_LION:
    case AF_OPTIMIZER_LION_8BIT:
    case AF_OPTIMIZER_ADAFACTOR:
    case AF_OPTIMIZER_ADAM_MINI:
        return true;
    default:
        return false;
    }
}

/* The value of a name of a key with choices. */
static af_status set_word(af_run_config *r, const char *at, int i, const char *value, af_error *err)
{
    const af_key *k = settings[i].key ? af_key_find(settings[i].key) : NULL;
    if (!af_word_listed(value, settings[i].words))
        return af_fail(err, AF_EUNSUPPORTED, "%s: '%s' of optim_args is '%s'; supported: %s", at,
                       settings[i].name, value, settings[i].words);
    for (const af_key_choice *c = k ? k->choices->names : NULL; c && c->name; c++)
        if (strcmp(c->name, value) == 0)
            af_key_set(r, k, (af_key_value){.choice = c->value});
    return AF_OK;
}

static af_status set_number(af_run_config *r, const char *at, int i, double v, af_error *err)
{
    const af_key *k = af_key_find(settings[i].key);
    const bool whole = k->kind == AF_KEY_I64;
    af_key_value value = {.f64 = v};
    if (whole && (v < floor(v) || v > floor(v)))
        return af_fail(err, AF_EUSAGE, "%s: '%s' of optim_args is %g, not a whole number", at,
                       settings[i].name, v);
    if (whole)
        value.i64 = (int64_t)v;
    af_key_set(r, k, value);
    return AF_OK;
}

static af_status check_arg(af_run_config *r, const optim_arg *a, af_error *err)
{
    char at[300];
    double v;
    const int i = find_setting(r->optimizer, a->name);
    af_run_key_loc(r, "optim_args", at, sizeof at);
    if (i < 0)
        return refuse_name(r, a->name, err);
    if (settings[i].words)
        return set_word(r, at, i, a->value, err);
    if (!number_of(a->value, &v))
        return af_fail(err, AF_EUSAGE, "%s: '%s' of optim_args is '%s', not a number", at, a->name,
                       a->value);
    if (settings[i].below <= settings[i].low && (v < 0 || v > 0))
        return af_fail(err, AF_EUNSUPPORTED, "%s: '%s' of optim_args is %s; only 0 is supported",
                       at, a->name, a->value);
    if (settings[i].below > settings[i].low && !(v >= settings[i].low && v < settings[i].below))
        return af_fail(err, AF_EUSAGE,
                       "%s: '%s' of optim_args is %s, it must be from %g up to below %g", at,
                       a->name, a->value, settings[i].low, settings[i].below);
    return settings[i].key ? set_number(r, at, i, v, err) : AF_OK;
}

/* Matrices that are projected are those of the model; LLaMA-Factory refuses adapters, too. */
static af_status check_projected(const af_run_config *r, af_error *err)
{
    char at[300];
    if (!af_run_projects(r) || af_method_trains_base(r))
        return AF_OK;
    return af_fail(err, AF_EUNSUPPORTED,
                   "%s: optimizer %s is for full fine-tuning, not for 'adapter: %s'; adamw "
                   "trains adapters",
                   af_run_key_loc(r, "optimizer", at, sizeof at),
                   af_key_choice_name(af_key_find("optimizer"), r->optimizer),
                   af_key_choice_name(af_key_find("adapter"), (int)r->method));
}

af_status af_optim_args_check(af_run_config *r, af_error *err)
{
    optim_arg a;
    char at_key[300];
    af_status st = check_projected(r, err);
    if (!r->optim_args || st != AF_OK)
        return st;
    if (reads_none(r->optimizer)) {
        st = af_run_idle_key(r, "optim_args", "this optimizer has no settings of its own", err);
        return st == AF_OK ? af_key_reset(r, af_key_find("optim_args"), err) : st;
    }
    for (const char *at = r->optim_args; st == AF_OK && next_arg(&at, &a);)
        st = check_arg(r, &a, err);
    if (st == AF_OK && af_optim_arg(r, "nesterov", 0) > 0 && !(r->momentum > 0))
        st = af_fail(err, AF_EUSAGE, "%s: 'nesterov' of optim_args needs a momentum above 0",
                     af_run_key_loc(r, "optim_args", at_key, sizeof at_key));
    return st;
}
