/* run_oumi.c - run files of Oumi (`oumi train -c FILE`): the sections model, data, training, peft,
 * fsdp and deepspeed as one map of our keys. Most keys of `training` are those of the Hugging Face
 * trainer, to which Oumi hands them. */
#include "train/foreign/nested.h"
#include "train/run/run_config.h"

#include <math.h>
#include <strings.h>

static bool is(const char *key, const char *name) { return strcmp(key, name) == 0; }

bool af_oumi_is_file(const af_yaml *root)
{
    const af_yaml *model = af_yaml_get(root, "model");
    return model && model->kind == AF_YAML_MAP && af_yaml_get(model, "model_name");
}

static bool on(const af_yaml *map, const char *key)
{
    const af_yaml *n = af_nested_given(map, key);
    return n && af_translate_says(n, "true");
}

/* A value in words, whatever their case. */
static bool says(const af_yaml *n, const char *word)
{
    return n && n->kind == AF_YAML_SCALAR && strcasecmp(n->text, word) == 0;
}

/* A key of a section: another name, or NULL where what is learnt does not change. Keys that are not
 * listed stand for themselves. */
typedef struct oumi_key {
    const char *section, *key, *ours;
} oumi_key;

static const oumi_key keys[] = {
    {"model", "model_name", "base_model"},
    {"model", "model_max_length", "sequence_len"},
    {"model", "tokenizer_pad_token", NULL},
    {"model", "tokenizer_kwargs", NULL},
    {"model", "processor_kwargs", NULL},
    {"model", "torch_dtype_str", NULL},
    {"model", "attn_implementation", NULL},
    {"model", "device_map", NULL},
    {"model", "compile", NULL},
    {"model", "enable_liger_kernel", NULL},
    {"model", "shard_for_eval", NULL},
    {"model", "text_only", NULL},
    {"model", "trust_remote_code", NULL},
    {"model", "tool_call_parser", NULL},
    {"model", "adapter_trainable", NULL},
    {"model", "adapter_model", "lora_model_dir"},
    {"training", "enable_gradient_checkpointing", "gradient_checkpointing"},
    {"training", "gradient_checkpointing_kwargs", NULL},
    {"training", "per_device_eval_batch_size", NULL},
    {"training", "save_final_model", NULL},
    {"training", "use_deterministic", NULL},
    {"training", "full_determinism", NULL},
    {"training", "log_level", NULL},
    {"training", "dep_log_level", NULL},
    {"training", "log_examples", NULL},
    {"training", "enable_tensorboard", NULL},
    {"training", "logging_strategy", NULL},
    {"training", "logging_dir", NULL},
    {"training", "logging_first_step", NULL},
    {"training", "compile", NULL},
    {"training", "include_performance_metrics", NULL},
    {"training", "include_alternative_mfu_metrics", NULL},
    {"training", "log_model_summary", NULL},
    {"training", "try_resume_from_last_checkpoint", "auto_resume_from_checkpoints"},
    {"training", "dataloader_num_workers", NULL},
    {"training", "dataloader_persistent_workers", NULL},
    {"training", "dataloader_prefetch_factor", NULL},
    {"training", "dataloader_main_process_only", NULL},
    {"training", "ddp_find_unused_parameters", NULL},
    {"training", "profiler", NULL},
    {"training", "telemetry", NULL},
    {"training", "empty_device_cache_steps", NULL},
    {"training", "nccl_default_timeout_minutes", NULL},
    {"training", "label_ignore_index", NULL},
    {"peft", "bnb_4bit_quant_storage", NULL},
    {"peft", "bnb_4bit_compute_dtype", NULL},
    {"peft", "peft_save_mode", NULL},
    {"peft", "q_lora", NULL}, /* see put_bits */
    {"peft", "q_lora_bits", NULL},
    {"peft", "lora_task_type", NULL},
};

/* ---- model and training ---- */

/* Its own texts of templates that have other ones under the same names. */
#define EACH_TURN(text) "{% for m in messages %}{{ " text " }}{% endfor %}"
#define ASK(text)       "{% if add_generation_prompt %}{{ '" text "' }}{% endif %}"
#define ZEPHYR                                                                                     \
    EACH_TURN("'<|' + m['role'] + '|>\\n' + m['content'] | trim + eos_token + '\\n'")              \
    ASK("<|assistant|>\\n")
