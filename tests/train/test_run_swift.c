/* test_run_swift.c - run files of ms-swift, of Unsloth's program and of AutoTrain. */
#define _DEFAULT_SOURCE
#include "test.h"

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
        {LORA "val_dataset: [v.jsonl]", "test_datasets: [{\"path\": \"v.jsonl\"}]\n"},
        {LORA "val_dataset: v.jsonl\nsave_steps: 7", "eval_steps: 7\n"},
        {LORA "val_dataset: v.jsonl\neval_steps: 9", "eval_steps: 9\n"},
        {LORA "split_dataset_ratio: 0.1", "val_set_size: 0.1\n"},
        {LORA "truncation_strategy: right", "excess_length_strategy: truncate\n"},
        {LORA "truncation_strategy: left", "truncation_mode: keep_end\n"},
        {LORA "truncation_strategy: left", "excess_length_strategy: truncate\n"},
        {LORA "loss_scale: all", "train_on_inputs: true\n"},
        {LORA "loss_scale: last_round", "mask_history: true\n"},
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
        {CHATS "training: {max_steps: 0, save_steps: 0}", "save_steps: 500\n"},
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
