/* run_torchtune.c - run files of torchtune's recipes: a map of components ('_component_' names a
 * function, the other keys are its arguments) becomes one map of our keys. Datasets and tokenizers
 * are in run_torchtune_data.c. */
#include "train/foreign/run_torchtune.h"
#include "base/file.h"
#include "train/run/run_config.h"

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

bool af_torchtune_is_file(const af_yaml *root)
{
    const af_yaml *model = af_yaml_get(root, "checkpointer");
    return model && model->kind == AF_YAML_MAP && af_yaml_get(model, "_component_");
}

/* ---- components ---- */

const char *af_torchtune_component(const af_yaml *n)
{
    const af_yaml *name = n && n->kind == AF_YAML_MAP ? af_yaml_get(n, "_component_") : n;
    const char *text = name && name->kind == AF_YAML_SCALAR ? name->text : "";
    const char *dot = strrchr(text, '.');
    return dot ? dot + 1 : text;
}

static af_status put_filled(af_translation *t, const char *key, int line, const af_yaml *n)
{
    const char *text = "";
    const af_status st = af_nested_text(&text, t, n);
    return st == AF_OK ? af_nested_put(t, key, line, text) : st;
}

static af_status refuse(const af_translation *t, const char *section, const af_yaml *n,
                        const char *instead)
{
    return af_fail(t->err, AF_EUNSUPPORTED, "%s:%d: %s '%.80s' of torchtune is not supported: %s",
                   t->name, n->line, section, af_torchtune_component(n), instead);
}

/* ---- model ---- */

/* A module that torchtune names in one of three ways; Phi's checkpoints have some of them in one.
 */
typedef struct tune_module {
    const char *name, *ours, *phi, *by;
} tune_module;

static bool has_module(const af_yaml *model, const tune_module *m)
{
    const af_yaml *n = af_nested_given(model, m->by);
    if (n && n->kind != AF_YAML_LIST)
        return af_translate_says(n, "true");
    for (int i = 0; n && i < n->count; i++)
        if (af_translate_says(n->item[i], m->name))
            return true;
    return false;
}

static af_status put_targets(af_translation *t, const af_yaml *model)
{
    static const tune_module modules[] = {
        {"q_proj", "q_proj", "qkv_proj", "lora_attn_modules"},
        {"k_proj", "k_proj", "qkv_proj", "lora_attn_modules"},
        {"v_proj", "v_proj", "qkv_proj", "lora_attn_modules"},
        {"output_proj", "o_proj", "o_proj", "lora_attn_modules"},
        {"w1", "gate_proj", "gate_up_proj", "apply_lora_to_mlp"},
        {"w3", "up_proj", "gate_up_proj", "apply_lora_to_mlp"},
        {"w2", "down_proj", "down_proj", "apply_lora_to_mlp"},
        {"output", "lm_head", "lm_head", "apply_lora_to_output"},
    };
    const bool phi = strstr(af_torchtune_component(model), "phi") != NULL;
    char text[120] = "";
    const char *last = "";
    size_t used = 0;
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(modules); i++) {
        const char *name = phi ? modules[i].phi : modules[i].ours;
        if (!has_module(model, &modules[i]) || is(name, last))
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", used ? "," : "", name);
        last = name;
    }
    if (!used)
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: lora_attn_modules must be a list of q_proj, k_proj, v_proj and "
                       "output_proj",
                       t->name, model->line);
    if (phi)
        st = af_run_instead_add(t->run, "lora_attn_modules", model->line,
                                "query, key and value (and gate and up) are one matrix of this "
                                "model, with one adapter",
                                0, t->err);
    return st == AF_OK ? af_nested_put(t, "lora_target_modules", model->line, text) : st;
}

static af_status put_model(af_translation *t, const af_yaml *n, int line)
{
    static const char *const keys[][2] = {{"lora_rank", "lora_r"},
                                          {"lora_alpha", "lora_alpha"},
                                          {"lora_dropout", "lora_dropout"},
                                          {"use_dora", "peft_use_dora"}};
    static const char *const others[] = {"vision", "flux", "classifier", "reward", "clip"};
    const char *name = af_torchtune_component(n);
    const bool quantized = strncmp(name, "qlora_", 6) == 0;
    const bool lora = quantized || strncmp(name, "lora_", 5) == 0;
    const af_yaml *bits = af_nested_given(n, "quantize_base");
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(others); i++)
        if (strstr(name, others[i]))
            return refuse(t, "model", n, "models of texts are trained");
    AF_TRY(af_nested_check(t, "model", n,
                           " _component_ lora_attn_modules apply_lora_to_mlp "
                           "apply_lora_to_output lora_rank lora_alpha lora_dropout use_dora "
                           "quantize_base max_seq_len "));
    AF_TRY(af_nested_put(t, "adapter", line,
                         quantized || (lora && bits && af_translate_says(bits, "true")) ? "qlora"
                         : lora                                                         ? "lora"
                                                                                        : "full"));
    if (!lora)
        goto done;
    AF_TRY(put_targets(t, n));
    for (size_t i = 0; i < AF_LEN(keys); i++) {
        const af_yaml *v = af_nested_given(n, keys[i][0]);
        if (v)
            AF_TRY(af_translate_put(t, keys[i][1], v->line, v));
    }
