/* run_translate.c - keys of other trainers whose values, maps or combinations mean something here.
 */
#include "base/base.h"
#include "base/file.h"
#include "base/log.h"
#include "format/hub/hub_name.h"
#include "train/run/run_config.h"
#include "train/run/run_translation.h"

#include <inttypes.h>

/* ---- nodes ---- */

af_yaml *af_translate_scalar(const af_translation *t, int line, const char *text)
{
    af_yaml *n = af_arena_take(t->mem, sizeof *n);
    if (n)
        *n = (af_yaml){.kind = AF_YAML_SCALAR, .line = line, .text = af_arena_strdup(t->mem, text)};
    return n && n->text ? n : NULL;
}

static bool grow(af_translation *t)
{
    if (t->out->count < t->room)
        return true;
    const int room = 2 * t->room + 16;
    const char **key = af_arena_take(t->mem, (uint64_t)room * sizeof *key);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)room * sizeof *item);
    int *line = af_arena_take(t->mem, (uint64_t)room * sizeof *line);
    if (!key || !item || !line)
        return false;
    for (int i = 0; i < t->out->count; i++) {
        key[i] = t->out->key[i];
        item[i] = t->out->item[i];
        line[i] = t->out->key_line[i];
    }
    t->out->key = key;
    t->out->item = item;
    t->out->key_line = line;
    t->room = room;
    return true;
}

af_status af_translate_put(af_translation *t, const char *key, int line, const af_yaml *n)
{
    if (!n || !grow(t))
        return af_fail_nomem(t->err, key, sizeof *n);
    const int i = t->out->count++;
    t->out->key[i] = key;
    t->out->key_line[i] = line;
    t->out->item[i] = (af_yaml *)n;
    return AF_OK;
}

/* ---- values ---- */

