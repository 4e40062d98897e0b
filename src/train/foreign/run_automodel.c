/* run_automodel.c - run files of NeMo AutoModel (`automodel FILE`): sections whose '_target_' names
 * a class of it as one map of our keys. Datasets are in run_automodel_data.c, the adapter in
 * run_automodel_peft.c. */
#include "train/foreign/run_automodel.h"
#include "train/run/run_config.h"

#include <inttypes.h>

enum { GLOBAL_BATCH = 32, SAVE_STEPS = 100, WARMUP_MAX = 1000, WARMUP_SHARE = 10 };

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

bool af_automodel_is_file(const af_yaml *root)
{
    const af_yaml *model = af_yaml_get(root, "model"), *steps = af_yaml_get(root, "step_scheduler");
    return model && model->kind == AF_YAML_MAP && steps && steps->kind == AF_YAML_MAP &&
           !af_yaml_get(root, "base_model");
}

const char *af_automodel_target(const af_yaml *n)
{
    const af_yaml *name = n && n->kind == AF_YAML_MAP ? af_yaml_get(n, "_target_") : n;
    const char *text =
        name && name->kind == AF_YAML_SCALAR && !af_yaml_is_null(name) ? name->text : "";
    const char *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

bool af_automodel_positive(const af_yaml *n)
{
    double v;
    return n && af_yaml_f64(n, &v) && v > 0;
}

static bool on(const af_yaml *map, const char *key)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && af_translate_says(n, "true");
}

static af_status refuse(const af_translation *t, const char *section, const af_yaml *n,
                        const char *instead)
{
    return af_fail(t->err, AF_EUNSUPPORTED,
                   "%s:%d: %s '%.80s' of NeMo AutoModel is not supported: %s", t->name, n->line,
                   section, af_automodel_target(n), instead);
}

/* "none" is None there, too. */
static const af_yaml *given(const af_yaml *map, const char *key)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && !af_translate_says(n, "none") && !af_translate_says(n, "None") ? n : NULL;
}

static af_status put_number(af_translation *t, const char *key, int line, double v)
{
    char text[40];
    snprintf(text, sizeof text, "%.12g", v);
    return af_nested_put(t, key, line, text);
}

/* ---- recipe, model ---- */

static af_status put_recipe(af_translation *t, const af_yaml *n, int line)
{
    const char *name = af_automodel_target(n);
    (void)line;
    if (is(name, "TrainFinetuneRecipeForNextTokenPrediction") ||
        is(name, "TrainFinetuneRecipeForSequenceClassification") ||
        is(name, "KnowledgeDistillationRecipeForNextTokenPrediction"))
        return AF_OK;
    return refuse(t, "recipe", n,
                  "TrainFinetuneRecipeForNextTokenPrediction, "
                  "TrainFinetuneRecipeForSequenceClassification and "
                  "KnowledgeDistillationRecipeForNextTokenPrediction are");
}

/* The folder or name of a model, which `config` may have in its place. */
static af_status put_name(af_translation *t, const char *key, const af_yaml *n)
{
    const af_yaml *name = given(n, "pretrained_model_name_or_path"), *config = given(n, "config");
    const char *text = "";
    af_status st = AF_OK;
    if (config && config->kind == AF_YAML_MAP)
        AF_TRY(af_nested_check(t, "config of model", config,
                               " _target_ pretrained_model_name_or_path name_or_path "
                               "trust_remote_code attn_implementation torch_dtype dtype "));
    if (!name && config)
        name = config->kind == AF_YAML_SCALAR ? config
                                              : given(config, "pretrained_model_name_or_path");
    if (!name || name->kind != AF_YAML_SCALAR)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: a model has a 'pretrained_model_name_or_path'",
                       t->name, n->line);
    AF_TRY(af_nested_text(&text, t, name));
    AF_TRY(af_nested_put(t, key, name->line, text));
done:
    return st;
}

static const char model_keys[] =
    " _target_ pretrained_model_name_or_path config torch_dtype dtype attn_implementation "
    "trust_remote_code use_liger_kernel use_sdpa_patching sdpa_method backend output_hidden_states "
    "force_hf revision cache_dir use_cache device_map low_cpu_mem_usage ";

