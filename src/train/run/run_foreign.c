/* run_foreign.c - keys of Axolotl, LLaMA-Factory, TRL, transformers and mlx-lm that are not keys
 * here. (Those that mean the same as one of ours are aliases in run_keys.c; run_translate.c has
 * those whose values mean something else.)
 *
 * A key is IDLE when no value of it changes what is learnt. Everything else is REFUSED, unless it
 * is empty, switched off, or asks for what happens anyway. */
#include "train/run/run_foreign.h"
#include "base/word.h"

#include <strings.h>

/* One reason and the keys it holds for. "x_*" stands for every key that begins with "x_". */
typedef struct foreign_group {
    af_foreign_kind kind;
    const char *reason;
    const char *keys;
} foreign_group;

#define IDLE    AF_FOREIGN_IDLE
#define INSTEAD AF_FOREIGN_INSTEAD
#define REFUSED AF_FOREIGN_REFUSED
#define EXACT   AF_FOREIGN_EXACT

/* clang-format off */
static const foreign_group groups[] = {
    {IDLE, "attention is always fused",
     "fa_varlen_kwargs_in_collator attn_implementation flash_attention flash_attn use_flash_attn "
     "flash_attn_2 sdp_attention "
     "xformers_attention flex_attention flex_attn_compile_kwargs eager_attention sage_attention "
     "flash_optimum fused_attn_kernel gemma4_hybrid_attn_impl large_head_attention "
     "flash_attn_d512 sdpa_varlen flash_attn_fuse_mlp flash_attn_fuse_qkv flash_attn_rms_norm "
     "use_flash_attention_2 use_flash_attention attention_implementation attn_impl"},
    {IDLE, "losses and heads are always fused",
     "cut_cross_entropy chunked_cross_entropy chunked_cross_entropy_num_chunks "
     "flash_attn_cross_entropy liger_cross_entropy liger_fused_linear_cross_entropy "
     "cut_cross_entropy_* dpo_use_logits_to_keep use_logits_to_keep use_num_logits_to_keep "
     "use_liger_loss "
     "base_model_attribute_name"},
    {IDLE, "nothing is generated during a run but 'generate_samples'",
     "max_lora_rank gpu_memory_utilization float8_kv_cache disable_log_stats use_exact_model_name"},
    {REFUSED, "samples come from afinar itself: see 'generate_samples'", "fast_inference"},
    {REFUSED, "see 'fp8' and 'load_in_8bit'", "load_in_fp8"},
    {REFUSED, "see 'qat'", "qat_scheme"},
    {IDLE, "kernels are afinar's own",
     "autotune_* use_liger_kernel enable_liger_kernel liger_kernel_config liger_kernel liger_rope "
     "liger_rms_norm liger_rms_norm_gated liger_layer_norm liger_swiglu liger_glu_activation "
     "liger_kernel_impl use_liger dpo_use_liger_kernel "
     "use_kernels use_v1_kernels kernel_config use_unsloth use_unsloth_gc unsloth_* "
     "torch_compile torch_compile_* torchdynamo deepcompile use_scattermoe use_sonicmoe "
     "experts_implementation llama4_linearized_experts use_dsv4_kernels use_glm_dsa_kernels "
     "expert_backend moe_grouped_backend moe_dequant_chunk_size moe_bnb_fast tiled_mlp "
     "tiled_mlp_* jit_mode_eval use_ipex batch_flattening padding_free "
     "experts_impl tuner_backend use_swift_lora enable_npu_model_patch "
     "batching_strategy batching_workers pretrain_multipack_attn gptq_disable_exllama "
     "bias_activation_fusion apply_rope_fusion bias_dropout_fusion gradient_accumulation_fusion "
     "moe_grouped_gemm dynamo_backend"},
    {IDLE, "adapters are always computed with their linears",
     "lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel"},
    {IDLE, "norms and adapters are always computed in f32",
     "lora_fp32_gradients upcast_layernorm upcast_lmhead_output fp32_norms fp32_norm_classes "
     "embeddings_skip_upcast "
     "peft_autocast_adapter_dtype autocast_adapter_dtype lora_dtype"},
    {IDLE, "recomputation has one kind: see 'gradient_checkpointing'",
     "gradient_checkpointing_kwargs activation_checkpointing_kwargs use_reentrant_gc "
     "selective_checkpointing gradient_checkpointing_use_reentrant recompute_granularity "
     "recompute_method recompute_num_layers"},
    {IDLE, "memory is planned before a run: see 'afinar plan'",
     "offload_embedding low_cpu_mem_usage max_memory gpu_memory_limit device_map offload_folder "
     "lora_on_cpu "
     "clear_cache_threshold layer_offloading ple_cpu_offload gc_steps gc_collect_steps "
     "torch_empty_cache_steps "
     "experimental_skip_move_to_device auto_find_batch_size memory_limit "
     "qlora_sharded_model_loading skip_memory_metrics init_config use_cache use_kv_cache"},
    {IDLE, "ranks come from the launcher: see 'zero_stage' and 'dist_backend'",
     "deepspeed_* fsdp_version fsdp_transformer_layer_cls_to_wrap fsdp_min_num_params "
     "fsdp_final_state_dict_type fsdp_state_dict_type fsdp_auto_wrap_policy fsdp_plugin "
     "dist_config ddp ddp_backend ddp_bucket_cap_mb ddp_broadcast_buffers "
     "ddp_find_unused_parameters ddp_static_graph ddp_timeout_seconds dp_shard_size "
     "dp_replicate_size "
     "context_parallel "
     "context_parallel_size sequence_parallel_degree heads_k_stride ring_attn_func cp_size "
     "cp_mode tensor_parallel_size expert_parallel_* local_rank world_size use_ray ray_* "
     "resources_per_worker device_groups parallelism_config average_tokens_across_devices "
     "accelerator_config "
     "master_addr master_port save_on_each_node split_batches sharded_ddp log_on_each_node "
     "tpu_num_cores tpu_metrics_debug xpu_backend use_mps_device dispatch_batches mp_parameters "
     "zero_first "
     "placement_strategy ignore_bias_buffers ds3_gather_for_generation sequence_parallel_size "
     "zero_hpz_partition_size "
     "num_processes num_machines machine_rank accelerate_config config_file main_process_ip "
     "main_process_port gpu_ids rdzv_backend rdzv_conf same_network multi_gpu use_deepspeed "
     "use_fsdp use_mca tensor_model_parallel_size pipeline_model_parallel_size "
     "expert_model_parallel_size expert_tensor_parallel_size sequence_parallel "
     "virtual_pipeline_model_parallel_size use_distributed_optimizer overlap_param_gather "
     "overlap_grad_reduce moe_token_dispatcher_type moe_shared_expert_overlap distributed_type "
     "n_gpus num_gpus"},
    {IDLE, "see 'bf16', which decides", "mixed_precision"},
    {IDLE, "see 'device'", "use_cpu no_cuda"},
    {IDLE, "see 'threads'",
     "dataset_processes data_processes preprocessing_num_workers dataloader_num_workers "
     "dataset_num_proc "
     "num_workers num_proc dataloader_pin_memory dataloader_persistent_workers "
     "dataloader_prefetch_factor dataloader_multiprocessing_context dataloader_in_order "
     "sample_packing_mp_start_method packing_num_proc"},
    {IDLE, "tokenised data is kept in the cache folder (XDG_CACHE_HOME)",
     "dataset_prepared_path tokenized_path overwrite_cache dataset_keep_in_memory "
     "num_dataset_shards_to_save skip_prepare_dataset preprocessing_batch_size cache_dir "
     "data_shared_file_system preprocess_iterable is_preprocess dataset_batch_size cache_path "
     "download_mode num_of_sequences chars_per_token load_from_cache_file lazy_tokenize"},
    {IDLE, "data is always streamed from the disk",
     "streaming dataset_streaming buffer_size streaming_multipack_buffer_size "
     "pretrain_multipack_buffer_size shuffle_buffer_size"},
    {IDLE, "rows are packed or run without padding, and counted exactly",
     "group_by_length length_column_name sample_packing_eff_est sample_packing_seq_len_multiplier "
     "sample_packing_group_size sample_packing_bin_size multipack_real_batches "
     "pad_to_multiple_of total_num_tokens total_supervised_tokens eval_sample_packing "
     "eval_packing max_packed_sequence_len ignore_pad_token_for_loss padding_value "
     "label_pad_token_id sortish_sampler"},
    {IDLE, "evaluation runs record by record, and reports loss, perplexity and accuracy",
     "eval_batch_size per_device_eval_batch_size per_gpu_eval_batch_size eval_accumulation_steps "
     "eval_do_concat_batches "
     "eval_use_gather_object prediction_loss_only bf16_full_eval fp16_full_eval compute_accuracy "
     "batch_eval_metrics include_for_metrics include_inputs_for_metrics eval_on_each_dataset "
     "do_causal_lm_eval eval_causal_lm_metrics do_bench_eval bench_dataset bench_split "
     "bench_source_max_len lm_eval_* eval_table_* eval_max_new_tokens eval_num_beams "
     "generate_during_eval dpo_generate_during_eval "
     "predict_with_generate use_legacy_prediction_loop do_predict val_batches test test_batches "
     "past_index label_names "
     "task task_dir lang n_shot save_dir max_eval_samples acc_strategy eval_metric eval_limit "
     "benchmarks eval_use_evalscope eval_dataset_args eval_generation_config extra_eval_args "
     "val_dataset_shuffle"},
    {IDLE, "left-over rows begin the first step of the next epoch", "dataloader_drop_last"},
    {IDLE, "evaluations always begin before the first step", "eval_on_start"},
    {IDLE, "unused fields are not read", "remove_unused_columns"},
    {IDLE, "the answers to 'generate_samples' are greedy",
     "max_new_tokens do_sample temperature top_p top_k num_beams repetition_penalty "
     "length_penalty skip_special_tokens generation_max_new_tokens generation_temperature "
     "generation_top_p generation_top_k generation_prompt_ratio generation_do_sample "
     "num_generation_samples sample_backend infer_backend infer_dtype vllm_* sglang_* min_p "
     "generation_max_length generation_num_beams generation_config generation_kwargs "
     "cache_implementation stop_words stream logprobs top_logprobs structured_outputs_regex"},
    {IDLE, "metrics go to metrics.jsonl, TensorBoard events and report.html",
     "wandb_entity wandb_watch wandb_mode wandb_tags wandb_group wandb_notes "
     "wandb_job_type wandb_dir wandb_api_key wandb_run wandb_runid "
     "wandb_run_group wandb_log_* use_wandb "
     "mlflow_run_name use_mlflow hf_mlflow_log_artifacts comet_* use_comet "
     "swanlab_* use_swanlab trackio_run_name trackio_space_id trackio_bucket_id "
     "trackio_static_space_id use_trackio use_tensorboard enable_tensorboard "
     "tensorboard_dir wandb_token logging_dir plot_loss "
     "include_num_input_tokens_seen include_tokens_per_second include_tkps "
     "include_effective_tokens_per_second use_otel_metrics otel_* enable_channel_loss"},
    {IDLE, "see the options -q and -v",
     "log_level log_level_replica disable_tqdm debug logging_nan_inf_filter print_param_status"},
    {IDLE, "'afinar bench' measures speed",
     "profiler_* sync_profiler_* enable_torch_profiler profile_modules profile profiling"},
    {IDLE, "nothing is uploaded: everything is in 'output_dir'",
     "overwrite_hub_revision "
     "coreweave model_card hub_* push_to_hub push_to_hub_* push_dataset_to_hub "
     "hf_use_auth_token hf_hub_token "
     "ms_hub_token om_hub_token use_auth_token token hf_token"},
    {IDLE, "see 'afinar merge', 'afinar export' and 'afinar quantize'",
     "export export_* merge_lora merge_adapter merge_method gradio_* lora_out_dir"},
    {IDLE, "what is saved is always converted", "pissa_convert"},
    {IDLE, "only 'pissa_init' reads it", "pissa_iter"},
    {IDLE, "no code of a model is ever run", "trust_remote_code"},
    {IDLE, "it is read from the model's folder",
     "model_type tokenizer_type type_of_model processor_type processor_config "
     "base_model_config cls_model_config "
     "tokenizer_use_fast use_fast_tokenizer tokenizer_legacy tokenizer_use_mistral_common "
     "tokenizer_save_jinja_files is_falcon_derived_model is_llama_derived_model "
     "is_mistral_derived_model is_qwen_derived_model model_revision revision_of_model "
     "tokenizer_revision model_class model_quantization_config model_quantization_config_kwargs "
     "model_max_length torchdistx_path axolotl_config_path test_value base_model_ignore_patterns "
     "model_code_revision base_model_revision capabilities env_capabilities "
     "tokenizer_padding_side padding_side "
     "use_modelscope use_openmind use_hf lora_bf16_mode visual_inputs"},
    {IDLE, "a base is read as it is stored; for computing, see 'bf16'",
     "torch_dtype dtype bnb_4bit_compute_dtype bnb_4bit_quant_storage compute_dtype "
     "bnb_8bit_compute_dtype llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight"},
    {IDLE, "see 'load_in_4bit' and 'load_in_8bit'", "use_bnb"},
    {EXACT, "every linear layer of an 8-bit base but the head is quantised: see 'load_in_8bit'",
     "llm_int8_skip_modules llm_int8_threshold"},
    {IDLE, "the model is text only",
     "image_* video_* audio_* use_audio_in_video crop_to_patches media_dir freeze_vision_tower "
     "freeze_multi_modal_projector freeze_mm_modules processor_kwargs finetune_vision_layers "
     "vision_all_linear vlm_lora_scope train_mm_proj_only freeze_vit freeze_aligner vit_lr "
     "aligner_lr "
     "vit_gradient_checkpointing max_pixels norm_bbox"},
    {IDLE, "weights are always written as safetensors",
     "save_safetensors safe_serialization max_shard_size"},
    {IDLE, "results are in 'output_dir' itself", "add_version create_checkpoint_symlink"},
    {IDLE, "the environment is that of the process",
     "ENV env ignore_args_error check_model load_args load_data_args"},
    {IDLE, "the template is a chat template in Jinja", "template_backend"},
    {IDLE, "a checkpoint always has the whole state, and training resumes exactly",
     "save_only_model enable_jit_checkpoint dynamic_checkpoint ignore_data_skip "
     "restore_callback_states_from_checkpoint save_ckpt_as_hf save_first_step use_flash_ckpt"},
    {IDLE, "runs with the same seed always give the same bytes", "full_determinism"},
    {IDLE, "'afinar train' always trains, and evaluates where there is data for it",
     "do_train train do_eval"},
    {IDLE, "see 'logging_steps'", "logging_strategy logging_first_step"},
    {IDLE, "whether matrices are stored transposed is known from the model",
     "lora_fan_in_fan_out fan_in_fan_out"},
    {IDLE, "experts are computed where the model is",
     "use_kt kt_cpu_activation kt_backend kt_num_threads kt_tp_enabled kt_threadpool_count "
     "kt_max_cache_depth kt_share_backward_bb kt_num_gpu_experts kt_share_cache_pool"},
    {IDLE, "datasets are shuffled once they are merged",
     "shuffle_before_merging_datasets shuffle_dataset dataset_shuffle"},

    {INSTEAD, "runs compute in bf16 on a GPU and f32 on a CPU: see 'bf16'",
     "fp16 float16 fp16_opt_level half_precision_backend fp16_backend pure_bf16 bfloat16 "
     "float32"},

    {INSTEAD, "a step has 'micro_batch_size' times 'gradient_accumulation_steps' rows",
     "train_batch_size total_train_batch_size"},
    {INSTEAD, "an answer keeps its share of a record that is cut", "reserved_label_len"},
    {INSTEAD, "gradients are clipped first, which they are not there: see 'max_grad_norm'",
     "apollo_layerwise galore_layerwise galore_optim_per_parameter"},
    {INSTEAD, "a 4-bit base is nf4 as bitsandbytes has it", "nf4_backend"},
    {INSTEAD,
     "no template of today's Axolotl has such a text; 'default_system' is the system text of "
     "conversations without one",
     "default_system_message"},

    {INSTEAD, "records are packed whole, and cut at 'sequence_len'",
     "packing_strategy"},

    {IDLE, "see 'fp8': how its products are computed is not a setting", "fp8_*"},

    {INSTEAD, "the scales of a 4-bit base are always quantised, too",
     "double_quantization bnb_4bit_use_double_quant use_bnb_nested_quant use_nested_quant "
     "use_4bit_double_quant"},
    {EXACT, "a 4-bit base is nf4 with double quantisation: see 'load_in_4bit'",
     "quantization_method bnb_4bit_quant_type quantization_type bnb_config_kwargs bnb_config"},
    {EXACT, "afinar has no plugin of that name", "plugins"},
    {EXACT, "give each entry of 'datasets' its 'split'", "split"},
    {EXACT, "layers are found by their numbers: see 'lora_layers_to_transform'",
     "peft_layers_pattern layers_pattern"},
    {EXACT, "see 'adapter'", "peft_type"},
    {EXACT, "see 'rl'", "training_mode train_mode"},
    {EXACT, "see 'lora_target_modules'",
     "finetune_language_layers finetune_attention_modules finetune_mlp_modules"},
    {EXACT, "biases of the base are not trained next to an adapter: see 'lora_bias'", "bias"},
    {IDLE, "no adapter of that kind is asked for",
     "megatron_core qalora_group_size inference_mode boft_* vera_* adalora_* fourier_* reft_* "
     "llamapro_* lora_ga_* adapter_act adapter_length hqq_axis"},
    {EXACT, "experts are as the model stores them", "kt_expert_weight_format"},
    {EXACT, "records are read in random order: see 'shuffle'", "train_sampling_strategy"},
    {IDLE, "reference values are computed in the micro-batches of training",
     "precompute_ref_batch_size"},
    {IDLE, "rows of pairs are packed and without padding: see 'sample_packing'",
     "dpo_padding_free"},
    {IDLE, "only the loss 'bco' reads it",
     "prompt_sample_size min_density_ratio max_density_ratio"},
    {REFUSED, "the reference is the model that the run starts from",
     "model_ref "
     "reference_free ref_model ref_model_adapters ref_model_quantization_bit "
     "ref_model_init_kwargs ref_model_type ref_model_revision force_use_ref_model ref_adapter_name "
     "model_adapter_name"},
    {REFUSED, "'rl' is dpo, ipo, kto, orpo, simpo, cpo or reward; see 'dpo_loss_type'",
     "pref_loss pref_bco_weight dpo_norm_loss sft_alpha"},
    {IDLE, "only models with an encoder read it", "max_target_length"},
    {REFUSED, "prompt and answer together have 'sequence_len' tokens", "max_completion_length"},
    {REFUSED, "'train' has no reinforcement learning with generated answers; see 'rl'",
     "reward_model reward_model_* process_reward_model ppo_* trl vllm "
     "grpo reward_funcs reward_weights num_generations ebft nemo_gym_* hatchery trainer_cls "
     "use_vllm "
     "generation_batch_size steps_per_generation num_iterations epsilon_high scale_rewards "
     "mask_truncated_completions importance_sampling_level lmbda seq_kd distillation_* "
     "sapo_* vespo_* entropy_* num_generations_* tpo_* missing_eos_penalty "
     "use_teacher_server log_completions is_encoder_decoder gkd_* num_completions"},
    {REFUSED, "a teacher runs in the same process: 'teacher_model'",
     "teacher_model_init_kwargs teacher_model_revision teacher_tokenizer_name_or_path kd_trainer "
     "kd_online_server kd_online_server_base_url kd_online_topk "
     "kd_online_timeout kd_temperature_min kd_zscore_base_temp kd_top_k_before_softmax"},
    {REFUSED, "the labels of a model are 'num_labels' and 'class_names'",
     "classification_type id2label label2id"},
    {REFUSED, "gradients are projected at random, and along the shorter side: 'random' and 'std'",
     "apollo_proj apollo_proj_type"},
    {REFUSED, "see 'optimizer'",
     "galore_with_embedding galore_quantization galore_proj_quant galore_proj_bits "
     "galore_proj_group_size galore_cos_threshold galore_gamma_proj galore_queue_size "
     "qgalore_* "
     "dion_* optim_config adam_epsilon2 adam_beta3 grokfast_* "
     "lr_groups muon_*"},
    {REFUSED, "records are read in random order: see 'shuffle'",
     "balance_labels label_balance_window_optim_steps"},
    {REFUSED, "see 'lr_scheduler'",
     "log_sweep_* lr_div_factor lr_scheduler_kwargs lr_scheduler_config"},
    {REFUSED,
     "an adapter is merged into its base after the run, not during it; 'jagged_restart_steps' "
     "alone restarts the learning rate",
     "relora relora_*"},
    {REFUSED, "the same layers are trained in every step: see 'unfrozen_parameters'", "lisa_*"},
    {REFUSED,
     "a run trains the same parameters in every step, so that one block at a time would save "
     "nothing: 'unfrozen_parameters' trains some blocks, 'optimizer: apollo' has small states",
     "use_badam badam_*"},
    {REFUSED, "see 'adapter'",
     "mixture_of_depths use_mora mora mora_type "
     "peft_layer_replication peft loftq_config "
     "corda_config eva_config "
     "mixlora_* "
     "peft_ensure_weight_tying ensure_weight_tying "
     "adapter_folder training_type peft_config quant_config "
     "megatron_config use_qalora use_bdlora "
     "use_hyper_parallel hyper_parallel_args"},
    {REFUSED, "a rotation of OFT is never left out, as in PEFT, which does not apply this dropout",
     "module_dropout"},
    {REFUSED, "rotations of OFT are not constrained", "coft oft_coft"},
    {REFUSED, "'afinar merge' puts an adapter into its base, for which a new one can be trained",
     "create_new_adapter"},
    {REFUSED, "'lora_model_dir' names the folder of an adapter to continue",
     "resume_adapter_file"},
    {REFUSED, "see 'lora_r', 'lora_alpha', 'lora_dropout' and 'lora_target_modules'",
     "lora_parameters"},
    {REFUSED, "see 'adapter' and 'lora_layers_to_transform'",
     "freeze_language_model "
     "spectrum_*"},
    {REFUSED, "the loss is the plain cross-entropy",
     "liger_use_token_scaling diffusion diffusion_lm diffusion_decision dense_mixer aux_loss_coef"},
    {REFUSED, "a base is quantised ('load_in_4bit', 'load_in_8bit') or read as it is",
     "load_in_16bit load_4bit quantization_bit gptq gptq_* quantization llmcompressor "
     "nvfp4_* dsv4_* gemma4_fp8_nonexpert gemma4_nf4_nonexpert nonexpert_quantization "
     "use_onebitllms quantization_device_map quant_method awq hqq_config kt_*"},
    {REFUSED, "the model is trained as its config says",
     "overrides_of_model_config overrides_of_model_kwargs model_config model_kwargs "
     "model_init_kwargs shift_attn s2_attention scaling_softmax scaling_softmax_* use_pose pose_* "
     "block_diag_attn xpos_rope landmark_attention longlora"},
    {IDLE, "the vocabulary grows when new tokens do not fit", "resize_vocab"},
    {EXACT, "rows of new tokens are the mean of the others", "mean_resizing_embeddings"},
    {REFUSED, "see 'special_tokens' and 'tokens'",
     "freeze_original_embeddings "
     "shrink_embeddings fix_untrained_tokens init_special_tokens "
     "new_special_tokens_config split_special_tokens bos_token unk_token "
     "additional_special_tokens"},
    {REFUSED, "set 'datasets' with paths",
     "data local_dataset dataset_weights "
     "train_file validation_file hf_dataset prompts_dataset cached_dataset cached_val_dataset"},
    {EXACT, "a dataset has a 'type' and 'field_...' keys",
     "format_type dataset_kwargs formatting_func text_column"},
    {REFUSED, "give a smaller dataset, or 'max_steps'",
     "max_train_samples sanity_check dataset_shard_num dataset_shard_idx "
     "eval_sequence_len pretraining_sample_concatenation"},
    {REFUSED, "'default_system' is the system text of conversations without one",
     "system_prompt"},
    {REFUSED, "see 'chat_template' and 'roles_to_train'",
     "preserve_thinking tool_format role_boundaries"},
    {REFUSED, "set 'saves_per_epoch'", "save_epochs"},
    {REFUSED, "no code but afinar's own is run",
     "external_plugins custom_register_path custom_dataset_info callbacks"},
    {REFUSED,
     "ms-swift reads it with the dataset swift/self-cognition; a model is named by 'base_model'",
     "model_author model_name"},
    {REFUSED, "records of ms-swift's decision tasks are not read", "decision_*"},
    {REFUSED, "see 'unfrozen_parameters' and 'adapter: freeze'",
     "freeze_llm"},
    {REFUSED, "name fields with the 'field_...' keys of 'datasets'",
     "columns disable_auto_column_mapping"},
    {REFUSED, "see 'sequence_len'", "packing_length max_model_len"},
    {REFUSED, "see 'num_epochs'", "max_epochs"},
    {EXACT, "answers are trained on as the chat template shows them",
     "response_prefix add_non_thinking_prefix disable_ignore_empty_think agent_template "
     "is_binary_loss_scale loss_scale use_chat_template"},
    {REFUSED, "see 'lora_model_dir'", "resume_only_model ref_adapters"},
    {REFUSED, "see 'sequence_len' and 'excess_length_strategy'", "truncation_strategy"},
};

