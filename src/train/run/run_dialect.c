/* run_dialect.c - whose run file it is, and what a missing key means there. */
#include "base/file.h"
#include "dist/launcher.h"
#include "train/run/freeze.h"
#include "train/run/run_keys.h"
#include "train/run/run_translation.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <strings.h>

static bool has_any(const af_yaml *root, const char *const *keys)
{
    for (; *keys; keys++)
        if (af_yaml_get(root, *keys))
            return true;
    return false;
}

af_dialect af_dialect_of(const af_yaml *root)
{
    static const char *const v1[] = {"train_dataset", "model_class", "peft_config",
                                     "kernel_config", "dist_config", NULL};
    static const char *const factory[] = {"stage",       "finetuning_type",  "template",
                                          "cutoff_len",  "lora_target",      "lora_rank",
                                          "dataset_dir", "quantization_bit", NULL};
    static const char *const trl[] = {"dataset_name",
                                      "dataset_mixture",
                                      "dataset_mixer",
                                      "use_peft",
                                      "torch_dtype",
                                      "per_device_train_batch_size",
                                      "num_train_epochs",
                                      "dataset_train_split",
                                      "per_device_eval_batch_size",
                                      "lr_scheduler_type",
                                      "max_length",
                                      "assistant_only_loss",
                                      "completion_only_loss",
                                      "dataset_num_proc",
                                      "attn_implementation",
                                      "dataset_id_or_path",
                                      "dtype",
                                      NULL};
    static const char *const mlx[] = {"fine_tune_type", "lora_parameters", "iters",
                                      "num_layers",     "lora_layers",     NULL};
    static const char *const swift[] = {"tuner_type",  "train_type",          "sft_type",
                                        "rlhf_type",   "quant_bits",          "attn_impl",
                                        "val_dataset", "split_dataset_ratio", "tuner_backend",
                                        NULL};
    static const char *const unsloth[] = {"training_type", "local_dataset", "format_type",
                                          "train_on_completions", NULL};
    if (root->kind == AF_YAML_MAP && af_autotrain_is_file(root))
        return AF_DIALECT_AUTOTRAIN;
    if (root->kind == AF_YAML_MAP && af_torchtune_is_file(root))
        return AF_DIALECT_TORCHTUNE;
    if (root->kind == AF_YAML_MAP && af_oumi_is_file(root))
        return AF_DIALECT_OUMI;
    if (root->kind == AF_YAML_MAP && af_litgpt_is_file(root))
        return AF_DIALECT_LITGPT;
    if (root->kind == AF_YAML_MAP && af_automodel_is_file(root))
        return AF_DIALECT_AUTOMODEL;
    if (root->kind != AF_YAML_MAP || af_yaml_get(root, "base_model"))
        return AF_DIALECT_NONE;
    if (af_yaml_get(root, "model"))
        return has_any(root, v1)      ? AF_DIALECT_LLAMA_FACTORY_V1
               : has_any(root, mlx)   ? AF_DIALECT_MLX
               : has_any(root, swift) ? AF_DIALECT_SWIFT
               : af_unsloth_has_sections(root) || has_any(root, unsloth) ? AF_DIALECT_UNSLOTH
                                                                         : AF_DIALECT_NONE;
    if (!af_yaml_get(root, "model_name_or_path"))
        return AF_DIALECT_NONE;
    return has_any(root, factory) ? AF_DIALECT_LLAMA_FACTORY
           : has_any(root, trl)   ? AF_DIALECT_TRL
                                  : AF_DIALECT_NONE;
}

/* Whether the word is in the text, between characters that are not letters. */
static bool names(const char *text, const char *word)
{
    const size_t len = strlen(word);
    for (const char *at = text; *at; at++)
        if (strncasecmp(at, word, len) == 0 && (at == text || !isalnum((unsigned char)at[-1])) &&
            !isalpha((unsigned char)at[len]))
            return true;
    return false;
}