/* A value that asks for one of ours. A NULL key: the value asks for nothing. */
static const struct {
    const char *key, *value, *ours, *as;
} values[] = {
    {"quantization_bit", "4", "load_in_4bit", "true"},
    {"quantization_bit", "8", "load_in_8bit", "true"},
    {"pissa_init", "false", NULL, NULL},
    {"mode", "min", "greater_is_better", "false"},
    {"mode", "max", "greater_is_better", "true"},
    {"lora_bias", "none", NULL, NULL},
    {"use_muon", "true", "optimizer", "muon"},
    {"use_muon", "false", NULL, NULL},
    {"use_apollo", "true", "optimizer", "apollo"},
    {"use_apollo", "false", NULL, NULL},
    {"use_galore", "true", "optimizer", "galore"},
    {"use_galore", "false", NULL, NULL},
    {"apollo_target", "all", NULL, NULL}, /* the default */
    {"galore_target", "all", NULL, NULL},
    {"apollo_proj", "random", NULL, NULL},
    {"apollo_proj_type", "std", NULL, NULL},
    {"use_adam_mini", "true", "optimizer", "adam_mini"},
    {"use_adam_mini", "false", NULL, NULL},
    {"lora_target", "all", "lora_target", "all-linear"},
    {"lora_target_modules", "all", "lora_target_modules", "all-linear"},
    {"oft_target", "all", "oft_target", "all-linear"},
    {"target_modules", "all", "target_modules", "all-linear"},
    {"disable_gradient_checkpointing", "true", "gradient_checkpointing", "false"},
    {"disable_gradient_checkpointing", "false", "gradient_checkpointing", "true"},
    {"enable_activation_checkpointing", "true", "gradient_checkpointing", "true"},
    {"enable_activation_checkpointing", "false", "gradient_checkpointing", "false"},
    {"bf16", "full", "bf16", "true"},                /* Axolotl: evaluations in bf16, too */
    {"adafactor", "true", "optimizer", "adafactor"}, /* older TrainingArguments */
    {"adafactor", "false", NULL, NULL},
    {"gradient_checkpointing", "unsloth", "gradient_checkpointing", "true"},
    {"gradient_checkpointing", "offload", "activation_offloading", "true"},
    {"gradient_checkpointing", "offload_disk", "activation_offloading", "true"},
    {"activation_offloading", "legacy", "activation_offloading", "true"},
    {"activation_offloading", "disk", "activation_offloading", "true"},
    {"activation_offloading", "hidden_states", "activation_offloading", "true"},
    {"tf32", "auto", NULL, NULL},
    {"generate_samples", "true", NULL, NULL}, /* Axolotl: a switch, without prompts */
    {"generate_samples", "false", NULL, NULL},
    {"curriculum_sampling", "true", "shuffle", "false"},
    {"curriculum_sampling", "false", NULL, NULL},
    {"disable_shuffling", "true", "shuffle", "false"},
    {"disable_shuffling", "false", "shuffle", "true"},
    {"mask_prompt", "false", "train_on_inputs", "true"},
    {"train_on_completions", "true", "train_on_inputs", "false"},
    {"train_on_completions", "false", "train_on_inputs", "true"},
    {"use_peft", "true", "adapter", "lora"},
    {"use_peft", "false", "adapter", "full"},
    {"loss_type", "nll", NULL, NULL}, /* TRL's SFT; in pieces, the same loss */
    {"loss_type", "chunked_nll", NULL, NULL},
    {"loss_type", "dft", "use_dft_loss", "true"},
    {"train_sampling_strategy", "sequential", "shuffle", "false"},
    {"stage", "dpo", "rl", "dpo"},
    {"stage", "kto", "rl", "kto"},
    {"stage", "rm", "rl", "reward"},
    {"reward_model", "true", "rl", "reward"}, /* Axolotl's; in other files a path, for PPO */
    {"pref_loss", "sigmoid", "dpo_loss_type", "sigmoid"},
    {"pref_loss", "hinge", "dpo_loss_type", "hinge"},
    {"pref_loss", "ipo", "dpo_loss_type", "ipo"},
    {"pref_loss", "orpo", NULL, NULL}, /* see stage_loss */
    {"pref_loss", "simpo", NULL, NULL},
    {"training_type", "lora", "adapter", "lora"}, /* Unsloth */
    {"training_type", "full", "adapter", "full"},
    {"peft_init_lora_weights", "true", "peft_init_lora_weights", "true"}, /* in any spelling */
    {"init_lora_weights", "true", "peft_init_lora_weights", "true"},
    {"resume_from_checkpoint", "true", "resume_from_checkpoint", "true"},
    {"resume_from_checkpoint", "false", "resume_from_checkpoint", "false"},
    {"r", NULL, "lora_r", NULL}, /* of Unsloth's Python, as the next ones */
    {"full_finetuning", "true", "adapter", "full"},
    {"full_finetuning", "false", NULL, NULL},
    {"use_gradient_checkpointing", "unsloth", "gradient_checkpointing", "true"},
    {"use_gradient_checkpointing", NULL, "gradient_checkpointing", NULL},
    {"use_loftq", "true", "peft_init_lora_weights", "loftq"},
    {"use_loftq", "false", NULL, NULL},
    {"enable_wandb", "true", "report_to", "wandb"},
    {"enable_wandb", "false", NULL, NULL},
    {"use_4bit", "true", "load_in_4bit", "true"}, /* of scripts around bitsandbytes */
    {"use_4bit", "false", NULL, NULL},
    {"random_seed", NULL, "seed", NULL},
    {"random_state", NULL, "seed", NULL}, /* any value: another name in code, not in files */
};

bool af_translate_says(const af_yaml *n, const char *want)
{
    const af_yaml w = {.kind = AF_YAML_SCALAR, .text = want};
    bool is, must;
    if (n->kind == AF_YAML_LIST && n->count == 1)
        n = n->item[0]; /* [all] */
    if (n->kind != AF_YAML_SCALAR)
        return false;
    if (af_yaml_bool(&w, &must))
        return af_yaml_bool(n, &is) && is == must;
    return strcmp(n->text, want) == 0;
}

/* True when the entry was translated. */
static bool translate_value(af_translation *t, int i, af_status *st)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    for (size_t v = 0; v < AF_LEN(values); v++) {
        if (strcmp(values[v].key, key) != 0)
            continue;
        if (!values[v].value) {
            *st = af_translate_put(t, values[v].ours, line, n);
            return true;
        }
        if (!af_translate_says(n, values[v].value))
            continue;
        if (values[v].ours)
            *st = af_translate_put(t, values[v].ours, line,
                                   af_translate_scalar(t, n->line, values[v].as));
        return true;
    }
    return false;
}

