/* adapter_oft.c - OFT that is trained: its settings, the blocks of each module, and what is stored
 * of them. Rotations that are merged: adapter_multiply.c. */
#include "base/log.h"
#include "model/adapter_config.h"

#include <jansson.h>
#include <math.h>

enum { TERMS_MAX = 1000 };

/* A number of the config from 0 to `most`, whole ones without fractions. */
static af_status number(double *out, const json_t *root, const char *key, double absent,
                        double most, const char *name, af_error *err)
{
    const json_t *v = json_object_get(root, key);
    const double x = json_is_number(v) ? json_number_value(v) : absent;
    if ((v && !json_is_null(v) && !json_is_number(v)) || !(x >= 0) || x > most)
        return af_fail(err, AF_EFORMAT, "%s: %s is not a number from 0 to %g", name, key, most);
    *out = x;
    return AF_OK;
}

static af_status flag(bool *out, const json_t *root, const char *key, bool absent, const char *name,
                      af_error *err)
{
    const json_t *v = json_object_get(root, key);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return af_fail(err, AF_EFORMAT, "%s: %s is not true or false", name, key);
    *out = json_is_boolean(v) ? json_is_true(v) : absent;
    return AF_OK;
}

/* Versions of PEFT before 0.18, and those that do not say which they are. */
static bool is_old(const char *version)
{
    char *end = NULL;
    const long major = version ? strtol(version, &end, 10) : 0;
    return major < 1 && !(end && *end == '.' && strtol(end + 1, NULL, 10) >= 18);
}

af_status af_oft_parse(af_oft *out, const json_t *root, const char *name, af_error *err)
{
    af_status st = AF_OK;
    af_oft o = {.old_series = is_old(json_string_value(json_object_get(root, "peft_version")))};
    double terms, block, blocks;
    bool series;
    AF_TRY(number(&terms, root, "num_cayley_neumann_terms", 5, TERMS_MAX, name, err));
    AF_TRY(number(&block, root, "oft_block_size", 0, INT32_MAX, name, err));
    AF_TRY(number(&blocks, root, "r", 0, INT32_MAX, name, err));
    AF_TRY(number(&o.eps, root, "eps", 6e-5, HUGE_VAL, name, err));
    AF_TRY(flag(&series, root, "use_cayley_neumann", true, name, err));
    AF_TRY(flag(&o.constrained, root, "coft", false, name, err));
    AF_TRY(flag(&o.share, root, "block_share", false, name, err));
    o.exact = !series;
    o.terms = (int)terms;
    o.block = (int64_t)block;
    o.blocks = (int64_t)blocks;
    *out = o;
done:
    return st;
}

void af_oft_put(json_t *config, const af_oft *o)
{
    json_object_set_new(config, "block_share", json_boolean(o->share));
    json_object_set_new(config, "coft", json_false());
    json_object_set_new(config, "eps", json_real(o->eps));
    json_object_set_new(config, "init_weights", json_true());
    json_object_set_new(config, "module_dropout", json_real(0));
    json_object_set_new(config, "num_cayley_neumann_terms", json_integer(o->terms));
    json_object_set_new(config, "oft_block_size", json_integer(o->block));
    json_object_set_new(config, "r", json_integer(o->blocks));
    json_object_set_new(config, "use_cayley_neumann", json_boolean(!o->exact));
}

/* As PEFT: n, or the nearest number that divides `in`, of two the smaller one. */
static int64_t near_divisor(int64_t n, int64_t in)
{
    int64_t higher = n, lower = n;
    if (n >= in)
        return in;
    while (higher <= in && in % higher != 0)
        higher++;
    while (lower > 1 && in % lower != 0)
        lower--;
    return n - lower <= higher - n ? lower : higher;
}

static int64_t block_of(const af_oft *o, int64_t in)
{
    return o->block ? near_divisor(o->block, in) : in / near_divisor(o->blocks, in);
}

static af_status check_module(const af_model_spec *s, int module, af_error *err)
{
    const af_module_spec *m = &s->module[module];
    const char *why = m->parameter                     ? "parameters have no input of their own"
                      : m->group == AF_GROUP_EMBED     ? "it is not a linear layer"
                      : m->group == AF_GROUP_HEAD      ? "it is the head"
                      : s->arch->linears_turned        ? "PEFT has none for a Conv1D"
                      : s->round_inputs                ? "BitNet rounds its inputs"
                      : af_module_is_shared(s, module) ? "several layers share it"
                                                       : NULL;
    return why ? af_fail(err, AF_EUNSUPPORTED, "OFT on '%s' is not supported: %s", m->path, why)
               : AF_OK;
}

/* Logs where blocks are other than asked for. */
static void tell(const af_oft *o, const af_module_spec *m, int64_t n)
{
    const int64_t asked = o->block ? o->block : o->blocks, got = o->block ? n : m->in / n;
    if (asked != got)
        af_log_write(AF_LOG_WARN,
                     "OFT: the %" PRId64 " inputs of '%s' are not divided by %s %" PRId64
                     ": it is %" PRId64 " there, as in PEFT",
                     m->in, m->path, o->block ? "oft_block_size" : "oft_r", asked, got);
}

/* Of the modules with as many inputs. */
static bool is_first(const af_adapter *a, int module)
{
    const int64_t in = a->spec->module[module].in;
    int i = 0;
    while (i < module && !(a->module[i].rank && a->spec->module[i].in == in))
        i++;
    return i == module;
}

af_status af_adapter_oft_lay_out(af_adapter *a, bool tells, af_error *err)
{
    const af_oft *o = &a->config.oft;
    if (o->block < 1 && o->blocks < 1)
        return af_fail(err, AF_EFORMAT, "the OFT adapter has no oft_block_size, and no r");
    if (a->config.tokens[AF_TOKENS_EMBED].count || a->config.tokens[AF_TOKENS_HEAD].count)
        return af_fail_subject(
            err, AF_EUNSUPPORTED, "trainable_token_indices",
            "OFT trains no rows of single tokens, new ones among them, as PEFT has none for it: "
            "set 'lora_modules_to_save: [embed_tokens, lm_head]', or take LoRA");
    for (int i = 0; i < a->spec->modules; i++) {
        const af_module_spec *m = &a->spec->module[i];
        af_adapter_module *am = &a->module[i];
        if (!am->rank)
            continue;
        const af_status st = check_module(a->spec, i, err);
        if (st != AF_OK)
            return st;
        const int64_t n = block_of(o, m->in);
        if (n < 2 || n > AF_OFT_BLOCK_MAX)
            return af_fail(err, AF_EUSAGE,
                           "OFT on '%s' is not possible: the blocks of its %" PRId64
                           " inputs would have %" PRId64 ", not 2 to %d",
                           m->path, m->in, n, AF_OFT_BLOCK_MAX);
        if (tells && is_first(a, i))
            tell(o, m, n);
        am->block = n;
        am->triangles = o->share ? 1 : m->in / n;
    }
    return AF_OK;
}

void af_adapter_oft_name(char name[AF_ADAPTER_NAME_BYTES], const af_module_spec *m)
{
    snprintf(name, AF_ADAPTER_NAME_BYTES, AF_ADAPTER_PREFIX "%s.oft_R.weight", m->path);
}