done:
    return st;
}

/* The folder of the model; next to the weights of Meta's form (its `original`) the usual ones are
 * one level up. */
static af_status put_folder(af_translation *t, const char *key, const af_yaml *n)
{
    static const char original[] = "/original";
    const af_yaml *dir = af_nested_given(n, "checkpoint_dir");
    const char *text = "";
    if (!dir)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: a checkpointer has a 'checkpoint_dir'", t->name,
                       n->line);
    af_status st = af_nested_text(&text, t, dir);
    if (st != AF_OK)
        return st;
    size_t len = strlen(text);
    while (len > 1 && text[len - 1] == '/')
        len--;
    if (len > sizeof original &&
        strncmp(text + len - strlen(original), original, strlen(original)) == 0)
        len -= strlen(original);
    const char *path = af_arena_strndup(t->mem, text, len);
    return path ? af_nested_put(t, key, dir->line, path) : af_fail_nomem(t->err, key, len);
}

static af_status put_checkpointer(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *adapter = af_nested_given(n, "adapter_checkpoint");
    (void)line;
    if (adapter && !(adapter->kind == AF_YAML_SCALAR && !*adapter->text))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: adapter_checkpoint is not supported: 'lora_model_dir' names the "
                       "folder of an adapter to continue",
                       t->name, adapter->line);
    return put_folder(t, "base_model", n);
}

static af_status put_teacher(af_translation *t, const af_yaml *n, int line)
{
    (void)line;
    return put_folder(t, "teacher_model", n);
}

/* ---- optimizer, schedule, loss ---- */

static af_status put_optimizer(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *path = af_yaml_get(n, "_component_");
    const char *name = af_torchtune_component(n);
    const bool torchao =
        path && path->kind == AF_YAML_SCALAR && strncmp(path->text, "torchao.", 8) == 0;
    if (!af_torch_optim_knows(name))
        return refuse(t, "optimizer", n, "see 'optimizer'");
    const af_status st =
        af_nested_check(t, "optimizer", n,
                        " _component_ lr weight_decay betas eps momentum fused foreach is_paged ");
    return st == AF_OK ? af_torch_optim_put(t, name, n, line, torchao) : st;
}

static af_status put_schedule(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *warmup = af_nested_given(n, "num_warmup_steps"),
                  *cycles = af_nested_given(n, "num_cycles");
    af_status st = AF_OK;
    if (!is(af_torchtune_component(n), "get_cosine_schedule_with_warmup"))
        return refuse(t, "lr_scheduler", n, "see 'lr_scheduler'");
    AF_TRY(af_nested_check(t, "lr_scheduler", n, " _component_ num_warmup_steps num_cycles "));
    AF_TRY(af_nested_put(t, "lr_scheduler", line, "cosine"));
    if (cycles)
        AF_TRY(af_translate_put(t, "lr_cycles", cycles->line, cycles));
    if (warmup)
        AF_TRY(af_translate_put(t, "warmup_steps", warmup->line, warmup));
done:
    return st;
}

static af_status put_loss(af_translation *t, const af_yaml *n, int line)
{
    static const char *const plain[] = {"CEWithChunkedOutputLoss", "LinearCrossEntropyLoss",
                                        "CrossEntropyLoss", "ForwardKLWithChunkedOutputLoss",
                                        "ForwardKLLoss"};
    const char *name = af_torchtune_component(n);
    const bool hinge = is(name, "RSOLoss");
    const af_yaml *beta = af_nested_given(n, hinge ? "gamma" : "beta"),
                  *e = af_nested_given(n, "label_smoothing");
    af_status st = AF_OK;
    for (size_t i = 0; i < AF_LEN(plain); i++)
        if (is(name, plain[i]))
            return af_nested_check(t, "loss", n, " _component_ num_output_chunks ignore_index ");
    if (!hinge && !is(name, "DPOLoss"))
        return refuse(t, "loss", n, "see 'rl' and 'dpo_loss_type'");
    AF_TRY(af_nested_check(t, "loss", n, " _component_ beta gamma label_smoothing "));
    AF_TRY(af_nested_put(t, "rl", line, "dpo"));
    if (hinge || (e && !af_translate_says(e, "0") && !af_translate_says(e, "0.0")))
        AF_TRY(af_nested_put(t, "dpo_loss_type", line, hinge ? "hinge" : "cdpo"));
    if (beta)
        AF_TRY(af_translate_put(t, "rl_beta", beta->line, beta));
    if (e)
        AF_TRY(af_translate_put(t, "dpo_label_smoothing", e->line, e));
done:
    return st;
}