/* ---- maps of settings ---- */

/* A key inside a map; other keys of the map stand for themselves. NULL: it does not matter here. */
static const struct {
    const char *map, *key, *ours;
} inner[] = {
    {"peft_config", "name", "adapter"},
    {"peft_config", "r", "lora_r"},
    {"peft_config", "export_dir", NULL},
    {"peft_config", "export_size", NULL},
    {"peft_config", "export_hub_model_id", NULL},
    {"peft_config", "export_legacy_format", NULL},
    {"peft_config", "infer_dtype", NULL},
    {"quant_config", "name", "quantization_method"},
    {"peft_config", "peft_type", "adapter"},
    {"lr_scheduler_kwargs", "min_lr_rate", "cosine_min_lr_ratio"},
    {"lr_scheduler_kwargs", "min_lr_ratio", "cosine_min_lr_ratio"},
    {"lr_scheduler_kwargs", "num_cycles", "lr_cycles"},
    {"lr_scheduler_kwargs", "power", "lr_power"},
    {"lr_scheduler_kwargs", "factor", "lr_gamma"},
    {"lr_scheduler_kwargs", "patience", "lr_patience"},
    {"lr_scheduler_kwargs", "threshold", "lr_threshold"},
    {"lr_scheduler_kwargs", "cooldown", "lr_cooldown"},
    {"lr_scheduler_kwargs", "warmup", "lr_rise_cooldown"}, /* greedy */
    {"lr_scheduler_kwargs", "max_lr", "lr_max"},
    {"lr_scheduler_kwargs", "smooth", "lr_smooth"},
    {"lr_scheduler_kwargs", "window_size", "lr_window"},
    {"lr_scheduler_kwargs", "reset_start", "lr_reset"},
    {"lr_scheduler_kwargs", "verbose", NULL},
    {"lora_parameters", "rank", "lora_r"},
    {"lora_parameters", "scale", NULL}, /* see af_mlx_scale */
    {"lora_parameters", "alpha", NULL},
    {"lora_parameters", "dropout", "lora_dropout"},
    {"lora_parameters", "keys", "lora_target_modules"},
};
static const char *const maps[] = {"peft_config",     "quant_config", "lr_scheduler_kwargs",
                                   "lora_parameters", "kt_config",    "model_init_kwargs"};

static af_status translate_map(af_translation *t, const char *map, const af_yaml *n)
{
    af_status st = AF_OK;
    af_translation part = *t;
    af_yaml flat = *n; /* the map with our names, for the values in it */
    int count = 0;
    flat.key = af_arena_take(t->mem, (uint64_t)AF_MAX(n->count, 1) * sizeof *flat.key);
    flat.item = af_arena_take(t->mem, (uint64_t)AF_MAX(n->count, 1) * sizeof *flat.item);
    flat.key_line = af_arena_take(t->mem, (uint64_t)AF_MAX(n->count, 1) * sizeof *flat.key_line);
    if (!flat.key || !flat.item || !flat.key_line)
        return af_fail_nomem(t->err, map, (uint64_t)n->count * sizeof *n);
    for (int i = 0; i < n->count; i++) {
        const char *as = n->key[i];
        for (size_t k = 0; k < AF_LEN(inner); k++)
            if (strcmp(inner[k].map, map) == 0 && strcmp(inner[k].key, n->key[i]) == 0)
                as = inner[k].ours;
        if (!as)
            continue;
        flat.key[count] = as;
        flat.key_line[count] = n->key_line[i];
        flat.item[count++] = n->item[i];
    }
    flat.count = count;
    part.root = &flat;
    for (int i = 0; i < count && st == AF_OK; i++)
        if (!translate_value(&part, i, &st))
            st = af_translate_put(&part, flat.key[i], flat.key_line[i], flat.item[i]);
    t->out = part.out;
    t->room = part.room;
    return st;
}

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