bool af_automodel_classifies(const af_yaml *root)
{
    const af_yaml *path = given(given(root, "model"), "_target_");
    return is(af_automodel_target(af_yaml_get(root, "recipe")),
              "TrainFinetuneRecipeForSequenceClassification") ||
           (path && path->kind == AF_YAML_SCALAR &&
            strstr(path->text, "ForSequenceClassification."));
}

/* Labels of a model that gives scores; its head, which is trained here with an adapter, too. */
static af_status put_labels(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *count = given(n, "num_labels"), *peft = given(t->root, "peft");
    af_status st = AF_OK;
    AF_TRY(af_nested_put(t, "task_type", line, "SEQ_CLS"));
    if (count)
        AF_TRY(af_translate_put(t, "num_labels", count->line, count));
    if (peft)
        AF_TRY(af_run_instead_add(t->run, "peft", peft->line,
                                  "the head of the labels is trained with the adapter, where NeMo "
                                  "AutoModel leaves one that is not called 'classifier' as it "
                                  "began",
                                  0, t->err));
done:
    return st;
}

static af_status put_model(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *path = given(n, "_target_"), *revision = given(n, "revision");
    const char *name = path && path->kind == AF_YAML_SCALAR ? path->text : "";
    const bool fresh = is(af_automodel_target(n), "from_config");
    const bool labels = af_automodel_classifies(t->root);
    char known[400];
    af_status st = AF_OK;
    if (path && (!strstr(name, labels ? "ForSequenceClassification." : "ForCausalLM.") ||
                 (!fresh && !is(af_automodel_target(n), "from_pretrained"))))
        return af_fail(t->err, AF_EUNSUPPORTED, "%s:%d: model '%.80s' is not supported: %s is",
                       t->name, path->line, name,
                       labels ? "NeMoAutoModelForSequenceClassification with this recipe"
                              : "NeMoAutoModelForCausalLM");
    snprintf(known, sizeof known, "%s%s", model_keys, labels ? "num_labels " : "");
    AF_TRY(af_nested_check(t, "model", n, known));
    if (labels)
        AF_TRY(put_labels(t, n, line));
    AF_TRY(put_name(t, "base_model", n));
    if (revision)
        AF_TRY(af_translate_put(t, "model_revision", revision->line, revision));
    if (fresh)
        AF_TRY(af_nested_put(t, "reinit_weights", line, "true"));
done:
    return st;
}

static af_status put_teacher(af_translation *t, const af_yaml *n, int line)
{
    const af_status st = af_nested_check(t, "teacher_model", n, model_keys);
    (void)line;
    return st == AF_OK ? put_name(t, "teacher_model", n) : st;
}

/* The share of the teacher; the labels have the rest. */
static af_status put_shares(af_translation *t)
{
    const af_yaml *n = given(t->root, "kd_ratio"), *loss = given(t->root, "kd_loss_fn"),
                  *warm = given(loss, "temperature");
    double ratio = 0.5;
    af_status st = AF_OK;
    if (n && (!af_yaml_f64(n, &ratio) || !(ratio >= 0 && ratio <= 1)))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: kd_ratio must be a number from 0 to 1", t->name,
                       n->line);
    if (loss && !is(af_automodel_target(loss), "KDLoss"))
        return refuse(t, "kd_loss_fn", loss, "KDLoss is");
    if (loss)
        AF_TRY(af_nested_check(t, "kd_loss_fn", loss,
                               " _target_ ignore_index temperature fp32_upcast chunk_size "));
    AF_TRY(put_number(t, "kd_alpha", n ? n->line : t->root->line, ratio));
    AF_TRY(put_number(t, "kd_ce_alpha", n ? n->line : t->root->line, 1 - ratio));
    if (warm)
        AF_TRY(af_translate_put(t, "kd_temperature", warm->line, warm));
done:
    return st;
}

static af_status put_quantization(af_translation *t, const af_yaml *n, int line)
{
    static const char *const bits[] = {"load_in_4bit", "load_in_8bit"};
    af_status st = AF_OK;
    AF_TRY(
        af_nested_check(t, "quantization", n,
                        " load_in_4bit load_in_8bit bnb_4bit_compute_dtype "
                        "bnb_4bit_use_double_quant bnb_4bit_quant_type bnb_4bit_quant_storage "));
    for (size_t i = 0; i < AF_LEN(bits); i++)
        if (on(n, bits[i]))
            AF_TRY(af_nested_put(t, bits[i], line, "true"));
    for (int i = 0; i < n->count; i++)
        if (on(n, bits[0]) &&
            (is(n->key[i], "bnb_4bit_use_double_quant") || is(n->key[i], "bnb_4bit_quant_type")))
            AF_TRY(af_translate_put(t, n->key[i], n->key_line[i], n->item[i]));
done:
    return st;
}

