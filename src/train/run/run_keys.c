/* run_keys.c - the one table of run-file keys. */
#include "train/run/run_keys.h"
#include "base/word.h"
#include "train/run/run_foreign.h"

/* ---- named values ---- */

static const af_key_choice method_names[] = {{"full", AF_METHOD_FULL},
                                             {"none", AF_METHOD_FULL},
                                             {"lora", AF_METHOD_LORA},
                                             {"qlora", AF_METHOD_QLORA},
                                             {"dora", AF_METHOD_DORA},
                                             {"freeze", AF_METHOD_FREEZE},
                                             {0}};
static const af_key_choice excess_names[] = {{"truncate", AF_EXCESS_TRUNCATE},
                                             {"drop", AF_EXCESS_DROP},
                                             {"error", AF_EXCESS_ERROR},
                                             {"raise", AF_EXCESS_ERROR},
                                             {0}};
static const af_key_choice eos_names[] = {{"turn", AF_TRAIN_EOS_TURN},
                                          {"all", AF_TRAIN_EOS_ALL},
                                          {"last", AF_TRAIN_EOS_LAST},
                                          {"none", AF_TRAIN_EOS_NONE},
                                          {0}};
static const af_key_choice decay_names[] = {
    {"matrices", AF_DECAY_MATRICES}, {"all", AF_DECAY_ALL}, {0}};
