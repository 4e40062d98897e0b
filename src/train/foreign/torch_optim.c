/* torch_optim.c - an optimizer by the name of its class in torch.optim, bitsandbytes or torchao,
 * with the names and defaults of their arguments. */
#include "train/foreign/nested.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* What the file does not say, whatever is the default of the dialect; beta2 NULL: 0.999. */
static const struct {
    const char *name, *ours, *decay, *rate, *beta2;
} kinds[] = {{"AdamW", "adamw", "0.01", "1e-3", NULL},
             {"PagedAdamW", "adamw", "0.01", "1e-3", NULL},
             {"AdamW32bit", "adamw", "0.01", "1e-3", NULL},
             {"PagedAdamW32bit", "adamw", "0.01", "1e-3", NULL},
             {"AdamW8bit", "adamw_8bit", "0.01", "1e-3", NULL},
             {"PagedAdamW8bit", "adamw_8bit", "0.01", "1e-3", NULL},
             {"AdamW4bit", "adamw_4bit", "0.01", "1e-3", NULL},
             {"Adam", "adam", "0", "1e-3", NULL},
             {"FusedAdam", "adamw", "0", "1e-3", NULL}, /* of Apex and TransformerEngine */
             {"NAdam", "nadam", "0", "2e-3", NULL},
             {"RAdam", "radam", "0", "1e-3", NULL},
             {"SGD", "sgd", "0", "1e-3", NULL},
             {"Lion", "lion", "0", "1e-4", "0.99"},
             {"PagedLion", "lion", "0", "1e-4", "0.99"},
             {"Lion8bit", "lion_8bit", "0", "1e-4", "0.99"},
             {"PagedLion8bit", "lion_8bit", "0", "1e-4", "0.99"}};

static int find(const char *name)
{
    int k = 0;
    while (k < (int)AF_LEN(kinds) && !is(kinds[k].name, name))
        k++;
    return k < (int)AF_LEN(kinds) ? k : -1;
}

bool af_torch_optim_knows(const char *name) { return find(name) >= 0; }

static af_status put_betas(af_translation *t, const af_yaml *betas)
{
    if (betas->kind != AF_YAML_LIST || betas->count != 2)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: betas must be a list of two numbers", t->name,
                       betas->line);
    const af_status st = af_translate_put(t, "adam_beta1", betas->line, betas->item[0]);
    return st == AF_OK ? af_translate_put(t, "adam_beta2", betas->line, betas->item[1]) : st;
}

af_status af_torch_optim_put(af_translation *t, const char *name, const af_yaml *args, int line,
                             bool torchao)
{
    static const char *const keys[][2] = {{"lr", "learning_rate"},
                                          {"weight_decay", "weight_decay"},
                                          {"eps", "adam_epsilon"},
                                          {"momentum", "sgd_momentum"}};
    const int k = find(name);
    const af_yaml *betas = af_nested_given(args, "betas");
    af_status st = AF_OK;
    assert(k >= 0);
    AF_TRY(af_nested_put(t, "optimizer", line,
                         torchao && is(kinds[k].ours, "adamw_8bit") ? "adamw_torch_8bit"
                                                                    : kinds[k].ours));
    if (!betas && kinds[k].beta2)
        AF_TRY(af_nested_put(t, "adam_beta2", line, kinds[k].beta2));
    if (!af_nested_given(args, "weight_decay"))
        AF_TRY(af_nested_put(t, "weight_decay", line, kinds[k].decay));
    if (!af_nested_given(args, "lr"))
        AF_TRY(af_nested_put(t, "learning_rate", line, kinds[k].rate));
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml *v = af_nested_given(args, keys[i][0]);
        if (v)
            AF_TRY(af_translate_put(t, keys[i][1], v->line, v));
    }
    if (betas)
        AF_TRY(put_betas(t, betas));
done:
    return st;
}