/* Values that ask for what happens anyway, besides an empty one. Of a list or a map every item
 * must be one of them. */
static const struct {
    const char *key, *values;
} anyway[] = {
    {"mix_strategy", "concat"},
    {"add_non_thinking_prefix", "true"},
    {"use_chat_template", "true"},
    {"mean_resizing_embeddings", "true"},
    {"quantization_method", "bnb bitsandbytes auto"},
    {"bnb_4bit_quant_type", "nf4"},
    {"quantization_type", "nf4"},
    {"nf4_backend", "bitsandbytes"},
    {"peft_layers_pattern", "layers model.layers h transformer.h"},
    {"layers_pattern", "layers model.layers h transformer.h"},
    {"double_quantization", "true"},
    {"bnb_4bit_use_double_quant", "true"},
    {"use_bnb_nested_quant", "true"},
    {"use_nested_quant", "true"},
    {"use_4bit_double_quant", "true"},
    {"bnb_config_kwargs",
     "bnb_4bit_use_double_quant=true bnb_4bit_quant_type=nf4 llm_int8_has_fp16_weight=false"},
    {"llm_int8_threshold", "6 6.0"},
    {"peft_type", "LORA lora"},
    {"training_mode", "normal"},
    {"train_mode", "sft"},
    {"bnb_config",
     "load_in_4bit=true bnb_4bit_use_double_quant=true bnb_4bit_quant_type=nf4 "
     "bnb_4bit_compute_dtype=bfloat16 bnb_4bit_compute_dtype=float16"},
    {"kt_expert_weight_format", "bf16 fp16"},
    {"bias", "none"},
    {"split", "train"},
    {"format_type", "auto"},
    {"callbacks", "push_to_hub_revision"}, /* open-r1 */
    {"finetune_language_layers", "true"},
    {"finetune_attention_modules", "true"},
    {"finetune_mlp_modules", "true"},
    {"text_column", "text"},
    {"dataset_kwargs",
     "add_special_tokens=false append_concat_token=false skip_prepare_dataset=false"},
    {"train_sampling_strategy", "random group_by_length"},
    {"packing_strategy", "bfd ffd"},
    {"plugins",
     "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin "
     "axolotl.integrations.liger.LigerPlugin axolotl.integrations.liger.plugin.LigerPlugin "
     "axolotl.integrations.kernels.KernelsPlugin axolotl.integrations.lm_eval.LMEvalPlugin "
     "axolotl.integrations.swanlab.SwanLabPlugin "
     "axolotl.integrations.expert_parallel.ExpertParallelPlugin"},
};
/* clang-format on */