/* ---- steps ---- */

static af_status put_batches(af_translation *t, const af_yaml *n, int line)
{
    const int64_t all = af_translate_whole(n, "global_batch_size", GLOBAL_BATCH),
                  micro = af_translate_whole(n, "local_batch_size", 1);
    af_status st = AF_OK;
    if (micro < 1 || all < micro || all % micro != 0)
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: global_batch_size %" PRId64
                       " is not a multiple of local_batch_size %" PRId64,
                       t->name, line, all, micro);
    AF_TRY(put_number(t, "micro_batch_size", line, (double)micro));
    AF_TRY(put_number(t, "gradient_accumulation_steps", line, (double)(all / micro)));
done:
    return st;
}

/* Checkpoints, and evaluations, which every checkpoint has. */
static af_status put_saves(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *every = af_yaml_get(n, "ckpt_every_steps"), *val = given(n, "val_every_steps");
    const af_yaml *enabled = given(given(t->root, "checkpoint"), "enabled");
    const bool epochs = every && !given(n, "ckpt_every_steps");
    af_status st = AF_OK;
    if (enabled && af_translate_says(enabled, "false"))
        AF_TRY(af_nested_put(t, "save_strategy", enabled->line, "no"));
    else if (epochs)
        AF_TRY(af_nested_put(t, "save_strategy", every->line, "epoch"));
    else if (every)
        AF_TRY(af_translate_put(t, "save_steps", every->line, every));
    if (val || (every && !epochs))
        AF_TRY(af_translate_put(t, "eval_steps", (val ? val : every)->line, val ? val : every));
    else if (epochs)
        AF_TRY(af_nested_put(t, "eval_strategy", every->line, "epoch"));
    else
        AF_TRY(put_number(t, "eval_steps", line, SAVE_STEPS));
done:
    return st;
}

static af_status put_steps(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *most = given(n, "max_steps"), *epochs = given(n, "num_epochs");
    af_status st = AF_OK;
    AF_TRY(af_nested_check(t, "step_scheduler", n,
                           " global_batch_size local_batch_size max_steps num_epochs "
                           "ckpt_every_steps val_every_steps save_checkpoint_every_epoch "
                           "validate_on_checkpoint log_remote_every_steps "
                           "loss_average_window_steps gc_every_steps preemption_signal "));
    AF_TRY(put_batches(t, n, line));
    if (most)
        AF_TRY(af_translate_put(t, "max_steps", most->line, most));
    if (epochs)
        AF_TRY(af_translate_put(t, "num_epochs", epochs->line, epochs));
    if (most && epochs)
        AF_TRY(af_run_instead_add(t->run, "num_epochs", epochs->line,
                                  "the run has 'max_steps' steps, even if they are more epochs", 0,
                                  t->err));
    AF_TRY(put_saves(t, n, line));
done:
    return st;
}

/* ---- optimizer ---- */

/* Its own classes of Adam have defaults that torch's have not. */
static af_status put_optimizer(af_translation *t, const af_yaml *n, int line)
{
    static const char *const missing[][2] = {{"lr", "1e-4"}, {"weight_decay", "0.01"}};
    const char *name = af_automodel_target(n);
    const bool fused = is(name, "FusedAdam") || is(name, "FlashAdamW");
    const bool plain = fused && given(n, "adam_w_mode") && !on(n, "adam_w_mode");
    const bool adam = fused || is(name, "AdamW") || is(name, "Adam");
    af_yaml *args = af_nested_map(t, n->line);
    af_status st = args ? AF_OK : af_fail_nomem(t->err, "optimizer", sizeof *args);
    AF_TRY(st);
    if (!fused && !af_torch_optim_knows(name))
        return refuse(t, "optimizer", n, "see 'optimizer'");
    AF_TRY(af_nested_check(t, "optimizer", n,
                           " _target_ lr weight_decay betas eps momentum fused foreach "
                           "adam_w_mode bias_correction master_weights master_weight_dtype "
                           "master_weight_bits store_param_remainders exp_avg_dtype "
                           "exp_avg_sq_dtype compress_state_dict "));
    for (int i = 0; i < n->count && args->count < AF_NESTED_KEYS; i++)
        if (!af_yaml_is_null(n->item[i]))
            AF_TRY(af_nested_set(t, args, n->key[i], n->item[i]));
    for (size_t i = 0; adam && i < AF_LEN(missing); i++)
        if (!given(n, missing[i][0]) && args->count < AF_NESTED_KEYS)
            AF_TRY(
                af_nested_set(t, args, missing[i][0], af_translate_scalar(t, line, missing[i][1])));
    AF_TRY(af_torch_optim_put(t, plain ? "Adam" : fused ? "AdamW" : name, args, line, false));
done:
    return st;
}