/* Whether a map has only keys of the list, which NULL ends, and one at least. */
static bool has_only(const af_yaml *n, const char *const *keys)
{
    bool all = n->count > 0;
    for (int i = 0; i < n->count; i++) {
        bool one = false;
        for (const char *const *k = keys; *k && !one; k++)
            one = is(n->key[i], *k);
        all &= one;
    }
    return all;
}

static bool is_map_of_settings(const char *key, const af_yaml *n)
{
    static const char *const beta[] = {"beta", "rl_beta", NULL};
    static const char *const of_model[] = {"model_config", "overrides_of_model_config",
                                           "model_kwargs", "overrides_of_model_kwargs"};
    /* Of a model's config, what is a key here, or changes nothing that is learnt. */
    static const char *const read[] = {
        "rope_scaling",      "output_router_logits", "router_aux_loss_coef", "attention_dropout",
        "use_cache",         "attn_implementation",  "torch_dtype",          "dtype",
        "low_cpu_mem_usage", "device_map",           "trust_remote_code",    NULL};
    if (n->kind != AF_YAML_MAP)
        return false;
    for (size_t i = 0; i < AF_LEN(of_model); i++)
        if (is(of_model[i], key))
            return has_only(n, read);
    if (is(key, "trl")) /* Axolotl's; other keys are of generated answers */
        return has_only(n, beta);
    for (size_t i = 0; i < AF_LEN(maps); i++)
        if (is(maps[i], key))
            return true;
    return false;
}

/* ---- several keys together ---- */

const char *af_translate_loc(const af_translation *t, int line, char buf[300])
{
    if (line > 0)
        snprintf(buf, 300, "%.250s:%d", t->name, line);
    else
        snprintf(buf, 300, "%.250s", t->name);
    return buf;
}

int64_t af_translate_whole(const af_yaml *root, const char *key, int64_t otherwise)
{
    const af_yaml *n = af_yaml_get(root, key);
    int64_t v;
    return n && af_yaml_i64(n, &v) ? v : otherwise;
}

/* A number in place of the i-th entry. */
af_status af_translate_number(af_translation *t, const char *key, int i, int64_t v)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    return af_translate_put(t, key, t->root->key_line[i],
                            af_translate_scalar(t, t->root->item[i]->line, text));
}

/* Rows of a whole step and rows of a pass: how many passes there are. Axolotl's batch_size
 * (without micro_batch_size it is the rows of a pass), and global_batch_size. */
static af_status translate_batch(af_translation *t, int i, int64_t micro)
{
    char at[300];
    const char *key = t->root->key[i];
    const int64_t all = af_translate_whole(t->root, key, 0);
    const af_yaml *passes = af_yaml_get(t->root, "gradient_accumulation_steps");
    if (passes && !af_yaml_is_null(passes))
        return af_fail(t->err, AF_EUSAGE,
                       "%s: %s and gradient_accumulation_steps contradict each other: give one",
                       af_translate_loc(t, t->root->key_line[i], at), key);
    if (all < micro || micro < 1)
        return af_fail(t->err, AF_EUSAGE, "%s: %s is %" PRId64 ", less than micro_batch_size",
                       af_translate_loc(t, t->root->key_line[i], at), key, all);
    if (all % micro)
        af_log_write(AF_LOG_WARN,
                     "%s: %s %" PRId64 " is not a multiple of micro_batch_size %" PRId64
                     ": a step has %" PRId64 " rows",
                     af_translate_loc(t, t->root->key_line[i], at), key, all, micro,
                     all / micro * micro);
    return af_translate_number(t, "gradient_accumulation_steps", i, all / micro);
}

/* Axolotl's `peft: {loftq_config: {loftq_bits: 4}}`: the base becomes its 4-bit values, the adapter
 * begins as their error. Other bits are not supported. */
static bool is_loftq(const af_yaml *peft)
{
    static const char *const known[] = {"loftq_bits", "loftq_iter", NULL};
    const af_yaml *config =
        peft && peft->kind == AF_YAML_MAP ? af_yaml_get(peft, "loftq_config") : NULL;
    return config && peft->count == 1 && config->kind == AF_YAML_MAP &&
           (config->count == 0 || has_only(config, known)) &&
           af_translate_whole(config, "loftq_bits", 4) == 4 &&
           af_translate_whole(config, "loftq_iter", 1) == 1;
}

