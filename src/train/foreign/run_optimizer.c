/* run_optimizer.c - `optimizer` and `optim` of files whose optimizers are a little different from
 * the ones here, or are chosen by another key. */
#include "train/run/run_keys.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

#define BITS "the state of this optimizer has 32 bits here"

static const struct {
    const char *name, *ours, *why; /* why: NULL = nothing differs */
} kinds[] = {
    {"flash_lion", "lion", BITS},
    {"flash_sgd", "sgd", BITS},
    {"flash_adam", "adam", BITS},
    {"flash_adamw", "adamw", BITS},
    {"ao_adamw_fp8", "adamw", BITS},
    {"apollo_adamw_layerwise", "apollo", NULL},
    {"galore_adamw_8bit", "galore", BITS},
    {"galore_adamw_layerwise", "galore", NULL},
    {"galore_adamw_8bit_layerwise", "galore", BITS},
};

/* LLaMA-Factory and ms-swift: with 'use_galore' this is what projected gradients go to. */
static af_status projected_by(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *galore = af_yaml_get(t->root, "use_galore");
    char loc[300];
    if (!n->text || !galore || !af_translate_says(galore, "true"))
        return AF_OK;
    if (strstr(n->text, "adafactor"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s: 'use_galore' with 'optim: %s' is not supported: GaLore has moments of "
                       "AdamW here; leave 'optim' out",
                       af_translate_loc(t, line, loc), n->text);
    return strstr(n->text, "8bit") ? af_run_instead_add(t->run, "optim", line, BITS, 0, t->err)
                                   : AF_OK;
}

/* Updates of one layer after the other, as soon as its gradient is there: the same numbers, but
 * transformers and LLaMA-Factory clip what such an optimizer has used up and cleared. */
static bool is_layerwise(const af_translation *t, const char *key, const af_yaml *n)
{
    if (is(key, "galore_layerwise") || is(key, "apollo_layerwise"))
        return af_translate_says(n, "true") && af_has_optimizer_choice(t->root);
    for (size_t k = 0; k < AF_LEN(kinds) && (is(key, "optimizer") || is(key, "optim")); k++)
        if (af_translate_says(n, kinds[k].name))
            return strstr(kinds[k].name, "_layerwise") && !af_has_optimizer_choice(t->root);
    return false;
}

static bool clips_nothing(const af_translation *t)
{
    for (int i = 0; i < t->root->count; i++)
        if (is_layerwise(t, t->root->key[i], t->root->item[i]))
            return true;
    return false;
}

/* The key of the file that has no effect then. */
static af_status leave_clipping(af_translation *t, const af_yaml *n, int line)
{
    double v;
    return af_yaml_f64(n, &v) && !(v > 0)
               ? AF_OK
               : af_run_idle_add(t->run, "max_grad_norm", line,
                                 "the optimizer updates layer by layer and clips no gradients, in "
                                 "its own trainer neither",
                                 t->err);
}

static af_status put_kind(af_translation *t, const char *key, size_t k, int line)
{
    af_status st = AF_OK;
    if (kinds[k].why)
        AF_TRY(af_run_instead_add(t->run, kinds[k].name, line, kinds[k].why, 0, t->err));
    st = af_translate_put(t, key, line, af_translate_scalar(t, line, kinds[k].ours));
done:
    return st;
}

/* Of projected gradients, factored second moments in place of AdamW's: its name, or NULL. */
static const char *projected_adafactor(const af_yaml *n)
{
    static const char *const names[] = {"galore_adafactor", "galore_adafactor_layerwise"};
    for (size_t i = 0; i < AF_LEN(names); i++)
        if (af_translate_says(n, names[i]))
            return names[i];
    return NULL;
}

bool af_optimizer_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (line > 0 && is_layerwise(t, key, n)) {
        *st = af_translate_put(t, "max_grad_norm", line, af_translate_scalar(t, line, "0"));
        if (*st != AF_OK || strstr(key, "_layerwise"))
            return true;
    }
    if (line > 0 && is(key, "max_grad_norm") && clips_nothing(t)) {
        *st = leave_clipping(t, n, line);
        return true;
    }
    if (is(key, "optim") && af_has_optimizer_choice(t->root)) {
        *st = projected_by(t, n, line);
        return true;
    }
    const bool names = is(key, "optimizer") || is(key, "optim");
    const char *adafactor = names ? projected_adafactor(n) : NULL;
    if (adafactor) {
        char loc[300];
        *st = af_fail(t->err, AF_EUNSUPPORTED,
                      "%s: '%s' is not supported: GaLore has moments of AdamW here; use "
                      "galore_adamw, or adafactor, which projects nothing",
                      af_translate_loc(t, line, loc), adafactor);
        return true;
    }
    for (size_t k = 0; k < AF_LEN(kinds) && line > 0 && names; k++)
        if (af_translate_says(n, kinds[k].name)) {
            *st = put_kind(t, key, k, line);
            return true;
        }
    return false;
}