/* The word at `at` of a list separated by blanks; its length. */
static size_t next_word(const char **at)
{
    *at += strspn(*at, " ");
    return strcspn(*at, " ");
}

static bool word_is(const char *word, size_t len, const char *key)
{
    if (len > 2 && word[len - 1] == '*')
        return strncmp(word, key, len - 1) == 0;
    return strlen(key) == len && strncmp(word, key, len) == 0;
}

static bool has_word(const char *words, const char *key)
{
    size_t n;
    for (; (n = next_word(&words)) > 0; words += n)
        if (word_is(words, n, key))
            return true;
    return false;
}

static const foreign_group *find_group(const char *key)
{
    for (size_t i = 0; i < AF_LEN(groups); i++)
        if (has_word(groups[i].keys, key))
            return &groups[i];
    return NULL;
}

/* false, 0, none: nothing is switched on. */
static bool is_off(const af_yaml *n)
{
    bool b;
    double v;
    if (n->kind != AF_YAML_SCALAR)
        return n->count == 0;
    return af_yaml_is_null(n) || !n->text[0] || (af_yaml_bool(n, &b) && !b) ||
           (af_yaml_f64(n, &v) && v == 0) || strcasecmp(n->text, "none") == 0 ||
           strcasecmp(n->text, "no") == 0;
}