af_rl af_dialect_rl(const af_yaml *root, const char **name)
{
    static const char *const keys[] = {"output_dir", "hub_model_id", "run_name"};
    static const af_rl kinds[] = {AF_RL_DPO, AF_RL_KTO, AF_RL_ORPO, AF_RL_SIMPO, AF_RL_CPO};
    af_rl found = AF_RL_NONE;
    for (size_t i = 0; root->kind == AF_YAML_MAP && i < AF_LEN(keys) * AF_LEN(kinds); i++) {
        const af_yaml *n = af_yaml_get(root, keys[i % AF_LEN(keys)]);
        const af_rl rl = kinds[i / AF_LEN(keys)];
        if (!n || n->kind != AF_YAML_SCALAR ||
            !names(n->text, af_key_choice_name(af_key_find("rl"), (int)rl)))
            continue;
        if (found != AF_RL_NONE && found != rl)
            return AF_RL_NONE;
        found = rl;
        *name = n->text;
    }
    return found;
}

bool af_chooses_optimizer(const char *key)
{
    return key && (strcmp(key, "use_adam_mini") == 0 || strcmp(key, "use_muon") == 0 ||
                   strcmp(key, "use_apollo") == 0 || strcmp(key, "use_galore") == 0);
}

bool af_has_optimizer_choice(const af_yaml *root)
{
    bool any = false;
    for (int i = 0; i < root->count; i++)
        any |= af_chooses_optimizer(root->key[i]) && af_translate_says(root->item[i], "true");
    return any;
}

const char *af_dialect_name(af_dialect d)
{
    static const char *const names[] = {
        [AF_DIALECT_NONE] = NULL,
        [AF_DIALECT_LLAMA_FACTORY] = "LLaMA-Factory",
        [AF_DIALECT_LLAMA_FACTORY_V1] = "LLaMA-Factory (v1)",
        [AF_DIALECT_TRL] = "TRL",
        [AF_DIALECT_MLX] = "mlx-lm",
        [AF_DIALECT_SWIFT] = "ms-swift",
        [AF_DIALECT_UNSLOTH] = "Unsloth",
        [AF_DIALECT_AUTOTRAIN] = "AutoTrain",
        [AF_DIALECT_TORCHTUNE] = "torchtune",
        [AF_DIALECT_OUMI] = "Oumi",
        [AF_DIALECT_LITGPT] = "LitGPT",
        [AF_DIALECT_AUTOMODEL] = "NeMo AutoModel",
    };
    return names[d];
}

/* What the tools take where a key is missing: LLaMA-Factory 0.9, TRL 1, transformers 5, PEFT 0.19,
 * mlx-lm 0.32, ms-swift 4.6. Keys of logging keep our defaults. */
static const struct {
    const char *key, *factory, *v1, *trl, *mlx, *swift;
} presets[] = {
    {"adapter", "lora", NULL, NULL, "lora", "lora"},
    {"lora_r", "8", "8", NULL, "8", "8"},
    {"lora_alpha", NULL, "16", "32", "160", "32"}, /* mlx: its scale of 20, times the rank */
    {"lora_dropout", NULL, "0.05", "0.05", NULL, "0.05"},
    {"lora_target_modules", NULL, NULL, "peft-default", NULL, NULL},
    {"num_layers", NULL, NULL, NULL, "16", NULL},
    {"sequence_len", NULL, NULL, "1024", NULL, "16777216"},
    {"excess_length_strategy", NULL, NULL, NULL, NULL, "drop"},
    {"micro_batch_size", "8", "1", "8", "4", "1"},
    {"num_epochs", "3", "3", "3", NULL, "3"},
    {"max_steps", NULL, NULL, NULL, "1000", NULL},
    {"learning_rate", "5e-5", "1e-4", "2e-5", "1e-5", "1e-4"},
    {"lr_scheduler", "linear", "constant", "linear", "constant", NULL},
    {"weight_decay", NULL, "0.01", NULL, NULL, "0.1"},
    {"weight_decay_on", NULL, "all", NULL, NULL, NULL},
    {"adam_beta2", NULL, NULL, NULL, NULL, "0.95"},
    {"optimizer", NULL, NULL, NULL, "adam", NULL},
    {"adam_bias_correction", NULL, NULL, NULL, "false", NULL},
    {"train_on_inputs", NULL, NULL, "auto", "true", NULL},
    {"save_steps", "500", NULL, "500", "100", "500"},
    {"eval_steps", NULL, NULL, NULL, "200", NULL},
    {"max_grad_norm", NULL, NULL, NULL, "0", NULL},
    {"simpo_gamma", NULL, NULL, NULL, NULL, "1"},
    {"cpo_alpha", NULL, NULL, NULL, NULL, "1"},       /* of its simpo, too */
    {"kto_kl_batch", "1000", NULL, NULL, NULL, NULL}, /* its preprocessing_batch_size */
};

