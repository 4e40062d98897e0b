/* run_axolotl.c - what Axolotl has for keys that its file lacks. Its names are afinar's, and so are
 * most of its defaults. */
#include "train/run/run_keys.h"

/* Keys of Axolotl alone, in a file of no other trainer: it was written for Axolotl. */
static bool is_axolotl(const af_run_config *r)
{
    const af_idle_keys *const lists[] = {r->idle, r->instead};
    for (size_t i = 0; i < AF_LEN(lists) && r->dialect == AF_DIALECT_NONE; i++)
        for (const af_idle_key *k = lists[i] ? lists[i]->first : NULL; k; k = k->next)
            if (k->line > 0 && !af_key_find(k->key))
                return true;
    return false;
}

void af_axolotl_preset(af_run_config *r)
{
    const int64_t no_limit = 1000000000;
    if (!is_axolotl(r) || af_run_key_is_set(r, "warmup_steps") ||
        af_run_key_is_set(r, "warmup_max_steps"))
        return;
    if (af_run_key_is_set(r, "warmup_ratio")) { /* it rounds a share down */
        r->warmup_max_steps = r->warmup_ratio > 0 ? no_limit : 0;
        return;
    }
    r->warmup_ratio = 0.03;
    r->warmup_max_steps = 100;
    r->axolotl_warmup = true;
}