static bool same_value(const char *word, size_t len, const af_yaml *n)
{
    char text[128];
    bool want, has;
    snprintf(text, sizeof text, "%.*s", (int)AF_MIN(len, sizeof text - 1), word);
    const af_yaml v = {.kind = AF_YAML_SCALAR, .text = text};
    if (af_yaml_bool(&v, &want))
        return af_yaml_bool(n, &has) && has == want;
    return strcmp(n->text, text) == 0;
}

/* Whether one of `words` is the value; "name=value" of an entry of a map. */
static bool is_listed(const char *words, const char *name, const af_yaml *n)
{
    size_t len;
    if (n->kind != AF_YAML_SCALAR)
        return false;
    for (; (len = next_word(&words)) > 0; words += len) {
        const size_t skip = name ? strlen(name) + 1 : 0;
        if (name && (len <= skip || strncmp(words, name, skip - 1) != 0 || words[skip - 1] != '='))
            continue;
        if (same_value(words + skip, len - skip, n))
            return true;
    }
    return false;
}

static const char *find_anyway(const char *key)
{
    const char *values = NULL;
    for (size_t i = 0; i < AF_LEN(anyway); i++)
        if (strcmp(anyway[i].key, key) == 0)
            values = anyway[i].values;
    return values;
}

static bool happens_anyway(const char *key, const af_yaml *n)
{
    const char *values = find_anyway(key);
    if (!values || n->kind == AF_YAML_SCALAR)
        return values && is_listed(values, NULL, n);
    for (int i = 0; i < n->count; i++)
        if (!is_listed(values, n->kind == AF_YAML_MAP ? n->key[i] : NULL, n->item[i]))
            return false;
    return true;
}