static double number(const af_yaml *map, const char *key, double otherwise)
{
    const af_yaml *n = given(map, key);
    double v;
    return n && af_yaml_f64(n, &v) ? v : otherwise;
}

/* Where it says nothing: a tenth of the run, at most 1000 steps. */
static af_status put_warmup(af_translation *t, const af_yaml *n, int line, bool *none)
{
    const af_yaml *steps = given(n, "lr_warmup_steps"),
                  *most = given(given(t->root, "step_scheduler"), "max_steps");
    int64_t all = 0;
    double v = 1;
    if (steps) {
        *none = af_yaml_f64(steps, &v) && v == 0;
        return af_translate_put(t, "warmup_steps", steps->line, steps);
    }
    *none = most && af_yaml_i64(most, &all) && all < WARMUP_SHARE;
    if (most && all > 0)
        return put_number(t, "warmup_steps", line,
                          (double)AF_MIN(all / WARMUP_SHARE, (int64_t)WARMUP_MAX));
    return af_nested_put(t, "warmup_ratio", line, "0.1");
}

static af_status put_schedule(af_translation *t, const af_yaml *n, int line)
{
    static const char *const styles[][2] = {{"cosine", "cosine"},
                                            {"linear", "polynomial"}, /* linear has no floor */
                                            {"constant", "constant_with_warmup"}};
    const af_yaml *style = given(n, "lr_decay_style"), *all = given(n, "lr_decay_steps"),
                  *most = given(given(t->root, "step_scheduler"), "max_steps");
    const double rate = number(given(t->root, "optimizer"), "lr", 1e-4);
    size_t k = 0;
    bool none = false;
    af_status st = AF_OK;
    while (style && k < AF_LEN(styles) && !af_translate_says(style, styles[k][0]))
        k++;
    if (k == AF_LEN(styles))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: lr_decay_style '%.40s' is not supported: cosine, linear and "
                       "constant are; see 'lr_scheduler'",
                       t->name, style->line, style->kind == AF_YAML_SCALAR ? style->text : "");
    AF_TRY(af_nested_check(t, "lr_scheduler", n,
                           " _target_ lr_decay_style lr_warmup_steps lr_decay_steps init_lr max_lr "
                           "min_lr use_checkpoint_opt_param_scheduler "
                           "override_opt_param_scheduler wd_incr_style "));
    if (all && !(most && af_translate_says(all, most->text)))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: lr_decay_steps is not supported: the rate falls until the end of "
                       "the run, its 'max_steps'",
                       t->name, all->line);
    if (number(n, "max_lr", rate) != rate)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: max_lr is not supported where it is not the 'lr' of the optimizer",
                       t->name, given(n, "max_lr")->line);
    AF_TRY(af_nested_put(t, "lr_scheduler", line, styles[k][1]));
    AF_TRY(put_warmup(t, n, line, &none));
    if (!none)
        AF_TRY(put_number(t, "warmup_init_lr", line, number(n, "init_lr", rate * 0.1)));
    if (k < 2)
        AF_TRY(put_number(t, "min_lr", line, number(n, "min_lr", rate * 0.01)));
done:
    return st;
}

static af_status put_loss(af_translation *t, const af_yaml *n, int line)
{
    static const char *const plain[] = {"MaskedCrossEntropy",     "FusedLinearCrossEntropy",
                                        "TEParallelCrossEntropy", "ChunkedCrossEntropy",
                                        "CrossEntropyLoss",       "masked_cross_entropy"};
    const char *name = af_automodel_target(n);
    (void)line;
    for (size_t i = 0; i < AF_LEN(plain); i++)
        if (is(name, plain[i]))
            return n->kind == AF_YAML_MAP
                       ? af_nested_check(t, "loss_fn", n,
                                         " _target_ ignore_index fp32_upcast reduction chunk_len "
                                         "chunk_size num_chunks ")
                       : AF_OK;
    return refuse(t, "loss_fn", n, "cross-entropy is (MaskedCrossEntropy, ...)");
}