/* Its share of the teacher; the labels have the rest. */
static af_status put_ratio(af_translation *t, const af_yaml *n, int line)
{
    double ratio = 0;
    char text[40];
    if (!af_yaml_f64(n, &ratio))
        return af_translate_put(t, "kd_alpha", line, n); /* an error */
    snprintf(text, sizeof text, "%.17g", 1 - ratio);
    const af_status st = af_translate_put(t, "kd_alpha", line, n);
    return st == AF_OK ? af_nested_put(t, "kd_ce_alpha", line, text) : st;
}

/* ---- the rest ---- */

static af_status put_logger(af_translation *t, const af_yaml *n, int line)
{
    const bool wandb = is(af_torchtune_component(n), "WandBLogger");
    const af_yaml *project = af_nested_given(n, "project"), *name = af_nested_given(n, "name");
    af_status st = AF_OK;
    if (is(af_torchtune_component(n), "MLFlowLogger"))
        return af_nested_put(t, "report_to", line, "mlflow");
    if (!wandb) /* metrics are always written to files */
        return AF_OK;
    AF_TRY(af_nested_put(t, "report_to", line, "wandb"));
    if (project)
        AF_TRY(put_filled(t, "wandb_project", project->line, project));
    if (name)
        AF_TRY(put_filled(t, "wandb_name", name->line, name));
done:
    return st;
}

static af_status put_dtype(af_translation *t, const af_yaml *n, int line)
{
    if (af_translate_says(n, "fp16"))
        return af_nested_put(t, "fp16", line, "true");
    if (!af_translate_says(n, "bf16") && !af_translate_says(n, "fp32"))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: dtype must be bf16, fp16 or fp32", t->name, line);
    return af_nested_put(t, "bf16", line, af_translate_says(n, "bf16") ? "true" : "false");
}

static af_status put_resume(af_translation *t, const af_yaml *n, int line)
{
    return af_translate_says(n, "true") ? af_nested_put(t, "resume_from_checkpoint", line, "auto")
                                        : AF_OK;
}

/* Its epochs end after so many steps. */
static af_status put_steps(af_translation *t, const af_yaml *n, int line)
{
    const int64_t epochs = af_translate_whole(t->root, "epochs", 1);
    int64_t each = 0, all = 0;
    char text[32];
    if (!af_yaml_i64(n, &each) || each < 1 || epochs < 1 ||
        __builtin_mul_overflow(each, epochs, &all))
        return af_translate_put(t, "max_steps", line, n); /* an error, or none */
    snprintf(text, sizeof text, "%lld", (long long)all);
    const af_status st =
        epochs > 1 ? af_run_instead_add(t->run, "max_steps_per_epoch", line,
                                        "the steps of all epochs follow each other", 0, t->err)
                   : AF_OK;
    return st == AF_OK ? af_nested_put(t, "max_steps", line, text) : st;
}

static af_status put_saves(af_translation *t, const af_yaml *n, int line)
{
    const af_status st = af_nested_put(t, "save_strategy", line, "steps");
    return st == AF_OK ? af_translate_put(t, "save_steps", line, n) : st;
}

static af_status put_nothing(af_translation *t, const af_yaml *n, int line)
{
    (void)t, (void)n, (void)line;
    return AF_OK;
}

static af_status put_output(af_translation *t, const af_yaml *n, int line)
{
    return put_filled(t, "output_dir", line, n);
}

static af_status put_qat(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *after = af_nested_given(t->root, "fake_quant_after_n_steps");
    if (strcmp(af_torchtune_component(n), "Int8DynActInt4WeightQATQuantizer") != 0)
        return refuse(t, "quantizer", n, "Int8DynActInt4WeightQATQuantizer is; see 'qat'");
    const af_status st = af_nested_check(t, "quantizer", n, " _component_ groupsize ");
    return st == AF_OK ? af_torch_qat_put(t, af_nested_given(n, "groupsize"), after, line) : st;
}