/* Of Unsloth's program, 2026: the defaults of its config, and what it hands to TRL's trainer. */
static const char *const unsloth_presets[][2] = {
    {"adapter", "lora"},   {"load_in_4bit", "true"},    {"lora_r", "64"},
    {"lora_alpha", "16"},  {"micro_batch_size", "2"},   {"gradient_accumulation_steps", "4"},
    {"num_epochs", "3"},   {"learning_rate", "2e-4"},   {"lr_scheduler", "linear"},
    {"warmup_steps", "5"}, {"weight_decay", "0.01"},    {"optimizer", "adamw_8bit"},
    {"seed", "3407"},      {"train_on_inputs", "true"}, {"output_dir", "outputs"},
};

/* Of AutoTrain 0.8. */
static const char *const autotrain_presets[][2] = {
    {"adapter", "full"},
    {"lora_r", "16"},
    {"lora_alpha", "32"},
    {"lora_dropout", "0.05"},
    {"sequence_len", "1024"},
    {"micro_batch_size", "2"},
    {"gradient_accumulation_steps", "4"},
    {"num_epochs", "1"},
    {"learning_rate", "3e-5"},
    {"lr_scheduler", "linear"},
    {"warmup_ratio", "0.1"},
    {"train_on_inputs", "true"},
    {"save_total_limit", "1"},
};

/* Of torchtune 0.6: its recipes, model builders and torch's optimizers. */
static const char *const torchtune_presets[][2] = {
    {"lora_r", "8"},           {"lora_alpha", "16"},         {"sequence_len", "16777216"},
    {"learning_rate", "1e-3"}, {"lr_scheduler", "constant"}, {"weight_decay_on", "all"},
    {"max_grad_norm", "0"},    {"save_strategy", "epoch"},
};

/* Of Oumi 0.9; PEFT chooses the matrices of the adapter. */
static const char *const oumi_presets[][2] = {
    {"adapter", "full"},        {"lora_r", "8"},
    {"lora_alpha", "8"},        {"lora_target_modules", "peft-default"},
    {"sequence_len", "1024"},   {"micro_batch_size", "8"},
    {"num_epochs", "3"},        {"learning_rate", "5e-5"},
    {"lr_scheduler", "linear"}, {"train_on_inputs", "true"},
    {"save_steps", "500"},      {"eval_strategy", "no"},
    {"output_dir", "output"},
};

/* Of LitGPT 0.5: its scripts finetune_lora and finetune_full, and torch's AdamW. */
static const char *const litgpt_presets[][2] = {
    {"lora_r", "8"},           {"lora_alpha", "16"},       {"lora_dropout", "0.05"},
    {"num_epochs", "5"},       {"micro_batch_size", "1"},  {"sequence_len", "16777216"},
    {"learning_rate", "1e-3"}, {"weight_decay", "0.01"},   {"weight_decay_on", "all"},
    {"warmup_steps", "100"},   {"lr_scheduler", "cosine"}, {"max_grad_norm", "0"},
    {"save_steps", "1000"},    {"logging_steps", "1"},     {"seed", "1337"},
    {"output_dir", "out"},
};

/* Of NeMo AutoModel 0.7. */
static const char *const automodel_presets[][2] = {
    {"adapter", "full"},          {"lora_r", "8"},
    {"lora_alpha", "32"},         {"sequence_len", "16777216"},
    {"num_epochs", "10"},         {"learning_rate", "1e-4"},
    {"lr_scheduler", "constant"}, {"weight_decay_on", "all"},
    {"save_steps", "100"},        {"output_dir", "checkpoints"},
};

static const char *preset_in(const char *const (*list)[2], size_t n, int i, const char **value)
{
    *value = (size_t)i < n ? list[i][1] : NULL;
    return *value ? list[i][0] : NULL;
}

