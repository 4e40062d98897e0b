/* run_simpo.c - run files of SimPO's own trainer: gamma_beta_ratio, and keys that mean something
 * else next to it. */
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* The margin as a multiple of beta. */
static af_status translate_margin(af_translation *t, int i)
{
    const af_yaml *beta = af_yaml_get(t->root, "beta"), *n = t->root->item[i];
    double ratio, times = 2; /* its default */
    char text[40];
    if (!af_yaml_f64(n, &ratio) || (beta && !af_yaml_is_null(beta) && !af_yaml_f64(beta, &times)))
        return af_translate_put(t, "simpo_gamma", t->root->key_line[i],
                                n); /* not a number: says so */
    snprintf(text, sizeof text, "%.17g", ratio * times);
    const af_status st = af_translate_put(t, "simpo_gamma", t->root->key_line[i],
                                          af_translate_scalar(t, n->line, text));
    return st != AF_OK || af_yaml_get(t->root, "rl")
               ? st
               : af_translate_put(t, "rl", t->root->key_line[i],
                                  af_translate_scalar(t, n->line, "simpo"));
}

bool af_simpo_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    if (is(key, "gamma_beta_ratio")) {
        *st = translate_margin(t, i);
        return true;
    }
    if (!af_yaml_get(t->root, "gamma_beta_ratio"))
        return false;
    if (is(key, "sft_weight")) {
        *st = af_translate_put(t, "cpo_alpha", t->root->key_line[i], t->root->item[i]);
        return true;
    }
    return is(key, "loss_type") && af_translate_says(t->root->item[i], "sigmoid");
}