af_foreign_kind af_foreign_judge(const char *key, const af_yaml *value, const char **reason)
{
    const foreign_group *g = find_group(key);
    const bool empty = af_yaml_is_null(value);
    *reason = g ? g->reason : empty ? "it is empty" : NULL;
    if (!g)
        return empty ? AF_FOREIGN_NOTHING : AF_FOREIGN_UNKNOWN;
    const bool off = g->kind != AF_FOREIGN_EXACT && !find_anyway(key) && is_off(value);
    if (empty || off || happens_anyway(key, value))
        return AF_FOREIGN_NOTHING;
    return g->kind;
}

af_key_need af_foreign_need(const char *key)
{
    static const struct {
        const char *key;
        af_key_need need;
    } needs[] = {{"packing_strategy", AF_NEED_PACKING}, {"double_quantization", AF_NEED_4BIT},
                 {"nf4_backend", AF_NEED_4BIT},         {"bnb_4bit_use_double_quant", AF_NEED_4BIT},
                 {"use_nested_quant", AF_NEED_4BIT},    {"use_4bit_double_quant", AF_NEED_4BIT},
                 {"use_bnb_nested_quant", AF_NEED_4BIT}};
    for (size_t i = 0; i < AF_LEN(needs); i++)
        if (strcmp(needs[i].key, key) == 0)
            return needs[i].need;
    return AF_NEED_NOTHING;
}

bool af_foreign_knows(const char *key) { return find_group(key) != NULL; }

const char *af_foreign_suggest(const char *wrong, int most)
{
    static _Thread_local char best[64];
    bool found = false;
    for (size_t i = 0; i < AF_LEN(groups); i++) {
        size_t n;
        for (const char *at = groups[i].keys; (n = next_word(&at)) > 0; at += n) {
            char name[64];
            snprintf(name, sizeof name, "%.*s", (int)AF_MIN(n, sizeof name - 1), at);
            const int d = af_word_distance(wrong, name);
            if (name[n - 1] == '*' || n < 6 || d > most)
                continue;
            most = d - 1;
            found = true;
            memcpy(best, name, sizeof best);
        }
    }
    return found ? best : NULL;
}

bool af_foreign_at(int i, const char **keys, af_foreign_kind *kind, const char **reason)
{
    if (i < 0 || i >= (int)AF_LEN(groups))
        return false;
    *keys = groups[i].keys;
    *kind = groups[i].kind;
    *reason = groups[i].reason;
    return true;
}