#define CHAT_ML                                                                                    \
    "{{ bos_token }}" EACH_TURN(                                                                   \
        "'<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>\\n'")              \
        ASK("<|im_start|>assistant\\n")

/* A word for a value. A NULL key: it asks for nothing. */
static const struct {
    const char *key, *value, *ours, *as;
} values[] = {
    {"trainer_type", "trl_sft", NULL, NULL},
    {"trainer_type", "hf", NULL, NULL},
    {"trainer_type", "oumi", NULL, NULL},
    {"trainer_type", "trl_dpo", "rl", "dpo"},
    {"trainer_type", "trl_kto", "rl", "kto"},
    {"mixed_precision_dtype", "none", NULL, NULL},
    {"mixed_precision_dtype", "bf16", "bf16", "true"},
    {"mixed_precision_dtype", "fp16", "fp16", "true"},
    {"enable_wandb", "false", NULL, NULL},
    {"enable_wandb", "true", "report_to", "wandb"},
    {"enable_mlflow", "false", NULL, NULL},
    {"enable_mlflow", "true", "report_to", "mlflow"},
    {"save_epoch", "false", NULL, NULL},
    {"load_pretrained_weights", "true", NULL, NULL},
    {"load_pretrained_weights", "false", "train_from_scratch", "true"},
    {"use_peft", "false", "adapter", "full"},
    {"use_peft", "true", NULL, NULL}, /* see put_peft */
    {"chat_template", "auto", NULL, NULL},
    {"chat_template", "chat_ml", "chat_template", CHAT_ML},
    {"chat_template", "llama3-instruct", "chat_template", "llama3"},
    {"chat_template", "phi3-instruct", "chat_template", "phi_35"}, /* no bos */
    {"chat_template", "gemma2-it", "chat_template", "gemma3"},     /* with a system text */
    {"chat_template", "zephyr", "chat_template", ZEPHYR},
    {"lora_bias", "none", NULL, NULL},
    {"lora_init_weights", "default", NULL, NULL},
    {"lora_init_weights", "random", "peft_init_lora_weights", "false"},
};

/* Modules, as beginnings of the names of their parameters. */
static af_status put_frozen(af_translation *t, const af_yaml *n, int line)
{
    af_yaml *list = af_arena_take(t->mem, sizeof *list);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(n->count, 1) * sizeof *item);
    af_status st = list && item ? AF_OK : af_fail_nomem(t->err, "freeze_layers", sizeof *list);
    for (int i = 0; i < n->count && st == AF_OK; i++) {
        char name[300];
        snprintf(name, sizeof name, "%.290s.",
                 n->item[i]->kind == AF_YAML_SCALAR ? n->item[i]->text : "");
        item[i] = af_translate_scalar(t, line, name);
        if (!item[i])
            st = af_fail_nomem(t->err, "freeze_layers", sizeof name);
    }
    if (st != AF_OK)
        return st;
    *list = (af_yaml){.kind = AF_YAML_LIST, .line = n->line, .count = n->count, .item = item};
    return af_translate_put(t, "freeze_parameters", line, list);
}

/* model_kwargs: {quantization_config: {quant_method: mxfp4}}, as the experts of gpt-oss are stored.
 */
static bool is_stored_type(const af_yaml *kwargs)
{
    const af_yaml *q = af_nested_given(kwargs, "quantization_config");
    return kwargs->kind == AF_YAML_MAP && kwargs->count == 1 && q && q->kind == AF_YAML_MAP &&
           q->count == 1 && says(af_nested_given(q, "quant_method"), "mxfp4");
}

/* Its own checks: what the trainer is, and how often it saves. */
static bool put_special(af_translation *t, const af_yaml *map, int i, af_status *st)
{
    const char *key = map->key[i];
    const af_yaml *n = map->item[i];
    const int line = map->key_line[i];
    if (is(key, "trainer_type"))
        *st = af_fail(t->err, AF_EUNSUPPORTED,
                      "%s:%d: trainer_type '%.40s' is not supported: TRL_SFT, TRL_DPO, TRL_KTO, HF "
                      "and OUMI are",
                      t->name, line, n->kind == AF_YAML_SCALAR ? n->text : "");
    else if (is(key, "save_epoch")) /* a number of steps comes before it */
        *st = af_nested_given(map, "save_steps") ? AF_OK
                                                 : af_nested_put(t, "save_strategy", line, "epoch");
    else if (is(key, "save_steps") && af_translate_says(n, "0") && !on(map, "save_epoch"))
        *st = af_nested_put(t, "save_strategy", line, "no");
    else if (is(key, "save_steps") && af_translate_says(n, "0"))
        *st = af_nested_put(t, "save_strategy", line, "epoch");
    else if (is(key, "freeze_layers") && n->kind == AF_YAML_LIST)
        *st = put_frozen(t, n, line);
    else if (is(key, "model_kwargs") && is_stored_type(n))
        *st = AF_OK;
    else if (is(key, "lora_init_weights"))
        *st = af_translate_put(t, "peft_init_lora_weights", line, n);
    else
        return false;
    return true;
}