const char *af_dialect_default(af_dialect d, int i, const char **value)
{
    if (d == AF_DIALECT_UNSLOTH)
        return preset_in(unsloth_presets, AF_LEN(unsloth_presets), i, value);
    if (d == AF_DIALECT_AUTOTRAIN)
        return preset_in(autotrain_presets, AF_LEN(autotrain_presets), i, value);
    if (d == AF_DIALECT_TORCHTUNE)
        return preset_in(torchtune_presets, AF_LEN(torchtune_presets), i, value);
    if (d == AF_DIALECT_OUMI)
        return preset_in(oumi_presets, AF_LEN(oumi_presets), i, value);
    if (d == AF_DIALECT_LITGPT)
        return preset_in(litgpt_presets, AF_LEN(litgpt_presets), i, value);
    if (d == AF_DIALECT_AUTOMODEL)
        return preset_in(automodel_presets, AF_LEN(automodel_presets), i, value);
    if (i < 0 || i >= (int)AF_LEN(presets))
        return NULL;
    *value = d == AF_DIALECT_LLAMA_FACTORY      ? presets[i].factory
             : d == AF_DIALECT_LLAMA_FACTORY_V1 ? presets[i].v1
             : d == AF_DIALECT_TRL              ? presets[i].trl
             : d == AF_DIALECT_MLX              ? presets[i].mlx
             : d == AF_DIALECT_SWIFT            ? presets[i].swift
                                                : NULL;
    return presets[i].key;
}

/* LLaMA-Factory continues an adapter in LoRA runs alone; of several it merges all but the last. */
static af_status check_factory_adapter(const af_run_config *r, af_error *err)
{
    char at[300];
    const char *path = r->lora_model_dir;
    if (!path)
        return AF_OK;
    af_run_key_loc(r, "lora_model_dir", at, sizeof at);
    if (af_method_trains_base(r))
        return af_fail(
            err, AF_EUSAGE,
            "%s: an adapter is continued with 'finetuning_type: lora' alone; 'afinar merge' "
            "puts it into its base, which can be trained then",
            at);
    if (strchr(path, ',') && !af_path_is_taken(path))
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: several adapters are not supported: put all but the last into the base "
                       "('afinar merge')",
                       at);
    return AF_OK;
}

/* LLaMA-Factory's losses of preferences, where they are not TRL's. */
static af_status finish_factory(af_run_config *r, af_error *err)
{
    static const char *cdpo[] = {"cdpo"};
    const af_strings *types = &r->dpo_loss_type;
    const bool sigmoid = !types->count || strcmp(types->item[0], "sigmoid") == 0;
    char at[300];
    const af_status adapter = check_factory_adapter(r, err);
    if (adapter != AF_OK)
        return adapter;
    if (r->rl == AF_RL_SIMPO && !af_run_key_is_set(r, "rl_beta"))
        r->rl_beta = 0.1;
    if (r->rl == AF_RL_REWARD && r->disable_dropout == AF_TRI_AUTO)
        r->disable_dropout = AF_TRI_NO; /* its trainer of rewards is not TRL's */
    if (r->dpo_label_smoothing > 0 && r->rl == AF_RL_DPO && sigmoid)
        r->dpo_loss_type = (af_strings){cdpo, 1};
    if (r->dpo_ftx > 0 && (r->rl == AF_RL_KTO || r->rl == AF_RL_ORPO || r->rl == AF_RL_SIMPO))
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: pref_ftx %g is not supported with 'rl: %s', only with dpo",
                       af_run_key_loc(r, "dpo_ftx", at, sizeof at), r->dpo_ftx,
                       af_key_choice_name(af_key_find("rl"), (int)r->rl));
    if (r->dpo_label_smoothing == 0 || r->rl != AF_RL_SIMPO)
        return AF_OK;
    const af_status st =
        af_run_idle_key(r, "dpo_label_smoothing", "LLaMA-Factory's simpo has none", err);
    return st == AF_OK ? af_key_reset(r, af_key_find("dpo_label_smoothing"), err) : st;
}

static int64_t ranks_of_run(void)
{
    af_launcher l;
    return af_launcher_find(&l, NULL) == AF_OK ? l.size : 1; /* an error is reported later */
}