static const af_key_choice optimizer_names[] = {{"adamw", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_xla", AF_OPTIMIZER_ADAMW},
                                                {"adamw_torch_npu_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_apex_fused", AF_OPTIMIZER_ADAMW},
                                                {"adamw_hf", AF_OPTIMIZER_ADAMW},
                                                {"paged_adamw_32bit", AF_OPTIMIZER_ADAMW},
                                                {"paged_adamw", AF_OPTIMIZER_ADAMW},
                                                {"optimi_adamw", AF_OPTIMIZER_ADAMW},
                                                {"adam", AF_OPTIMIZER_ADAM},
                                                {"adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"adamw_bnb_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"paged_adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                                {"adamw_torch_8bit", AF_OPTIMIZER_ADAMW_TORCH_8BIT},
                                                {"ao_adamw_8bit", AF_OPTIMIZER_ADAMW_TORCH_8BIT},
                                                {"adamw_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"adamw_torch_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"ao_adamw_4bit", AF_OPTIMIZER_ADAMW_4BIT},
                                                {"rmsprop", AF_OPTIMIZER_RMSPROP},
                                                {"rmsprop_bnb", AF_OPTIMIZER_RMSPROP},
                                                {"rmsprop_bnb_32bit", AF_OPTIMIZER_RMSPROP},
                                                {"ademamix", AF_OPTIMIZER_ADEMAMIX},
                                                {"paged_ademamix_32bit", AF_OPTIMIZER_ADEMAMIX},
                                                {"muon", AF_OPTIMIZER_MUON},
                                                {"lion", AF_OPTIMIZER_LION},
                                                {"lion_32bit", AF_OPTIMIZER_LION},
                                                {"paged_lion_32bit", AF_OPTIMIZER_LION},
                                                {"adafactor", AF_OPTIMIZER_ADAFACTOR},
                                                {"sgd", AF_OPTIMIZER_SGD},
                                                {0}};

static const af_key_choice mix_names[] = {{"concat", AF_MIX_CONCAT},
                                          {"interleave_under", AF_MIX_INTERLEAVE_UNDER},
                                          {"interleave_over", AF_MIX_INTERLEAVE_OVER},
                                          {"interleave_once", AF_MIX_INTERLEAVE_ONCE},
                                          {0}};
static const af_key_choice stage_names[] = {
    {"sft", AF_STAGE_FINE_TUNING}, {"pt", AF_STAGE_PRETRAINING}, {0}};
static const af_key_choice save_when_names[] = {{"auto", AF_WHEN_AUTO},
                                                {"steps", AF_WHEN_STEPS},
                                                {"epoch", AF_WHEN_EPOCH},
                                                {"no", AF_WHEN_NO},
                                                {"best", AF_WHEN_BEST},
                                                {"false", AF_WHEN_NO},
                                                {0}};
static const af_key_choice eval_when_names[] = {{"auto", AF_WHEN_AUTO},   {"steps", AF_WHEN_STEPS},
                                                {"epoch", AF_WHEN_EPOCH}, {"no", AF_WHEN_NO},
                                                {"false", AF_WHEN_NO},    {0}};
static const af_key_choice gemm_names[] = {
    {"auto", AF_GEMM_AUTO}, {"own", AF_GEMM_OWN}, {"cublas", AF_GEMM_CUBLAS}, {0}};
static const af_key_choice attention_names[] = {
    {"auto", AF_ATTENTION_AUTO}, {"own", AF_ATTENTION_OWN}, {"cudnn", AF_ATTENTION_CUDNN}, {0}};
static const af_key_choice tri_names[] = {
    {"auto", AF_TRI_AUTO}, {"false", AF_TRI_NO}, {"true", AF_TRI_YES}, {0}};

/* One typed setter and getter per field that is an enum; the rows below name them by the field. */
#define CHOICES(field, type, names)                                                                \
    static void set_##field(af_run_config *r, int value) { r->field = (type)value; }               \
    static int get_##field(const af_run_config *r) { return (int)r->field; }                       \
    static const af_key_choices field##_choices = {names, set_##field, get_##field}

CHOICES(method, af_method, method_names);
CHOICES(load_in_4bit, af_tri, tri_names);
CHOICES(train_on_inputs, af_tri, tri_names);
CHOICES(train_on_eos, af_train_eos, eos_names);
CHOICES(train_on_eot, af_train_eos, eos_names);
CHOICES(excess, af_excess, excess_names);
CHOICES(optimizer, af_optimizer_kind, optimizer_names);
CHOICES(decay_on, af_decay_on, decay_names);
CHOICES(bf16, af_tri, tri_names);
CHOICES(checkpointing, af_tri, tri_names);
CHOICES(offloading, af_tri, tri_names);
CHOICES(attention, af_attention_by, attention_names);
CHOICES(stage, af_stage, stage_names);
CHOICES(mix, af_mix, mix_names);
CHOICES(save_strategy, af_when, save_when_names);
CHOICES(eval_strategy, af_when, eval_when_names);
CHOICES(gemm, af_gemm_by, gemm_names);

/* ---- the table ---- */

/* The kind and the offset of a field; does not compile when the field has another type. */
#define FIELD(kind, type, field)                                                                   \
    kind, _Generic(((af_run_config *)0)->field, type : offsetof(af_run_config, field)), NULL
#define STR(field)  FIELD(AF_KEY_STR, const char *, field)
#define BOOL(field) FIELD(AF_KEY_BOOL, bool, field)
#define I64(field)  FIELD(AF_KEY_I64, int64_t, field)
#define F64(field)  FIELD(AF_KEY_F64, double, field)
#define LIST(field) FIELD(AF_KEY_LIST, af_strings, field)
#define TREE(field) FIELD(AF_KEY_TREE, const af_yaml *, field)
#define TRI(field)  AF_KEY_TRI, 0, &field##_choices
#define ENUM(field) AF_KEY_ENUM, 0, &field##_choices

/* clang-format off */
const af_key af_keys[] = {
    {"base_model", STR(base_model), 0, 0, NULL,
     "model folder, .gguf file, or org/name in the local cache", {"model_name_or_path", "model"},
     0},
    {"adapter", ENUM(method), 0, 0, "full",
     "method: lora, qlora, dora, freeze, or absent for full fine-tuning",
     {"finetuning_type", "fine_tune_type"}, 0},
    {"load_in_4bit", TRI(load_in_4bit), 0, 0, "auto",
     "quantise the frozen base to nf4 (implied by qlora; GGUF blocks stay as they are)", {0},
     AF_NEED_ADAPTER},
    {"load_in_8bit", BOOL(load_in_8bit), 0, 0, "false",
     "quantise the frozen base to int8 rows, as LLM.int8 of bitsandbytes", {0}, AF_NEED_ADAPTER},
    {"quantize_moe_experts", BOOL(quantize_experts), 0, 0, "true",
     "a base that is quantised has its experts quantised, too", {0}, AF_NEED_ADAPTER},
    {"lora_r", I64(lora_r), 1, 4096, "16", "rank of the adapter", {"lora_rank"},
     AF_NEED_NEW_ADAPTER},
    {"lora_alpha", F64(lora_alpha), 0, 1e6, "0", "adapter scale is alpha / r; 0 = twice the rank",
     {0}, AF_NEED_NEW_ADAPTER},
    {"lora_dropout", F64(lora_dropout), 0, 0.99, "0", "dropout on the adapter's input", {0},
     AF_NEED_ADAPTER},
    {"lora_target_modules", LIST(lora_target_modules), 0, 0, NULL,
     "module names, a regular expression, or all-linear (the default)",
     {"lora_target", "target_modules"}, AF_NEED_NEW_ADAPTER},
    {"lora_target_parameters", LIST(lora_target_parameters), 0, 0, NULL,
     "parameters of experts to adapt (mlp.experts.gate_up_proj, mlp.experts.down_proj)",
     {"target_parameters"}, AF_NEED_NEW_ADAPTER},
    {"lora_target_linear", BOOL(lora_target_linear), 0, 0, "false",
     "adapt every linear layer, as all-linear does", {0}, AF_NEED_NEW_ADAPTER},
    {"lora_exclude_modules", LIST(lora_exclude_modules), 0, 0, NULL, "modules that get no adapter",
     {"exclude_modules"}, AF_NEED_NEW_ADAPTER},
    {"lora_modules_to_save", LIST(lora_modules_to_save), 0, 0, NULL,
     "modules trained in full next to the adapter (lm_head, embed_tokens)",
     {"additional_target", "modules_to_save"}, AF_NEED_NEW_ADAPTER},
    {"lora_bias", BOOL(lora_bias), 0, 0, "false", "give B of each adapter a bias",
     {"peft_lora_bias"}, AF_NEED_NEW_ADAPTER},
    {"trainable_token_indices", TREE(trainable_tokens), 0, 0, NULL,
     "tokens whose rows of the embedding (or, by name, embed_tokens and lm_head) are trained",
     {"peft_trainable_token_indices"}, AF_NEED_NEW_ADAPTER},
    {"lora_layers_to_transform", LIST(lora_layers), 0, 0, NULL,
     "numbers of the layers that get the adapter",
     {"peft_layers_to_transform", "layers_to_transform"}, AF_NEED_NEW_ADAPTER},
    {"peft_use_rslora", BOOL(rslora), 0, 0, "false", "scale by alpha / sqrt(r)", {"use_rslora"},
     AF_NEED_NEW_ADAPTER},
    {"peft_use_dora", BOOL(dora), 0, 0, "false",
     "decompose weights into magnitude and direction (DoRA)", {"use_dora"}, AF_NEED_NEW_ADAPTER},
    {"peft_init_lora_weights", STR(lora_init), 0, 0, "true",
     "initial values: true (kaiming), gaussian, orthogonal, pissa, pissa_niter_N, olora, loftq",
     {"init_lora_weights"}, AF_NEED_NEW_ADAPTER},
    {"loraplus_lr_ratio", F64(loraplus_lr_ratio), 0, 1e6, "0",
     "LoRA+: learning rate of B divided by that of A", {0}, AF_NEED_ADAPTER},
    {"loraplus_lr_embedding", F64(loraplus_lr_embedding), 0, 1, "1e-6",
     "LoRA+: learning rate of adapters of embeddings", {0}, AF_NEED_LORAPLUS},
    {"lora_model_dir", STR(lora_model_dir), 0, 0, NULL, "continue training this PEFT adapter",
     {"adapter_name_or_path"}, AF_NEED_ADAPTER},
    {"unfrozen_parameters", LIST(unfrozen_parameters), 0, 0, NULL,
     "full runs: regular expressions of the parameters to train, with [from:to] for some rows", {0},
     AF_NEED_FULL},
    {"freeze_trainable_layers", I64(freeze_layers), -4096, 4096, "2",
     "adapter: freeze: how many of the last layers to train; below 0, of the first", {0},
     AF_NEED_FREEZE},
    {"freeze_trainable_modules", LIST(freeze_modules), 0, 0, NULL,
     "adapter: freeze: modules of these layers to train (all)", {0}, AF_NEED_FREEZE},
    {"freeze_extra_modules", LIST(freeze_extra), 0, 0, NULL,
     "adapter: freeze: modules outside the layers to train (embed_tokens, norm, lm_head)", {0},
     AF_NEED_FREEZE},
    {"datasets", TREE(datasets), 0, 0, NULL, "training data: list of {path, type, field names}",
     {"dataset"}, 0},
    {"test_datasets", TREE(test_datasets), 0, 0, NULL, "evaluation data, same form as datasets",
     {"eval_dataset"}, 0},
    {"dataset_dir", STR(dataset_dir), 0, 0, "data",
     "folder of dataset_info.json, where 'dataset: NAME, NAME' is looked up", {0}, 0},
    {"pretraining_dataset", TREE(pretraining_dataset), 0, 0, NULL,
     "text to train on, as datasets of type completion", {0}, 0},
    {"dataset_mixture", TREE(dataset_mixture), 0, 0, NULL,
     "datasets with weights: {datasets: [{id, config, split, weight}], seed, test_split_size}",
     {0}, 0},
    {"dataset_mixer", TREE(dataset_mixer), 0, 0, NULL, "datasets with weights: {NAME: weight}",
     {0}, 0},
    {"dataset_splits", LIST(dataset_splits), 0, 0, NULL, "splits of dataset_mixer (train)", {0}, 0},
    {"dataset_name", STR(dataset_name), 0, 0, NULL, "one dataset: a file or a folder", {0}, 0},
    {"dataset_config", STR(dataset_config), 0, 0, NULL, "subfolder of dataset_name", {0}, 0},
    {"dataset_train_split", STR(dataset_train_split), 0, 0, NULL,
     "split of dataset_name to train on (train)", {0}, 0},
    {"dataset_test_split", STR(dataset_test_split), 0, 0, NULL,
     "split of dataset_name to evaluate on", {0}, 0},
    {"train_dataset", STR(train_dataset), 0, 0, NULL,
     "YAML file with datasets: NAME: {path, converter, size}", {0}, 0},
    {"max_samples", I64(max_samples), 0, 1e12, "0",
     "use the first so many records of each dataset; 0 = all", {0}, 0},
    {"mix_strategy", ENUM(mix), 0, 0, "concat",
     "several datasets: concat, or in turn: interleave_under, interleave_over, interleave_once",
     {0}, 0},
    {"interleave_probs", LIST(interleave_probs), 0, 0, NULL,
     "probability of each dataset to give the next record; absent: they take turns", {0},
     AF_NEED_INTERLEAVE},
    {"val_set_size", F64(val_set_size), 0, 1e9, "0",
     "records to hold out: a share below 1, or a number", {"val_size"}, 0},
    {"chat_template", STR(chat_template), 0, 0, NULL,
     "a name (chatml, llama3, gemma3, ...), a .jinja file, or absent for the model's own", {0}, 0},
    {"chat_template_jinja", STR(chat_template_jinja), 0, 0, NULL,
     "the template or its file, for 'chat_template: jinja'", {0}, 0},
    {"template", STR(turn_template), 0, 0, NULL,
     "a template of LLaMA-Factory by its name (llama3, qwen, ...)", {0}, 0},
    {"default_system", STR(default_system), 0, 0, NULL,
     "system text of conversations without one, with 'template'", {0}, 0},
    {"mask_history", BOOL(mask_history), 0, 0, "false",
     "train on the last answer of a conversation alone, with 'template'", {0}, 0},
    {"enable_thinking", BOOL(enable_thinking), 0, 0, "true",
     "keep the thoughts of answers, with a 'template' that thinks", {0}, 0},
    {"special_tokens", TREE(special_tokens), 0, 0, NULL,
     "bos_token, eos_token, pad_token, unk_token, additional_special_tokens: existing or new", {0},
     0},
    {"eos_token", STR(eos_token), 0, 0, NULL, "the same as in special_tokens", {0}, 0},
    {"pad_token", STR(pad_token), 0, 0, NULL, "the same as in special_tokens", {0}, 0},
    {"tokens", LIST(tokens), 0, 0, NULL, "tokens to add that are not special", {"add_tokens"}, 0},
    {"add_special_tokens", LIST(add_special_tokens), 0, 0, NULL, "special tokens to add", {0}, 0},
    {"resize_token_embeddings_to_32x", BOOL(resize_to_32x), 0, 0, "false",
     "grow the vocabulary to a multiple of 32 rows when tokens do not fit", {0}, 0},
    {"setup_chat_format", BOOL(setup_chat_format), 0, 0, "false",
     "give a model without a chat template ChatML, its tokens included (TRL's function)", {0}, 0},
    {"attention_dropout", F64(attention_dropout), 0, 1, NULL,
     "0 trains a model without the attention dropout of its config, which is not supported", {0},
     0},
    {"train_on_inputs", TRI(train_on_inputs), 0, 0, "false",
     "compute the loss on prompts too; auto = unless a record has prompt and completion apart",
     {"train_on_prompt"}, 0},
    {"roles_to_train", LIST(roles_to_train), 0, 0, NULL,
     "roles whose messages carry loss (assistant)", {0}, 0},
    {"train_on_eos", ENUM(train_on_eos), 0, 0, "turn",
     "end-of-turn tokens that carry loss: turn, all, last, none", {0}, 0},
    {"train_on_eot", ENUM(train_on_eot), 0, 0, "turn", "the same as train_on_eos", {0}, 0},
    {"eot_tokens", LIST(eot_tokens), 0, 0, NULL,
     "texts that end a turn, besides those of the chat template", {0}, 0},
    {"min_sample_len", I64(min_sample_len), 0, 1e9, "0", "leave out records with fewer tokens", {0},
     0},
    {"dataset_exact_deduplication", BOOL(deduplicate), 0, 0, "false",
     "leave out records whose tokens and labels came before", {0}, 0},
    {"stage", ENUM(stage), 0, 0, "sft",
     "sft, or pt: datasets of dataset_info.json are text, in packed rows", {0}, 0},
    {"sequence_len", I64(sequence_len), 2, 1 << 24, "2048", "maximum tokens per row",
     {"cutoff_len", "max_seq_length", "max_length"}, 0},
    {"sample_packing", BOOL(packing), 0, 0, "false",
     "put several records into one row, each with its own attention", {"packing", "neat_packing"},
     0},
    {"sample_packing_sequentially", BOOL(packing_sequentially), 0, 0, "false",
     "pack in file order instead of best fit", {0}, AF_NEED_PACKING},
    {"pad_to_sequence_len", BOOL(pad_to_sequence_len), 0, 0, "false",
     "pad every row to sequence_len", {0}, 0},
    {"excess_length_strategy", ENUM(excess), 0, 0, "truncate",
     "records longer than sequence_len: drop, truncate, error", {0}, 0},
    {"shuffle", BOOL(shuffle), 0, 0, "true", "shuffle records each epoch, by the seed",
     {"shuffle_merged_datasets"}, 0},
    {"seed", I64(seed), 0, 9e15, "42", "seed of every random choice", {"data_seed"}, 0},
    {"micro_batch_size", I64(micro_batch_size), 1, 1 << 20, "2", "rows per forward pass",
     {"per_device_train_batch_size"}, 0},
    {"gradient_accumulation_steps", I64(accumulation), 1, 1 << 20, "1",
     "forward passes per optimizer step", {"grad_accumulation_steps"}, 0},
    {"num_epochs", F64(num_epochs), 0, 1e6, "1", "passes over the data", {"num_train_epochs"}, 0},
    {"max_steps", I64(max_steps), -1, 1e12, "-1", "number of optimizer steps; overrides num_epochs",
     {"iters"}, 0},
    {"optimizer", ENUM(optimizer), 0, 0, "adamw",
     "adamw, adamw_8bit, adamw_4bit, adam, ademamix, muon, lion, adafactor, rmsprop, sgd",
     {"optim"}, 0},
    {"learning_rate", F64(learning_rate), 0, 100, "2e-4", "peak learning rate", {"lr"}, 0},
    {"embedding_lr", F64(embedding_lr), 0, 100, "0",
     "learning rate of embeddings, head and lora_modules_to_save, which are then not decayed", {0},
     0},
    {"embedding_lr_scale", F64(embedding_lr_scale), 0, 1e6, "0",
     "the same as a factor of learning_rate", {0}, 0},
    {"lr_scheduler", STR(lr_scheduler), 0, 0, "cosine", "shape of the learning rate over the run",
     {"lr_scheduler_type", "lr_schedule", "learning_rate_scheduler"}, 0},
    {"warmup_steps", F64(warmup_steps), 0, 1e9, "0",
     "steps of linear warm-up (below 1: a share of the run)", {0}, 0},
    {"warmup_ratio", F64(warmup_ratio), 0, 1, "0", "share of the run used for warm-up", {0}, 0},
    {"cosine_min_lr_ratio", F64(min_lr_ratio), 0, 1, "0",
     "final learning rate as a share of the peak", {"min_lr_ratio", "min_lr_rate"}, AF_NEED_COSINE},
    {"min_lr", F64(min_lr), 0, 100, "0", "final learning rate, as a number", {"eta_min"},
     AF_NEED_COSINE},
    {"cosine_constant_lr_ratio", F64(constant_lr_ratio), 0, 1, "0",
     "cosine with cosine_min_lr_ratio: share of the run after which the rate stays at its floor",
     {0}, AF_NEED_COSINE},
    {"lr_quadratic_warmup", BOOL(quadratic_warmup), 0, 0, "false",
     "cosine: warm up along a parabola", {0}, AF_NEED_COSINE},
    {"lr_power", F64(lr_power), 0, 100, "1", "exponent of the polynomial schedule", {0},
     AF_NEED_POLYNOMIAL},
    {"lr_cycles", F64(lr_cycles), 0, 1e6, "1", "number of cycles of cosine_with_restarts",
     {"num_cycles"}, AF_NEED_RESTARTS},
    {"lr_decay_ratio", F64(decay_ratio), 0, 1, "0.1", "share of the run that decays at the end",
     {0}, AF_NEED_WSD},
    {"weight_decay", F64(weight_decay), 0, 10, "0", "decoupled weight decay", {0}, 0},
    {"weight_decay_on", ENUM(decay_on), 0, 0, "matrices",
     "what to decay: matrices (not norms and biases) or all", {0}, 0},
    {"adam_beta1", F64(beta1), 0, 0.999999, "0.9", "decay rate of the first moment", {0},
     AF_NEED_ADAM},
    {"adam_beta2", F64(beta2), 0, 0.9999999, "0.999", "decay rate of the second moment", {0},
     AF_NEED_ADAM},
    {"adam_epsilon", F64(epsilon), 0, 1, "1e-8", "added to the denominator for stability",
     {"adam_eps"}, AF_NEED_EPSILON},
    {"sgd_momentum", F64(momentum), 0, 0.999999, "0", "momentum of sgd", {"momentum"}, AF_NEED_SGD},
    {"max_grad_norm", F64(max_grad_norm), 0, 1e9, "1.0",
     "clip the global gradient norm to this; 0 = never", {"gradient_clipping"}, 0},
    {"neftune_noise_alpha", F64(neftune_alpha), 0, 1000, "0",
     "NEFTune: scale of the noise on embeddings; 0 = none", {"noisy_embedding_alpha"}, 0},
    {"output_router_logits", BOOL(router_logits), 0, 0, NULL,
     "add the load-balancing loss of routers; when left out, as the model's config says", {0}, 0},
    {"router_aux_loss_coef", F64(router_loss_coef), 0, 1e6, NULL,
     "add that loss times this; when left out, the model's config says it", {"moe_aux_loss_coef"},
     0},
    {"bf16", TRI(bf16), 0, 0, "auto", "compute in bf16; auto = on a GPU", {0}, 0},
    {"tf32", BOOL(tf32), 0, 0, "false", "use tf32 matmuls in f32 runs on a GPU", {0}, 0},
    {"attention", ENUM(attention), 0, 0, "auto",
     "attention kernels on a GPU: own, cudnn, or auto = the faster, timed once per shape", {0}, 0},
    {"gemm", ENUM(gemm), 0, 0, "auto",
     "GEMM kernels on a GPU: own, cublas, or auto = cuBLASLt where it is installed", {0}, 0},
    {"gradient_checkpointing", TRI(checkpointing), 0, 0, "auto",
     "recompute activations; auto = where memory requires it", {"grad_checkpoint"}, 0},
    {"activation_offloading", TRI(offloading), 0, 0, "auto",
     "keep block inputs in host memory and recompute; auto = where memory requires it", {0}, 0},
    {"device", STR(device), 0, 0, "auto", "auto, cpu, cuda, cuda:N", {0}, 0},
    {"threads", I64(threads), 0, 4096, "0", "number of CPU threads; 0 = every core", {0}, 0},
    {"strict", BOOL(strict), 0, 0, "false", "refuse keys of the file that have no effect", {0}, 0},
    {"output_dir", STR(output_dir), 0, 0, "model-out", "folder for everything the run writes",
     {"adapter_path"}, 0},
    {"run_name", STR(run_name), 0, 0, NULL, "title of the report", {0}, 0},
    {"report_to", LIST(report_to), 0, 0, NULL,
     "also write metrics for mlflow, wandb, trackio (none, all); TensorBoard has them always",
     {0}, 0},
    {"mlflow_tracking_uri", STR(mlflow_tracking_uri), 0, 0, NULL,
     "folder of MLflow's store; else MLFLOW_TRACKING_URI, else output_dir/mlruns", {0},
     AF_NEED_MLFLOW},
    {"mlflow_experiment_name", STR(mlflow_experiment), 0, 0, NULL,
     "MLflow's experiment; else MLFLOW_EXPERIMENT_NAME, else Default", {0}, AF_NEED_MLFLOW},
    {"wandb_project", STR(wandb_project), 0, 0, NULL,
     "W&B's project; else WANDB_PROJECT, else huggingface", {0}, AF_NEED_WANDB},
    {"wandb_name", STR(wandb_name), 0, 0, NULL, "name of W&B's run; else WANDB_NAME, else run_name",
     {"wandb_run_name"}, AF_NEED_WANDB},
    {"wandb_run_id", STR(wandb_run_id), 0, 0, NULL, "id of W&B's run; else WANDB_RUN_ID, else new",
     {0}, AF_NEED_WANDB},
    {"trackio_project", STR(trackio_project), 0, 0, "huggingface",
     "trackio's project, a database in TRACKIO_DIR", {"project", "trackio_project_name"},
     AF_NEED_TRACKIO},
    {"overwrite_output_dir", BOOL(overwrite_output_dir), 0, 0, "false",
     "replace the files of an earlier run in output_dir; others are kept", {0}, 0},
    {"logging_steps", F64(logging_steps), 0, 1e9, "1",
     "steps between log lines (below 1: a share of the run)", {"steps_per_report"}, 0},
    {"save_steps", F64(save_steps), 0, 1e9, "0",
     "steps between checkpoints (below 1: a share of the run); 0 = only at the end",
     {"save_every"}, 0},
    {"save_strategy", ENUM(save_strategy), 0, 0, "auto",
     "checkpoints every save_steps, each epoch, at each better evaluation (best), or none (no)",
     {0}, 0},
    {"saves_per_epoch", I64(saves_per_epoch), 0, 1e6, "0", "checkpoints per epoch", {0}, 0},
    {"save_total_limit", I64(save_total_limit), 0, 1e6, "0",
     "maximum number of checkpoints kept; 0 = all", {0}, 0},
    {"eval_steps", F64(eval_steps), 0, 1e9, "0",
     "steps between evaluations (below 1: a share of the run); 0 = after each epoch",
     {"steps_per_eval"}, AF_NEED_EVAL},
    {"eval_strategy", ENUM(eval_strategy), 0, 0, "auto",
     "evaluations every eval_steps, each epoch, or none (no)", {"evaluation_strategy"},
     AF_NEED_EVAL_DATA},
    {"evals_per_epoch", I64(evals_per_epoch), 0, 1e6, "0", "evaluations per epoch", {0},
     AF_NEED_EVAL},
    {"early_stopping_patience", I64(early_stopping_patience), 0, 1e6, "0",
     "stop after this many evaluations without a lower loss; 0 = never", {"early_stopping_steps"},
     AF_NEED_EVAL},
    {"load_best_model_at_end", BOOL(load_best), 0, 0, "false",
     "write the model of the best evaluation, not the last", {0}, AF_NEED_EVAL},
    {"loss_watchdog_threshold", F64(loss_watchdog_threshold), 0, 1e9, "0",
     "stop when the logged loss stays above this; 0 = never", {0}, 0},
    {"loss_watchdog_patience", I64(loss_watchdog_patience), 1, 1e9, "3",
     "steps in a row above loss_watchdog_threshold", {0}, AF_NEED_WATCHDOG},
    {"resume_from_checkpoint", STR(resume), 0, 0, NULL,
     "checkpoint folder to resume from, or auto = the newest", {0}, 0},
    {"auto_resume_from_checkpoints", BOOL(auto_resume), 0, 0, "false",
     "same as resume_from_checkpoint: auto", {0}, 0},
    {"generate_samples", LIST(generate_samples), 0, 0, NULL,
     "prompts to answer before and after training", {0}, 0},
    {"generate_samples_steps", I64(generate_samples_steps), 0, 1e9, "0",
     "steps between these answers; 0 = only before and after", {0}, AF_NEED_SAMPLES},
    {"generate_samples_tokens", I64(generate_samples_tokens), 1, 1e5, "48",
     "maximum number of tokens per answer", {0}, AF_NEED_SAMPLES},
};
/* clang-format on */
const int af_keys_count = (int)AF_LEN(af_keys);
_Static_assert(AF_LEN(af_keys) <= AF_RUN_KEYS_MAX, "af_run_config.key_line has one entry per key");

/* ---- values ---- */

af_key_value af_key_get(const af_run_config *r, const af_key *k)
{
    const void *at = (const char *)r + k->offset;
    switch (k->kind) {
    case AF_KEY_STR:
        return (af_key_value){.str = *(const char *const *)at};
    case AF_KEY_BOOL:
        return (af_key_value){.flag = *(const bool *)at};
    case AF_KEY_I64:
        return (af_key_value){.i64 = *(const int64_t *)at};
    case AF_KEY_F64:
        return (af_key_value){.f64 = *(const double *)at};
    case AF_KEY_LIST:
        return (af_key_value){.list = *(const af_strings *)at};
    case AF_KEY_TREE:
        return (af_key_value){.tree = *(const af_yaml *const *)at};
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        break;
    }
    return (af_key_value){.choice = k->choices->get(r)};
}

void af_key_set(af_run_config *r, const af_key *k, af_key_value v)
{
    void *at = (char *)r + k->offset;
    switch (k->kind) {
    case AF_KEY_STR:
        *(const char **)at = v.str;
        break;
    case AF_KEY_BOOL:
        *(bool *)at = v.flag;
        break;
    case AF_KEY_I64:
        *(int64_t *)at = v.i64;
        break;
    case AF_KEY_F64:
        *(double *)at = v.f64;
        break;
    case AF_KEY_LIST:
        *(af_strings *)at = v.list;
        break;
    case AF_KEY_TREE:
        *(const af_yaml **)at = v.tree;
        break;
    case AF_KEY_TRI:
    case AF_KEY_ENUM:
        k->choices->set(r, v.choice);
    }
}

const char *af_key_choice_name(const af_key *k, int value)
{
    const af_key_choice *c = k->choices->names;
    while (c->name && c->value != value)
        c++;
    return c->name ? c->name : "?";
}

const char *af_key_kind_name(const af_key *k)
{
    static const char *const names[] = {
        [AF_KEY_STR] = "text",
        [AF_KEY_BOOL] = "true or false",
        [AF_KEY_TRI] = "true, false or auto",
        [AF_KEY_I64] = "whole number",
        [AF_KEY_F64] = "number",
        [AF_KEY_LIST] = "list of names",
        [AF_KEY_ENUM] = "name",
        [AF_KEY_TREE] = "list of maps",
    };
    return names[k->kind];
}

void af_run_keys_each(void (*visit)(void *user, const af_key *k), void *user)
{
    for (int i = 0; i < af_keys_count; i++)
        visit(user, &af_keys[i]);
}

/* ---- names ---- */

const af_key *af_key_find(const char *name)
{
    for (int i = 0; i < af_keys_count; i++) {
        if (strcmp(af_keys[i].name, name) == 0)
            return &af_keys[i];
        for (size_t k = 0; k < AF_LEN(af_keys[i].alias) && af_keys[i].alias[k]; k++)
            if (strcmp(af_keys[i].alias[k], name) == 0)
                return &af_keys[i];
    }
    return NULL;
}

static bool has_word(const char *name, const char *word, size_t len)
{
    for (size_t n; *name; name += n + (name[n] != '\0')) {
        n = strcspn(name, "_");
        if (n == len && strncmp(name, word, n) == 0)
            return true;
    }
    return false;
}

/* Whether `name` contains every word of `wrong`: "neftune_alpha" means "neftune_noise_alpha". */
static bool has_parts(const char *name, const char *wrong)
{
    int n = 0;
    for (size_t len; *wrong; n++) {
        len = strcspn(wrong, "_-");
        if (!has_word(name, wrong, len))
            return false;
        wrong += len + (wrong[len] != '\0');
    }
    return n > 0;
}

/* Edit distance of a wrong key from a known one; parts of a name, or a name with a suffix, are
 * near.
 */
static int distance(const char *wrong, const char *name)
{
    enum { PART = 4, WHOLE = 6, NEAR = 2, FAR = 100 };
    if (strlen(wrong) <= PART && wrong[0] != name[0])
        return FAR; /* "trl" is not "lr" */
    const int d = af_word_distance(wrong, name);
    const bool part = strlen(wrong) >= PART && has_parts(name, wrong);
    const bool whole = strlen(name) >= WHOLE && strncmp(wrong, name, strlen(name)) == 0;
    return part || whole ? AF_MIN(d, NEAR) : d;
}

const char *af_key_suggest(const char *unknown)
{
    const char *best = NULL;
    int least = 0, least_letters = 0;
    char wrong[128]; /* in lower case, as all keys are; no key is as long */
    size_t n = 0;
    for (; n < sizeof wrong - 1 && unknown[n]; n++)
        wrong[n] =
            (char)(unknown[n] >= 'A' && unknown[n] <= 'Z' ? unknown[n] + ('a' - 'A') : unknown[n]);
    wrong[n] = '\0';
    const int length = (int)strlen(wrong), most = AF_MIN(AF_MAX(2, length / 4), length - 1);
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        for (int w = -1; w < (int)AF_LEN(k->alias) && (w < 0 || k->alias[w]); w++) {
            const char *name = w < 0 ? k->name : k->alias[w];
            const int far = distance(wrong, name), letters = af_word_distance(wrong, name);
            if (far > most || (best && (far > least || (far == least && letters >= least_letters))))
                continue;
            best = k->name;
            least = far;
            least_letters = letters;
        }
    }
    return best ? best : af_foreign_suggest(wrong, most);
}
