/* test_run_litgpt.c - run files of LitGPT. */
#define _DEFAULT_SOURCE
#include "parse_file.h"

#include "base/file.h"
#include "base/log.h"
#include "train/run/run_keys.h"

#include <unistd.h>

#define JSON(args) "data: {class_path: litgpt.data.JSON, init_args: {json_path: a.json" args "}}\n"
#define FULL(more) "checkpoint_dir: /m\nout_dir: o\n" more "\n"
#define LORA(more) FULL("lora_r: 4\n" JSON("") more)

static void test_keys(void **state)
{
    static const char *const cases[][2] = {
        {FULL(JSON("")), "base_model: \"/m\"\nadapter: full\n"},
        {LORA(""), "adapter: lora\n"},
        {LORA(""), "lora_r: 4\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_modules: "
                   "[\"q_proj\", \"v_proj\"]\n"},
        {LORA("lora_query: false\nlora_key: true\nlora_projection: true\nlora_mlp: true"),
         "[\"k_proj\", \"v_proj\", \"o_proj\", \"gate_proj\", \"up_proj\", \"down_proj\"]\n"},
        {LORA("lora_head: true"), "[\"q_proj\", \"v_proj\", \"lm_head\"]\n"},
        {"checkpoint_dir: checkpoints/microsoft/phi-2\nlora_mlp: true\n" JSON(""),
         "base_model: \"microsoft/phi-2\"\n"},
        {"checkpoint_dir: checkpoints/microsoft/phi-2\nlora_mlp: true\n" JSON(""),
         "[\"q_proj\", \"v_proj\", \"fc1\", \"fc2\"]\n"},
        {"checkpoint_dir: EleutherAI/pythia-1b\nlora_projection: true\n" JSON(""),
         "[\"query_key_value\", \"dense\"]\n"},
        {"checkpoint_dir: /m\nout_dir: out/lora/x\n" JSON(""), "adapter: lora\n"},
        {LORA("quantize: bnb.nf4-dq"), "load_in_4bit: true\n"},
        {LORA("quantize: bnb.int8-training"), "load_in_8bit: true\n"},
        {LORA("precision: bf16-true"), "bf16: true\n"},
        {LORA("precision: 32-true"), "bf16: false\n"},
        {LORA(""), "datasets: [{\"path\": \"a.json\", \"type\": \"alpaca\"}]\n"},
        {LORA(""), "val_set_size: 0.05\n"},
        {LORA(""), "train_on_inputs: true\n"},
        {FULL(JSON(", mask_prompt: true, val_split_fraction: 0.2")), "val_set_size: 0.2\n"},
        {FULL(JSON(", mask_prompt: true")), "train_on_inputs: false\n"},
        {FULL(JSON(", prompt_style: phi-2")),
         "\"type\": {\"format\": \"Instruct: {instruction}\\nOutput:\", \"no_input_format\": "},
        {FULL("data: {class_path: litgpt.data.Alpaca2k}"), "mhenrichsen/alpaca_2k_test"},
        {FULL("lora_r: 8\ntrain: {epochs: 1}"), "\"path\": \"yahma/alpaca-cleaned\""},
        {FULL("lora_r: 8\ntrain: {epochs: 1}"), "val_set_size: 0.03865\n"},
        {LORA(""), "micro_batch_size: 1\ngradient_accumulation_steps: 16\n"},
        {LORA("train: {global_batch_size: 8, micro_batch_size: 2, lr_warmup_steps: 3}"),
         "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"},
        {LORA("train: {lr_warmup_steps: 3, max_tokens: }"), "warmup_steps: 3\n"},
        {LORA("train: {max_seq_length: 99, min_lr: 6e-5}"), "sequence_len: 99\n"},
        {LORA(""), "sequence_len: 16777216\n"},
        {LORA(""), "num_epochs: 5\n"},
        {LORA(""), "optimizer: adamw\nlearning_rate: 0.001\n"},
        {LORA("train: {learning_rate: 2e-4, beta2: 0.95}"), "learning_rate: 0.0002\n"},
        {LORA("train: {learning_rate: 2e-4}"),
         "weight_decay: 0.02\nweight_decay_on: all\nadam_beta1: 0.9\nadam_beta2: 0.95\n"},
        {LORA("train: {weight_decay: 0.1}"), "learning_rate: 0.0003\n"},
        {FULL(JSON("") "train: {weight_decay: 0.1}"), "learning_rate: 0.003\n"},
        {LORA("optim: {optimizer: adamw, learning_rate: 1e-4, beta2: 0.98}"),
         "adam_beta1: 0.9\nadam_beta2: 0.98\n"},
        {LORA("optim: {learning_rate: 1e-4}"), "optimizer: adamw\n"},
        {FULL(JSON("") "optim:\n  optimizer: galore_adamw_8bit\n  weight_decay: 0.1\n"
                       "  extra_kwargs: rank=32, update_proj_gap=100, scale=0.5, proj_type=std"),
         "galore_rank: 32\n"},
        {LORA("optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 3e-4, betas: [0.9, "
              "0.95]}}"),
         "adam_beta2: 0.95\n"},
        {LORA("optimizer: bitsandbytes.optim.PagedAdamW8bit"), "optimizer: adamw_8bit\n"},
        {LORA("optimizer: AdamW"), "weight_decay: 0.01\nweight_decay_on: all\n"},
        {LORA("train: {save_interval: 7}\neval: {interval: 9, max_iters: 5}"), "save_steps: 7\n"},
        {LORA("eval: {interval: 9, max_iters: 5}"), "eval_steps: 9\n"},
        {LORA(""), "eval_steps: 100\n"},
        {FULL(JSON("")), "eval_steps: 600\n"},
        {LORA("seed: 5\ndevices: 4\nlogger_name: csv\naccess_token: x\nresume: false"),
         "seed: 5\n"},
        {LORA("logger_name: wandb\nlog: {project: p}"), "report_to: [\"wandb\"]\n"},
        {FULL(JSON("") "resume: auto"), "auto_resume_from_checkpoints: true\n"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_LITGPT, cases[i][0], cases[i][1], false);
}

static void test_refusals(void **state)
{
    static const char *const cases[][2] = {
        {FULL("data: {class_path: litgpt.data.LIMA}"), "run.yaml:3: data 'LIMA' of LitGPT is not"},
        {FULL("data: {class_path: litgpt.data.JSON}"), "run.yaml:3: the data JSON has no"},
        {FULL(JSON(", prompt_style: longform")), "run.yaml:3: prompt_style 'longform' is not"},
        {FULL(JSON(", shuffle: 3")), "run.yaml:3: 'shuffle' of init_args of data is not supported"},
        {LORA("quantize: bnb.fp4"), "run.yaml:5: quantize 'bnb.fp4' is not supported"},
        {LORA("precision: half"), "run.yaml:5: precision must be bf16-true"},
        {LORA("train: {max_norm: 1.0}"), "run.yaml:5: 'max_norm' of train is not supported"},
        {LORA("train: {lr_warmup_fraction: 0.1}"), "'lr_warmup_fraction' of train is not supp"},
        {LORA("train: {global_batch_size: 2, micro_batch_size: 4}"), "less than micro_batch_size"},
        {LORA("eval: {intreval: 5}"), "run.yaml:5: 'intreval' of eval is not supported"},
        {LORA("eval: 5"), "run.yaml:5: eval must be a map"},
        {LORA("optimizer: {class_path: galore_torch.GaLoreAdamW}"), "optimizer 'GaLoreAdamW' of"},
        {LORA("optimizer: {class_path: torch.optim.AdamW, init_args: {betas: 1}}"),
         "betas must be a list of two numbers"},
        {LORA("optim: {optimizer: sophia}"), "run.yaml:5: optimizer 'sophia' of LitGPT"},
        {LORA("optim: {learnin_rate: 1}"), "'learnin_rate' of optim is not supported"},
        {LORA("optim: {extra_kwargs: eps=1e-6}"), "run.yaml:5: extra_kwargs of optim is read with"},
        {LORA("optim: adamw"), "run.yaml:5: optim must be a map"},
        {LORA("optim: {optimizer: galore_adamw}"), "galore is for full fine-tuning"},
        {LORA("lora_rnak: 4"), "unknown key 'lora_rnak'"},
        {LORA("train: {global_batch_size: 7.5}"), "run.yaml:5: global_batch_size must be a whole"},
        {LORA("lora_mlp: 1"), "run.yaml:5: lora_mlp must be true or false"},
        {FULL(JSON(", mask_prompt: some")), "run.yaml:3: mask_prompt must be true or false"},
        {FULL("train: {epochs: 1}\ndata: {init_args: {json_path: a.json}}"),
         "run.yaml:4: data has no class"},
        {FULL("train: {epochs: 1}\ndata: [a.json]"), "run.yaml:4: data has no class_path"},
        {"base_model: m\ndata: {class_path: litgpt.data.Alpaca2k}", "files of LitGPT"},
    };
    (void)state;
    for (size_t i = 0; i < AF_LEN(cases); i++)
        parse_file(AF_DIALECT_LITGPT, cases[i][0], cases[i][1], true);
}

/* The batch of a file has the rows of all ranks, what a command line says is of each. */
static void test_ranks(void **state)
{
    static const char *const own[] = {"gradient_accumulation_steps=6"};
    static const char file[] = LORA("train: {global_batch_size: 12}");
    (void)state;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "3", 1);
    parse_file(AF_DIALECT_LITGPT, file, "gradient_accumulation_steps: 4\n", false);
    af_run_config r = {0};
    af_error err = {0};
    CHECK_OK(af_run_config_parse(&r, file, strlen(file), "run.yaml", own, 1, &err), err);
    assert_int_equal(r.accumulation, 6);
    af_run_config_clear(&r);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
}

/* A folder has a file for each of the two splits. */
static void test_folder(void **state)
{
    char dir[] = "/tmp/afinar-litgpt-XXXXXX", path[100], text[400], want[300];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/val.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fclose(f);
    snprintf(text, sizeof text, FULL("data: {class_path: JSON, init_args: {json_path: %s}}"), dir);
    snprintf(want, sizeof want, "\"path\": \"%s/train.jsonl\"", dir);
    parse_file(AF_DIALECT_LITGPT, text, want, false);
    snprintf(want, sizeof want, "test_datasets: [{\"path\": \"%s/val.json\"", dir);
    parse_file(AF_DIALECT_LITGPT, text, want, false);
    parse_file(AF_DIALECT_LITGPT, text, "!val_set_size", false);
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    af_log_mute(true);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
