/* test_run_swift.c - run files of ms-swift, of Unsloth's program, of AutoTrain, torchtune and Oumi.
 */
#define _DEFAULT_SOURCE
#include "parse_file.h"

#include "base/file.h"
#include "train/run/run_keys.h"

#include <unistd.h>

static af_status parse(af_run_config *r, const char *keys, af_error *err)
{
    char text[1000];
    snprintf(text, sizeof text, "model: m\n%s\n", keys);
    return af_run_config_parse(r, text, strlen(text), "run.yaml", NULL, 0, err);
}

#define LORA "tuner_type: lora\ndataset: a.jsonl\n"

/* Keys, and a line of the effective file. */
static void check_lines(af_dialect dialect, const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        af_run_config r = {0};
        af_error err = {0};
        char *text;
        CHECK_OK(parse(&r, cases[i][0], &err), err);
        assert_int_equal(r.dialect, dialect);
        CHECK_OK(af_run_config_text(&r, &text, &err), err);
        CHECK_MSG(strstr(text, cases[i][1]), "%s: no %s in\n%.9000s", cases[i][0], cases[i][1],
                  text);
        free(text);
        af_run_config_clear(&r);
    }
}

/* Keys, and a part of what is said about them. */
static void check_refusals(const char *const (*cases)[2], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        af_run_config r = {0};
        af_error err = {0};
        CHECK_MSG(parse(&r, cases[i][0], &err) != AF_OK, "accepted: %s", cases[i][0]);
        CHECK_MSG(strstr(err.msg, cases[i][1]), "'%s' lacks '%s'", err.msg, cases[i][1]);
    }
}

static void test_keys(void **state)
{
    static const char *const cases[][2] = {
        {LORA, "adapter: lora\n"},
        {"train_type: lora\ndataset: a.jsonl", "lora_r: 8\nlora_alpha: 32\n"},
        {LORA, "lora_dropout: 0.05\n"},
        {LORA, "sequence_len: 16777216\n"},
        {LORA, "excess_length_strategy: drop\n"},
        {LORA, "micro_batch_size: 1\ngradient_accumulation_steps: 16\n"},
        {LORA "per_device_train_batch_size: 3", "gradient_accumulation_steps: 6\n"},
        {LORA "gradient_accumulation_steps: 2", "gradient_accumulation_steps: 2\n"},
        {LORA, "num_epochs: 3\n"},
        {LORA, "learning_rate: 0.0001\n"},
        {"tuner_type: full\ndataset: a.jsonl", "learning_rate: 1e-05\n"},
        {LORA, "lr_scheduler: \"cosine\"\n"},
        {LORA, "weight_decay: 0.1\n"},
        {LORA, "adam_beta2: 0.95\n"},
        {"tuner_type: lora\ndataset: [a.jsonl#500, 'hf::b/c:d', e.jsonl]",
         "datasets: [{\"path\": \"a.jsonl\", \"num_samples\": 500}, {\"path\": \"b/c\", \"name\": "
         "\"d\"}, {\"path\": \"e.jsonl\"}]\n"},
        {"tuner_type: lora\ndataset: ['swift/self-cognition#500']\nmodel_name: [A, B]\n"
         "model_author: C",
         "datasets: [{\"path\": \"modelscope/self-cognition\", \"type\": \"self_cognition\", "
         "\"model_name\": [A, B], \"model_author\": C, \"num_samples\": 500}]\n"},
        {"tuner_type: lora\ndataset: 'hf::modelscope/self-cognition:qwen3'\nmodel_name: A",
         "\"type\": \"self_cognition:qwen3\", \"model_name\": A}]\n"},
        {"tuner_type: lora\ndataset: x/self_cognition.jsonl\nmodel_name: A",
         "[{\"path\": \"x/self_cognition.jsonl\", \"type\": \"self_cognition\", \"model_name\":"},
        {"tuner_type: lora\ndataset: x/self_cognition.jsonl",
         "datasets: [{\"path\": \"x/self_cognition.jsonl\"}]\n"},
        {LORA "val_dataset: [v.jsonl]", "test_datasets: [{\"path\": \"v.jsonl\"}]\n"},
        {LORA "val_dataset: v.jsonl\nsave_steps: 7", "eval_steps: 7\n"},
        {LORA "val_dataset: v.jsonl\neval_steps: 9", "eval_steps: 9\n"},
        {LORA "split_dataset_ratio: 0.1", "val_set_size: 0.1\n"},
        {LORA "truncation_strategy: right", "excess_length_strategy: truncate\n"},
        {LORA "truncation_strategy: left", "truncation_mode: keep_end\n"},
        {LORA "truncation_strategy: left", "excess_length_strategy: truncate\n"},
        {LORA "loss_scale: all", "train_on_inputs: true\n"},
        {LORA "loss_scale: last_round", "mask_history: true\n"},
        {LORA "loss_scale: last_round+ignore_empty_think",
         "mask_history: true\nmask_empty_thoughts: true\n"},
        {LORA "loss_scale: ignore_empty_think", "mask_history: false\nmask_empty_thoughts: true\n"},
        {LORA "loss_scale: default+ignore_empty_think", "mask_empty_thoughts: true\n"},
        {LORA "quant_method: bnb\nquant_bits: 4", "load_in_4bit: true\n"},
        {LORA "system: Be brief.", "default_system: \"Be brief.\"\n"},
        {LORA "enable_thinking: false", "chat_template_kwargs: {\"enable_thinking\": false}\n"},
        {LORA "deepspeed: zero3_offload", "zero_stage: 3\n"},
        {LORA "lorap_lr_ratio: 16", "loraplus_lr_ratio: 16\n"},
        {LORA "init_weights: pissa", "peft_init_lora_weights: \"pissa\"\n"},
        {LORA "adapters: [old]", "lora_model_dir: \"old\"\n"},
        {LORA "train_dataloader_shuffle: false", "shuffle: false\n"},
        {LORA "rlhf_type: dpo\nrpo_alpha: 0.5", "dpo_ftx: 0.5\n"},
        {LORA "rlhf_type: rm", "rl: reward\n"},
        {LORA "template: qwen2_5", "adapter: lora\n"},
        {LORA "rlhf_type: simpo", "simpo_gamma: 1\n"},
        {LORA "rlhf_type: simpo", "cpo_alpha: 1\n"},
    };
    (void)state;
    check_lines(AF_DIALECT_SWIFT, cases, AF_LEN(cases));
}