static af_status put_key(af_translation *t, const char *section, const af_yaml *map, int i)
{
    const char *key = map->key[i], *text = "";
    const af_yaml *n = map->item[i];
    const int line = map->key_line[i];
    af_status st = AF_OK;
    if (af_yaml_is_null(n))
        return AF_OK;
    for (size_t k = 0; k < AF_LEN(values); k++)
        if (is(values[k].key, key) && (says(n, values[k].value) || (is(values[k].value, "true") &&
                                                                    af_translate_says(n, "true"))))
            return values[k].ours ? af_nested_put(t, values[k].ours, line, values[k].as) : AF_OK;
    if (put_special(t, map, i, &st))
        return st;
    for (size_t k = 0; k < AF_LEN(keys); k++)
        if (is(keys[k].section, section) && is(keys[k].key, key)) {
            if (!keys[k].ours)
                return AF_OK;
            key = keys[k].ours;
            break;
        }
    if (n->kind != AF_YAML_SCALAR)
        return n->count ? af_translate_put(t, key, line, n) : AF_OK;
    if (!strchr(n->text, '$'))
        return af_translate_put(t, key, line, n);
    st = af_nested_text(&text, t, n);
    return st == AF_OK ? af_nested_put(t, key, line, text) : st;
}

static af_status put_all(af_translation *t, const char *section, const af_yaml *map)
{
    af_status st = AF_OK;
    for (int i = 0; i < map->count && st == AF_OK; i++)
        st = put_key(t, section, map, i);
    return st;
}

/* Arguments that it hands to the trainer; model_max_length is over their max_length. */
static af_status put_training(af_translation *t, const af_yaml *training)
{
    af_status st = AF_OK;
    const bool length = af_nested_given(af_yaml_get(t->root, "model"), "model_max_length") != NULL;
    for (int i = 0; i < training->count && st == AF_OK; i++) {
        const af_yaml *more = training->item[i];
        if (!is(training->key[i], "trainer_kwargs") || more->kind != AF_YAML_MAP) {
            st = put_key(t, "training", training, i);
            continue;
        }
        for (int k = 0; k < more->count && st == AF_OK; k++)
            if (!length || (!is(more->key[k], "max_length") && !is(more->key[k], "max_seq_length")))
                st = put_key(t, "trainer_kwargs", more, k);
    }
    return st;
}

/* ---- adapter ---- */

static af_status put_bits(af_translation *t, const af_yaml *peft)
{
    const int64_t bits = af_translate_whole(peft, "q_lora_bits", 4);
    const int line = peft->line;
    af_status st = AF_OK;
    if (!on(peft, "q_lora"))
        return af_nested_put(t, "adapter", line, "lora");
    if (bits == 8) {
        AF_TRY(af_nested_put(t, "adapter", line, "lora"));
        return af_nested_put(t, "load_in_8bit", line, "true");
    }
    AF_TRY(af_nested_put(t, "adapter", line, "qlora"));
    if (!af_nested_given(peft, "bnb_4bit_quant_type"))
        AF_TRY(af_run_instead_add(t->run, "q_lora", line, "the base has nf4, Oumi's default is fp4",
                                  0, t->err));
    if (!af_nested_given(peft, "use_bnb_nested_quant"))
        AF_TRY(af_nested_put(t, "use_bnb_nested_quant", line, "false")); /* its default */
done:
    return st;
}

