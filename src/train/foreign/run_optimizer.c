/* run_optimizer.c - `optimizer` and `optim` of files whose optimizers are a little different from
 * the ones here, or are chosen by another key. */
#include "train/run/run_keys.h"
#include "train/run/run_translation.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

#define BITS    "the state of this optimizer has 32 bits here"
#define CLIPPED "gradients are clipped first, which they are not there: see 'max_grad_norm'"

static const struct {
    const char *name, *ours, *why;
} kinds[] = {
    {"flash_lion", "lion", BITS},
    {"flash_sgd", "sgd", BITS},
    {"flash_adam", "adam", BITS},
    {"flash_adamw", "adamw", BITS},
    {"ao_adamw_fp8", "adamw", BITS},
    {"apollo_adamw_layerwise", "apollo", CLIPPED},
    {"galore_adamw_8bit", "galore", BITS},
    {"galore_adamw_layerwise", "galore", CLIPPED},
    {"galore_adamw_8bit_layerwise", "galore", BITS ", and " CLIPPED},
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

bool af_optimizer_translate(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (is(key, "optim") && af_has_optimizer_choice(t->root)) {
        *st = projected_by(t, n, line);
        return true;
    }
    for (size_t k = 0; k < AF_LEN(kinds) && line > 0 && (is(key, "optimizer") || is(key, "optim"));
         k++)
        if (af_translate_says(n, kinds[k].name)) {
            *st = af_run_instead_add(t->run, kinds[k].name, line, kinds[k].why, 0, t->err);
            if (*st == AF_OK)
                *st = af_translate_put(t, key, line, af_translate_scalar(t, line, kinds[k].ours));
            return true;
        }
    return false;
}