static af_status put_loftq(af_translation *t, int i)
{
    const int line = t->root->key_line[i];
    const af_status st =
        af_translate_put(t, "peft_init_lora_weights", line, af_translate_scalar(t, line, "loftq"));
    return st == AF_OK
               ? af_translate_put(t, "load_in_4bit", line, af_translate_scalar(t, line, "true"))
               : st;
}

static const char *const base_keys[] = {"base_model", "model_name_or_path", "model"};

static bool names_base(const char *key)
{
    bool base = false;
    for (size_t i = 0; i < AF_LEN(base_keys); i++)
        base |= is(key, base_keys[i]);
    return base;
}

/* The revision of a model of the hub, unless its name has one; NULL where there is nothing to say:
 * a folder has no revisions. */
static const char *revision_of(const af_yaml *root, const af_yaml *model)
{
    const af_yaml *r = af_yaml_get(root, "model_revision"); /* TRL, LLaMA-Factory */
    r = r ? r : af_yaml_get(root, "revision_of_model");     /* Axolotl */
    if (!r || r->kind != AF_YAML_SCALAR || af_yaml_is_null(r) || is(r->text, "main"))
        return NULL;
    return model->kind == AF_YAML_SCALAR && af_hub_is_name(model->text) &&
                   !strchr(model->text, '@') && !af_dir_exists(model->text)
               ? r->text
               : NULL;
}

/* Whether the key is a revision that became part of the model's name. */
static bool is_taken(const af_yaml *root, const char *key)
{
    bool taken = false;
    for (size_t i = 0; i < AF_LEN(base_keys); i++) {
        const af_yaml *m = af_yaml_get(root, base_keys[i]);
        taken |= m && revision_of(root, m);
    }
    return taken && (is(key, "model_revision") || is(key, "revision_of_model"));
}

static af_status put_revised(af_translation *t, int i, const char *revision)
{
    const af_yaml *n = t->root->item[i];
    char text[AF_HUB_NAME_MAX + AF_HUB_REV_MAX + 2];
    if ((size_t)snprintf(text, sizeof text, "%s@%s", n->text, revision) >= sizeof text)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: the revision '%.40s...' is too long", t->name,
                       t->root->key_line[i], revision);
    return af_translate_put(t, t->root->key[i], t->root->key_line[i],
                            af_translate_scalar(t, n->line, text));
}

/* The model's own tokenizer or config, or the model as its reference, by its name. */
static bool names_the_model(const af_yaml *root, const char *key, const af_yaml *n)
{
    static const char *const keys[] = {"tokenizer_config", "tokenizer_name_or_path",
                                       "tokenizer_name", "base_model_config", "ref_model"};
    bool same = false, asked = false;
    for (size_t i = 0; i < AF_LEN(keys); i++)
        asked |= is(key, keys[i]);
    for (size_t i = 0; asked && i < AF_LEN(base_keys); i++) {
        const af_yaml *m = af_yaml_get(root, base_keys[i]);
        same |= m && m->kind == AF_YAML_SCALAR && n->kind == AF_YAML_SCALAR && is(m->text, n->text);
    }
    return same;
}

/* TRL: two masks of the loss. The one of assistants is for every conversation, the one of
 * completions for records that have prompt and completion apart, and on for these by default. NULL
 * when the entry is another key. */
static const char *loss_part(const af_yaml *root, const char *key, const af_yaml *n, bool *idle)
{
    const af_yaml *assistant = af_yaml_get(root, "assistant_only_loss");
    const bool trl = af_dialect_of(root) == AF_DIALECT_TRL, on = af_translate_says(n, "true");
    if (!on && !af_translate_says(n, "false"))
        return NULL;
    if (is(key, "assistant_only_loss")) {
        const af_yaml *completion = af_yaml_get(root, "completion_only_loss");
        *idle = !on && completion && !af_yaml_is_null(completion);
        return on ? "false" : "auto";
    }
    *idle = assistant && af_translate_says(assistant, "true");
    return !is(key, "completion_only_loss") ? NULL : !on ? "true" : trl ? "auto" : "false";
}