/* Without use_peft the section is not read. */
static af_status put_peft(af_translation *t, const af_yaml *peft, int line)
{
    af_status st = AF_OK;
    if (!on(af_yaml_get(t->root, "training"), "use_peft"))
        return AF_OK;
    (void)line;
    AF_TRY(put_bits(t, peft));
    for (int i = 0; i < peft->count; i++) {
        const bool of_4bit =
            strncmp(peft->key[i], "bnb_4bit", 8) == 0 || is(peft->key[i], "use_bnb_nested_quant");
        if (!of_4bit || (on(peft, "q_lora") && af_translate_whole(peft, "q_lora_bits", 4) == 4))
            AF_TRY(put_key(t, "peft", peft, i));
    }
done:
    return st;
}

/* ---- data ---- */

/* Names of its own classes, and the fields of their arguments. */
static af_status set_class(const af_translation *t, af_yaml *e, const af_yaml *n, const char *name)
{
    const af_yaml *args = af_nested_given(n, "dataset_kwargs");
    const af_yaml *path = af_nested_given(n, "dataset_path");
    const bool prompt = is(name, "PromptResponseDataset"), chat = is(name, "HuggingFaceDataset");
    const bool file =
        is(name, "text_sft") || is(name, "text_sft_jsonl") || is(name, "text_dpo_jsonl");
    static const char *const fields[][3] = {{"prompt_column", "field_instruction", "instruction"},
                                            {"response_column", "field_output", "output"},
                                            {"messages_column", "field_messages", "messages"}};
    const char *text = name;
    af_status st = AF_OK;
    path = path ? path : af_nested_given(args, prompt || chat ? "hf_dataset_path" : "dataset_path");
    if (args)
        AF_TRY(af_nested_check(t, "dataset_kwargs", args,
                               prompt ? " hf_dataset_path prompt_column response_column "
                               : chat ? " hf_dataset_path messages_column "
                               : file ? " dataset_path format "
                                      : " seq_length "));
    if ((file || prompt || chat) && !path)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: dataset '%s' has no '%s'", t->name, n->line, name,
                       file ? "dataset_path" : "hf_dataset_path");
    if (path)
        AF_TRY(af_nested_text(&text, t, path));
    AF_TRY(af_nested_set_text(t, e, "path", text));
    for (size_t i = 0; i < AF_LEN(fields); i++) {
        const af_yaml *v = af_nested_given(args, fields[i][0]);
        if (i < 2 ? prompt : chat)
            AF_TRY(af_nested_set_text(t, e, fields[i][1],
                                      v && v->kind == AF_YAML_SCALAR ? v->text : fields[i][2]));
    }
    if (is(name, "tatsu-lab/alpaca") || is(name, "yahma/alpaca-cleaned"))
        AF_TRY(af_nested_set_text(t, e, "type", "alpaca:oumi"));
done:
    return st;
}

static af_status make_entry(af_translation *t, af_yaml **out, const af_yaml *n)
{
    const af_yaml *name = af_nested_given(n, "dataset_name"),
                  *subset = af_nested_given(n, "subset"), *split = af_nested_given(n, "split"),
                  *count = af_nested_given(n, "sample_count"), *seed = af_nested_given(n, "seed");
    af_yaml *e = *out = af_nested_map(t, n->line);
    af_status st = e ? AF_OK : af_fail_nomem(t->err, "datasets", sizeof *e);
    AF_TRY(st);
    if (!name || name->kind != AF_YAML_SCALAR)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: a dataset has a 'dataset_name'", t->name,
                       n->line);
    AF_TRY(af_nested_check(t, "a dataset", n,
                           " dataset_name dataset_path subset split dataset_kwargs sample_count "
                           "mixture_proportion shuffle seed shuffle_buffer_size trust_remote_code "
                           "transform_num_workers "));
    AF_TRY(set_class(t, e, n, name->text));
    if (subset)
        AF_TRY(af_nested_set(t, e, "name", subset));
    if (split)
        AF_TRY(af_nested_set(t, e, "split", split));
    if (count) /* of the shuffled dataset, or the first ones */
        AF_TRY(af_nested_set(t, e, on(n, "shuffle") ? "num_samples" : "max_samples", count));
    if (count && seed && on(n, "shuffle"))
        AF_TRY(af_nested_set(t, e, "seed", seed));
done:
    return st;
}