static af_status put_clip(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *norm = given(n, "max_norm");
    const af_status st = af_nested_check(t, "clip_grad_norm", n, " max_norm foreach ");
    (void)line;
    return st == AF_OK && norm ? af_translate_put(t, "max_grad_norm", norm->line, norm) : st;
}

/* ---- the rest ---- */

static af_status put_checkpoint(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *dir = given(n, "checkpoint_dir"), *most = given(n, "max_recent_checkpoints"),
                  *from = given(n, "restore_from");
    const char *text = "";
    af_status st = AF_OK;
    (void)line;
    AF_TRY(af_nested_check(
        t, "checkpoint", n,
        " _target_ enabled checkpoint_dir model_save_format model_cache_dir model_repo_id "
        "save_consolidated is_async wait_for_staging cpu_offload dequantize_base_checkpoint "
        "original_model_root_dir skip_task_head_prefixes_for_base_model "
        "single_rank_consolidation staging_dir legacy_paramwrapper_layout "
        "diffusers_compatible best_metric_key consolidation_timeout_minutes "
        "max_recent_checkpoints allow_legacy_pickle_restore v4_compatible is_peft restore_from "));
    if (from && !af_translate_says(from, "LATEST"))
        return af_fail(
            t->err, AF_EUNSUPPORTED,
            "%s:%d: restore_from is not supported but for LATEST: 'resume_from_checkpoint' "
            "names a checkpoint of afinar",
            t->name, from->line);
    if (from)
        AF_TRY(af_nested_put(t, "auto_resume_from_checkpoints", from->line, "true"));
    if (dir) {
        AF_TRY(af_nested_text(&text, t, dir));
        AF_TRY(af_nested_put(t, "output_dir", dir->line, text));
    }
    if (most)
        AF_TRY(af_translate_put(t, "save_total_limit", most->line, most));
done:
    return st;
}

/* wandb and mlflow, which may both be there. */
static af_status put_trackers(af_translation *t)
{
    static const char *const keys[][3] = {{"wandb", "project", "wandb_project"},
                                          {"wandb", "name", "wandb_name"},
                                          {"mlflow", "experiment_name", "mlflow_experiment_name"},
                                          {"mlflow", "tracking_uri", "mlflow_tracking_uri"}};
    const af_yaml *wandb = given(t->root, "wandb"), *mlflow = given(t->root, "mlflow");
    const af_yaml *first = wandb ? wandb : mlflow;
    af_status st = AF_OK;
    if (!first)
        return AF_OK;
    AF_TRY(af_nested_put(t, "report_to", first->line,
                         !mlflow  ? "wandb"
                         : !wandb ? "mlflow"
                                  : "wandb,mlflow"));
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml *map = given(t->root, keys[i][0]);
        const af_yaml *v = map && map->kind == AF_YAML_MAP ? given(map, keys[i][1]) : NULL;
        if (v)
            AF_TRY(af_translate_put(t, keys[i][2], v->line, v));
    }
done:
    return st;
}

static af_status put_distributed(af_translation *t, const af_yaml *n, int line)
{
    return on(n, "activation_checkpointing")
               ? af_nested_put(t, "gradient_checkpointing", line, "true")
               : AF_OK;
}

static af_status put_fp8(af_translation *t, const af_yaml *n, int line)
{
    return on(n, "enabled") ? af_nested_put(t, "fp8", line, "true") : AF_OK;
}

static af_status put_qat(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *how = given(n, "qat_config"), *after = given(n, "fake_quant_after_n_steps");
    how = how ? how : given(n, "quantizer");
    if (!on(n, "enabled"))
        return AF_OK;
    if (!how || !is(af_automodel_target(how), "Int8DynActInt4WeightQATQuantizer"))
        return refuse(t, "qat", how ? how : n, "Int8DynActInt4WeightQATQuantizer is");
    const af_status st = af_nested_check(t, "quantizer", how, " _target_ groupsize ");
    return st == AF_OK ? af_torch_qat_put(t, af_nested_given(how, "groupsize"), after, line) : st;
}