static const struct {
    const char *key;
    af_status (*put)(af_translation *t, const af_yaml *n, int line);
    bool component; /* must be one */
} parts[] = {
    {"model", put_model, true},
    {"checkpointer", put_checkpointer, true},
    {"teacher_checkpointer", put_teacher, true},
    {"tokenizer", af_torchtune_put_tokenizer, true},
    {"dataset", af_torchtune_put_data, false},
    {"dataset_val", af_torchtune_put_data, false},
    {"optimizer", put_optimizer, true},
    {"lr_scheduler", put_schedule, true},
    {"loss", put_loss, true},
    {"kd_loss", put_nothing, false},
    {"kd_ratio", put_ratio, false},
    {"metric_logger", put_logger, true},
    {"dtype", put_dtype, false},
    {"resume_from_checkpoint", put_resume, false},
    {"max_steps_per_epoch", put_steps, false},
    {"save_every_n_steps", put_saves, false},
    {"output_dir", put_output, false},
    {"quantizer", put_qat, true},
    {"ref_checkpointer", put_nothing, false}, /* of DPO: the model that the run starts from */
    {"teacher_model", put_nothing, false},    /* see its checkpointer */
    {"profiler", put_nothing, false},
};

/* Other names; NULL: what is learnt does not change. */
static const char *const names[][2] = {
    {"batch_size", "micro_batch_size"},
    {"epochs", "num_epochs"},
    {"clip_grad_norm", "max_grad_norm"},
    {"log_every_n_steps", "logging_steps"},
    {"run_val_every_n_steps", "eval_steps"},
    {"enable_activation_checkpointing", "gradient_checkpointing"},
    {"enable_activation_offloading", "activation_offloading"},
    {"batch_size_val", NULL},
    {"compile", NULL},
    {"log_peak_memory_stats", NULL},
    {"log_level", NULL},
    {"optimizer_in_bwd", NULL},
    {"save_adapter_weights_only", NULL},
    {"save_last_epoch_only", NULL},
    {"fsdp_cpu_offload", NULL},
    {"fsdp_reshard_after_forward", NULL},
    {"fsdp_sharding_strategy", NULL},
    {"custom_sharded_layers", NULL},
    {"tensor_parallel_dim", NULL},
    {"tensor_parallel_plan", NULL},
    {"ac_mode", NULL},
    {"ac_option", NULL},
    {"memory_efficient_fsdp_wrap", NULL},
    {"low_cpu_ram", NULL},
    {"cudnn_deterministic_mode", NULL},
    {"max_seq_length", NULL},           /* of generation */
    {"fake_quant_after_n_steps", NULL}, /* see put_qat */
};

static af_status put_entry(af_translation *t, int i)
{
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    const int line = t->root->key_line[i];
    if (af_yaml_is_null(n))
        return AF_OK;
    for (size_t k = 0; k < AF_LEN(parts); k++)
        if (is(parts[k].key, key))
            return parts[k].component && !*af_torchtune_component(af_yaml_get(n, "_component_"))
                       ? af_fail(t->err, AF_EUSAGE, "%s:%d: %s has no '_component_'", t->name, line,
                                 key)
                       : parts[k].put(t, n, line);
    for (size_t k = 0; k < AF_LEN(names); k++)
        if (is(names[k][0], key))
            return names[k][1] ? af_translate_put(t, names[k][1], line, n) : AF_OK;
    return af_translate_put(t, key, line, n);
}

af_status af_torchtune_join(const af_yaml **out, const af_translation *t)
{
    af_translation part = *t;
    af_status st = AF_OK;
    part.room = 0;
    part.out = af_arena_take(t->mem, sizeof *part.out);
    if (!part.out)
        return af_fail_nomem(t->err, t->name, sizeof *part.out);
    *part.out = (af_yaml){.kind = AF_YAML_MAP, .line = t->root->line};
    const af_yaml *policy = af_nested_given(t->root, "policy_model");
    if (policy)
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: recipes of torchtune with generated answers (PPO, GRPO) are not "
                       "supported: see 'rl'",
                       t->name, policy->line);
    if (!af_yaml_get(t->root, "dataset"))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: this file of torchtune does not train: it has no 'dataset'", t->name,
                       t->root->line);
    for (int i = 0; i < t->root->count && st == AF_OK; i++)
        st = put_entry(&part, i);
    *out = part.out;
    return st;
}