/* As Oumi wants them. */
static af_status check_shares(const af_translation *t, af_yaml *const *item, int count, bool over)
{
    double share, sum = 0;
    for (int i = 0; i < count; i++) {
        if (!af_yaml_f64(item[i], &share) || !(share >= 0 && share <= 1) || (over && share == 0))
            return af_fail(t->err, AF_EUSAGE,
                           "%s:%d: mixture_proportion must be a number from 0 to 1%s", t->name,
                           item[i]->line, over ? ", and not 0 with all_exhausted" : "");
        sum += share;
    }
    return fabs(sum - 1) <= 1e-6
               ? AF_OK
               : af_fail(t->err, AF_EUSAGE,
                         "%s:%d: the mixture_proportion of all datasets must add up to 1, not %g",
                         t->name, item[0]->line, sum);
}

/* Datasets with a mixture_proportion take turns by it, as interleave_datasets lets them. */
static af_status put_mixture(af_translation *t, const af_yaml *split, const af_yaml *list,
                             bool trains)
{
    const af_yaml *how = af_nested_given(split, "mixture_strategy"), *none = NULL, *some = NULL;
    af_yaml *shares = af_arena_take(t->mem, sizeof *shares);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(list->count, 1) * sizeof *item);
    if (!shares || !item)
        return af_fail_nomem(t->err, "interleave_probs", (uint64_t)list->count * sizeof *item);
    for (int i = 0; i < list->count; i++) {
        const af_yaml *v = af_nested_given(list->item[i], "mixture_proportion");
        if (v)
            some = v;
        else
            none = list->item[i];
        item[i] = (af_yaml *)v;
    }
    if (!some)
        return AF_OK;
    if (none || !trains)
        return af_fail(t->err, trains ? AF_EUSAGE : AF_EUNSUPPORTED, "%s:%d: %s", t->name,
                       none ? none->line : some->line,
                       trains ? "all datasets have a 'mixture_proportion' or none"
                              : "mixture_proportion is not supported in 'validation'");
    if (how && !says(how, "first_exhausted") && !says(how, "all_exhausted"))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: mixture_strategy must be first_exhausted or all_exhausted", t->name,
                       how->line);
    *shares =
        (af_yaml){.kind = AF_YAML_LIST, .line = some->line, .count = list->count, .item = item};
    af_status st = check_shares(t, item, list->count, says(how, "all_exhausted"));
    if (st == AF_OK)
        st = af_translate_put(t, "interleave_probs", some->line, shares);
    return st != AF_OK
               ? st
               : af_nested_put(t, "mix_strategy", some->line,
                               says(how, "all_exhausted") ? "interleave_over" : "interleave_under");
}

static af_status put_datasets(af_translation *t, const char *key, const af_yaml *split)
{
    const af_yaml *list = af_nested_given(split, "datasets");
    const int count = list && list->kind == AF_YAML_LIST ? list->count : 0;
    af_yaml *all = af_arena_take(t->mem, sizeof *all);
    af_yaml **item = af_arena_take(t->mem, (uint64_t)AF_MAX(count, 1) * sizeof *item);
    af_status st = all && item ? AF_OK : af_fail_nomem(t->err, key, sizeof *all);
    for (int i = 0; i < count && st == AF_OK; i++)
        st = make_entry(t, &item[i], list->item[i]);
    if (st != AF_OK || !count)
        return st;
    *all = (af_yaml){.kind = AF_YAML_LIST, .line = list->line, .count = count, .item = item};
    st = af_translate_put(t, key, list->line, all);
    return st == AF_OK ? put_mixture(t, split, list, is(key, "datasets")) : st;
}

/* Which tokens carry loss: all, unless a collator or a target says otherwise. */
static af_status put_target(af_translation *t, const af_yaml *train)
{
    const af_yaml *target = af_nested_given(train, "train_target"),
                  *collator = af_nested_given(train, "collator_name");
    const bool answers = says(collator, "text_completions_only_with_padding");
    af_status st = AF_OK;
    if (collator && !answers && !says(collator, "text_with_padding"))
        return af_fail(t->err, AF_EUNSUPPORTED,
                       "%s:%d: collator_name '%.60s' is not supported: text_with_padding and "
                       "text_completions_only_with_padding are",
                       t->name, collator->line,
                       collator->kind == AF_YAML_SCALAR ? collator->text : "");
    if (target && !says(target, "all_assistant_turns") && !says(target, "final_assistant_turn"))
        return af_fail(t->err, AF_EUSAGE,
                       "%s:%d: train_target must be all_assistant_turns or final_assistant_turn",
                       t->name, target->line);
    if (answers || target)
        AF_TRY(af_nested_put(t, "train_on_inputs", train->line, "false"));
    if (says(target, "final_assistant_turn"))
        AF_TRY(af_nested_put(t, "mask_history", target->line, "true"));
    if (on(train, "pack"))
        AF_TRY(af_nested_put(t, "sample_packing", train->line, "true"));
done:
    return st;
}