/* LLaMA-Factory: stage dpo with a loss that has no reference is another training here. */
static const char *stage_loss(const af_yaml *root, const char *key, const af_yaml *n)
{
    const af_yaml *loss = af_yaml_get(root, "pref_loss");
    if (!is(key, "stage") || !af_translate_says(n, "dpo") || !loss)
        return NULL;
    return af_translate_says(loss, "orpo")    ? "orpo"
           : af_translate_says(loss, "simpo") ? "simpo"
                                              : NULL;
}

/* Whether the file says which adapter: 'use_peft: true' says nothing more. */
static bool names_adapter(const af_yaml *root)
{
    static const char *const adapters[] = {"lora", "qlora", "dora", "oft"};
    const af_yaml *n = af_yaml_get(root, "adapter");
    bool named = false;
    for (size_t i = 0; n && i < AF_LEN(adapters); i++)
        named |= af_translate_says(n, adapters[i]);
    return named;
}

/* LLaMA-Factory: the start with so many power iterations, with -1 the exact decomposition. */
static bool translate_pissa(af_translation *t, int i, af_status *st)
{
    const af_yaml *init = af_yaml_get(t->root, "pissa_init");
    const int64_t n = af_translate_whole(t->root, "pissa_iter", 16);
    const int line = t->root->key_line[i];
    char text[40] = "pissa";
    if (!init || !af_translate_says(init, "true") || strncmp(t->root->key[i], "pissa_i", 7) != 0)
        return false;
    if (n != -1)
        snprintf(text, sizeof text, "pissa_niter_%" PRId64, n);
    if (t->root->item[i] == init)
        *st =
            af_translate_put(t, "peft_init_lora_weights", line, af_translate_scalar(t, line, text));
    return true;
}

static af_status translate_entry(af_translation *t, int i)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    af_status st = AF_OK;
    if (af_yaml_is_null(n) && is(key, "max_length") && t->run->dialect == AF_DIALECT_TRL)
        return af_translate_number(t, key, i, AF_SEQUENCE_UNLIMITED); /* None: nothing is cut */
    if (af_yaml_is_null(n))
        return af_translate_put(t, key, line, n);
    const char *why;
    if (line > 0 && af_foreign_is_left_over(t->root, key, &why))
        return af_run_idle_add(t->run, key, line, why, t->err);
    if (af_autotrain_translate(t, i, &st))
        return st;
    if (is(key, "batch_size") && af_yaml_get(t->root, "micro_batch_size"))
        return translate_batch(t, i, af_translate_whole(t->root, "micro_batch_size", 1));
    if (is(key, "global_batch_size"))
        return translate_batch(t, i, af_translate_whole(t->root, "micro_batch_size", 1));
    if (is(key, "batch_size"))
        return af_translate_put(t, "micro_batch_size", line, n);
    if (is(key, "neat_packing") && af_translate_says(n, "false") && af_yaml_get(t->root, "packing"))
        return AF_OK; /* LLaMA-Factory: how rows are packed, not whether */
    if (is(key, "use_peft") && af_translate_says(n, "true") && names_adapter(t->root))
        return AF_OK;
    if (is(key, "peft") && is_loftq(n))
        return put_loftq(t, i);
    if (is(key, "load_in_4bit") && is_loftq(af_yaml_get(t->root, "peft")))
        return AF_OK; /* there it says how the base is loaded, before it is changed */
    if (af_optim_args_translate(t, i, &st) || af_optimizer_translate(t, i, &st) ||
        translate_pissa(t, i, &st) || af_simpo_translate(t, i, &st) ||
        af_mlx_translate(t, i, &st) || af_swift_translate(t, i, &st) ||
        af_unsloth_translate(t, i, &st) || af_trl_translate(t, i, &st))
        return st;
    if (names_base(key) && revision_of(t->root, n))
        return put_revised(t, i, revision_of(t->root, n));
    if (is(key, "tokens") && n->kind == AF_YAML_MAP) /* an older Axolotl's special_tokens */
        return af_translate_put(t, "special_tokens", line, n);
    if (names_the_model(t->root, key, n) || is_taken(t->root, key))
        return AF_OK;
    bool idle = false;
    const char *part = loss_part(t->root, key, n, &idle);
    if (part)
        return idle ? AF_OK
                    : af_translate_put(t, "train_on_inputs", line,
                                       af_translate_scalar(t, n->line, part));
    if (stage_loss(t->root, key, n))
        return af_translate_put(t, "rl", line,
                                af_translate_scalar(t, n->line, stage_loss(t->root, key, n)));
    if (is(key, "lora_parameters") && n->kind == AF_YAML_MAP)
        st = af_mlx_scale(t, n);
    if (st == AF_OK && is_map_of_settings(key, n))
        return translate_map(t, key, n);
    if (st != AF_OK || translate_value(t, i, &st))
        return st;
    return af_translate_put(t, key, line, n);
}