/* The batch_size of mlx-lm has the rows of all ranks. */
static af_status divide_rows(af_run_config *r, af_error *err)
{
    const int64_t ranks = ranks_of_run();
    char at[300];
    if (ranks == 1 || af_run_key_line(r, "micro_batch_size") == AF_KEY_LINE_OVERRIDE)
        return AF_OK;
    if (r->micro_batch_size % ranks != 0)
        return af_fail(err, AF_EUSAGE,
                       "%s: batch_size %" PRId64 " of mlx-lm is not a multiple of the %" PRId64
                       " ranks, which share it",
                       af_run_key_loc(r, "micro_batch_size", at, sizeof at), r->micro_batch_size,
                       ranks);
    r->micro_batch_size /= ranks;
    return AF_OK;
}

/* mlx-lm counts passes, not updates: `iters`, and the steps between other things. */
static af_status finish_mlx(af_run_config *r, af_error *err)
{
    const struct {
        const char *key;
        double *steps;
    } every[] = {{"save_steps", &r->save_steps},
                 {"eval_steps", &r->eval_steps},
                 {"logging_steps", &r->logging_steps}};
    char at[300];
    const bool muon = r->optimizer == AF_OPTIMIZER_MUON;
    if ((muon || r->optimizer == AF_OPTIMIZER_ADAFACTOR) && af_run_key_line(r, "optimizer") > 0)
        return af_fail(err, AF_EUNSUPPORTED,
                       "%s: optimizer '%s' of MLX is not the one here: %s; set optimizer=%s and a "
                       "learning_rate for it on the command line",
                       af_run_key_loc(r, "optimizer", at, sizeof at), muon ? "muon" : "adafactor",
                       muon ? "here the rate is multiplied by 0.2 sqrt(max(rows, columns))"
                            : "there it does not read learning_rate",
                       muon ? "muon" : "adafactor");
    const af_status st = divide_rows(r, err);
    if (st != AF_OK || r->accumulation == 1)
        return st;
    if (af_run_key_line(r, "max_steps") != AF_KEY_LINE_OVERRIDE) {
        if (r->max_steps < r->accumulation)
            return af_fail(err, AF_EUSAGE,
                           "%s: iters is %" PRId64 ", and the weights change after "
                           "grad_accumulation_steps %" PRId64 " of them",
                           af_run_key_loc(r, "max_steps", at, sizeof at), r->max_steps,
                           r->accumulation);
        r->max_steps /= r->accumulation;
    }
    for (size_t i = 0; i < AF_LEN(every); i++)
        if (af_run_key_line(r, every[i].key) != AF_KEY_LINE_OVERRIDE && *every[i].steps >= 1)
            *every[i].steps = fmax(floor(*every[i].steps / (double)r->accumulation), 1);
    return AF_OK;
}

/* ms-swift: rates by the tuner, 16 rows a step of all ranks, evaluations with the checkpoints. */
static void finish_swift(af_run_config *r)
{
    enum { ROWS = 16 };
    const int64_t rows = r->micro_batch_size * ranks_of_run();
    if (r->method == AF_METHOD_FULL && !af_run_key_is_set(r, "learning_rate"))
        r->learning_rate = 1e-5;
    if (!af_run_key_is_set(r, "gradient_accumulation_steps"))
        r->accumulation = (ROWS + rows - 1) / rows;
    if (!af_run_key_is_set(r, "eval_steps") && !af_run_key_is_set(r, "eval_strategy") &&
        (r->val_set_size > 0 || r->test_datasets)) {
        r->eval_steps = r->save_strategy == AF_WHEN_EPOCH ? 0 : r->save_steps;
        r->eval_strategy = r->save_strategy == AF_WHEN_NO ? AF_WHEN_NO : r->eval_strategy;
    }
}

/* AutoTrain: with data to evaluate on, it does so and saves once an epoch, and takes the best. */
static void finish_autotrain(af_run_config *r)
{
    const bool pairs = r->rl == AF_RL_DPO || r->rl == AF_RL_ORPO;
    if (pairs && !af_run_key_is_set(r, "max_prompt_length"))
        r->max_prompt_len = 128;
    if (!r->test_datasets)
        return;
    if (!af_run_key_is_set(r, "eval_strategy"))
        r->eval_strategy = AF_WHEN_EPOCH;
    r->save_strategy = r->eval_strategy;
    if (!af_run_key_is_set(r, "save_steps"))
        r->save_steps = r->eval_steps;
    r->load_best = true;
}