static af_status put_data(af_translation *t, const af_yaml *data, int line)
{
    static const char known[] =
        " datasets collator_name collator_kwargs train_target pack stream "
        "target_col mixture_strategy seed use_torchdata use_async_dataset masking_method ";
    const af_yaml *train = af_nested_given(data, "train"),
                  *test = af_nested_given(data, "validation");
    af_status st = AF_OK;
    if (!train || train->kind != AF_YAML_MAP)
        return af_fail(t->err, AF_EUSAGE, "%s:%d: data has no 'train'", t->name, line);
    AF_TRY(af_nested_check(t, "data", data, " train validation test "));
    AF_TRY(af_nested_check(t, "data.train", train, known));
    AF_TRY(put_datasets(t, "datasets", train));
    AF_TRY(put_target(t, train));
    if (test)
        AF_TRY(put_datasets(t, "test_datasets", test));
done:
    return st;
}

/* ---- several devices ---- */

static af_status put_fsdp(af_translation *t, const af_yaml *n, int line)
{
    const af_yaml *how = af_nested_given(n, "sharding_strategy");
    return !on(n, "enable_fsdp") ? AF_OK
                                 : af_nested_put(t, "fsdp", line,
                                                 says(how, "shard_grad_op") ? "shard_grad_op"
                                                 : says(how, "no_shard")    ? "no_shard"
                                                                            : "full_shard");
}

static af_status put_deepspeed(af_translation *t, const af_yaml *n, int line)
{
    static const char *const stages[] = {"zero_0", "zero_1", "zero_2", "zero_3"};
    const af_yaml *stage = af_nested_given(n, "zero_stage");
    for (size_t i = 0; on(n, "enable_deepspeed") && i < AF_LEN(stages); i++)
        if (stage ? says(stage, stages[i]) : i == 0)
            return af_nested_put(t, "zero_stage", line, (const char[]){(char)('0' + i), 0});
    return AF_OK;
}

static af_status put_section(af_translation *t, int i)
{
    static const struct {
        const char *key;
        af_status (*put)(af_translation *t, const af_yaml *n, int line);
    } sections[] = {
        {"data", put_data}, {"peft", put_peft}, {"fsdp", put_fsdp}, {"deepspeed", put_deepspeed}};
    const char *key = t->root->key[i];
    const af_yaml *n = t->root->item[i];
    if (n->kind == AF_YAML_MAP && is(key, "model"))
        return put_all(t, "model", n);
    if (n->kind == AF_YAML_MAP && is(key, "training"))
        return put_training(t, n);
    for (size_t k = 0; n->kind == AF_YAML_MAP && k < AF_LEN(sections); k++)
        if (is(sections[k].key, key))
            return sections[k].put(t, n, t->root->key_line[i]);
    return af_translate_put(t, key, t->root->key_line[i], n); /* unknown */
}

af_status af_oumi_join(const af_yaml **out, const af_translation *t)
{
    af_translation part = *t;
    af_status st = AF_OK;
    part.room = 0;
    part.out = af_arena_take(t->mem, sizeof *part.out);
    if (!part.out)
        return af_fail_nomem(t->err, t->name, sizeof *part.out);
    *part.out = (af_yaml){.kind = AF_YAML_MAP, .line = t->root->line};
    if (!af_yaml_get(t->root, "data") || !af_yaml_get(t->root, "training"))
        return af_fail(t->err, AF_EUSAGE, "%s:%d: this file of Oumi does not train: it has no '%s'",
                       t->name, t->root->line, af_yaml_get(t->root, "data") ? "training" : "data");
    for (int i = 0; i < t->root->count && st == AF_OK; i++)
        st = put_section(&part, i);
    if (st == AF_OK && on(af_yaml_get(t->root, "training"), "use_peft") &&
        !af_yaml_get(t->root, "peft"))
        st = af_nested_put(&part, "adapter", t->root->line, "lora");
    *out = part.out;
    return st;
}