/* A step has as many rows with several ranks. */
static void test_ranks(void **state)
{
    af_run_config r = {0};
    af_error err = {0};
    (void)state;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    CHECK_OK(parse(&r, LORA "per_device_train_batch_size: 2", &err), err);
    assert_int_equal(r.accumulation, 3);
    af_run_config_clear(&r);
    setenv("WORLD_SIZE", "32", 1);
    CHECK_OK(parse(&r, LORA, &err), err);
    assert_int_equal(r.accumulation, 1);
    af_run_config_clear(&r);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

/* Keys that change nothing here are accepted. */
static void test_keys_without_effect(void **state)
{
    static const char keys[] = LORA
        "torch_dtype: bfloat16\nattn_impl: flash_attn\ndataset_num_proc: 4\nuse_hf: true\n"
        "load_from_cache_file: true\nadd_version: false\nfreeze_vit: true\nlazy_tokenize: true\n"
        "add_non_thinking_prefix: true\nmax_shard_size: 5GB\neval_dataset: [gsm8k]\n"
        "packing_strategy: binpack\nstopping_strategy: first_exhausted\n"
        "ENV: {CUDA_VISIBLE_DEVICES: '0'}";
    af_run_config r = {0};
    af_error err = {0};
    (void)state;
    CHECK_OK(parse(&r, keys, &err), err);
    assert_null(r.test_datasets);
    af_run_config_clear(&r);
}

static void test_what_is_wrong(void **state)
{
    static const char *const cases[][2] = {
        {LORA "template: qwen2_5\nstrict: true",
         "run.yaml:4: 'template' is not supported: the chat"},
        {"tuner_type: lora\ndataset: [ms::a/b]", "(hf::ORG/NAME)"},
        {"tuner_type: lora\ndataset: ['a/b:c/d']", "has several subsets"},
        {"tuner_type: lora\ndataset: [a.jsonl#x]", "a number of records must follow '#'"},
        {"tuner_type: adalora\ndataset: a.jsonl", "adapter is 'adalora', which is not supported"},
        {LORA "rlhf_type: grpo", "rl is 'grpo', which is not supported"},
        {LORA "truncation_strategy: split", "'truncation_strategy' with 'split' is not supported"},
        {LORA "quant_method: bnb\nquant_bits: 4\nbnb_4bit_quant_type: fp4",
         "'bnb_4bit_quant_type' with 'fp4' is not supported"},
        {LORA "loss_scale: hermes+ignore_empty_think", "'loss_scale' with 'hermes+ignore_empty"},
        {LORA "loss_scale: react", "'loss_scale' with 'react' is not supported"},
        {LORA "model_author: swift", "'model_author' with 'swift' is not supported"},
        {LORA "columns: {a: query}", "'columns' is not supported"},
        {LORA "external_plugins: [x.py]", "no code but afinar's own is run"},
    };
    (void)state;
    check_refusals(cases, AF_LEN(cases));
}

/* ---- Unsloth ---- */

#define CHATS "data: {local_dataset: [a.jsonl], format_type: chatml}\n"

static void test_unsloth(void **state)
{
    static const char *const cases[][2] = {
        {CHATS, "adapter: lora\nload_in_4bit: true\n"},
        {CHATS, "lora_r: 64\nlora_alpha: 16\nlora_dropout: 0\n"},
        {CHATS, "datasets: [{\"path\": \"a.jsonl\"}]\n"},
        {CHATS, "train_on_inputs: true\n"},
        {CHATS, "sequence_len: 2048\n"},
        {CHATS, "seed: 3407\n"},
        {CHATS, "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"},
        {CHATS, "num_epochs: 3\nmax_steps: -1\noptimizer: adamw_8bit\nlearning_rate: 0.0002\n"},
        {CHATS, "lr_scheduler: \"linear\"\n"},
        {CHATS, "warmup_steps: 5\n"},
        {CHATS, "weight_decay: 0.01\n"},
        {CHATS, "output_dir: \"outputs\"\n"},
        {CHATS "training: {max_steps: 0, save_steps: 0}", "save_steps: 0\n"},
        {CHATS "lora: {target_modules: ''}", "lora_dropout: 0\nlora_target_linear: false\n"},
        {CHATS "training: {max_steps: 60}", "max_steps: 60\n"},
        {CHATS "training: {batch_size: 8, random_seed: 1}", "micro_batch_size: 8\n"},
        {CHATS "training: {train_on_completions: true}", "train_on_inputs: false\n"},
        {CHATS "training: {gradient_checkpointing: none}", "gradient_checkpointing: false\n"},
        {CHATS "training: {gradient_checkpointing: unsloth}", "gradient_checkpointing: true\n"},
        {CHATS "training: {training_type: full, load_in_4bit: true}\nlora: {lora_r: 64}",
         "adapter: full\n"},
        {CHATS "training: {load_in_4bit: false}", "load_in_4bit: false\n"},
        {CHATS "lora: {target_modules: 'q_proj,v_proj', use_rslora: true}",
         "lora_target_modules: [\"q_proj\", \"v_proj\"]\n"},
        {CHATS "logging: {enable_wandb: true, wandb_project: p}", "report_to: [\"wandb\"]\n"},
        {CHATS "logging: {enable_wandb: false, wandb_project: p, hf_token: null}", "seed: 3407\n"},
        {"data: {dataset: a/b, format_type: alpaca}\ntraining: {train_on_completions: true}",
         "datasets: [{\"path\": \"a/b\", \"type\": \"alpaca:unsloth\"}]\n"},
        {"data: {dataset: a/b, format_type: alpaca}\ntraining: {train_on_completions: true}",
         "train_on_inputs: true\n"},
        {"data: {local_dataset: a.txt, format_type: raw}",
         "datasets: [{\"path\": \"a.txt\", \"type\": \"text\"}]\n"},
        {"training_type: lora\nlocal_dataset: [a.jsonl]", "lora_r: 64\n"}, /* without sections */
    };
    static const char *const wrong[][2] = {
        {"data: {dataset: a/b, local_dataset: [c]}", "dataset and local_dataset: give one"},
        {"data: {local_dataset: [c], format_type: html}", "format_type must be one of: auto, alp"},
        {CHATS "training: {batch_sise: 2}", "run.yaml:3: unknown key 'batch_sise'"},
        {CHATS "lora: {finetune_mlp_modules: false}", "'finetune_mlp_modules' with 'false' is not"},
    };
    (void)state;
    check_lines(AF_DIALECT_UNSLOTH, cases, AF_LEN(cases));
    check_refusals(wrong, AF_LEN(wrong));
}

/* What the first record is decides, where the file leaves it open. */
static void test_unsloth_records(void **state)
{
    static const char alpaca[] = "[{\"instruction\": \"a\", \"input\": \"\", \"output\": \"b\"}]";
    static const char chat[] = "[{\"messages\": []}]";
    char dir[] = "/tmp/afinar-unsloth-XXXXXX", path[64], keys[200], want[200];
    af_error err = {0};
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a.json", dir);
    snprintf(keys, sizeof keys, "data: {local_dataset: [%s]}", path);
    CHECK_OK(af_file_write(path, alpaca, strlen(alpaca), &err), err);
    snprintf(want, sizeof want, "{\"path\": \"%s\", \"type\": \"alpaca:unsloth\"}", path);
    check_lines(AF_DIALECT_UNSLOTH, (const char *const[][2]){{keys, want}}, 1);
    CHECK_OK(af_file_write(path, chat, strlen(chat), &err), err);
    snprintf(want, sizeof want, "datasets: [{\"path\": \"%s\"}]", path);
    check_lines(AF_DIALECT_UNSLOTH, (const char *const[][2]){{keys, want}}, 1);
    CHECK_OK(af_path_remove(dir, &err), err);
}

/* ---- AutoTrain ---- */

#define AUTO(task, data) "task: " task "\nproject_name: p\ndata: {path: d" data "}\n"
#define TEXT             ", column_mapping: {text_column: m}"
#define BOTH             ", column_mapping: {text_column: c, rejected_text_column: r}"
#define SFT              AUTO("llm-sft", ", chat_template: tokenizer" TEXT)
#define PAIRS            AUTO("llm-dpo", BOTH)

static void test_autotrain(void **state)
{
    static const char *const cases[][2] = {
        {SFT, "adapter: full\n"},
        {SFT, "datasets: [{\"path\": \"d\", \"split\": \"train\", \"field_messages\": \"m\"}]\n"},
        {SFT, "sample_packing: true\n"},
        {SFT, "sequence_len: 1024\n"},
        {SFT, "train_on_inputs: true\n"},
        {SFT, "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"},
        {SFT, "learning_rate: 3e-05\n"},
        {SFT, "warmup_ratio: 0.1\n"},
        {SFT, "output_dir: \"p\"\n"},
        {SFT "params: {peft: true}", "adapter: lora\nload_in_4bit: true\n"},
        {SFT "params: {peft: true, quantization: null}", "adapter: lora\nload_in_4bit: auto\n"},
        {SFT "params: {peft: true, quantization: int8}", "load_in_8bit: true\n"},
        {SFT "params: {peft: true}", "lora_r: 16\nlora_alpha: 32\nlora_dropout: 0.05\n"},
        {SFT "params: {quantization: int4, lora_r: 8}", "adapter: full\n"},
        {SFT "params: {block_size: 4096}", "sequence_len: 2048\n"},
        {SFT "params: {block_size: 4096, model_max_length: 8192}", "sequence_len: 4096\n"},
        {SFT "params: {block_size: -1, model_max_length: 512}", "sequence_len: 512\n"},
        {SFT "params: {lr: 1e-5, epochs: 2, batch_size: 1}", "micro_batch_size: 1\n"},
        {SFT "params: {max_prompt_length: 512, dpo_beta: 0.1}", "rl: none\n"}, /* not read */
        {SFT "params: {gradient_accumulation: 8, scheduler: cosine}", "lr_scheduler: \"cosine\"\n"},
        {SFT "params: {mixed_precision: bf16, logging_steps: -1}", "bf16: true\n"},
        {SFT "log: wandb\nbackend: local\nhub: {push_to_hub: true}", "report_to: [\"wandb\"]\n"},
        {AUTO("llm-sft", ", valid_split: 'a:v'"),
         "test_datasets: [{\"path\": \"d\", \"name\": \"a\", \"split\": \"v\", \"type\": \"text\", "
         "\"field_text\": \"text\"}]\n"},
        {AUTO("llm-sft", ", valid_split: v"), "load_best_model_at_end: true\n"},
        {AUTO("llm", "") "params: {trainer: default}", "stage: pt\n"},
        {AUTO("llm", "") "params: {trainer: orpo, dpo_beta: 0.3}", "rl: orpo\nrl_beta: 0.3\n"},
        {PAIRS, "datasets: [{\"path\": \"d\", \"split\": \"train\", \"field_chosen\": \"c\", "
                "\"field_rejected\": \"r\"}]\n"},
        {PAIRS, "max_prompt_length: 128\n"},
        {PAIRS "params: {max_prompt_length: 512, max_completion_length: 64}",
         "max_prompt_length: 512\n"},
    };
    static const char *const wrong[][2] = {
        {AUTO("text-classification", ""), "task 'text-classification' of AutoTrain is not"},
        {AUTO("[]", ""), "run.yaml:2: task '' of AutoTrain is not supported"},
        {AUTO("llm-ppo", ""), "run.yaml:2: task 'llm-ppo' of AutoTrain is not supported: llm-sft"},
        {AUTO("llm-sft", ", chat_template: zephyr"), "chat_template 'zephyr' of AutoTrain is not"},
        {AUTO("llm-sft", ", split: a"), "unknown key 'split' of data (it has path train_split"},
        {SFT "params: {lrate: 1}", "run.yaml:5: unknown key 'lrate'"},
        {SFT "params: {block_size: [1, 2]}", "sequence_len must be a whole number"},
        {SFT "params: {model_ref: x}", "'model_ref' with 'x' is not supported"},
    };
    (void)state;
    check_lines(AF_DIALECT_AUTOTRAIN, cases, AF_LEN(cases));
    check_refusals(wrong, AF_LEN(wrong));
}

/* ---- torchtune ---- */

#define TUNE(model, tokenizer, data)                                                               \
    "checkpointer: {_component_: t.FullModelHFCheckpointer, checkpoint_dir: /m/, output_dir: "     \
    "'${output_dir}'}\noutput_dir: /o\nmodel: {_component_: torchtune.models.x." model             \
    "}\ntokenizer: {_component_: torchtune.models.x." tokenizer                                    \
    "}\ndataset: {_component_: torchtune.datasets." data "}\n"
#define LORA_8B "lora_llama3_8b, lora_attn_modules: [q_proj, v_proj, output_proj]"
#define ALPACA  TUNE(LORA_8B, "llama3_tokenizer", "alpaca_dataset, packed: False")

static void test_torchtune(void **state)
{
    static const char *const cases[][2] = {
        {ALPACA, "base_model: \"/m\"\n"},
        {ALPACA, "output_dir: \"/o\"\n"},
        {ALPACA, "adapter: lora\n"},
        {ALPACA, "lora_r: 8\nlora_alpha: 16\nlora_dropout: 0\n"},
        {ALPACA, "lora_target_modules: [\"q_proj\", \"v_proj\", \"o_proj\"]\n"},
        {ALPACA, "chat_template: \"llama3\"\n"},
        {TUNE(LORA_8B, "llama3_tokenizer", "alpaca_dataset, max_seq_len: 77"),
         "sequence_len: 77\n"},
        {ALPACA, "sequence_len: 16777216\n"},
        {ALPACA, "lr_scheduler: \"constant\"\n"},
        {ALPACA, "max_grad_norm: 0\n"},
        {ALPACA, "saves_per_epoch: 1\n"},
        {ALPACA "save_every_n_steps: 7", "save_steps: 7\n"},
        {ALPACA, "datasets: [{\"path\": \"tatsu-lab/alpaca\", \"type\": "
                 "\"alpaca:chat_template\", \"field_instruction\": \"instruction\", "
                 "\"field_input\": \"input\", \"field_output\": \"output\", "
                 "\"train_on_inputs\": true}]\n"},
        {TUNE("llama3_8b", "llama3_tokenizer",
              "alpaca_dataset") "fake_quant_after_n_steps: 9\nquantizer: {_component_: "
                                "torchtune.training."
                                "quantization.Int8DynActInt4WeightQATQuantizer}",
         "\"int8\", \"group_size\": 256, \"fake_quant_after_n_steps\": 9}\n"},
        {ALPACA "optimizer: {_component_: torch.optim.AdamW, fused: True, lr: 3e-4}",
         "weight_decay: 0.01\nweight_decay_on: all\n"},
        {ALPACA "optimizer: {_component_: bitsandbytes.optim.PagedAdamW8bit, lr: 2e-5, "
                "weight_decay: 0.1, betas: [0.8, 0.95]}",
         "optimizer: adamw_8bit\nlearning_rate: 2e-05\n"},
        {ALPACA "optimizer: {_component_: torch.optim.AdamW, lr: 1e-5, betas: [0.8, 0.95]}",
         "adam_beta1: 0.8\nadam_beta2: 0.95\n"},
        {ALPACA "optimizer: {_component_: torchao.optim.AdamW8bit}", "adamw_torch_8bit\n"},
        {ALPACA "optimizer: {_component_: torchao.optim.AdamW4bit}", "optimizer: adamw_4bit\n"},
        {ALPACA "optimizer: {_component_: bitsandbytes.optim.PagedLion8bit}",
         "optimizer: lion_8bit\n"},
        {ALPACA "optimizer: {_component_: bitsandbytes.optim.Lion}", "adam_beta2: 0.99\n"},
        {ALPACA "optimizer: {_component_: torch.optim.RAdam}", "optimizer: radam\n"},
        {ALPACA "optimizer: {_component_: torch.optim.SGD}", "weight_decay: 0\n"},
        {ALPACA "optimizer: {_component_: bitsandbytes.optim.Lion}", "weight_decay: 0\n"},
        {ALPACA "lr_scheduler: {_component_: a.get_cosine_schedule_with_warmup, "
                "num_warmup_steps: 100}",
         "lr_scheduler: \"cosine\"\nwarmup_steps: 100\n"},
        {ALPACA "batch_size: 3\nepochs: 2\nmax_steps_per_epoch: 50", "max_steps: 100\n"},
        {ALPACA "epochs: 2\nmax_steps_per_epoch: -1", "num_epochs: 2\n"},
        {ALPACA "batch_size: 3\nepochs: 2\nclip_grad_norm: 1.0", "max_grad_norm: 1\n"},
        {ALPACA "dtype: fp32\nseed: null\ncompile: True", "bf16: false\n"},
        {ALPACA "resume_from_checkpoint: True", "resume_from_checkpoint: \"auto\"\n"},
        {ALPACA "resume_from_checkpoint: False", "!resume_from_checkpoint: \"auto\""},
        {ALPACA "metric_logger: {_component_: a.WandBLogger, project: '${output_dir}/p'}",
         "wandb_project: \"/o/p\"\n"},
        {ALPACA "kd_loss: {_component_: a.ForwardKLLoss}\nkd_ratio: 0.25\nteacher_checkpointer: "
                "{_component_: a.C, checkpoint_dir: /t}",
         "kd_alpha: 0.25\nkd_ce_alpha: 0.75\n"},
        {ALPACA "teacher_checkpointer: {_component_: a.C, checkpoint_dir: /t/original/}",
         "teacher_model: \"/t\"\n"},
        {TUNE(LORA_8B ", use_dora: True", "llama3_tokenizer", "alpaca_dataset"),
         "peft_use_dora: true\n"},
        {TUNE(LORA_8B ", quantize_base: True", "llama3_tokenizer", "alpaca_dataset"),
         "adapter: qlora\n"},
        {TUNE("qlora_llama2_7b, lora_attn_modules: [q_proj], apply_lora_to_mlp: True",
              "llama2_tokenizer, max_seq_len: 2048",
              "instruct_dataset, source: json, data_files: d.json, packed: True, column_map: "
              "{input: q, output: a}"),
         "datasets: [{\"ds_type\": \"json\", \"data_files\": d.json, \"type\": "
         "\"prompt_completion\", \"field_prompt\": \"q\", \"field_completion\": \"a\", "
         "\"train_on_inputs\": false}]\n"},
        {TUNE("qlora_llama2_7b, lora_attn_modules: [q_proj], apply_lora_to_mlp: True",
              "llama2_tokenizer", "alpaca_cleaned_dataset, split: 'train[:5%]'"),
         "lora_target_modules: [\"q_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]\n"},
        {TUNE("lora_phi3_mini, lora_attn_modules: [q_proj, v_proj], apply_lora_to_mlp: True",
              "phi3_mini_tokenizer", "alpaca_dataset"),
         "lora_target_modules: [\"qkv_proj\", \"gate_up_proj\", \"down_proj\"]\n"},
        {TUNE("gemma_2b", "gemma_tokenizer, prompt_template: torchtune.data.SummarizeTemplate",
              "samsum_dataset, packed: False"),
         "\"format\": \"Summarize this dialogue:\\n{instruction}\\n---\\nSummary:\\n\""},
        {TUNE("gemma_2b", "gemma_tokenizer, prompt_template: {user: ['{ ', ' }']}",
              "instruct_dataset, source: a/b"),
         "\"format\": \"{{ {instruction} }}\""},
        {TUNE("qwen2_7b", "qwen2_tokenizer, max_seq_len: 512",
              "chat_dataset, source: a/b, conversation_column: c, conversation_style: openai, "
              "new_system_prompt: Hi, packed: True"),
         "datasets: [{\"path\": \"a/b\", \"type\": \"messages\", \"field_messages\": \"c\", "
         "\"train_on_inputs\": false, \"drop_system_message\": true}]\n"},
        {TUNE("qwen2_7b", "qwen2_tokenizer, max_seq_len: 512",
              "text_completion_dataset, source: a/b, packed: True"),
         "sample_packing: true\nsample_packing_sequentially: true\n"},
        {TUNE(LORA_8B, "llama3_tokenizer",
              "stack_exchange_paired_dataset") "loss: {_component_: torchtune.rlhf.loss.DPOLoss, "
                                               "beta: 0.2}",
         "rl: dpo\nrl_beta: 0.2\n"},
        {TUNE(LORA_8B, "llama3_tokenizer",
              "preference_dataset, source: a/b") "loss: {_component_: torchtune.rlhf.loss.RSOLoss}",
         "dpo_loss_type: [\"hinge\"]\n"},
        {TUNE(LORA_8B, "llama3_tokenizer",
              "preference_dataset, source: a/b") "loss: {_component_: a.RSOLoss, gamma: 0.3}",
         "rl_beta: 0.3\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_TORCHTUNE, cases[i][0], cases[i][1], false);
}

static void test_torchtune_refuses(void **state)
{
    static const char *const cases[][2] = {
        {TUNE("llama3_2_vision_11b", "t", "alpaca_dataset"), "run.yaml:3: model 'llama3_2_vision"},
        {TUNE("lora_llama3_8b", "llama3_tokenizer", "alpaca_dataset"), "lora_attn_modules must be"},
        {TUNE(LORA_8B ", lora_rnak: 3", "llama3_tokenizer", "alpaca_dataset"),
         "run.yaml:3: 'lora_rnak' of model is not supported"},
        {TUNE(LORA_8B, "llama3_tokenizer", "mine.my_dataset"), "run.yaml:5: dataset 'my_dataset'"},
        {TUNE(LORA_8B, "llama3_tokenizer", "instruct_dataset"), "instruct_dataset has no 'source'"},
        {TUNE(LORA_8B, "llama3_tokenizer", "instruct_dataset, source: json"),
         "'source: json' needs 'data_files'"},
        {TUNE(LORA_8B, "llama3_tokenizer", "alpaca_dataset, filter_fn: f"),
         "'filter_fn' of a data"},
        {TUNE(LORA_8B, "llama3_tokenizer, prompt_template: a.QuestionAnswerTemplate",
              "instruct_dataset, source: a/b"),
         "run.yaml:4: a prompt_template inside the turns of llama3_tokenizer"},
        {TUNE(LORA_8B, "llama2_tokenizer, prompt_template: my.Template", "alpaca_dataset"),
         "run.yaml:4: prompt_template is not supported, but for"},
        {ALPACA "optimizer: {_component_: torch.optim.LBFGS}", "optimizer 'LBFGS' of torchtune"},
        {ALPACA "lr_scheduler: {_component_: a.get_lr}", "lr_scheduler 'get_lr' of torchtune"},
        {ALPACA "optimizer: {_component_: torch.optim.AdamW, betas: [0.9]}", "list of two numbers"},
        {ALPACA "loss: {_component_: a.PPOLoss}", "loss 'PPOLoss' of torchtune is not supported"},
        {ALPACA "quantizer: {_component_: a.Int8DynActInt4WeightQATQuantizer}",
         "not for an adapter"},
        {ALPACA "quantizer: {_component_: a.Int4WeightOnlyQATQuantizer}", "see 'qat'"},
        {ALPACA "policy_model: {_component_: a.b}", "with generated answers (PPO, GRPO) are not"},
        {ALPACA "a: '${b}'\nb: '${a}'\nmetric_logger: {_component_: a.WandBLogger, name: '${a}'}",
         "refers to itself"},
        {ALPACA "metric_logger: {_component_: a.WandBLogger, name: '${a.b}'}",
         "'${a.b}' names no value of the file"},
        {ALPACA "optimizer: [1]", "run.yaml:6: optimizer has no '_component_'"},
        {ALPACA "epocks: 3", "run.yaml:6: unknown key 'epocks'"},
        {"checkpointer: {_component_: a.b, checkpoint_dir: /m}\ntasks: [x]", "does not train"},
        {"tokenizer: {_component_: a.b}", "whose 'checkpointer' names the model: there is none"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_TORCHTUNE, cases[i][0], cases[i][1], true);
}

/* ---- Oumi ---- */

#define OUMI(model, data, training)                                                                \
    "model: {model_name: m" model "}\ndata: {train: {datasets: [{" data                            \
    "}]}}\ntraining: {trainer_type: TRL_SFT" training "}\n"
#define CHAT    OUMI("", "dataset_name: a/b", "")
#define ADAPTER OUMI("", "dataset_name: a/b", ", use_peft: True")

static void test_oumi(void **state)
{
    static const char *const cases[][2] = {
        {CHAT, "base_model: \"m\"\n"},
        {CHAT, "adapter: full\n"},
        {CHAT, "datasets: [{\"path\": \"a/b\"}]\n"},
        {CHAT, "train_on_inputs: true\n"},
        {CHAT, "micro_batch_size: 8\n"},
        {CHAT, "learning_rate: 5e-05\n"},
        {CHAT, "num_epochs: 3\n"},
        {CHAT, "save_steps: 500\n"},
        {CHAT "peft: {q_lora: True, lora_r: 4}", "adapter: full\n"}, /* not read */
        {ADAPTER, "adapter: lora\n"},
        {ADAPTER, "lora_target_modules: [\"peft-default\"]\n"},
        {ADAPTER "peft: {q_lora: True, bnb_4bit_quant_type: nf4, lora_alpha: 16}",
         "adapter: qlora\n"},
        {ADAPTER "peft: {q_lora: True, q_lora_bits: 8, bnb_4bit_quant_type: fp4}",
         "load_in_8bit: true\n"},
        {ADAPTER "peft: {lora_r: 4, lora_init_weights: pissa_niter_4, lora_bias: none}",
         "peft_init_lora_weights: \"pissa_niter_4\"\n"},
        {OUMI(", model_max_length: 512", "dataset_name: a/b",
              ", trainer_kwargs: {max_seq_length: '${model.model_max_length}', packing: True}"),
         "sequence_len: 512\nsample_packing: true\n"},
        {OUMI(", chat_template: gemma2-it", "dataset_name: a/b", ""),
         "chat_template: \"gemma3\"\n"},
        {OUMI(", chat_template: phi3-instruct", "dataset_name: a/b", ""), "template: \"phi_35\"\n"},
        {OUMI(", chat_template: zephyr", "dataset_name: a/b", ""),
         "chat_template: \"{% for m in messages %}{{ '<|' + m['role'] + '|>\\\\n' + m['content'] | "
         "trim + eos_token + '\\\\n' }}{% endfor %}{% if add_generation_prompt %}"},
        {OUMI(", chat_template: chat_ml", "dataset_name: a/b", ""),
         "chat_template: \"{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + "},
        {OUMI(", chat_template: llama3-instruct", "dataset_name: a/b", ""),
         "chat_template: \"llama3\"\n"},
        {OUMI(", load_pretrained_weights: False", "dataset_name: a/b", ""),
         "reinit_weights: true\n"},
        {OUMI("", "dataset_name: a/b", ", mixed_precision_dtype: BF16"), "bf16: true\n"},
        {OUMI("", "dataset_name: a/b", ", save_steps: 0"), "save_steps: 0\n"},
        {OUMI("", "dataset_name: a/b", ", output_dir: x, run_name: '${training.output_dir}-1'"),
         "run_name: \"x-1\"\n"},
        {OUMI("", "dataset_name: text_sft, dataset_path: d.jsonl, sample_count: 9", ""),
         "datasets: [{\"path\": \"d.jsonl\", \"max_samples\": 9}]\n"},
        {OUMI("", "dataset_name: a/b, sample_count: 9, shuffle: True, seed: 3", ""),
         "datasets: [{\"path\": \"a/b\", \"num_samples\": 9, \"seed\": 3}]\n"},
        {OUMI("", "dataset_name: PromptResponseDataset, dataset_path: d", ""),
         "\"field_instruction\": \"instruction\""},
        {OUMI("",
              "dataset_name: PromptResponseDataset, dataset_kwargs: {hf_dataset_path: a/b, "
              "prompt_column: q}",
              ""),
         "datasets: [{\"path\": \"a/b\", \"field_instruction\": \"q\", \"field_output\": "
         "\"output\"}]\n"},
        {OUMI("", "dataset_name: yahma/alpaca-cleaned", ""), "\"type\": \"alpaca:oumi\""},
        {"model: {model_name: m}\ntraining: {trainer_type: trl_dpo, eval_strategy: steps, "
         "eval_steps: 5}\ndata: {train: {datasets: [{dataset_name: a}]}, validation: {datasets: "
         "[{dataset_name: a, split: test}]}}",
         "test_datasets: [{\"path\": \"a\", \"split\": test}]\n"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_DPO, trainer_kwargs: {beta: 0.3}}\n"
         "data: {train: {datasets: [{dataset_name: a}]}}",
         "rl: dpo\nrl_beta: 0.3\n"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_SFT}\ndata: {train: {train_target: "
         "final_assistant_turn, datasets: [{dataset_name: a}]}}",
         "mask_history: true\n"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_SFT}\ndata: {train: {"
         "mixture_strategy: all_exhausted, datasets: [{dataset_name: a, mixture_proportion: 0.25}, "
         "{dataset_name: b, mixture_proportion: 0.75}]}}",
         "mix_strategy: interleave_over\ninterleave_probs: [\"0.25\", \"0.75\"]\n"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_SFT}\ndata: {train: {train_target: "
         "all_assistant_turns, pack: True, datasets: [{dataset_name: a}]}}",
         "train_on_inputs: false\n"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_SFT}\ndata: {train: {pack: True, "
         "datasets: [{dataset_name: a}]}}",
         "sample_packing: true\n"},
        {OUMI(", model_max_length: 64", "dataset_name: a/b", ", trainer_kwargs: {max_length: 32}"),
         "sequence_len: 64\n"},
        {OUMI("", "dataset_name: a/b", ", save_epoch: True"), "saves_per_epoch: 1\n"},
        {OUMI("", "dataset_name: a/b", ", save_epoch: True, save_steps: 7"), "save_steps: 7\n"},
        {CHAT "fsdp: {enable_fsdp: True, sharding_strategy: SHARD_GRAD_OP}",
         "fsdp: shard_grad_op\n"},
        {OUMI(", freeze_layers: [model.layers.1]", "dataset_name: a/b", ", use_peft: False"),
         "freeze_parameters: [\"model.layers.1.\"]\n"},
        {CHAT "deepspeed: {enable_deepspeed: True, zero_stage: ZERO_2}", "zero_stage: 2\n"},
        {CHAT "deepspeed: {enable_deepspeed: True}", "zero_stage: 0\n"},
    };
    static const char *const wrong[][2] = {
        {OUMI("", "dataset_name: a, mixture_proportion: 0.5}, {dataset_name: b", ""),
         "run.yaml:2: all datasets have a 'mixture_proportion' or none"},
        {OUMI(
             "",
             "dataset_name: a, mixture_proportion: 0.5}, {dataset_name: b, mixture_proportion: 0.7",
             ""),
         "run.yaml:2: the mixture_proportion of all datasets must add up to 1, not 1.2"},
        {OUMI("", "dataset_name: a, mixture_proportion: x", ""),
         "run.yaml:2: mixture_proportion must be a number from 0 to 1"},
        {OUMI("", "dataset_name: text_sft", ""), "dataset 'text_sft' has no 'dataset_path'"},
        {OUMI("", "dataset_name: a, dataset_kwargs: {x: 1}", ""), "'x' of dataset_kwargs is not"},
        {OUMI("", "dataset_name: a", ", learning_rat: 1"),
         "run.yaml:3: unknown key 'learning_rat'"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_GRPO}\ndata: {train: {datasets: "
         "[{dataset_name: a}]}}",
         "run.yaml:2: trainer_type 'TRL_GRPO' is not supported"},
        {"model: {model_name: m}\ntraining: {trainer_type: TRL_SFT}\ndata: {train: {collator_name: "
         "vision_language_sft, datasets: [{dataset_name: a}]}}",
         "collator_name 'vision_language_sft' is not supported"},
        {"model: {model_name: m}\ngeneration: {max_new_tokens: 1}", "does not train: it has no 'd"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_OUMI, cases[i][0], cases[i][1], false);
    for (size_t i = 0; i < AF_LEN(wrong); i++)
        parse_file(AF_DIALECT_OUMI, wrong[i][0], wrong[i][1], true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_keys_without_effect),
        cmocka_unit_test(test_what_is_wrong),
        cmocka_unit_test(test_unsloth),
        cmocka_unit_test(test_unsloth_records),
        cmocka_unit_test(test_autotrain),
        cmocka_unit_test(test_torchtune),
        cmocka_unit_test(test_torchtune_refuses),
        cmocka_unit_test(test_oumi),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