/* Of SFTTrainer the loss of routers is a mean over the passes of a step, here it is their sum. */
static void finish_trl(af_run_config *r)
{
    if (r->rl != AF_RL_NONE && !af_run_key_is_set(r, "learning_rate"))
        r->learning_rate = r->rl == AF_RL_REWARD ? 1e-4 : 1e-6;
    if (r->rl == AF_RL_NONE && af_run_key_line(r, "router_aux_loss_coef") > 0)
        r->router_loss_coef /= (double)(r->accumulation * ranks_of_run());
}

/* Defaults of LLaMA-Factory and ms-swift; those of 'optim: apollo_adamw' are transformers'. */
static void finish_projected(af_run_config *r)
{
    const char *name = r->key_name[af_key_find("optimizer") - af_keys];
    const bool apollo = name && strcmp(name, "use_apollo") == 0,
               galore = name && strcmp(name, "use_galore") == 0,
               swift = r->dialect == AF_DIALECT_SWIFT;
    if (apollo && !af_run_key_is_set(r, "apollo_rank"))
        r->apollo_rank = 16;
    if (apollo && !af_run_key_is_set(r, "apollo_scale"))
        r->apollo_scale = 32;
    if (galore && !swift && !af_run_key_is_set(r, "galore_rank"))
        r->galore_rank = 16;
    if (galore && !af_run_key_is_set(r, "galore_scale"))
        r->galore_scale = swift ? 1 : 2;
    if (galore && swift && !af_run_key_is_set(r, "galore_update_interval"))
        r->galore_gap = 50;
}

/* The defaults of transformers' GreedyLR. */
static void finish_greedy(af_run_config *r)
{
    if (strcmp(r->lr_scheduler, "greedy") != 0)
        return;
    if (!af_run_key_is_set(r, "lr_gamma") || r->lr_gamma == 0)
        r->lr_gamma = 0.95;
    if (!af_run_key_is_set(r, "lr_threshold"))
        r->lr_threshold = 1e-6;
    if (!af_run_key_is_set(r, "lr_threshold_mode"))
        r->lr_threshold_mode = AF_THRESHOLD_ABS;
    if (!af_run_key_is_set(r, "min_lr"))
        r->min_lr = 1e-3;
}

af_status af_run_dialect_finish(af_run_config *r, af_error *err)
{
    const bool trl = r->dialect == AF_DIALECT_TRL;
    af_run_rl_alphapo(r);
    const af_status st = trl ? af_run_rl_infer(r, err) : AF_OK;
    if (st != AF_OK)
        return st;
    if (trl)
        finish_trl(r);
    if (r->dialect == AF_DIALECT_MLX && r->optimizer == AF_OPTIMIZER_ADAMW &&
        !af_run_key_is_set(r, "weight_decay")) {
        r->weight_decay = 0.01; /* MLX's, of every parameter */
        r->decay_on = AF_DECAY_ALL;
    }
    finish_projected(r);
    finish_greedy(r);
    if (r->dialect == AF_DIALECT_MLX)
        return finish_mlx(r, err);
    if (r->dialect == AF_DIALECT_SWIFT)
        finish_swift(r);
    if (r->dialect == AF_DIALECT_AUTOTRAIN)
        finish_autotrain(r);
    const bool shared = r->dialect == AF_DIALECT_LITGPT || r->dialect == AF_DIALECT_AUTOMODEL;
    if (shared && r->accumulation > 1 && /* the rows of all ranks */
        af_run_key_line(r, "gradient_accumulation_steps") != AF_KEY_LINE_OVERRIDE)
        r->accumulation = AF_MAX(r->accumulation / ranks_of_run(), 1);
    if (r->dialect == AF_DIALECT_UNSLOTH && af_method_trains_base(r) &&
        !af_run_key_is_set(r, "load_in_4bit"))
        r->load_in_4bit = AF_TRI_AUTO;
    return r->dialect == AF_DIALECT_LLAMA_FACTORY ? finish_factory(r, err) : AF_OK;
}
