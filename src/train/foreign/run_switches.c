/* run_switches.c - keys that another key switches on. In a file where it is off they are left over,
 * and their own trainer does not read them, either. */
#include "base/word.h"
#include "train/run/run_keys.h"
#include "train/run/run_translation.h"

#include <math.h>

/* Keys that begin with `prefix` are read where one of `switches` is on; where `values` is given,
 * where the first of them that the file has is one of these. `why` says so. */
static const struct {
    const char *prefix, *switches, *values, *why;
} rows[] = {
    {"galore_layerwise", "use_galore optimizer optim", "true True yes galore galore_adamw",
     "without 'use_galore: true'"},
    {"badam_", "use_badam", NULL, "without 'use_badam: true'"},
    {"apollo_proj", "use_apollo optimizer optim", "true True yes apollo apollo_adamw",
     "without 'use_apollo: true'"},
    {"apollo_layerwise", "use_apollo optimizer optim", "true True yes apollo apollo_adamw",
     "without 'use_apollo: true'"},
    {"relora_", "relora relora_steps", NULL, "without 'relora'"},
    {"lisa_", "lisa_n_layers", NULL, "without 'lisa_n_layers'"},
    {"mixlora_", "mixlora_num_experts", NULL, "without 'adapter: mixlora'"},
    {"create_new_adapter", "adapter_name_or_path", NULL, "without 'adapter_name_or_path'"},
    {"bnb_4bit_quant_type", "load_in_4bit quant_bits quantization_bit use_4bit adapter", NULL,
     "without 'load_in_4bit: true'"},
    {"quantization_method", "quantization_bit load_in_4bit load_in_8bit quant_bits adapter", NULL,
     "without 'quantization_bit'"},
    {"quantization_type", "quantization_bit load_in_4bit adapter", NULL,
     "without 'quantization_bit'"},
    {"ppo_", "stage", "ppo", "without 'stage: ppo'"},
    {"reward_model", "stage", "ppo", "without 'stage: ppo'"},
    {"ref_model", "stage", "dpo kto ppo", "without 'stage: dpo' or 'kto'"},
    {"pref_", "stage", "dpo kto", "without 'stage: dpo' or 'kto'"},
    {"max_completion_length", "rl", "dpo ipo none reward",
     "only models with an encoder read it in this training"},
};

static bool is_on(const af_yaml *n)
{
    double v;
    return n && !af_yaml_is_null(n) && !af_translate_says(n, "false") &&
           !(af_yaml_f64(n, &v) && fpclassify(v) == FP_ZERO);
}

/* The next of the words at *at, or NULL. */
static const char *next(const char **at, char *word, size_t size)
{
    *at += strspn(*at, " ");
    const size_t n = strcspn(*at, " ");
    if (n == 0 || n >= size)
        return NULL;
    memcpy(word, *at, n);
    word[n] = 0;
    *at += n;
    return word;
}

static bool reads(const af_yaml *root, const char *switches, const char *values)
{
    char word[64];
    bool any = false, given = false;
    for (const char *at = switches; next(&at, word, sizeof word);) {
        const af_yaml *n = af_yaml_get(root, word);
        const bool text = n && n->kind == AF_YAML_SCALAR && !af_yaml_is_null(n);
        given |= text;
        any |= values ? text && af_word_listed(n->text, values) : is_on(n);
    }
    if (!given && strcmp(switches, "rl") == 0) { /* in a name that TRL's files give their result */
        const char *name;
        const af_rl rl = af_dialect_rl(root, &name);
        given = rl != AF_RL_NONE;
        any = given && af_word_listed(af_key_choice_name(af_key_find("rl"), (int)rl), values);
    }
    return any || (values && !given);
}

bool af_foreign_is_left_over(const af_yaml *root, const char *key, const char **why)
{
    for (size_t i = 0; i < AF_LEN(rows); i++) {
        if (strncmp(key, rows[i].prefix, strlen(rows[i].prefix)) != 0 ||
            af_word_listed(key, rows[i].switches))
            continue;
        if (rows[i].values && strcmp(rows[i].switches, "rl") != 0 && af_yaml_get(root, "rl"))
            continue; /* 'rl' decides */
        *why = rows[i].why;
        return !reads(root, rows[i].switches, rows[i].values);
    }
    return false;
}

void af_run_note_name(af_run_config *r, const af_key *k)
{
    if (!k)
        return;
    r->adapter_is_named |= strcmp(k->name, "adapter") == 0;
    r->rl_is_named |= af_word_listed(k->name, "rl stage");
    r->weight_is_named |= af_word_listed(k->name, "use_eaft use_eaft_loss");
    r->anchor_is_named |= strcmp(k->name, "use_asft_loss") == 0;
}

bool af_run_is_left_over(const af_run_config *r, af_key_need need)
{
    return (r->rl_is_named && need >= AF_NEED_RL && need <= AF_NEED_REWARD) ||
           (r->weight_is_named && need == AF_NEED_EAFT) ||
           (r->anchor_is_named && need == AF_NEED_ASFT);
}
