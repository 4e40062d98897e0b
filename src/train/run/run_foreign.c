/* run_foreign.c - keys of other trainers that are not keys here, each with advice on what to do
 * instead. (Those that mean the same as one of ours are aliases in run_keys.c.) A key that is
 * empty, or asks for what happens anyway, is not an error. */
#include "train/run/run_keys.h"

/* clang-format off */
static const struct {
    const char *key, *advice;
} foreign[] = {
    {"fp16", "runs compute in bf16 or f32: see 'bf16'"},
    {"pure_bf16", "runs compute in bf16 or f32: see 'bf16'"},
    {"fp8", "runs compute in bf16 or f32: see 'bf16'"},
    {"quantization_bit", "a base is quantised to 4 or 8 bits or read as it is"},
    {"quantization_method", "'load_in_4bit' quantises to nf4, as bitsandbytes does"},
    {"double_quantization", "4-bit bases always have it"},
    {"stage", "'train' is supervised fine-tuning, or pre-training when the dataset is text"},
    {"do_train", "'afinar train' always trains"},
    {"do_eval", "set 'val_set_size' or 'test_datasets'"},
    {"eval_strategy", "set 'eval_steps' or 'evals_per_epoch'"},
    {"evaluation_strategy", "set 'eval_steps' or 'evals_per_epoch'"},
    {"save_strategy", "set 'save_steps' or 'saves_per_epoch'"},
    {"logging_strategy", "set 'logging_steps'"},
    {"metric_for_best_model", "the best evaluation is the one with the lowest eval_loss"},
    {"greater_is_better", "the best evaluation is the one with the lowest eval_loss"},
    {"rl", "preference training is not part of 'train'"},
    {"rl_beta", "preference training is not part of 'train'"},
    {"pref_beta", "preference training is not part of 'train'"},
    {"pref_loss", "preference training is not part of 'train'"},
    {"dpo_beta", "preference training is not part of 'train'"},
    {"flash_attention", "attention is always fused"},
    {"flash_attn", "attention is always fused"},
    {"attn_implementation", "attention is always fused"},
    {"sdp_attention", "attention is always fused"},
    {"xformers_attention", "attention is always fused"},
    {"load_in_16bit", "a base is quantised to 4 bits ('load_in_4bit') or read as it is"},
    {"gradient_checkpointing_kwargs", "there is one kind: see 'gradient_checkpointing'"},
    {"upcast_layernorm", "norms are always computed in f32"},
    {"group_by_length", "rows are not padded: there is nothing to gain"},
    {"eval_sample_packing", "evaluation runs record by record"},
    {"eval_batch_size", "evaluation runs record by record"},
    {"per_device_eval_batch_size", "evaluation runs record by record"},
    {"dataset_prepared_path", "tokenised data is kept in the cache folder (XDG_CACHE_HOME)"},
    {"dataset_processes", "see 'threads'"},
    {"preprocessing_num_workers", "see 'threads'"},
    {"dataloader_num_workers", "see 'threads'"},
    {"overwrite_cache", "the cache knows when data, tokenizer or settings have changed"},
    {"dataset_dir", "set 'datasets' with paths"},
    {"streaming", "data is always streamed from the disk"},
    {"max_samples", "give a smaller dataset, or 'max_steps'"},
    {"mask_history", "mark messages with \"train\": false, or see 'roles_to_train'"},
    {"special_tokens", "tokens are those of the model's tokenizer"},
    {"tokens", "tokens are those of the model's tokenizer"},
    {"add_tokens", "tokens are those of the model's tokenizer"},
    {"resize_vocab", "tokens are those of the model's tokenizer"},
    {"tokenizer_type", "the tokenizer is the model's"},
    {"model_type", "it is read from the model's config"},
    {"trust_remote_code", "no code of a model is ever run"},
    {"bnb_4bit_quant_type", "'load_in_4bit' is nf4"},
    {"wandb_project", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"wandb_entity", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"wandb_name", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"wandb_watch", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"wandb_log_model", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"use_wandb", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"use_mlflow", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"use_tensorboard", "TensorBoard events are always written"},
    {"report_to", "metrics.jsonl, TensorBoard events and report.html are always written"},
    {"wandb_run_id", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"mlflow_experiment_name", "metrics go to metrics.jsonl, TensorBoard events and report.html"},
    {"hub_model_id", "nothing is uploaded: the adapter is in 'output_dir'"},
    {"hub_strategy", "nothing is uploaded: the adapter is in 'output_dir'"},
    {"push_to_hub", "nothing is uploaded: the adapter is in 'output_dir'"},
    {"logging_dir", "everything is written to 'output_dir'"},
    {"save_safetensors", "weights are always written as safetensors"},
    {"save_only_model", "a checkpoint always has the whole state"},
    {"include_num_input_tokens_seen", "metrics.jsonl always counts tokens"},
    {"early_stopping_threshold", "every lower eval_loss is a better one"},
    {"label_smoothing", "the loss is the plain cross-entropy"},
    {"label_smoothing_factor", "the loss is the plain cross-entropy"},
    {"training_type", "see 'adapter'"},
    {"lora_parameters", "see 'lora_r', 'lora_alpha', 'lora_dropout' and 'lora_target_modules'"},
    {"num_layers", "see 'lora_layers_to_transform'"},
    {"freeze_trainable_layers", "see 'lora_layers_to_transform'"},
    {"unfrozen_parameters", "see 'lora_modules_to_save'"},
    {"resume_adapter_file", "see 'lora_model_dir'"},
    {"create_new_adapter", "the adapter of 'lora_model_dir' continues training"},
    {"mask_prompt", "prompts carry no loss without 'train_on_inputs'"},
    {"train_on_completions", "prompts carry no loss without 'train_on_inputs'"},
    {"data", "set 'datasets' with paths"},
    {"local_dataset", "set 'datasets' with paths"},
    {"format_type", "a dataset has a 'type'"},
    {"dataset_text_field", "a dataset has 'field_...' keys"},
    {"remove_unused_columns", "unused fields are not read"},
    {"sample_packing_eff_est", "packs are counted, not estimated"},
    {"dataset_num_proc", "see 'threads'"},
    {"dataloader_pin_memory", "see 'threads'"},
    {"num_workers", "see 'threads'"},
    {"auto_find_batch_size", "'afinar plan' shows what fits"},
    {"torch_compile", "a step is planned once and replayed"},
    {"use_unsloth", "attention is always fused"},
    {"use_fast_tokenizer", "the tokenizer is the model's"},
    {"tokenizer_use_fast", "the tokenizer is the model's"},
    {"tokenizer_config", "the tokenizer is the model's"},
    {"rope_scaling", "it is read from the model's config"},
    {"enable_thinking", "see 'chat_template'"},
    {"eval_table_size", "see 'generate_samples'"},
    {"ddp_find_unused_parameters", "a run is one process on one device"},
    {"lr_scheduler_kwargs", "see 'cosine_min_lr_ratio', 'lr_power', 'lr_cycles', 'lr_decay_ratio'"},
    {"local_rank", "a run is one process on one device"},
    {"plot_loss", "report.html always has the curves"},
    {"deepspeed", "a run is one process on one device"},
    {"fsdp", "a run is one process on one device"},
    {"fsdp_config", "a run is one process on one device"},
    {"ddp_timeout", "a run is one process on one device"},
    {"lora_fan_in_fan_out", "supported models do not store transposed matrices"},
    {"pissa_init", "see 'peft_init_lora_weights'"},
    {"loss_watchdog_threshold", "a loss that is not finite stops a run; 'early_stopping_patience'"},
    {"full_determinism", "runs with the same seed always give the same bytes"},
    {"debug", "see the option -v"},
    {"loss_watchdog_patience", "a loss that is not finite stops a run"},
    {"eval_max_new_tokens", "see 'generate_samples_tokens'"},
    {"strict", "an unknown key is always an error"},
    {"plugins", "no external code is run; heads and losses are always fused"},
    {"lora_mlp_kernel", "adapters are always computed with their linears"},
    {"lora_qkv_kernel", "adapters are always computed with their linears"},
    {"lora_o_kernel", "adapters are always computed with their linears"},
    {"s2_attention", "attention is always fused"},
    {"dataset_name", "set 'datasets' with paths"},
    {"use_peft", "see 'adapter'"},
    {"assistant_only_loss", "prompts carry no loss without 'train_on_inputs'"},
    {"completion_only_loss", "prompts carry no loss without 'train_on_inputs'"},
    {"dtype", "a base is read as it is stored; for computing, see 'bf16'"},
    {"torch_dtype", "a base is read as it is stored; for computing, see 'bf16'"},
    {"dataloader_drop_last", "left-over rows begin the first step of the next epoch"},
    {"logging_first_step", "set 'logging_steps'"},
    {"disable_tqdm", "see the option -q"},
    {"use_cpu", "see 'device'"},
    {"no_cuda", "see 'device'"},
    {"random_state", "see 'seed'"},
    {"eval_on_start", "evaluations always begin before the first step"},
};
/* clang-format on */