/* Files that are of another form altogether: a list of their unknown keys would say nothing. */
static af_status check_form(const af_yaml *root, const char *name, af_error *err)
{
    static const char *const marks[][2] = {
        {"_target_", "NeMo AutoModel, which have a 'model' and a 'step_scheduler'"},
        {"_component_", "torchtune, whose 'checkpointer' names the model"},
        {"class_path", "LitGPT, which have a 'checkpoint_dir' and 'train', 'lora_...' or 'data'"}};
    const af_yaml *training = af_yaml_get(root, "training");
    for (int i = 0; i < root->count; i++) {
        const bool map = root->item[i]->kind == AF_YAML_MAP;
        for (size_t k = 0; map && k < AF_LEN(marks); k++)
            if (af_yaml_get(root->item[i], marks[k][0]))
                return af_fail(err, AF_EUNSUPPORTED,
                               "%s:%d: '%s' has a '%s', as in files of %s: there is none", name,
                               root->key_line[i], root->key[i], marks[k][0], marks[k][1]);
        if (map && root->item[i] == training && af_dialect_of(root) != AF_DIALECT_UNSLOTH)
            return af_fail(err, AF_EUNSUPPORTED,
                           "%s:%d: sections ('training', 'lora') are Unsloth's, whose files have "
                           "'model' in place of '%s'",
                           name, root->key_line[i],
                           af_yaml_get(root, "base_model") ? "base_model" : "model_name_or_path");
    }
    return AF_OK;
}

/* Those whose keys are all in maps. */
static const struct {
    af_dialect dialect;
    bool (*is_file)(const af_yaml *root);
    af_status (*join)(const af_yaml **out, const af_translation *t);
} nested[] = {{AF_DIALECT_TORCHTUNE, af_torchtune_is_file, af_torchtune_join},
              {AF_DIALECT_OUMI, af_oumi_is_file, af_oumi_join},
              {AF_DIALECT_LITGPT, af_litgpt_is_file, af_litgpt_join},
              {AF_DIALECT_AUTOMODEL, af_automodel_is_file, af_automodel_join}};

af_status af_run_translate(af_yaml **out, const af_yaml *root, af_run_config *run, const char *name,
                           af_error *err)
{
    af_arena *mem = &run->mem;
    af_translation t = {.root = root, .mem = mem, .name = name, .run = run, .err = err};
    af_status st = af_json_maps_open(&t.root, &t);
    size_t k = 0;
    while (k < AF_LEN(nested) && !(run->dialect == nested[k].dialect && nested[k].is_file(root)))
        k++;
    if (st == AF_OK)
        st = k < AF_LEN(nested) ? nested[k].join(&t.root, &t) : check_form(root, name, err);
    if (st == AF_OK && (run->dialect == AF_DIALECT_UNSLOTH || run->dialect == AF_DIALECT_AUTOTRAIN))
        st = af_sections_join(&t.root, &t);
    root = t.root;
    t.out = af_arena_take(mem, sizeof *t.out);
    if (!t.out)
        return af_fail_nomem(err, name, sizeof *t.out);
    *t.out = (af_yaml){.kind = AF_YAML_MAP, .line = root->line};
    for (int i = 0; i < root->count && st == AF_OK; i++)
        st = translate_entry(&t, i);
    *out = t.out;
    return st;
}
