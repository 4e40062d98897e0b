/* run_keys.c - the one table of run-file keys. */
#include "train/run/run_keys.h"
#include "afinar/graph.h"
#include "base/word.h"

#include <strings.h>

#define AT(field) offsetof(af_run_config, field)

static const af_key_word methods[] = {{"full", AF_METHOD_FULL},
                                      {"none", AF_METHOD_FULL},
                                      {"lora", AF_METHOD_LORA},
                                      {"qlora", AF_METHOD_QLORA},
                                      {0}};
static const af_key_word excesses[] = {{"truncate", AF_EXCESS_TRUNCATE},
                                       {"drop", AF_EXCESS_DROP},
                                       {"error", AF_EXCESS_ERROR},
                                       {"raise", AF_EXCESS_ERROR},
                                       {0}};
static const af_key_word eos_words[] = {{"turn", AF_TRAIN_EOS_TURN},
                                        {"all", AF_TRAIN_EOS_ALL},
                                        {"last", AF_TRAIN_EOS_LAST},
                                        {"none", AF_TRAIN_EOS_NONE},
                                        {0}};
static const af_key_word decay_words[] = {
    {"matrices", AF_DECAY_MATRICES}, {"all", AF_DECAY_ALL}, {0}};
static const af_key_word optimizers[] = {{"adamw", AF_OPTIMIZER_ADAMW},
                                         {"adamw_torch", AF_OPTIMIZER_ADAMW},
                                         {"adamw_torch_fused", AF_OPTIMIZER_ADAMW},
                                         {"adamw_hf", AF_OPTIMIZER_ADAMW},
                                         {"paged_adamw_32bit", AF_OPTIMIZER_ADAMW},
                                         {"adam", AF_OPTIMIZER_ADAM},
                                         {"adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                         {"adamw_bnb_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                         {"paged_adamw_8bit", AF_OPTIMIZER_ADAMW_8BIT},
                                         {"lion", AF_OPTIMIZER_LION},
                                         {"lion_32bit", AF_OPTIMIZER_LION},
                                         {"adafactor", AF_OPTIMIZER_ADAFACTOR},
                                         {"sgd", AF_OPTIMIZER_SGD},
                                         {0}};

static const af_key_word attentions[] = {
    {"auto", AF_ATTENTION_AUTO}, {"own", AF_ATTENTION_OWN}, {"cudnn", AF_ATTENTION_CUDNN}, {0}};

/* clang-format off */
const af_key af_keys[] = {
    {"base_model", AF_KEY_STR, AT(base_model), 0, 0, NULL,
     "folder, .gguf file, or org/name in the local cache", {"model_name_or_path", "model"}, 0,
     NULL},
    {"adapter", AF_KEY_ENUM, AT(method), 0, 0, "full",
     "lora, qlora, or absent for full fine-tuning", {"finetuning_type", "fine_tune_type"}, 0,
     methods},
    {"load_in_4bit", AF_KEY_TRI, AT(load_in_4bit), 0, 0, "auto",
     "quantise the frozen base to nf4 (qlora does; not GGUF blocks)", {0}, AF_NEED_ADAPTER, NULL},
    {"lora_r", AF_KEY_I64, AT(lora_r), 1, 4096, "16", "rank of the adapter", {"lora_rank"},
     AF_NEED_NEW_ADAPTER, NULL},
    {"lora_alpha", AF_KEY_F64, AT(lora_alpha), 0, 1e6, "0",
     "scale is alpha / r; 0 = twice the rank", {0}, AF_NEED_NEW_ADAPTER, NULL},
    {"lora_dropout", AF_KEY_F64, AT(lora_dropout), 0, 0.99, "0", "dropout before the adapter", {0},
     AF_NEED_ADAPTER, NULL},
    {"lora_target_modules", AF_KEY_LIST, AT(lora_target_modules), 0, 0, NULL,
     "module names, a regular expression, or all-linear (the default)", {"lora_target",
     "target_modules"}, AF_NEED_NEW_ADAPTER, NULL},
    {"lora_target_linear", AF_KEY_BOOL, AT(lora_target_linear), 0, 0, "false",
     "the same as all-linear", {0}, AF_NEED_NEW_ADAPTER, NULL},
    {"lora_exclude_modules", AF_KEY_LIST, AT(lora_exclude_modules), 0, 0, NULL,
     "modules without an adapter", {"exclude_modules"}, AF_NEED_NEW_ADAPTER, NULL},
    {"lora_modules_to_save", AF_KEY_LIST, AT(lora_modules_to_save), 0, 0, NULL,
     "modules trained whole beside the adapter (lm_head, embed_tokens)", {"additional_target",
     "modules_to_save"}, AF_NEED_NEW_ADAPTER, NULL},
    {"lora_layers_to_transform", AF_KEY_LIST, AT(lora_layers), 0, 0, NULL,
     "layer numbers that get the adapter", {"peft_layers_to_transform", "layers_to_transform"},
     AF_NEED_NEW_ADAPTER, NULL},
    {"peft_use_rslora", AF_KEY_BOOL, AT(rslora), 0, 0, "false", "scale by alpha / sqrt(r)",
     {"use_rslora"}, AF_NEED_NEW_ADAPTER, NULL},
    {"peft_use_dora", AF_KEY_BOOL, AT(dora), 0, 0, "false", "weight-decomposed adapter",
     {"use_dora"}, AF_NEED_NEW_ADAPTER, NULL},
    {"peft_init_lora_weights", AF_KEY_STR, AT(lora_init), 0, 0, "true",
     "true (kaiming) or gaussian", {"init_lora_weights"}, AF_NEED_NEW_ADAPTER, NULL},
    {"loraplus_lr_ratio", AF_KEY_F64, AT(loraplus_lr_ratio), 0, 1e6, "0",
     "LoRA+: learning rate of B over that of A", {0}, AF_NEED_ADAPTER, NULL},
    {"loraplus_lr_embedding", AF_KEY_F64, AT(loraplus_lr_embedding), 0, 1, "1e-6",
     "LoRA+: learning rate of adapters of embeddings", {0}, AF_NEED_PLUS, NULL},
    {"lora_model_dir", AF_KEY_STR, AT(lora_model_dir), 0, 0, NULL, "start from this PEFT adapter",
     {"adapter_name_or_path"}, AF_NEED_ADAPTER, NULL},
    {"datasets", AF_KEY_TREE, AT(datasets), 0, 0, NULL, "list of {path, type, field names}",
     {"dataset"}, 0, NULL},
    {"test_datasets", AF_KEY_TREE, AT(test_datasets), 0, 0, NULL, "the same, for evaluation",
     {"eval_dataset"}, 0, NULL},
    {"val_set_size", AF_KEY_F64, AT(val_set_size), 0, 1e9, "0",
     "share (below 1) or number of records held out", {"val_size"}, 0, NULL},
    {"chat_template", AF_KEY_STR, AT(chat_template), 0, 0, NULL,
     "the model's own, a .jinja file, or chatml", {"template", "chat_template_jinja"}, 0, NULL},
    {"train_on_inputs", AF_KEY_BOOL, AT(train_on_inputs), 0, 0, "false", "loss on prompts too",
     {"train_on_prompt"}, 0, NULL},
    {"roles_to_train", AF_KEY_LIST, AT(roles_to_train), 0, 0, NULL,
     "roles that carry loss (assistant)", {0}, 0, NULL},
    {"train_on_eos", AF_KEY_ENUM, AT(train_on_eos), 0, 0, "turn",
     "end-of-turn tokens with loss: turn, all, last, none", {0}, 0, eos_words},
    {"sequence_len", AF_KEY_I64, AT(sequence_len), 2, 1 << 24, "2048", "tokens of a row",
     {"cutoff_len", "max_seq_length", "max_length"}, 0, NULL},
    {"sample_packing", AF_KEY_BOOL, AT(packing), 0, 0, "false",
     "several records in a row, attention kept apart", {"packing", "neat_packing"}, 0, NULL},
    {"sample_packing_sequentially", AF_KEY_BOOL, AT(packing_sequentially), 0, 0, "false",
     "pack in file order instead of best fit", {0}, AF_NEED_PACKING, NULL},
    {"pad_to_sequence_len", AF_KEY_BOOL, AT(pad_to_sequence_len), 0, 0, "false",
     "pad every row to sequence_len", {0}, 0, NULL},
    {"excess_length_strategy", AF_KEY_ENUM, AT(excess), 0, 0, "truncate",
     "records too long: drop, truncate, error", {0}, 0, excesses},
    {"shuffle", AF_KEY_BOOL, AT(shuffle), 0, 0, "true", "shuffle records each epoch, by the seed",
     {"shuffle_merged_datasets"}, 0, NULL},
    {"seed", AF_KEY_I64, AT(seed), 0, 9e15, "42", "of everything random", {"data_seed"}, 0, NULL},
    {"micro_batch_size", AF_KEY_I64, AT(micro_batch_size), 1, 1 << 20, "2", "rows in one pass",
     {"per_device_train_batch_size", "batch_size"}, 0, NULL},
    {"gradient_accumulation_steps", AF_KEY_I64, AT(accumulation), 1, 1 << 20, "1",
     "passes in one optimizer step", {"grad_accumulation_steps"}, 0, NULL},
    {"num_epochs", AF_KEY_F64, AT(num_epochs), 0, 1e6, "1", "times through the data",
     {"num_train_epochs"}, 0, NULL},
    {"max_steps", AF_KEY_I64, AT(max_steps), -1, 1e12, "-1",
     "optimizer steps; overrides num_epochs", {"iters"}, 0, NULL},
    {"optimizer", AF_KEY_ENUM, AT(optimizer), 0, 0, "adamw",
     "adamw, adamw_8bit, adam, lion, adafactor, sgd", {"optim"}, 0, optimizers},
    {"learning_rate", AF_KEY_F64, AT(learning_rate), 0, 100, "2e-4", "peak learning rate", {"lr"},
     0, NULL},
    {"lr_scheduler", AF_KEY_STR, AT(lr_scheduler), 0, 0, "cosine",
     "shape of the learning rate over the run", {"lr_scheduler_type", "lr_schedule"}, 0, NULL},
    {"warmup_steps", AF_KEY_F64, AT(warmup_steps), 0, 1e9, "0",
     "steps of linear warm-up (below 1: a share of the run)", {0}, 0, NULL},
    {"warmup_ratio", AF_KEY_F64, AT(warmup_ratio), 0, 1, "0", "share of the run that warms up",
     {0}, 0, NULL},
    {"cosine_min_lr_ratio", AF_KEY_F64, AT(min_lr_ratio), 0, 1, "0",
     "where the learning rate ends, as a share of the peak", {"min_lr_ratio"}, AF_NEED_COSINE,
     NULL},
    {"lr_power", AF_KEY_F64, AT(lr_power), 0, 100, "1", "exponent of the polynomial schedule", {0},
     AF_NEED_POLYNOMIAL, NULL},
    {"lr_cycles", AF_KEY_F64, AT(lr_cycles), 0, 1e6, "1", "cycles of cosine_with_restarts",
     {"num_cycles"}, AF_NEED_RESTARTS, NULL},
    {"lr_decay_ratio", AF_KEY_F64, AT(decay_ratio), 0, 1, "0.1",
     "share of the run that decays at the end", {0}, AF_NEED_WSD, NULL},
    {"weight_decay", AF_KEY_F64, AT(weight_decay), 0, 10, "0", "decoupled weight decay", {0}, 0,
     NULL},
    {"weight_decay_on", AF_KEY_ENUM, AT(decay_on), 0, 0, "matrices",
     "matrices (not norms and biases) or all", {0}, 0, decay_words},
    {"adam_beta1", AF_KEY_F64, AT(beta1), 0, 0.999999, "0.9", "first moment", {0}, AF_NEED_ADAM,
     NULL},
    {"adam_beta2", AF_KEY_F64, AT(beta2), 0, 0.9999999, "0.999", "second moment", {0},
     AF_NEED_ADAM, NULL},
    {"adam_epsilon", AF_KEY_F64, AT(epsilon), 0, 1, "1e-8", "added to the root", {0}, AF_NEED_ROOT,
     NULL},
    {"sgd_momentum", AF_KEY_F64, AT(momentum), 0, 0.999999, "0", "momentum of sgd", {"momentum"},
     AF_NEED_SGD, NULL},
    {"max_grad_norm", AF_KEY_F64, AT(max_grad_norm), 0, 1e9, "1.0",
     "clip the global norm here; 0 = never", {"gradient_clipping"}, 0, NULL},
    {"neftune_noise_alpha", AF_KEY_F64, AT(neftune_alpha), 0, 1000, "0",
     "noise on embeddings while training", {0}, 0, NULL},
    {"bf16", AF_KEY_TRI, AT(bf16), 0, 0, "auto", "bf16 compute: auto = on a GPU", {0}, 0, NULL},
    {"tf32", AF_KEY_BOOL, AT(tf32), 0, 0, "false", "tf32 products in f32 runs on a GPU", {0}, 0,
     NULL},
    {"attention", AF_KEY_ENUM, AT(attention), 0, 0, "auto",
     "on a GPU: own kernels, cudnn, or auto = the faster one, timed once for a shape", {0}, 0,
     attentions},
    {"gradient_checkpointing", AF_KEY_TRI, AT(checkpointing), 0, 0, "auto",
     "recompute: auto = where memory needs it", {"grad_checkpoint"}, 0, NULL},
    {"activation_offloading", AF_KEY_TRI, AT(offloading), 0, 0, "auto",
     "inputs of blocks wait in host memory (recomputes): auto = where memory needs it", {0}, 0,
     NULL},
    {"device", AF_KEY_STR, AT(device), 0, 0, "auto", "auto, cpu, cuda, cuda:N", {0}, 0, NULL},
    {"threads", AF_KEY_I64, AT(threads), 0, 4096, "0", "CPU threads; 0 = every core", {0}, 0,
     NULL},
    {"output_dir", AF_KEY_STR, AT(output_dir), 0, 0, NULL, "where everything is written",
     {"adapter_path"}, 0, NULL},
    {"run_name", AF_KEY_STR, AT(run_name), 0, 0, NULL, "shown in the report", {0}, 0, NULL},
    {"overwrite_output_dir", AF_KEY_BOOL, AT(overwrite_output_dir), 0, 0, "false",
     "start afresh over an earlier run", {0}, 0, NULL},
    {"logging_steps", AF_KEY_I64, AT(logging_steps), 1, 1e9, "1", "steps between log lines", {0},
     0, NULL},
    {"save_steps", AF_KEY_I64, AT(save_steps), 0, 1e9, "0",
     "steps between checkpoints; 0 = only at the end", {"save_every"}, 0, NULL},
    {"saves_per_epoch", AF_KEY_I64, AT(saves_per_epoch), 0, 1e6, "0", "checkpoints an epoch", {0},
     0, NULL},
    {"save_total_limit", AF_KEY_I64, AT(save_total_limit), 0, 1e6, "0",
     "checkpoints kept; 0 = all", {0}, 0, NULL},
    {"eval_steps", AF_KEY_I64, AT(eval_steps), 0, 1e9, "0",
     "steps between evaluations; 0 = at the end of epochs", {"steps_per_eval"}, AF_NEED_EVAL,
     NULL},
    {"evals_per_epoch", AF_KEY_I64, AT(evals_per_epoch), 0, 1e6, "0", "evaluations an epoch", {0},
     AF_NEED_EVAL, NULL},
    {"early_stopping_patience", AF_KEY_I64, AT(early_stopping_patience), 0, 1e6, "0",
     "evaluations without a better loss before the run stops; 0 = never", {0}, AF_NEED_EVAL, NULL},
    {"load_best_model_at_end", AF_KEY_BOOL, AT(load_best), 0, 0, "false",
     "the final model is the best evaluated one", {0}, AF_NEED_EVAL, NULL},
    {"resume_from_checkpoint", AF_KEY_STR, AT(resume), 0, 0, NULL, "a checkpoint folder, or auto",
     {0}, 0, NULL},
    {"auto_resume_from_checkpoints", AF_KEY_BOOL, AT(auto_resume), 0, 0, "false",
     "the same as resume: auto", {0}, 0, NULL},
    {"generate_samples", AF_KEY_LIST, AT(generate_samples), 0, 0, NULL,
     "prompts answered while training", {0}, 0, NULL},
    {"generate_samples_steps", AF_KEY_I64, AT(generate_samples_steps), 0, 1e9, "0",
     "steps between those answers; 0 = before and after", {0}, AF_NEED_SAMPLES, NULL},
    {"generate_samples_tokens", AF_KEY_I64, AT(generate_samples_tokens), 1, 1e5, "48",
     "tokens of an answer", {0}, AF_NEED_SAMPLES, NULL},
};
/* clang-format on */
const int af_keys_count = (int)AF_LEN(af_keys);
#undef AT

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

/* Does every word of `wrong` stand in `word`? "neftune_alpha" means "neftune_noise_alpha". */
static bool has_words(const char *word, const char *wrong)
{
    char part[64];
    int n = 0;
    for (const char *at = wrong; *at; n++) {
        const size_t len = strcspn(at, "_-");
        snprintf(part, sizeof part, "%.*s", (int)AF_MIN(len, sizeof part - 1), at);
        if (!strstr(word, part))
            return false;
        at += len + (at[len] != '\0');
    }
    return n > 0;
}

/* How far a wrong key is from a right one; part of it, or it and a word more, is near. */
static int remoteness(const char *wrong, const char *word)
{
    enum { PART = 4, WHOLE = 6, NEAR = 2 };
    const int d = af_word_distance(wrong, word);
    const bool part = strlen(wrong) >= PART && has_words(word, wrong);
    const bool whole = strlen(word) >= WHOLE && strncmp(wrong, word, strlen(word)) == 0;
    return part || whole ? AF_MIN(d, NEAR) : d;
}

const char *af_key_suggest(const char *given)
{
    const char *best = NULL;
    int least = 0, least_letters = 0;
    char wrong[128]; /* in small letters, as all keys are; no key is as long */
    size_t n = 0;
    for (; n < sizeof wrong - 1 && given[n]; n++)
        wrong[n] = (char)(given[n] >= 'A' && given[n] <= 'Z' ? given[n] + ('a' - 'A') : given[n]);
    wrong[n] = '\0';
    const int length = (int)strlen(wrong), most = AF_MIN(AF_MAX(2, length / 4), length - 1);
    for (int i = 0; i < af_keys_count; i++) {
        const af_key *k = &af_keys[i];
        for (int w = -1; w < (int)AF_LEN(k->alias) && (w < 0 || k->alias[w]); w++) {
            const char *word = w < 0 ? k->name : k->alias[w];
            const int far = remoteness(wrong, word), letters = af_word_distance(wrong, word);
            if (far > most || (best && (far > least || (far == least && letters >= least_letters))))
                continue;
            best = k->name;
            least = far;
            least_letters = letters;
        }
    }
    return best;
}