static af_status put_noise(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *alpha = n->kind == AF_YAML_MAP ? given(n, "noise_alpha") : n;
    return alpha ? af_translate_put(t, "neftune_noise_alpha", line, alpha)
                 : af_nested_put(t, "neftune_noise_alpha", line, "5");
}

/* The newest versions read `seed` alone. */
static af_status put_rng(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *seed = n->kind == AF_YAML_MAP ? given(n, "seed") : NULL;
    return seed && !given(t->root, "seed") ? af_translate_put(t, "seed", line, seed) : AF_OK;
}

static af_status put_loader(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *shuffle = given(n, "shuffle");
    const af_status st = af_nested_check(
        t, "dataloader", n,
        " _target_ collate_fn shuffle group_by_length shuffle_buffer_size batch_size num_workers "
        "pin_memory persistent_workers prefetch_factor drop_last ");
    (void)line;
    return st == AF_OK && shuffle ? af_translate_put(t, "shuffle", shuffle->line, shuffle) : st;
}

static af_status put_nothing(af_translation *t, const af_yaml *n, int line)
{
    (void)t, (void)n, (void)line;
    return AF_OK;
}

static const struct {
    const char *key;
    af_status (*put)(af_translation *t, const af_yaml *n, int line);
    bool map; /* must be one */
} parts[] = {
    {"recipe", put_recipe, false},
    {"step_scheduler", put_steps, true},
    {"model", put_model, true},
    {"teacher_model", put_teacher, true},
    {"peft", af_automodel_put_peft, true},
    {"quantization", put_quantization, true},
    {"optimizer", put_optimizer, true},
    {"lr_scheduler", put_schedule, true},
    {"loss_fn", put_loss, false},
    {"clip_grad_norm", put_clip, true},
    {"checkpoint", put_checkpoint, true},
    {"dataset", af_automodel_put_data, true},
    {"packed_sequence", af_automodel_put_length, true},
    {"dataloader", put_loader, true},
    {"distributed", put_distributed, true},
    {"fp8", put_fp8, true},
    {"qat", put_qat, true},
    {"neftune", put_noise, false},
    {"rng", put_rng, false},
};

/* What is learnt does not depend on them, or they are read elsewhere. */
static const char *const idle[] = {
    "autocast",       "dist_env",    "distributed_config",
    "compile",        "benchmark",   "ci",
    "nvtx",           "comet",       "wandb",
    "mlflow",         "slurm",       "mfu",
    "skypilot",       "launcher",    "lepton",
    "nemo_run",       "prewarm",     "kd_ratio",
    "kd_loss_fn",     "moe_metrics", "parallelizer",
    "tool_call_eval", "profiling",   "sdpa_method",
    "enable_nvtx",    "profiler",    "validation_dataloader",
};

static af_status put_entry(af_translation *t, int i)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (af_yaml_is_null(n) || strncmp(key, "validation_dataset", 18) == 0)
        return AF_OK;
    for (size_t k = 0; k < AF_LEN(idle); k++)
        if (is(key, idle[k]))
            return put_nothing(t, n, line);
    for (size_t k = 0; k < AF_LEN(parts); k++)
        if (is(key, parts[k].key))
            return parts[k].map && n->kind != AF_YAML_MAP
                       ? af_fail(t->err, AF_EUSAGE, "%s:%d: %s must be a map", t->name, line, key)
                       : parts[k].put(t, n, line);
    return af_translate_put(t, key, line, n);
}

af_status af_automodel_join(const af_yaml **out, const af_translation *t)
{
    af_translation part = *t;
    const af_yaml *root = t->root;
    af_status st = AF_OK;
    part.room = 0;
    part.out = af_arena_take(t->mem, sizeof *part.out);
    if (!part.out)
        return af_fail_nomem(t->err, t->name, sizeof *part.out);
    *part.out = (af_yaml){.kind = AF_YAML_MAP, .line = root->line};
    if (!given(root, "dataset") && !given(root, "datasets"))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: this file of NeMo AutoModel does not train: it has no 'dataset'",
                       t->name, root->line);
    for (int i = 0; i < root->count; i++)
        AF_TRY(put_entry(&part, i));
    if (given(root, "teacher_model"))
        AF_TRY(put_shares(&part));
    if (!given(root, "packed_sequence"))
        AF_TRY(af_automodel_put_length(&part, NULL, root->line));
    AF_TRY(af_automodel_put_tests(&part));
    AF_TRY(put_trackers(&part));
    *out = part.out;
done:
    return st;
}