/* Values that ask for what happens anyway. */
static const struct {
    const char *key, *value;
} anyway[] = {
    {"stage", "sft"},
    {"do_train", "true"},
    {"double_quantization", "true"},
    {"quantization_method", "bnb"},
    {"bnb_4bit_quant_type", "nf4"},
    {"greater_is_better", "false"},
    {"metric_for_best_model", "eval_loss"},
    {"fp16", "false"},
    {"pure_bf16", "false"},
    {"fp8", "false"},
    {"load_in_8bit", "false"},
    {"load_in_16bit", "false"},
    {"eval_sample_packing", "false"},
    {"group_by_length", "false"},
    {"mask_history", "false"},
    {"resize_vocab", "false"},
    {"trust_remote_code", "false"},
    {"lora_fan_in_fan_out", "false"},
    {"use_wandb", "false"},
    {"use_mlflow", "false"},
    {"use_tensorboard", "true"},
    {"plot_loss", "true"},
    {"push_to_hub", "false"},
    {"save_safetensors", "true"},
    {"save_only_model", "false"},
    {"mask_prompt", "true"},
    {"train_on_completions", "true"},
    {"torch_compile", "false"},
    {"flash_attention", "true"},
    {"report_to", "tensorboard"},
    {"auto_find_batch_size", "false"},
    {"model_type", "AutoModelForCausalLM"},
    {"tokenizer_type", "AutoTokenizer"},
    {"strict", "true"},
    {"lora_mlp_kernel", "true"},
    {"lora_qkv_kernel", "true"},
    {"lora_o_kernel", "true"},
    {"s2_attention", "false"},
    {"assistant_only_loss", "true"},
    {"completion_only_loss", "true"},
    {"use_cpu", "false"},
    {"no_cuda", "false"},
    {"eval_on_start", "true"},
};

bool af_key_asks_nothing(const char *name, const af_yaml *value)
{
    bool want, has;
    if (!af_key_foreign(name))
        return false;
    if (af_yaml_is_null(value))
        return true;
    for (size_t i = 0; i < AF_LEN(anyway); i++) {
        const af_yaml v = {.kind = AF_YAML_SCALAR, .text = anyway[i].value};
        if (strcmp(anyway[i].key, name) != 0 || value->kind != AF_YAML_SCALAR)
            continue;
        if (af_yaml_bool(&v, &want))
            return af_yaml_bool(value, &has) && has == want;
        return strcmp(value->text, v.text) == 0;
    }
    return false;
}

const char *af_key_foreign(const char *name)
{
    for (size_t i = 0; i < AF_LEN(foreign); i++)
        if (strcmp(foreign[i].key, name) == 0)
            return foreign[i].advice;
    return NULL;
}

const char *af_key_foreign_at(int i, const char **advice)
{
    if (i < 0 || i >= (int)AF_LEN(foreign))
        return NULL;
    *advice = foreign[i].advice;
    return foreign[i].key;
}
